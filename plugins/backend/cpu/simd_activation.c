/* Activation functions and their slopes, for one instruction set. The reference backend's activation.c has the
 * formulas. The values after the last whole vector are processed in a padded vector, so each value undergoes the same
 * operations (this file uses no fused multiply-adds). */
#include "simd_activation.h"

#include "simd_math.h"

#define ROOT_HALF 0.70710678118654752440f      /* sqrt(1 / 2) */
#define NORMAL_DENSITY 0.39894228040143267794f /* 1 / sqrt(2 pi) */
#define TANH_SLOPE 1.59576912160573071176f     /* 2 sqrt(2 / pi); gelu with tanh(u) is x sigmoid(2u) */
#define TANH_CUBIC 0.044715f
#define QUICK_SLOPE 1.702f

static vf leaky_relu(vf x, float factor)
{
  return choose(x <= splat(0), factor * x, x);
}
static vf leaky_relu_slope(vf x, float factor)
{
  return choose(x <= splat(0), splat(factor), splat(1));
}

static vf normal(vf x, vf *bell) /* Returns the standard normal distribution function, and exp(-x^2 / 2) in *bell. */
{
  return 0.5f * erfc_of(x * -ROOT_HALF, bell);
}
static vf gelu_exact(vf x, float factor)
{
  (void)factor;
  vf bell;
  return x * normal(x, &bell);
}
static vf gelu_exact_slope(vf x, float factor)
{
  (void)factor;
  vf bell;
  const vf share = normal(x, &bell);
  return share + x * (NORMAL_DENSITY * bell);
}

static vf gelu_tanh(vf x, float factor)
{
  (void)factor;
  return x * sigmoid_of(TANH_SLOPE * (x + TANH_CUBIC * (x * x * x)));
}
static vf gelu_tanh_slope(vf x, float factor)
{
  (void)factor;
  const vf z = x * x, s = sigmoid_of(TANH_SLOPE * (x + TANH_CUBIC * (z * x)));
  return s + x * (s * (1.0f - s)) * (TANH_SLOPE * (1.0f + 3 * TANH_CUBIC * z));
}

static vf gelu_quick(vf x, float factor)
{
  (void)factor;
  return x * sigmoid_of(QUICK_SLOPE * x);
}
static vf gelu_quick_slope(vf x, float factor)
{
  (void)factor;
  const vf s = sigmoid_of(QUICK_SLOPE * x);
  return s + x * (s * (1.0f - s)) * QUICK_SLOPE;
}

static vf silu(vf x, float factor)
{
  (void)factor;
  return x * sigmoid_of(x);
}
static vf silu_slope(vf x, float factor)
{
  (void)factor;
  const vf s = sigmoid_of(x);
  return s + x * (s * (1.0f - s));
}

static vf sigmoid(vf x, float factor)
{
  (void)factor;
  return sigmoid_of(x);
}
static vf sigmoid_slope(vf y, float factor)
{
  (void)factor;
  return y * (1.0f - y);
}

static vf tangent(vf x, float factor)
{
  (void)factor;
  return tanh_of(x);
}
static vf tangent_slope(vf y, float factor)
{
  (void)factor;
  return 1.0f - y * y;
}

static vf power_of_e(vf x, float factor)
{
  (void)factor;
  return exponential(x);
}

static vf scale(vf x, float factor)
{
  return factor * x;
}

#define FUNCTION(f)                                                                                                    \
  static void f##_all(const float *x, float *y, int64_t count, float factor)                                           \
  {                                                                                                                    \
    int64_t i = 0;                                                                                                     \
    for (; i + LANES <= count; i += LANES) store(y + i, f(load(x + i), factor));                                       \
    if (i < count) store_part(y + i, f(load_part(x + i, count - i), factor), count - i);                               \
  }
#define SLOPE(f)                                                                                                       \
  static void f##_all(const float *kept, const float *dy, float *dx, int64_t count, float factor)                      \
  {                                                                                                                    \
    int64_t i = 0;                                                                                                     \
    for (; i + LANES <= count; i += LANES) store(dx + i, load(dy + i) * f(load(kept + i), factor));                    \
    const int64_t rest = count - i;                                                                                    \
    if (rest) store_part(dx + i, load_part(dy + i, rest) * f(load_part(kept + i, rest), factor), rest);                \
  }
FUNCTION(leaky_relu)
FUNCTION(gelu_exact)
FUNCTION(gelu_tanh)
FUNCTION(gelu_quick)
FUNCTION(silu)
FUNCTION(sigmoid)
FUNCTION(tangent)
FUNCTION(power_of_e)
FUNCTION(scale)
SLOPE(leaky_relu_slope)
SLOPE(gelu_exact_slope)
SLOPE(gelu_tanh_slope)
SLOPE(gelu_quick_slope)
SLOPE(silu_slope)
SLOPE(sigmoid_slope)
SLOPE(tangent_slope)

const cpu_activation CPU_NAME(cpu_activation) = {
    .leaky_relu = leaky_relu_all,
    .silu = silu_all,
    .sigmoid = sigmoid_all,
    .tanh = tangent_all,
    .exp = power_of_e_all,
    .scale = scale_all,
    .gelu = {gelu_exact_all, gelu_tanh_all, gelu_quick_all},
    .leaky_relu_grad = leaky_relu_slope_all,
    .silu_grad = silu_slope_all,
    .sigmoid_grad = sigmoid_slope_all,
    .tanh_grad = tangent_slope_all,
    .gelu_grad = {gelu_exact_slope_all, gelu_tanh_slope_all, gelu_quick_slope_all},
};
