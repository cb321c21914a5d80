/* Small pictures as PNG (ISO/IEC 15948), for pages and TensorBoard. */
#ifndef BRIM_OBSERVE_PNG_H
#define BRIM_OBSERVE_PNG_H
#include <stdint.h>

#include "base/text.h"

/* Adds the bytes of a PNG file. `pixels`: rows from top to bottom; each pixel has 1 (grey) or 3 (RGB) bytes; no gaps.
 * ENOMEM_HOST. */
brim_status brim_png_add(brim_text *out, const uint8_t *pixels, uint32_t rows, uint32_t columns, uint32_t channels);
/* Adds bytes in base64, with padding. */
void brim_base64_add(brim_text *out, const void *bytes, size_t count);
/* The inverse. On entry *count is the room in `bytes`, on return the number of bytes written. False: the text is not
 * base64, or there is no room. */
bool brim_base64_read(const char *text, void *bytes, size_t *count);
#endif
