/* The gradients of batch norm and group norm; see norm_channels.cu for sets and pieces. With h = (x - mean) * rstd, g =
 * dy * weight[c], and M values in a set:
 *
 *     dx          = rstd * (g - mean of g - h * mean of g*h)       means over the set
 *     dweight[c] += sum of dy * h,   dbias[c] += sum of dy         over each group of samples, in their order
 *
 * x and dy are moved twice, dx once. The gradients follow from each channel's sums of dy and of dy * (x - mean). These
 * are first computed for pieces. A warp or a block adds up the pieces of a channel in a group, in double precision, and
 * another kernel adds up the channels of a set if there are several. Then an element needs four numbers of its set and
 * channel:
 *
 *     dx = rstd * (weight * dy - shift - slope * (x - mean))
 *          shift = mean of g     slope = rstd^2 * mean of g * (x - mean)
 *
 * dx may overwrite dy: a thread reads an element before it writes it.
 *
 * If relu follows the norm, dy counts as 0 where the result is at most 0. Both passes compute the result again from x.
 * If an addition comes before the relu, the stored result decides instead: the first pass reads it and writes the
 * masked dy, which is the gradient of the other operand; the second pass reads the masked dy. */
#include "norm_channels.cuh"

/* ---- sums of pieces ---- */

/* The test for the values of dy that count. */
enum masking { MASK_NONE, MASK_BY_X, MASK_BY_RESULT };

/* Mean and rstd of each set; weight and bias of each channel. */
typedef struct channel_values {
  const float *mean, *rstd, *weight, *bias; /* bias: used by MASK_BY_X */
} channel_values;

template <typename T> struct gradient_inputs {
  const T *x, *dy, *result; /* result, masked: used by MASK_BY_RESULT */
  T *masked;
  channel_values of;
};

/* The gradient of relu. y: the argument or the result of relu. */
template <typename T> static __device__ inline float masked(float y, float dy)
{
  return cuda_activation_gradient({CUDA_RELU, 0}, rounded<T>(y), dy);
}

/* The numbers of a channel in a set that its mask needs. */
typedef struct mask_line {
  float mean, factor, bias;
} mask_line;

template <enum masking MASK>
static __device__ inline mask_line mask_line_of(const channel_values &of, int64_t set, int64_t c)
{
  if constexpr (MASK == MASK_BY_X) return {of.mean[set], of.rstd[set] * of.weight[c], of.bias[c]};
  return {of.mean[set], 0, 0};
}

/* Loads W values of x, and W values of dy with 0 for those that do not count. MASK_BY_RESULT also writes the latter.
 * line: the mask of each value, or of all values if LINES is 1. */
template <enum masking MASK, int W, int LINES, typename T>
static __device__ inline void load_masked(const gradient_inputs<T> &in, int64_t at, const mask_line *line, float *x,
                                          float *dy)
{
  cuda_load_values<W>(in.x + at, x);
  cuda_load_values<W>(in.dy + at, dy);
  if constexpr (MASK == MASK_BY_X) {
#pragma unroll
    for (int k = 0; k < W; k++) {
      const mask_line &l = line[LINES == 1 ? 0 : k];
      dy[k] = masked<T>(norm_result(x[k], l.mean, l.factor, l.bias), dy[k]);
    }
  }
  if constexpr (MASK == MASK_BY_RESULT) {
    float y[W];
    cuda_load_values<W>(in.result + at, y);
#pragma unroll
    for (int k = 0; k < W; k++) dy[k] = masked<T>(y[k], dy[k]);
    cuda_store_values<W>(in.masked + at, dy);
  }
}

template <typename T, int W, bool WARP, enum masking MASK>
static __global__ void __launch_bounds__(CUDA_THREADS)
    run_products(piece_sums *to, gradient_inputs<T> in, cuda_norm_cut cut)
{
  const int64_t total = cut.pieces * cut.channels;
  for (int64_t i = team_index<WARP>(); i < total; i += team_count<WARP>()) {
    const int64_t index = cuda_quotient(&cut.by_channels, i), c = i - index * cut.channels;
    const piece p = piece_at(cut, index);
    const mask_line line = mask_line_of<MASK>(in.of, set_of(cut, p.group, c), c);
    float sum = 0, product = 0;
#pragma unroll 2
    for (int64_t r = p.from + team_lane<WARP>() * W; r < p.to; r += team_size<WARP>() * W) {
      float x[W], dy[W];
      load_masked<MASK, W, 1>(in, run_at(cut, p, c, r), &line, x, dy);
#pragma unroll
      for (int k = 0; k < W; k++) {
        sum += dy[k];
        product += dy[k] * (x[k] - line.mean);
      }
    }
    sum = cuda_team_sum<!WARP>(sum);
    product = cuda_team_sum<!WARP>(product);
    if (team_lane<WARP>() == 0) to[c * cut.pieces + index] = {(double)sum, (double)product};
  }
}

template <typename T, int W, enum masking MASK>
static __global__ void __launch_bounds__(CUDA_THREADS)
    column_products(piece_sums *to, gradient_inputs<T> in, cuda_norm_cut cut)
{
  for (int64_t i = blockIdx.x; i < cut.pieces * cut.strips; i += gridDim.x) {
    const column_place at = column_place_of<W>(cut, i);
    mask_line line[W];
    float sum[W] = {}, product[W] = {};
    if (at.inside) {
#pragma unroll
      for (int k = 0; k < W; k++)
        line[k] = mask_line_of<MASK>(in.of, set_of(cut, at.p.group, at.channel + k), at.channel + k);
#pragma unroll 2
      for (int64_t r = at.first; r < at.p.to; r += at.rows) {
        float x[W], dy[W];
        load_masked<MASK, W, W>(in, column_at(cut, at.p, at.channel, r), line, x, dy);
#pragma unroll
        for (int k = 0; k < W; k++) {
          sum[k] += dy[k];
          product[k] += dy[k] * (x[k] - line[k].mean);
        }
      }
    }
    column_sums<W>(sum, cut.tile_columns);
    column_sums<W>(product, cut.tile_columns);
    if (!at.inside || at.first != at.p.from) continue;
#pragma unroll
    for (int k = 0; k < W; k++) to[(at.channel + k) * cut.pieces + at.index] = {(double)sum[k], (double)product[k]};
  }
}

/* ---- sets ---- */

typedef struct gradient_sets {
  const float *rstd, *weight;
  float2 *of_set;         /* shift and slope of each set */
  float2 *of_group;       /* [groups][channels]: contributions to dweight and dbias */
  piece_sums *of_channel; /* [groups][channels], if sets have several channels */
} gradient_sets;

/* Computes shift and slope from a set's sums of g and of g * (x - mean). */
static __device__ inline float2 slopes_of(const cuda_norm_cut &cut, int64_t g, double rstd, double first, double second)
{
  const double values = (double)(cuda_norm_group_samples(&cut, g) * cut.places) * (double)cut.set_channels;
  return {(float)(first / values), (float)(second / values * rstd * rstd)};
}

/* Each channel of a group has a warp, or a block if it has many pieces. */
template <bool WARP>
static __global__ void __launch_bounds__(CUDA_THREADS)
    combine_products(gradient_sets out, const piece_sums *sums, cuda_norm_cut cut)
{
  const int64_t total = cut.groups * cut.channels;
  for (int64_t i = team_index<WARP>(); i < total; i += team_count<WARP>()) {
    const int64_t g = cuda_quotient(&cut.by_channels, i), c = i - g * cut.channels;
    const int64_t pieces = cuda_norm_pieces_of_group(&cut, g);
    const piece_sums *from = sums + c * cut.pieces + g * cut.group_pieces;
    double sum = 0, product = 0;
#pragma unroll 4
    for (int64_t p = team_lane<WARP>(); p < pieces; p += team_size<WARP>()) {
      sum += from[p].first;
      product += from[p].second;
    }
    sum = cuda_team_sum<!WARP>(sum);
    product = cuda_team_sum<!WARP>(product);
    if (team_lane<WARP>() != 0) continue;
    const int64_t set = set_of(cut, g, c);
    const double rstd = (double)out.rstd[set], weight = (double)out.weight[c];
    out.of_group[i] = {(float)(product * rstd), (float)sum};
    if (out.of_channel)
      out.of_channel[i] = {weight * sum, weight * product};
    else
      out.of_set[set] = slopes_of(cut, g, rstd, weight * sum, weight * product);
  }
}

/* Each set has a warp. */
static __global__ void __launch_bounds__(CUDA_THREADS) combine_channels(gradient_sets out, cuda_norm_cut cut)
{
  const int64_t sets = cut.sets, total = cut.groups * sets;
  for (int64_t set = team_index<true>(); set < total; set += team_count<true>()) {
    const int64_t g = set / sets;
    const piece_sums *from = out.of_channel + g * cut.channels + (set - g * sets) * cut.set_channels;
    double sum = 0, product = 0;
    for (int64_t c = team_lane<true>(); c < cut.set_channels; c += CUDA_WARP) {
      sum += from[c].first;
      product += from[c].second;
    }
    sum = cuda_warp_sum(sum);
    product = cuda_warp_sum(product);
    if (team_lane<true>() == 0) out.of_set[set] = slopes_of(cut, g, (double)out.rstd[set], sum, product);
  }
}

/* ---- dx ---- */

template <typename T> struct scaling_grad {
  const T *x, *dy; /* MASK_BY_RESULT: dy is already masked */
  T *dx;
  channel_values of;
  const float2 *of_set;
};

typedef struct line {
  float mean, rstd, weight, bias, shift, slope;
} line;

template <enum masking MASK, typename T>
static __device__ inline line line_of(const scaling_grad<T> &s, int64_t set, int64_t c)
{
  const float2 of_set = s.of_set[set];
  return {s.of.mean[set], s.of.rstd[set], s.of.weight[c], MASK == MASK_BY_X ? s.of.bias[c] : 0, of_set.x, of_set.y};
}

/* The product is rounded by itself, without a fused multiply-add: if all g of a set are equal, or there is only one,
 * their mean has this rounding too, and the two must cancel. */
template <typename T, enum masking MASK> static __device__ inline float on_line(const line &l, float x, float dy)
{
  if constexpr (MASK == MASK_BY_X) dy = masked<T>(norm_result(x, l.mean, l.rstd * l.weight, l.bias), dy);
  return l.rstd * (__fmul_rn(l.weight, dy) - l.shift - l.slope * (x - l.mean));
}

/* Runs: a thread has packs of the whole tensor. The values of a pack may lie in several planes (sample, channel). */
template <typename T, enum masking MASK>
static __global__ void __launch_bounds__(CUDA_THREADS) scale_runs_grad(scaling_grad<T> s, cuda_norm_cut cut)
{
  constexpr int W = cuda_pack<T>::count;
  const int64_t count = cut.samples * cut.channels * cut.places;
  for (int64_t i = cuda_first() * W; i < count; i += cuda_step_width() * W) {
    const int here = (int)cuda_min(W, count - i);
    float x[W] = {}, dy[W] = {};
    load_some<W>(x, s.x + i, here);
    load_some<W>(dy, s.dy + i, here);
    plane_walk at = plane_of(cut, i);
    line l = line_of<MASK>(s, at.set, at.channel);
#pragma unroll
    for (int k = 0; k < W; k++) {
      if (at.left == 0 && k < here) {
        next_plane(&at, cut);
        l = line_of<MASK>(s, at.set, at.channel);
      }
      at.left--;
      dy[k] = on_line<T, MASK>(l, x[k], dy[k]);
    }
    store_some<W>(s.dx + i, dy, here);
  }
}

template <typename T, int W, enum masking MASK>
static __global__ void __launch_bounds__(CUDA_THREADS) scale_columns_grad(scaling_grad<T> s, cuda_norm_cut cut)
{
  for (int64_t i = blockIdx.x; i < cut.pieces * cut.strips; i += gridDim.x) {
    const column_place at = column_place_of<W>(cut, i);
    if (!at.inside) continue;
    line l[W];
#pragma unroll
    for (int k = 0; k < W; k++) l[k] = line_of<MASK>(s, set_of(cut, at.p.group, at.channel + k), at.channel + k);
    for (int64_t r = at.first; r < at.p.to; r += at.rows) {
      const int64_t place = column_at(cut, at.p, at.channel, r);
      float x[W], dy[W];
      cuda_load_values<W>(s.x + place, x);
      cuda_load_values<W>(s.dy + place, dy);
#pragma unroll
      for (int k = 0; k < W; k++) dy[k] = on_line<T, MASK>(l[k], x[k], dy[k]);
      cuda_store_values<W>(s.dx + place, dy);
    }
  }
}

/* ---- operations ---- */

/* The parts of the scratch, in this order. */
typedef struct gradient_scratch {
  piece_sums *sums, *of_channel;
  float2 *of_group, *of_set;
} gradient_scratch;

/* Returns the bytes of the scratch, and sets the addresses from `at` on. */
static uint64_t lay_out(gradient_scratch *s, char *at, const cuda_norm_cut *cut)
{
  const uint64_t channels = (uint64_t)(cut->groups * cut->channels), sums = (uint64_t)(cut->channels * cut->pieces);
  const uint64_t several = cut->set_channels > 1 ? channels : 0;
  s->sums = (piece_sums *)at;
  s->of_channel = several ? s->sums + sums : NULL;
  s->of_group = (float2 *)(s->sums + sums + several);
  s->of_set = s->of_group + channels;
  return (sums + several) * sizeof(piece_sums) + (channels + (uint64_t)(cut->groups * cut->sets)) * sizeof(float2);
}

template <enum masking MASK, typename T>
static brim_status launch_products(cuda_backend *b, piece_sums *to, const gradient_inputs<T> &in,
                                   const cuda_norm_cut *cut)
{
  const cuda_geometry g = cuda_norm_pieces(cut);
  CUDA_WITH_WIDTH(cut->wide, T, W, {
    if (cut->columns) return cuda_launch(b, column_products<T, W, MASK>, g, to, in, *cut);
    if (cut->warp) return cuda_launch(b, run_products<T, W, true, MASK>, g, to, in, *cut);
    return cuda_launch(b, run_products<T, W, false, MASK>, g, to, in, *cut);
  });
}

template <enum masking MASK, typename T>
static brim_status launch_scale(cuda_backend *b, const scaling_grad<T> &s, const cuda_norm_cut *cut)
{
  const int64_t count = cut->samples * cut->channels * cut->places;
  if (!cut->columns)
    return cuda_launch(b, scale_runs_grad<T, MASK>, cuda_stride(count, cuda_pack<T>::count, b->processors), s, *cut);
  CUDA_WITH_WIDTH(cut->wide, T, W,
                  return cuda_launch(b, scale_columns_grad<T, W, MASK>, cuda_norm_pieces(cut), s, *cut));
}

/* The indices of an operation's tensors. x is in[0] and weight in[1]; bias is in[2] if the kernel needs it. */
typedef struct places {
  uint32_t mean, rstd, dy, result, dx, dweight; /* dbias follows dweight */
} places;

static brim_status combine(cuda_backend *b, const brim_launch *launch, const places &at, const channel_values &of,
                           const gradient_scratch *scratch, const cuda_norm_cut *cut)
{
  const gradient_sets sets = {of.rstd, of.weight, scratch->of_set, scratch->of_group, scratch->of_channel};
  const bool warp = cuda_norm_is_for_warp(cut->group_pieces);
  BRIM_TRY(cuda_launch(b, warp ? combine_products<true> : combine_products<false>,
                       cuda_norm_teams(cut->groups * cut->channels, warp), sets, scratch->sums, *cut));
  if (cut->set_channels > 1)
    BRIM_TRY(cuda_launch(b, combine_channels, cuda_norm_teams(cut->groups * cut->sets, true), sets, *cut));
  return norm_add_groups(b, launch, at.dweight, cut, scratch->of_group);
}

template <enum masking MASK, typename T>
static brim_status run(cuda_backend *b, const brim_launch *launch, const places &at)
{
  const cuda_norm_cut cut = cut_of(launch->node);
  const channel_values of = {(const float *)launch->in[at.mean], (const float *)launch->in[at.rstd],
                             (const float *)launch->in[1], (const float *)launch->in[2]};
  gradient_inputs<T> in = {(const T *)launch->in[0], (const T *)cuda_same_order_input(b, launch, at.dy), nullptr,
                           nullptr, of};
  if (!in.dy) return BRIM_EDEVICE;
  if constexpr (MASK == MASK_BY_RESULT) {
    in.result = (const T *)cuda_same_order_input(b, launch, at.result);
    in.masked = (T *)launch->out[0];
    if (!in.result) return BRIM_EDEVICE;
  }
  gradient_scratch scratch;
  lay_out(&scratch, (char *)cuda_scratch_end(launch, false), &cut);
  BRIM_TRY(launch_products<MASK>(b, scratch.sums, in, &cut));
  BRIM_TRY(combine(b, launch, at, of, &scratch, &cut));
  const T *dy = MASK == MASK_BY_RESULT ? in.masked : in.dy;
  const scaling_grad<T> s = {in.x, dy, (T *)launch->out[at.dx], of, scratch.of_set};
  constexpr enum masking LEFT = MASK == MASK_BY_X ? MASK_BY_X : MASK_NONE;
  return launch_scale<LEFT>(b, s, &cut);
}

static CUDA_PREPARE(grad_prepare)
{
  BRIM_TRY(cuda_same_order_prepare(self, program, node, need, state));
  const cuda_norm_cut cut = cut_of(node);
  gradient_scratch scratch;
  need->workspace_bytes += lay_out(&scratch, NULL, &cut);
  need->overwrites = 1;
  return BRIM_OK;
}

#define GRADIENT(id, its_op, its_mask, ...)                                                                            \
  static CUDA_RUN(id##_run)                                                                                            \
  {                                                                                                                    \
    const places at = {__VA_ARGS__};                                                                                   \
    CUDA_WITH_TYPE(launch->node->in[0]->dtype, T, return (run<its_mask, T>((cuda_backend *)self, launch, at)));        \
  }                                                                                                                    \
  BRIM_KERNEL(id) = {.op = its_op, .prepare = grad_prepare, .run = id##_run}
GRADIENT(batch_norm_grad, "batch_norm_grad", MASK_NONE, .mean = 2, .rstd = 3, .dy = 4, .dweight = 1);
GRADIENT(group_norm_grad, "group_norm_grad", MASK_NONE, .mean = 2, .rstd = 3, .dy = 4, .dweight = 1);
GRADIENT(batch_norm_relu_grad, "batch_norm+relu_grad", MASK_BY_X, .mean = 3, .rstd = 4, .dy = 5, .dweight = 1);
GRADIENT(batch_norm_add_relu_grad, "batch_norm+add+relu_grad", MASK_BY_RESULT, .mean = 2, .rstd = 3, .dy = 5,
         .result = 4, .dx = 1, .dweight = 2);
