/* Tests the normalisations on the cpu backend, beyond the conformance suite: on every instruction set of this
 * processor, on numbers of threads that split the work differently, and on values far from 0, whose variance is lost if
 * it is computed as the difference of two large numbers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/isa.h"
#include "cpu/run.h"

#define BATCH 19 /* four groups of 4, the last with 3 more */

/* Returns an input whose channels are in blocks if the backend's reshape makes blocks. */
static brim_tensor *blocked_input(bench *b, int64_t channels)
{
  brim_tensor *x = bench_input(b, &(brim_shape){2, {BATCH, channels * 63}}, "x");
  return brim_reshape(b->g, x, 4, (int64_t[]){BATCH, channels, 9, 7});
}
static brim_tensor *make_batch_norm_blocked(bench *b)
{
  return brim_batch_norm(b->g, "norm", blocked_input(b, 48), 1e-5, 0.1);
}
static brim_tensor *make_batch_norm_plain(bench *b)
{
  return brim_batch_norm(b->g, "norm", blocked_input(b, 5), 1e-5, 0.1);
}
static brim_tensor *make_batch_norm_flat(bench *b)
{
  brim_tensor *x = bench_input(b, &(brim_shape){2, {BATCH, 131}}, "x"); /* two strips of channels, and a remainder */
  return brim_batch_norm(b->g, "norm", x, 1e-2, 0.1);
}
static brim_tensor *make_group_norm(bench *b)
{
  /* Groups of 12 channels cross the borders of blocks. */
  return brim_group_norm(b->g, "norm", blocked_input(b, 48), 4, 1e-5);
}
static brim_tensor *make_layer_norm(bench *b)
{
  brim_tensor *x = bench_input(b, &(brim_shape){3, {BATCH, 70, 45}}, "x"); /* two pieces of rows a sample */
  return brim_layer_norm(b->g, "norm", x, 1e-5);
}
static brim_tensor *make_rms_norm(bench *b)
{
  brim_tensor *x = bench_input(b, &(brim_shape){3, {BATCH, 70, 45}}, "x");
  return brim_rms_norm(b->g, "norm", x, 1e-5);
}

static const bench_row rows[] = {
    {"batch_norm, in blocks", make_batch_norm_blocked, .norm_group = 4},
    {"batch_norm, plain", make_batch_norm_plain, .norm_group = 4},
    {"batch_norm, flat", make_batch_norm_flat, .norm_group = 4},
    {"group_norm", make_group_norm},
    {"layer_norm", make_layer_norm},
    {"rms_norm", make_rms_norm},
};
#define EACH_ROW(row) for (const bench_row *row = rows; row < rows + sizeof rows / sizeof rows[0]; row++)

static bench_options options_of(const bench_row *row)
{
  return (bench_options){.row = row, .batch = BATCH};
}
static void start(run *r, const bench_row *row, const char *id, const char *settings)
{
  const bench_options options = options_of(row);
  run_start(r, &options, id, settings);
}

static void test_threads_do_not_change_a_bit(void **state)
{
  static const char *const threads[] = {"{threads: 2}", "{threads: 7}"};
  EACH_ROW (row) {
    const bench_options options = options_of(row);
    run_check_same_bits(&options, threads, sizeof threads / sizeof threads[0]);
  }
}

static void check_isa(const bench_row *row, const run *expected, const char *isa)
{
  char settings[32];
  run got;
  snprintf(settings, sizeof settings, "{isa: %s}", isa);
  start(&got, row, "cpu", settings);
  run_finish(&got);
  for (size_t t = 0; t < got.b->g->tensor_count; t++) {
    const double error = run_difference(&got, expected, t, 0);
    if (!(error <= 1e-5)) fail_msg("%s, %s: '%s' error %g", row->name, isa, got.b->g->tensor[t]->name, error);
  }
  run_stop(&got);
}

static void test_every_instruction_set_agrees_with_the_reference(void **state)
{
  EACH_ROW (row) {
    run expected;
    start(&expected, row, "reference", NULL);
    run_finish(&expected);
    for (size_t i = 0; i < 3; i++)
      if (has_isa(isas[i])) check_isa(row, &expected, isas[i]);
    run_stop(&expected);
  }
}

/* Both backends get the same numbers around 1000, rounded to single precision. */
static void move_away(const run *r)
{
  const brim_tensor *x = r->b->g->tensor[0];
  for (int64_t i = 0; i < brim_shape_count(&x->shape); i++) {
    float *single = (float *)r->b->memory[x->id] + i;
    double *twice = (double *)r->b->memory[x->id] + i;
    if (x->dtype == BRIM_DTYPE_F32)
      *single += 1000;
    else
      *twice = (float)*twice + 1000.0F;
  }
}

static void test_variances_are_right_far_from_zero(void **state)
{
  EACH_ROW (row) {
    run expected, got;
    if (row->make == make_rms_norm) continue; /* rms_norm has no mean */
    start(&expected, row, "reference", NULL);
    start(&got, row, "cpu", NULL);
    move_away(&expected);
    move_away(&got);
    run_finish(&expected);
    run_finish(&got);
    for (size_t i = 0; i < got.b->g->forward_count; i++) {
      const brim_node *n = got.b->g->node[i];
      if (n->out_count < 3) continue;
      const double error = run_difference(&got, &expected, n->out[2]->id, 0); /* rstd */
      if (!(error <= 1e-6)) fail_msg("%s: 1/deviation has error %g", row->name, error);
    }
    run_stop(&got);
    run_stop(&expected);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_threads_do_not_change_a_bit),
      cmocka_unit_test(test_every_instruction_set_agrees_with_the_reference),
      cmocka_unit_test(test_variances_are_right_far_from_zero),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
