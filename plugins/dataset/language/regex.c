/* Regular expressions of tokenizers. See parts.h.
 *
 * tokenizer.json has expressions in Oniguruma's syntax. Some of them mean something else in PCRE2: \s, \w, \b, \h,
 * names of scripts, and options. This file translates these, and refuses expressions that PCRE2 cannot express. */
#include <stdlib.h>
#include <string.h>

#include "brim/host.h"
#include "parts.h"

/* Unicode's White_Space; PCRE2's \s also has U+180E. */
#define SPACES                                                                                                         \
  "\\x{09}-\\x{0d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define EDGE "(?:(?<=[" WORD "])(?![" WORD "])|(?<![" WORD "])(?=[" WORD "]))"
#define NO_EDGE "(?:(?<=[" WORD "])(?=[" WORD "])|(?<![" WORD "])(?![" WORD "]))"

typedef struct translation {
  const reading *r;
  const char *path, *text;
  size_t bytes, at;
  bool in_class, ignores_case;
  buffer out;
} translation;

static brim_status fail(const translation *x, size_t at, const char *what)
{
  return read_fail(x->r, x->path, "the regular expression \"%.*s\" has %s at byte %zu, which is not supported",
                   (int)(x->bytes < 200 ? x->bytes : 200), x->text, what, at);
}

static brim_status add(translation *x, const char *text)
{
  return buffer_add(&x->out, text, strlen(text));
}

static bool next_is(const translation *x, const char *text)
{
  const size_t bytes = strlen(text);
  return x->bytes - x->at >= bytes && memcmp(x->text + x->at, text, bytes) == 0;
}

/* Translates \p{...}. Names of one or two letters are categories. Longer names are scripts; in PCRE2 they also match
 * characters that several scripts use, unless "sc:" is before the name. */
static brim_status translate_property(translation *x)
{
  static const char *const same[] = {"Any", "Alphabetic", "Lowercase", "Uppercase", "White_Space", "Emoji"};
  const char *end = next_is(x, "{") ? memchr(x->text + x->at, '}', x->bytes - x->at) : NULL;
  if (!end) return fail(x, x->at, "a property without a name in braces");
  const char *name = x->text + x->at + 1;
  bool category = false;
  BRIM_TRY(add(x, "{"));
  if (*name == '^') {
    BRIM_TRY(add(x, "^"));
    name++;
  }
  const size_t bytes = (size_t)(end - name);
  for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
    category = category || (strlen(same[i]) == bytes && memcmp(same[i], name, bytes) == 0);
  if (bytes > 2 && !category) BRIM_TRY(add(x, "sc:"));
  x->at = (size_t)(end - x->text) + 1;
  return buffer_add(&x->out, name, bytes + 1);
}

/* The translations of a backslash and a letter, outside and inside a class. NULL: not supported. */
static const struct {
  char letter;
  const char *outside, *inside;
} escapes[] = {{'s', "[" SPACES "]", SPACES},
               {'S', "[^" SPACES "]", "\\x{180e}\\P{Xsp}"},
               {'w', "[" WORD "]", WORD},
               {'W', "[^" WORD "]", NULL},
               {'d', "\\p{Nd}", "\\p{Nd}"},
               {'D', "\\P{Nd}", "\\P{Nd}"},
               {'b', EDGE, "\\x{08}"},
               {'B', NO_EDGE, NULL},
               {'n', "\\n", "\\n"},
               {'r', "\\r", "\\r"},
               {'t', "\\t", "\\t"},
               {'f', "\\f", "\\f"},
               {'v', "\\x{0b}", "\\x{0b}"},
               {'a', "\\x{07}", "\\x{07}"},
               {'e', "\\x{1b}", "\\x{1b}"},
               {'A', "\\A", NULL},
               {'z', "\\z", NULL}};

/* Translates \xHH below 80, \x{H...} and \uHHHH. */
static brim_status translate_number(translation *x, char letter)
{
  static const char digits[] = "0123456789abcdefABCDEF";
  size_t from = x->at, count = 0;
  const bool braces = letter == 'x' && next_is(x, "{");
  from += braces;
  while (from + count < x->bytes && x->text[from + count] && strchr(digits, x->text[from + count])) count++;
  if (!braces && letter == 'x' && count > 2) count = 2;
  if (!braces && letter == 'u' && count > 4) count = 4;
  const bool closed = !braces || (from + count < x->bytes && x->text[from + count] == '}');
  if (!closed || count == 0 || (letter == 'u' && count != 4) || (letter == 'x' && !braces && x->text[from] > '7'))
    return fail(x, x->at, "a character by a number of this form");
  BRIM_TRY(add(x, "\\x{"));
  BRIM_TRY(buffer_add(&x->out, x->text + from, count));
  x->at = from + count + braces;
  return add(x, "}");
}

static brim_status translate_escape(translation *x)
{
  const size_t at = x->at++;
  if (x->at >= x->bytes) return fail(x, at, "a backslash at its end");
  const char c = x->text[x->at++];
  if (c == 'p' || c == 'P') {
    const char start[] = {'\\', c, '\0'};
    BRIM_TRY(add(x, start));
    return translate_property(x);
  }
  if (c == 'x' || c == 'u') return translate_number(x, c);
  for (size_t i = 0; i < sizeof escapes / sizeof escapes[0]; i++)
    if (escapes[i].letter == c && (x->in_class ? escapes[i].inside : escapes[i].outside))
      return add(x, x->in_class ? escapes[i].inside : escapes[i].outside);
  const bool letter = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
  if (letter || (unsigned char)c >= 0x80) return fail(x, at, "an escape sequence");
  return buffer_add(&x->out, x->text + at, 2);
}

static brim_status translate_group(translation *x)
{
  static const char *const same[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"};
  for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
    if (next_is(x, same[i])) {
      x->ignores_case = x->ignores_case || i == sizeof same / sizeof same[0] - 1;
      x->at += strlen(same[i]);
      return add(x, same[i]);
    }
  if (next_is(x, "(?i)") && x->at == 0) {
    x->ignores_case = true;
    x->at += 4;
    return add(x, "(?i)");
  }
  if (next_is(x, "(?") || next_is(x, "(*")) return fail(x, x->at, "a group of this kind");
  x->at++;
  return add(x, "(?:"); /* without a capture, because nothing refers to groups */
}

/* Translates {n}, {n,} and {n,m}. */
static brim_status translate_repeat(translation *x)
{
  const size_t from = x->at++;
  bool digits = false, comma = false;
  for (; x->at < x->bytes && x->text[x->at] != '}'; x->at++) {
    const char c = x->text[x->at];
    if (!(c >= '0' && c <= '9') && (c != ',' || comma || !digits)) return fail(x, from, "a brace");
    digits = digits || c != ',';
    comma = comma || c == ',';
  }
  if (x->at >= x->bytes || !digits) return fail(x, from, "a brace");
  x->at++;
  if (next_is(x, "+") || (next_is(x, "?") && !comma)) return fail(x, x->at, "a sign after a repetition");
  return buffer_add(&x->out, x->text + from, x->at - from);
}

static brim_status translate_class(translation *x)
{
  x->in_class = true;
  x->at++;
  BRIM_TRY(add(x, "["));
  if (next_is(x, "^")) {
    x->at++;
    BRIM_TRY(add(x, "^"));
  }
  if (next_is(x, "]")) return fail(x, x->at, "an empty class");
  while (x->at < x->bytes && x->text[x->at] != ']') {
    if (next_is(x, "[") || next_is(x, "&&")) return fail(x, x->at, "a class inside a class");
    if (x->text[x->at] == '\\')
      BRIM_TRY(translate_escape(x));
    else
      BRIM_TRY(buffer_add(&x->out, x->text + x->at++, 1));
  }
  if (x->at >= x->bytes) return fail(x, x->at, "a class without an end");
  x->in_class = false;
  x->at++;
  return add(x, "]");
}

/* If case is ignored, Oniguruma matches some characters with two letters, for instance U+00DF with "ss". */
static brim_status check_case(const translation *x)
{
  static const char *const pairs[] = {"ss", "ff", "fi", "fl", "st", "i\xcc", "j\xcc"};
  for (size_t i = 0; i + 1 < x->bytes && x->ignores_case; i++)
    for (size_t k = 0; k < sizeof pairs / sizeof pairs[0]; k++)
      if ((x->text[i] | 0x20) == pairs[k][0] &&
          ((unsigned char)x->text[i + 1] | 0x20) == ((unsigned char)pairs[k][1] | 0x20))
        return fail(x, i, "letters that ignore case and have a common form");
  return BRIM_OK;
}

static brim_status translate(translation *x)
{
  while (x->at < x->bytes) {
    const char c = x->text[x->at];
    if (c == '\\')
      BRIM_TRY(translate_escape(x));
    else if (c == '[')
      BRIM_TRY(translate_class(x));
    else if (c == '(')
      BRIM_TRY(translate_group(x));
    else if (c == '{')
      BRIM_TRY(translate_repeat(x));
    else
      BRIM_TRY(buffer_add(&x->out, x->text + x->at++, 1));
  }
  return check_case(x);
}

brim_status regex_compile(const reading *r, const char *path, const char *text, size_t bytes, pcre2_code **out)
{
  translation x = {.r = r, .path = path, .text = text, .bytes = bytes};
  int error = 0;
  PCRE2_SIZE at = 0;
  brim_status status = translate(&x);
  if (status == BRIM_OK) status = buffer_reserve(&x.out, 1);
  if (status == BRIM_OK) {
    *out =
        pcre2_compile((PCRE2_SPTR)x.out.data, x.out.count, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &at, NULL);
    PCRE2_UCHAR why[160];
    if (*out) {
      /* An error does not matter: without the JIT, matching only takes longer. */
      pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE);
    } else {
      pcre2_get_error_message(error, why, sizeof why);
      status = read_fail(r, path, "PCRE2 refuses the regular expression \"%.*s\": %s", (int)(bytes < 200 ? bytes : 200),
                         text, (const char *)why);
    }
  }
  free(x.out.data);
  return status;
}
