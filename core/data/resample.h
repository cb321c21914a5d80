/* Resizing pictures of bytes, as Pillow resizes them: a filter that is as wide as what a pixel of the result covers
 * (antialiased), weights in fixed point, first along rows and then along columns, rounded to bytes after each.
 *
 * The same bits as PIL.Image.resize(..., reducing_gap=None) of pictures with 8 bits a channel, and so as torchvision's
 * transforms of such pictures: nearest up to Pillow 13.0 at least, bilinear and bicubic up to Pillow 12.1. Later ones
 * filter columns before rows where that costs less (12.2 only in pictures 100 times as high as wide, 13.0 in any), and
 * the rounding between the passes then differs. Method and constants: Pillow, src/libImaging/Resample.c and Geometry.c
 * (ImagingScaleAffine). */
#ifndef BRIM_DATA_RESAMPLE_H
#define BRIM_DATA_RESAMPLE_H
#include <stdint.h>

#include "config/settings.h"

/* Pixels in rows, channels together. */
typedef struct brim_pixels {
  const uint8_t *data;
  int64_t rows, columns, channels;
  int64_t stride; /* bytes from row to row */
} brim_pixels;

/* What is wanted of a picture that is resized to rows x columns: the window of it that begins at (top, left). The
 * window lies inside. */
typedef struct brim_resize {
  int64_t rows, columns;
  int64_t top, left, window_rows, window_columns;
  enum brim_filter filter;
} brim_resize;

/* [any thread] Bytes of scratch with which pictures of at most `side` rows and `side` columns are resized so that their
 * shorter side has `resized` pixels, or 0: no fewer than the window, of which a window of window_rows x window_columns
 * at most is made; UINT64_MAX if that does not fit in 64 bits. */
uint64_t brim_resample_bytes(int64_t side, int64_t resized, int64_t window_rows, int64_t window_columns,
                             int64_t channels);
/* [any thread] Writes the window, rows of `window_columns * channels` bytes that are `stride` bytes apart, to `out`.
 * Computes no more than the window asks for; what lies around it in the source has its part in the pixels at the
 * window's edges, as if the whole had been resized and then cut. Does not allocate. */
void brim_resample(const brim_pixels *in, const brim_resize *to, void *scratch, uint8_t *out, int64_t stride);
#endif
