/* permute: the dimensions of y are those of x in another order. It moves 2 times the tensor's bytes.
 *
 * Dimensions that stay neighbours are merged first. If x and y then have the same innermost dimension, its runs are
 * copied in the widest words possible. Otherwise matrices are transposed, tile by tile, through shared memory, so that
 * reads and writes both go along rows of memory. A tile is 32 x 32, or 128 x 8 if a matrix has few columns or rows. If
 * it has few of both, tiles would be mostly empty. Then each thread computes the next element of y, and the scattered
 * reads of x hit the cache.
 *
 * A rank-4 result is channels-last if x's innermost dimension becomes the channels, for instance if images stored as
 * [H,W,C] are permuted to [C,H,W]. Then the memory order does not change. */
#include "move_geometry.h"
#include "words.cuh"

enum { THREADS = 256, FEW = 16 };

/* A position's coordinates in all dimensions of a permutation. */
typedef struct walk {
  cuda_permutation p;
  cuda_divider by[BRIM_DIMS_MAX];
} walk;

static walk walk_of(const cuda_permutation *p)
{
  walk w = {};
  w.p = *p;
  for (int32_t d = 0; d < p->rank; d++) w.by[d] = cuda_divider_of(p->dim[d]);
  return w;
}

/* ---- along y ---- */

template <typename U>
static __global__ void __launch_bounds__(THREADS)
    copy_kernel(U *__restrict__ y, const U *__restrict__ x, const walk w, int64_t count)
{
  for (int64_t i = cuda_first(); i < count; i += cuda_step_width()) {
    int64_t rest = i, at = 0;
    for (int32_t d = w.p.rank - 1; d >= 0; d--) at += cuda_take(&w.by[d], &rest) * w.p.from[d];
    y[i] = x[at];
  }
}

template <typename U> static brim_status copy(cuda_backend *b, const brim_launch *launch, const cuda_permutation *p)
{
  int64_t count = 1;
  for (int32_t d = 0; d < p->rank; d++) count *= p->dim[d];
  return cuda_launch(b, copy_kernel<U>, cuda_stride(count, 1, b->processors), (U *)launch->out[0],
                     (const U *)launch->in[0], walk_of(p), count);
}

/* ---- tiles ---- */

/* Matrices to transpose. The innermost dimension of y has length `rows` and stride row_stride in x; that of x has
 * length `columns` and stride column_stride in y. `others` walks over the starts of the matrices. */
typedef struct matrices {
  walk others;
  int64_t rows, row_stride, columns, column_stride;
  cuda_divider row_tiles, column_tiles;
  int64_t tiles;
} matrices;

template <typename U, int ROWS, int COLUMNS>
static __global__ void __launch_bounds__(THREADS)
    transpose_kernel(U *__restrict__ y, const U *__restrict__ x, const matrices m)
{
  /* An offset that puts the lanes of a warp in different banks. */
  constexpr int APART = ROWS < CUDA_WARP ? CUDA_WARP / ROWS : 1;
  __shared__ U tile[ROWS][COLUMNS + APART];
  for (int64_t t = blockIdx.x; t < m.tiles; t += gridDim.x) {
    int64_t rest = t, from = 0, to = 0;
    const int64_t column = cuda_take(&m.column_tiles, &rest) * COLUMNS, row = cuda_take(&m.row_tiles, &rest) * ROWS;
    for (int32_t d = m.others.p.rank - 1; d >= 0; d--) {
      const int64_t place = cuda_take(&m.others.by[d], &rest);
      from += place * m.others.p.from[d];
      to += place * m.others.p.to[d];
    }
#pragma unroll
    for (int e = threadIdx.x; e < ROWS * COLUMNS; e += THREADS) {
      const int r = e / COLUMNS, c = e % COLUMNS;
      if (row + r < m.rows && column + c < m.columns) tile[r][c] = x[from + (row + r) * m.row_stride + column + c];
    }
    __syncthreads();
#pragma unroll
    for (int e = threadIdx.x; e < ROWS * COLUMNS; e += THREADS) {
      const int r = e % ROWS, c = e / ROWS;
      if (row + r < m.rows && column + c < m.columns) y[to + (column + c) * m.column_stride + row + r] = tile[r][c];
    }
    __syncthreads();
  }
}

template <typename U, int ROWS, int COLUMNS>
static brim_status transpose(cuda_backend *b, const brim_launch *launch, matrices m)
{
  m.row_tiles = cuda_divider_of(cuda_divide_up(m.rows, ROWS));
  m.column_tiles = cuda_divider_of(cuda_divide_up(m.columns, COLUMNS));
  m.tiles = m.row_tiles.by * m.column_tiles.by;
  for (int32_t d = 0; d < m.others.p.rank; d++) m.tiles *= m.others.p.dim[d];
  return cuda_launch(b, transpose_kernel<U, ROWS, COLUMNS>, cuda_rows(cuda_min(m.tiles, 1 << 20), THREADS),
                     (U *)launch->out[0], (const U *)launch->in[0], m);
}

/* `inner`: the dimension of y that is innermost in x, but not in y. */
template <typename U>
static brim_status exchange(cuda_backend *b, const brim_launch *launch, const cuda_permutation *p, int32_t inner)
{
  const int32_t last = p->rank - 1;
  matrices m = {};
  m.rows = p->dim[last];
  m.row_stride = p->from[last];
  m.columns = p->dim[inner];
  m.column_stride = p->to[inner];
  if (m.rows <= FEW && m.columns <= FEW) return copy<U>(b, launch, p);
  cuda_permutation others = *p;
  cuda_permutation_remove(&others, last);
  cuda_permutation_remove(&others, inner);
  m.others = walk_of(&others);
  if (m.columns <= FEW) return transpose<U, 128, 8>(b, launch, m);
  if (m.rows <= FEW) return transpose<U, 8, 128>(b, launch, m);
  return transpose<U, 32, 32>(b, launch, m);
}

/* ---- the operation ---- */

static CUDA_PREPARE(permute_prepare)
{
  (void)self, (void)program, (void)need, (void)state;
  const int32_t inner = cuda_channels_last(node->in[0]) ? 1 : 3;
  cuda_layout_set(node->out[0], node->out[0]->shape.rank == 4 && node->attr.move.order[1] == inner);
  return BRIM_OK;
}

static CUDA_RUN(permute_run)
{
  cuda_backend *b = (cuda_backend *)self;
  const brim_tensor *x = launch->node->in[0], *y = launch->node->out[0];
  const int64_t bytes = brim_dtype_bytes(y->dtype);
  cuda_permutation p = cuda_permutation_of(&x->shape, cuda_channels_last(x), &y->shape, cuda_channels_last(y),
                                           launch->node->attr.move.order);
  const int32_t inner = cuda_permutation_inner(&p);
  if (inner == p.rank - 1) CUDA_WITH_WORD(cuda_permutation_widen(&p, bytes), U, return copy<U>(b, launch, &p));
  switch (bytes) { /* values are only moved, so only their width matters */
  case 1:
    return exchange<uint8_t>(b, launch, &p, inner);
  case 2:
    return exchange<uint16_t>(b, launch, &p, inner);
  case 4:
    return exchange<uint32_t>(b, launch, &p, inner);
  default:
    return exchange<uint2>(b, launch, &p, inner);
  }
}
BRIM_KERNEL(permute) = {.op = "permute", .prepare = permute_prepare, .run = permute_run};
