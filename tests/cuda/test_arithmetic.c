/* Compares activation functions and their gradients in float with the formulas in double: for the usual numbers of
 * networks, for very large ones, and for NaN and the infinities, where both results must be of the same kind. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "../../plugins/backend/cuda/arithmetic.h"

static double sigmoid_of(double x)
{
  return 1 / (1 + exp(-x));
}
static double normal_of(double x)
{
  return 0.5 * erfc(-x * M_SQRT1_2);
}
static double tanh_argument(double x)
{
  return 2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
}

static double relu_of(double x, double factor)
{
  (void)factor;
  return x <= 0 ? 0 : x;
}
static double relu_slope(double y, double factor)
{
  (void)factor;
  return y <= 0 ? 0 : 1;
}
static double leaky_relu_of(double x, double factor)
{
  return x <= 0 ? factor * x : x;
}
static double leaky_relu_slope(double x, double factor)
{
  return x <= 0 ? factor : 1;
}
static double gelu_of(double x, double factor)
{
  (void)factor;
  return x * normal_of(x);
}
static double gelu_slope(double x, double factor)
{
  (void)factor;
  return normal_of(x) + x * exp(-0.5 * x * x) / sqrt(2 * M_PI);
}
static double gelu_tanh_of(double x, double factor)
{
  (void)factor;
  return x * sigmoid_of(tanh_argument(x));
}
static double gelu_tanh_slope(double x, double factor)
{
  (void)factor;
  const double s = sigmoid_of(tanh_argument(x));
  return s + x * s * (1 - s) * 2 * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}
static double gelu_quick_of(double x, double factor)
{
  (void)factor;
  return x * sigmoid_of(1.702 * x);
}
static double gelu_quick_slope(double x, double factor)
{
  (void)factor;
  const double s = sigmoid_of(1.702 * x);
  return s + x * s * (1 - s) * 1.702;
}
static double silu_of(double x, double factor)
{
  (void)factor;
  return x * sigmoid_of(x);
}
static double silu_slope(double x, double factor)
{
  (void)factor;
  const double s = sigmoid_of(x);
  return s + x * s * (1 - s);
}
static double logistic_of(double x, double factor)
{
  (void)factor;
  return sigmoid_of(x);
}
static double logistic_slope(double y, double factor)
{
  (void)factor;
  return y * (1 - y);
}
static double tanh_of(double x, double factor)
{
  (void)factor;
  return tanh(x);
}
static double tanh_slope(double y, double factor)
{
  (void)factor;
  return 1 - y * y;
}
static double exp_of(double x, double factor)
{
  (void)factor;
  return exp(x);
}
static double exp_slope(double y, double factor)
{
  (void)factor;
  return y;
}
static double scaled(double x, double factor)
{
  return factor * x;
}
static double scale_slope(double x, double factor)
{
  (void)x;
  return factor;
}
static double itself(double x, double factor)
{
  (void)factor;
  return x;
}
static double one(double x, double factor)
{
  (void)x, (void)factor;
  return 1;
}

typedef double formula(double x, double factor);

/* Errors of values are relative to the value itself, so that results near 0 must be precise too. Slopes are sums whose
 * terms may cancel, so their errors are relative to 1 if the slope is less than 1. The relative error of e^u is the
 * absolute error of u. u is at most 103, because beyond that every result is 0, and it is rounded. */
static const struct row {
  const char *name;
  int kind;
  formula *value, *slope;
  bool keeps_x;
  double error, slope_error;
} rows[] = {
    {"identity", CUDA_IDENTITY, itself, one, false, 0, 0},
    {"relu", CUDA_RELU, relu_of, relu_slope, false, 0, 0},
    {"leaky_relu", CUDA_LEAKY_RELU, leaky_relu_of, leaky_relu_slope, true, 1e-7, 1e-7},
    {"gelu", CUDA_GELU, gelu_of, gelu_slope, true, 2e-5, 4e-7},
    {"gelu tanh", CUDA_GELU_TANH, gelu_tanh_of, gelu_tanh_slope, true, 2e-5, 1e-6},
    {"gelu quick", CUDA_GELU_QUICK, gelu_quick_of, gelu_quick_slope, true, 1e-5, 5e-7},
    {"silu", CUDA_SILU, silu_of, silu_slope, true, 4e-7, 4e-7},
    {"sigmoid", CUDA_SIGMOID, logistic_of, logistic_slope, false, 4e-7, 2e-7},
    {"tanh", CUDA_TANH, tanh_of, tanh_slope, false, 4e-7, 2e-7},
    {"exp", CUDA_EXP, exp_of, exp_slope, false, 4e-7, 1e-7},
    {"scale", CUDA_SCALE, scaled, scale_slope, false, 1e-7, 1e-7},
};
#define EACH_ROW(r)                                                                                                    \
  const struct row *r = rows;                                                                                          \
  r < rows + sizeof rows / sizeof rows[0];                                                                             \
  r++

static const float factors[] = {0.01f, 0.3f, -0.75f, 1.9f, 0};
#define EACH_FACTOR(f)                                                                                                 \
  const float *f = factors;                                                                                            \
  f < factors + sizeof factors / sizeof factors[0];                                                                    \
  f++

/* Checks that a value is of the expected kind (NaN, or the same infinity), or within `bound` of it. */
static void check(const char *what, const char *name, float x, float got, double expected, double bound)
{
  if (isnan(expected) && isnan(got)) return;
  if (isinf((float)expected) && got == (float)expected) return;
  if (fabs((double)got - expected) <= bound) return;
  fail_msg("%s of %s at %.9g: got %.9g, expected %.9g, error %.2g of %.2g", what, name, (double)x, (double)got,
           expected, fabs((double)got - expected), bound);
}

static void check_value(const struct row *r, float factor, float x)
{
  const cuda_activation a = {r->kind, factor};
  const double expected = r->value((double)x, (double)factor);
  /* If a factor of x, such as a sigmoid, is subnormal, it is only a multiple of the least subnormal number. */
  const double denormal = 2 * (double)FLT_TRUE_MIN * fmax(fabs((double)x), 1);
  check("value", r->name, x, cuda_activate(a, x), expected, r->error * fabs(expected) + denormal);
}

/* kept: x or y, whichever the gradient needs. */
static void check_slope(const struct row *r, float factor, float kept, float dy)
{
  const cuda_activation a = {r->kind, factor};
  const double slope = r->slope((double)kept, (double)factor);
  check("gradient", r->name, kept, cuda_activation_gradient(a, kept, dy), (double)dy * slope,
        r->slope_error * fabs((double)dy) * fmax(fabs(slope), 1));
}

static void check_at(float x)
{
  for (EACH_ROW (r))
    for (EACH_FACTOR(f)) {
      check_value(r, *f, x);
      const cuda_activation a = {r->kind, *f};
      const float kept = r->keeps_x ? x : cuda_activate(a, x);
      if (isfinite(kept)) check_slope(r, *f, kept, 1);
      if (isfinite(kept)) check_slope(r, *f, kept, -0.37f);
    }
}

static void test_functions_over_a_range(void **state)
{
  for (int i = -120000; i <= 120000; i++) check_at((float)i * 1e-3f);
}

static void test_functions_at_all_magnitudes(void **state)
{
  for (int exponent = -149; exponent < 128; exponent++)
    for (int i = 0; i < 8; i++) {
      const float x = ldexpf(1 + (float)i / 8, exponent);
      check_at(x);
      check_at(-x);
    }
}

/* Results are NaN or infinite exactly where those of the formula are, so that a failed step never looks like a good
 * one. */
static void test_functions_at_nan_and_infinities(void **state)
{
  static const float odd[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 3.4028235e38f, -3.4028235e38f};
  for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++)
    for (EACH_ROW (r))
      for (EACH_FACTOR(f)) {
        if (*f == 0) continue;
        check_value(r, *f, odd[i]);
        if (r->keeps_x) check_slope(r, *f, odd[i], 1);
        const cuda_activation a = {r->kind, *f};
        const float passed = cuda_activation_gradient(a, 0.5f, odd[i]); /* the incoming gradient is passed on */
        if (isnan(odd[i])) assert_true(isnan(passed));
        if (isinf(odd[i])) assert_true(!isfinite(passed));
      }
}

/* An element that relu cut off has the gradient 0 for every incoming gradient, even NaN. */
static void test_relu_and_values_that_are_not_finite(void **state)
{
  const cuda_activation relu = {CUDA_RELU, 0};
  assert_true(cuda_activation_gradient(relu, 0, NAN) == 0);
  assert_true(cuda_activation_gradient(relu, 0, INFINITY) == 0);
  assert_true(isnan(cuda_activation_gradient(relu, 1, NAN)));
  assert_true(cuda_activation_gradient(relu, NAN, 3) == 3);
  assert_true(!signbit(cuda_activate(relu, -0.0f)));
}

/* Far out a function equals its asymptote, without overflow on the way. */
static void test_gradients_far_out_are_those_of_a_line(void **state)
{
  static const int gated[] = {CUDA_GELU, CUDA_GELU_TANH, CUDA_GELU_QUICK, CUDA_SILU};
  for (size_t i = 0; i < sizeof gated / sizeof gated[0]; i++)
    for (float x = 1e3f; x < 3e38f; x *= 7) {
      const cuda_activation a = {gated[i], 0};
      assert_true(cuda_activate(a, x) == x && cuda_activate(a, -x) == 0);
      assert_true(cuda_activation_gradient(a, x, 2) == 2 && cuda_activation_gradient(a, -x, 2) == 0);
    }
}

static void test_gradients_know_whether_they_keep_the_input(void **state)
{
  for (EACH_ROW (r)) assert_int_equal(cuda_activation_keeps_x(r->kind), r->keeps_x);
}

static void test_activations_are_found_by_the_operation(void **state)
{
  static const struct {
    const char *op;
    int approximate, kind;
  } named[] = {{"relu", 0, CUDA_RELU},
               {"leaky_relu", 0, CUDA_LEAKY_RELU},
               {"leaky_relu_grad", 0, CUDA_LEAKY_RELU},
               {"gelu", BRIM_GELU_EXACT, CUDA_GELU},
               {"gelu_grad", BRIM_GELU_TANH, CUDA_GELU_TANH},
               {"linear+gelu", BRIM_GELU_QUICK, CUDA_GELU_QUICK},
               {"linear+silu", 0, CUDA_SILU},
               {"conv2d+sigmoid", 0, CUDA_SIGMOID},
               {"conv2d+tanh", 0, CUDA_TANH},
               {"exp", 0, CUDA_EXP},
               {"scale", 0, CUDA_SCALE},
               {"batch_norm+relu", 0, CUDA_RELU},
               {"linear", 0, CUDA_IDENTITY},
               {"add+layer_norm", 0, CUDA_IDENTITY},
               {"conv2d_grad_input", 0, CUDA_IDENTITY}};
  for (size_t i = 0; i < sizeof named / sizeof named[0]; i++) {
    const brim_activation_attr attr = {.factor = 0.25, .approximate = named[i].approximate};
    const cuda_activation a = cuda_activation_of(named[i].op, &attr);
    if (a.kind != named[i].kind || a.factor != 0.25f) fail_msg("%s is %d", named[i].op, a.kind);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_functions_over_a_range),
      cmocka_unit_test(test_functions_at_all_magnitudes),
      cmocka_unit_test(test_functions_at_nan_and_infinities),
      cmocka_unit_test(test_relu_and_values_that_are_not_finite),
      cmocka_unit_test(test_gradients_far_out_are_those_of_a_line),
      cmocka_unit_test(test_gradients_know_whether_they_keep_the_input),
      cmocka_unit_test(test_activations_are_found_by_the_operation),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
