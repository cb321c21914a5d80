/* Max pooling of one plane of channels that lie side by side, for one instruction set.
 *
 * A vector holds the same pixel of LANES channels, so comparing windows needs no shuffles; with fewer
 * channels (a plain layout has planes of one) the loop over channels is scalar. Windows are scanned row
 * by row: the first greatest value wins, and a NaN beats all numbers. */
#include "simd.h"

static inline bool is_greater(float value, float best)
{
  return value > best || (value != value && best == best);
}

static inline void pool_vector(const cpu_pool_plane *v, const float *x, float *y, uint8_t *index)
{
  vf best = load(x);
  vi where = {0};
  int32_t number = 0;
  for (int64_t r = 0; r < v->kernel[0]; r++)
    for (int64_t s = 0; s < v->kernel[1]; s++, number++) {
      const vf value = load(x + (r * v->width + s) * v->lanes);
      const vi better = (value > best) | ((value != value) & (best == best));
      best = choose(better, value, best);
      where = (better & number) | (~better & where);
    }
  store(y, best);
  const vb bytes = __builtin_convertvector(where, vb);
  memcpy(index, &bytes, sizeof bytes);
}

static void pool_one(const cpu_pool_plane *v, const float *x, float *y, uint8_t *index)
{
  float best = *x;
  int64_t where = 0;
  for (int64_t r = 0; r < v->kernel[0]; r++)
    for (int64_t s = 0; s < v->kernel[1]; s++) {
      const float value = x[(r * v->width + s) * v->lanes];
      if (!is_greater(value, best)) continue;
      best = value;
      where = r * v->kernel[1] + s;
    }
  *y = best;
  *index = (uint8_t)where;
}

/* The window two rows of windows further down. Processors fetch ahead along one stream, not along the two or more rows
 * that are read by turns here: without this, reading from memory took twice as long. */
static inline void fetch_ahead(const cpu_pool_plane *v, int64_t stride, const float *corner)
{
  for (int64_t r = 0; r < v->kernel[0]; r++)
    for (int64_t s = 0; s < v->kernel[1]; s++) {
      const uint64_t ahead = (uint64_t)(((2 * stride + r) * v->width + s) * v->lanes) * sizeof(float);
      __builtin_prefetch((const void *)((uintptr_t)corner + ahead)); /* past the end does no harm */
    }
}

void CPU_NAME(simd_max_pool)(const cpu_pool_plane *v, const float *x, float *y, uint8_t *index)
{
  /* The common window, as a constant, is unrolled. */
  const cpu_pool_plane two = {.width = v->width, .lanes = v->lanes, .kernel = {2, 2}};
  const bool is_two = v->kernel[0] == 2 && v->kernel[1] == 2;
  for (int64_t p = 0; p < v->out_height; p++)
    for (int64_t q = 0; q < v->out_width; q++, y += v->lanes, index += v->lanes) {
      const float *corner = x + (p * v->stride[0] * v->width + q * v->stride[1]) * v->lanes;
      int64_t c = 0;
      for (; c + LANES <= v->lanes; c += LANES) {
        if (is_two) {
          fetch_ahead(&two, v->stride[0], corner + c);
          pool_vector(&two, corner + c, y + c, index + c);
        } else {
          pool_vector(v, corner + c, y + c, index + c);
        }
      }
      for (; c < v->lanes; c++) pool_one(v, corner + c, y + c, index + c);
    }
}

/* Windows that do not overlap: every element of a window is written once, with the gradient or 0. */
static inline void spread(const cpu_pool_plane *v, const float *dy, const uint8_t *index, float *dx)
{
  int64_t c = 0;
  for (; c + LANES <= v->lanes; c += LANES) {
    vb bytes;
    memcpy(&bytes, index + c, sizeof bytes);
    const vi where = __builtin_convertvector(bytes, vi);
    const vf value = load(dy + c), zero = {0};
    int32_t number = 0;
    for (int64_t r = 0; r < v->kernel[0]; r++)
      for (int64_t s = 0; s < v->kernel[1]; s++, number++)
        store(dx + (r * v->width + s) * v->lanes + c, choose(where == number, value, zero));
  }
  for (; c < v->lanes; c++)
    for (int64_t r = 0; r < v->kernel[0]; r++)
      for (int64_t s = 0; s < v->kernel[1]; s++)
        dx[(r * v->width + s) * v->lanes + c] = index[c] == r * v->kernel[1] + s ? dy[c] : 0;
}

void CPU_NAME(simd_max_pool_grad)(const cpu_pool_plane *v, const float *dy, const uint8_t *index, float *dx)
{
  const bool apart = v->stride[0] >= v->kernel[0] && v->stride[1] >= v->kernel[1];
  const bool covered = apart && v->out_height * v->kernel[0] == v->height && v->out_width * v->kernel[1] == v->width;
  if (!covered) memset(dx, 0, (size_t)(v->height * v->width * v->lanes) * sizeof *dx);
  const cpu_pool_plane two = {.width = v->width, .lanes = v->lanes, .kernel = {2, 2}};
  const bool is_two = v->kernel[0] == 2 && v->kernel[1] == 2;
  for (int64_t p = 0; p < v->out_height; p++)
    for (int64_t q = 0; q < v->out_width; q++, dy += v->lanes, index += v->lanes) {
      float *corner = dx + (p * v->stride[0] * v->width + q * v->stride[1]) * v->lanes;
      if (apart && is_two) {
        spread(&two, dy, index, corner);
      } else if (apart) {
        spread(v, dy, index, corner);
      } else {
        for (int64_t c = 0; c < v->lanes; c++)
          corner[(index[c] / v->kernel[1] * v->width + index[c] % v->kernel[1]) * v->lanes + c] += dy[c];
      }
    }
}
