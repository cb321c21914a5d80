/* Rows of a table by index, and the sums of their gradients:
 *
 *     embedding       y[r,:] = weight[index[r],:]
 *     embedding_grad  dweight[index[r],:] += dy[r,:]
 *
 * embedding reads and writes y's bytes once. embedding_grad sorts the rows by their index, equal ones in the order of
 * the samples (index_sort.cuh). Then it adds up tiles of sorted rows in that order; a thread has some columns of a
 * tile. An index whose rows all lie in one tile is finished there. If an index has rows in several tiles, each tile
 * stores its part, and a second kernel adds the parts, so that a word as frequent as padding is not one thread's work.
 * dy is read once, every indexed row of dweight is read and written once, and sums are the same in every run.
 *
 * If the program has a grain, the rows of each grain are sorted and added separately, in order, so the bits of dweight
 * do not depend on where micro-batches end. */
#include <stdlib.h>

#include "divider.h"
#include "index_sort.cuh"
#include "words.cuh"

/* ---- embedding ---- */

/* W: float, or T. */
template <typename T, typename W, int V>
static __global__ void __launch_bounds__(CUDA_THREADS)
    embedding_kernel(T *__restrict__ y, const W *__restrict__ weight, const sort_source s, const cuda_divider packs,
                     int64_t count)
{
  for (int64_t i = cuda_first(); i < count; i += cuda_step_width()) {
    int64_t row = i;
    const int64_t pack = cuda_take(&packs, &row);
    const int32_t value = s.index[row];
    if (value < 0 || value >= s.limit) {
      cuda_report(s.control, s.node, cuda_quotient(&s.by_sample, row), value, s.limit);
      continue;
    }
    float v[V];
    cuda_load_values(v, weight + ((int64_t)value * packs.by + pack) * V);
    cuda_store_values(y + i * V, v);
  }
}

template <typename T, typename W, int V>
static brim_status look_up(cuda_backend *b, const brim_launch *launch, const sort_source &s, int64_t rows, int64_t dim)
{
  const int64_t count = rows * (dim / V);
  return cuda_launch(b, embedding_kernel<T, W, V>, cuda_stride(count, 1, b->processors), (T *)launch->out[0],
                     (const W *)launch->in[1], s, cuda_divider_of(dim / V), count);
}

/* Returns the source for sorting in[0], indices of `limit` rows. Its index is NULL, with an error set, on failure. */
static sort_source source_of(cuda_backend *b, const brim_launch *launch, int64_t limit)
{
  const brim_tensor *index = launch->node->in[0];
  sort_source s = {};
  s.index = (const int32_t *)cuda_plain_input(b, launch, 0);
  s.limit = limit;
  s.by_sample = cuda_divider_of(brim_shape_count(&index->shape) / index->shape.dim[0]);
  s.control = cuda_control_of(b, launch);
  if (!s.control) s.index = NULL;
  s.node = (uint64_t)(uintptr_t)launch->node;
  return s;
}

static CUDA_RUN(embedding_run)
{
  cuda_backend *b = (cuda_backend *)self;
  const brim_tensor *index = launch->node->in[0], *weight = launch->node->in[1];
  const int64_t rows = brim_shape_count(&index->shape), dim = cuda_last(weight);
  const sort_source s = source_of(b, launch, weight->shape.dim[0]);
  if (!s.index) return BRIM_EDEVICE;
  CUDA_WITH_TYPE(launch->node->out[0]->dtype, T, {
    const bool wide = weight->dtype == BRIM_DTYPE_F32;
    if (dim % 4 == 0 && wide) return look_up<T, float, 4>(b, launch, s, rows, dim);
    if (dim % 4 == 0) return look_up<T, T, 4>(b, launch, s, rows, dim);
    if (wide) return look_up<T, float, 1>(b, launch, s, rows, dim);
    return look_up<T, T, 1>(b, launch, s, rows, dim);
  });
}
BRIM_KERNEL(embedding) = {.op = "embedding", .prepare = cuda_plain_prepare, .run = embedding_run};

/* ---- embedding_grad: sums ---- */

enum { AHEAD = 8 }; /* rows of dy that a thread loads before it adds the first */

typedef struct sums {
  const uint32_t *key, *row; /* sorted */
  int64_t rows, tile, tiles, dim;
  uint32_t limit; /* the key that stands for all indices out of range */
  float *dweight;
  float *part; /* [tiles][2][dim]: the sum of the index that continues from the previous tile, and of the one that
                  continues in the next */
  cuda_divider packs, by_tile;
} sums;

template <int V> static __device__ inline void add_to(float *p, const float (&sum)[V])
{
  float v[V];
  cuda_load_values(v, p);
#pragma unroll
  for (int k = 0; k < V; k++) v[k] += sum[k];
  cuda_store_values(p, v);
}

/* Stores the sum of one index in a tile. `whole`: it has no rows in other tiles; `begun`: it has rows in earlier
 * tiles. */
template <int V>
static __device__ inline void put(const sums &s, int64_t tile, int64_t column, uint32_t key, bool begun, bool whole,
                                  const float (&sum)[V])
{
  if (key == s.limit) return;
  if (whole)
    add_to(s.dweight + (int64_t)key * s.dim + column, sum);
  else
    cuda_store_values(s.part + (tile * 2 + (begun ? 0 : 1)) * s.dim + column, sum);
}

template <typename T, int V>
static __global__ void __launch_bounds__(CUDA_THREADS) sum_tiles_kernel(const T *__restrict__ dy, const sums s)
{
  for (int64_t i = cuda_first(); i < s.tiles * s.packs.by; i += cuda_step_width()) {
    int64_t tile = i;
    const int64_t column = cuda_take(&s.packs, &tile) * V;
    const int64_t begin = tile * s.tile, end = cuda_min(begin + s.tile, s.rows);
    uint32_t key = s.key[begin];
    bool begun = begin > 0 && s.key[begin - 1] == key;
    float sum[V] = {};
    for (int64_t first = begin; first < end; first += AHEAD) {
      float ahead[AHEAD][V];
      uint32_t key_of[AHEAD];
#pragma unroll
      for (int k = 0; k < AHEAD; k++) {
        const int64_t at = cuda_min(first + k, end - 1);
        key_of[k] = s.key[at];
        cuda_load_values(ahead[k], dy + (int64_t)s.row[at] * s.dim + column);
      }
#pragma unroll
      for (int k = 0; k < AHEAD; k++) {
        if (first + k >= end) break;
        if (key_of[k] != key) {
          put(s, tile, column, key, begun, !begun, sum);
          key = key_of[k];
          begun = false;
#pragma unroll
          for (int v = 0; v < V; v++) sum[v] = 0;
        }
#pragma unroll
        for (int v = 0; v < V; v++) sum[v] += ahead[k][v];
      }
    }
    const bool goes_on = end < s.rows && s.key[end] == key;
    put(s, tile, column, key, begun, !begun && !goes_on, sum);
  }
}

/* For each index that begins in a tile and continues in the next: adds its parts, in order. */
template <int V> static __global__ void __launch_bounds__(CUDA_THREADS, 1) sum_parts_kernel(const sums s)
{
  for (int64_t i = cuda_first(); i < (s.tiles - 1) * s.packs.by; i += cuda_step_width()) {
    int64_t tile = i;
    const int64_t column = cuda_take(&s.packs, &tile) * V;
    const int64_t begin = tile * s.tile, last = begin + s.tile - 1;
    const uint32_t key = s.key[last];
    const bool begun = begin > 0 && s.key[begin - 1] == key;
    if (key == s.limit || begun || s.key[last + 1] != key) continue;
    const int64_t end_tile = cuda_quotient(&s.by_tile, cuda_sorted_end(s.key, s.rows, last) - 1);
    float v[V], result[V];
    double sum[V];
    cuda_load_values(v, s.part + (tile * 2 + 1) * s.dim + column);
#pragma unroll
    for (int k = 0; k < V; k++) sum[k] = v[k];
#pragma unroll 4
    for (int64_t t = tile + 1; t <= end_tile; t++) {
      cuda_load_values(v, s.part + t * 2 * s.dim + column);
#pragma unroll
      for (int k = 0; k < V; k++) sum[k] += v[k];
    }
#pragma unroll
    for (int k = 0; k < V; k++) result[k] = (float)sum[k];
    add_to(s.dweight + (int64_t)key * s.dim + column, result);
  }
}

template <typename T, int V> static brim_status add_up(cuda_backend *b, const T *dy, sums s)
{
  s.packs = cuda_divider_of(s.dim / V);
  BRIM_TRY(cuda_launch(b, sum_tiles_kernel<T, V>, cuda_stride(s.tiles * s.packs.by, 1, b->processors), dy, s));
  if (s.tiles == 1) return BRIM_OK;
  return cuda_launch(b, sum_parts_kernel<V>, cuda_stride((s.tiles - 1) * s.packs.by, 1, b->processors), s);
}

/* ---- embedding_grad: rows by pieces ---- */

#define PIECE_ROWS ((int64_t)1 << 22) /* most rows that are sorted at a time; limits the scratch */

/* Sizes in rows: of a part with sums of its own (a grain, or all rows), of the rows sorted at a time, and of a tile of
 * the sums. */
typedef struct pieces {
  int64_t grain, piece, tile;
} pieces;

static pieces pieces_of(const brim_program_info *program, const brim_shape *index)
{
  const int64_t rows = brim_shape_count(index), sample_rows = rows / index->dim[0];
  pieces p;
  p.grain = program->grain > 0 ? program->grain * sample_rows : rows;
  p.tile = cuda_sum_tile(cuda_min(p.grain, PIECE_ROWS)); /* this size does not depend on the number of samples */
  p.piece = cuda_min(cuda_min(p.grain, rows), PIECE_ROWS);
  return p;
}

static CUDA_PREPARE(embedding_grad_prepare)
{
  BRIM_TRY(cuda_plain_prepare(self, program, node, need, state));
  pieces *p = (pieces *)brim_try_calloc(1, sizeof *p);
  if (!p) return brim_fail(BRIM_ENOMEM_HOST, "embedding_grad: out of memory");
  *p = pieces_of(program, &node->in[0]->shape);
  *state = p;
  const int64_t parts = cuda_divide_up(p->piece, p->tile) * 2 * cuda_last(node->out[0]);
  need->workspace_bytes += cuda_round_up(index_sort_bytes(p->piece), CUDA_ALIGNMENT) + (uint64_t)parts * sizeof(float);
  return BRIM_OK;
}

static void pieces_release(void *self, void *state)
{
  (void)self;
  free(state);
}

/* Sorts and adds up `rows` rows from `first` on. */
template <typename T>
static brim_status add_piece(cuda_backend *b, const brim_launch *launch, sort_source source, const T *dy, int64_t first,
                             int64_t rows)
{
  source.index += first;
  source.first_row = first;
  char *scratch = (char *)cuda_scratch_end(launch, true);
  const sort_arrays a = index_sort_arrays(scratch, rows);
  int sorted = 0;
  BRIM_TRY(index_sort(b, &a, &source, rows, &sorted));
  sums s = {};
  s.key = a.key[sorted];
  s.row = a.row[sorted];
  s.rows = rows;
  s.tile = ((const pieces *)launch->state)->tile;
  s.tiles = cuda_divide_up(rows, s.tile);
  s.by_tile = cuda_divider_of(s.tile);
  s.dim = cuda_last(launch->node->out[0]);
  s.limit = (uint32_t)source.limit;
  s.dweight = (float *)launch->out[0];
  s.part = (float *)(void *)(scratch + cuda_round_up(index_sort_bytes(rows), CUDA_ALIGNMENT));
  dy += first * s.dim;
  if (s.dim % 4 == 0) return add_up<T, 4>(b, dy, s);
  return add_up<T, 1>(b, dy, s);
}

template <typename T>
static brim_status add_pieces(cuda_backend *b, const brim_launch *launch, const sort_source &source, const T *dy)
{
  const pieces *p = (const pieces *)launch->state;
  const int64_t rows = brim_shape_count(&launch->node->in[0]->shape);
  for (int64_t grain = 0; grain < rows; grain += p->grain) {
    const int64_t end = cuda_min(grain + p->grain, rows);
    for (int64_t first = grain; first < end; first += p->piece)
      BRIM_TRY(add_piece(b, launch, source, dy, first, cuda_min(p->piece, end - first)));
  }
  return BRIM_OK;
}

static CUDA_RUN(embedding_grad_run)
{
  cuda_backend *b = (cuda_backend *)self;
  const sort_source source = source_of(b, launch, launch->node->out[0]->shape.dim[0]);
  const void *dy = cuda_plain_input(b, launch, 1);
  if (!source.index || !dy) return BRIM_EDEVICE;
  CUDA_WITH_TYPE(launch->node->in[1]->dtype, T, return add_pieces(b, launch, source, (const T *)dy));
}
BRIM_KERNEL(embedding_grad) = {
    .op = "embedding_grad", .prepare = embedding_grad_prepare, .run = embedding_grad_run, .release = pieces_release};
