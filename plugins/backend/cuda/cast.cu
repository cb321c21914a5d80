/* Converts values from one storage type to another, rounded to nearest. Each element is read and written once, as
 * many by a thread as both sides need to move at least 16 bytes at a time. A training program in 16 bits casts every
 * parameter, and most are tiny, so one launch processes a table of them (update_table.h).
 *
 * A parameter of rank 4 is most likely the weight of a convolution, [K,D,R,S]. If convolutions want channels-last
 * weights, the cast writes [K,R,S,D], so that none of them needs a copy: neighbouring threads write neighbouring
 * values, and read values R*S apart, which the R*S passes over the same lines find in the cache. */
#include <string.h>

#include "kernel.cuh"
extern "C" {
#include "dnn.h"
#include "update.h"
}

/* ---- the kernel ---- */

template <typename To, typename From>
static __device__ inline void cast_transposed(const cuda_table_entry &e, int64_t start)
{
  const From *x = static_cast<const From *>(e.tensor[0]);
  To *y = static_cast<To *>(e.tensor[1]);
  const int64_t end = cuda_min(e.count, start + CUDA_UPDATE_PIECE), whole = (int64_t)e.matrix.depth * e.matrix.taps;
  /* `first` is the start of a matrix; an index relative to it is below whole + CUDA_UPDATE_PIECE. */
  const int64_t first = start / whole * whole;
  for (int64_t i = start + threadIdx.x; i < end; i += CUDA_THREADS) {
    const int64_t k = (i - first) / whole;
    const uint32_t at = (uint32_t)(i - first - k * whole), tap = at / e.matrix.depth, d = at - tap * e.matrix.depth;
    cuda_store(&y[i], cuda_load(&x[first + k * whole + (int64_t)d * e.matrix.taps + tap]));
  }
}

template <typename To, typename From> static __device__ inline void cast_piece(const cuda_table_entry &e, int64_t start)
{
  constexpr int in = cuda_pack<From>::count, out = cuda_pack<To>::count, PER_THREAD = in > out ? in : out;
  const From *x = static_cast<const From *>(e.tensor[0]);
  To *y = static_cast<To *>(e.tensor[1]);
  const int64_t end = cuda_min(e.count, start + CUDA_UPDATE_PIECE), whole = end / PER_THREAD * PER_THREAD;
  for (int64_t i = start + PER_THREAD * threadIdx.x; i < whole; i += PER_THREAD * CUDA_THREADS) {
    float v[PER_THREAD];
#pragma unroll
    for (int k = 0; k < PER_THREAD; k += in) {
      cuda_pack<From> p;
      p.load(x + i + k);
#pragma unroll
      for (int j = 0; j < in; j++) v[k + j] = p.v[j];
    }
#pragma unroll
    for (int k = 0; k < PER_THREAD; k += out) {
      cuda_pack<To> p;
#pragma unroll
      for (int j = 0; j < out; j++) p.v[j] = v[k + j];
      p.store(y + i + k);
    }
  }
  const int64_t i = whole + threadIdx.x; /* fewer than PER_THREAD values are left */
  if (i < end) cuda_store(&y[i], cuda_load(&x[i]));
}

/* Entries: tensor[0] is read, tensor[1] is written. */
template <typename To, typename From, typename TABLE>
static __global__ void __launch_bounds__(CUDA_THREADS) cast_kernel(const __grid_constant__ TABLE table)
{
  for (uint32_t part = blockIdx.x; part < table.head.parts; part += gridDim.x) {
    const cuda_table_entry &e = table.entry[cuda_table_find(table.entry, table.head.entries, part)];
    const int64_t start = (int64_t)(part - e.first) * CUDA_UPDATE_PIECE;
    if (e.matrix.taps > 1)
      cast_transposed<To, From>(e, start);
    else
      cast_piece<To, From>(e, start);
  }
}

/* ---- launching ---- */

template <typename To, typename From> static brim_status launch_table(cuda_backend *b, const cuda_table *table)
{
  if (table->head.entries == 0) return BRIM_OK;
  const cuda_geometry g = cuda_stride((int64_t)table->head.parts * CUDA_THREADS, 1, b->processors);
  if (table->head.entries > CUDA_TABLE_FEW) return cuda_launch(b, cast_kernel<To, From, cuda_table>, g, *table);
  cuda_table_few few;
  memcpy(&few, table, sizeof few);
  return cuda_launch(b, cast_kernel<To, From, cuda_table_few>, g, few);
}

template <typename To> static brim_status launch_typed(cuda_backend *b, uint32_t from, const cuda_table *table)
{
  CUDA_WITH_TYPE(from, From, return (launch_table<To, From>(b, table)));
}

/* Casts from one type to another. No cast of a launch reads the result of another. */
static brim_status launch_casts(cuda_backend *b, uint32_t to, uint32_t from, const cuda_table *table)
{
  CUDA_WITH_TYPE(to, To, return launch_typed<To>(b, from, table));
}

static brim_status run_all(cuda_backend *b, const brim_launch *const *launch, size_t count)
{
  cuda_table table;
  uint32_t to = 0, from = 0;
  cuda_table_clear(&table, nullptr);
  for (size_t i = 0; i < count; i++) {
    const brim_tensor *x = launch[i]->node->in[0], *y = launch[i]->node->out[0];
    cuda_table_entry e = {};
    e.count = brim_shape_count(&y->shape);
    e.tensor[0] = launch[i]->in[0];
    e.tensor[1] = launch[i]->out[0];
    e.matrix.taps = 1;
    if (!cuda_in_order(y, cuda_channels_last(x))) {
      e.matrix.depth = (uint32_t)y->shape.dim[1];
      e.matrix.taps = (uint32_t)(y->shape.dim[2] * y->shape.dim[3]);
    }
    const int64_t parts = cuda_update_parts(e.count);
    const bool same = x->dtype == from && y->dtype == to;
    if (same && cuda_table_add(&table, &e, parts, CUDA_TABLE_PARTS_MAX)) continue;
    BRIM_TRY(launch_casts(b, to, from, &table));
    cuda_table_clear(&table, nullptr);
    to = y->dtype;
    from = x->dtype;
    cuda_table_add(&table, &e, parts, CUDA_TABLE_PARTS_MAX);
  }
  return launch_casts(b, to, from, &table);
}

/* Whether the result is a copy of a weight for convolutions, and is small enough for indices of 32 bits. */
static bool is_for_convolutions(const cuda_backend *b, const brim_node *node)
{
  const brim_tensor *x = node->in[0], *y = node->out[0];
  if (x->role != BRIM_ROLE_PARAMETER || y->shape.rank != 4 || y->dtype == BRIM_DTYPE_F32) return false;
  const int64_t matrix = brim_shape_count(&y->shape) / y->shape.dim[0];
  return matrix <= INT32_MAX && cuda_dnn_prefers_last(b, y->dtype);
}

static CUDA_PREPARE(prepare)
{
  BRIM_TRY(cuda_follow_prepare(self, program, node, need, state));
  if (is_for_convolutions(static_cast<const cuda_backend *>(self), node)) cuda_layout_set(node->out[0], true);
  return BRIM_OK;
}

static CUDA_RUN(run)
{
  return run_all(static_cast<cuda_backend *>(self), &launch, 1);
}
BRIM_KERNEL(cast) = {.op = "cast", .prepare = prepare, .run = run};
CUDA_GATHERING(cast, run_all, true);
