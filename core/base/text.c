/* Growing strings, and small helpers on strings. */
#include "base/text.h"

#include <fnmatch.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "base/utf8.h"
#include "brim/optimizer.h"

void brim_text_release(brim_text *text)
{
  free(text->s);
  *text = (brim_text){0};
}

void brim_text_clear(brim_text *text)
{
  text->length = 0;
  if (text->s) text->s[0] = '\0';
}

#define PRINTED_USUALLY 32 /* bytes reserved for the first attempt; longer text needs a second one */

void brim_text_reserve(brim_text *text, size_t more)
{
  const size_t need = text->length + more + 1;
  if (need <= text->room) return;
  size_t room = text->room ? text->room * 2 : 64;
  if (room < need) room = need;
  text->s = brim_xrealloc(text->s, room);
  text->room = room;
}

void brim_text_add_n(brim_text *text, const char *s, size_t bytes)
{
  brim_text_reserve(text, bytes);
  memcpy(text->s + text->length, s, bytes);
  text->length += bytes;
  text->s[text->length] = '\0';
}

void brim_text_add(brim_text *text, const char *s)
{
  brim_text_add_n(text, s, strlen(s));
}

void brim_text_printf(brim_text *text, const char *format, ...)
{
  va_list list, again;
  va_start(list, format);
  va_copy(again, list);
  brim_text_reserve(text, PRINTED_USUALLY);
  const size_t room = text->room - text->length;
  const int length = vsnprintf(text->s + text->length, room, format, list);
  va_end(list);
  if (length > 0 && (size_t)length >= room) {
    brim_text_reserve(text, (size_t)length);
    vsnprintf(text->s + text->length, (size_t)length + 1, format, again);
  }
  if (length > 0) text->length += (size_t)length;
  text->s[text->length] = '\0';
  va_end(again);
}

void brim_text_int(brim_text *text, int64_t value)
{
  char digit[24];
  size_t at = sizeof digit;
  uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;
  do digit[--at] = (char)('0' + rest % 10);
  while ((rest /= 10) > 0);
  if (value < 0) digit[--at] = '-';
  brim_text_add_n(text, digit + at, sizeof digit - at);
}

const char *brim_text_str(const brim_text *text)
{
  return text->s ? text->s : "";
}

bool brim_is_control(int32_t c)
{
  /* Format characters: those of direction (U+061C, 200E, 202A-202E, 2066-2069), those without width, line ends and
   * tags. The joiners U+200C and U+200D are not among them, because words and emoji need them. */
  static const int32_t ranges[][2] = {{0, 0x1f},        {0x7f, 0x9f},     {0x61c, 0x61c},     {0x180e, 0x180e},
                                      {0x200b, 0x200b}, {0x200e, 0x200f}, {0x2028, 0x202e},   {0x2060, 0x206f},
                                      {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0x1d173, 0x1d17a}, {0xe0000, 0xe007f}};
  for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
    if (c >= ranges[i][0] && c <= ranges[i][1]) return true;
  return false;
}

size_t brim_shown_take(const char **s, const char *end, const char *kept, char *out)
{
  char shown[BRIM_SHOWN_BYTES + 1];
  const char *from = *s;
  const int32_t c = brim_utf8_next(s, end);
  if (brim_is_control(c) && (c == 0 || c > 0x7f || !strchr(kept, (char)c))) {
    const int length = snprintf(shown, sizeof shown,
                                c > 0xffff ? "\\U%08x"
                                : c > 0xff ? "\\u%04x"
                                           : "\\x%02x",
                                (unsigned)c);
    memcpy(out, shown, (size_t)length);
    return (size_t)length;
  }
  *s = from;
  size_t bytes;
  const char *is = brim_utf8_take(s, end, &bytes);
  memcpy(out, is, bytes);
  return bytes;
}

void brim_text_add_shown(brim_text *text, const char *s, const char *kept)
{
  char shown[BRIM_SHOWN_BYTES];
  for (const char *end = s + strlen(s); s < end;) brim_text_add_n(text, shown, brim_shown_take(&s, end, kept, shown));
}

bool brim_has_control(const char *s)
{
  for (const char *end = s + strlen(s); s < end;) {
    const int32_t c = brim_utf8_next(&s, end);
    if (brim_is_control(c)) return true;
    if (c < 0) s++;
  }
  return false;
}

void brim_text_add_quoted(brim_text *text, const char *word)
{
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%";
  if (word[0] && word[strspn(word, plain)] == '\0') {
    brim_text_add(text, word);
    return;
  }
  brim_text_add(text, "'");
  for (; *word; word++) brim_text_add_n(text, *word == '\'' ? "'\\''" : word, *word == '\'' ? 4 : 1);
  brim_text_add(text, "'");
}

void brim_text_add_csv(brim_text *text, const char *field)
{
  if (!field[strcspn(field, ",\"\r\n")]) {
    brim_text_add(text, field);
    return;
  }
  brim_text_add(text, "\"");
  for (const char *s = field; *s; s++) brim_text_add_n(text, *s == '"' ? "\"\"" : s, *s == '"' ? 2 : 1);
  brim_text_add(text, "\"");
}

const char *brim_format_quoted(char *out, size_t room, const char *path)
{
  brim_text text = {0}, word = {0};
  brim_text_printf(&word, "%s%s", path[0] == '-' ? "./" : "", path);
  brim_text_add_quoted(&text, brim_text_str(&word));
  snprintf(out, room, "%s", brim_text_str(&text));
  brim_text_release(&text);
  brim_text_release(&word);
  return out;
}

bool brim_matches_any(const char *patterns, const char *name)
{
  static const char parts[] = ", \t\n";
  for (const char *at = patterns + strspn(patterns, parts); *at; at += strspn(at, parts)) {
    const size_t length = strcspn(at, parts);
    char *pattern = brim_xmalloc(length + 1);
    memcpy(pattern, at, length);
    pattern[length] = '\0';
    const bool matches = fnmatch(pattern, name, 0) == 0;
    free(pattern);
    if (matches) return true;
    at += length;
  }
  return false;
}

bool brim_starts_with(const char *s, const char *prefix)
{
  return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool brim_ends_with(const char *s, const char *suffix)
{
  const size_t n = strlen(s), m = strlen(suffix);
  return n >= m && memcmp(s + n - m, suffix, m) == 0;
}

int brim_edit_distance(const char *a, const char *b)
{
  enum { MAX = 64 };
  int row[3][MAX + 1]; /* two rows back, one back, the current row */
  const size_t n = strnlen(a, MAX), m = strnlen(b, MAX);
  for (size_t j = 0; j <= m; j++) row[1][j] = (int)j;
  memset(row[0], 0, sizeof row[0]);
  for (size_t i = 1; i <= n; i++) {
    row[2][0] = (int)i;
    for (size_t j = 1; j <= m; j++) {
      const int cost = a[i - 1] != b[j - 1];
      int best = row[1][j - 1] + cost;
      if (row[1][j] + 1 < best) best = row[1][j] + 1;
      if (row[2][j - 1] + 1 < best) best = row[2][j - 1] + 1;
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && row[0][j - 2] + 1 < best)
        best = row[0][j - 2] + 1;
      row[2][j] = best;
    }
    memcpy(row[0], row[1], sizeof row[0]);
    memcpy(row[1], row[2], sizeof row[1]);
  }
  return row[1][m];
}

enum { FOLDED_MAX = 65 }; /* bytes that are compared, and the NUL */

/* Removes differences in spelling: case, '-' and '_'. */
static const char *fold(const char *s, char *out)
{
  size_t n = 0;
  for (; *s && n + 1 < FOLDED_MAX; s++)
    if (*s != '-' && *s != '_') out[n++] = (char)(*s >= 'A' && *s <= 'Z' ? *s - 'A' + 'a' : *s);
  out[n] = '\0';
  return out;
}

int brim_typo_distance(const char *written, const char *known)
{
  char a[FOLDED_MAX], b[FOLDED_MAX];
  written = fold(written, a);
  known = fold(known, b);
  const size_t length = strlen(written), longer = strlen(known) > length ? strlen(known) : length;
  const int distance = brim_edit_distance(written, known);
  const int allowed = length < 4 ? 1 : length < 9 ? 2 : 3;
  if (distance > allowed || 2 * (size_t)distance >= longer) return distance == 0 ? 0 : INT_MAX;
  return length < 4 && written[0] != known[0] ? INT_MAX : distance;
}

void brim_suggest(const char *written, const char *known, int *distance, const char **best)
{
  char a[FOLDED_MAX], b[FOLDED_MAX];
  int d = brim_typo_distance(written, known);
  if (d == INT_MAX && strlen(written) >= 3 && brim_starts_with(fold(known, b), fold(written, a)))
    d = (int)strlen(known);
  if (d >= *distance) return;
  *distance = d;
  *best = known;
}

const char *brim_suggest_of(const char *written, const char *const *known, size_t count)
{
  const char *best = NULL;
  int distance = INT_MAX;
  for (size_t i = 0; i < count; i++) brim_suggest(written, known[i], &distance, &best);
  return best;
}

int brim_compare_strings(const void *a, const void *b)
{
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

const char *brim_plural(int64_t count)
{
  return count == 1 ? "" : "s";
}

const char *brim_format_bytes(char *out, size_t room, uint64_t bytes)
{
  static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = (double)bytes;
  size_t u = 0;
  while (value >= 1023.95 && u + 1 < sizeof unit / sizeof unit[0]) {
    value /= 1024;
    u++;
  }
  snprintf(out, room, u == 0 ? "%.0f %s" : "%.1f %s", value, unit[u]);
  return out;
}

/* If a double has a decimal form of up to 15 digits, %.15g prints that form, without trailing zeros; any other double
 * needs 16 or 17. For a float, these are 6 and at most 9. */
const char *brim_format_number(char out[BRIM_NUMBER_BYTES], double value, bool is_single)
{
  for (int digits = is_single ? 6 : 15; digits <= 17; digits++) {
    snprintf(out, BRIM_NUMBER_BYTES, "%.*g", digits, value);
    const double again = strtod(out, NULL);
    if (is_single ? (float)again == (float)value : again == value) break;
  }
  return out;
}

const char *brim_format_seconds(char *out, size_t room, double seconds)
{
  if (!isfinite(seconds) || seconds < 0 || seconds > 1e9) {
    snprintf(out, room, "?");
    return out;
  }
  const long long s = (long long)(seconds + 0.5);
  if (s >= 3600)
    snprintf(out, room, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
  else
    snprintf(out, room, "%lld:%02lld", s / 60, s % 60);
  return out;
}

double brim_wall_now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double brim_now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

const char *brim_format_hour(char *out, size_t room, double seconds)
{
  const time_t at = (time_t)seconds;
  struct tm local;
  localtime_r(&at, &local);
  strftime(out, room, "%H:%M", &local);
  return out;
}

uint64_t brim_hash(uint64_t hash, const void *data, size_t bytes)
{
  const unsigned char *p = data;
  for (size_t i = 0; i < bytes; i++) hash = (hash ^ p[i]) * 0x100000001b3u;
  return hash;
}
