/* Tests shuffling: every sample comes once, in a different order for each seed, use and epoch, with all positions
 * equally likely. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "brim/random.h"
#include "data/data.h"

static void is_a_bijection_for_every_count(void **state)
{
  static const uint64_t counts[] = {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 63, 64, 65, 100, 255, 256, 257, 1000, 4097, 60000};
  for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
    for (uint64_t item = 0; item < 3; item++) {
      brim_permutation p;
      brim_permutation_init(&p, 7, BRIM_STREAM_SHUFFLE, item, counts[c]);
      unsigned char *seen = calloc(counts[c], 1);
      for (uint64_t i = 0; i < counts[c]; i++) {
        const uint64_t at = brim_permutation_at(&p, i);
        assert_true(at < counts[c]);
        assert_int_equal(seen[at]++, 0);
      }
      free(seen);
    }
  }
}

/* Counts the places that hold the same element in both. */
static uint64_t agreement(const brim_permutation *a, const brim_permutation *b)
{
  uint64_t same = 0;
  for (uint64_t i = 0; i < a->count; i++) same += brim_permutation_at(a, i) == brim_permutation_at(b, i);
  return same;
}

static void differs_by_seed_use_and_epoch(void **state)
{
  enum { COUNT = 10000 };
  brim_permutation base, other;
  brim_permutation_init(&base, 1, BRIM_STREAM_SHUFFLE, 0, COUNT);
  brim_permutation_init(&other, 1, BRIM_STREAM_SHUFFLE, 0, COUNT);
  assert_int_equal(agreement(&base, &other), COUNT);
  brim_permutation_init(&other, 1, BRIM_STREAM_SHUFFLE, 1, COUNT); /* two random orders agree at 1 place on average */
  assert_true(agreement(&base, &other) < 10);
  brim_permutation_init(&other, 2, BRIM_STREAM_SHUFFLE, 0, COUNT);
  assert_true(agreement(&base, &other) < 10);
  brim_permutation_init(&other, (uint64_t)1 << 40 | 1, BRIM_STREAM_SHUFFLE, 0, COUNT);
  assert_true(agreement(&base, &other) < 10);
  brim_permutation_init(&other, 1, BRIM_STREAM_SPLIT, 0, COUNT);
  assert_true(agreement(&base, &other) < 10);
}

/* Over many epochs each element comes to each place equally often. */
static void every_place_is_equally_likely(void **state)
{
  static const int counts[] = {2, 3, 5, 10, 16};
  enum { EPOCHS = 20000 };
  for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
    const int n = counts[c];
    int hits[16][16] = {{0}};
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
      brim_permutation p;
      brim_permutation_init(&p, 3, BRIM_STREAM_SHUFFLE, epoch, (uint64_t)n);
      for (int i = 0; i < n; i++) hits[i][brim_permutation_at(&p, (uint64_t)i)]++;
    }
    double chi2 = 0;
    const double expected = (double)EPOCHS / n;
    for (int i = 0; i < n; i++)
      for (int j = 0; j < n; j++) chi2 += (hits[i][j] - expected) * (hits[i][j] - expected) / expected;
    const double freedom = (double)(n - 1) * (n - 1); /* deviation: sqrt(2 * freedom) */
    assert_true(chi2 < freedom + 6 * sqrt(2 * freedom) + 6);
  }
}

/* Neighbours are separated and the original order is lost, so rank correlations are near 0. */
static void the_original_order_leaves_no_correlation(void **state)
{
  enum { COUNT = 60000 };
  brim_permutation p;
  brim_permutation_init(&p, 11, BRIM_STREAM_SHUFFLE, 5, COUNT);
  const double mean = (COUNT - 1) / 2.0, variance = ((double)COUNT * COUNT - 1) / 12;
  double with_index = 0, with_next = 0, before = (double)brim_permutation_at(&p, COUNT - 1) - mean;
  for (uint64_t i = 0; i < COUNT; i++) {
    const double at = (double)brim_permutation_at(&p, i) - mean;
    with_index += at * ((double)i - mean);
    with_next += at * before;
    before = at;
  }
  assert_true(fabs(with_index / (COUNT * variance)) < 5 / sqrt(COUNT));
  assert_true(fabs(with_next / (COUNT * variance)) < 5 / sqrt(COUNT));
}

static void serves_large_counts(void **state)
{
  const uint64_t count = ((uint64_t)1 << 40) + 12345;
  brim_permutation p;
  brim_permutation_init(&p, 1, BRIM_STREAM_SHUFFLE, 0, count);
  uint64_t above_half = 0;
  for (uint64_t i = 0; i < 1000; i++) {
    const uint64_t at = brim_permutation_at(&p, count - 1 - i);
    assert_true(at < count);
    above_half += at >= count / 2;
  }
  assert_in_range(above_half, 400, 600);
}

/* If these values change, so does the order of samples in every run, and a resumed run would continue with other
 * data. */
static void the_order_does_not_change_between_versions(void **state)
{
  static const uint64_t expected[8] = {237, 650, 91, 548, 273, 83, 611, 319};
  brim_permutation p;
  brim_permutation_init(&p, 1, BRIM_STREAM_SHUFFLE, 0, 1000);
  for (uint64_t i = 0; i < 8; i++) assert_int_equal(brim_permutation_at(&p, i), expected[i]);
}

static void a_table_changes_no_number(void **state)
{
  static const uint64_t counts[] = {1, 2, 3, 5, 60, 64, 65, 1000, 60000};
  for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
    brim_permutation plain, tabulated;
    uint32_t *table = malloc(brim_permutation_table_count(counts[c]) * sizeof *table);
    assert_non_null(table);
    brim_permutation_init(&plain, 9, BRIM_STREAM_PARTITION, (uint64_t)1 << 33 | 4, counts[c]);
    tabulated = plain;
    brim_permutation_tabulate(&tabulated, table);
    for (uint64_t i = 0; i < counts[c]; i++)
      assert_int_equal(brim_permutation_at(&tabulated, i), brim_permutation_at(&plain, i));
    free(table);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(is_a_bijection_for_every_count),
      cmocka_unit_test(differs_by_seed_use_and_epoch),
      cmocka_unit_test(every_place_is_equally_likely),
      cmocka_unit_test(the_original_order_leaves_no_correlation),
      cmocka_unit_test(serves_large_counts),
      cmocka_unit_test(the_order_does_not_change_between_versions),
      cmocka_unit_test(a_table_changes_no_number),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
