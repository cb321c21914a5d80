/* Average pooling of one plane of adjacent channels, for one instruction set, and the table of pooling functions.
 *
 * A window's sum is the sum of its rows' sums, which keeps the rounding error of large windows small. A long row is
 * split into PARTS sums, which the CPU can overlap. The order of a row's additions depends only on its length. It
 * depends neither on the instruction set nor on whether channels are in blocks, which fusion may change. */
#include "simd_pool.h"

enum { PARTS = 8, LONG_ROW = 2 * PARTS };

#define ADD_UP(part) (((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7])))

/* Returns the sum of a row: `count` values, which are `step` floats apart. */
static inline float sum_row(const float *x, int64_t count, int64_t step)
{
  float part[PARTS] = {0}, sum = 0;
  int64_t i = 0;
  if (count < LONG_ROW) {
    for (; i < count; i++) sum += x[i * step];
    return sum;
  }
  if (step == 1)
    for (; i + PARTS <= count; i += PARTS)
      for (int k = 0; k < PARTS; k++) part[k] += x[i + k];
  for (; i < count; i++) part[i % PARTS] += x[i * step];
  return ADD_UP(part);
}

/* Returns the sum of a row for LANES channels at a time. */
static inline vf sum_row_vector(const float *x, int64_t count, int64_t step)
{
  vf part[PARTS] = {{0}}, sum = {0};
  int64_t i = 0;
  if (count < LONG_ROW) {
    for (; i < count; i++) sum += load(x + i * step);
    return sum;
  }
  for (; i + PARTS <= count; i += PARTS)
    for (int k = 0; k < PARTS; k++) part[k] += load(x + (i + k) * step);
  for (int k = 0; i < count; i++, k++) part[k] += load(x + i * step);
  return ADD_UP(part);
}

static inline float divisor_of(const cpu_pool_plane *v, range rows, range columns)
{
  if (!v->adaptive && !v->exclude_padding) return (float)(v->kernel[0] * v->kernel[1]);
  return (float)((rows.to - rows.from) * (columns.to - columns.from));
}

static void avg_pool(const cpu_pool_plane *v, const float *x, float *y)
{
  const int64_t lanes = v->lanes, pitch = v->extent[1] * lanes;
  for (int64_t p = 0; p < v->places[0]; p++)
    for (int64_t q = 0; q < v->places[1]; q++, y += lanes) {
      const range rows = window_in(v, 0, p), columns = window_in(v, 1, q);
      const float divisor = divisor_of(v, rows, columns);
      const int64_t height = rows.to - rows.from, width = columns.to - columns.from;
      const float *corner = x + rows.from * pitch + columns.from * lanes;
      int64_t c = 0;
      for (; c + LANES <= lanes; c += LANES) {
        vf sum = {0};
        for (int64_t r = 0; r < height; r++) sum += sum_row_vector(corner + r * pitch + c, width, lanes);
        store(y + c, sum / divisor);
      }
      for (; c < lanes; c++) {
        float sum = 0;
        for (int64_t r = 0; r < height; r++) sum += sum_row(corner + r * pitch + c, width, lanes);
        y[c] = sum / divisor;
      }
    }
}

/* Writes `dy / divisor` to every element of a window if `apart` (no other window has these elements); otherwise adds
 * it. */
static inline void spread(bool apart, const float *dy, float divisor, int64_t lanes, int64_t height, int64_t width,
                          int64_t pitch, float *dx)
{
  int64_t c = 0;
  for (; c + LANES <= lanes; c += LANES) {
    const vf each = load(dy + c) / divisor;
    for (int64_t r = 0; r < height; r++)
      for (int64_t s = 0; s < width; s++) {
        float *to = dx + r * pitch + s * lanes + c;
        store(to, apart ? each : load(to) + each);
      }
  }
  for (; c < lanes; c++) {
    const float each = dy[c] / divisor;
    for (int64_t r = 0; r < height; r++)
      for (int64_t s = 0; s < width; s++) {
        float *to = dx + r * pitch + s * lanes + c;
        *to = apart ? each : *to + each;
      }
  }
}

static void avg_pool_grad(const cpu_pool_plane *v, const float *dy, float *dx)
{
  const bool apart = windows_apart(v);
  const int64_t lanes = v->lanes, pitch = v->extent[1] * lanes;
  if (!apart || !windows_cover(v)) memset(dx, 0, (size_t)(v->extent[0] * pitch) * sizeof *dx);
  for (int64_t p = 0; p < v->places[0]; p++)
    for (int64_t q = 0; q < v->places[1]; q++, dy += lanes) {
      const range rows = window_in(v, 0, p), columns = window_in(v, 1, q);
      spread(apart, dy, divisor_of(v, rows, columns), lanes, rows.to - rows.from, columns.to - columns.from, pitch,
             dx + rows.from * pitch + columns.from * lanes);
    }
}

/* Adds up stretches of STRETCH pixels, each like a row. */
static void sum_pixels(const float *x, int64_t pixels, int64_t lanes, float *sum)
{
  enum { STRETCH = 64 };
  int64_t c = 0;
  for (; c + LANES <= lanes; c += LANES) {
    vf total = {0};
    for (int64_t i = 0; i < pixels; i += STRETCH)
      total += sum_row_vector(x + i * lanes + c, pixels - i < STRETCH ? pixels - i : STRETCH, lanes);
    store(sum + c, load(sum + c) + total);
  }
  for (; c < lanes; c++) {
    float total = 0;
    for (int64_t i = 0; i < pixels; i += STRETCH)
      total += sum_row(x + i * lanes + c, pixels - i < STRETCH ? pixels - i : STRETCH, lanes);
    sum[c] += total;
  }
}

static void add_to_pixels(float *x, int64_t pixels, int64_t lanes, const float *value)
{
  if (lanes == 1)
    for (int64_t i = 0; i < pixels; i++) x[i] += value[0];
  else
    for (int64_t i = 0; i < pixels; i++, x += lanes)
      for (int64_t c = 0; c < lanes; c++) x[c] += value[c];
}

const cpu_pooling CPU_NAME(cpu_pooling) = {.max_pool = CPU_NAME(simd_max_pool),
                                           .max_pool_grad = CPU_NAME(simd_max_pool_grad),
                                           .avg_pool = avg_pool,
                                           .avg_pool_grad = avg_pool_grad,
                                           .sum_pixels = sum_pixels,
                                           .add_to_pixels = add_to_pixels};
