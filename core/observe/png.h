/* Small pictures as PNG (ISO/IEC 15948), for pages and TensorBoard. */
#ifndef BRIM_OBSERVE_PNG_H
#define BRIM_OBSERVE_PNG_H
#include <stdint.h>

#include "base/text.h"

/* Adds the bytes of a PNG file. `pixels`: rows from top to bottom, 1 (grey) or 3 (RGB) bytes each, without gaps.
 * ENOMEM_HOST. */
brim_status brim_png_add(brim_text *out, const uint8_t *pixels, uint32_t rows, uint32_t columns, uint32_t channels);
/* Adds bytes in base64, with padding. */
void brim_base64_add(brim_text *out, const void *bytes, size_t count);
/* The inverse: *count is the room in `bytes`, then the number written. False: not base64, or no room. */
bool brim_base64_read(const char *text, void *bytes, size_t *count);
#endif
