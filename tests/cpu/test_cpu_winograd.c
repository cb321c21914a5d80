/* Tests convolutions by Winograd's transforms, forward and both gradients, beyond the conformance suite: on every
 * instruction set of this processor, on numbers of threads that split tiles and units differently, and on planes that
 * are not whole tiles. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "cpu/isa.h"
#include "cpu/run.h"

/* After the first convolution channels lie in blocks, and so do the gradients before the last function. */
static brim_tensor *make(bench *b, int64_t height, int64_t width, int32_t padding)
{
  brim_tensor *x = bench_input(b, &(brim_shape){4, {b->o.batch, 4, height, width}}, "x");
  x = brim_conv2d(b->g, "before", x, 64, (brim_conv2d_options){.kernel = {1, 1}});
  x = brim_conv2d(b->g, "y", x, 80, (brim_conv2d_options){.kernel = {3, 3}, .padding = {padding, padding}});
  return brim_silu(b->g, x);
}
static brim_tensor *make_odd(bench *b)
{
  return make(b, 5, 8, 1);
}
static brim_tensor *make_padded(bench *b)
{
  return make(b, 4, 3, 2);
}
static brim_tensor *make_bare(bench *b)
{
  return make(b, 6, 7, 0);
}
static const bench_row rows[] = {{"odd", make_odd}, {"padded", make_padded}, {"bare", make_bare}};
#define ROWS (sizeof rows / sizeof rows[0])

static bench_options options_of(const bench_row *row, int64_t batch)
{
  return (bench_options){.row = row, .batch = batch, .grain = 4};
}

static void compare(const run *got, const run *expected, const char *isa)
{
  for (size_t t = 0; t < got->b->g->tensor_count; t++) {
    const double error = run_difference(got, expected, t, 0);
    if (!(error <= 1e-5)) fail_msg("%s: '%s' error %g", isa, got->b->g->tensor[t]->name, error);
  }
}

/* The widest set comes first: oneDNN keeps the block size of the first instruction set, and blocks of a narrower set
 * are not whole vectors of a wider one. */
static void test_every_instruction_set_agrees_with_the_reference(void **state)
{
  for (size_t i = 3; i-- > 0;)
    for (size_t k = 0; k < ROWS && has_isa(isas[i]); k++) {
      const bench_options options = options_of(&rows[k], 5);
      run expected, got;
      char settings[32];
      snprintf(settings, sizeof settings, "{isa: %s}", isas[i]);
      run_start(&expected, &options, "reference", NULL);
      run_start(&got, &options, "cpu", settings);
#if defined(__x86_64__) /* elsewhere oneDNN may have no convolution with channels in blocks, which Winograd's needs */
      assert_true(got.b->g->node[0]->out[0]->channel_block >= 8);
#endif
      run_finish(&expected);
      run_finish(&got);
      compare(&got, &expected, isas[i]);
      run_stop(&got);
      run_stop(&expected);
    }
}

static void test_threads_do_not_change_a_bit(void **state)
{
  static const char *const threads[] = {"{threads: 2}", "{threads: 7}"};
  for (size_t k = 0; k < ROWS; k++) {
    const bench_options options = options_of(&rows[k], 11);
    run_check_same_bits(&options, threads, sizeof threads / sizeof threads[0]);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_instruction_set_agrees_with_the_reference),
      cmocka_unit_test(test_threads_do_not_change_a_bit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
