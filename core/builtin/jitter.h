/* Changes brightness, contrast, saturation and hue of an image in place. Pixels are bytes, in one channel (gray) or
 * three. The results are bit-identical to those of Pillow's ImageEnhance and HSV mode, and so of torchvision's
 * ColorJitter. */
#ifndef BRIM_BUILTIN_JITTER_H
#define BRIM_BUILTIN_JITTER_H
#include <stdint.h>

/* Factors must be at least 0. 1 leaves the image unchanged. 0 makes it black (brightness), uniform in its mean gray
 * (contrast) or gray (saturation). Saturation and hue do not change gray images. */
void brim_jitter_brightness(uint8_t *pixels, int64_t count, int channels, double factor);
void brim_jitter_contrast(uint8_t *pixels, int64_t count, int channels, double factor);
void brim_jitter_saturation(uint8_t *pixels, int64_t count, int channels, double factor);
/* Turns hues by `turn`, a fraction of the colour circle from -0.5 to 0.5. */
void brim_jitter_hue(uint8_t *pixels, int64_t count, int channels, double turn);
#endif
