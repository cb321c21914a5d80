/* The norm of all gradients, and the factor that limits it:
 *
 *     squared_norm     sum = (the sum before) + sum over i of x[i]^2
 *     gradient_scale   norm = gradient_scale * sqrt(sum),  factor = gradient_scale * min(1, max_norm / (norm + 1e-6))
 *
 * 4 bytes an element, read once. Everything is added up in double precision and in an order that depends on the shapes
 * alone: a tensor is cut into pieces of 16384 elements; a block adds up one piece (of a tensor of more than 4096
 * pieces, every 4096th) by threads, warps, block; a warp adds up a tensor's blocks; and one thread adds the tensors to
 * the sum, in their order. The chain of nodes, one a gradient, is done by two launches for a table of tensors; a node
 * by itself is a table of one and adds in the same order. */
#include <string.h>

#include "kernel.cuh"
extern "C" {
#include "update.h"
}

/* Entries: the tensor, the sum before (or NULL) and the sum, which may be one place. */
enum tensors { X, BEFORE, SUM };
enum { COMBINE_THREADS = 1024 };
static_assert(CUDA_NORM_PARTS <= CUDA_PARTIALS, "any tensor fits an empty table");

static __device__ inline double squares_of_piece(const float *x, int64_t start, int64_t count)
{
  constexpr int P = cuda_pack<float>::count;
  const int64_t end = cuda_min(count, start + CUDA_NORM_PIECE), whole = end / P * P;
  double sum = 0;
  for (int64_t i = start + P * threadIdx.x; i < whole; i += P * CUDA_THREADS) {
    cuda_pack<float> v;
    v.load(x + i);
#pragma unroll
    for (int k = 0; k < P; k++) sum = fma((double)v.v[k], (double)v.v[k], sum);
  }
  const int64_t i = whole + threadIdx.x; /* fewer than P are left */
  if (i < end) sum = fma((double)x[i], (double)x[i], sum);
  return sum;
}

template <typename TABLE>
static __global__ void __launch_bounds__(CUDA_THREADS)
    squares_kernel(const __grid_constant__ TABLE table, cuda_control *control)
{
  const uint32_t part = blockIdx.x;
  const cuda_table_entry &e = table.entry[cuda_table_find(table.entry, table.head.entries, part)];
  double sum = 0;
  for (int64_t at = (int64_t)(part - e.first) * CUDA_NORM_PIECE; at < e.count;
       at += (int64_t)CUDA_NORM_PARTS * CUDA_NORM_PIECE)
    sum += squares_of_piece(static_cast<const float *>(e.tensor[X]), at, e.count);
  sum = cuda_block_sum(sum);
  if (threadIdx.x == 0) control->partial[part] = sum;
}

/* One block. Sums in memory are read where they are not those of the entry before. */
template <typename TABLE>
static __global__ void __launch_bounds__(COMBINE_THREADS)
    combine_kernel(const __grid_constant__ TABLE table, const cuda_control *control)
{
  __shared__ double of_entry[CUDA_TABLE_ENTRIES];
  const uint32_t lane = threadIdx.x % CUDA_WARP, entries = table.head.entries;
  for (uint32_t k = threadIdx.x / CUDA_WARP; k < entries; k += COMBINE_THREADS / CUDA_WARP) {
    const cuda_table_entry &e = table.entry[k];
    const uint32_t parts = (uint32_t)cuda_norm_parts(e.count);
    double sum = 0;
    for (uint32_t p = lane; p < parts; p += CUDA_WARP) sum += control->partial[e.first + p];
    sum = cuda_warp_sum(sum);
    if (lane == 0) of_entry[k] = sum;
  }
  __syncthreads();
  if (threadIdx.x > 0) return;
  double sum = 0;
  const void *last = nullptr;
  for (uint32_t k = 0; k < entries; k++) {
    const cuda_table_entry &e = table.entry[k];
    if (!e.tensor[BEFORE])
      sum = 0;
    else if (e.tensor[BEFORE] != last)
      sum = *static_cast<const double *>(e.tensor[BEFORE]);
    sum += of_entry[k];
    *static_cast<double *>(e.tensor[SUM]) = sum;
    last = e.tensor[SUM];
  }
}

/* ---- launching ---- */

template <typename TABLE> static brim_status launch(cuda_backend *b, const TABLE &table, cuda_control *control)
{
  const cuda_geometry one = {{1, 1, 1}, COMBINE_THREADS, 0};
  BRIM_TRY(cuda_launch(b, squares_kernel<TABLE>, cuda_rows(table.head.parts, CUDA_THREADS), table, control));
  return cuda_launch(b, combine_kernel<TABLE>, one, table, control);
}

static brim_status launch_table(cuda_backend *b, const cuda_table *table, cuda_control *control)
{
  cuda_table_few few;
  if (table->head.entries == 0) return BRIM_OK;
  if (table->head.entries > CUDA_TABLE_FEW) return launch(b, *table, control);
  memcpy(&few, table, sizeof few);
  return launch(b, few, control);
}

extern "C" brim_status cuda_squared_norm_run_all(cuda_backend *b, const brim_launch *const *launch, size_t count)
{
  cuda_table table;
  cuda_control *control = cuda_control_of(b, launch[0]);
  if (!control) return BRIM_EDEVICE;
  cuda_table_clear(&table, nullptr);
  for (size_t i = 0; i < count; i++) {
    cuda_table_entry e = {};
    e.count = brim_shape_count(&launch[i]->node->in[0]->shape);
    e.tensor[X] = launch[i]->in[0];
    e.tensor[BEFORE] = launch[i]->node->in_count > 1 ? launch[i]->in[1] : nullptr;
    e.tensor[SUM] = launch[i]->out[0];
    const int64_t parts = cuda_norm_parts(e.count);
    if (cuda_table_add(&table, &e, parts, CUDA_PARTIALS)) continue;
    BRIM_TRY(launch_table(b, &table, control));
    cuda_table_clear(&table, nullptr);
    cuda_table_add(&table, &e, parts, CUDA_PARTIALS);
  }
  return launch_table(b, &table, control);
}

static CUDA_RUN(squared_norm_run)
{
  return cuda_squared_norm_run_all(static_cast<cuda_backend *>(self), &launch, 1);
}
BRIM_KERNEL(squared_norm) = {.op = "squared_norm", .run = squared_norm_run};

static __global__ void gradient_scale_kernel(const cuda_control *control, double max_norm, const double *sum,
                                             double *out)
{
  const double scale = control->step.gradient_scale, norm = sum ? scale * sqrt(*sum) : 0;
  const double limit = max_norm / (norm + 1e-6);
  out[0] = norm;
  out[1] = scale * (max_norm > 0 && !(limit > 1) ? limit : 1); /* a norm that is NaN is passed on */
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
