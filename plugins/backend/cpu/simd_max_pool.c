/* Max pooling of one plane of adjacent channels, for one instruction set.
 *
 * A vector holds the same pixel of LANES channels, so comparing windows needs no shuffles. With fewer channels (a plain
 * layout has planes of one channel), the loop over channels is scalar. Windows are scanned row by row: the first
 * greatest value wins, and a NaN beats all numbers. */
#include "simd_pool.h"

/* A window of a plane. r and s are the ranges of its part in x, relative to the window's corner. */
typedef struct window {
  range r, s;
  int64_t at; /* the offset of element (r.from, s.from), in floats */
} window;

static inline window window_at(const cpu_pool_plane *v, int64_t p, int64_t q)
{
  const range rows = window_in(v, 0, p), columns = window_in(v, 1, q);
  const int64_t top = window_start(v, 0, p), left = window_start(v, 1, q);
  return (window){{rows.from - top, rows.to - top},
                  {columns.from - left, columns.to - left},
                  (rows.from * v->extent[1] + columns.from) * v->lanes};
}

/* Returns whether w is a whole window of 2x2, the most common one. Its constants let the compiler unroll the loops. The
 * caller checks that the kernel is also {2, 2}. */
static inline bool is_whole_two(const window *w)
{
  return w->r.from == 0 && w->r.to == 2 && w->s.from == 0 && w->s.to == 2;
}
static const window whole_two = {{0, 2}, {0, 2}, 0};

static inline bool is_greater(float value, float best)
{
  return value > best || (value != value && best == best);
}

static inline void pool_vector(const cpu_pool_plane *v, const window *w, const float *x, float *y, uint8_t *index)
{
  const int32_t first = (int32_t)(w->r.from * v->kernel[1] + w->s.from);
  vf best = load(x);
  vi where = first - (vi){0};
  for (int64_t r = 0; r < w->r.to - w->r.from; r++)
    for (int64_t s = 0; s < w->s.to - w->s.from; s++) {
      const int32_t number = first + (int32_t)(r * v->kernel[1] + s);
      const vf value = load(x + (r * v->extent[1] + s) * v->lanes);
      const vi better = (value > best) | ((value != value) & (best == best));
      best = choose(better, value, best);
      where = (better & number) | (~better & where);
    }
  store(y, best);
  const vb bytes = __builtin_convertvector(where, vb);
  memcpy(index, &bytes, sizeof bytes);
}

static void pool_one(const cpu_pool_plane *v, const window *w, const float *x, float *y, uint8_t *index)
{
  const int64_t first = w->r.from * v->kernel[1] + w->s.from;
  float best = *x;
  int64_t where = first;
  for (int64_t r = 0; r < w->r.to - w->r.from; r++)
    for (int64_t s = 0; s < w->s.to - w->s.from; s++) {
      const float value = x[(r * v->extent[1] + s) * v->lanes];
      if (!is_greater(value, best)) continue;
      best = value;
      where = first + r * v->kernel[1] + s;
    }
  *y = best;
  *index = (uint8_t)where;
}

/* Prefetches the window two rows of windows further down. Processors prefetch along one stream, but here two or more
 * rows are read in turn. Without this prefetch, reading from memory took twice as long. */
static inline void fetch_ahead(const cpu_pool_plane *v, int64_t stride, const float *corner)
{
  for (int64_t r = 0; r < v->kernel[0]; r++)
    for (int64_t s = 0; s < v->kernel[1]; s++) {
      const uint64_t ahead = (uint64_t)(((2 * stride + r) * v->extent[1] + s) * v->lanes) * sizeof(float);
      __builtin_prefetch((const void *)((uintptr_t)corner + ahead)); /* harmless past the end */
    }
}

void CPU_NAME(simd_max_pool)(const cpu_pool_plane *v, const float *x, float *y, uint8_t *index)
{
  const cpu_pool_plane two = {.extent = {0, v->extent[1]}, .lanes = v->lanes, .kernel = {2, 2}};
  const bool is_two = v->kernel[0] == 2 && v->kernel[1] == 2;
  for (int64_t p = 0; p < v->places[0]; p++)
    for (int64_t q = 0; q < v->places[1]; q++, y += v->lanes, index += v->lanes) {
      const window w = window_at(v, p, q);
      const float *corner = x + w.at;
      int64_t c = 0;
      for (; c + LANES <= v->lanes; c += LANES) {
        if (is_two && is_whole_two(&w)) {
          fetch_ahead(&two, v->stride[0], corner + c);
          pool_vector(&two, &whole_two, corner + c, y + c, index + c);
        } else {
          pool_vector(v, &w, corner + c, y + c, index + c);
        }
      }
      for (; c < v->lanes; c++) pool_one(v, &w, corner + c, y + c, index + c);
    }
}

/* Gives each element of a window its gradient or 0. Writes it if `apart` (no other window has the element), otherwise
 * adds it. */
static inline void spread(const cpu_pool_plane *v, const window *w, bool apart, const float *dy, const uint8_t *index,
                          float *dx)
{
  const int32_t first = (int32_t)(w->r.from * v->kernel[1] + w->s.from);
  int64_t c = 0;
  for (; c + LANES <= v->lanes; c += LANES) {
    vb bytes;
    memcpy(&bytes, index + c, sizeof bytes);
    const vi where = __builtin_convertvector(bytes, vi);
    const vf value = load(dy + c), zero = {0};
    for (int64_t r = 0; r < w->r.to - w->r.from; r++)
      for (int64_t s = 0; s < w->s.to - w->s.from; s++) {
        float *to = dx + (r * v->extent[1] + s) * v->lanes + c;
        const vf given = choose(where == first + (int32_t)(r * v->kernel[1] + s), value, zero);
        store(to, apart ? given : load(to) + given);
      }
  }
  for (; c < v->lanes; c++)
    for (int64_t r = 0; r < w->r.to - w->r.from; r++)
      for (int64_t s = 0; s < w->s.to - w->s.from; s++) {
        float *to = dx + (r * v->extent[1] + s) * v->lanes + c;
        const float given = index[c] == first + r * v->kernel[1] + s ? dy[c] : 0;
        *to = apart ? given : *to + given;
      }
}

void CPU_NAME(simd_max_pool_grad)(const cpu_pool_plane *v, const float *dy, const uint8_t *index, float *dx)
{
  const bool apart = windows_apart(v), is_two = apart && v->kernel[0] == 2 && v->kernel[1] == 2;
  if (!apart || !windows_cover(v)) memset(dx, 0, (size_t)(v->extent[0] * v->extent[1] * v->lanes) * sizeof *dx);
  const cpu_pool_plane two = {.extent = {0, v->extent[1]}, .lanes = v->lanes, .kernel = {2, 2}};
  for (int64_t p = 0; p < v->places[0]; p++)
    for (int64_t q = 0; q < v->places[1]; q++, dy += v->lanes, index += v->lanes) {
      const window w = window_at(v, p, q);
      if (is_two && is_whole_two(&w))
        spread(&two, &whole_two, true, dy, index, dx + w.at);
      else
        spread(v, &w, apart, dy, index, dx + w.at);
    }
}
