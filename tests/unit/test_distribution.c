/* Tests the arithmetic that distributes a step over ranks with different devices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "setup/distribution.h"

static int64_t sum_of(const int64_t *weight, int32_t ranks)
{
  int64_t sum = 0;
  for (int32_t r = 0; r < ranks; r++) sum += weight[r];
  return sum;
}

static void equally_fast_ranks_get_equal_shares(void **unused)
{
  (void)unused;
  int64_t weight[5];
  const uint64_t time[5] = {123457, 123457, 123457, 123457, 123457};
  for (int32_t ranks = 1; ranks <= 5; ranks++) {
    assert_true(brim_distribution_weigh(time, ranks, weight));
    for (int32_t r = 0; r < ranks; r++) assert_int_equal(weight[r], 64);
  }
}

/* A rank that is twice as fast gets twice as much, so all ranks finish together, up to rounding. */
static void weights_are_proportional_to_speeds(void **unused)
{
  (void)unused;
  int64_t weight[3];
  const uint64_t time[3] = {1000, 2000, 4000};
  assert_true(brim_distribution_weigh(time, 3, weight));
  assert_int_equal(sum_of(weight, 3), 3 * 64);
  for (int32_t r = 0; r < 3; r++) {
    const int64_t exact = 3 * 64 * (4000 / (int64_t)time[r]) / 7;
    assert_true(weight[r] >= exact - 2 && weight[r] <= exact + 2);
  }
  assert_true(weight[0] > weight[1] && weight[1] > weight[2]);
}

/* Times range from nanoseconds to an hour, and one rank may be a million times slower than the others. */
static void every_rank_gets_samples_and_the_sum_is_exact(void **unused)
{
  (void)unused;
  static const uint64_t times[][4] = {{1, 1, 1, 2},
                                      {1, 1000000, 1000000, 1000000},
                                      {3600000000000, 3600000000001, 7200000000000, 1},
                                      {UINT64_MAX, UINT64_MAX, 1, UINT64_MAX},
                                      {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX / 2}};
  for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
    int64_t weight[4];
    assert_true(brim_distribution_weigh(times[i], 4, weight));
    assert_int_equal(sum_of(weight, 4), 4 * 64);
    for (int32_t r = 0; r < 4; r++) {
      assert_true(weight[r] >= 1);
      for (int32_t k = 0; k < 4; k++)
        if (times[i][k] < times[i][r]) assert_true(weight[k] >= weight[r]);
    }
  }
}

static void unknown_times_give_no_weights(void **unused)
{
  (void)unused;
  int64_t weight[2] = {-1, -1};
  assert_false(brim_distribution_weigh((const uint64_t[2]){1000, 0}, 2, weight));
  assert_int_equal(weight[0], -1);
}

static void portions_follow_each_other(void **unused)
{
  (void)unused;
  int64_t weight[3] = {100, 27, 65};
  const brim_distribution distribution = {.weight = weight}, even = {0};
  const brim_portion first = brim_distribution_portion(&distribution, 0, 3),
                     last = brim_distribution_portion(&distribution, 2, 3);
  const brim_portion middle = brim_distribution_portion(&distribution, 1, 3),
                     third = brim_distribution_portion(&even, 2, 3);
  assert_int_equal(first.from, 0);
  assert_int_equal(first.to, middle.from);
  assert_int_equal(middle.to, last.from);
  assert_int_equal(last.to, last.of);
  assert_int_equal(last.of, 192);
  assert_int_equal(third.from, 2);
  assert_int_equal(third.to, 3);
  assert_int_equal(third.of, 3);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(equally_fast_ranks_get_equal_shares), cmocka_unit_test(weights_are_proportional_to_speeds),
      cmocka_unit_test(every_rank_gets_samples_and_the_sum_is_exact), cmocka_unit_test(unknown_times_give_no_weights),
      cmocka_unit_test(portions_follow_each_other)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
