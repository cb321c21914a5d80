/* Cuts a template into tokens, as jinja2.lexer does with trim_blocks and lstrip_blocks: the first newline after a block
 * or comment belongs to it, and so do spaces before it if nothing else precedes it in its line. See template_parts.h.
 */
#include <errno.h>
#include <stdlib.h>

#include "brim/host.h"
#include "template_parts.h"

#define BRACKETS_MAX 256

typedef struct scanner {
  template *t;
  const char *s;
  size_t count, at;
  bool at_line; /* the last match ended in a newline; true at first */
  char bracket[BRACKETS_MAX];
  size_t brackets;
  tokens *out;
} scanner;

static brim_status add(scanner *c, int32_t kind, size_t at, slice text)
{
  tokens *o = c->out;
  if (o->count == o->room) {
    const size_t room = o->room ? 2 * o->room : 256;
    token *grown = brim_fault_hit(BRIM_FAULT_ALLOC, NULL) ? NULL : realloc(o->token, room * sizeof *grown);
    if (!grown) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the template '%s'", c->t->title);
    o->token = grown;
    o->room = room;
  }
  o->token[o->count++] = (token){.kind = kind, .at = at, .text = text};
  return BRIM_OK;
}

static bool has(const scanner *c, size_t at, const char *text)
{
  const size_t bytes = strlen(text);
  return at + bytes <= c->count && memcmp(c->s + at, text, bytes) == 0;
}

static size_t skip_space(const scanner *c, size_t at)
{
  while (at < c->count && is_python_space(utf8_character(c->s + at)))
    at += (size_t)utf8_length(c->s + at, c->count - at);
  return at;
}

static size_t strip_end(const scanner *c, size_t first, size_t end)
{
  while (end > first) {
    size_t before = end - 1;
    while (before > first && (c->s[before] & 0xc0) == 0x80) before--;
    if (!is_python_space(utf8_character(c->s + before))) break;
    end = before;
  }
  return end;
}

/* Returns the end of a tag's end such as "-%}" at `at`, with what is trimmed after it, or 0 if there is none. `trims`:
 * a newline after it belongs to it. */
static size_t tag_end(const scanner *c, size_t at, const char *end, bool plus, bool trims)
{
  if (has(c, at, "-") && has(c, at + 1, end)) return skip_space(c, at + 1 + strlen(end));
  if (plus && has(c, at, "+") && has(c, at + 1, end)) return at + 1 + strlen(end);
  if (!has(c, at, end)) return 0;
  at += strlen(end);
  return at + (trims && has(c, at, "\n"));
}

static void move(scanner *c, size_t to)
{
  c->at = to;
  c->at_line = to > 0 && c->s[to - 1] == '\n';
}

/* Adds the text from c->at to a tag at `end`; `sign` is that of the tag, 0 for none. */
static brim_status add_data(scanner *c, size_t end, char sign, bool lstrip)
{
  const size_t first = c->at;
  if (sign == '-') {
    end = strip_end(c, first, end);
  } else if (sign != '+' && lstrip) {
    size_t line = end;
    while (line > first && c->s[line - 1] != '\n') line--;
    if ((line > first || c->at_line) && skip_space(c, line) >= end) end = line;
  }
  if (end == first) return BRIM_OK;
  return add(c, TOKEN_DATA, first, (slice){c->s + first, end - first});
}

static char sign_at(const scanner *c, size_t at)
{
  return at < c->count && (c->s[at] == '-' || c->s[at] == '+') ? c->s[at] : 0;
}

/* Returns the place after "{%- word" at `at`, or 0. */
static size_t tag_word(const scanner *c, size_t at, const char *word)
{
  if (!has(c, at, "{%")) return 0;
  at = skip_space(c, at + 2 + (sign_at(c, at + 2) != 0));
  return has(c, at, word) ? skip_space(c, at + strlen(word)) : 0;
}

/* {% raw %} ... {% endraw %}; `at` is after the word. Returns false if it is another tag. */
static brim_status scan_raw(scanner *c, size_t begin, size_t at, bool *is_raw)
{
  const size_t body = tag_end(c, at, "%}", false, false);
  *is_raw = body > 0;
  if (!body) return BRIM_OK;
  move(c, body);
  for (size_t tag = body; tag < c->count; tag++) {
    const size_t word = tag_word(c, tag, "endraw"), end = word ? tag_end(c, word, "%}", true, true) : 0;
    if (!end) continue;
    BRIM_TRY(add_data(c, tag, sign_at(c, tag + 2), true));
    move(c, end);
    return BRIM_OK;
  }
  return template_fail(c->t, begin, "{%% raw %%} has no {%% endraw %%}");
}

static brim_status skip_comment(scanner *c, size_t begin)
{
  for (size_t at = c->at; at < c->count; at++) {
    const size_t end = tag_end(c, at, "#}", true, true);
    if (!end) continue;
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
static char char_at(const scanner *c, size_t at)
{
  return at < c->count ? c->s[at] : '\0';
}

/* (\d+_)*\d+ ; returns its end, or `at`. */
static size_t skip_digits(const scanner *c, size_t at)
{
  if (!is_digit(char_at(c, at))) return at;
  while (is_digit(char_at(c, at)) || (char_at(c, at) == '_' && is_digit(char_at(c, at + 1)))) at++;
  return at;
}

/* Returns the end of a float at `at`, or 0. */
static size_t float_end(const scanner *c, size_t at)
{
  if (at > 0 && c->s[at - 1] == '.') return 0;
  size_t end = skip_digits(c, at), whole = end;
  if (end == at) return 0;
  if (char_at(c, end) == '.' && is_digit(char_at(c, end + 1))) end = skip_digits(c, end + 1);
  if ((char_at(c, end) | 32) == 'e') {
    const size_t sign = end + 1 + (char_at(c, end + 1) == '-' || char_at(c, end + 1) == '+');
    if (is_digit(char_at(c, sign))) return skip_digits(c, sign);
  }
  return end > whole ? end : 0;
}

static brim_status take_number(scanner *c)
{
  char text[512];
  const size_t at = c->at, real = float_end(c, at);
  size_t end = real, used = 0;
  if (!real && c->s[at] == '0') {
    if (strchr("bBoOxX", char_at(c, at + 1)) && char_at(c, at + 1))
      return template_fail(c->t, at, "only decimal numbers are supported");
    for (end = at + 1; char_at(c, end) == '0' || (char_at(c, end) == '_' && char_at(c, end + 1) == '0');) end++;
  } else if (!real) {
    end = skip_digits(c, at);
  }
  if (end - at >= sizeof text) return template_fail(c->t, at, "a number is too long");
  for (size_t i = at; i < end; i++)
    if (c->s[i] != '_') text[used++] = c->s[i];
  text[used] = '\0';
  BRIM_TRY(add(c, real ? TOKEN_FLOAT : TOKEN_INT, at, (slice){c->s + at, end - at}));
  token *n = &c->out->token[c->out->count - 1];
  errno = 0;
  if (real)
    n->real = strtod(text, NULL);
  else
    n->integer = strtoll(text, NULL, 10);
  if (!real && errno) return template_fail(c->t, at, "%s needs more than 64 bits", text);
  c->at = end;
  return BRIM_OK;
}

static int hex_digit(char x)
{
  return is_digit(x) ? x - '0' : (x | 32) >= 'a' && (x | 32) <= 'f' ? (x | 32) - 'a' + 10 : -1;
}

/* Decodes the escape after a backslash at s[*at], as Python's unicode-escape does. */
static brim_status unescape(const scanner *c, size_t *at, size_t end, buffer *out)
{
  static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
  const char x = c->s[(*at)++];
  const char *simple = x ? strchr(from, x) : NULL;
  const size_t digits = x == 'x' ? 2 : x == 'u' ? 4 : x == 'U' ? 8 : 0;
  uint32_t code = 0;
  if (x == '\n') return BRIM_OK;
  if (simple) return buffer_add(out, &to[simple - from], 1);
  if (x & 0x80) return template_fail(c->t, *at - 2, "a backslash before a character beyond ASCII is not supported");
  if (x == 'N') return template_fail(c->t, *at - 2, "the escape \\N is not supported");
  if (!digits && !(x >= '0' && x <= '7')) {
    *at -= 2;
    const size_t start = (*at)++;
    return buffer_add(out, c->s + start, 1); /* an unknown escape means itself */
  }
  if (!digits) {
    (*at)--;
    for (int i = 0; i < 3 && *at < end && c->s[*at] >= '0' && c->s[*at] <= '7'; i++, (*at)++)
      code = code * 8 + (uint32_t)(c->s[*at] - '0');
    return buffer_add_character(out, (int32_t)code);
  }
  for (size_t i = 0; i < digits; i++, (*at)++) {
    const int digit = *at < end ? hex_digit(c->s[*at]) : -1;
    if (digit < 0) return template_fail(c->t, *at, "\\%c needs %zu hexadecimal digits", x, digits);
    code = code << 4 | (uint32_t)digit;
  }
  if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
    return template_fail(c->t, *at, "the escape U+%X is not a character", (unsigned)code);
  return buffer_add_character(out, (int32_t)code);
}

static brim_status decode_string(scanner *c, size_t first, size_t end, buffer *b, slice *out)
{
  for (size_t at = first; at < end;) {
    if (c->s[at] == '\\') {
      at++;
      BRIM_TRY(unescape(c, &at, end, b));
    } else {
      BRIM_TRY(buffer_add(b, c->s + at++, 1));
    }
  }
  char *kept = memory_take(&c->t->memory, b->count + 1);
  if (!kept) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the template '%s'", c->t->title);
  if (b->count) memcpy(kept, b->data, b->count);
  *out = (slice){kept, b->count};
  return BRIM_OK;
}

static brim_status take_string(scanner *c)
{
  const size_t begin = c->at;
  const char quote = c->s[begin];
  size_t end = begin + 1;
  while (end < c->count && c->s[end] != quote) end += c->s[end] == '\\' ? 2 : 1;
  if (end >= c->count) return template_fail(c->t, begin, "a text has no closing %c", quote);
  slice text = {c->s + begin + 1, end - begin - 1};
  if (memchr(text.text, '\\', text.bytes)) {
    buffer b = {0};
    const brim_status status = decode_string(c, begin + 1, end, &b, &text);
    free(b.data);
    BRIM_TRY(status);
  }
  c->at = end + 1;
  return add(c, TOKEN_STRING, begin, text);
}

static brim_status scan_operator(scanner *c)
{
  static const char *const twos[] = {"//", "**", "==", "!=", ">=", "<="};
  const size_t at = c->at;
  const char x = c->s[at];
  for (size_t i = 0; i < sizeof twos / sizeof twos[0]; i++) {
    if (!has(c, at, twos[i])) continue;
    c->at += 2;
    return add(c, OP2(twos[i][0], twos[i][1]), at, (slice){c->s + at, 2});
  }
  if (!x || !strchr("+-/*%~[](){}><=.:|,;", x)) {
    const size_t bytes = (size_t)utf8_length(c->s + at, c->count - at);
    return template_fail(c->t, at, "unexpected character '%.*s'", (int)bytes, c->s + at);
  }
  if (strchr("([{", x)) {
    if (c->brackets == BRACKETS_MAX) return template_fail(c->t, at, "more than %d nested brackets", BRACKETS_MAX);
    c->bracket[c->brackets++] = x == '(' ? ')' : x == '[' ? ']' : '}';
  } else if (strchr(")]}", x)) {
    if (c->brackets == 0 || c->bracket[--c->brackets] != x) return template_fail(c->t, at, "unexpected '%c'", x);
  }
  c->at++;
  return add(c, x, at, (slice){c->s + at, 1});
}

static brim_status scan_tag(scanner *c, size_t begin, bool is_block)
{
  c->brackets = 0;
  for (;;) {
    const size_t end = c->brackets > 0 ? 0 : tag_end(c, c->at, is_block ? "%}" : "}}", is_block, is_block);
    if (end) {
      BRIM_TRY(add(c, TOKEN_CLOSE, c->at, (slice){c->s + c->at, 2}));
      move(c, end);
      return BRIM_OK;
    }
    if (c->at >= c->count) return template_fail(c->t, begin, is_block ? "{%% has no %%}" : "{{ has no }}");
    const size_t space = skip_space(c, c->at);
    const char x = c->s[c->at];
    if (space > c->at) {
      c->at = space;
    } else if (is_digit(x)) {
      BRIM_TRY(take_number(c));
    } else if (is_name(x)) {
      const size_t first = c->at;
      while (is_name(char_at(c, c->at))) c->at++;
      if (char_at(c, c->at) & 0x80) return template_fail(c->t, first, "a name may have ASCII characters only");
      BRIM_TRY(add(c, TOKEN_NAME, first, (slice){c->s + first, c->at - first}));
    } else if (x == '"' || x == '\'') {
      BRIM_TRY(take_string(c));
    } else {
      BRIM_TRY(scan_operator(c));
    }
  }
}

brim_status template_scan(template *t, tokens *out)
{
  scanner c = {.t = t, .s = t->source.text, .count = t->source.bytes, .at_line = true, .out = out};
  while (c.at < c.count) {
    size_t tag = c.at;
    while (tag < c.count && !has(&c, tag, "{%") && !has(&c, tag, "{{") && !has(&c, tag, "{#")) tag++;
    if (tag == c.count) {
      BRIM_TRY(add_data(&c, tag, 0, false));
      break;
    }
    const char kind = c.s[tag + 1], sign = sign_at(&c, tag + 2);
    BRIM_TRY(add_data(&c, tag, sign, kind != '{'));
    const size_t raw = tag_word(&c, tag, "raw");
    bool is_raw = false;
    if (raw) BRIM_TRY(scan_raw(&c, tag, raw, &is_raw));
    if (is_raw) continue;
    move(&c, tag + 2 + (sign != 0));
    if (kind == '#') {
      BRIM_TRY(skip_comment(&c, tag));
    } else {
      BRIM_TRY(add(&c, kind == '%' ? TOKEN_BLOCK : TOKEN_PRINT, tag, (slice){c.s + tag, 2}));
      BRIM_TRY(scan_tag(&c, tag, kind == '%'));
    }
  }
  return add(&c, TOKEN_END, c.count, (slice){c.s, 0});
}
