/* Compares the cpu backend's vector functions with the C library's in double precision, for the vector type this test
 * is compiled with. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#define CPU_ISA test
#include "../../plugins/backend/cpu/simd_math.h"

typedef struct function {
  const char *name;
  vf (*approximate)(vf x);
  double (*exact)(double x);
  double low, high, error_max; /* the range in which the result is a normal number */
} function;

static double bell(double x)
{
  return exp(-x * x);
}
static vf erfc_alone(vf x)
{
  vf e;
  return erfc_of(x, &e);
}
static vf bell_beside_erfc(vf x)
{
  vf e;
  (void)erfc_of(x, &e);
  return e;
}

static double sigmoid(double x)
{
  return 1 / (1 + exp(-x));
}

static const function functions[] = {{"exp", exponential, exp, -87, 88.7, 2e-7},
                                     {"log", log_of, log, 1e-45, 3e38, 2e-7},
                                     {"sigmoid", sigmoid_of, sigmoid, -87, 100, 2e-7},
                                     {"tanh", tanh_of, tanh, -20, 20, 2e-7},
                                     {"erf", erf_of, erf, -12, 12, 2e-7},
                                     {"erfc", erfc_alone, erfc, -12, 9.1, 1e-6},
                                     {"bell", bell_beside_erfc, bell, -9.3, 9.3, 2e-7}};

static float first_of(vf v)
{
  float values[LANES];
  store(values, v);
  return values[0];
}

static double error_at(const function *f, float x)
{
  const double expected = f->exact((double)x), got = (double)first_of(f->approximate(splat(x)));
  const double error = fabs(got - expected);
  return expected == 0 ? error : error / fabs(expected);
}

static void check(const function *f, float x, double *worst, float *at)
{
  const double error = error_at(f, x);
  if (!(error <= *worst)) {
    *worst = error;
    *at = x;
  }
}

static void test_relative_error_is_that_of_rounding(void **state)
{
  for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
    const function *f = &functions[i];
    double worst = 0;
    float at = 0;
    for (int k = 0; k <= 200000; k++) {
      const double t = (double)k / 200000;
      check(f, (float)(f->low + t * (f->high - f->low)), &worst, &at);
      const double tiny = pow(10, -37 + 37.9 * t); /* values close to 0 */
      check(f, (float)tiny, &worst, &at);
      if (f->low < 0) check(f, (float)-tiny, &worst, &at);
    }
    printf("%-8s %.3g at %.9g\n", f->name, worst, (double)at);
    if (worst > f->error_max) fail_msg("%s: error %g at %.9g", f->name, worst, (double)at);
  }
}

static void test_ends_of_the_range_are_those_of_the_library(void **state)
{
  const float inf = INFINITY, ends[] = {inf, -inf, 0.0f, 1000.0f, -1000.0f, 88.73f, -104.5f};
  for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
    const function *f = &functions[i];
    assert_true(isnan(first_of(f->approximate(splat(NAN)))));
    for (size_t k = 0; k < sizeof ends / sizeof ends[0]; k++) {
      const float expected = (float)f->exact((double)ends[k]), got = first_of(f->approximate(splat(ends[k])));
      const bool same = isnan(expected)   ? isnan(got)
                        : isinf(expected) ? got == expected
                                          : fabsf(got - expected) <= 1e-6f * fabsf(expected) + 1e-37f;
      if (!same) fail_msg("%s(%g) is %g, not %g", f->name, (double)ends[k], (double)got, (double)expected);
    }
  }
}

static void test_a_part_of_a_vector_leaves_its_neighbours_alone(void **state)
{
  const float from[LANES + 1] = {1, 2, 3};
  float to[LANES + 1] = {0};
  to[2] = 7;
  store_part(to, load_part(from, 2), 2);
  assert_true(to[0] == 1 && to[1] == 2 && to[2] == 7);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_relative_error_is_that_of_rounding),
      cmocka_unit_test(test_ends_of_the_range_are_those_of_the_library),
      cmocka_unit_test(test_a_part_of_a_vector_leaves_its_neighbours_alone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
