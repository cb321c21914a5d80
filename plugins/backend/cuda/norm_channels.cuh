/* Shared code of batch norm's and group norm's kernels, forward and backward: where the pieces of cuda_norm_cut lie in
 * memory. See norm_channels.cu. */
#ifndef CUDA_NORM_CHANNELS_CUH
#define CUDA_NORM_CHANNELS_CUH
#include "norm.cuh"

/* The sums of a channel's piece: the mean and the squared differences from it, or the sums of dy and of dy * (x -
 * mean). */
typedef struct alignas(16) piece_sums {
  double first, second;
} piece_sums;

/* Returns the result of a norm. factor: rstd * weight. The gradient of a following relu computes the result again and
 * must get the same bits, so the compiler must not choose how to round it. */
static __device__ inline float norm_result(float x, float mean, float factor, float bias)
{
  return fmaf(x - mean, factor, bias);
}

/* A piece: the values [from, to) of a channel in group `group`, whose first sample is `sample`. */
typedef struct piece {
  int64_t group, sample, from, to;
} piece;

static __device__ inline piece piece_at(const cuda_norm_cut &cut, int64_t index)
{
  const int64_t g = cuda_min(cuda_quotient(&cut.by_group_pieces, index), cut.groups - 1);
  const int64_t from = (index - g * cut.group_pieces) * cut.piece;
  return {g, g * cut.group, from, cuda_min(from + cut.piece, cuda_norm_group_samples(&cut, g) * cut.places)};
}

/* Return the position of value r of channel c. */
static __device__ inline int64_t run_at(const cuda_norm_cut &cut, const piece &p, int64_t c, int64_t r)
{
  const int64_t sample = cuda_quotient(&cut.by_places, r);
  return ((p.sample + sample) * cut.channels + c) * cut.places + (r - sample * cut.places);
}
static __device__ inline int64_t column_at(const cuda_norm_cut &cut, const piece &p, int64_t c, int64_t r)
{
  return (p.sample * cut.places + r) * cut.channels + c;
}

static __device__ inline int64_t set_of(const cuda_norm_cut &cut, int64_t g, int64_t c)
{
  return g * cut.sets + cuda_quotient(&cut.by_set_channels, c);
}

/* A walk over the elements of the tensor in plain order: the current plane (sample, channel), the number of values left
 * in it, and its set. */
typedef struct plane_walk {
  int64_t sample, channel, left, set;
} plane_walk;

static __device__ inline int64_t set_at(const cuda_norm_cut &cut, int64_t sample, int64_t c)
{
  return set_of(cut, cuda_min(cuda_quotient(&cut.by_group, sample), cut.groups - 1), c);
}
static __device__ inline plane_walk plane_of(const cuda_norm_cut &cut, int64_t element)
{
  const int64_t plane = cuda_quotient(&cut.by_places, element), n = cuda_quotient(&cut.by_channels, plane),
                c = plane - n * cut.channels;
  return {n, c, (plane + 1) * cut.places - element, set_at(cut, n, c)};
}
static __device__ inline void next_plane(plane_walk *at, const cuda_norm_cut &cut)
{
  if (++at->channel == cut.channels) at->channel = 0, at->sample++;
  at->left = cut.places;
  at->set = set_at(cut, at->sample, at->channel);
}

/* The columns of block `index`: the piece and the piece's index; the thread's rows `first`, `first` + `rows` and so on;
 * and its at most W channels from `channel` on. */
typedef struct column_place {
  piece p;
  int64_t index, channel, first;
  int rows;
  bool inside;
} column_place;

template <int W> static __device__ inline column_place column_place_of(const cuda_norm_cut &cut, int64_t index)
{
  column_place at;
  at.index = cuda_quotient(&cut.by_strips, index);
  at.p = piece_at(cut, at.index);
  const int64_t strip = index - at.index * cut.strips;
  at.channel = (strip * cut.tile_columns + threadIdx.x % cut.tile_columns) * W;
  at.inside = at.channel < cut.channels;
  at.rows = CUDA_THREADS / cut.tile_columns;
  at.first = at.p.from + threadIdx.x / cut.tile_columns;
  return at;
}

/* Replaces v with the sum over all threads of the block that have the same pack of columns. All threads must call
 * it. */
template <int W, typename S> static __device__ inline void column_sums(S *v, int tile_columns)
{
  __shared__ S of_warp[CUDA_NORM_WARPS][W][CUDA_WARP];
  const int lane = threadIdx.x % CUDA_WARP, warp = threadIdx.x / CUDA_WARP, column = lane % tile_columns;
  for (int other = CUDA_WARP / 2; other >= tile_columns; other /= 2)
#pragma unroll
    for (int k = 0; k < W; k++) v[k] += __shfl_xor_sync(0xFFFFFFFFu, v[k], other);
  if (lane < tile_columns)
#pragma unroll
    for (int k = 0; k < W; k++) of_warp[warp][k][lane] = v[k];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < W; k++) {
    v[k] = 0;
    for (int w = 0; w < CUDA_NORM_WARPS; w++) v[k] += of_warp[w][k][column];
  }
  __syncthreads();
}

/* norm_channels.cu: [step] Adds of_group [groups][channels] to the outputs `out` and `out` + 1, or writes the sums,
 * group after group. Each group's contribution is rounded by itself, so results do not depend on the bounds of
 * micro-batches. */
brim_status norm_add_groups(cuda_backend *b, const brim_launch *launch, uint32_t out, const cuda_norm_cut *cut,
                            const float2 *of_group);

/* [plan] Returns how the work on x's channels is cut. It depends on the shape and the memory order of x (in[0]). */
static inline cuda_norm_cut cut_of(const brim_node *node)
{
  const brim_tensor *x = node->in[0];
  const int64_t N = x->shape.dim[0], C = x->shape.dim[1], places = brim_shape_count(&x->shape) / (N * C);
  const brim_norm_attr *attr = &node->attr.norm;
  const bool columns = places == 1 || cuda_channels_last(x); /* with one place, both orders are the same */
  const int64_t group = attr->groups > 0 ? 1 : attr->group > 0 ? attr->group : N;
  return cuda_norm_cut_of(N, C, places, group, attr->groups > 0 ? C / attr->groups : 1, columns, pack_of(x->dtype));
}
#endif
