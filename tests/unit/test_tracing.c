/* Tests the recorder of traces, and the clocks of ranks. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/tracing.h"
#include "train/clocks.h"

static size_t count_events(uint64_t *lost)
{
  size_t count;
  (void)brim_tracing_events(&count, lost);
  return count;
}

static int release(void **unused)
{
  (void)unused;
  brim_tracing_release();
  return 0;
}

static void nothing_is_recorded_unless_started(void **unused)
{
  (void)unused;
  uint64_t lost;
  assert_int_equal(brim_tracing_begin("x"), 0);
  brim_tracing_start(); /* no memory was reserved for events */
  assert_false(brim_tracing_records());
  assert_int_equal(brim_tracing_reserve(4), BRIM_OK);
  brim_tracing_add(1, 2, BRIM_TRACING_PHASE, "x", 0);
  brim_tracing_note("x");
  assert_int_equal(count_events(&lost), 0);
  assert_int_equal(lost, 0);
}

static void spans_have_their_times_and_thread(void **unused)
{
  (void)unused;
  size_t count;
  uint64_t lost;
  const int64_t before = brim_tracing_clock();
  assert_int_equal(brim_tracing_reserve(4), BRIM_OK);
  brim_tracing_start();
  const int64_t began = brim_tracing_begin("x");
  brim_tracing_name_thread(BRIM_TRACING_LOADER + 2);
  brim_tracing_end(began, BRIM_TRACING_PHASE, "x", 7);
  brim_tracing_name_thread(BRIM_TRACING_MAIN);
  brim_tracing_note("decided");
  brim_tracing_stop();
  assert_int_equal(brim_tracing_begin("x"), 0);
  const brim_tracing_event *e = brim_tracing_events(&count, &lost);
  assert_int_equal(count, 2);
  assert_true(e[0].begin == began && began >= before && e[0].end >= began && e[0].end <= brim_tracing_clock());
  assert_int_equal(e[0].kind, BRIM_TRACING_PHASE);
  assert_int_equal(e[0].thread, BRIM_TRACING_LOADER + 2);
  assert_int_equal(e[0].value, 7);
  assert_int_equal(e[1].kind, BRIM_TRACING_NOTE);
  assert_string_equal(e[1].of, "decided");
}

static void events_without_room_are_counted(void **unused)
{
  (void)unused;
  char text[2000];
  uint64_t lost;
  assert_int_equal(brim_tracing_reserve(4), BRIM_OK);
  brim_tracing_start();
  for (int64_t i = 0; i < 10; i++) brim_tracing_add(i, i, BRIM_TRACING_PHASE, "x", 0);
  memset(text, 'y', sizeof text - 1);
  text[sizeof text - 1] = '\0';
  for (int i = 0; i < 1000; i++) brim_tracing_note(text); /* more than the memory for texts */
  brim_tracing_stop();
  assert_int_equal(count_events(&lost), 4);
  assert_int_equal(lost, 1006);
  brim_tracing_clear();
  assert_int_equal(count_events(&lost), 0);
}

#define WRITERS 4
#define EACH 20000

static void *write_events(void *unused)
{
  for (int64_t i = 0; i < EACH; i++) brim_tracing_end(brim_tracing_begin("x"), BRIM_TRACING_PHASE, "x", 1);
  return unused;
}

/* After stop() every event is complete, and no thread writes any more. */
static void threads_write_until_stop(void **unused)
{
  (void)unused;
  pthread_t thread[WRITERS];
  size_t count, again;
  uint64_t lost;
  assert_int_equal(brim_tracing_reserve(WRITERS * EACH), BRIM_OK);
  brim_tracing_start();
  for (int i = 0; i < WRITERS; i++) assert_int_equal(pthread_create(&thread[i], NULL, write_events, NULL), 0);
  while (count_events(&lost) < EACH / 10) continue;
  brim_tracing_stop();
  const brim_tracing_event *e = brim_tracing_events(&count, &lost);
  for (size_t i = 0; i < count; i++) assert_true(e[i].kind == BRIM_TRACING_PHASE && e[i].value == 1 && e[i].begin > 0);
  for (int i = 0; i < WRITERS; i++) assert_int_equal(pthread_join(thread[i], NULL), 0);
  (void)brim_tracing_events(&again, &lost);
  assert_int_equal(again, count);
}

/* Rank 1's clock is `offset` ahead; every exchange takes `there` one way and `back` the other. */
static brim_clock_offset offset_with(int64_t offset, const int64_t *there, const int64_t *back, size_t count)
{
  brim_clock_reading first[8], own[8];
  int64_t now = 1000;
  for (size_t i = 0; i < count; i++, now += 1000000) {
    const int64_t end = now + (there[i] > back[i] ? there[i] : back[i]);
    first[i] = (brim_clock_reading){now, end};
    own[i] = (brim_clock_reading){now + offset, end + offset};
  }
  return brim_clock_offset_of(first, own, count);
}

static void clocks_are_found_within_their_error(void **unused)
{
  (void)unused;
  static const int64_t there[] = {9000, 4000, 70000, 5000}, back[] = {30000, 4500, 2000, 90000};
  static const int64_t offsets[] = {0, 123456789, -987654321012, 5};
  for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++)
    for (size_t count = 1; count <= 4; count++) {
      const brim_clock_offset found = offset_with(offsets[i], there, back, count);
      const int64_t wrong = found.nanoseconds - offsets[i];
      assert_true(wrong <= found.error && -wrong <= found.error);
      if (count >= 2) assert_true(found.error <= 4500); /* the best exchange decides */
    }
}

static void a_job_of_one_rank_has_one_clock(void **unused)
{
  (void)unused;
  brim_clock_offset offset = {7, 7};
  int64_t now = 0;
  assert_int_equal(brim_clocks_compare(NULL, &offset, &now), BRIM_OK);
  assert_int_equal(offset.nanoseconds, 0);
  assert_int_equal(offset.error, 0);
  assert_true(now > 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(nothing_is_recorded_unless_started, release),
                                     cmocka_unit_test_teardown(spans_have_their_times_and_thread, release),
                                     cmocka_unit_test_teardown(events_without_room_are_counted, release),
                                     cmocka_unit_test_teardown(threads_write_until_stop, release),
                                     cmocka_unit_test(clocks_are_found_within_their_error),
                                     cmocka_unit_test(a_job_of_one_rank_has_one_clock)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
