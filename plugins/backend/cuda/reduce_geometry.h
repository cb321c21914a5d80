/* The geometry of sums of a tensor over some of its dimensions. */
#ifndef CUDA_REDUCE_GEOMETRY_H
#define CUDA_REDUCE_GEOMETRY_H
#include "broadcast.h"

/* A reduction of x, which has outputs * terms elements. Output o is the sum of its terms. Dimensions are in x's memory
 * order, slowest first. */
typedef struct cuda_reduction {
  int64_t outputs, terms;
  int32_t kept_rank, summed_rank;
  cuda_divider kept[BRIM_DIMS_MAX], summed[BRIM_DIMS_MAX]; /* the lengths of dimensions */
  int64_t kept_x[BRIM_DIMS_MAX], kept_y[BRIM_DIMS_MAX];    /* the strides of these dimensions in x and y */
  int64_t summed_x[BRIM_DIMS_MAX];
} cuda_reduction;

/* Describes the sum of x to the shape y, which broadcasts to x and is plain. */
static inline void cuda_reduction_init(cuda_reduction *r, const brim_shape *x, bool channels_last, const brim_shape *y)
{
  const brim_shape *const shape[2] = {y, x};
  const bool last[2] = {false, channels_last};
  cuda_walk w;
  cuda_walk_init(&w, x, channels_last, shape, last);
  r->outputs = r->terms = 1;
  r->kept_rank = r->summed_rank = 0;
  for (int32_t d = 0; d < w.rank; d++) {
    if (w.step[0][d] == 0) {
      r->terms *= w.dim[d];
      r->summed[r->summed_rank] = cuda_divider_of(w.dim[d]);
      r->summed_x[r->summed_rank++] = w.step[1][d];
    } else {
      r->outputs *= w.dim[d];
      r->kept[r->kept_rank] = cuda_divider_of(w.dim[d]);
      r->kept_x[r->kept_rank] = w.step[1][d];
      r->kept_y[r->kept_rank++] = w.step[0][d];
    }
  }
}

/* Returns whether every output has a single term, so that y is a copy of x. */
static inline bool cuda_reduction_is_copy(const cuda_reduction *r)
{
  return r->terms == 1 && (r->kept_rank == 0 || (r->kept_rank == 1 && r->kept_x[0] == 1 && r->kept_y[0] == 1));
}

/* The threads that add up an output's terms. */
enum cuda_reduction_by {
  CUDA_BY_LANES,  /* some lanes of a warp: a few contiguous terms */
  CUDA_BY_BLOCK,  /* a block: many contiguous terms */
  CUDA_BY_COLUMNS /* several threads per output; a block has `lanes` neighbouring outputs */
};
typedef struct cuda_reduction_plan {
  enum cuda_reduction_by by;
  int vector; /* terms that are loaded at a time */
  int lanes;  /* lanes per output, or outputs of a block (CUDA_BY_COLUMNS): a power of 2, at most 32 */
  /* Parts of an output's terms, one for each block; if there are several, a second kernel adds them up. */
  int64_t splits;
  int64_t segment; /* terms of each part except the last; a multiple of `vector` */
} cuda_reduction_plan;

#define CUDA_TERMS_PER_THREAD 64 /* terms of a part, for each thread */

/* Returns whether the last summed dimension consists of whole vectors, at any start. */
static inline bool cuda_reduction_in_vectors(const cuda_reduction *r, int vector)
{
  const int32_t last = r->summed_rank - 1;
  bool good = last >= 0 && r->summed_x[last] == 1 && r->summed[last].by % vector == 0;
  for (int32_t d = 0; d < last; d++) good = good && r->summed_x[d] % vector == 0;
  for (int32_t d = 0; d < r->kept_rank; d++) good = good && r->kept_x[d] % vector == 0;
  return good;
}

static inline int cuda_power_of_2_from(int64_t count, int most)
{
  int power = 1;
  while (power < count && power < most) power *= 2;
  return power;
}

/* Plans a reduction. `vector`: the contiguous values that a thread can load at a time. The plan depends on the terms of
 * an output, never on the number of outputs, so a sample is summed in the same way in any micro-batch. */
static inline cuda_reduction_plan cuda_reduction_plan_of(const cuda_reduction *r, int vector)
{
  const bool along = r->summed_rank > 0 && r->summed_x[r->summed_rank - 1] == 1;
  cuda_reduction_plan p = {CUDA_BY_LANES, 1, 1, 1, r->terms};
  if (r->terms == 1) return p;
  if (!along) {
    p.by = CUDA_BY_COLUMNS;
    p.lanes = cuda_power_of_2_from(r->kept[r->kept_rank - 1].by, CUDA_WARP);
    p.segment = (int64_t)CUDA_THREADS / p.lanes * CUDA_TERMS_PER_THREAD;
  } else {
    if (cuda_reduction_in_vectors(r, vector)) p.vector = vector;
    const int64_t loads = r->terms / p.vector;
    p.lanes = cuda_power_of_2_from(loads, CUDA_WARP);
    if (loads <= CUDA_WARP * 8) return p;
    p.by = CUDA_BY_BLOCK;
    p.segment = (int64_t)CUDA_THREADS * CUDA_TERMS_PER_THREAD;
  }
  p.splits = cuda_divide_up(r->terms, p.segment);
  return p;
}
#endif
