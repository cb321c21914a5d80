/* Batch norm and group norm of [N,C,...], optionally followed by an addition, relu or both; P places follow the
 * channels. Each set has its own statistics: a group of samples and one channel (batch norm), or one sample and a group
 * of channels (group norm).
 *
 *     mean = sum of x / M      rstd = 1 / sqrt(sum of (x - mean)^2 / M + eps)     M values in a set
 *     y    = (x - mean) * rstd * weight[c] + bias[c]
 *
 * x is moved twice, y once. (The second time, much of x is still in the L2 cache if tensors have some tens of
 * megabytes.) The first of three kernels computes the moments of pieces of a channel, so that all multiprocessors have
 * work even with few channels or few samples. The second combines the moments of a set, by a warp or a block. The third
 * scales every element.
 *
 * A thread adds up its values in double precision, so the mean is right even if it is small compared with the values.
 * With each value it updates the mean and the squared differences from it (Welford 1962), relative to the piece's first
 * value, so a large mean costs no digits. The results of threads and of pieces are combined in two steps: first their
 * means, then the squares within plus the squares between them (Chan, Golub and LeVeque 1979). Pieces are combined in
 * double precision.
 *
 * In plain order, a warp or a block reads a run of a channel's values. In channels-last order, a block reads rows of a
 * strip of columns, and each thread keeps the statistics of the 4 or 8 channels that it loads at once. Pieces depend on
 * a group's shape alone, so batch norm's results do not depend on the groups of a micro-batch. */
#include "norm_channels.cuh"

/* ---- moments of pieces ---- */

/* Moments of W series of `count` values each: sums, and, relative to a shift, means and squared differences from the
 * means. */
template <int W> struct moments {
  double sum[W]; /* sums of the values themselves */
  float mean[W], squares[W], count;

  __device__ inline void clear()
  {
    count = 0;
#pragma unroll
    for (int k = 0; k < W; k++) sum[k] = 0, mean[k] = squares[k] = 0;
  }
  __device__ inline void add(const float *value, const float *shift)
  {
    count += 1;
    const float share = __fdividef(1.0f, count);
#pragma unroll
    for (int k = 0; k < W; k++) {
      const float d = value[k] - shift[k], before = d - mean[k];
      sum[k] += (double)value[k];
      mean[k] += before * share;
      squares[k] += before * (d - mean[k]);
    }
  }
};

template <typename T, int W, bool WARP>
static __global__ void __launch_bounds__(CUDA_THREADS) run_moments(piece_sums *to, const T *x, cuda_norm_cut cut)
{
  const int64_t total = cut.pieces * cut.channels;
  for (int64_t i = team_index<WARP>(); i < total; i += team_count<WARP>()) {
    const int64_t index = cuda_quotient(&cut.by_channels, i), c = i - index * cut.channels;
    const piece p = piece_at(cut, index);
    const float first = cuda_load(&x[run_at(cut, p, c, p.from)]);
    float shift[W], value[W], squares = 0;
#pragma unroll
    for (int k = 0; k < W; k++) shift[k] = first;
    moments<W> m;
    m.clear();
#pragma unroll 2
    for (int64_t r = p.from + team_lane<WARP>() * W; r < p.to; r += team_size<WARP>() * W) {
      cuda_load_values<W>(x + run_at(cut, p, c, r), value);
      m.add(value, shift);
    }
    double sum = 0;
#pragma unroll
    for (int k = 0; k < W; k++) sum += m.sum[k];
    const double mean = cuda_team_sum<!WARP>(sum) / (double)(p.to - p.from);
    const float shifted = (float)(mean - (double)first);
#pragma unroll
    for (int k = 0; k < W; k++) squares += m.squares[k] + m.count * ((m.mean[k] - shifted) * (m.mean[k] - shifted));
    squares = cuda_team_sum<!WARP>(squares);
    if (team_lane<WARP>() == 0) to[c * cut.pieces + index] = {mean, (double)squares};
  }
}

template <typename T, int W>
static __global__ void __launch_bounds__(CUDA_THREADS) column_moments(piece_sums *to, const T *x, cuda_norm_cut cut)
{
  for (int64_t i = blockIdx.x; i < cut.pieces * cut.strips; i += gridDim.x) {
    const column_place at = column_place_of<W>(cut, i);
    float shift[W] = {}, value[W];
    moments<W> m;
    m.clear();
    if (at.inside) {
      cuda_load_values<W>(x + column_at(cut, at.p, at.channel, at.p.from), shift);
#pragma unroll 2
      for (int64_t r = at.first; r < at.p.to; r += at.rows) {
        cuda_load_values<W>(x + column_at(cut, at.p, at.channel, r), value);
        m.add(value, shift);
      }
    }
    column_sums<W>(m.sum, cut.tile_columns);
#pragma unroll
    for (int k = 0; k < W; k++) {
      m.sum[k] /= (double)(at.p.to - at.p.from);
      const float mean = (float)(m.sum[k] - (double)shift[k]);
      m.squares[k] += m.count * ((m.mean[k] - mean) * (m.mean[k] - mean));
    }
    column_sums<W>(m.squares, cut.tile_columns);
    if (!at.inside || at.first != at.p.from) continue;
#pragma unroll
    for (int k = 0; k < W; k++) to[(at.channel + k) * cut.pieces + at.index] = {m.sum[k], (double)m.squares[k]};
  }
}

/* ---- sets ---- */

typedef struct set_outputs {
  float *mean, *rstd;
  float2 *of_group; /* batch norm: mean and unbiased variance of each set; else NULL */
  double eps;
} set_outputs;

/* Combines pieces [begin, end) of each channel of a set. Each set has a warp, or a block if sets have many pieces.
 * There may be few sets, so a thread issues several loads at once. It divides only if sets have several channels. */
template <bool WARP>
static __global__ void __launch_bounds__(CUDA_THREADS)
    combine_moments(set_outputs out, const piece_sums *sums, cuda_norm_cut cut)
{
  const int64_t sets = cut.sets, total = cut.groups * sets;
  for (int64_t set = team_index<WARP>(); set < total; set += team_count<WARP>()) {
    const int64_t g = set / sets, channel = (set - g * sets) * cut.set_channels;
    const int64_t length = cuda_norm_group_samples(&cut, g) * cut.places, begin = g * cut.group_pieces;
    const int64_t pieces = cuda_norm_pieces_of_group(&cut, g), parts = pieces * cut.set_channels;
    const double values = (double)length * (double)cut.set_channels;
    const piece_sums *from = sums + channel * cut.pieces + begin;
    double sum = 0, squares = 0;
#pragma unroll 4
    for (int64_t i = team_lane<WARP>(); i < parts; i += team_size<WARP>()) {
      const int64_t c = cut.set_channels > 1 ? i / pieces : 0, p = i - c * pieces;
      sum += from[c * cut.pieces + p].first * (double)cuda_min(cut.piece, length - p * cut.piece);
    }
    const double mean = cuda_team_sum<!WARP>(sum) / values;
#pragma unroll 4
    for (int64_t i = team_lane<WARP>(); i < parts; i += team_size<WARP>()) {
      const int64_t c = cut.set_channels > 1 ? i / pieces : 0, p = i - c * pieces;
      const piece_sums s = from[c * cut.pieces + p];
      squares += s.second + (double)cuda_min(cut.piece, length - p * cut.piece) * ((s.first - mean) * (s.first - mean));
    }
    const double variance = cuda_team_sum<!WARP>(squares) / values;
    if (team_lane<WARP>() != 0) continue;
    out.mean[set] = (float)mean;
    out.rstd[set] = (float)(1 / sqrt(variance + out.eps));
    if (out.of_group)
      out.of_group[set] = {(float)mean, (float)(values > 1 ? variance * values / (values - 1) : variance)};
  }
}

/* A block has 32 channels: all threads load GROUPS groups, then the first warp adds them in order. GROUPS is large,
 * because group norm has as many groups as samples and often only 32 or 64 channels, so few blocks hide the latency. */
enum { GROUPS = 128 };

/* The two outputs, and whether each one is added to. */
typedef struct norm_sums {
  float *at[2];
  bool adds[2];
} norm_sums;

static __global__ void __launch_bounds__(CUDA_THREADS)
    add_groups(norm_sums to, const float2 *of_group, int64_t groups, int64_t channels)
{
  __shared__ float2 tile[GROUPS][CUDA_WARP];
  const int lane = threadIdx.x % CUDA_WARP, warp = threadIdx.x / CUDA_WARP;
  const int64_t c = (int64_t)blockIdx.x * CUDA_WARP + lane;
  const bool adds = warp == 0 && c < channels;
  float a = adds && to.adds[0] ? to.at[0][c] : 0.0f, b = adds && to.adds[1] ? to.at[1][c] : 0.0f;
  for (int64_t g = 0; g < groups; g += GROUPS) {
    const int rows = (int)cuda_min(GROUPS, groups - g);
#pragma unroll 8
    for (int r = warp; r < rows && c < channels; r += CUDA_NORM_WARPS) tile[r][lane] = of_group[(g + r) * channels + c];
    __syncthreads();
#pragma unroll 8
    for (int r = 0; adds && r < rows; r++) {
      a += tile[r][lane].x;
      b += tile[r][lane].y;
    }
    __syncthreads();
  }
  if (!adds) return;
  to.at[0][c] = a;
  to.at[1][c] = b;
}

brim_status norm_add_groups(cuda_backend *b, const brim_launch *launch, uint32_t out, const cuda_norm_cut *cut,
                            const float2 *of_group)
{
  norm_sums to = {};
  for (uint32_t i = 0; i < 2; i++) {
    to.at[i] = (float *)launch->out[out + i];
    to.adds[i] = cuda_adds_to(b, launch, out + i);
  }
  return cuda_launch(b, add_groups, cuda_rows(cuda_divide_up(cut->channels, CUDA_WARP), CUDA_THREADS), to, of_group,
                     cut->groups, cut->channels);
}

/* ---- scaling ---- */

typedef struct scaling {
  const float *mean, *deviation, *weight, *bias; /* mean and deviation of sets; weight and bias of channels */
  float eps;                                     /* running averages: rstd is 1 / sqrt(deviation + eps) */
  bool running, relu;
  const void *a; /* added before relu, in the order of x; or NULL */
} scaling;

typedef struct line {
  float mean, factor, bias;
} line;

static __device__ inline line line_of(const scaling &s, int64_t set, int64_t c)
{
  const float deviation = s.deviation[set];
  const float rstd = s.running ? 1.0f / sqrtf(deviation + s.eps) : deviation;
  return {s.mean[set], rstd * s.weight[c], s.bias[c]};
}

static __device__ inline float on_line(const line &l, float x)
{
  return norm_result(x, l.mean, l.factor, l.bias);
}

/* Applies the operations after the norm to W values, of which `count` exist. The norm's result is rounded as if it were
 * stored. */
template <int W, typename T>
static __device__ inline void end_values(const scaling &s, float *v, int64_t place, int count)
{
  if (s.a) {
    float a[W] = {};
    load_some<W>(a, static_cast<const T *>(s.a) + place, count);
#pragma unroll
    for (int k = 0; k < W; k++) v[k] = rounded<T>(v[k]) + a[k];
  }
  if (s.relu)
#pragma unroll
    for (int k = 0; k < W; k++) v[k] = rectified<T>(v[k]);
}

/* Runs: a thread has packs of the whole tensor. The values of a pack may lie in several planes (sample, channel). */
template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS, 1) scale_runs(T *y, const T *x, scaling s, cuda_norm_cut cut)
{
  constexpr int W = cuda_pack<T>::count;
  const int64_t count = cut.samples * cut.channels * cut.places;
  for (int64_t i = cuda_first() * W; i < count; i += cuda_step_width() * W) {
    const int here = (int)cuda_min(W, count - i);
    float v[W] = {};
    load_some<W>(v, x + i, here);
    plane_walk at = plane_of(cut, i);
    line l = line_of(s, at.set, at.channel);
#pragma unroll
    for (int k = 0; k < W; k++) {
      if (at.left == 0 && k < here) {
        next_plane(&at, cut);
        l = line_of(s, at.set, at.channel);
      }
      at.left--;
      v[k] = on_line(l, v[k]);
    }
    end_values<W, T>(s, v, i, here);
    store_some<W>(y + i, v, here);
  }
}

template <typename T, int W>
static __global__ void __launch_bounds__(CUDA_THREADS) scale_columns(T *y, const T *x, scaling s, cuda_norm_cut cut)
{
  for (int64_t i = blockIdx.x; i < cut.pieces * cut.strips; i += gridDim.x) {
    const column_place at = column_place_of<W>(cut, i);
    if (!at.inside) continue;
    line l[W];
#pragma unroll
    for (int k = 0; k < W; k++) l[k] = line_of(s, set_of(cut, at.p.group, at.channel + k), at.channel + k);
#pragma unroll 2
    for (int64_t r = at.first; r < at.p.to; r += at.rows) {
      const int64_t place = column_at(cut, at.p, at.channel, r);
      float v[W];
      cuda_load_values<W>(x + place, v);
#pragma unroll
      for (int k = 0; k < W; k++) v[k] = on_line(l[k], v[k]);
      end_values<W, T>(s, v, place, W);
      cuda_store_values<W>(y + place, v);
    }
  }
}

/* ---- operations ---- */

template <typename T>
static brim_status launch_moments(cuda_backend *b, piece_sums *to, const T *x, const cuda_norm_cut *cut)
{
  const cuda_geometry g = cuda_norm_pieces(cut);
  CUDA_WITH_WIDTH(cut->wide, T, W, {
    if (cut->columns) return cuda_launch(b, column_moments<T, W>, g, to, x, *cut);
    if (cut->warp) return cuda_launch(b, run_moments<T, W, true>, g, to, x, *cut);
    return cuda_launch(b, run_moments<T, W, false>, g, to, x, *cut);
  });
}

template <typename T>
static brim_status launch_scale(cuda_backend *b, T *y, const T *x, const scaling &s, const cuda_norm_cut *cut)
{
  const int64_t count = cut->samples * cut->channels * cut->places;
  if (!cut->columns)
    return cuda_launch(b, scale_runs<T>, cuda_stride(count, cuda_pack<T>::count, b->processors), y, x, s, *cut);
  CUDA_WITH_WIDTH(cut->wide, T, W, return cuda_launch(b, scale_columns<T, W>, cuda_norm_pieces(cut), y, x, s, *cut));
}

/* Returns the cut for the statistics. In plain order, the channels of a group norm's set are contiguous, and count as
 * one run. */
static cuda_norm_cut moments_cut(const brim_node *node)
{
  const cuda_norm_cut c = cut_of(node);
  if (c.set_channels == 1 || (c.columns && c.places > 1)) return c;
  return cuda_norm_cut_of(c.samples, c.channels / c.set_channels, c.places * c.set_channels, c.group, 1, false,
                          pack_of(node->in[0]->dtype));
}

static uint64_t sums_bytes(const cuda_norm_cut *cut)
{
  return (uint64_t)(cut->channels * cut->pieces) * sizeof(piece_sums);
}

static CUDA_PREPARE(norm_prepare)
{
  BRIM_TRY(cuda_follow_prepare(self, program, node, need, state));
  const cuda_norm_cut cut = moments_cut(node);
  need->workspace_bytes = sums_bytes(&cut);
  if (node->attr.norm.groups == 0) need->workspace_bytes += (uint64_t)(cut.groups * cut.channels) * sizeof(float2);
  need->overwrites = 1;
  return BRIM_OK;
}

/* Requests scratch for the operand of the sum in the order of x. It follows the norm's other scratch. */
static void prepare_sum(const brim_node *node, brim_kernel_need *need)
{
  const uint64_t bytes = cuda_ordered_bytes(node->in[node->in_count - 1], cuda_channels_last(node->in[0]));
  if (bytes > 0) need->no_inplace = 1; /* an operand in another order may not be overwritten */
  if (bytes > need->workspace_bytes) need->workspace_bytes = bytes;
}

static CUDA_PREPARE(norm_add_prepare)
{
  BRIM_TRY(norm_prepare(self, program, node, need, state));
  prepare_sum(node, need);
  return BRIM_OK;
}

static CUDA_PREPARE(inference_add_prepare)
{
  BRIM_TRY(cuda_follow_prepare(self, program, node, need, state));
  prepare_sum(node, need);
  return BRIM_OK;
}

static brim_status find_statistics(cuda_backend *b, const brim_launch *launch)
{
  const brim_node *node = launch->node;
  const cuda_norm_cut cut = moments_cut(node);
  const bool batch = node->attr.norm.groups == 0;
  piece_sums *sums = (piece_sums *)launch->workspace;
  float2 *of_group = batch ? (float2 *)((char *)launch->workspace + sums_bytes(&cut)) : NULL;
  const set_outputs out = {(float *)launch->out[1], (float *)launch->out[2], of_group, node->attr.norm.eps};
  CUDA_WITH_TYPE(node->in[0]->dtype, T, BRIM_TRY(launch_moments(b, sums, (const T *)launch->in[0], &cut)));
  const int64_t sets = cut.groups * cut.sets;
  const bool warp = cuda_norm_is_for_warp(cut.group_pieces * cut.set_channels);
  BRIM_TRY(cuda_launch(b, warp ? combine_moments<true> : combine_moments<false>, cuda_norm_teams(sets, warp), out, sums,
                       cut));
  if (!batch) return BRIM_OK;
  return norm_add_groups(b, launch, 3, &cut, of_group);
}

/* The operations that follow a norm. */
enum ending { END_NONE, END_RELU, END_ADD, END_ADD_RELU };

static brim_status scale(cuda_backend *b, const brim_launch *launch, scaling s, enum ending end)
{
  const brim_node *node = launch->node;
  const uint32_t last = node->in_count - 1;
  const cuda_norm_cut cut = cut_of(node);
  void *scratch = launch->workspace;
  s.relu = end == END_RELU || end == END_ADD_RELU;
  if (end == END_ADD || end == END_ADD_RELU) {
    s.a = cuda_ordered(b, node->in[last], launch->in[last], cuda_channels_last(node->in[0]), &scratch);
    if (!s.a) return BRIM_EDEVICE;
  }
  CUDA_WITH_TYPE(node->in[0]->dtype, T, return launch_scale(b, (T *)launch->out[0], (const T *)launch->in[0], s, &cut));
}

static brim_status run_norm(cuda_backend *b, const brim_launch *launch, enum ending end)
{
  BRIM_TRY(find_statistics(b, launch));
  scaling s = {};
  s.mean = (const float *)launch->out[1];
  s.deviation = (const float *)launch->out[2];
  s.weight = (const float *)launch->in[1];
  s.bias = (const float *)launch->in[2];
  return scale(b, launch, s, end);
}

/* Uses the running averages: each channel is a set with the values of all samples. */
static brim_status run_inference(cuda_backend *b, const brim_launch *launch, enum ending end)
{
  scaling s = {};
  s.mean = (const float *)launch->in[3];
  s.deviation = (const float *)launch->in[4];
  s.weight = (const float *)launch->in[1];
  s.bias = (const float *)launch->in[2];
  s.eps = (float)launch->node->attr.norm.eps;
  s.running = true;
  return scale(b, launch, s, end);
}

#define NORM(id, its_op, its_prepare, its_run, its_ending)                                                             \
  static CUDA_RUN(id##_run)                                                                                            \
  {                                                                                                                    \
    return its_run((cuda_backend *)self, launch, its_ending);                                                          \
  }                                                                                                                    \
  BRIM_KERNEL(id) = {.op = its_op, .prepare = its_prepare, .run = id##_run}
NORM(batch_norm, "batch_norm", norm_prepare, run_norm, END_NONE);
NORM(batch_norm_relu, "batch_norm+relu", norm_prepare, run_norm, END_RELU);
NORM(batch_norm_add, "batch_norm+add", norm_add_prepare, run_norm, END_ADD);
NORM(batch_norm_add_relu, "batch_norm+add+relu", norm_add_prepare, run_norm, END_ADD_RELU);
NORM(group_norm, "group_norm", norm_prepare, run_norm, END_NONE);
NORM(group_norm_relu, "group_norm+relu", norm_prepare, run_norm, END_RELU);
NORM(batch_norm_inference, "batch_norm_inference", cuda_follow_prepare, run_inference, END_NONE);
NORM(batch_norm_inference_relu, "batch_norm_inference+relu", cuda_follow_prepare, run_inference, END_RELU);
NORM(batch_norm_inference_add, "batch_norm_inference+add", inference_add_prepare, run_inference, END_ADD);
NORM(batch_norm_inference_add_relu, "batch_norm_inference+add+relu", inference_add_prepare, run_inference,
     END_ADD_RELU);
