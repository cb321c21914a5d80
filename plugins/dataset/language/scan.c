/* Reads vocabularies and merges from JSON without building a tree. They have up to a million texts, and building a tree
 * would take longer than all other work. See parts.h. The caller has checked that the text is UTF-8. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "brim/host.h"
#include "parts.h"

brim_status scan_fail(const scan *s, const char *what)
{
  size_t line = 1, start = 0;
  for (size_t i = 0; i < s->at && i < s->count; i++)
    if (s->text[i] == '\n') {
      line++;
      start = i + 1;
    }
  return brim_fail(BRIM_ELOAD, "'%s': line %zu, column %zu: %s", s->name, line, s->at - start + 1, what);
}

static void skip_spaces(scan *s)
{
  for (; s->at < s->count; s->at++) {
    const char c = s->text[s->at];
    if (c != ' ' && c != '\n' && c != '\t' && c != '\r') return;
  }
}

bool scan_take(scan *s, char c)
{
  skip_spaces(s);
  if (s->at >= s->count || s->text[s->at] != c) return false;
  s->at++;
  return true;
}

brim_status scan_expect(scan *s, char c)
{
  if (scan_take(s, c)) return BRIM_OK;
  char what[] = "'?' is needed here";
  what[1] = c;
  return scan_fail(s, what);
}

brim_status scan_end(scan *s)
{
  skip_spaces(s);
  return s->at == s->count ? BRIM_OK : scan_fail(s, "the end of the file is needed here");
}

/* Returns the number that the four hexadecimal digits after \u stand for, or -1 if they are not digits. */
static int32_t read_unit(scan *s)
{
  int32_t value = 0;
  if (s->count - s->at < 4) return -1;
  for (int i = 0; i < 4; i++) {
    const char c = s->text[s->at + (size_t)i], low = (char)(c | 0x20);
    if (!(c >= '0' && c <= '9') && !(low >= 'a' && low <= 'f')) return -1;
    value = value << 4 | (c <= '9' ? c - '0' : low - 'a' + 10);
  }
  s->at += 4;
  return value;
}

static brim_status scan_escape(scan *s, buffer *out)
{
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  const char c = s->at < s->count ? s->text[s->at++] : '\0';
  const char *simple = c ? strchr(from, c) : NULL;
  if (simple) return buffer_add(out, &to[simple - from], 1);
  int32_t unit = c == 'u' ? read_unit(s) : -1;
  if (unit >= 0xd800 && unit < 0xdc00) {
    const bool second = s->count - s->at > 2 && s->text[s->at] == '\\' && s->text[s->at + 1] == 'u';
    s->at += second ? 2 : 0;
    const int32_t low = second ? read_unit(s) : -1;
    unit = low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00) : -1;
  } else if (unit >= 0xdc00 && unit < 0xe000) {
    unit = -1;
  }
  return unit >= 0 ? buffer_add_character(out, unit) : scan_fail(s, "there is no such escape sequence in JSON");
}

brim_status scan_string(scan *s, buffer *out)
{
  BRIM_TRY(scan_expect(s, '"'));
  for (;;) {
    const size_t from = s->at;
    while (s->at < s->count && s->text[s->at] != '"' && s->text[s->at] != '\\' && (unsigned char)s->text[s->at] >= 32)
      s->at++;
    BRIM_TRY(buffer_add(out, s->text + from, s->at - from));
    if (s->at >= s->count || (unsigned char)s->text[s->at] < 32) return scan_fail(s, "a text does not end");
    if (s->text[s->at++] == '"') return BRIM_OK;
    BRIM_TRY(scan_escape(s, out));
  }
}

/* Returns 10^n, correctly rounded. */
static double powers_of_ten(int n)
{
  char text[16];
  snprintf(text, sizeof text, "1e%d", n);
  return strtod(text, NULL);
}

static bool is_digit(const scan *s)
{
  return s->at < s->count && s->text[s->at] >= '0' && s->text[s->at] <= '9';
}

/* Reads digits into *value as long as it does not overflow. Returns how many digits follow. */
static int64_t scan_digits(scan *s, uint64_t *value, int64_t *taken)
{
  int64_t dropped = 0;
  for (*taken = 0; is_digit(s); s->at++) {
    const uint64_t digit = (uint64_t)(s->text[s->at] - '0');
    if (dropped == 0 && *value <= (UINT64_MAX - digit) / 10) {
      *value = *value * 10 + digit;
      ++*taken;
    } else {
      dropped++;
    }
  }
  return dropped;
}

/* Computes the number as Rust's serde_json does, which the library `tokenizers` uses: the digits as a whole number,
 * multiplied or divided by a power of ten. The last bit may differ from the result of strtod, and it may decide between
 * ways with the same score. */
brim_status scan_number(scan *s, double *out)
{
  uint64_t value = 0, power = 0;
  int64_t taken, exponent;
  skip_spaces(s);
  const size_t from = s->at;
  const bool negative = s->at < s->count && s->text[s->at] == '-';
  s->at += negative;
  bool good = is_digit(s);
  exponent = scan_digits(s, &value, &taken);
  if (s->at < s->count && s->text[s->at] == '.') {
    s->at++;
    good = good && is_digit(s);
    (void)scan_digits(s, &value, &taken);
    exponent -= taken;
  }
  if (s->at < s->count && (s->text[s->at] | 0x20) == 'e') {
    s->at++;
    const bool below = s->at < s->count && s->text[s->at] == '-';
    s->at += s->at < s->count && (below || s->text[s->at] == '+');
    good = good && is_digit(s);
    (void)scan_digits(s, &power, &taken);
    exponent += below ? -(int64_t)(power % 10000) : (int64_t)(power % 10000);
  }
  const int64_t size = exponent < 0 ? -exponent : exponent;
  *out = (double)value;
  if (exponent < 0)
    *out = size > 308 ? 0 : *out / powers_of_ten((int)size);
  else if (exponent > 0)
    *out = size > 308 ? HUGE_VAL : *out * powers_of_ten((int)size);
  if (negative) *out = -*out;
  if (good) return BRIM_OK;
  s->at = from;
  return scan_fail(s, "a number is needed here");
}

/* ---- finding the large parts ---- */

/* Skips a text that begins at s->at. Returns false if it does not end. */
static bool skip_string(scan *s)
{
  for (s->at++; s->at < s->count && s->text[s->at] != '"'; s->at++)
    if (s->text[s->at] == '\\') s->at++;
  return ++s->at <= s->count;
}

static bool skip_value(scan *s)
{
  size_t depth = 0;
  skip_spaces(s);
  while (s->at < s->count) {
    const char c = s->text[s->at];
    if (c == '"') {
      if (!skip_string(s)) return false;
      if (depth == 0) return true;
      continue;
    }
    if (depth == 0 && (c == ',' || c == '}' || c == ']')) return true;
    s->at++;
    depth += c == '{' || c == '[';
    if ((c == '}' || c == ']') && --depth == 0) return true;
  }
  return false;
}

/* Reads a key without escapes, and the colon after it. */
static bool take_key(scan *s, slice *key)
{
  skip_spaces(s);
  const size_t from = s->at + 1;
  if (s->at >= s->count || s->text[s->at] != '"' || !skip_string(s)) return false;
  *key = (slice){s->text + from, s->at - 1 - from};
  return scan_take(s, ':');
}

static bool is_key(slice key, const char *name)
{
  return key.bytes == strlen(name) && memcmp(key.text, name, key.bytes) == 0;
}

/* Copies the line breaks of a part that is left out, so that messages have the right line number. */
static brim_status add_lines(buffer *out, const char *text, size_t bytes)
{
  const char *end = text + bytes;
  while ((text = memchr(text, '\n', (size_t)(end - text)))) {
    BRIM_TRY(buffer_add(out, "\n", 1));
    text++;
  }
  return BRIM_OK;
}

static brim_status cut_value(scan *s, size_t *copied, scan *part, buffer *out, bool *found)
{
  skip_spaces(s);
  const size_t from = s->at;
  *found = skip_value(s);
  if (!*found) return BRIM_OK;
  *part = (scan){s->name, s->text, s->at, from};
  BRIM_TRY(buffer_add(out, s->text + *copied, from - *copied));
  BRIM_TRY(buffer_add(out, "null", 4));
  *copied = s->at;
  return add_lines(out, s->text + from, s->at - from);
}

/* Cuts the object "model". */
static brim_status cut_model(scan *s, size_t *copied, scan_sections *out, bool *found)
{
  slice key;
  *found = scan_take(s, '{');
  if (!*found || scan_take(s, '}')) return BRIM_OK;
  do {
    *found = take_key(s, &key);
    if (!*found) return BRIM_OK;
    scan *part = is_key(key, "vocab") ? &out->vocabulary : is_key(key, "merges") ? &out->merges : NULL;
    if (part && !part->text)
      BRIM_TRY(cut_value(s, copied, part, &out->rest, found));
    else
      *found = skip_value(s);
    if (!*found) return BRIM_OK;
  } while (scan_take(s, ','));
  *found = scan_take(s, '}');
  return BRIM_OK;
}

brim_status scan_cut(const tokenizer_source *source, scan_sections *out, bool *found)
{
  scan s = {source->name, source->bytes, source->count, 0};
  size_t copied = 0;
  slice key;
  *out = (scan_sections){.rest = {0}};
  *found = scan_take(&s, '{');
  if (!*found) return BRIM_OK;
  do {
    *found = take_key(&s, &key);
    if (!*found) return BRIM_OK;
    if (is_key(key, "model") && !out->vocabulary.text)
      BRIM_TRY(cut_model(&s, &copied, out, found));
    else
      *found = skip_value(&s);
    if (!*found) return BRIM_OK;
  } while (scan_take(&s, ','));
  return buffer_add(&out->rest, s.text + copied, s.count - copied);
}
