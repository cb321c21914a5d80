/* Tests histograms of tensors: every value is counted once, by its sign and exponent, in any order and any parts. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "observe/histogram.h"

#define VALUES 20000

static float value[VALUES], other[VALUES];
static brim_histogram histogram, part, change; /* too large for a test's stack frame */

/* Draws any bits: subnormal numbers, infinities and NaN of both signs, and all exponents. */
static void draw(float *out, uint32_t seed)
{
  uint64_t state = seed;
  for (int i = 0; i < VALUES; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint32_t bits = (uint32_t)(state >> 32);
    memcpy(&out[i], &bits, sizeof bits);
    if (i % 10 == 0) out[i] = i % 20 == 0 ? 0.0f : -0.0f;
  }
  static const float edges[] = {
      FLT_MAX, -FLT_MAX, FLT_MIN,  -FLT_MIN,        FLT_TRUE_MIN, -FLT_TRUE_MIN, INFINITY,  -INFINITY,      NAN,
      1,       -1,       0x1p-48f, 0x1.fffffep-49f, 0x1p15f,      0x1p16f,       -0x1p-47f, 0x1.fffffep-48f};
  memcpy(out + 1, edges, sizeof edges);
}

/* Returns the bin of a finite value that is not zero, by its exponent as frexp gives it. */
static int bin_of(float x)
{
  int exponent;
  (void)frexpf(x, &exponent); /* x = m * 2^exponent with m in [1/2, 1) */
  const int bin = exponent - 1 - BRIM_HISTOGRAM_FIRST;
  return bin < 0 ? 0 : bin >= BRIM_HISTOGRAM_BINS ? BRIM_HISTOGRAM_BINS - 1 : bin;
}

static void counts_are_those_of_each_value(void **state)
{
  brim_histogram_figures f, wanted = {.least = INFINITY, .most = -INFINITY};
  draw(value, 1);
  memset(&histogram, 0, sizeof histogram);
  brim_histogram_add(&histogram, value, VALUES, 1);
  brim_histogram_read(&histogram, &f);
  for (int i = 0; i < VALUES; i++) {
    const float x = value[i];
    wanted.nans += isnan(x) != 0;
    wanted.infinite += isinf(x) != 0;
    wanted.zeros += x == 0;
    if (isfinite(x)) wanted.least = fmin(wanted.least, x), wanted.most = fmax(wanted.most, x);
    if (isfinite(x) && x > 0) wanted.positive[bin_of(x)]++;
    if (isfinite(x) && x < 0) wanted.negative[bin_of(x)]++;
  }
  assert_int_equal(f.values, VALUES);
  assert_int_equal(f.nans, wanted.nans);
  assert_int_equal(f.infinite, wanted.infinite);
  assert_int_equal(f.zeros, wanted.zeros);
  assert_true(wanted.nans > 10 && wanted.infinite >= 2 && wanted.zeros >= VALUES / 10 - 2);
  assert_true(f.least == wanted.least && f.most == wanted.most);
  assert_memory_equal(f.positive, wanted.positive, sizeof f.positive);
  assert_memory_equal(f.negative, wanted.negative, sizeof f.negative);
}

static void sums_are_exact_where_doubles_are(void **state)
{
  brim_histogram_figures f;
  double sum = 0, squares = 0;
  for (int i = 0; i < VALUES; i++) { /* multiples of 2^-10 below 1: their sums have no rounding */
    value[i] = (float)((i * 7919 % 2047 - 1023) / 1024.0);
    sum += value[i];
    squares += (double)value[i] * value[i];
  }
  memset(&histogram, 0, sizeof histogram);
  brim_histogram_add(&histogram, value, VALUES, 1);
  brim_histogram_read(&histogram, &f);
  assert_true(f.sum == sum && f.squares == squares);
  assert_true(f.mean == sum / VALUES && f.rms == sqrt(squares / VALUES));
}

/* The largest mantissas: their squares' sum is the largest possible. */
static void the_largest_tensor_does_not_overflow(void **state)
{
  static float most[BRIM_HISTOGRAM_VALUES_MAX];
  brim_histogram_figures f;
  for (size_t i = 0; i < BRIM_HISTOGRAM_VALUES_MAX; i++) most[i] = -0x1.fffffep3f;
  memset(&histogram, 0, sizeof histogram);
  brim_histogram_add(&histogram, most, BRIM_HISTOGRAM_VALUES_MAX, 1);
  brim_histogram_read(&histogram, &f);
  assert_true(f.rms == 0x1.fffffep3);
  assert_true(f.mean == -0x1.fffffep3);
  assert_int_equal(f.negative[3 - BRIM_HISTOGRAM_FIRST], BRIM_HISTOGRAM_VALUES_MAX);
}

static void parts_add_up_in_any_order(void **state)
{
  static const size_t cut[] = {0, 1, 5000, 12345, VALUES};
  draw(value, 3);
  memset(&histogram, 0, sizeof histogram);
  brim_histogram_add(&histogram, value, VALUES, 1);
  static brim_histogram all;
  memset(&all, 0, sizeof all);
  for (int k = 3; k >= 0; k--) {
    memset(&part, 0, sizeof part);
    brim_histogram_add(&part, value + cut[k], cut[k + 1] - cut[k], 1);
    brim_histogram_merge(&all, &part);
  }
  assert_memory_equal(&all, &histogram, sizeof all);
}

static void ratios_are_of_the_change_to_the_value_before(void **state)
{
  brim_histogram_figures f, of_change;
  const float before[] = {1, -2, 0, 0, 4, 8}, after[] = {1.5f, -2, 0, 1, 3.5f, NAN};
  memset(&histogram, 0, sizeof histogram);
  memset(&change, 0, sizeof change);
  brim_histogram_add_ratios(&histogram, &change, before, after, 6);
  brim_histogram_read(&histogram, &f);
  brim_histogram_read(&change, &of_change);
  assert_int_equal(f.zeros, 2);
  assert_int_equal(f.infinite, 1);
  assert_int_equal(f.nans, 1);
  assert_int_equal(f.positive[-1 - BRIM_HISTOGRAM_FIRST], 1); /* 0.5 */
  assert_int_equal(f.positive[-3 - BRIM_HISTOGRAM_FIRST], 1); /* 0.125 */
  assert_true(of_change.least == -0.5 && of_change.most == 1);
  assert_int_equal(of_change.values, 6);
}

static void a_factor_multiplies_each_value(void **state)
{
  draw(value, 4);
  for (int i = 0; i < VALUES; i++) other[i] = value[i] * 0.37f;
  memset(&histogram, 0, sizeof histogram);
  memset(&part, 0, sizeof part);
  brim_histogram_add(&histogram, value, VALUES, 0.37f);
  brim_histogram_add(&part, other, VALUES, 1);
  assert_memory_equal(&histogram, &part, sizeof part);
}

static void blocks_of_a_large_tensor_are_spread_from_its_first_value_to_its_last(void **state)
{
  static const int64_t sizes[] = {1,        BRIM_HISTOGRAM_VALUES_MAX, BRIM_HISTOGRAM_VALUES_MAX + 1, 100003,
                                  38597376, (int64_t)1 << 40};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    int64_t first, count, sum = 0, end = 0, k = 0;
    for (; brim_histogram_block(sizes[i], k, &first, &count); k++) {
      assert_true(first >= end && first + count <= sizes[i]);
      if (k == 0) assert_int_equal(first, 0);
      end = first + count;
      sum += count;
    }
    assert_int_equal(sum, sizes[i] < BRIM_HISTOGRAM_VALUES_MAX ? sizes[i] : BRIM_HISTOGRAM_VALUES_MAX);
    assert_true(sizes[i] - end < BRIM_HISTOGRAM_BLOCKS);
    assert_int_equal(k, sizes[i] <= BRIM_HISTOGRAM_VALUES_MAX ? 1 : BRIM_HISTOGRAM_BLOCKS);
  }
}

static void a_line_has_the_bins_between_its_first_and_last(void **state)
{
  const float some[] = {0, 1, -3, 0.5f, 0.75f, NAN};
  brim_histogram_figures f;
  brim_text text = {0};
  memset(&histogram, 0, sizeof histogram);
  brim_histogram_add(&histogram, some, 6, 1);
  brim_histogram_read(&histogram, &f);
  brim_histogram_print(&f, &text);
  assert_string_equal(brim_text_str(&text),
                      "\"counted\":6,\"zeros\":1,\"nan\":1,\"infinite\":0,\"min\":-3,\"max\":1,\"mean\":-0.15,"
                      "\"rms\":1.47054412,\"first\":-1,\"negative\":[0,0,1],\"positive\":[2,1,0]");
  brim_text_clear(&text);
  memset(&histogram, 0, sizeof histogram);
  brim_histogram_read(&histogram, &f);
  brim_histogram_print(&f, &text);
  assert_string_equal(brim_text_str(&text), "\"counted\":0,\"zeros\":0,\"nan\":0,\"infinite\":0,\"min\":null,"
                                            "\"max\":null,\"mean\":null,\"rms\":null,\"first\":0,\"negative\":[],"
                                            "\"positive\":[]");
  brim_text_release(&text);
}

#define T(name) cmocka_unit_test(name)
int main(void)
{
  const struct CMUnitTest tests[] = {
      T(counts_are_those_of_each_value),
      T(sums_are_exact_where_doubles_are),
      T(the_largest_tensor_does_not_overflow),
      T(parts_add_up_in_any_order),
      T(ratios_are_of_the_change_to_the_value_before),
      T(a_factor_multiplies_each_value),
      T(blocks_of_a_large_tensor_are_spread_from_its_first_value_to_its_last),
      T(a_line_has_the_bins_between_its_first_and_last),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
