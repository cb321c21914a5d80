/* Elementwise operations (relu, add, the optimizers' updates) and transposition, for one instruction set, and the table
 * of functions of simd.h. Inputs and outputs may share memory.
 *
 * Each loop is written twice, for vectors and for the values after the last whole vector, with the same operations in
 * the same order (this file uses no fused multiply-adds). So an element does not depend on which loop computes it. */
#include "simd.h"

#include <math.h>

/* NaN stays NaN, as in PyTorch, because it is not at most 0. */
static void relu(const float *x, float *y, int64_t count)
{
  const vf zero = {0};
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) {
    const vf v = load(x + i);
    store(y + i, choose(v <= zero, zero, v));
  }
  for (; i < count; i++) y[i] = x[i] <= 0 ? 0 : x[i];
}

static void relu_grad(const float *y, const float *dy, float *dx, int64_t count)
{
  const vf zero = {0};
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) store(dx + i, choose(load(y + i) <= zero, zero, load(dy + i)));
  for (; i < count; i++) dx[i] = y[i] <= 0 ? 0 : dy[i];
}

static void add(const float *a, const float *b, float *y, int64_t count)
{
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) store(y + i, load(a + i) + load(b + i));
  for (; i < count; i++) y[i] = a[i] + b[i];
}

static void transpose(const float *from, int64_t from_stride, float *to, int64_t to_stride, int64_t rows,
                      int64_t columns)
{
  int64_t r = 0;
  for (; r + LANES <= rows; r += LANES) {
    int64_t c = 0;
    for (; c + LANES <= columns; c += LANES) {
      vf v[LANES];
      for (int i = 0; i < LANES; i++) v[i] = load(from + (r + i) * from_stride + c);
      transpose_square(v);
      for (int i = 0; i < LANES; i++) store(to + (c + i) * to_stride + r, v[i]);
    }
    for (; c < columns; c++)
      for (int i = 0; i < LANES; i++) to[c * to_stride + r + i] = from[(r + i) * from_stride + c];
  }
  for (; r < rows; r++)
    for (int64_t c = 0; c < columns; c++) to[c * to_stride + r] = from[r * from_stride + c];
}

/* Returns the second moment, from the previous one and the square of a gradient. If the square is NaN, its sign counts
 * as 0, and the result is NaN. */
static vf second_moments(const cpu_adam *c, vf before, vf square)
{
  if (!c->is_yogi) return c->beta2 * before + c->one_beta2 * square;
  const vf v = before + c->initial, zero = {0}, sign = choose(v > square, zero + 1, choose(v < square, zero - 1, zero));
  return v - sign * (c->one_beta2 * square);
}

static float second_moment(const cpu_adam *c, float before, float square)
{
  if (!c->is_yogi) return c->beta2 * before + c->one_beta2 * square;
  const float v = before + c->initial, sign = (float)(v > square) - (float)(v < square);
  return v - sign * (c->one_beta2 * square);
}

static void adam(const cpu_adam *c, const float *p_old, const float *g, const float *m_old, const float *v_old,
                 float *p, float *m, float *v, int64_t count)
{
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) {
    const vf pi = load(p_old + i), scaled = c->factor * load(g + i);
    const vf gi = c->l2 != 0 ? scaled + c->l2 * pi : scaled;
    const vf mi = c->beta1 * load(m_old + i) + c->one_beta1 * gi;
    const vf vi2 = second_moments(c, load(v_old + i), gi * gi);
    store(m + i, mi);
    store(v + i, vi2);
    store(p + i, c->decay * pi - c->step_size * mi / (square_root(vi2) / c->root + c->eps));
  }
  for (; i < count; i++) {
    const float scaled = c->factor * g[i], gi = c->l2 != 0 ? scaled + c->l2 * p_old[i] : scaled;
    m[i] = c->beta1 * m_old[i] + c->one_beta1 * gi;
    v[i] = second_moment(c, v_old[i], gi * gi);
    p[i] = c->decay * p_old[i] - c->step_size * m[i] / (sqrtf(v[i]) / c->root + c->eps);
  }
}

static void sgd(const cpu_sgd *c, const float *p_old, const float *g, const float *vel_old, float *p, float *vel,
                int64_t count)
{
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) {
    const vf pi = load(p_old + i), d = c->factor * load(g + i) + c->weight_decay * pi;
    const vf velocity = c->momentum * load(vel_old + i) + d;
    store(vel + i, velocity);
    store(p + i, pi - c->lr * (c->nesterov ? d + c->momentum * velocity : velocity));
  }
  for (; i < count; i++) {
    const float d = c->factor * g[i] + c->weight_decay * p_old[i];
    vel[i] = c->momentum * vel_old[i] + d;
    p[i] = p_old[i] - c->lr * (c->nesterov ? d + c->momentum * vel[i] : vel[i]);
  }
}

static void adagrad(const cpu_adagrad *c, const float *p_old, const float *g, const float *sum_old, float *p,
                    float *sum, int64_t count)
{
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) {
    const vf pi = load(p_old + i), d = c->factor * load(g + i) + c->weight_decay * pi;
    const vf squares = load(sum_old + i) + c->initial + d * d;
    store(sum + i, squares);
    store(p + i, pi - c->lr * d / (square_root(squares) + c->eps));
  }
  for (; i < count; i++) {
    const float d = c->factor * g[i] + c->weight_decay * p_old[i];
    sum[i] = sum_old[i] + c->initial + d * d;
    p[i] = p_old[i] - c->lr * d / (sqrtf(sum[i]) + c->eps);
  }
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

const cpu_simd CPU_NAME(cpu_simd) = {
    .name = TEXT(CPU_ISA),
    .lanes = LANES,
    .gemm_rows = GEMM_ROWS,
    .gemm_columns = GEMM_COLUMNS,
    .gemm_rows_max = GEMM_ROWS_MAX,
    .gemm_rows_in_place = GEMM_ROWS_IN_PLACE,
    .gemm_scratch_bytes = GEMM_SCRATCH_FLOATS * sizeof(float),
    .gemm = CPU_NAME(simd_gemm),
    .relu = relu,
    .relu_grad = relu_grad,
    .add = add,
    .transpose = transpose,
    .dropout_run = CPU_NAME(simd_dropout_run),
    .dropout_planes = CPU_NAME(simd_dropout_planes),
    .adam = adam,
    .sgd = sgd,
    .adagrad = adagrad,
};
