/* See resample.h. */
#include "data/resample.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* Fraction bits of a weight in a sum of 32 bits: 8 bits hold the pixel, and 2 hold sums outside of 0..255. */
#define FRACTION_BITS (32 - 8 - 2)
#define SUPPORT_MAX 2 /* half-width of the widest filter, bicubic, in pixels of the result */
#define ALIGN_BYTES 64u

/* The pixels of a line that contribute to a pixel of the result, and their weights. */
typedef struct tap {
  int64_t first, count;
} tap;

typedef struct taps {
  tap *tap;        /* a tap for each pixel of the window */
  int32_t *weight; /* [window, most] in fixed point */
  int64_t most;
} taps;

static double bilinear(double x)
{
  x = fabs(x);
  return x < 1 ? 1 - x : 0;
}

/* Keys' cubic with a = -0.5. */
static double bicubic(double x)
{
  const double a = -0.5;
  x = fabs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

/* ---- Memory ---- */

/* Returns the maximum number of pixels of a line of `in` that contribute to one pixel of `out`. */
static int64_t most_taps(int64_t in, int64_t out, double support)
{
  const double scale = (double)in / (double)out;
  return (int64_t)ceil(support * (scale < 1 ? 1 : scale)) * 2 + 1;
}

static uint64_t aligned(uint64_t bytes)
{
  return (bytes + ALIGN_BYTES - 1) & ~(uint64_t)(ALIGN_BYTES - 1);
}

static uint64_t taps_bytes(int64_t window, int64_t most)
{
  return aligned((uint64_t)window * sizeof(tap)) + aligned((uint64_t)window * (uint64_t)most * sizeof(int32_t));
}

/* Returns the bytes for the taps of a window's pixels. The fewer pixels the resized line has, the more source pixels
 * each needs. */
static uint64_t window_bytes(int64_t side, int64_t resized, int64_t window)
{
  const int64_t out = resized > 0 && resized < window ? resized : window;
  return taps_bytes(window, most_taps(side, out, SUPPORT_MAX));
}

uint64_t brim_resample_bytes(int64_t side, int64_t resized, int64_t window_rows, int64_t window_columns,
                             int64_t channels)
{
  uint64_t lines;
  if (__builtin_mul_overflow((uint64_t)side, (uint64_t)window_columns * (uint64_t)channels, &lines) ||
      lines > UINT64_MAX / 2 || side > INT64_MAX >> 16)
    return UINT64_MAX;
  return window_bytes(side, resized, window_rows) + window_bytes(side, resized, window_columns) + aligned(lines) +
         ALIGN_BYTES;
}

static char *place_taps(taps *t, char *at, int64_t window, int64_t most)
{
  t->tap = (tap *)(void *)at;
  t->weight = (int32_t *)(void *)(at + aligned((uint64_t)window * sizeof(tap)));
  t->most = most;
  return at + taps_bytes(window, most);
}

/* ---- Weights ---- */

static void make_tap(taps *t, int64_t i, double centre, double wide, double support, int64_t in,
                     double (*filter)(double))
{
  int64_t first = (int64_t)(centre - support + 0.5), end = (int64_t)(centre + support + 0.5);
  if (first < 0) first = 0;
  if (end > in) end = in;
  int32_t *weight = t->weight + i * t->most;
  double sum = 0;
  for (int64_t k = first; k < end; k++) sum += filter(((double)k - centre + 0.5) * (1 / wide));
  for (int64_t k = first; k < end; k++) {
    double w = filter(((double)k - centre + 0.5) * (1 / wide));
    if (sum != 0) w /= sum;
    w *= 1 << FRACTION_BITS;
    weight[k - first] = (int32_t)(w < 0 ? w - 0.5 : w + 0.5);
  }
  t->tap[i] = (tap){first, end - first};
}

/* Makes the taps of pixels `from` .. `from + count - 1` of a line of `in` that is resized to `out`. */
static void make_taps(taps *t, int64_t in, int64_t out, int64_t from, int64_t count, enum brim_filter filter)
{
  const double scale = (double)in / (double)out, wide = scale < 1 ? 1 : scale;
  for (int64_t i = 0; i < count; i++) {
    const double centre = ((double)(from + i) + 0.5) * scale;
    if (filter == BRIM_FILTER_BICUBIC)
      make_tap(t, i, centre, wide, 2 * wide, in, bicubic);
    else
      make_tap(t, i, centre, wide, wide, in, bilinear);
  }
}

/* ---- Passes ---- */

static uint8_t to_byte(int32_t sum)
{
  const int32_t value = sum >> FRACTION_BITS;
  return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

#define HALF (1 << (FRACTION_BITS - 1))

static void row_of_3(const uint8_t *in, const taps *t, int64_t count, uint8_t *out)
{
  for (int64_t i = 0; i < count; i++) {
    const int32_t *w = t->weight + i * t->most;
    const uint8_t *p = in + t->tap[i].first * 3;
    int32_t a = HALF, b = HALF, c = HALF;
    for (int64_t k = 0; k < t->tap[i].count; k++, p += 3) {
      a += p[0] * w[k];
      b += p[1] * w[k];
      c += p[2] * w[k];
    }
    out[3 * i] = to_byte(a);
    out[3 * i + 1] = to_byte(b);
    out[3 * i + 2] = to_byte(c);
  }
}

static void row_of(const uint8_t *in, int64_t channels, const taps *t, int64_t count, uint8_t *out)
{
  for (int64_t i = 0; i < count; i++) {
    const int32_t *w = t->weight + i * t->most;
    for (int64_t c = 0; c < channels; c++) {
      const uint8_t *p = in + t->tap[i].first * channels + c;
      int32_t sum = HALF;
      for (int64_t k = 0; k < t->tap[i].count; k++) sum += p[k * channels] * w[k];
      out[i * channels + c] = to_byte(sum);
    }
  }
}

#define TILE 256 /* length of the sums, which stay in the cache while rows are added */

/* Computes a row of the result: the weighted sum of rows of bytes that are `stride` apart. */
static void add_rows(const uint8_t *in, int64_t stride, const int32_t *weight, int64_t rows, int64_t bytes,
                     uint8_t *restrict out)
{
  int32_t sum[TILE];
  for (int64_t from = 0; from < bytes; from += TILE) {
    const int64_t n = bytes - from < TILE ? bytes - from : TILE;
    for (int64_t i = 0; i < n; i++) sum[i] = HALF;
    for (int64_t k = 0; k < rows; k++) {
      const uint8_t *p = in + k * stride + from;
      const int32_t w = weight[k];
      for (int64_t i = 0; i < n; i++) sum[i] += p[i] * w;
    }
    for (int64_t i = 0; i < n; i++) out[from + i] = to_byte(sum[i]);
  }
}

static void filter_columns(const brim_pixels *in, const brim_resize *to, const taps *t, int64_t first, int64_t rows,
                           uint8_t *lines)
{
  const int64_t bytes = to->window_columns * in->channels;
  for (int64_t y = 0; y < rows; y++) {
    const uint8_t *from = in->data + (first + y) * in->stride;
    if (to->columns == in->columns) /* with equal widths all weights are 1 */
      memcpy(lines + y * bytes, from + to->left * in->channels, (size_t)bytes);
    else if (in->channels == 3)
      row_of_3(from, t, to->window_columns, lines + y * bytes);
    else
      row_of(from, in->channels, t, to->window_columns, lines + y * bytes);
  }
}

/* Returns the centre of pixel i in a line of the source. Like Pillow, this accumulates the scale from pixel to pixel,
 * because if a centre lies on the border of two pixels, the rounding of the sum decides between them (256 to 224: 25
 * pixels). */
static double centre_of(int64_t i, double scale)
{
  double centre = scale * 0.5;
  for (int64_t k = 0; k < i; k++) centre += scale;
  return centre;
}

static void nearest(const brim_pixels *in, const brim_resize *to, uint8_t *out, int64_t stride)
{
  const double high = (double)in->rows / (double)to->rows, wide = (double)in->columns / (double)to->columns;
  const double left = centre_of(to->left, wide);
  double y_in = centre_of(to->top, high);
  for (int64_t y = 0; y < to->window_rows; y++, y_in += high) {
    const uint8_t *row = in->data + (int64_t)y_in * in->stride;
    double x_in = left;
    for (int64_t x = 0; x < to->window_columns; x++, x_in += wide)
      memcpy(out + y * stride + x * in->channels, row + (int64_t)x_in * in->channels, (size_t)in->channels);
  }
}

void brim_resample(const brim_pixels *in, const brim_resize *to, void *scratch, uint8_t *out, int64_t stride)
{
  if (to->filter == BRIM_FILTER_NEAREST) {
    nearest(in, to, out, stride);
    return;
  }
  const double support = to->filter == BRIM_FILTER_BICUBIC ? 2 : 1;
  taps rows, columns;
  char *at = (char *)aligned((uintptr_t)scratch);
  at = place_taps(&rows, at, to->window_rows, most_taps(in->rows, to->rows, support));
  at = place_taps(&columns, at, to->window_columns, most_taps(in->columns, to->columns, support));
  make_taps(&rows, in->rows, to->rows, to->top, to->window_rows, to->filter);
  make_taps(&columns, in->columns, to->columns, to->left, to->window_columns, to->filter);
  const tap *last = &rows.tap[to->window_rows - 1];
  const int64_t first = rows.tap[0].first, bytes = to->window_columns * in->channels;
  uint8_t *lines = (uint8_t *)at; /* the rows of the source that are needed, with the width of the window */
  filter_columns(in, to, &columns, first, last->first + last->count - first, lines);
  for (int64_t y = 0; y < to->window_rows; y++) {
    const uint8_t *from = lines + (rows.tap[y].first - first) * bytes;
    if (to->rows == in->rows)
      memcpy(out + y * stride, lines + (to->top + y - first) * bytes, (size_t)bytes);
    else
      add_rows(from, bytes, rows.weight + y * rows.most, rows.tap[y].count, bytes, out + y * stride);
  }
}
