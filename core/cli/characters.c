#include "cli/characters.h"

#include "base/utf8.h"

/* Whether the bytes are the beginning of an incomplete character. A second byte that cannot follow the first is
 * detected when the character is complete. */
static bool may_go_on(const char *s, const char *end)
{
  const unsigned char first = (unsigned char)s[0];
  const int length = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  if (end - s >= length) return false;
  for (const char *p = s + 1; p < end; p++)
    if (((unsigned char)*p & 0xc0) != 0x80) return false;
  return true;
}

void brim_characters_take(brim_text *bytes, bool last, brim_text *out)
{
  const char *s = bytes->s, *end = bytes->s + bytes->length;
  if (bytes->length == 0) return;
  while (s < end && (last || !may_go_on(s, end))) {
    size_t n;
    const char *written = brim_utf8_take(&s, end, &n);
    brim_text_add_n(out, written, n);
  }
  brim_text rest = {0};
  brim_text_add_n(&rest, s, (size_t)(end - s));
  brim_text_release(bytes);
  *bytes = rest;
}
