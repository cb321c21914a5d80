/* Upper and lower case as Python's str has them. A character whose other case is several characters is refused, but for
 * the German sharp s. See template_parts.h. */
#include <utf8proc.h>

#include "template_parts.h"

#define SHARP_S 0xdf
#define CAPITAL_SIGMA 0x3a3
#define SMALL_SIGMA 0x3c3
#define FINAL_SIGMA 0x3c2
#define CAPITAL_I_DOT 0x130

/* Characters whose upper or title case has several (Unicode's SpecialCasing.txt). */
static bool is_special(int32_t c)
{
  static const int32_t ranges[][2] = {
      {0x149, 0x149},   {0x1f0, 0x1f0},   {0x390, 0x390},   {0x3b0, 0x3b0},   {0x587, 0x587},   {0x1e96, 0x1e9a},
      {0x1f50, 0x1f50}, {0x1f52, 0x1f52}, {0x1f54, 0x1f54}, {0x1f56, 0x1f56}, {0x1f80, 0x1faf}, {0x1fb2, 0x1fb4},
      {0x1fb6, 0x1fb7}, {0x1fbc, 0x1fbc}, {0x1fc2, 0x1fc4}, {0x1fc6, 0x1fc7}, {0x1fcc, 0x1fcc}, {0x1fd2, 0x1fd3},
      {0x1fd6, 0x1fd7}, {0x1fe2, 0x1fe4}, {0x1fe6, 0x1fe7}, {0x1ff2, 0x1ff4}, {0x1ff6, 0x1ff7}, {0x1ffc, 0x1ffc},
      {0xfb00, 0xfb06}, {0xfb13, 0xfb17}};
  for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
    if (c >= ranges[i][0] && c <= ranges[i][1]) return true;
  return false;
}

static bool is_ignorable(int32_t c)
{
  static const int32_t marks[] = {0x27,   0x2e,   0x3a,   0xb7,   0x387,  0x55f,  0x5f4,  0x2018, 0x2019,
                                  0x2024, 0x2027, 0xfe13, 0xfe52, 0xfe55, 0xff07, 0xff0e, 0xff1a};
  for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
    if (c == marks[i]) return true;
  const utf8proc_category_t category = utf8proc_category(c);
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_ME || category == UTF8PROC_CATEGORY_CF ||
         category == UTF8PROC_CATEGORY_LM || category == UTF8PROC_CATEGORY_SK;
}

static bool is_cased(int32_t c)
{
  const utf8proc_category_t category = utf8proc_category(c);
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT ||
         c == 0xaa || c == 0xba || utf8proc_toupper(c) != c || utf8proc_tolower(c) != c;
}

/* Whether the sigma at `at` ends a word: a letter is before it and none after it, but for marks. */
static bool is_final(slice s, size_t at)
{
  size_t next = at + 2;
  while (next < s.bytes && is_ignorable(utf8_character(s.text + next)))
    next += (size_t)utf8_length(s.text + next, s.bytes - next);
  if (next < s.bytes && is_cased(utf8_character(s.text + next))) return false;
  while (at > 0) {
    do at--;
    while ((s.text[at] & 0xc0) == 0x80);
    if (!is_ignorable(utf8_character(s.text + at))) return is_cased(utf8_character(s.text + at));
  }
  return false;
}

static brim_status print_character(run *r, int32_t c)
{
  if (r->out.count > TEMPLATE_MEMORY_MAX) return run_no_memory(r);
  return buffer_add_character(&r->out, c);
}

static brim_status print_upper(run *r, int32_t c, bool title)
{
  if (c == SHARP_S) return print_bytes(r, title ? "Ss" : "SS", 2);
  if (is_special(c)) return run_fail(r, "the upper case of U+%04X is not supported", (unsigned)c);
  return print_character(r, title ? utf8proc_totitle(c) : utf8proc_toupper(c));
}

static brim_status print_lower(run *r, slice s, size_t at, int32_t c)
{
  if (c == CAPITAL_SIGMA) return print_character(r, is_final(s, at) ? FINAL_SIGMA : SMALL_SIGMA);
  if (c == CAPITAL_I_DOT) return print_bytes(r, "i\xcc\x87", 3);
  return print_character(r, utf8proc_tolower(c));
}

/* CASE_TITLE, as Jinja's filter: a character after a hyphen, space or opening bracket is upper case. */
brim_status print_case(run *r, slice s, enum case_kind kind)
{
  bool first = true;
  BRIM_TRY(run_steps(r, s.bytes / 8));
  for (size_t at = 0; at < s.bytes;) {
    const int32_t c = utf8_character(s.text + at);
    const bool between = kind == CASE_TITLE && (is_python_space(c) || (c < 0x80 && c && strchr("-({[<", c)));
    if (kind == CASE_UPPER || (first && kind != CASE_LOWER && !between))
      BRIM_TRY(print_upper(r, c, kind == CASE_CAPITALIZE));
    else if (kind == CASE_TITLE && c == CAPITAL_SIGMA)
      return run_fail(r, "the filter title of a capital sigma is not supported");
    else
      BRIM_TRY(print_lower(r, s, at, c));
    first = between;
    at += (size_t)utf8_length(s.text + at, s.bytes - at);
  }
  return BRIM_OK;
}
