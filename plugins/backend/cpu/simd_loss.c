/* Losses along a row, for one instruction set. The values after the last whole vector undergo the same operations as
 * whole vectors (this file uses no fused multiply-adds). A row's sums are taken lane by lane, so they depend on the
 * position of an element in its row, which is the same in every micro-batch. */
#include "simd_loss.h"

#include <math.h>

#include "simd_math.h"

enum { BLOCK = 256 * LANES }; /* elements whose sum is kept in fp32 */

static inline int64_t left(int64_t i, int64_t count)
{
  return count - i < LANES ? count - i : LANES;
}

/* only_first returns the first `count` lanes of v, with 0 in the others. add_lanes adds all lanes in their order. */
static inline vf only_first(vf v, int64_t count)
{
  if (count == LANES) return v;
  float values[LANES] = {0};
  store_part(values, v, count);
  return load(values);
}
static double add_lanes(vf v)
{
  float values[LANES];
  double sum = 0;
  store(values, v);
  for (int i = 0; i < LANES; i++) sum += (double)values[i];
  return sum;
}

/* ---- softmax ---- */

/* Ignores NaN, because the sum of exponentials becomes NaN anyway. */
static float greatest_of(const float *x, int64_t count, float at_least)
{
  vf most = splat(at_least);
  for (int64_t i = 0; i < count; i += LANES) {
    const int64_t n = left(i, count);
    const vf v = load_some(x + i, n);
    most = max_of(most, n == LANES ? v : choose(only_first(splat(1.0f), n) > 0, v, most));
  }
  float values[LANES], best = at_least;
  store(values, most);
  for (int i = 0; i < LANES; i++) best = values[i] > best ? values[i] : best;
  return best;
}

/* Returns the number of logits in [first, first + count) that rank before the label's logit: greater ones, and equal
 * ones of earlier classes. NaN is greater than every number. */
static int32_t count_before(const float *logits, int64_t first, int64_t count, int64_t label, float own)
{
  const int64_t at = label < first ? 0 : label - first < count ? label - first : count;
  int32_t before = 0;
  if (isnan(own)) {
    for (int64_t i = 0; i < at; i++) before += isnan(logits[i]) != 0;
    return before;
  }
  for (int64_t i = 0; i < at; i++) before += !(logits[i] < own);
  for (int64_t i = label < first ? 0 : at + 1; i < count; i++) before += !(logits[i] <= own);
  return before;
}

static void look(cpu_softmax_row *row, const float *logits, int64_t first, int64_t count, int64_t label)
{
  const float before = row->greatest, greatest = greatest_of(logits, count, before);
  if (greatest > before) row->sum *= exp((double)before - (double)greatest);
  row->greatest = greatest;
  row->rank += count_before(logits, first, count, label, row->own);
  for (int64_t start = 0; start < count; start += BLOCK) {
    const int64_t end = count - start < BLOCK ? count : start + BLOCK;
    vf sum = splat(0.0f), all = splat(0.0f);
    for (int64_t i = start; i < end; i += LANES) {
      const int64_t n = left(i, end);
      const vf v = load_some(logits + i, n);
      sum += only_first(exponential(v - greatest), n);
      all += v;
    }
    row->sum += add_lanes(sum);
    row->logits += add_lanes(all);
  }
}

static void softmax_grad(float *logits, int64_t count, double lse, float soft, float scale)
{
  const float high = (float)lse, low = (float)((double)high - lse); /* the rounding error of lse */
  for (int64_t i = 0; i < count; i += LANES) {
    const int64_t n = left(i, count);
    const vf v = load_some(logits + i, n);
    store_some(logits + i, (exponential_sum(v - high, splat(low)) - soft) * scale, n);
  }
}

/* Elements after the last whole vector are processed in a padded vector, so a single logit gets the same bits. */
static void cap_all(float *logits, int64_t count, float cap)
{
  for (int64_t i = 0; i < count; i += LANES) {
    const int64_t n = left(i, count);
    store_some(logits + i, cap * tanh_of(load_some(logits + i, n) / cap), n);
  }
}

static void capped_grad(float *logits, int64_t count, double lse, float scale, float cap)
{
  const float high = (float)lse, low = (float)((double)high - lse);
  for (int64_t i = 0; i < count; i += LANES) {
    const int64_t n = left(i, count);
    const vf v = load_some(logits + i, n), part = v / cap;
    store_some(logits + i, exponential_sum(v - high, splat(low)) * scale * ((1.0f - part) * (1.0f + part)), n);
  }
}

/* ---- means of elements ---- */

static inline vf target_of(const cpu_mean_row *row, int64_t i, int64_t count)
{
  if (row->t) return load_some(row->t + i, count);
  float t[LANES] = {0};
  if (row->hot >= i && row->hot < i + count) t[row->hot - i] = 1;
  return load(t);
}

static inline vf mse(vf y, vf t, float delta)
{
  (void)delta;
  return (y - t) * (y - t);
}
static inline vf mse_slope(vf y, vf t, float delta)
{
  (void)delta;
  return 2.0f * (y - t);
}

static inline vf mae(vf y, vf t, float delta)
{
  (void)delta;
  return abs_of(y - t);
}
static inline vf mae_slope(vf y, vf t, float delta)
{
  (void)delta;
  const vf d = y - t; /* sign(0) = 0, and sign(NaN) = NaN */
  return choose(d > 0.0f, splat(1.0f), choose(d < 0.0f, splat(-1.0f), d));
}

static inline vf huber(vf y, vf t, float delta)
{
  const vf d = abs_of(y - t);
  return choose(d <= delta, d * d * 0.5f, delta * (d - delta * 0.5f));
}
static inline vf huber_slope(vf y, vf t, float delta)
{
  return max_of(min_of(y - t, splat(delta)), splat(-delta));
}

static inline vf bce(vf y, vf t, float delta)
{
  (void)delta;
  return max_of(y, splat(0.0f)) - t * y + log_of_one_plus(exponential(-abs_of(y)));
}
static inline vf bce_slope(vf y, vf t, float delta)
{
  (void)delta;
  return sigmoid_of(y) - t;
}

#define MEAN(id)                                                                                                       \
  static double id##_sum(const cpu_mean_row *row)                                                                      \
  {                                                                                                                    \
    double sum = 0;                                                                                                    \
    for (int64_t start = 0; start < row->count; start += BLOCK) {                                                      \
      const int64_t end = row->count - start < BLOCK ? row->count : start + BLOCK;                                     \
      vf lanes = splat(0.0f);                                                                                          \
      for (int64_t i = start; i < end; i += LANES) {                                                                   \
        const int64_t n = left(i, end);                                                                                \
        lanes += only_first(id(load_some(row->y + i, n), target_of(row, i, n), row->delta), n);                        \
      }                                                                                                                \
      sum += add_lanes(lanes);                                                                                         \
    }                                                                                                                  \
    return sum;                                                                                                        \
  }                                                                                                                    \
  static void id##_grad(const cpu_mean_row *row, float *dy)                                                            \
  {                                                                                                                    \
    for (int64_t i = 0; i < row->count; i += LANES) {                                                                  \
      const int64_t n = left(i, row->count);                                                                           \
      store_some(dy + i, id##_slope(load_some(row->y + i, n), target_of(row, i, n), row->delta) * row->scale, n);      \
    }                                                                                                                  \
  }
MEAN(mse)
MEAN(mae)
MEAN(huber)
MEAN(bce)

const cpu_loss_simd CPU_NAME(cpu_loss) = {
    .look = look,
    .softmax_grad = softmax_grad,
    .cap = cap_all,
    .capped_grad = capped_grad,
    .mean_sum = {mse_sum, mae_sum, huber_sum, bce_sum},
    .mean_grad = {mse_grad, mae_grad, huber_grad, bce_grad},
};
