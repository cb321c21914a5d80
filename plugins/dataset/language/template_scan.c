/* Cuts a template into tokens, as jinja2.lexer does with trim_blocks and lstrip_blocks. The first newline after a block
 * or comment belongs to it. Spaces before it also belong to it, if nothing else precedes it in its line. See
 * template_parts.h. */
#include <stdlib.h>

#include "template_parts.h"

#define BRACKETS_MAX 256

typedef struct scanner {
  template *t;
  slice s;
  size_t at;
  bool at_line; /* the last match ended with a newline; true at the beginning */
  char bracket[BRACKETS_MAX];
  size_t brackets;
  buffer *out; /* tokens */
} scanner;

static brim_status add(scanner *c, int32_t kind, size_t at, slice text)
{
  const token made = {.kind = kind, .at = at, .text = text};
  return buffer_add(c->out, (const char *)&made, sizeof made);
}

static bool has(const scanner *c, size_t at, const char *text)
{
  const size_t bytes = strlen(text);
  return at + bytes <= c->s.bytes && memcmp(c->s.text + at, text, bytes) == 0;
}

static char char_at(const scanner *c, size_t at)
{
  return at < c->s.bytes ? c->s.text[at] : '\0';
}

static slice part(const scanner *c, size_t from, size_t to)
{
  return (slice){c->s.text + from, to - from};
}

static const slice spaces = {NULL, 0};

/* If a tag ends at `at`, for instance with "-%}", returns the place after the tag and the white space that it trims;
 * otherwise 0. `trims`: a newline after the tag belongs to it. */
static size_t tag_end(const scanner *c, size_t at, const char *end, bool trims)
{
  if (has(c, at, "-") && has(c, at + 1, end)) return slice_skip(c->s, at + 1 + strlen(end), spaces);
  if (!has(c, at, end)) return 0;
  at += strlen(end);
  return at + (trims && has(c, at, "\n"));
}

static void move(scanner *c, size_t to)
{
  c->at = to;
  c->at_line = to > 0 && c->s.text[to - 1] == '\n';
}

/* Adds the text from c->at up to the tag at `end`. `strips`: the tag has a minus. `lstrips`: spaces before the tag are
 * dropped if nothing else precedes it in its line. */
static brim_status add_data(scanner *c, size_t end, bool strips, bool lstrips)
{
  const size_t first = c->at;
  if (strips) {
    const size_t kept = slice_skip_back(c->s, end, spaces);
    end = kept > first ? kept : first;
  } else if (lstrips) {
    size_t line = end;
    while (line > first && c->s.text[line - 1] != '\n') line--;
    if ((line > first || c->at_line) && slice_skip(c->s, line, spaces) >= end) end = line;
  }
  return end == first ? BRIM_OK : add(c, TOKEN_DATA, first, part(c, first, end));
}

static brim_status skip_comment(scanner *c, size_t begin)
{
  for (size_t at = c->at; at < c->s.bytes; at++) {
    const size_t end = tag_end(c, at, "#}", true);
    if (!end) continue;
    if (c->s.text[at - 1] == '+') return template_fail(c->t, at - 1, "a comment that ends with + is not supported");
    move(c, end);
    return BRIM_OK;
  }
  return template_fail(c->t, begin, "{# has no #}");
}

/* ---- inside of a tag ---- */

static bool is_digit(char x)
{
  return x >= '0' && x <= '9';
}
static bool is_name(char x)
{
  return (x >= 'a' && x <= 'z') || (x >= 'A' && x <= 'Z') || x == '_' || is_digit(x);
}

static brim_status take_name(scanner *c)
{
  const size_t first = c->at;
  while (is_name(char_at(c, c->at))) c->at++;
  if (char_at(c, c->at) & 0x80) return template_fail(c->t, first, "a name may have ASCII characters only");
  return add(c, TOKEN_NAME, first, part(c, first, c->at));
}

static size_t skip_digits(const scanner *c, size_t at)
{
  while (is_digit(char_at(c, at))) at++;
  return at;
}

/* Reads digits. A float also has a point with digits, an exponent, or both. A number after a point is always an
 * integer: "x.0.1". */
static brim_status take_number(scanner *c)
{
  const size_t at = c->at;
  size_t end = skip_digits(c, at);
  bool real = false;
  if (at == 0 || c->s.text[at - 1] != '.') {
    const size_t point = end + (char_at(c, end) == '.'), places = skip_digits(c, point);
    if (places > point) end = places;
    const size_t sign = end + 1, digits = sign + (char_at(c, sign) == '-' || char_at(c, sign) == '+');
    if ((char_at(c, end) | 32) == 'e' && is_digit(char_at(c, digits))) end = skip_digits(c, digits);
    real = end > skip_digits(c, at);
  }
  if (!real && c->s.text[at] == '0' && end > at + 1)
    return template_fail(c->t, at, "a number that begins with 0 is not supported");
  if (end - at > 300) return template_fail(c->t, at, "a number is too long");
  c->at = end;
  return add(c, real ? TOKEN_FLOAT : TOKEN_INT, at, part(c, at, end));
}

/* Decodes the escape at s[*at]. Templates have no other escapes. */
static brim_status unescape(const scanner *c, size_t *at, buffer *out)
{
  static const char from[] = "\\'\"nrt", to[] = "\\'\"\n\r\t";
  const char x = char_at(c, *at + 1), *simple = x ? strchr(from, x) : NULL;
  if (simple) {
    *at += 2;
    return buffer_add(out, &to[simple - from], 1);
  }
  char hex[5] = "";
  if (x == 'u') memcpy(hex, c->s.text + *at + 2, c->s.bytes - *at >= 6 ? 4 : 0);
  const uint32_t code = (uint32_t)strtoul(hex, NULL, 16);
  if (strspn(hex, "0123456789abcdefABCDEF") != 4 || (code >= 0xd800 && code < 0xe000)) {
    const slice shown = part(c, *at, *at + 1 + character_bytes(c->s, *at + 1));
    return template_fail(c->t, *at, "the escape '%.*s' is not supported", SHOWN(shown));
  }
  *at += 6;
  return buffer_add_character(out, (int32_t)code);
}

static brim_status decode_string(scanner *c, size_t at, size_t end, buffer *b, slice *out)
{
  while (at < end) {
    if (c->s.text[at] == '\\')
      BRIM_TRY(unescape(c, &at, b));
    else
      BRIM_TRY(buffer_add(b, c->s.text + at++, 1));
  }
  char *kept = memory_take(&c->t->memory, b->count + 1);
  if (!kept) return template_no_memory(c->t);
  if (b->count) memcpy(kept, b->data, b->count);
  *out = (slice){kept, b->count};
  return BRIM_OK;
}

static brim_status take_string(scanner *c)
{
  const size_t begin = c->at;
  const char quote = c->s.text[begin];
  size_t end = begin + 1;
  while (end < c->s.bytes && c->s.text[end] != quote) end += c->s.text[end] == '\\' ? 2 : 1;
  if (end >= c->s.bytes) return template_fail(c->t, begin, "a text has no closing %c", quote);
  slice text = part(c, begin + 1, end);
  if (memchr(text.text, '\\', text.bytes)) {
    buffer b = {0};
    const brim_status status = decode_string(c, begin + 1, end, &b, &text);
    free(b.data);
    BRIM_TRY(status);
  }
  c->at = end + 1;
  return add(c, TOKEN_STRING, begin, text);
}

static brim_status take_operator(scanner *c)
{
  static const char *const twos[] = {"//", "==", "!=", ">=", "<="};
  const size_t at = c->at;
  const char x = c->s.text[at];
  for (size_t i = 0; i < sizeof twos / sizeof twos[0]; i++) {
    if (!has(c, at, twos[i])) continue;
    c->at += 2;
    return add(c, OP2(twos[i][0], twos[i][1]), at, part(c, at, at + 2));
  }
  if (!x || !strchr("+-/*%~[](){}><=.:|,", x))
    return template_fail(c->t, at, "unexpected character '%.*s'", SHOWN(part(c, at, at + character_bytes(c->s, at))));
  if (strchr("([{", x)) {
    if (c->brackets == BRACKETS_MAX) return template_fail(c->t, at, "more than %d nested brackets", BRACKETS_MAX);
    c->bracket[c->brackets++] = x == '(' ? ')' : x == '[' ? ']' : '}';
  } else if (strchr(")]}", x)) {
    if (c->brackets == 0 || c->bracket[--c->brackets] != x) return template_fail(c->t, at, "unexpected '%c'", x);
  }
  c->at++;
  return add(c, x, at, part(c, at, at + 1));
}

static brim_status scan_tag(scanner *c, size_t begin, bool is_block)
{
  c->brackets = 0;
  for (;;) {
    const size_t end = c->brackets > 0 ? 0 : tag_end(c, c->at, is_block ? "%}" : "}}", is_block);
    if (end) {
      BRIM_TRY(add(c, TOKEN_CLOSE, c->at, part(c, c->at, c->at + 2)));
      move(c, end);
      return BRIM_OK;
    }
    const char x = char_at(c, c->at);
    const size_t space = slice_skip(c->s, c->at, spaces);
    if (c->at >= c->s.bytes) return template_fail(c->t, begin, is_block ? "{%% has no %%}" : "{{ has no }}");
    if (space > c->at)
      c->at = space;
    else if (is_digit(x))
      BRIM_TRY(take_number(c));
    else if (is_name(x))
      BRIM_TRY(take_name(c));
    else if (x == '"' || x == '\'')
      BRIM_TRY(take_string(c));
    else
      BRIM_TRY(take_operator(c));
  }
}

brim_status template_scan(template *t, buffer *out)
{
  scanner c = {.t = t, .s = t->source, .at_line = true, .out = out};
  while (c.at < c.s.bytes) {
    size_t tag = c.at;
    while (tag < c.s.bytes && !has(&c, tag, "{%") && !has(&c, tag, "{{") && !has(&c, tag, "{#")) tag++;
    if (tag == c.s.bytes) {
      BRIM_TRY(add_data(&c, tag, false, false));
      break;
    }
    const char kind = c.s.text[tag + 1];
    const bool minus = char_at(&c, tag + 2) == '-';
    BRIM_TRY(add_data(&c, tag, minus, kind != '{'));
    if (char_at(&c, tag + 2) == '+') return template_fail(t, tag, "a tag that begins with + is not supported");
    move(&c, tag + 2 + minus);
    if (kind == '#') {
      BRIM_TRY(skip_comment(&c, tag));
    } else {
      BRIM_TRY(add(&c, kind == '%' ? TOKEN_BLOCK : TOKEN_PRINT, tag, part(&c, tag, tag + 2)));
      BRIM_TRY(scan_tag(&c, tag, kind == '%'));
    }
  }
  return add(&c, TOKEN_END, c.s.bytes, (slice){c.s.text, 0});
}
