/* Decodes UTF-8 strictly, as RFC 3629 defines it. */
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

int32_t brim_utf8_next(const char **s, const char *end)
{
  const unsigned char *p = (const unsigned char *)*s;
  const int length = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf5 ? 4 : 0;
  if (length == 0 || end - *s < length) return -1;
  int32_t c = length == 1 ? p[0] : p[0] & (0x7f >> length);
  for (int i = 1; i < length; i++) {
    if ((p[i] & 0xc0) != 0x80) return -1;
    c = c << 6 | (p[i] & 0x3f);
  }
  if ((length == 3 && c < 0x800) || (length == 4 && c < 0x10000) || (c >= 0xd800 && c < 0xe000) || c > 0x10ffff)
    return -1;
  *s += length;
  return c;
}

const char *brim_utf8_take(const char **s, const char *end, size_t *bytes)
{
  static const char replacement[] = "\xef\xbf\xbd";
  const char *from = *s;
  const bool is_one = brim_utf8_next(s, end) >= 0;
  if (!is_one) ++*s;
  *bytes = is_one ? (size_t)(*s - from) : sizeof replacement - 1;
  return is_one ? from : replacement;
}

size_t brim_utf8_put(uint32_t c, char *out)
{
  static const struct {
    uint32_t most;
    int shift;
    unsigned char first;
  } form[] = {{0x7f, 0, 0}, {0x7ff, 6, 0xc0}, {0xffff, 12, 0xe0}, {0x10ffff, 18, 0xf0}};
  size_t i = 0, count = 0;
  while (i < 3 && c > form[i].most) i++;
  out[count++] = (char)(form[i].first | c >> form[i].shift);
  for (int shift = form[i].shift - 6; shift >= 0; shift -= 6) out[count++] = (char)(0x80 | (c >> shift & 0x3f));
  return count;
}

bool brim_utf8_is_valid(const char *text)
{
  const char *end = text + strlen(text);
  while (text < end)
    if (brim_utf8_next(&text, end) < 0) return false;
  return true;
}

bool brim_utf8_is_locale(void)
{
  static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    const char *value = getenv(names[i]);
    if (value && value[0]) return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
  }
  return false;
}

bool brim_utf8_is_yaml(int32_t c)
{
  return c == '\t' || c == '\n' || c == '\r' || (c >= 0x20 && c < 0x7f) || c == 0x85 ||
         (c >= 0xa0 && c <= 0xfffd && c != 0xfeff) || c >= 0x10000;
}

bool brim_utf8_is_break(int32_t c)
{
  return c == '\n' || c == '\r' || c == 0x85 || c == 0x2028 || c == 0x2029;
}
