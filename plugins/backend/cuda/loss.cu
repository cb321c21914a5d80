/* Softmax cross-entropy and its gradient; s: smoothing, w: weights of the classes, nll[k] = lse - logits[k]:
 *
 *     lse         = log(sum over k of exp(logits[k]))
 *     loss        = (1 - s) * w[label] * nll[label] + s/K * sum over k of w[k] * nll[k]
 *     dlogits[k]  = ((1 - s) * w[label] * (softmax[k] - (k == label))
 *                    + s/K * (softmax[k] * (sum of w) - w[k])) * loss_scale
 *
 * If labels are shares of the classes, u[k] = w[k] * ((1 - s) * share[k] + s/K):
 *
 *     loss        = sum over k of u[k] * nll[k] = lse * (sum of u) - sum of u * logits
 *     dlogits[k]  = (softmax[k] * (sum of u) - u[k]) * loss_scale
 *
 * A capped logit z = softcap * tanh(x / softcap) takes the place of x; dlogits are then times 1 - (z / softcap)^2.
 *
 * The forward pass reads the logits once: each thread keeps the greatest so far and the sum of exponentials relative to
 * it, and rescales the sum when a greater one comes. The backward pass repeats this, because lse is not kept, or
 * computes lse from the loss. Then it reads the row a second time, from a cache, and writes the gradient.
 *
 * Exponentials of the differences to the greatest are fp32. Their sum and its logarithm are double, so that a loss near
 * 0 keeps its digits. The gradient at the label is double too, because softmax - 1 would lose digits. */
#include "kernel.cuh"
#include "loss.h"
#include "loss_geometry.h"
#include "team.cuh"
#include "values.cuh"

/* ---- a row ---- */

/* Elements [head, tail) are processed P at a time from an address that is a multiple of 16; those before and after, one
 * by one. */
typedef struct span {
  int64_t head, tail;
} span;

template <typename T, int P> static __device__ inline span span_of(const T *row, int64_t count)
{
  const int64_t head = cuda_min(count, (16 - (int64_t)((uintptr_t)row % 16)) % 16 / (int64_t)sizeof(T));
  return {head, head + (count - head) / P * P};
}

/* ---- softmax ---- */

typedef struct softmax_sums {
  float greatest;
  int before; /* classes that come before the label */
  double sum; /* sum of exp(logit - greatest) */
  /* The sum of weights, and of weight * logit; used if labels are smoothed or are class probabilities. */
  double weights;
  double weighted;
} softmax_sums;

/* Returns the number to subtract in exponentials. A row whose logits so far are all -inf must not give NaN, because
 * other logits may follow. */
static __device__ inline float shift_of(float greatest)
{
  return greatest == -INFINITY ? 0 : greatest;
}

static __device__ inline float weight_of(const cuda_loss_rows &p, int64_t k)
{
  return p.weight ? p.weight[k] : 1;
}

/* Returns a logit after the soft cap; slope_of_cap() returns the derivative of such a logit z. */
static __device__ inline float capped(const cuda_loss_rows &p, float z)
{
  return p.softcap > 0 ? p.softcap * tanhf(z / p.softcap) : z;
}
template <int P> static __device__ inline void cap_all(const cuda_loss_rows &p, float (&v)[P])
{
  if (!(p.softcap > 0)) return;
#pragma unroll
  for (int i = 0; i < P; i++) v[i] = capped(p, v[i]);
}
static __device__ inline float slope_of_cap(const cuda_loss_rows &p, float z)
{
  const float part = z / p.softcap;
  return p.softcap > 0 ? (1.0f - part) * (1.0f + part) : 1.0f;
}

/* The coefficient of class k apart from the label: its weight, or u[k] for shares. share: the row's, or NULL. */
static __device__ inline double part_of(const cuda_loss_rows &p, const float *share, int64_t k)
{
  const double w = (double)weight_of(p, k);
  return share ? w * ((1 - p.smoothing) * (double)share[k] + p.smoothing / (double)p.classes) : w;
}

static __device__ inline const float *share_of(const cuda_loss_rows &p, int64_t row)
{
  return p.share ? p.share + row * p.ld : NULL;
}

/* Adds the logits from k on of a row. */
template <bool RANKED, int P>
static __device__ inline void look(softmax_sums *s, const float (&v)[P], int64_t k, const cuda_loss_rows &p,
                                   const float *share, float own, int32_t label)
{
  float greatest = s->greatest, sum = 0;
#pragma unroll
  for (int i = 0; i < P; i++) greatest = cuda_greater(v[i], greatest);
  const float shift = shift_of(greatest);
  if (greatest != s->greatest) s->sum *= (double)expf(s->greatest - shift); /* 0 for -inf, the first value */
  s->greatest = greatest;
#pragma unroll
  for (int i = 0; i < P; i++) sum += expf(v[i] - shift);
  s->sum += (double)sum;
  if (RANKED) {
#pragma unroll
    for (int i = 0; i < P; i++) s->before += cuda_is_before(v[i], k + i, own, label);
  }
  if (p.smoothing > 0 || share) {
#pragma unroll
    for (int i = 0; i < P; i++) {
      const double w = part_of(p, share, k + i);
      s->weights += w;
      s->weighted += w * (double)v[i];
    }
  }
}

/* Computes the sums of the whole row, for every thread of the team. */
template <bool WIDE, bool RANKED, typename T>
static __device__ inline softmax_sums look_at_row(const cuda_team &team, const T *row, const cuda_loss_rows &p,
                                                  const float *share, float own, int32_t label)
{
  constexpr int P = cuda_pack<T>::count;
  const span s = span_of<T, P>(row, p.classes);
  softmax_sums sums = {-INFINITY, 0, 0, 0, 0};
  for (int64_t k = team.lane; k < s.head; k += team.lanes)
    look<RANKED>(&sums, {capped(p, cuda_load(&row[k]))}, k, p, share, own, label);
  for (int64_t k = s.head + (int64_t)team.lane * P; k < s.tail; k += (int64_t)team.lanes * P) {
    float v[P];
    cuda_load_values<P>(row + k, v);
    cap_all(p, v);
    look<RANKED>(&sums, v, k, p, share, own, label);
  }
  for (int64_t k = s.tail + team.lane; k < p.classes; k += team.lanes)
    look<RANKED>(&sums, {capped(p, cuda_load(&row[k]))}, k, p, share, own, label);

  const float greatest = cuda_team_max<WIDE>(sums.greatest);
  sums.sum = cuda_team_sum<WIDE>(sums.sum * (double)expf(sums.greatest - shift_of(greatest)));
  sums.greatest = greatest;
  if (RANKED) sums.before = cuda_team_sum<WIDE>(sums.before);
  if (p.smoothing > 0 || share) {
    sums.weights = cuda_team_sum<WIDE>(sums.weights);
    sums.weighted = cuda_team_sum<WIDE>(sums.weighted);
  }
  return sums;
}

/* lse * weights - weighted. */
static __device__ inline double weighted_loss(const softmax_sums &s)
{
  return ((double)s.greatest + log(s.sum)) * s.weights - s.weighted;
}

/* Returns whether a row has a class. If not, its label is ignored, or it is wrong and this reports it. */
static __device__ inline bool has_class(const cuda_loss_rows &p, int64_t row, int32_t label, int lane)
{
  if (p.ignores && label == p.ignore_index) return false;
  if (label >= 0 && label < p.classes) return true;
  if (lane == 0) cuda_report_label(p.control, p.node, (p.first + row) / p.each, label, p.classes);
  return false;
}

/* ---- forward ---- */

/* Returns the loss of a row whose label is a class. */
static __device__ inline float loss_of(const cuda_loss_rows &p, const softmax_sums &s, float own, int32_t label)
{
  const double nll = (double)s.greatest - (double)own + log(s.sum);
  double value = (1 - p.smoothing) * (double)weight_of(p, label) * nll;
  if (p.smoothing > 0) value += p.smoothing / (double)p.classes * weighted_loss(s);
  return (float)value;
}

template <bool WIDE, bool RANKED, typename T>
static __global__ void __launch_bounds__(CUDA_LOSS_TEAM_THREADS(WIDE), 1)
    loss_kernel(cuda_loss_rows p, float *__restrict__ loss, int32_t *__restrict__ rank)
{
  const cuda_team team = cuda_my_team<WIDE>();
  for (int64_t n = team.row; n < p.rows; n += team.step) {
    const T *row = (const T *)p.logits + n * p.ld;
    if (p.share) {
      const softmax_sums s = look_at_row<WIDE, false>(team, row, p, share_of(p, n), 0, -1);
      if (team.lane == 0) loss[n] = (float)weighted_loss(s);
      continue;
    }
    const int32_t label = p.label[n];
    if (!has_class(p, n, label, team.lane)) {
      if (team.lane == 0) loss[n] = 0;
      if (RANKED && team.lane == 0) rank[n] = -1;
      continue;
    }
    const float own = capped(p, cuda_load(&row[label]));
    const softmax_sums s = look_at_row<WIDE, RANKED>(team, row, p, NULL, own, label);
    if (team.lane > 0) continue;
    loss[n] = loss_of(p, s, own, label);
    if (RANKED) rank[n] = s.before;
  }
}

template <bool WIDE, bool RANKED>
static brim_status launch_loss(cuda_backend *b, uint32_t dtype, const cuda_loss_rows &rows, float *loss, int32_t *rank)
{
  CUDA_WITH_TYPE(dtype, T,
                 return cuda_launch(b, loss_kernel<WIDE, RANKED, T>,
                                    cuda_loss_teams(rows.rows, rows.classes, cuda_pack<T>::count), rows, loss, rank));
}

extern "C" brim_status cuda_loss_forward(cuda_backend *b, uint32_t dtype, const cuda_loss_rows *rows, float *loss,
                                         int32_t *rank)
{
  if (cuda_loss_is_wide(rows->classes))
    return rank ? launch_loss<true, true>(b, dtype, *rows, loss, rank)
                : launch_loss<true, false>(b, dtype, *rows, loss, rank);
  return rank ? launch_loss<false, true>(b, dtype, *rows, loss, rank)
              : launch_loss<false, false>(b, dtype, *rows, loss, rank);
}

/* ---- backward ---- */

/* dlogits[k] = softmax * exp(logits[k] - shift) - constant * part_of(k), except at the label. */
typedef struct slopes {
  float shift, softmax, constant, own;
} slopes;

/* Returns the values common to all elements of a row. shift is lse rounded to fp32; a factor corrects the rounding. */
static __device__ inline slopes slopes_of(const cuda_loss_rows &p, double lse, double weights, float own, int32_t label)
{
  const double scale = p.control->step.loss_scale, soft = p.smoothing / (double)p.classes * scale;
  const double hard = (1 - p.smoothing) * (double)weight_of(p, label) * scale;
  const double below = (double)own - lse, all = hard + soft * weights;
  slopes s = {(float)lse, 0, (float)soft, 0};
  s.softmax = (float)(all * exp((double)s.shift - lse));
  s.own =
      (float)(hard * expm1(below) + soft * (exp(below) * weights - (double)weight_of(p, label))) * slope_of_cap(p, own);
  return s;
}

/* Returns lse from the loss, which is -log(softmax) at the label unless labels are smoothed or classes have weights. */
static __device__ inline double lse_of(float loss, float own)
{
  return (double)loss + (double)own;
}

static __device__ inline slopes slopes_of_shares(const cuda_loss_rows &p, double lse, double weights)
{
  const double scale = p.control->step.loss_scale;
  const float shift = (float)lse;
  return {shift, (float)(scale * weights * exp((double)shift - lse)), (float)scale, 0};
}

/* Replaces logits v by their gradients. label: -1 if the row has none. */
template <int P>
static __device__ inline void turn(float (&v)[P], int64_t k, const cuda_loss_rows &p, const float *share,
                                   const slopes &s, int32_t label)
{
#pragma unroll
  for (int i = 0; i < P; i++) {
    const float z = capped(p, v[i]);
    v[i] = s.softmax * expf(z - s.shift);
    if (s.constant != 0) v[i] -= s.constant * (float)part_of(p, share, k + i);
    if (p.softcap > 0) v[i] *= slope_of_cap(p, z);
    if (k + i == label) v[i] = s.own;
  }
}

template <typename T> static __device__ inline void clear_row(const cuda_team &team, T *row, int64_t count)
{
  for (int64_t k = team.lane; k < count; k += team.lanes) cuda_store(&row[k], 0);
}

/* Waits until all threads of a team have read the values that others may then overwrite. */
template <bool WIDE> static __device__ inline void wait_for_team()
{
  if (WIDE)
    __syncthreads();
  else
    __syncwarp();
}

/* Writes the gradients of a row. T is the type of the logits, U of their gradient. The gradient may overwrite the
 * logits, so nothing is declared __restrict__. If U is smaller than T, an element is written where other logits were.
 * So a team reads a stretch of the row before it writes, and the gradient of a stretch ends before the next stretch
 * begins. */
template <bool WIDE, typename T, typename U>
static __device__ inline void turn_row(const cuda_team &team, const cuda_loss_rows &p, const T *row, const float *share,
                                       const slopes &s, int32_t label, U *out)
{
  constexpr int P = cuda_pack<T>::count > cuda_pack<U>::count ? cuda_pack<T>::count : cuda_pack<U>::count;
  const span at = span_of<T, P>(row, p.classes);
  /* In this case the row has no head. */
  const bool moves = sizeof(U) < sizeof(T) && (const void *)out == (const void *)row;
  wait_for_team<WIDE>(); /* all threads have read the label's logit */
  for (int64_t k = team.lane; k < at.head; k += team.lanes) {
    float v[1] = {cuda_load(&row[k])};
    turn(v, k, p, share, s, label);
    cuda_store(&out[k], v[0]);
  }
  for (int64_t first = at.head; first < at.tail; first += (int64_t)team.lanes * P) {
    const int64_t k = first + (int64_t)team.lane * P;
    float v[P];
    if (k < at.tail) cuda_load_values<P>(row + k, v);
    if (moves) wait_for_team<WIDE>();
    if (k >= at.tail) continue;
    turn(v, k, p, share, s, label);
    cuda_store_values<P>(out + k, v);
  }
  for (int64_t first = at.tail; first < p.classes; first += team.lanes) {
    const int64_t k = first + team.lane;
    float v[1];
    if (k < p.classes) v[0] = cuda_load(&row[k]);
    if (moves) wait_for_team<WIDE>();
    if (k >= p.classes) continue;
    turn(v, k, p, share, s, label);
    cuda_store(&out[k], v[0]);
  }
}

template <bool WIDE, typename T, typename U>
static __global__ void __launch_bounds__(CUDA_LOSS_TEAM_THREADS(WIDE), 1)
    loss_grad_kernel(cuda_loss_rows p, const float *loss, U *dlogits)
{
  const cuda_team team = cuda_my_team<WIDE>();
  for (int64_t n = team.row; n < p.rows; n += team.step) {
    const T *row = (const T *)p.logits + n * p.ld;
    U *out = dlogits + n * p.ld_out;
    const float *share = share_of(p, n);
    const int32_t label = share ? -1 : p.label[n];
    if (!share && !has_class(p, n, label, team.lane)) {
      clear_row(team, out, p.classes);
      continue;
    }
    const float own = share ? 0 : capped(p, cuda_load(&row[label]));
    double lse, weights = 0;
    if (loss) {
      lse = lse_of(loss[n], own);
    } else {
      const softmax_sums sums = look_at_row<WIDE, false>(team, row, p, share, own, label);
      lse = (double)sums.greatest + log(sums.sum);
      weights = sums.weights;
    }
    const slopes s = share ? slopes_of_shares(p, lse, weights) : slopes_of(p, lse, weights, own, label);
    turn_row<WIDE>(team, p, row, share, s, label, out);
  }
}

template <typename T, typename U>
static brim_status launch_grad(cuda_backend *b, const cuda_loss_rows &rows, const float *loss, void *dlogits)
{
  const cuda_geometry g = cuda_loss_teams(rows.rows, rows.classes, cuda_pack<U>::count);
  if (cuda_loss_is_wide(rows.classes)) return cuda_launch(b, loss_grad_kernel<true, T, U>, g, rows, loss, (U *)dlogits);
  return cuda_launch(b, loss_grad_kernel<false, T, U>, g, rows, loss, (U *)dlogits);
}

extern "C" brim_status cuda_loss_backward(cuda_backend *b, uint32_t dtype, uint32_t dtype_out,
                                          const cuda_loss_rows *rows, const float *loss, void *dlogits)
{
  if (rows->smoothing > 0 || rows->weight) loss = NULL; /* in these cases lse does not follow from the loss */
  CUDA_WITH_TYPE(dtype_out, U,
                 return dtype == BRIM_DTYPE_F32 ? launch_grad<float, U>(b, *rows, loss, dlogits)
                                                : launch_grad<U, U>(b, *rows, loss, dlogits));
}

/* ---- both ---- */

/* Computes loss, rank and gradient of fp32 logits; loss and rank have the bits of loss_kernel. A row is read a second
 * time right after the first, so most of it comes from the cache. */
template <bool WIDE, typename U>
static __global__ void __launch_bounds__(CUDA_LOSS_TEAM_THREADS(WIDE), 1)
    loss_both_kernel(cuda_loss_rows p, float *loss, int32_t *rank, U *dlogits)
{
  const cuda_team team = cuda_my_team<WIDE>();
  for (int64_t n = team.row; n < p.rows; n += team.step) {
    const float *row = (const float *)p.logits + n * p.ld;
    U *out = dlogits + n * p.ld_out;
    const int32_t label = p.label[n];
    if (!has_class(p, n, label, team.lane)) {
      if (team.lane == 0) loss[n] = 0;
      if (team.lane == 0) rank[n] = -1;
      clear_row(team, out, p.classes);
      continue;
    }
    const float own = capped(p, row[label]);
    const softmax_sums sums = look_at_row<WIDE, true>(team, row, p, NULL, own, label);
    const float value = loss_of(p, sums, own, label);
    const double lse = p.smoothing > 0 ? (double)sums.greatest + log(sums.sum) : lse_of(value, own);
    if (team.lane == 0) loss[n] = value;
    if (team.lane == 0) rank[n] = sums.before;
    turn_row<WIDE>(team, p, row, NULL, slopes_of(p, lse, sums.weights, own, label), label, out);
  }
}

extern "C" brim_status cuda_loss_both(cuda_backend *b, uint32_t dtype_out, const cuda_loss_rows *rows, float *loss,
                                      int32_t *rank, void *dlogits)
{
  CUDA_WITH_TYPE(dtype_out, U, {
    const cuda_geometry g = cuda_loss_teams(rows->rows, rows->classes, cuda_pack<float>::count); /* loss_kernel's */
    if (cuda_loss_is_wide(rows->classes))
      return cuda_launch(b, loss_both_kernel<true, U>, g, *rows, loss, rank, (U *)dlogits);
    return cuda_launch(b, loss_both_kernel<false, U>, g, *rows, loss, rank, (U *)dlogits);
  });
}

/* ---- the operations ---- */

static brim_status rows_of(cuda_backend *b, const brim_launch *launch, cuda_loss_rows *rows)
{
  const brim_node *node = launch->node;
  const brim_loss_attr *attr = &node->attr.loss;
  *rows = {};
  rows->logits = cuda_plain_input(b, launch, 0);
  rows->control = cuda_control_of(b, launch);
  if (!rows->logits || !rows->control) return BRIM_EDEVICE;
  if (node->in[1]->dtype == BRIM_DTYPE_I32)
    rows->label = (const int32_t *)launch->in[1];
  else if (!(rows->share = (const float *)cuda_plain_input(b, launch, 1)))
    return BRIM_EDEVICE;
  rows->weight = node->in_count > 2 ? (const float *)launch->in[2] : NULL;
  rows->rows = cuda_rows_of(node->in[0]);
  rows->classes = rows->ld = rows->ld_out = cuda_last(node->in[0]);
  rows->each = rows->rows / node->in[0]->shape.dim[0];
  rows->smoothing = attr->smoothing;
  rows->ignores = attr->ignores;
  rows->ignore_index = attr->ignore_index;
  rows->node = (uint64_t)node;
  return BRIM_OK;
}

static CUDA_RUN(loss_run)
{
  cuda_loss_rows rows;
  BRIM_TRY(rows_of((cuda_backend *)self, launch, &rows));
  return cuda_loss_forward((cuda_backend *)self, launch->node->in[0]->dtype, &rows, (float *)launch->out[0], NULL);
}
BRIM_KERNEL(softmax_cross_entropy) = {.op = "softmax_cross_entropy", .prepare = cuda_plain_prepare, .run = loss_run};

static CUDA_RUN(loss_grad_run)
{
  cuda_loss_rows rows;
  BRIM_TRY(rows_of((cuda_backend *)self, launch, &rows));
  return cuda_loss_backward((cuda_backend *)self, launch->node->in[0]->dtype, launch->node->out[0]->dtype, &rows, NULL,
                            launch->out[0]);
}
BRIM_KERNEL(softmax_cross_entropy_grad) = {
    .op = "softmax_cross_entropy_grad", .prepare = cuda_plain_prepare, .run = loss_grad_run};
