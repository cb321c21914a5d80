/* See handler_text.h. */
#include "base/handler_text.h"

#include <unistd.h>

void brim_handler_text_begin(brim_handler_text *out)
{
  out->length = 0;
  if (isatty(STDERR_FILENO)) brim_handler_text_add(out, "\n");
}

void brim_handler_text_add(brim_handler_text *out, const char *text)
{
  for (; *text && out->length < sizeof out->text; text++) out->text[out->length++] = *text;
}

void brim_handler_text_add_number(brim_handler_text *out, uint64_t value, unsigned base)
{
  char digits[8 * sizeof value + 1];
  size_t n = sizeof digits;
  digits[--n] = '\0';
  do {
    digits[--n] = "0123456789abcdef"[value % base];
    value /= base;
  } while (value);
  brim_handler_text_add(out, digits + n);
}

void brim_handler_text_write(const brim_handler_text *text)
{
  for (size_t done = 0; done < text->length;) {
    const ssize_t n = write(STDERR_FILENO, text->text + done, text->length - done);
    if (n <= 0) return;
    done += (size_t)n;
  }
}
