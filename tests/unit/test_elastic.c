/* Tests when policy elastic returns memory, how much, and when it takes memory back. The run, its device, waiting jobs
 * and the clock are simulated. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/log.h"
#include "brim/policy.h"
#include "builtin/builtin.h"
#include "config/config.h"

#define MIB ((uint64_t)1 << 20)
#define CHOICES 6

/* Sizes of plans in MiB: as configured, and with all possible recompute. */
static const int64_t choices[CHOICES] = {256, 128, 64, 32, 16, 8};
static const uint64_t plain[CHOICES] = {780, 400, 220, 130, 90, 70}, least[CHOICES] = {600, 300, 160, 100, 70, 60};

typedef struct fixture {
  brim_registry *registry;
  brim_config *config;
  const brim_policy_ops *ops;
  const brim_plugin *plugin;
  void *self;
  /* the run and its device, in MiB */
  uint64_t own, total, others, waits_for;
  int64_t batch, grain;
  double now;
  int looks, peaks;
  brim_step_plan answer;
} fixture;

static void begin(fixture *f, const char *const *words, size_t count)
{
  const char *override[16] = {"policy=elastic", "model=mlp", "dataset=synthetic"};
  const char *const search[] = {BRIM_BUILD_DIR "/share/brim/configs"};
  memset(f, 0, sizeof *f);
  *f = (fixture){.own = 400, .total = 500, .batch = 128, .grain = 16};
  memcpy(override + 3, words, count * sizeof *words);
  const brim_config_request request = {
      .search = search, .search_count = 1, .overrides = override, .override_count = 3 + count, .first_argument = 1};
  if (brim_registry_open(brim_core_plugins, NULL, 0, &f->registry) != BRIM_OK) fail_msg("%s", brim_error_text());
  if (brim_config_load(&request, f->registry, &f->config) != BRIM_OK) fail_msg("%s", brim_error_text());
  const brim_config_choice *choice = brim_config_choice_of(f->config, "policy.elastic");
  f->plugin = choice->plugin;
  f->ops = f->plugin->ops;
  assert_int_equal(f->plugin->create(choice->params, &f->self), BRIM_OK);
}
#define BEGIN(f, ...)                                                                                                  \
  do {                                                                                                                 \
    const char *const words[] = {__VA_ARGS__};                                                                         \
    begin(f, words, sizeof words / sizeof words[0]);                                                                   \
  } while (0)

static void end(fixture *f)
{
  f->plugin->destroy(f->self);
  brim_config_free(f->config);
  brim_registry_free(f->registry);
}

static uint64_t free_now(const fixture *f)
{
  return f->total - f->own - f->others;
}

static brim_status look(const brim_step_view *view, brim_device_view *device, uint64_t *room)
{
  fixture *f = view->host;
  f->looks++;
  *device = (brim_device_view){.name = "cpu:0", .total_bytes = f->total * MIB, .free_bytes = free_now(f) * MIB};
  *room = (free_now(f) + f->own) * MIB;
  return BRIM_OK;
}

static size_t index_of(int64_t batch)
{
  size_t i = 0;
  while (choices[i] != batch) i++;
  return i;
}

/* Returns the peak with exactly the requested recompute, if that much is possible. */
static uint64_t peak(int64_t batch, uint64_t mebibytes)
{
  const size_t i = index_of(batch);
  if (mebibytes == 0 || plain[i] <= mebibytes) return plain[i];
  return mebibytes > least[i] ? mebibytes : least[i];
}

static brim_status peak_within(const brim_step_view *view, int64_t batch, uint64_t bytes, uint64_t *out)
{
  fixture *f = view->host;
  f->peaks++;
  *out = peak(batch, bytes / MIB) * MIB;
  return BRIM_OK;
}

/* Asks the policy at time `now` and applies its answer. Returns true if something changes. */
static bool changes(fixture *f, double now)
{
  const brim_demands demands = {.device = "auto"};
  const brim_step_view view = {.size = sizeof view,
                               .seconds = now,
                               .demands = &demands,
                               .waiting = f->waits_for > 0,
                               .waiting_bytes = f->waits_for * MIB,
                               .planned_bytes = f->own * MIB,
                               .micro_batch = f->batch,
                               .effective_batch = 256,
                               .grain = f->grain,
                               .choice = choices,
                               .choice_count = CHOICES,
                               .look = look,
                               .peak_within = peak_within,
                               .host = f};
  f->now = now;
  memset(&f->answer, 0, sizeof f->answer);
  const brim_status status = f->ops->on_step(f->self, &view, &f->answer);
  if (status == BRIM_ENOTSUP) return false;
  assert_int_equal(status, BRIM_OK);
  if (f->answer.micro_batch == 0) return false;
  f->batch = f->answer.micro_batch;
  f->own = peak(f->batch, f->answer.within_bytes / MIB);
  assert_true(f->own + f->others <= f->total);
  return true;
}

/* Asks the policy every second from `from` to `to`. Returns the first second at which something changes, or -1. */
static double changes_at(fixture *f, double from, double to)
{
  for (double now = from; now <= to; now++)
    if (changes(f, now)) return now;
  return -1;
}

#define AT_ONCE "policy.elastic.shrink_after_seconds=0", "policy.elastic.grow_after_seconds=0"

static void without_waiting_jobs_nothing_changes_and_nothing_is_read(void **state)
{
  fixture f;
  BEGIN(&f, AT_ONCE);
  assert_true(changes_at(&f, 0, 100) < 0);
  assert_int_equal(f.looks + f.peaks, 0);
  end(&f);
}

static void requests_of_others_must_last(void **state)
{
  fixture f;
  BEGIN(&f, "policy.elastic.shrink_after_seconds=3");
  f.waits_for = 200;
  assert_true(changes_at(&f, 0, 2) < 0);
  f.waits_for = 0;
  assert_false(changes(&f, 3));
  f.waits_for = 200;
  assert_true(changes_at(&f, 4, 20) == 7);
  assert_int_equal(f.batch, 64);
  end(&f);
}

static void as_much_is_given_back_as_is_needed(void **state)
{
  static const struct {
    uint64_t waits_for, others;
    int64_t batch; /* 0: no change, because a change would not help or is not needed */
    uint64_t own;
  } cases[] = {{100, 0, 0, 400},    {101, 0, 64, 220},  {280, 0, 64, 220},  {281, 0, 32, 130},
               {410, 0, 16, 90},    {411, 0, 16, 89},   {430, 0, 16, 70},   {431, 0, 0, 400},
               {100, 100, 64, 220}, {330, 100, 16, 70}, {331, 100, 0, 400}, {499, 100, 0, 400}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    fixture f;
    BEGIN(&f, AT_ONCE);
    f.waits_for = cases[i].waits_for;
    f.others = cases[i].others;
    assert_int_equal(changes(&f, 0), cases[i].batch > 0);
    if (cases[i].batch > 0) {
      assert_int_equal(f.batch, cases[i].batch);
      assert_string_equal(f.answer.reason, "as a run waits for cpu:0");
    }
    assert_int_equal(f.own, cases[i].own);
    end(&f);
  }
}

static void memory_must_have_been_free_for_a_while(void **state)
{
  fixture f;
  BEGIN(&f, "policy.elastic.shrink_after_seconds=0", "policy.elastic.grow_after_seconds=10");
  f.waits_for = 250;
  assert_true(changes(&f, 0));
  f.waits_for = 0;
  f.others = 250; /* the waiting job has started */
  assert_true(changes_at(&f, 1, 50) < 0);
  f.others = 0;
  assert_true(changes_at(&f, 51, 55) < 0);
  f.waits_for = 10; /* enough memory is free, but other jobs come before this run */
  assert_false(changes(&f, 56));
  f.waits_for = 0;
  assert_true(changes_at(&f, 57, 100) == 67);
  assert_int_equal(f.batch, 128);
  assert_int_equal(f.own, 400);
  assert_true(changes_at(&f, 68, 200) < 0);
  end(&f);
}

/* The run first takes the lowest amount that was free all the time, and the rest later. */
static void it_takes_the_free_memory(void **state)
{
  fixture f;
  BEGIN(&f, "policy.elastic.shrink_after_seconds=0", "policy.elastic.grow_after_seconds=5");
  f.waits_for = 380;
  assert_true(changes(&f, 0));
  assert_int_equal(f.batch, 16);
  f.waits_for = 0;
  f.others = 410;
  assert_false(changes(&f, 1));
  f.others = 200;
  assert_false(changes(&f, 2));
  f.others = 350;
  assert_false(changes(&f, 3));
  f.others = 200;
  assert_true(changes_at(&f, 4, 20) == 7);
  assert_int_equal(f.own, 130);
  assert_true(changes_at(&f, 8, 20) == 13);
  assert_int_equal(f.own, 220);
  f.others = 0;
  assert_true(changes_at(&f, 14, 30) == 19);
  assert_int_equal(f.own, 400);
  end(&f);
}

/* If the smaller amount counted, the run would first take the plan for it, or no plan, and take the larger plan only
 * after waiting once more. */
static void the_wait_begins_anew_when_more_becomes_free(void **state)
{
  for (uint64_t less = 350; less <= 400; less += 50) { /* a plan fits into the first amount, but not into the second */
    fixture f;
    BEGIN(&f, "policy.elastic.shrink_after_seconds=0", "policy.elastic.grow_after_seconds=10");
    f.waits_for = 380;
    assert_true(changes(&f, 0));
    f.waits_for = 0;
    f.others = less;
    assert_true(changes_at(&f, 1, 9) < 0);
    f.others = 0;
    assert_true(changes_at(&f, 10, 50) == 20);
    assert_int_equal(f.own, 400);
    end(&f);
  }
}

static void room_that_comes_and_goes_does_not_make_it_wait_for_ever(void **state)
{
  fixture f;
  double now = 1;
  BEGIN(&f, "policy.elastic.shrink_after_seconds=0", "policy.elastic.grow_after_seconds=10");
  f.waits_for = 380;
  assert_true(changes(&f, 0));
  f.waits_for = 0;
  do f.others = f.others == 350 ? 200 : 350;
  while (!changes(&f, now) && now++ < 50);
  assert_true(now == 12);
  assert_int_equal(f.own, 130);
  end(&f);
}

static void the_floor_is_kept(void **state)
{
  static const char *const floors[] = {"policy.elastic.floor_mb=200", "policy.elastic.floor_percent=50"};
  for (size_t i = 0; i < 2; i++) {
    fixture f;
    BEGIN(&f, AT_ONCE, floors[i]);
    f.waits_for = 281;
    assert_false(changes(&f, 0));
    assert_string_equal(f.answer.reason, "a run waits for 281.0 MiB of cpu:0, which has 100.0 MiB free, but this run "
                                         "needs at least 200.0 MiB");
    f.waits_for = 280;
    assert_true(changes(&f, 1));
    assert_int_equal(f.own, 220);
    end(&f);
  }
}

static void a_plan_is_not_changed_for_little(void **state)
{
  fixture f;
  BEGIN(&f, AT_ONCE, "policy.elastic.min_gain_percent=50");
  f.waits_for = 101; /* the job lacks 1 MiB; 180 would be enough, but are less than 50 % */
  assert_true(changes(&f, 0));
  assert_int_equal(f.own, 130);
  f.waits_for = 0;
  f.others = 320;
  assert_false(changes(&f, 1)); /* 180 MiB are free */
  f.others = 280;
  assert_true(changes(&f, 2));
  assert_int_equal(f.own, 220);
  end(&f);
}

static void no_bit_of_the_results_changes(void **state)
{
  fixture f;
  BEGIN(&f, AT_ONCE);
  f.waits_for = 435; /* 8 samples would be enough */
  assert_false(changes(&f, 0));
  end(&f);
  BEGIN(&f, AT_ONCE);
  f.grain = 0; /* without a grain, another micro-batch would change the rounding */
  f.waits_for = 150;
  assert_true(changes(&f, 0));
  assert_int_equal(f.batch, 128);
  assert_int_equal(f.own, 350);
  f.waits_for = 0;
  assert_true(changes(&f, 1));
  assert_int_equal(f.own, 400);
  end(&f);
}

static void impossible_changes_are_reported_once_and_not_planned_every_second(void **state)
{
  fixture f;
  BEGIN(&f, AT_ONCE);
  f.waits_for = 450;
  assert_false(changes(&f, 0));
  assert_string_equal(f.answer.reason,
                      "a run waits for 450.0 MiB of cpu:0, which has 100.0 MiB free, but this run needs at least "
                      "70.0 MiB");
  const int peaks = f.peaks;
  for (int now = 1; now < 10; now++) {
    assert_false(changes(&f, now));
    assert_string_equal(f.answer.reason, "");
  }
  assert_int_equal(f.peaks, peaks);
  f.waits_for = 440;
  assert_false(changes(&f, 10));
  assert_string_not_equal(f.answer.reason, "");
  f.waits_for = 300;
  assert_true(changes(&f, 11));
  end(&f);
}

/* The policy keeps a change that was made because memory ran out, or by a policy before it. */
static void changes_by_others_are_not_undone(void **state)
{
  fixture f;
  BEGIN(&f, AT_ONCE);
  f.waits_for = 200;
  assert_true(changes(&f, 0));
  f.waits_for = 0;
  f.batch = 32;
  f.own = 130;
  assert_true(changes_at(&f, 1, 20) < 0);
  f.waits_for = 400;
  assert_true(changes(&f, 21));
  f.waits_for = 0;
  assert_true(changes(&f, 22));
  assert_int_equal(f.own, 130);
  end(&f);
}

static void the_plan_of_before_comes_back_if_a_larger_one_did_not_get_its_memory(void **state)
{
  fixture f;
  BEGIN(&f, AT_ONCE);
  f.waits_for = 200;
  assert_true(changes(&f, 0));
  f.waits_for = 0;
  assert_true(changes(&f, 1));
  f.batch = 64;
  f.own = 220;
  assert_true(changes(&f, 2));
  assert_int_equal(f.own, 400);
  end(&f);
}

static void a_reserve_is_left_free(void **state)
{
  fixture f;
  BEGIN(&f, AT_ONCE, "policy.elastic.reserve_mb=50");
  assert_false(changes(&f, 0));
  f.others = 60;
  assert_true(changes(&f, 1));
  assert_int_equal(f.own, 220);
  assert_string_equal(f.answer.reason, "as cpu:0 has 40.0 MiB free, and 50.0 MiB should be");
  assert_true(changes_at(&f, 2, 10) < 0); /* a plan of 400 MiB would leave too little */
  f.others = 50;
  assert_true(changes(&f, 11));
  assert_int_equal(f.own, 400);
  end(&f);
  BEGIN(&f, AT_ONCE, "policy.elastic.reserve_mb=490");
  assert_true(changes(&f, 0)); /* the run takes the free memory, although its plan would like more */
  assert_int_equal(f.own, 70);
  assert_true(changes_at(&f, 1, 10) < 0);
  assert_string_equal(f.answer.reason, "");
  end(&f);
}

int main(void)
{
  brim_log_set_level(BRIM_LOG_WARN);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(without_waiting_jobs_nothing_changes_and_nothing_is_read),
      cmocka_unit_test(requests_of_others_must_last),
      cmocka_unit_test(as_much_is_given_back_as_is_needed),
      cmocka_unit_test(memory_must_have_been_free_for_a_while),
      cmocka_unit_test(it_takes_the_free_memory),
      cmocka_unit_test(the_wait_begins_anew_when_more_becomes_free),
      cmocka_unit_test(room_that_comes_and_goes_does_not_make_it_wait_for_ever),
      cmocka_unit_test(the_floor_is_kept),
      cmocka_unit_test(a_plan_is_not_changed_for_little),
      cmocka_unit_test(no_bit_of_the_results_changes),
      cmocka_unit_test(impossible_changes_are_reported_once_and_not_planned_every_second),
      cmocka_unit_test(changes_by_others_are_not_undone),
      cmocka_unit_test(the_plan_of_before_comes_back_if_a_larger_one_did_not_get_its_memory),
      cmocka_unit_test(a_reserve_is_left_free),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
