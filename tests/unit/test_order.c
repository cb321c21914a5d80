/* The samples of each step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "data/order.h"

/* Makes the order of one rank with `accumulation` micro-batches a step. */
static brim_order alone(int64_t count, int64_t batch, int64_t accumulation, int64_t unit, int64_t epochs, int64_t steps)
{
  return brim_order_make(count, batch * accumulation, batch, unit, brim_portion_even(0, 1), epochs, steps);
}

/* Every sample of every epoch comes exactly once, in order, whatever the micro-batch and accumulation. */
static void spans_cover_each_epoch_once(void **unused)
{
  (void)unused;
  static const int64_t counts[] = {1, 7, 96, 128, 1000};
  for (int c = 0; c < 5; c++)
    for (int64_t batch = 1; batch <= 130; batch += 13)
      for (int64_t accumulation = 1; accumulation <= 5; accumulation++) {
        const int64_t least = 1 + (batch + accumulation) % 2 * (batch - 1);
        const brim_order o = alone(counts[c], batch, accumulation, least, 3, 0);
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
  const brim_order o = alone(1000, 16, 3, 1, 2, 0);
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

/* Batch norm has no statistics for 4 samples: they join the previous micro-batch, if it belongs to the same step. */
static void a_short_rest_joins_the_micro_batch_before_it(void **unused)
{
  (void)unused;
  const brim_order o = alone(100, 32, 4, 16, 2, 0);
  assert_int_equal(o.steps_per_epoch, 1);
  for (int i = 0; i < 6; i++) assert_int_equal(brim_order_span(&o, i).count, i % 3 == 2 ? 36 : 32);
  assert_int_equal(brim_order_span(&o, 6).count, 0);
  const brim_order enough = alone(112, 32, 4, 16, 1, 0);
  assert_int_equal(brim_order_span(&enough, 3).count, 16);
  const brim_order apart = alone(100, 32, 1, 16, 1, 0); /* the rest is a separate step */
  assert_int_equal(apart.steps, 4);
  assert_int_equal(brim_order_span(&apart, 3).count, 4);
  const brim_order first = alone(68, 32, 2, 16, 1, 0); /* the rest is the first micro-batch of its step */
  assert_int_equal(first.steps, 2);
  assert_int_equal(brim_order_span(&first, 2).count, 4);
}

/* The steps depend only on the effective batch, not on its micro-batch and accumulation. */
static void steps_depend_on_the_effective_batch_only(void **unused)
{
  (void)unused;
  const brim_order a = alone(60000, 128, 1, 1, 5, 0), b = alone(60000, 16, 8, 1, 5, 0);
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
  const brim_order o = alone(100, 10, 1, 1, 5, 23);
  assert_int_equal(o.steps, 23);
  assert_int_equal(brim_order_span(&o, 22).epoch, 2);
  assert_int_equal(brim_order_span(&o, 23).count, 0);
}

/* ---- several ranks ---- */

/* Ranks whose weights divide a step. NULL: all ranks have equal parts. */
typedef struct ranks_of_step {
  int32_t ranks;
  const int64_t *weight;
} ranks_of_step;

static const int64_t uneven[] = {3, 1, 7, 5}, extreme[] = {1, 126, 1};
static const ranks_of_step jobs[] = {{1, NULL}, {2, NULL}, {3, NULL}, {4, NULL}, {7, NULL}, {4, uneven}, {3, extreme}};

static brim_portion portion_of(const ranks_of_step *d, int32_t rank)
{
  brim_portion p = {0, 0, 0};
  if (!d->weight) return brim_portion_even(rank, d->ranks);
  for (int32_t r = 0; r < d->ranks; r++) {
    p.from += r < rank ? d->weight[r] : 0;
    p.to += r <= rank ? d->weight[r] : 0;
    p.of += d->weight[r];
  }
  return p;
}

/* Checks the micro-batches of a rank's share of a step: they cover it, have the reported sizes, and split no unit. */
static void check_micro_batches(const brim_order *o, int64_t step)
{
  const brim_span whole = brim_order_step(o, step), share = brim_order_share(o, step);
  int64_t size[BRIM_ORDER_SIZES], done = 0;
  const size_t sizes = brim_order_sizes(o, size);
  for (int64_t k = brim_order_sequence(o, step); k < brim_order_sequence(o, step + 1); k++) {
    const brim_span s = brim_order_span(o, k);
    bool reported = false;
    for (size_t i = 0; i < sizes; i++) reported = reported || size[i] == s.count;
    assert_true(reported);
    assert_int_equal(s.epoch, whole.epoch);
    assert_int_equal(s.first, share.first + done);
    assert_int_equal((s.first - whole.first) % o->unit, 0);
    assert_true(s.count >= o->unit || s.count == whole.count);
    assert_true(s.count <= brim_order_batch_max(o) && s.count <= o->batch + o->unit - 1);
    done += s.count;
  }
  assert_int_equal(done, share.count);
}

/* The shares of all ranks, one after the other, are the step of a single rank. */
static void check_step(const ranks_of_step *d, int64_t count, int64_t effective, int64_t batch, int64_t unit,
                       int64_t step)
{
  const brim_order one = brim_order_make(count, effective, effective, unit, brim_portion_even(0, 1), 2, 0);
  const brim_span whole = brim_order_step(&one, step);
  int64_t next = whole.first;
  for (int32_t r = 0; r < d->ranks; r++) {
    const brim_order o = brim_order_make(count, effective, batch, unit, portion_of(d, r), 2, 0);
    const brim_span share = brim_order_share(&o, step);
    assert_int_equal(o.steps, one.steps);
    assert_int_equal(brim_order_ends_epoch(&o, step), brim_order_ends_epoch(&one, step));
    assert_int_equal(share.epoch, whole.epoch);
    assert_int_equal(share.first, next);
    assert_true(share.count >= 0);
    if (share.count > 0) assert_int_equal((share.first - whole.first) % unit, 0);
    next += share.count;
    check_micro_batches(&o, step);
    if (step == o.steps - 1) assert_int_equal(brim_order_span(&o, brim_order_sequence(&o, o.steps)).count, 0);
  }
  assert_int_equal(next, whole.first + whole.count);
}

static void all_ranks_together_have_the_step_of_one(void **unused)
{
  (void)unused;
  static const int64_t counts[] = {1, 5, 100, 129, 480}, effectives[] = {1, 16, 48, 60, 128}, units[] = {1, 4, 16};
  for (int d = 0; d < 7; d++)
    for (int c = 0; c < 5; c++)
      for (int e = 0; e < 5; e++)
        for (int u = 0; u < 3; u++)
          for (int64_t batch = units[u]; batch <= 2 * effectives[e]; batch += units[u]) {
            const int64_t steps = 2 * ((counts[c] + effectives[e] - 1) / effectives[e]);
            for (int64_t step = 0; step < steps; step += step < 3 || step > steps - 4 ? 1 : steps / 3)
              check_step(&jobs[d], counts[c], effectives[e], batch, units[u], step);
          }
}

/* For every rank, the numbers of micro-batches continue from step to step. A resumed run needs them to find its
 * position. */
static void micro_batches_are_numbered_through_the_run(void **unused)
{
  (void)unused;
  for (int d = 0; d < 7; d++)
    for (int32_t r = 0; r < jobs[d].ranks; r++) {
      const brim_order o = brim_order_make(485, 96, 16, 16, portion_of(&jobs[d], r), 3, 0);
      int64_t sequence = 0;
      for (int64_t step = 0; step < o.steps; step++) {
        assert_int_equal(brim_order_sequence(&o, step), sequence);
        sequence += brim_order_ends_epoch(&o, step) ? o.last_micros : o.micros;
      }
      assert_int_equal(brim_order_sequence(&o, o.steps), sequence);
    }
}

static void fewer_groups_than_ranks_leave_some_without(void **unused)
{
  (void)unused;
  int64_t has[4];
  for (int32_t r = 0; r < 4; r++) {
    const brim_order o = brim_order_make(480, 50, 16, 16, brim_portion_even(r, 4), 1, 0);
    has[r] = brim_order_share(&o, 0).count;
    if (has[r] > 0) continue;
    assert_int_equal(o.micros, 0);
    assert_int_equal(brim_order_batch_max(&o), 0);
    assert_int_equal(brim_order_span(&o, 0).count, 0);
  }
  assert_int_equal(has[0], 0);
  assert_int_equal(has[1], 16);
  assert_int_equal(has[2], 16);
  assert_int_equal(has[3], 18); /* the last group includes the rest */
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(spans_cover_each_epoch_once),
                                     cmocka_unit_test(steps_are_made_of_their_micro_batches),
                                     cmocka_unit_test(a_short_rest_joins_the_micro_batch_before_it),
                                     cmocka_unit_test(steps_depend_on_the_effective_batch_only),
                                     cmocka_unit_test(steps_win_over_epochs),
                                     cmocka_unit_test(all_ranks_together_have_the_step_of_one),
                                     cmocka_unit_test(micro_batches_are_numbered_through_the_run),
                                     cmocka_unit_test(fewer_groups_than_ranks_leave_some_without)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
