/* Tests the sums of a federation's round: they are exact for every optimization level and every order of the clients.
 * The vector code is compiled here at several levels, from the backend's own file. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "simd_federate.h"

extern const cpu_federate_simd cpu_federate_o0, cpu_federate_o2, cpu_federate_o3, cpu_federate_fma;

enum { TABLES = 4, UPDATES = 10000, ORDERS = 100, VALUES = 7 };

/* The last is compiled for processors with fused multiply-adds. */
static const cpu_federate_simd *const tables[TABLES] = {&cpu_federate_o0, &cpu_federate_o2, &cpu_federate_o3,
                                                        &cpu_federate_fma};
static int tables_here(void)
{
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return TABLES - 1;
#endif
  return TABLES;
}

static uint64_t next(uint64_t *state)
{
  *state += 0x9E3779B97F4A7C15u;
  uint64_t x = (*state ^ *state >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

/* Draws a number of either sign, with a magnitude from 2^-30 to 2^limit, equally often small and large. */
static float any_value(uint64_t *state, int limit)
{
  const double digits = 1 + (double)(next(state) >> 40) / (1 << 24);
  const int exponent = (int)(next(state) % (uint64_t)(30 + limit)) - 30;
  return (float)ldexp(next(state) & 1 ? digits : -digits, exponent);
}

/* ---- the rounding ---- */

/* Returns v rounded to the nearest multiple of 2^-42, ties to even, computed with integers. */
static double rounded(double v)
{
  return ldexp(nearbyint(ldexp(v, 42)), -42);
}

static void check_rounding(const cpu_federate_simd *simd, float w, float g, double weight)
{
  const double zero[VALUES] = {0};
  double sum[VALUES];
  float many_w[VALUES], many_g[VALUES];
  for (int i = 0; i < VALUES; i++) many_w[i] = w, many_g[i] = g; /* fills whole vectors and the remainder */
  simd->fold(weight, many_w, many_g, zero, sum, VALUES);
  for (int i = 0; i < VALUES; i++)
    if (sum[i] != rounded(((double)w - (double)g) * weight))
      fail_msg("(%a - %a) * %a became %a", (double)w, (double)g, weight, sum[i]);
}

static void test_fold_rounds_to_multiples_of_a_power_of_two(void **state)
{
  uint64_t random = 1;
  for (int t = 0; t < tables_here(); t++) {
    for (int i = 0; i < 20000; i++)
      check_rounding(tables[t], any_value(&random, 7), any_value(&random, 7),
                     ldexp((double)(1 + next(&random) % 100000), -17));
    for (int i = -4; i <= 4; i++) check_rounding(tables[t], (float)ldexp(i, -43), 0, 1); /* halfway */
    check_rounding(tables[t], 511.99997F, 0, 1);
    check_rounding(tables[t], 0, 511.99997F, 1);
  }
}

/* (w - g) * weight has more than 53 bits here, and lies so close to the middle between two multiples that a fused
 * multiply-add, which does not round it first, gives the other multiple. */
static void test_fold_rounds_the_product_first(void **state)
{
  uint64_t random = 7;
  int differing = 0;
  for (int i = 0; i < 100000 && differing < 10; i++) {
    const float w = (float)(1 + (double)(next(&random) >> 40) / (1 << 24));
    const double weight = ldexp((double)(next(&random) >> 11) + 0.5, -54);
    const double fused = fma((double)w, weight, 1536.0) - 1536.0;
    const double exact_low = fma((double)w, weight, -((double)w * weight));
    const double middle = (floor(ldexp((double)w * weight, 42)) + 0.5) * ldexp(1, -42);
    if ((double)w * weight != middle || exact_low == 0) continue;
    differing += fused != rounded((double)w * weight);
    for (int t = 0; t < tables_here(); t++) check_rounding(tables[t], w, 0, weight);
  }
  assert_true(differing > 0);
}

/* ---- the order ---- */

typedef struct round_of_clients {
  float w[UPDATES], g[UPDATES];
  double weight[UPDATES];
  int order[UPDATES];
} round_of_clients;

/* Makes weights like those of clients with samples: their sum is at most 1. */
static round_of_clients *make_round(void)
{
  round_of_clients *r = calloc(1, sizeof *r);
  uint64_t random = 3;
  double samples = 0;
  int exponent;
  assert_non_null(r);
  for (int i = 0; i < UPDATES; i++) {
    r->w[i] = any_value(&random, 8);
    r->g[i] = any_value(&random, 8);
    r->weight[i] = (double)(1 + next(&random) % 1000);
    samples += r->weight[i];
    r->order[i] = i;
  }
  frexp(samples, &exponent);
  for (int i = 0; i < UPDATES; i++) r->weight[i] = ldexp(r->weight[i], -exponent);
  return r;
}

static void shuffle(int *order, uint64_t *random)
{
  for (int i = UPDATES - 1; i > 0; i--) {
    const int k = (int)(next(random) % (uint64_t)(i + 1)), kept = order[i];
    order[i] = order[k];
    order[k] = kept;
  }
}

static double sum_of(const cpu_federate_simd *simd, const round_of_clients *r, int from, int to)
{
  double sum = 0;
  for (int i = from; i < to; i++) {
    const int k = r->order[i];
    simd->fold(r->weight[k], &r->w[k], &r->g[k], &sum, &sum, 1);
  }
  return sum;
}

/* Every update is a multiple of 2^-53 and every weight a multiple of 2^-23, so sums of v are whole numbers in this
 * unit. */
#define UNIT 80
__extension__ typedef __int128 wide;

static double exact_sum(const round_of_clients *r)
{
  wide sum = 0;
  for (int i = 0; i < UPDATES; i++) {
    const double v = ldexp(((double)r->w[i] - (double)r->g[i]) * r->weight[i], UNIT);
    assert_true(v == trunc(v) && fabs(v) < ldexp(1, UNIT + 9));
    sum += (wide)v;
  }
  return ldexp((double)sum, -UNIT);
}

static void test_a_sum_of_many_updates_has_the_same_bits_in_any_order(void **state)
{
  round_of_clients *r = make_round();
  uint64_t random = 5;
  const double first = sum_of(tables[0], r, 0, UPDATES), exact = exact_sum(r);
  if (!(fabs(first - exact) < UPDATES * ldexp(1, -43))) fail_msg("%a, exact %a", first, exact);
  for (int o = 0; o < ORDERS; o++) {
    const int cut = (int)(next(&random) % UPDATES); /* two lanes, whose sums are added */
    shuffle(r->order, &random);
    const cpu_federate_simd *simd = tables[o % tables_here()];
    assert_true(sum_of(simd, r, 0, UPDATES) == first);
    assert_true(sum_of(simd, r, 0, cut) + sum_of(simd, r, cut, UPDATES) == first);
  }
  free(r);
}

/* ---- the other functions ---- */

static bool same(const void *a, const void *b, size_t bytes)
{
  return memcmp(a, b, bytes) == 0;
}

static void check_table(const cpu_federate_simd *simd, int64_t count, uint64_t seed)
{
  float w[40] = {0}, g[40] = {0}, y[40], expected_y[40], old[40] = {0};
  double sum[40] = {0}, d[2], expected[2];
  for (int64_t i = 0; i < count; i++) {
    w[i] = any_value(&seed, 8);
    g[i] = any_value(&seed, 8);
    sum[i] = (double)any_value(&seed, 8) * 1.1;
    old[i] = any_value(&seed, 8);
  }
  simd->distance(w, g, d, count);
  tables[0]->distance(w, g, expected, count);
  assert_true(same(d, expected, sizeof d));
  memcpy(y, old, sizeof y); /* in place */
  simd->steer(0.3, w, g, y, y, count);
  for (int64_t i = 0; i < count; i++) {
    const double pull = ((double)w[i] - (double)g[i]) * 0.3;
    assert_true(y[i] == (float)((double)old[i] + pull));
  }
  memcpy(y, old, sizeof y);
  simd->steer_by(0.3, 0.7, w, g, y, w, y, count);
  for (int64_t i = 0; i < count; i++) {
    const double pull = ((double)w[i] - (double)g[i]) * 0.3, control = (double)w[i] * 0.7;
    assert_true(y[i] == (float)((double)old[i] + pull + control));
  }
  simd->serve(1.3, sum, w, y, count);
  tables[0]->serve(1.3, sum, w, expected_y, count);
  assert_true(same(y, expected_y, (size_t)count * sizeof *y));
  simd->serve(1.3, sum, NULL, y, count);
  for (int64_t i = 0; i < count; i++) assert_true(y[i] == (float)(-1.3 * sum[i]));
}

static void test_every_level_of_optimisation_has_the_same_bits(void **state)
{
  for (int t = 0; t < tables_here(); t++)
    for (int64_t count = 1; count <= 40; count++) check_table(tables[t], count, (uint64_t)count);
}

static void test_the_distance_of_values_that_are_not_finite(void **state)
{
  for (int t = 0; t < tables_here(); t++)
    for (int at = 0; at < 19; at++) {
      float w[19] = {0}, g[19] = {0};
      double d[2];
      w[(at + 1) % 19] = -3;
      w[at] = NAN;
      tables[t]->distance(w, g, d, 19);
      assert_true(isnan(d[0]) && d[1] == 3);
      w[at] = g[at] = INFINITY; /* their difference is NaN */
      tables[t]->distance(w, g, d, 19);
      assert_true(isnan(d[0]) && d[1] == 3);
      g[at] = 1;
      tables[t]->distance(w, g, d, 19);
      assert_true(isinf(d[0]) && isinf(d[1]) && d[1] > 0);
    }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_fold_rounds_to_multiples_of_a_power_of_two),
      cmocka_unit_test(test_fold_rounds_the_product_first),
      cmocka_unit_test(test_a_sum_of_many_updates_has_the_same_bits_in_any_order),
      cmocka_unit_test(test_every_level_of_optimisation_has_the_same_bits),
      cmocka_unit_test(test_the_distance_of_values_that_are_not_finite),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
