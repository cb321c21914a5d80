/* Resizes 8-bit images as Pillow does: a filter as wide as the area that a pixel of the result covers (antialiased),
 * weights in fixed point, first along rows and then along columns, rounded to bytes after each pass.
 *
 * The results are bit-identical to those of PIL.Image.resize(..., reducing_gap=None) for images with 8 bits per
 * channel, and so of torchvision's transforms of such images: for nearest up to Pillow 13.0 at least, for bilinear and
 * bicubic up to Pillow 12.1. Later versions filter columns before rows where that is cheaper (12.2 only for images 100
 * times as high as wide, 13.0 for any), which changes the rounding between the passes. Method and constants: Pillow,
 * src/libImaging/Resample.c and Geometry.c (ImagingScaleAffine). */
#ifndef BRIM_DATA_RESAMPLE_H
#define BRIM_DATA_RESAMPLE_H
#include <stdint.h>

#include "config/settings.h"

/* Pixels in rows, with interleaved channels. */
typedef struct brim_pixels {
  const uint8_t *data;
  int64_t rows, columns, channels;
  int64_t stride; /* bytes from row to row */
} brim_pixels;

/* The size of a resized image, rows x columns, and a window of it. The window begins at (top, left) and lies inside the
 * resized image. */
typedef struct brim_resize {
  int64_t rows, columns;
  int64_t top, left, window_rows, window_columns;
  enum brim_filter filter;
} brim_resize;

/* [any thread] Bytes of scratch that brim_resample needs. Images have at most `side` rows and columns; their shorter
 * side becomes `resized` pixels (0: at least as many as the window); windows have at most window_rows x window_columns
 * pixels. UINT64_MAX if that does not fit in 64 bits. */
uint64_t brim_resample_bytes(int64_t side, int64_t resized, int64_t window_rows, int64_t window_columns,
                             int64_t channels);
/* [any thread] Writes the window, rows of `window_columns * channels` bytes that are `stride` bytes apart, to `out`.
 * Computes only the window; its edges include the contributions of the surrounding source pixels, as if the whole image
 * had been resized and then cropped. Does not allocate. */
void brim_resample(const brim_pixels *in, const brim_resize *to, void *scratch, uint8_t *out, int64_t stride);
#endif
