/* Tests LSTM and the losses on the cpu backend, beyond the conformance suite: on every instruction set of this
 * processor, on numbers of threads that split the work differently, with logits that overflow exp(); and scratch of the
 * loss with the product inside, which does not grow with rows and classes. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/isa.h"
#include "cpu/run.h"

#define BATCH 37

static brim_tensor *make_lstm(bench *b)
{
  const brim_shape shape = {3, {BATCH, 9, 13}};
  return brim_lstm(b->g, "lstm", bench_input(b, &shape, "x"), 21, (brim_lstm_options){.layers = 2, .bidirectional = 1});
}

/* Builds a loss of x [BATCH, steps, 30] with `classes` classes. `bound` limits the values of product and bias. Labels
 * are below `below`, and the loss ignores label 3. */
static brim_tensor *linear_loss_of(bench *b, int64_t steps, int64_t classes, double bound, int64_t below)
{
  const brim_shape x = {3, {BATCH, steps, 30}}, product = {2, {classes, 30}}, label = {2, {BATCH, steps}};
  const brim_shape bias = {1, {classes}};
  brim_tensor *in[4] = {bench_input(b, &x, "x")};
  in[1] = bench_parameter(b, "product", &product, bound);
  in[2] = bench_indices(b, &label, below, "label");
  in[3] = bench_parameter(b, "bias", &bias, bound);
  const brim_attr attr = {.loss = {.smoothing = 0.1, .ignores = 1, .ignore_index = 3}};
  const brim_node *n = brim_graph_node(b->g, "linear_cross_entropy", "loss", in, 4, &attr);
  return n ? n->out[0] : NULL;
}
static brim_tensor *linear_loss(bench *b, int64_t steps, int64_t classes, double bound)
{
  return linear_loss_of(b, steps, classes, bound, classes);
}
/* Ignores a fourth of the labels, in pieces with and without gaps. */
static brim_tensor *make_loss_with_gaps(bench *b)
{
  return linear_loss_of(b, 20, 1100, 1, 4);
}
static brim_tensor *make_linear_loss(bench *b)
{
  return linear_loss(b, 8, 1100, 1); /* two pieces of rows, two of classes */
}
static brim_tensor *make_steep_loss(bench *b)
{
  return linear_loss(b, 8, 1100, 100);
}
static brim_tensor *make_small_loss(bench *b)
{
  return linear_loss(b, 7, 1024, 1); /* one piece */
}
static brim_tensor *make_large_loss(bench *b)
{
  return linear_loss(b, 70, 4096, 1);
}

/* Rows are longer than one fp32 partial sum. */
static brim_tensor *make_bce(bench *b)
{
  const brim_shape shape = {2, {BATCH, 4500}};
  brim_tensor *const in[] = {bench_input(b, &shape, "y"),
                             brim_graph_tensor(b->g, BRIM_ROLE_DATA, b->g->real, &shape, "target")};
  return brim_graph_apply(b->g, "bce", "loss", in, 2, NULL);
}

static const bench_row lstm = {"lstm", make_lstm}, usual = {"linear_cross_entropy", make_linear_loss, .is_loss = true},
                       steep = {"steep", make_steep_loss, .is_loss = true}, bce = {"bce", make_bce, .is_loss = true},
                       gaps = {"gaps", make_loss_with_gaps, .is_loss = true},
                       small = {"small", make_small_loss, .is_loss = true},
                       large = {"large", make_large_loss, .is_loss = true};

static bench_options options_of(const bench_row *row)
{
  return (bench_options){.row = row, .batch = BATCH, .gradients_at_zero = true};
}
static void start(run *r, const bench_row *row, const char *id, const char *settings)
{
  const bench_options options = options_of(row);
  run_start(r, &options, id, settings);
}

static void test_threads_do_not_change_a_bit(void **state)
{
  static const bench_row *const rows[] = {&lstm, &usual, &gaps, &bce};
  static const char *const threads[] = {"{threads: 2}", "{threads: 7}", "{threads: 32}"};
  for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
    const bench_options options = options_of(rows[k]);
    run_check_same_bits(&options, threads, sizeof threads / sizeof threads[0]);
  }
}

static void agree(const bench_row *row, double error_max)
{
  run expected, got;
  start(&expected, row, "reference", NULL);
  run_finish(&expected);
  for (size_t i = 0; i < 3; i++) {
    if (!has_isa(isas[i])) continue;
    char settings[32];
    snprintf(settings, sizeof settings, "{isa: %s}", isas[i]);
    start(&got, row, "cpu", settings);
    run_finish(&got);
    for (size_t t = 0; t < got.b->g->tensor_count; t++) {
      const double error = run_difference(&got, &expected, t, DBL_MIN);
      if (!(error <= error_max))
        fail_msg("%s, %s: '%s' error %g", row->name, isas[i], got.b->g->tensor[t]->name, error);
    }
    run_stop(&got);
  }
  run_stop(&expected);
}

static void test_every_instruction_set_agrees_with_the_reference(void **state)
{
  agree(&lstm, 1e-5);
  agree(&usual, 1e-5);
  agree(&gaps, 1e-5);
  agree(&bce, 1e-5);
}

/* Logits of several hundred: the bound allows for their rounding in fp32. */
static void test_logits_too_large_for_exp_do_no_harm(void **state)
{
  agree(&steep, 5e-4);
}

static uint64_t scratch_bytes(const bench_row *row)
{
  run r;
  uint64_t most = 0;
  start(&r, row, "cpu", "{threads: 2}");
  for (size_t i = 0; i < r.b->g->node_count; i++)
    if (r.b->program.need[i].workspace_bytes > most) most = r.b->program.need[i].workspace_bytes;
  run_stop(&r);
  return most;
}

static void test_scratch_does_not_grow_with_rows_and_classes(void **state)
{
  assert_int_equal(scratch_bytes(&small), scratch_bytes(&large));
  assert_true(scratch_bytes(&large) < (uint64_t)BATCH * 70 * 4096 * sizeof(float) / 10); /* a tenth of the logits */
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_threads_do_not_change_a_bit),
      cmocka_unit_test(test_every_instruction_set_agrees_with_the_reference),
      cmocka_unit_test(test_logits_too_large_for_exp_do_no_harm),
      cmocka_unit_test(test_scratch_does_not_grow_with_rows_and_classes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
