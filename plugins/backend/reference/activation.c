/* Functions of single elements, and their gradients. Element i of the output depends only on element i of the inputs,
 * so an output may overwrite an input. */
#include "reference.h"

static const double ROOT_HALF = 0.70710678118654752440; /* sqrt(1 / 2) */
/* The density of the standard normal distribution at 0: 1 / sqrt(2 pi). */
static const double NORMAL_DENSITY = 0.39894228040143267794;
static const double ROOT_2_OVER_PI = 0.79788456080286535588;    /* sqrt(2 / pi) */
static const double TANH_CUBIC = 0.044715, QUICK_SLOPE = 1.702; /* constants of gelu's approximations */

static double sigmoid_of(double x)
{
  return 1 / (1 + exp(-x));
}

static double leaky_relu_of(double x, const brim_activation_attr *attr)
{
  return x <= 0 ? attr->factor * x : x;
}
static double leaky_relu_slope(double x, const brim_activation_attr *attr)
{
  return x <= 0 ? attr->factor : 1;
}

/* Gaussian Error Linear Units (Hendrycks and Gimpel, 2016): x Phi(x), where Phi is the normal distribution function or
 * an approximation of it. 1 + tanh(u) is 2 sigmoid(2u). */
static double gelu_of(double x, const brim_activation_attr *attr)
{
  switch (attr->approximate) {
  case BRIM_GELU_TANH:
    return x * sigmoid_of(2 * ROOT_2_OVER_PI * (x + TANH_CUBIC * x * x * x));
  case BRIM_GELU_QUICK:
    return x * sigmoid_of(QUICK_SLOPE * x);
  default:
    return x * 0.5 * erfc(-x * ROOT_HALF);
  }
}
static double gelu_slope(double x, const brim_activation_attr *attr)
{
  switch (attr->approximate) {
  case BRIM_GELU_TANH: {
    const double s = sigmoid_of(2 * ROOT_2_OVER_PI * (x + TANH_CUBIC * x * x * x));
    return s + x * s * (1 - s) * 2 * ROOT_2_OVER_PI * (1 + 3 * TANH_CUBIC * x * x);
  }
  case BRIM_GELU_QUICK: {
    const double s = sigmoid_of(QUICK_SLOPE * x);
    return s + x * s * (1 - s) * QUICK_SLOPE;
  }
  default:
    return 0.5 * erfc(-x * ROOT_HALF) + x * NORMAL_DENSITY * exp(-0.5 * x * x);
  }
}

static double silu_of(double x, const brim_activation_attr *attr)
{
  (void)attr;
  return x * sigmoid_of(x);
}
static double silu_slope(double x, const brim_activation_attr *attr)
{
  (void)attr;
  const double s = sigmoid_of(x);
  return s + x * s * (1 - s);
}

static double logistic_of(double x, const brim_activation_attr *attr)
{
  (void)attr;
  return sigmoid_of(x);
}
static double logistic_slope(double y, const brim_activation_attr *attr)
{
  (void)attr;
  return y * (1 - y);
}

static double tanh_of(double x, const brim_activation_attr *attr)
{
  (void)attr;
  return tanh(x);
}
static double tanh_slope(double y, const brim_activation_attr *attr)
{
  (void)attr;
  return 1 - y * y;
}

static double exp_of(double x, const brim_activation_attr *attr)
{
  (void)attr;
  return exp(x);
}

static double scaled(double x, const brim_activation_attr *attr)
{
  return attr->factor * x;
}

typedef double (*function)(double x, const brim_activation_attr *attr);

static brim_status apply(const brim_launch *launch, function f)
{
  const double *x = launch->in[0];
  double *y = launch->out[0];
  const int64_t count = brim_shape_count(&launch->node->out[0]->shape);
  for (int64_t i = 0; i < count; i++) y[i] = f(x[i], &launch->node->attr.activation);
  return BRIM_OK;
}

/* dx = dy * slope. `slope` is a function of the gradient's first input, which is x or y. */
static brim_status apply_slope(const brim_launch *launch, function slope)
{
  const double *kept = launch->in[0], *dy = launch->in[1];
  double *dx = launch->out[0];
  const int64_t count = brim_shape_count(&launch->node->out[0]->shape);
  for (int64_t i = 0; i < count; i++) dx[i] = dy[i] * slope(kept[i], &launch->node->attr.activation);
  return BRIM_OK;
}

#define KERNEL(id, how, f)                                                                                             \
  REFERENCE(id##_run, #id)                                                                                             \
  {                                                                                                                    \
    return how(launch, f);                                                                                             \
  }
KERNEL(leaky_relu, apply, leaky_relu_of)
KERNEL(leaky_relu_grad, apply_slope, leaky_relu_slope)
KERNEL(gelu, apply, gelu_of)
KERNEL(gelu_grad, apply_slope, gelu_slope)
KERNEL(silu, apply, silu_of)
KERNEL(silu_grad, apply_slope, silu_slope)
KERNEL(sigmoid, apply, logistic_of)
KERNEL(sigmoid_grad, apply_slope, logistic_slope)
KERNEL(tanh, apply, tanh_of)
KERNEL(tanh_grad, apply_slope, tanh_slope)
KERNEL(exp, apply, exp_of)
KERNEL(scale, apply, scaled)
