/* The updates with small states, for one instruction set. Each loop is written twice, for vectors and for the values
 * after the last whole vector, with the same operations in the same order (this file uses no fused multiply-adds). So
 * an element does not depend on which loop computes it. Sums are taken lane by lane, in an order that depends on the
 * number of values alone. */
#include "simd_optimizer.h"

#include <math.h>

static vf larger(vf a, vf b)
{
  return choose(a > b, a, b);
}

static double add_lanes(vf v)
{
  float values[LANES];
  double sum = 0;
  store(values, v);
  for (int i = 0; i < LANES; i++) sum += (double)values[i];
  return sum;
}

static void lion(const cpu_lion *c, const float *g, float *p, float *m, int64_t count)
{
  const vf zero = {0}, up = splat(c->lr), down = splat(-c->lr);
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) {
    const vf d = c->factor * load(g + i), mi = load(m + i), direction = c->beta1 * mi + c->one_beta1 * d;
    const vf step = choose(direction > zero, up, choose(direction < zero, down, zero));
    store(p + i, c->decay * load(p + i) - step);
    store(m + i, c->beta2 * mi + c->one_beta2 * d);
  }
  for (; i < count; i++) {
    const float d = c->factor * g[i], direction = c->beta1 * m[i] + c->one_beta1 * d;
    p[i] = c->decay * p[i] - (direction > 0 ? c->lr : direction < 0 ? -c->lr : 0);
    m[i] = c->beta2 * m[i] + c->one_beta2 * d;
  }
}

/* ---- adafactor ---- */

enum { BLOCK = 256 * LANES }; /* elements whose sum is kept in fp32 */

static double squares(const float *x, int64_t count)
{
  double sum = 0;
  int64_t i = 0;
  while (i + LANES <= count) {
    vf part = {0};
    for (const int64_t end = i + BLOCK; i + LANES <= count && i < end; i += LANES) part += load(x + i) * load(x + i);
    sum += add_lanes(part);
  }
  for (; i < count; i++) sum += (double)x[i] * (double)x[i];
  return sum;
}

static double add_squares(float factor, const float *g, float *sums, int64_t count)
{
  double sum = 0;
  int64_t i = 0;
  while (i + LANES <= count) {
    vf part = {0};
    for (const int64_t end = i + BLOCK; i + LANES <= count && i < end; i += LANES) {
      const vf d = factor * load(g + i), square = d * d;
      store(sums + i, load(sums + i) + square);
      part += square;
    }
    sum += add_lanes(part);
  }
  for (; i < count; i++) {
    const float d = factor * g[i];
    sums[i] += d * d;
    sum += (double)(d * d);
  }
  return sum;
}

static double factored_squares(const cpu_factored_row *c, const float *g, const float *column, int64_t count)
{
  const vf least = splat(c->least);
  double sum = 0;
  int64_t i = 0;
  while (i + LANES <= count) {
    vf part = {0};
    for (const int64_t end = i + BLOCK; i + LANES <= count && i < end; i += LANES) {
      const vf d = c->factor * load(g + i);
      part += d * d / larger(c->row * load(column + i), least);
    }
    sum += add_lanes(part);
  }
  for (; i < count; i++) {
    const float d = c->factor * g[i], moment = c->row * column[i];
    sum += (double)(d * d / (moment > c->least ? moment : c->least));
  }
  return sum;
}

static void factored(const cpu_factored_row *c, const float *g, const float *column, float *p, float *m, int64_t count)
{
  const vf least = splat(c->least);
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) {
    vf u = c->scale * (c->factor * load(g + i) / square_root(larger(c->row * load(column + i), least)));
    if (m) {
      u = c->beta1 * load(m + i) + c->one_beta1 * u;
      store(m + i, u);
    }
    store(p + i, c->decay * load(p + i) - u);
  }
  for (; i < count; i++) {
    const float moment = c->row * column[i];
    float u = c->scale * (c->factor * g[i] / sqrtf(moment > c->least ? moment : c->least));
    if (m) u = m[i] = c->beta1 * m[i] + c->one_beta1 * u;
    p[i] = c->decay * p[i] - u;
  }
}

/* ---- adamw8bit ---- */

/* Returns the codes of the magnitudes nearest to x. x is not negative. */
static inline vi nearest(const cpu_code8 *c, vf x)
{
  vf slope = splat(c->slope[0]), shift = splat(c->shift[0]), last = splat(c->last[0]);
  for (int i = 1; i < CPU_CODE8_DECADES; i++) {
    const vi above = x > splat(c->limit[i]);
    slope = choose(above, splat(c->slope[i]), slope);
    shift = choose(above, splat(c->shift[i]), shift);
    last = choose(above, splat(c->last[i]), last);
  }
  const vf one = splat(1), code = larger(x * slope + shift, one);
  const vi k = __builtin_convertvector(choose(code < last, code, last), vi) & (x > splat(c->limit[0]));
  const vi is_one = x > splat(c->limit[CPU_CODE8_DECADES]);
  return (is_one & c->one) | (~is_one & k);
}

static float greatest(const float *x)
{
  vf most = {0};
  for (int64_t i = 0; i < BRIM_CODE8_BLOCK; i += LANES) {
    const vf v = load(x + i);
    most = larger((vf)((vi)v & 0x7FFFFFFF), most);
  }
  float lanes[LANES], result = 0;
  store(lanes, most);
  for (int i = 0; i < LANES; i++) result = lanes[i] > result ? lanes[i] : result;
  return result;
}

static inline void store_codes(uint8_t *code, vi k)
{
  const vb bytes = __builtin_convertvector(k, vb);
  memcpy(code, &bytes, sizeof bytes);
}

static void encode_with_sign(const cpu_code8 *codes, const float *x, float absmax, uint8_t *code)
{
  for (int64_t i = 0; i < BRIM_CODE8_BLOCK; i += LANES) {
    const vf share = load(x + i) / absmax;
    const vi k = nearest(codes, (vf)((vi)share & 0x7FFFFFFF)), is_negative = share < 0;
    const vi below = k + (k > BRIM_CODE8_ZERO); /* a true comparison is -1; the code of 1 has no negative */
    store_codes(code + i, BRIM_CODE8_ZERO + ((~is_negative & k) | (is_negative & -below)));
  }
}

static void encode(const cpu_code8 *codes, const float *x, float absmax, uint8_t *code)
{
  for (int64_t i = 0; i < BRIM_CODE8_BLOCK; i += LANES) store_codes(code + i, nearest(codes, load(x + i) / absmax));
}

static void decode(const cpu_code8 *codes, const uint8_t *code, float absmax, float *x)
{
  for (int64_t i = 0; i < BRIM_CODE8_BLOCK; i++) x[i] = codes->value[code[i]];
  for (int64_t i = 0; i < BRIM_CODE8_BLOCK; i += LANES) store(x + i, absmax * load(x + i));
}

static void adam8_block(const cpu_adam8 *c, const float *g, float *p, uint8_t *m, float *m_absmax, uint8_t *v,
                        float *v_absmax)
{
  const cpu_adam *a = &c->adam;
  float mean[BRIM_CODE8_BLOCK], moment[BRIM_CODE8_BLOCK];
  decode(c->with_sign, m, *m_absmax, mean);
  decode(c->without, v, *v_absmax, moment);
  for (int64_t i = 0; i < BRIM_CODE8_BLOCK; i += LANES) {
    const vf d = a->factor * load(g + i);
    const vf mi = a->beta1 * load(mean + i) + a->one_beta1 * d;
    const vf vi2 = a->beta2 * load(moment + i) + a->one_beta2 * (d * d);
    store(mean + i, mi);
    store(moment + i, vi2);
    store(p + i, a->decay * load(p + i) - a->step_size * mi / (square_root(vi2) / a->root + a->eps));
  }
  *m_absmax = greatest(mean);
  *v_absmax = greatest(moment);
  encode_with_sign(c->with_sign, mean, *m_absmax > 0 ? *m_absmax : 1, m);
  encode(c->without, moment, *v_absmax > 0 ? *v_absmax : 1, v);
}

/* If the block is partial, the missing gradients and moments are 0. */
static void adam8(const cpu_adam8 *c, const float *g, float *p, uint8_t *m, float *m_absmax, uint8_t *v,
                  float *v_absmax, int64_t count)
{
  if (count == BRIM_CODE8_BLOCK) {
    adam8_block(c, g, p, m, m_absmax, v, v_absmax);
    return;
  }
  float gradient[BRIM_CODE8_BLOCK] = {0}, parameter[BRIM_CODE8_BLOCK] = {0};
  uint8_t mean[BRIM_CODE8_BLOCK], moment[BRIM_CODE8_BLOCK] = {0};
  memset(mean, BRIM_CODE8_ZERO, sizeof mean);
  memcpy(gradient, g, (size_t)count * sizeof *g);
  memcpy(parameter, p, (size_t)count * sizeof *p);
  memcpy(mean, m, (size_t)count);
  memcpy(moment, v, (size_t)count);
  adam8_block(c, gradient, parameter, mean, m_absmax, moment, v_absmax);
  memcpy(p, parameter, (size_t)count * sizeof *p);
  memcpy(m, mean, (size_t)count);
  memcpy(v, moment, (size_t)count);
}

const cpu_optimizer_simd CPU_NAME(cpu_optimizer) = {
    .lion = lion,
    .squares = squares,
    .add_squares = add_squares,
    .factored_squares = factored_squares,
    .factored = factored,
    .adam8 = adam8,
};
