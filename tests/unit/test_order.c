/* Which samples belong to which step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "train/order.h"

/* Every sample of every epoch comes exactly once, in order, whatever the micro-batch and accumulation. */
static void spans_cover_each_epoch_once(void **unused)
{
  (void)unused;
  static const int64_t counts[] = {1, 7, 96, 128, 1000};
  for (int c = 0; c < 5; c++)
    for (int64_t batch = 1; batch <= 130; batch += 13)
      for (int64_t accumulation = 1; accumulation <= 5; accumulation++) {
        const int64_t least = 1 + (batch + accumulation) % 2 * (batch - 1);
        const brim_order o = brim_order_make(counts[c], batch, accumulation, least, 3, 0);
        int64_t next = 0, epoch = 0, sequence = 0;
        for (brim_span s; (s = brim_order_span(&o, sequence)).count > 0; sequence++) {
          assert_int_equal(s.epoch, epoch);
          assert_int_equal(s.first, next);
          assert_true(s.count <= batch + least - 1);
          next += s.count;
          if (next == counts[c]) {
            next = 0;
            epoch++;
          }
        }
        assert_int_equal(epoch, 3);
        assert_int_equal(next, 0);
      }
}

/* A step's span is the union of its micro-batches, and brim_order_sequence finds the first of them. */
static void steps_are_made_of_their_micro_batches(void **unused)
{
  (void)unused;
  const brim_order o = brim_order_make(1000, 16, 3, 1, 2, 0);
  assert_int_equal(o.steps_per_epoch, 21);
  assert_int_equal(o.steps, 42);
  for (int64_t step = 0; step < o.steps; step++) {
    const brim_span whole = brim_order_step(&o, step);
    int64_t sequence = brim_order_sequence(&o, step), done = 0;
    while (done < whole.count) {
      const brim_span s = brim_order_span(&o, sequence++);
      assert_int_equal(s.epoch, whole.epoch);
      assert_int_equal(s.first, whole.first + done);
      done += s.count;
    }
    assert_int_equal(done, whole.count);
    assert_int_equal(sequence, brim_order_sequence(&o, step + 1));
  }
}

/* Batch norm has no statistics of 4 samples: they join the micro-batch before, if it is of the same step. */
static void a_short_rest_joins_the_micro_batch_before_it(void **unused)
{
  (void)unused;
  const brim_order o = brim_order_make(100, 32, 4, 16, 2, 0);
  assert_int_equal(o.steps_per_epoch, 1);
  for (int i = 0; i < 6; i++) assert_int_equal(brim_order_span(&o, i).count, i % 3 == 2 ? 36 : 32);
  assert_int_equal(brim_order_span(&o, 6).count, 0);
  const brim_order enough = brim_order_make(112, 32, 4, 16, 1, 0);
  assert_int_equal(brim_order_span(&enough, 3).count, 16);
  const brim_order alone = brim_order_make(100, 32, 1, 16, 1, 0); /* a step of its own */
  assert_int_equal(alone.steps, 4);
  assert_int_equal(brim_order_span(&alone, 3).count, 4);
  const brim_order first = brim_order_make(68, 32, 2, 16, 1, 0); /* the first of its step */
  assert_int_equal(first.steps, 2);
  assert_int_equal(brim_order_span(&first, 2).count, 4);
}

/* The same effective batch gives the same steps, whatever it is made of. */
static void steps_depend_on_the_effective_batch_only(void **unused)
{
  (void)unused;
  const brim_order a = brim_order_make(60000, 128, 1, 1, 5, 0), b = brim_order_make(60000, 16, 8, 1, 5, 0);
  assert_int_equal(a.steps, b.steps);
  for (int64_t step = 0; step < a.steps; step++) {
    const brim_span x = brim_order_step(&a, step), y = brim_order_step(&b, step);
    assert_int_equal(x.epoch, y.epoch);
    assert_int_equal(x.first, y.first);
    assert_int_equal(x.count, y.count);
    assert_int_equal(brim_order_ends_epoch(&a, step), brim_order_ends_epoch(&b, step));
  }
}

static void steps_win_over_epochs(void **unused)
{
  (void)unused;
  const brim_order o = brim_order_make(100, 10, 1, 1, 5, 23);
  assert_int_equal(o.steps, 23);
  assert_int_equal(brim_order_span(&o, 22).epoch, 2);
  assert_int_equal(brim_order_span(&o, 23).count, 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(spans_cover_each_epoch_once), cmocka_unit_test(steps_are_made_of_their_micro_batches),
      cmocka_unit_test(a_short_rest_joins_the_micro_batch_before_it),
      cmocka_unit_test(steps_depend_on_the_effective_batch_only), cmocka_unit_test(steps_win_over_epochs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
