/* Tests the account of differential privacy: epsilon is that of Google's dp-accounting (golden/make_epsilon.py), never
 * below it and at most 0.1 % above; it grows with rounds, and shrinks with noise. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "config/privacy.h"

static double epsilon_of(double rate, double multiplier, int64_t rounds, double delta)
{
  brim_account account;
  brim_account_make(&account, rate, multiplier);
  return brim_account_epsilon(&account, rounds, delta);
}

static void equals_dp_accounting_and_is_never_below(void **state)
{
  FILE *file = fopen(BRIM_TESTS_DIR "/golden/epsilon.txt", "r");
  double rate, multiplier, rounds, delta, wanted;
  int cases = 0;
  assert_non_null(file);
  for (; fscanf(file, "%lf %lf %lf %lf %lf", &rate, &multiplier, &rounds, &delta, &wanted) == 5; cases++) {
    const double got = epsilon_of(rate, multiplier, (int64_t)rounds, delta);
    if (got >= wanted && got <= wanted * 1.001 + 1e-7) continue;
    fail_msg("rate %g, multiplier %g, %g rounds, delta %g: epsilon %.9g instead of %.9g", rate, multiplier, rounds,
             delta, got, wanted);
  }
  fclose(file);
  assert_true(cases >= 500);
}

static void grows_with_rounds_and_shrinks_with_noise(void **state)
{
  assert_true(epsilon_of(0.1, 1, 0, 1e-5) == 0);
  double before = 0;
  for (int64_t rounds = 1; rounds < 100000; rounds *= 3) {
    const double epsilon = epsilon_of(0.01, 1, rounds, 1e-5);
    assert_true(epsilon > before);
    assert_true(epsilon_of(0.01, 1.1, rounds, 1e-5) < epsilon);
    assert_true(epsilon_of(0.011, 1, rounds, 1e-5) > epsilon);
    assert_true(epsilon_of(0.01, 1, rounds, 1e-6) > epsilon);
    before = epsilon;
  }
}

static brim_settings federation(int64_t clients, int64_t round)
{
  return (brim_settings){.total_clients = clients, .clients_per_round = round};
}

/* Adds up the tail of the binomial distribution. */
static double probability_of_more(int64_t clients, double rate, int64_t most)
{
  double sum = 0;
  for (int64_t m = most + 1; m <= clients; m++)
    sum += exp(lgamma((double)clients + 1) - lgamma((double)m + 1) - lgamma((double)(clients - m) + 1) +
               (double)m * log(rate) + (double)(clients - m) * log1p(-rate));
  return sum;
}

static void no_round_has_more_clients_than_there_is_room_for(void **state)
{
  static const int64_t cases[][2] = {{100, 10},    {24, 4},       {1000, 1},   {1000, 500}, {1000, 999},
                                     {10000, 100}, {100000, 300}, {100000, 1}, {50, 50}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const int64_t clients = cases[i][0], round = cases[i][1];
    const brim_settings s = federation(clients, round);
    const int64_t most = brim_privacy_most_clients(&s);
    assert_true(most >= round && most <= clients);
    assert_true(most < 4 * round + 100);
    if (most < clients) assert_true(probability_of_more(clients, (double)round / (double)clients, most) < exp(-70));
  }
}

static void counts_the_rounds_of_clients_that_take_turns(void **state)
{
  brim_settings s = federation(10, 4);
  assert_int_equal(brim_privacy_releases(&s, 7), 7);
  s.privacy.takes_turns = true;
  for (int64_t rounds = 0; rounds < 40; rounds++) {
    int64_t times[10] = {0}, most = 0;
    for (int64_t i = 0; i < rounds * 4; i++) times[i % 10]++;
    for (int i = 0; i < 10; i++) most = times[i] > most ? times[i] : most;
    assert_int_equal(brim_privacy_releases(&s, rounds), most);
  }
}

/* A round releases an update and a count. Together they have the configured noise multiplier. */
static void splits_the_noise_of_an_adaptive_clip_norm(void **state)
{
  brim_settings s = federation(1000, 100);
  s.privacy = (brim_privacy_settings){.clip_norm = 1, .target_quantile = 0.5, .noise_multiplier = 1.5};
  const double updates = brim_privacy_update_multiplier(&s), count = 2 * brim_privacy_count_stddev(&s);
  assert_true(updates > 1.5 && count == 10);
  assert_true(fabs(1 / sqrt(1 / (updates * updates) + 1 / (count * count)) - 1.5) < 1e-12);
  s.privacy.target_quantile = 0;
  assert_true(brim_privacy_update_multiplier(&s) == 1.5);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(equals_dp_accounting_and_is_never_below),
      cmocka_unit_test(grows_with_rounds_and_shrinks_with_noise),
      cmocka_unit_test(no_round_has_more_clients_than_there_is_room_for),
      cmocka_unit_test(counts_the_rounds_of_clients_that_take_turns),
      cmocka_unit_test(splits_the_noise_of_an_adaptive_clip_norm),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
