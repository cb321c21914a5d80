/* cache_write: cache[n, place mod C] = x[n,t], from `start` on, for the place of token t of text n. If consecutive
 * tokens have the same place, the last one counts.
 *
 * Rows are copied in the type that they are stored in. So this kernel is not one of those that small.c wraps: it would
 * make a copy of the whole cache for some rows. */
#include <string.h>

#include "cpu.h"

enum { TASK_BYTES = 64 << 10 }; /* bytes that a task copies, approximately */

typedef struct writing {
  const char *from;
  char *cache;
  const int32_t *places;
  int64_t count, tokens, rows, per_task; /* count: tokens of all texts; tokens: of a text; rows: of a text's cache */
  size_t bytes, stride; /* the bytes of a row of the cache; the distance between neighbouring rows of x */
} writing;

static void write_some(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const writing *w = arg;
  for (int64_t i = task * w->per_task; i < cpu_min((task + 1) * w->per_task, w->count); i++) {
    if ((i + 1) % w->tokens != 0 && w->places[i + 1] == w->places[i]) continue;
    const int64_t row = i / w->tokens * w->rows + w->places[i] % w->rows;
    memcpy(w->cache + (size_t)row * w->bytes, w->from + (size_t)i * w->stride, w->bytes);
  }
}

static CPU_RUN(cache_write_run)
{
  cpu_backend *b = self;
  const brim_tensor *x = launch->node->in[0], *cache = launch->node->out[0];
  const size_t each = brim_dtype_bytes(x->dtype);
  writing w = {.from = (const char *)launch->in[0] + (size_t)launch->node->attr.move.start * each,
               .cache = launch->out[0],
               .places = launch->in[1],
               .count = x->shape.dim[0] * x->shape.dim[1],
               .tokens = x->shape.dim[1],
               .rows = cache->shape.dim[1],
               .bytes = (size_t)cache->shape.dim[2] * each,
               .stride = (size_t)x->shape.dim[2] * each};
  for (int64_t i = 0; i < w.count; i++)
    if (w.places[i] < 0)
      return brim_fail(BRIM_EINVAL, "cache_write '%s': place %d is negative", launch->node->name, w.places[i]);
  w.per_task = cpu_max(1, TASK_BYTES / (int64_t)w.bytes);
  cpu_pool_run(b->pool, cpu_divide_up(w.count, w.per_task), write_some, &w);
  return BRIM_OK;
}

const brim_kernel cpu_cache_write = {.op = "cache_write", .run = cache_write_run};
