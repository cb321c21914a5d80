/* Tests recovery when memory runs out: the number of attempts, the micro-batches and the handler's answers. Other
 * errors must not be mistaken for lack of memory. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include <cmocka.h>

#include "brim/memory.h"

#define ATTEMPTS_MAX 32

/* Work that has memory for `room` samples, or fails `failures` times. It records its calls. */
typedef struct work {
  int64_t room;     /* most samples that fit; for brim_adapt_batch */
  int failures;     /* the number of first attempts that fail; for brim_retry */
  brim_status with; /* the status of a failure; 0: ENOMEM_DEVICE */
  const char *text; /* error text of a failure, or NULL */
  int count;
  int64_t micro_batch[ATTEMPTS_MAX], accumulation[ATTEMPTS_MAX];
} work;

static brim_status fail_as(const work *w)
{
  const brim_status status = w->with ? w->with : BRIM_ENOMEM_DEVICE;
  return w->text ? brim_fail(status, "%s", w->text) : status;
}

static brim_status step(void *context, int64_t micro_batch, int64_t accumulation)
{
  work *w = context;
  assert_true(w->count < ATTEMPTS_MAX);
  w->micro_batch[w->count] = micro_batch;
  w->accumulation[w->count++] = accumulation;
  return micro_batch <= w->room ? BRIM_OK : fail_as(w);
}

static brim_status once(void *context)
{
  work *w = context;
  return w->count++ >= w->failures ? BRIM_OK : fail_as(w);
}

/* A handler that records its arguments, overwrites the thread's error text, and frees memory or gives up. */
typedef struct listener {
  int count, give_up_at;
  brim_failed_attempt heard[ATTEMPTS_MAX];
  char text[ATTEMPTS_MAX][64];
  work *frees;
} listener;

static enum brim_oom_answer listen(void *context, const brim_failed_attempt *oom)
{
  listener *l = context;
  assert_true(l->count < ATTEMPTS_MAX);
  snprintf(l->text[l->count], sizeof l->text[0], "%s", oom->text);
  l->heard[l->count++] = *oom;
  brim_fail(BRIM_EIO, "the handler's own trouble");
  if (l->frees) l->frees->failures = 0;
  return l->count == l->give_up_at ? BRIM_OOM_GIVE_UP : BRIM_OOM_GO_ON;
}

static void assert_says(const char *part)
{
  if (!strstr(brim_error_text(), part)) fail_msg("'%s' is not in: %s", part, brim_error_text());
}

static void assert_tried(const work *w, int count, const int64_t *micro_batch, int64_t effective)
{
  assert_int_equal(w->count, count);
  for (int i = 0; i < count; i++) {
    assert_int_equal(w->micro_batch[i], micro_batch[i]);
    assert_int_equal(w->micro_batch[i] * w->accumulation[i], effective);
  }
}

/* ---- retry ---- */

static void three_retries_are_four_attempts(void **state)
{
  const brim_retry_options options = {.max_retries = 3};
  work w = {.failures = 3, .text = "no room"};
  assert_int_equal(brim_retry(&options, once, &w), BRIM_OK);
  assert_int_equal(w.count, 4);
  w = (work){.failures = 4, .text = "no room"};
  assert_int_equal(brim_retry(&options, once, &w), BRIM_ENOMEM_DEVICE);
  assert_int_equal(w.count, 4);
  assert_string_equal(brim_error_text(), "no room\neach of 4 attempts failed: max_retries is 3");
}

static void without_retries_there_is_one_attempt(void **state)
{
  const brim_retry_options options = {0};
  work w = {.failures = 1};
  assert_int_equal(brim_retry(&options, once, &w), BRIM_ENOMEM_DEVICE);
  assert_int_equal(w.count, 1);
}

static void three_statuses_are_out_of_memory_and_no_other(void **state)
{
  const brim_retry_options options = {.max_retries = 1};
  static const struct {
    brim_status status;
    bool oom;
  } all[] = {
#define X(name, value, exit_status, text)                                                                              \
  {value, value == BRIM_ENOMEM_HOST || value == BRIM_ENOMEM_DEVICE || value == BRIM_EBUDGET},
      BRIM_STATUS_MAP(X)
#undef X
  };
  for (size_t i = 1; i < sizeof all / sizeof *all; i++) {
    work w = {.failures = 1, .with = all[i].status, .text = "x"};
    assert_int_equal(brim_is_oom(all[i].status), all[i].oom);
    assert_int_equal(brim_retry(&options, once, &w), all[i].oom ? BRIM_OK : all[i].status);
    assert_int_equal(w.count, all[i].oom ? 2 : 1);
  }
}

static void another_error_ends_it_at_once_with_its_own_text(void **state)
{
  listener l = {0};
  const brim_oom_handler handler = {listen, &l};
  const brim_retry_options retry = {.max_retries = 3, .on_oom = &handler};
  const brim_adapt_options adapt = {.effective_batch = 64, .on_oom = &handler};
  work w = {.failures = 9, .with = BRIM_EDEVICE, .text = "CUDA error: illegal address, not out of memory"};
  assert_int_equal(brim_retry(&retry, once, &w), BRIM_EDEVICE);
  assert_string_equal(brim_error_text(), w.text);
  assert_int_equal(strncmp(brim_error_origin(), "test_adapt.c:", 13), 0);
  assert_int_equal(w.count, 1);
  w.count = 0;
  assert_int_equal(brim_adapt_batch(&adapt, step, &w, NULL), BRIM_EDEVICE);
  assert_string_equal(brim_error_text(), w.text);
  assert_int_equal(w.count, 1);
  assert_int_equal(l.count, 0);
}

static void the_handler_is_called_between_attempts(void **state)
{
  listener l = {0};
  const brim_oom_handler handler = {listen, &l};
  const brim_retry_options options = {.max_retries = 2, .on_oom = &handler};
  work w = {.failures = 9, .with = BRIM_EBUDGET, .text = "over by 3 MiB"};
  assert_int_equal(brim_retry(&options, once, &w), BRIM_EBUDGET);
  assert_says("over by 3 MiB\n"); /* the text of the work's error, not the handler's */
  assert_int_equal(w.count, 3);
  assert_int_equal(l.count, 2);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(l.heard[i].attempt, i + 1);
    assert_int_equal(l.heard[i].status, BRIM_EBUDGET);
    assert_string_equal(l.text[i], "over by 3 MiB");
    assert_int_equal(l.heard[i].micro_batch, 0);
  }
}

static void memory_freed_by_the_handler_helps_the_next_attempt(void **state)
{
  work w = {.failures = 9};
  listener l = {.frees = &w};
  const brim_oom_handler handler = {listen, &l};
  const brim_retry_options options = {.max_retries = 1, .on_oom = &handler};
  assert_int_equal(brim_retry(&options, once, &w), BRIM_OK);
  assert_int_equal(w.count, 2);
}

static void a_failure_without_text_is_reported_by_its_status(void **state)
{
  listener l = {0};
  const brim_oom_handler handler = {listen, &l};
  const brim_retry_options options = {.max_retries = 1, .on_oom = &handler};
  work w = {.failures = 9, .with = BRIM_ENOMEM_HOST};
  brim_fail(BRIM_EINVAL, "of long ago");
  assert_int_equal(brim_retry(&options, once, &w), BRIM_ENOMEM_HOST);
  assert_string_equal(l.text[0], "out of host memory");
  assert_string_equal(brim_error_text(), "out of host memory\neach of 2 attempts failed: max_retries is 1");
}

static volatile sig_atomic_t signals;

static void count_signal(int number)
{
  (void)number;
  signals++;
}

/* A wait would take a billion seconds, so the test would hang. */
static void a_signal_ends_a_wait(void **state)
{
  const brim_retry_options options = {.max_retries = 1, .wait_seconds = 1e9};
  const struct itimerval timer = {.it_interval = {.tv_usec = 20000}, .it_value = {.tv_usec = 20000}}, off = {0};
  work w = {.failures = 1};
  signal(SIGALRM, count_signal);
  assert_int_equal(setitimer(ITIMER_REAL, &timer, NULL), 0);
  assert_int_equal(brim_retry(&options, once, &w), BRIM_OK);
  setitimer(ITIMER_REAL, &off, NULL);
  assert_true(signals > 0);
  assert_int_equal(w.count, 2);
}

static void invalid_retry_options_are_refused(void **state)
{
  const double not_a_number = strtod("nan", NULL);
  const brim_retry_options wrong[] = {
      {.max_retries = -1}, {.wait_seconds = -0.5}, {.wait_seconds = not_a_number}, {.wait_seconds = 1e30}};
  work w = {0};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    assert_int_equal(brim_retry(&wrong[i], once, &w), BRIM_EINVAL);
  assert_int_equal(brim_retry(&(brim_retry_options){0}, NULL, &w), BRIM_EINVAL);
  assert_int_equal(w.count, 0);
}

/* ---- adaptive batch ---- */

static void micro_batches_halve_and_the_effective_batch_is_unchanged(void **state)
{
  const brim_adapt_options options = {.effective_batch = 128, .micro_batch = 32, .min_micro_batch = 4};
  work w = {.room = 9};
  brim_adapted used = {0};
  assert_int_equal(brim_adapt_batch(&options, step, &w, &used), BRIM_OK);
  assert_tried(&w, 3, (int64_t[]){32, 16, 8}, 128);
  assert_int_equal(used.micro_batch, 8);
  assert_int_equal(used.accumulation, 16);
  assert_int_equal(used.attempts, 3);
}

static void a_batch_that_fits_is_not_made_smaller(void **state)
{
  const brim_adapt_options options = {.effective_batch = 100};
  work w = {.room = 100};
  brim_adapted used = {0};
  assert_int_equal(brim_adapt_batch(&options, step, &w, &used), BRIM_OK);
  assert_tried(&w, 1, (int64_t[]){100}, 100);
  assert_int_equal(used.accumulation, 1);
}

static void only_divisors_are_tried_even_first(void **state)
{
  brim_adapt_options options = {.effective_batch = 90, .micro_batch = 40};
  work w = {0};
  assert_int_equal(brim_adapt_batch(&options, step, &w, NULL), BRIM_ENOMEM_DEVICE);
  assert_tried(&w, 5, (int64_t[]){30, 15, 6, 3, 1}, 90);
  /* The batch is a prime number, and smaller than the micro-batch. */
  options = (brim_adapt_options){.effective_batch = 97, .micro_batch = 1000};
  w = (work){0};
  assert_int_equal(brim_adapt_batch(&options, step, &w, NULL), BRIM_ENOMEM_DEVICE);
  assert_tried(&w, 2, (int64_t[]){97, 1}, 97);
}

/* The test covers every effective batch up to 48, with every initial micro-batch and every minimum. */
static void the_product_is_always_the_effective_batch(void **state)
{
  for (int64_t effective = 1; effective <= 48; effective++)
    for (int64_t first = 1; first <= effective; first++)
      for (int64_t least = 1; least <= first; least++) {
        const brim_adapt_options options = {effective, first, least, NULL};
        work w = {0};
        const brim_status status = brim_adapt_batch(&options, step, &w, NULL);
        assert_int_equal(status == BRIM_EINVAL, w.count == 0);
        for (int i = 0; i < w.count; i++) {
          assert_int_equal(w.micro_batch[i] * w.accumulation[i], effective);
          assert_in_range(w.micro_batch[i], least, first);
          if (i > 0 && i < w.count - 1) assert_true(2 * w.micro_batch[i] <= w.micro_batch[i - 1]);
          if (i > 0) assert_true(w.micro_batch[i] < w.micro_batch[i - 1]);
        }
        for (int64_t d = least; w.count > 0 && d < w.micro_batch[w.count - 1]; d++)
          assert_true(effective % d != 0); /* the last attempt had the smallest allowed micro-batch */
      }
}

static void at_the_minimum_it_fails_and_lists_all_attempts(void **state)
{
  const brim_adapt_options options = {.effective_batch = 128, .micro_batch = 32, .min_micro_batch = 8};
  work w = {.with = BRIM_ENOMEM_HOST, .text = "7 MiB are missing"};
  brim_adapted used = {-1, -1, -1};
  assert_int_equal(brim_adapt_batch(&options, step, &w, &used), BRIM_ENOMEM_HOST);
  assert_string_equal(brim_error_text(), "7 MiB are missing\nno micro-batch fits: tried 32 x 4, 16 x 8, 8 x 16; "
                                         "min_micro_batch is 8");
  assert_int_equal(used.attempts, -1);
}

static void if_half_is_too_small_the_smallest_allowed_batch_is_tried(void **state)
{
  const brim_adapt_options options = {.effective_batch = 12, .micro_batch = 6, .min_micro_batch = 4};
  work w = {.room = 4};
  assert_int_equal(brim_adapt_batch(&options, step, &w, NULL), BRIM_OK);
  assert_tried(&w, 2, (int64_t[]){6, 4}, 12);
}

static void the_handler_receives_the_next_attempt_and_may_give_up(void **state)
{
  listener l = {.give_up_at = 2};
  const brim_oom_handler handler = {listen, &l};
  const brim_adapt_options options = {.effective_batch = 64, .on_oom = &handler};
  work w = {.text = "full"};
  assert_int_equal(brim_adapt_batch(&options, step, &w, NULL), BRIM_ENOMEM_DEVICE);
  assert_string_equal(brim_error_text(), "full");
  assert_tried(&w, 2, (int64_t[]){64, 32}, 64);
  assert_int_equal(l.count, 2);
  assert_int_equal(l.heard[1].attempt, 2);
  assert_int_equal(l.heard[1].micro_batch, 32);
  assert_int_equal(l.heard[1].accumulation, 2);
  assert_int_equal(l.heard[1].next_micro_batch, 16);
  assert_int_equal(l.heard[1].next_accumulation, 4);
}

static void impossible_batches_are_refused(void **state)
{
  const brim_adapt_options wrong[] = {
      {.effective_batch = 0}, {.effective_batch = 8, .micro_batch = -1}, {.effective_batch = 8, .min_micro_batch = -1}};
  const brim_adapt_options between = {.effective_batch = 12, .micro_batch = 11, .min_micro_batch = 7};
  work w = {.room = 100};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    assert_int_equal(brim_adapt_batch(&wrong[i], step, &w, NULL), BRIM_EINVAL);
  assert_int_equal(brim_adapt_batch(&between, step, &w, NULL), BRIM_EINVAL);
  assert_says("no divisor of the effective batch 12 is a micro-batch from 7 to 11");
  assert_int_equal(brim_adapt_batch(&(brim_adapt_options){.effective_batch = 1}, NULL, &w, NULL), BRIM_EINVAL);
  assert_int_equal(w.count, 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(three_retries_are_four_attempts),
      cmocka_unit_test(without_retries_there_is_one_attempt),
      cmocka_unit_test(three_statuses_are_out_of_memory_and_no_other),
      cmocka_unit_test(another_error_ends_it_at_once_with_its_own_text),
      cmocka_unit_test(the_handler_is_called_between_attempts),
      cmocka_unit_test(memory_freed_by_the_handler_helps_the_next_attempt),
      cmocka_unit_test(a_failure_without_text_is_reported_by_its_status),
      cmocka_unit_test(a_signal_ends_a_wait),
      cmocka_unit_test(invalid_retry_options_are_refused),
      cmocka_unit_test(micro_batches_halve_and_the_effective_batch_is_unchanged),
      cmocka_unit_test(a_batch_that_fits_is_not_made_smaller),
      cmocka_unit_test(only_divisors_are_tried_even_first),
      cmocka_unit_test(the_product_is_always_the_effective_batch),
      cmocka_unit_test(at_the_minimum_it_fails_and_lists_all_attempts),
      cmocka_unit_test(if_half_is_too_small_the_smallest_allowed_batch_is_tried),
      cmocka_unit_test(the_handler_receives_the_next_attempt_and_may_give_up),
      cmocka_unit_test(impossible_batches_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
