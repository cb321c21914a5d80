/* Activation functions and their gradients, for one float: for the kernels of activation.cu, and for kernels that apply
 * an activation to their results. C and C++, host and device. A test on the host compares them with the formulas of the
 * reference backend, including overflow, NaN and infinities.
 *
 * A cuda_activation whose kind is a compile-time constant, as in cuda_activate({CUDA_GELU, 0}, x), costs only that
 * function. One that is a kernel's argument costs a branch, in which all threads take the same way. */
#ifndef CUDA_ARITHMETIC_H
#define CUDA_ARITHMETIC_H
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "brim/ops.h"
#include "geometry.h"

enum cuda_activation_kind {
  CUDA_IDENTITY,
  CUDA_RELU,
  CUDA_LEAKY_RELU, /* factor: the slope of negative values */
  CUDA_GELU,
  CUDA_GELU_TANH,
  CUDA_GELU_QUICK,
  CUDA_SILU,
  CUDA_SIGMOID,
  CUDA_TANH,
  CUDA_EXP,
  CUDA_SCALE,       /* factor * x */
  CUDA_DROPPED_RELU /* gradient of relu of dropout: dy * factor where the value was kept, else 0 */
};
typedef struct cuda_activation {
  int kind; /* enum cuda_activation_kind */
  float factor;
} cuda_activation;

#define CUDA_ROOT_HALF 0.70710678118654752440f      /* sqrt(1 / 2) */
#define CUDA_NORMAL_DENSITY 0.39894228040143267794f /* 1 / sqrt(2 pi) */
#define CUDA_TANH_SLOPE 1.59576912160573071176f     /* 2 sqrt(2 / pi): gelu by tanh(u) is x sigmoid(2u) */
#define CUDA_TANH_CUBIC 0.044715f
#define CUDA_QUICK_SLOPE 1.702f

/* sigmoid(x), and its derivative there. With e = exp(-|x|) nothing overflows, and the derivative, e / (1 + e)^2, keeps
 * its digits where sigmoid(x) is close to 1. */
CUDA_ANYWHERE float cuda_sigmoid(float x)
{
  const float e = expf(-fabsf(x));
  return (x >= 0 ? 1.0f : e) / (1.0f + e);
}
CUDA_ANYWHERE float cuda_sigmoid_slope(float x, float *sigmoid)
{
  const float e = expf(-fabsf(x)), part = 1.0f / (1.0f + e);
  *sigmoid = x >= 0 ? part : e * part;
  return e * part * part;
}

/* The standard normal distribution function, by erfc, which keeps its digits where the result is close to 0. */
CUDA_ANYWHERE float cuda_normal(float x)
{
  return 0.5f * erfcf(x * -CUDA_ROOT_HALF);
}

/* The u of x * sigmoid(u(x)), and its derivative. A cube beyond the range of float gives an infinity, at which the
 * sigmoid is 0 or 1. A square must stay finite, because it is then multiplied by 0. */
CUDA_ANYWHERE float cuda_gelu_tanh_argument(float x)
{
  return CUDA_TANH_SLOPE * (x + CUDA_TANH_CUBIC * (x * x * x));
}
CUDA_ANYWHERE float cuda_gelu_tanh_argument_slope(float x)
{
  return CUDA_TANH_SLOPE * (1.0f + 3 * CUDA_TANH_CUBIC * fminf(x * x, 1e30f));
}
/* The derivative of x * sigmoid(u) for u = argument. */
CUDA_ANYWHERE float cuda_gated_slope(float x, float argument, float argument_slope)
{
  float sigmoid;
  const float slope = cuda_sigmoid_slope(argument, &sigmoid);
  return sigmoid + x * slope * argument_slope;
}

/* y */
CUDA_ANYWHERE float cuda_activate(cuda_activation a, float x)
{
  switch (a.kind) {
  case CUDA_RELU:
    return x <= 0 ? 0 : x; /* NaN stays */
  case CUDA_LEAKY_RELU:
    return x <= 0 ? a.factor * x : x;
  case CUDA_GELU:
    return x * cuda_normal(x);
  case CUDA_GELU_TANH:
    return x * cuda_sigmoid(cuda_gelu_tanh_argument(x));
  case CUDA_GELU_QUICK:
    return x * cuda_sigmoid(CUDA_QUICK_SLOPE * x);
  case CUDA_SILU:
    return x * cuda_sigmoid(x);
  case CUDA_SIGMOID:
    return cuda_sigmoid(x);
  case CUDA_TANH:
    return tanhf(x);
  case CUDA_EXP:
    return expf(x);
  case CUDA_SCALE:
    return a.factor * x;
  default:
    return x;
  }
}

/* Whether the gradient is a function of x rather than of y. leaky_relu's works with either, as a slope above 0 keeps
 * the sign; identity's and scale's read neither. */
CUDA_ANYWHERE bool cuda_activation_keeps_x(int kind)
{
  return kind == CUDA_LEAKY_RELU || kind == CUDA_GELU || kind == CUDA_GELU_TANH || kind == CUDA_GELU_QUICK ||
         kind == CUDA_SILU;
}

/* dx = dy * derivative; kept: x or y, see cuda_activation_keeps_x. */
CUDA_ANYWHERE float cuda_activation_gradient(cuda_activation a, float kept, float dy)
{
  switch (a.kind) {
  case CUDA_RELU:
    return kept <= 0 ? 0 : dy;
  case CUDA_DROPPED_RELU: /* a dropped value is 0 */
    return kept <= 0 ? 0 : a.factor * dy;
  case CUDA_LEAKY_RELU:
    return kept <= 0 ? a.factor * dy : dy;
  case CUDA_GELU:
    return dy * (cuda_normal(kept) + kept * (CUDA_NORMAL_DENSITY * expf(-0.5f * (kept * kept))));
  case CUDA_GELU_TANH:
    return dy * cuda_gated_slope(kept, cuda_gelu_tanh_argument(kept), cuda_gelu_tanh_argument_slope(kept));
  case CUDA_GELU_QUICK:
    return dy * cuda_gated_slope(kept, CUDA_QUICK_SLOPE * kept, CUDA_QUICK_SLOPE);
  case CUDA_SILU:
    return dy * cuda_gated_slope(kept, kept, 1.0f);
  case CUDA_SIGMOID:
    return dy * (kept * (1.0f - kept));
  case CUDA_TANH:
    return dy * ((1.0f - kept) * (1.0f + kept)); /* factors without cancellation where y is close to 1 */
  case CUDA_EXP:
    return dy * kept;
  case CUDA_SCALE:
    return a.factor * dy;
  default:
    return dy;
  }
}

/* The activation of an operation: of "gelu", of "gelu_grad", or after the last '+' of "linear+gelu"; identity if it has
 * none. attr: attr.activation, or attr.fused.activation of a fused operation. */
static inline cuda_activation cuda_activation_of(const char *op, const brim_activation_attr *attr)
{
  static const struct {
    const char *name;
    int kind;
  } row[] = {{"relu", CUDA_RELU},       {"leaky_relu", CUDA_LEAKY_RELU},
             {"gelu", CUDA_GELU},       {"silu", CUDA_SILU},
             {"sigmoid", CUDA_SIGMOID}, {"tanh", CUDA_TANH},
             {"exp", CUDA_EXP},         {"scale", CUDA_SCALE}};
  static const int gelu[] = {CUDA_GELU, CUDA_GELU_TANH, CUDA_GELU_QUICK}; /* by enum brim_gelu */
  const char *plus = strrchr(op, '+'), *name = plus ? plus + 1 : op;
  cuda_activation a = {CUDA_IDENTITY, (float)attr->factor};
  for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
    const size_t length = strlen(row[i].name);
    if (strncmp(name, row[i].name, length) == 0 && (name[length] == '\0' || strcmp(name + length, "_grad") == 0))
      a.kind = row[i].kind;
  }
  if (a.kind == CUDA_GELU) a.kind = gelu[attr->approximate];
  return a;
}
#endif
