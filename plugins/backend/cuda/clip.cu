/* The norm of all gradients and the factor that limits it, and the distance of two models, which is added up likewise:
 *
 *     squared_norm     sum = (the sum before) + sum over i of x[i]^2
 *     distance         sum = (the sum before) + sum over i of (w[i] - g[i])^2,  largest = max(before, |w[i] - g[i]|)
 *     gradient_scale   norm = gradient_scale * sqrt(sum),  factor = gradient_scale * min(1, max_norm / (norm + 1e-6))
 *
 * Each tensor's 4 bytes per element are read once. Everything is added up in double precision, in an order that depends
 * on the shapes alone: a tensor is divided into pieces of 16384 elements; a block adds up one piece (of a tensor of
 * more than 4096 pieces, every 4096th) by threads, warps and block; a warp adds up a tensor's blocks; and one thread
 * adds the tensors to the sum, in their order. The chain of nodes, one for each gradient, takes two launches for a
 * table of tensors. A node by itself is a table of one, and adds in the same order. */
#include <string.h>

#include "kernel.cuh"
extern "C" {
#include "update.h"
}

enum kind { SQUARED_NORM, DISTANCE };
/* Entries: the tensor; the other tensor of distance; the sum before (or NULL) and the result, which may share an
 * address. */
enum tensors { X, FROM, BEFORE, SUM };
enum { COMBINE_THREADS = 1024 };
/* A part of distance has two results: the largest differences follow the sums. */
enum { LARGEST = CUDA_PARTIALS / 2 };
template <enum kind K> static constexpr int64_t parts_max = K == DISTANCE ? LARGEST : CUDA_PARTIALS;
static_assert(CUDA_NORM_PARTS <= LARGEST, "any tensor fits an empty table");

typedef struct total {
  double sum, largest;
} total;

/* fmax ignores NaN. */
template <enum kind K> static __device__ inline void add(total *t, float x, float from)
{
  const double d = K == DISTANCE ? (double)x - (double)from : (double)x;
  t->sum = fma(d, d, t->sum);
  if (K == DISTANCE) t->largest = fmax(t->largest, fabs(d));
}

template <enum kind K> static __device__ inline void add_piece(total *t, const cuda_table_entry &e, int64_t start)
{
  constexpr int P = cuda_pack<float>::count;
  const float *x = static_cast<const float *>(e.tensor[X]), *from = static_cast<const float *>(e.tensor[FROM]);
  const int64_t end = cuda_min(e.count, start + CUDA_NORM_PIECE), whole = end / P * P;
  for (int64_t i = start + P * threadIdx.x; i < whole; i += P * CUDA_THREADS) {
    cuda_pack<float> v, u = {};
    v.load(x + i);
    if (K == DISTANCE) u.load(from + i);
#pragma unroll
    for (int k = 0; k < P; k++) add<K>(t, v.v[k], u.v[k]);
  }
  const int64_t i = whole + threadIdx.x; /* fewer than P values are left */
  if (i < end) add<K>(t, x[i], K == DISTANCE ? from[i] : 0);
}

static __device__ inline double warp_largest(double value)
{
#pragma unroll
  for (int lane = CUDA_WARP / 2; lane > 0; lane /= 2) value = fmax(value, __shfl_xor_sync(0xFFFFFFFFu, value, lane));
  return value;
}

/* Returns the maximum over a block of CUDA_THREADS to its first thread. */
static __device__ inline double block_largest(double value)
{
  __shared__ double of_warp[CUDA_THREADS / CUDA_WARP];
  value = warp_largest(value);
  if (threadIdx.x % CUDA_WARP == 0) of_warp[threadIdx.x / CUDA_WARP] = value;
  __syncthreads();
  for (int w = 0; threadIdx.x == 0 && w < CUDA_THREADS / CUDA_WARP; w++) value = fmax(value, of_warp[w]);
  return value;
}

template <enum kind K, typename TABLE>
static __global__ void __launch_bounds__(CUDA_THREADS)
    squares_kernel(const __grid_constant__ TABLE table, cuda_control *control)
{
  const uint32_t part = blockIdx.x;
  const cuda_table_entry &e = table.entry[cuda_table_find(table.entry, table.head.entries, part)];
  total t = {0, 0};
  for (int64_t at = (int64_t)(part - e.first) * CUDA_NORM_PIECE; at < e.count;
       at += (int64_t)CUDA_NORM_PARTS * CUDA_NORM_PIECE) {
    total piece = {0, t.largest};
    add_piece<K>(&piece, e, at);
    t = {t.sum + piece.sum, piece.largest};
  }
  t.sum = cuda_block_sum(t.sum);
  if (K == DISTANCE) t.largest = block_largest(t.largest);
  if (threadIdx.x > 0) return;
  control->partial[part] = t.sum;
  if (K == DISTANCE) control->partial[LARGEST + part] = t.largest;
}

/* Runs as one block. Reads the sum before an entry from memory unless it is the previous entry's result. */
template <enum kind K, typename TABLE>
static __global__ void __launch_bounds__(COMBINE_THREADS)
    combine_kernel(const __grid_constant__ TABLE table, const cuda_control *control)
{
  __shared__ total of_entry[CUDA_TABLE_ENTRIES];
  const uint32_t lane = threadIdx.x % CUDA_WARP, entries = table.head.entries;
  for (uint32_t k = threadIdx.x / CUDA_WARP; k < entries; k += COMBINE_THREADS / CUDA_WARP) {
    const cuda_table_entry &e = table.entry[k];
    const uint32_t parts = (uint32_t)cuda_norm_parts(e.count);
    total t = {0, 0};
    for (uint32_t p = lane; p < parts; p += CUDA_WARP) {
      t.sum += control->partial[e.first + p];
      if (K == DISTANCE) t.largest = fmax(t.largest, control->partial[LARGEST + e.first + p]);
    }
    t.sum = cuda_warp_sum(t.sum);
    if (K == DISTANCE) t.largest = warp_largest(t.largest);
    if (lane == 0) of_entry[k] = t;
  }
  __syncthreads();
  if (threadIdx.x > 0) return;
  total t = {0, 0};
  const double *last = nullptr;
  for (uint32_t k = 0; k < entries; k++) {
    const cuda_table_entry &e = table.entry[k];
    const double *before = static_cast<const double *>(e.tensor[BEFORE]);
    double *result = static_cast<double *>(e.tensor[SUM]);
    if (!before)
      t = {0, 0};
    else if (before != last)
      t = {before[0], K == DISTANCE ? before[1] : 0};
    t = {t.sum + of_entry[k].sum, fmax(t.largest, of_entry[k].largest)};
    result[0] = t.sum;
    if (K == DISTANCE) result[1] = t.largest;
    last = result;
  }
}

/* ---- launching ---- */

template <enum kind K, typename TABLE>
static brim_status launch(cuda_backend *b, const TABLE &table, cuda_control *control)
{
  const cuda_geometry one = {{1, 1, 1}, COMBINE_THREADS, 0};
  BRIM_TRY(cuda_launch(b, squares_kernel<K, TABLE>, cuda_rows(table.head.parts, CUDA_THREADS), table, control));
  return cuda_launch(b, combine_kernel<K, TABLE>, one, table, control);
}

template <enum kind K> static brim_status launch_table(cuda_backend *b, const cuda_table *table, cuda_control *control)
{
  cuda_table_few few;
  if (table->head.entries == 0) return BRIM_OK;
  if (table->head.entries > CUDA_TABLE_FEW) return launch<K>(b, *table, control);
  memcpy(&few, table, sizeof few);
  return launch<K>(b, few, control);
}

/* The nodes may be a chain, in which each adds to the sum before. */
template <enum kind K> static brim_status run_all(cuda_backend *b, const brim_launch *const *launch, size_t count)
{
  constexpr uint32_t AT = K == DISTANCE ? 2 : 1; /* the index of `before` among the inputs */
  cuda_table table;
  cuda_control *control = cuda_control_of(b, launch[0]);
  if (!control) return BRIM_EDEVICE;
  cuda_table_clear(&table, nullptr);
  for (size_t i = 0; i < count; i++) {
    cuda_table_entry e = {};
    e.count = brim_shape_count(&launch[i]->node->in[0]->shape);
    e.tensor[X] = launch[i]->in[0];
    e.tensor[FROM] = K == DISTANCE ? launch[i]->in[1] : nullptr;
    e.tensor[BEFORE] = launch[i]->node->in_count > AT ? launch[i]->in[AT] : nullptr;
    e.tensor[SUM] = launch[i]->out[0];
    const int64_t parts = cuda_norm_parts(e.count);
    if (cuda_table_add(&table, &e, parts, parts_max<K>)) continue;
    BRIM_TRY(launch_table<K>(b, &table, control));
    cuda_table_clear(&table, nullptr);
    cuda_table_add(&table, &e, parts, parts_max<K>);
  }
  return launch_table<K>(b, &table, control);
}

template <enum kind K> static CUDA_RUN(run)
{
  return run_all<K>(static_cast<cuda_backend *>(self), &launch, 1);
}
BRIM_KERNEL(squared_norm) = {.op = "squared_norm", .run = run<SQUARED_NORM>};
CUDA_GATHERING(squared_norm, run_all<SQUARED_NORM>, false);
BRIM_KERNEL(distance) = {.op = "distance", .run = run<DISTANCE>};
CUDA_GATHERING(distance, run_all<DISTANCE>, false);

static __global__ void gradient_scale_kernel(const cuda_control *control, double max_norm, const double *sum,
                                             double *out)
{
  const double scale = control->step.gradient_scale, norm = sum ? scale * sqrt(*sum) : 0;
  const double limit = max_norm / (norm + 1e-6);
  out[0] = norm;
  out[1] = scale * (max_norm > 0 && !(limit > 1) ? limit : 1); /* a NaN norm is passed on */
}

static CUDA_RUN(gradient_scale_run)
{
  cuda_backend *b = static_cast<cuda_backend *>(self);
  const cuda_geometry one = {{1, 1, 1}, 1, 0};
  const cuda_control *control = cuda_control_of(b, launch);
  if (!control) return BRIM_EDEVICE;
  const double *sum = launch->node->in_count > 0 ? static_cast<const double *>(launch->in[0]) : nullptr;
  return cuda_launch(b, gradient_scale_kernel, one, control, launch->node->attr.clip.max_norm, sum,
                     static_cast<double *>(launch->out[0]));
}
BRIM_KERNEL(gradient_scale) = {.op = "gradient_scale", .run = gradient_scale_run};
