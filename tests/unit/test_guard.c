/* Tests guards: functions on a separate thread that can be abandoned, and their effects after that. */
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/crash.h"
#include "base/error.h"
#include "base/guard.h"

#define SHORT_SECONDS 0.1
#define LONG_SECONDS 30 /* longer than the test waits */

typedef struct seen {
  sem_t resume;
  atomic_int asked, passed;
  brim_status (*ask)(brim_guard_work work, void *context);
} seen;

static void nap(double seconds)
{
  const struct timespec time = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
  nanosleep(&time, NULL);
}

static brim_guard *open_guard(void)
{
  brim_guard *guard = NULL;
  assert_int_equal(brim_guard_open(&guard), BRIM_OK);
  return guard;
}

static brim_status count(void *context)
{
  seen *s = context;
  atomic_fetch_add(&s->asked, 1);
  return BRIM_OK;
}

/* ---- the time limit ---- */

static brim_status naps(void *context)
{
  nap(3 * SHORT_SECONDS);
  return count(context);
}

static brim_status loops(void *context)
{
  const seen *s = context;
  while (atomic_load(&s->passed) == 0) continue;
  return BRIM_OK;
}

static void processor_time_and_waiting_count_apart(void **state)
{
  static seen s;
  const brim_guard_call computes = {"test", NULL, "work", SHORT_SECONDS, LONG_SECONDS},
                        waits = {"test", NULL, "work", LONG_SECONDS, SHORT_SECONDS};
  brim_guard *guard = open_guard();
  assert_int_equal(brim_guard_run(guard, &computes, naps, &s), BRIM_OK);
  brim_guard_close(guard);
  assert_int_equal(brim_guard_run(open_guard(), &computes, loops, &s), BRIM_EPLUGIN);
  assert_string_equal(brim_error_text(),
                      "test did not return from work and was abandoned after 0.1 s of processor time");
  atomic_store(&s.passed, 1); /* ends its loop, so that it does not keep a processor busy */
  assert_int_equal(brim_guard_run(open_guard(), &waits, naps, &s), BRIM_EPLUGIN);
  assert_non_null(strstr(brim_error_text(), "it waited (for a lock, a file, a clock?) and was abandoned after 0.1 s"));
}

static void *occupy(void *context)
{
  (void)loops(context);
  return NULL;
}

/* A thread of lower priority gets a few percent of the processor that both threads share. */
static brim_status loops_behind(void *context)
{
  return setpriority(PRIO_PROCESS, (id_t)gettid(), 19) == 0 ? loops(context) : BRIM_EIO;
}

static void time_in_which_others_have_the_processors_is_not_waiting(void **state)
{
  static seen s, other;
  const brim_guard_call call = {"test", NULL, "work", 0.01, 0.5};
  cpu_set_t before, one;
  pthread_t thread;
  assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
  assert_int_equal(pthread_create(&thread, NULL, occupy, &other), 0);
  brim_guard *guard = open_guard();
  assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
  assert_int_equal(brim_guard_run(guard, &call, loops_behind, &s), BRIM_EPLUGIN);
  assert_string_equal(brim_error_text(),
                      "test did not return from work and was abandoned after 0.01 s of processor time");
  atomic_store(&s.passed, 1);
  atomic_store(&other.passed, 1);
  pthread_join(thread, NULL);
}

/* ---- services of the core ---- */

static brim_status asks_twice(void *context)
{
  seen *s = context;
  const brim_status status = s->ask(count, s);
  return status == BRIM_OK ? s->ask(count, s) : status;
}

static void both_ways_of_asking_are_answered(void **state)
{
  const brim_guard_call call = {"test", NULL, "ask", LONG_SECONDS, LONG_SECONDS};
  for (int here = 0; here < 2; here++) {
    seen s = {.ask = here ? brim_guard_here : brim_guard_back};
    brim_guard *guard = open_guard();
    assert_int_equal(brim_guard_run(guard, &call, asks_twice, &s), BRIM_OK);
    assert_int_equal(s.ask(count, &s), BRIM_OK); /* outside of a guard's thread, the function is called directly */
    assert_int_equal(atomic_load(&s.asked), 3);
    brim_guard_close(guard);
  }
}

static brim_status late(void *context)
{
  seen *s = context;
  while (sem_wait(&s->resume) != 0) continue;
  atomic_store(&s->passed, 1);
  (void)s->ask(count, s);
  atomic_store(&s->passed, 2);
  return BRIM_OK;
}

/* The caller may already have freed the objects that the thread asks about. */
static void an_abandoned_thread_gets_no_answer(void **state)
{
  static seen all[2];
  const brim_guard_call call = {"test", NULL, "late", LONG_SECONDS, SHORT_SECONDS};
  for (int here = 0; here < 2; here++) {
    seen *s = &all[here];
    brim_guard *guard = open_guard();
    s->ask = here ? brim_guard_here : brim_guard_back;
    sem_init(&s->resume, 0, 0);
    assert_int_equal(brim_guard_run(guard, &call, late, s), BRIM_EPLUGIN);
    assert_true(brim_guard_is_lost(guard));
    sem_post(&s->resume);
    while (atomic_load(&s->passed) == 0) nap(0.001);
    nap(0.05);
    assert_int_equal(atomic_load(&s->asked), 0);
    assert_int_equal(atomic_load(&s->passed), 1);
  }
}

static brim_status stays_long(void *context)
{
  nap(4 * SHORT_SECONDS);
  return count(context);
}

static brim_status asks_once(void *context)
{
  seen *s = context;
  (void)s->ask(stays_long, s);
  nap(LONG_SECONDS);
  return BRIM_OK;
}

static unsigned seconds_to_the_end(void)
{
  struct itimerval left;
  getitimer(ITIMER_REAL, &left);
  return (unsigned)left.it_value.tv_sec;
}

/* An alarm ends a process that abandoned a thread, unless the process makes progress, which sets the alarm anew. */
static void the_alarm_limits_the_time_for_saving(void **state)
{
  static seen all[2];
  const brim_guard_call call = {"test", NULL, "late", LONG_SECONDS, SHORT_SECONDS};
  brim_crash_watch();
  for (int i = 0; i < 2; i++) {
    sem_init(&all[i].resume, 0, 0);
    assert_int_equal(seconds_to_the_end(), 0);
    assert_int_equal(brim_guard_run(open_guard(), &call, late, &all[i]), BRIM_EPLUGIN);
    assert_true(seconds_to_the_end() > 60);
    brim_guard_cancel_alarm();
    assert_true(brim_guard_any_lost());
  }
  assert_int_equal(seconds_to_the_end(), 0);
}

/* The thread is abandoned when it returns from the core. */
static void a_thread_inside_the_core_is_not_abandoned(void **state)
{
  static seen s = {.ask = brim_guard_here};
  const brim_guard_call call = {"test", NULL, "asks_once", LONG_SECONDS, SHORT_SECONDS};
  brim_guard *guard = open_guard();
  assert_int_equal(brim_guard_run(guard, &call, asks_once, &s), BRIM_EPLUGIN);
  assert_int_equal(atomic_load(&s.asked), 1);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(processor_time_and_waiting_count_apart),
      cmocka_unit_test(both_ways_of_asking_are_answered),
      cmocka_unit_test(time_in_which_others_have_the_processors_is_not_waiting),
      cmocka_unit_test(the_alarm_limits_the_time_for_saving),
      cmocka_unit_test(an_abandoned_thread_gets_no_answer),
      cmocka_unit_test(a_thread_inside_the_core_is_not_abandoned),
  };
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  brim_crash_allow_exit();
  return failed;
}
