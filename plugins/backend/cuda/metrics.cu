/* Metrics of classification, from logits or from ranks. The last section has the metrics of regression.
 *
 *     rank[n]     = the classes before the label: greater logits, and of equal ones earlier classes
 *     metrics[0] += sum of losses     [1] += ranks of 0, right answers     [top] += ranks below top_k
 *     metrics[2 + label*K + predicted] += 1
 *
 * The logits are read once; a warp or a block counts a row. One thread adds the losses, from tiles in shared memory, in
 * the order of the samples, to the sum of the previous micro-batches, so the sum does not depend on the micro-batch.
 * This takes some nanoseconds per loss, little compared with a model's products. All other metrics are whole numbers,
 * so any order of additions gives the same result; this includes the atomic additions of 1 to cells of the confusion
 * matrix, which are exact up to 2^53. If there are few rows, a single block does both. */
#include "loss.h"
#include "loss_geometry.h"
#include "team.cuh"

/* ---- sums ---- */

enum { TILE = 4096, ADD_THREADS = 1024 };

typedef struct sums {
  const float *loss;
  const int32_t *rank; /* without __restrict__, because answer_kernel may have written it */
  int64_t count;
  int32_t top_k;
  double *metrics;
  int64_t top; /* index of the top-k count in metrics */
} sums;

/* Adds up the rows with one block. */
static __device__ inline void add_rows(const sums &s)
{
  __shared__ float tile[TILE];
  double sum = threadIdx.x == 0 ? s.metrics[0] : 0, right = 0, among = 0;
  for (int64_t start = 0; start < s.count; start += TILE) {
    const int n = (int)cuda_min(TILE, s.count - start);
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
      const int32_t r = s.rank[start + i];
      tile[i] = s.loss[start + i];
      right += r == 0;
      among += r >= 0 && r < s.top_k;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
#pragma unroll 8
      for (int i = 0; i < n; i++) sum += (double)tile[i];
    }
    __syncthreads();
  }
  right = cuda_block_sum(right);
  among = cuda_block_sum(among);
  if (threadIdx.x > 0) return;
  s.metrics[0] = sum;
  s.metrics[1] += right;
  if (s.top_k > 0) s.metrics[s.top] += among;
}

static __global__ void __launch_bounds__(ADD_THREADS) add_kernel(sums s)
{
  add_rows(s);
}

static brim_status launch_sums(cuda_backend *b, const sums &s)
{
  const cuda_geometry g = {{1, 1, 1}, cuda_row_threads(s.count, 1, ADD_THREADS), 0};
  return cuda_launch(b, add_kernel, g, s);
}

extern "C" brim_status cuda_metrics_add(cuda_backend *b, const float *loss, const int32_t *rank, int64_t count,
                                        int32_t top_k, double *metrics, int64_t top)
{
  return launch_sums(b, {loss, rank, count, top_k, metrics, top});
}

/* ---- ranks, and answers ---- */

static __device__ inline int64_t warp_least(int64_t value)
{
#pragma unroll
  for (int lane = CUDA_WARP / 2; lane > 0; lane /= 2)
    value = cuda_min(value, (int64_t)__shfl_xor_sync(0xFFFFFFFFu, (long long)value, lane));
  return value;
}
template <bool WIDE> static __device__ inline int64_t team_least(int64_t value)
{
  if constexpr (WIDE) {
    __shared__ int64_t part[CUDA_WARP];
    const int lane = threadIdx.x % CUDA_WARP, warp = threadIdx.x / CUDA_WARP, warps = blockDim.x / CUDA_WARP;
    value = warp_least(value);
    if (lane == 0) part[warp] = value;
    __syncthreads();
    value = warp_least(part[lane < warps ? lane : 0]);
    __syncthreads();
    return value;
  } else {
    return warp_least(value);
  }
}

/* Returns the index of the team's first greatest value. Each thread passes its greatest value and the index of that. */
template <bool WIDE> static __device__ inline int64_t team_first(float best, int64_t first, int64_t count)
{
  const float greatest = cuda_team_max<WIDE>(best);
  const bool has_it = best == greatest || (best != best && greatest != greatest);
  return team_least<WIDE>(has_it ? first : count);
}

typedef struct answers {
  const void *logits;
  const int32_t *label;
  const float *share;          /* [rows, classes], instead of labels; the class with the greatest share is the label */
  int64_t rows, classes, each; /* each: rows of a sample */
  int32_t ignores, ignore_index;
  int32_t *rank;     /* -1 if the label is not a class, or is ignored */
  double *confusion; /* NULL if it is not wanted */
  uint64_t node;
  cuda_control *control;
} answers;

template <bool WIDE> static __device__ inline int32_t label_of(const cuda_team &team, const answers &p, int64_t row)
{
  if (!p.share) return p.label[row];
  float best = -INFINITY;
  int64_t first = p.classes;
  for (int64_t k = team.lane; k < p.classes; k += team.lanes) {
    const float v = p.share[row * p.classes + k];
    if (first < p.classes && !cuda_is_greater(v, best)) continue;
    best = v;
    first = k;
  }
  return (int32_t)team_first<WIDE>(best, first, p.classes);
}

template <bool WIDE, typename T> static __device__ inline void answer_rows(const answers &p)
{
  const cuda_team team = cuda_my_team<WIDE>();
  for (int64_t n = team.row; n < p.rows; n += team.step) {
    const T *row = (const T *)p.logits + n * p.classes;
    const int32_t label = label_of<WIDE>(team, p, n);
    const bool ignored = p.ignores && label == p.ignore_index;
    if (ignored || label < 0 || label >= p.classes) {
      if (team.lane == 0 && !ignored) cuda_report_label(p.control, p.node, n / p.each, label, p.classes);
      if (team.lane == 0) p.rank[n] = -1;
      continue;
    }
    const float own = cuda_load(&row[label]);
    float best = -INFINITY;
    int64_t first = p.classes; /* the class of this thread's greatest logit */
    int before = 0;
    for (int64_t k = team.lane; k < p.classes; k += team.lanes) {
      const float v = cuda_load(&row[k]);
      before += cuda_is_before(v, k, own, label);
      if (first < p.classes && !cuda_is_greater(v, best)) continue;
      best = v;
      first = k;
    }
    before = cuda_team_sum<WIDE>(before);
    if (team.lane == 0) p.rank[n] = before;
    if (!p.confusion) continue;
    const int64_t predicted = team_first<WIDE>(best, first, p.classes);
    if (team.lane == 0) atomicAdd(&p.confusion[label * p.classes + predicted], 1.0);
  }
}

template <bool WIDE, typename T>
static __global__ void __launch_bounds__(CUDA_LOSS_TEAM_THREADS(WIDE), 1) answer_kernel(answers p)
{
  answer_rows<WIDE, T>(p);
}

/* Runs as one block. */
template <typename T> static __global__ void __launch_bounds__(ADD_THREADS, 1) answer_and_add_kernel(answers p, sums s)
{
  answer_rows<false, T>(p);
  __syncthreads();
  add_rows(s);
}

template <typename T> static brim_status launch_metrics(cuda_backend *b, const answers &p, const sums &s)
{
  const cuda_geometry g = cuda_loss_teams(p.rows, p.classes, 1),
                      one = {{1, 1, 1}, (uint32_t)cuda_min(ADD_THREADS, p.rows * CUDA_WARP), 0};
  if (p.rows <= CUDA_METRICS_FEW_ROWS && !cuda_loss_is_wide(p.classes))
    return cuda_launch(b, answer_and_add_kernel<T>, one, p, s);
  if (cuda_loss_is_wide(p.classes))
    BRIM_TRY(cuda_launch(b, answer_kernel<true, T>, g, p));
  else
    BRIM_TRY(cuda_launch(b, answer_kernel<false, T>, g, p));
  return launch_sums(b, s);
}

/* ---- the operations ---- */

static CUDA_PREPARE(classification_prepare)
{
  (void)self, (void)program, (void)state;
  need->workspace_bytes = (uint64_t)brim_shape_count(&node->in[0]->shape) * sizeof(int32_t); /* ranks */
  return BRIM_OK;
}

static CUDA_RUN(classification_run)
{
  cuda_backend *b = (cuda_backend *)self;
  const brim_node *node = launch->node;
  const brim_metrics_attr *attr = &node->attr.metrics;
  double *metrics = (double *)launch->out[0];
  answers p = {};
  p.control = cuda_control_of(b, launch);
  if (!p.control) return BRIM_EDEVICE;
  p.logits = launch->in[1];
  if (node->in[2]->dtype == BRIM_DTYPE_I32)
    p.label = (const int32_t *)launch->in[2];
  else
    p.share = (const float *)launch->in[2];
  p.rows = brim_shape_count(&node->in[0]->shape);
  p.each = p.rows / node->in[0]->shape.dim[0];
  p.classes = node->in[1]->shape.dim[node->in[1]->shape.rank - 1];
  p.ignores = attr->ignores;
  p.ignore_index = attr->ignore_index;
  p.rank = (int32_t *)launch->workspace;
  p.confusion = attr->confusion ? metrics + 2 : NULL;
  p.node = (uint64_t)node;
  const sums s = {(const float *)launch->in[0],
                  p.rank,
                  p.rows,
                  attr->top_k,
                  metrics,
                  2 + (attr->confusion ? p.classes * p.classes : 0)};
  CUDA_WITH_TYPE(node->in[1]->dtype, T, return launch_metrics<T>(b, p, s));
}
BRIM_KERNEL(classification_metrics) = {
    .op = "classification_metrics", .prepare = classification_prepare, .run = classification_run};

static CUDA_RUN(rank_run)
{
  return cuda_metrics_add((cuda_backend *)self, (const float *)launch->in[0], (const int32_t *)launch->in[1],
                          brim_shape_count(&launch->node->in[0]->shape), launch->node->attr.metrics.top_k,
                          (double *)launch->out[0], 2);
}
BRIM_KERNEL(rank_metrics) = {.op = "rank_metrics", .run = rank_run};

/* ---- regression ----
 *
 *     metrics[0] += sum of losses   [1] += mean over a sample of |y - t|   [2] += mean of |y - t| / max(|t|, 1e-7)
 *     and for target k:   metrics[3 + 3k] += (y - t)^2   [4 + 3k] += t   [5 + 3k] += t^2
 *
 * Runs as one block, because a sample has only a few numbers. A warp computes a sample's means. One thread for each sum
 * adds up the samples, in their order, so that it does not depend on the micro-batch. */

typedef struct errors {
  const float *loss, *y, *t;
  int64_t samples, targets;
  bool all; /* all metrics, not only the first two */
  double *metrics;
} errors;

enum { SAMPLES = 1024 }; /* samples in a tile */
#define PERCENT_LEAST 1e-7

static __device__ inline void mean_errors(const errors &p, int64_t sample, double *error, double *share)
{
  const int lane = threadIdx.x % CUDA_WARP;
  const float *y = p.y + sample * p.targets, *t = p.t + sample * p.targets;
  double sum = 0, parts = 0;
  for (int64_t k = lane; k < p.targets; k += CUDA_WARP) {
    const double d = fabs((double)y[k] - (double)t[k]);
    sum += d;
    parts += d / fmax(fabs((double)t[k]), PERCENT_LEAST);
  }
  sum = cuda_warp_sum(sum);
  parts = cuda_warp_sum(parts);
  if (lane > 0) return;
  *error = sum / (double)p.targets;
  *share = parts / (double)p.targets;
}

static __device__ inline void add_target(const errors &p, int64_t k)
{
  double *m = p.metrics + 3 + 3 * k, squares = m[0], sum = m[1], sum_squares = m[2];
  for (int64_t n = 0; n < p.samples; n++) {
    const double t = (double)p.t[n * p.targets + k], d = (double)p.y[n * p.targets + k] - t;
    squares += d * d;
    sum += t;
    sum_squares += t * t;
  }
  m[0] = squares;
  m[1] = sum;
  m[2] = sum_squares;
}

static __global__ void __launch_bounds__(ADD_THREADS) errors_kernel(errors p)
{
  __shared__ double error[SAMPLES], share[SAMPLES];
  const int warp = threadIdx.x / CUDA_WARP, warps = blockDim.x / CUDA_WARP;
  for (int64_t start = 0; start < p.samples; start += SAMPLES) {
    const int count = (int)cuda_min(SAMPLES, p.samples - start);
    for (int i = warp; i < count; i += warps) mean_errors(p, start + i, &error[i], &share[i]);
    __syncthreads();
    if (threadIdx.x == 0)
      for (int i = 0; i < count; i++) p.metrics[0] += (double)p.loss[start + i];
    if (threadIdx.x == 1)
      for (int i = 0; i < count; i++) p.metrics[1] += error[i];
    if (threadIdx.x == 2 && p.all)
      for (int i = 0; i < count; i++) p.metrics[2] += share[i];
    __syncthreads();
  }
  for (int64_t k = threadIdx.x; p.all && k < p.targets; k += blockDim.x) add_target(p, k);
}

static CUDA_RUN(regression_run)
{
  const brim_shape *shape = &launch->node->in[1]->shape;
  const errors p = {(const float *)launch->in[0],
                    (const float *)launch->in[1],
                    (const float *)launch->in[2],
                    shape->dim[0],
                    shape->dim[1],
                    launch->node->attr.metrics.errors != 0,
                    (double *)launch->out[0]};
  const cuda_geometry g = {{1, 1, 1}, ADD_THREADS, 0};
  return cuda_launch((cuda_backend *)self, errors_kernel, g, p);
}
BRIM_KERNEL(regression_metrics) = {.op = "regression_metrics", .run = regression_run};
