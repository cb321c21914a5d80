/* Changing the colours of a picture of bytes, one (gray) or three to a pixel, in place: brightness, contrast,
 * saturation and hue, as Pillow's ImageEnhance and its HSV mode do it, and so torchvision's ColorJitter of such
 * pictures, to the same bits. */
#ifndef BRIM_BUILTIN_JITTER_H
#define BRIM_BUILTIN_JITTER_H
#include <stdint.h>

/* Gray has neither saturation nor hue: they leave it as it is.
 *
 * A factor of 1 leaves the picture as it is, 0 leaves nothing but black, the mean gray, or gray. At least 0. */
void brim_jitter_brightness(uint8_t *pixels, int64_t count, int channels, double factor);
void brim_jitter_contrast(uint8_t *pixels, int64_t count, int channels, double factor);
void brim_jitter_saturation(uint8_t *pixels, int64_t count, int channels, double factor);
/* `turn` of the whole circle, -0.5 to 0.5. */
void brim_jitter_hue(uint8_t *pixels, int64_t count, int channels, double turn);
#endif
