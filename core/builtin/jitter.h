/* Changes the colours of an image of bytes in place, with one channel (gray) or three: brightness, contrast, saturation
 * and hue. The results equal those of Pillow's ImageEnhance and HSV mode, and so of torchvision's ColorJitter, to the
 * same bits. */
#ifndef BRIM_BUILTIN_JITTER_H
#define BRIM_BUILTIN_JITTER_H
#include <stdint.h>

/* Factors are at least 0. 1 leaves the image unchanged; 0 makes it black (brightness), its mean gray everywhere
 * (contrast) or gray (saturation). Saturation and hue do not change gray images. */
void brim_jitter_brightness(uint8_t *pixels, int64_t count, int channels, double factor);
void brim_jitter_contrast(uint8_t *pixels, int64_t count, int channels, double factor);
void brim_jitter_saturation(uint8_t *pixels, int64_t count, int channels, double factor);
/* Turns hues by `turn`, a fraction of the colour circle from -0.5 to 0.5. */
void brim_jitter_hue(uint8_t *pixels, int64_t count, int channels, double turn);
#endif
