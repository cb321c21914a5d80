/* cache_write: cache[n, place mod C] = x[n,t], from `start` on, for the place of token t of text n. If consecutive
 * tokens have the same place, the last one counts, so no two threads write the same value. It reads the part of x and
 * places, and writes as many rows of the cache. */
#include "divider.h"
#include "words.cuh"

typedef struct writing {
  int64_t count, rows; /* the number of values to write; the rows of a text's cache */
  int64_t stride;      /* the distance between neighbouring rows of x */
  cuda_divider by_width, by_tokens;
  cuda_control *control;
  uint64_t node; /* for cuda_report */
} writing;

template <typename U>
static __global__ void __launch_bounds__(CUDA_THREADS)
    cache_write_kernel(U *__restrict__ cache, const U *__restrict__ x, const int32_t *__restrict__ places,
                       const writing w)
{
  for (int64_t at = cuda_first(); at < w.count; at += cuda_step_width()) {
    int64_t token = at;
    const int64_t i = cuda_take(&w.by_width, &token);
    int64_t text = token;
    const int64_t t = cuda_take(&w.by_tokens, &text);
    const int32_t place = places[token];
    if (place < 0) {
      cuda_report(w.control, w.node, text, place, INT32_MAX);
      continue;
    }
    if (t + 1 < w.by_tokens.by && places[token + 1] == place) continue;
    cache[(text * w.rows + place % w.rows) * w.by_width.by + i] = x[token * w.stride + i];
  }
}

static CUDA_RUN(cache_write_run)
{
  cuda_backend *b = (cuda_backend *)self;
  const brim_tensor *x = launch->node->in[0], *cache = launch->node->out[0];
  const int64_t start = launch->node->attr.move.start;
  writing w = {};
  w.count = x->shape.dim[0] * x->shape.dim[1] * cache->shape.dim[2];
  w.rows = cache->shape.dim[1];
  w.stride = x->shape.dim[2];
  w.by_width = cuda_divider_of(cache->shape.dim[2]);
  w.by_tokens = cuda_divider_of(x->shape.dim[1]);
  w.control = cuda_control_of(b, launch);
  w.node = (uint64_t)(uintptr_t)launch->node;
  if (!w.control) return BRIM_EDEVICE;
  const cuda_geometry g = cuda_stride(w.count, 1, b->processors);
  CUDA_WITH_WORD(brim_dtype_bytes(x->dtype), U,
                 return cuda_launch(b, cache_write_kernel<U>, g, (U *)launch->out[0], (const U *)launch->in[0] + start,
                                    (const int32_t *)launch->in[1], w));
}
BRIM_KERNEL(cache_write) = {.op = "cache_write", .run = cache_write_run};
