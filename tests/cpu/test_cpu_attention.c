/* Tests attention on the cpu backend, beyond the conformance suite: on every instruction set of this processor, on
 * numbers of threads that split the backward pass differently, with scores that overflow exp(), with masked keys that
 * are not finite; and scratch that does not grow with the sequence. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/isa.h"
#include "cpu/run.h"

#define T 150 /* two blocks of 80 queries and keys, the last partly filled */
#define HEADS 4
#define D 20

/* Builds attention with two query heads for each key head. There are few samples, so not every thread gets one of its
 * own. */
static brim_tensor *make(bench *b, double scale, double dropout)
{
  const brim_shape q = {3, {1, T, HEADS * D}}, k = {3, {1, T, HEADS / 2 * D}};
  const brim_attention_options o = {
      .heads = HEADS, .kv_heads = HEADS / 2, .causal = 1, .scale = scale, .dropout = dropout};
  brim_tensor *x = bench_input(b, &q, "q"), *y = bench_input(b, &k, "k");
  return brim_attention(b->g, x, y, bench_input(b, &k, "v"), o);
}
static brim_tensor *make_usual(bench *b)
{
  return make(b, 0, 0.2);
}
static brim_tensor *make_steep(bench *b)
{
  return make(b, 60, 0);
}
static const bench_row usual = {"usual", make_usual}, steep = {"steep", make_steep};

static bench_options options_of(const bench_row *row)
{
  return (bench_options){.row = row, .batch = 1, .first_sample = 2};
}
static void start(run *r, const bench_row *row, const char *id, const char *settings)
{
  const bench_options options = options_of(row);
  run_start(r, &options, id, settings);
}

static void test_threads_do_not_change_a_bit(void **state)
{
  static const char *const threads[] = {"{threads: 2}", "{threads: 7}", "{threads: 32}"};
  const bench_options options = options_of(&usual);
  run_check_same_bits(&options, threads, sizeof threads / sizeof threads[0]);
}

/* Scores of several hundred: the second bound allows for their rounding in fp32. */
static void test_every_instruction_set_agrees_with_the_reference(void **state)
{
  for (int hard = 0; hard < 2; hard++) {
    run expected, got;
    start(&expected, hard ? &steep : &usual, "reference", NULL);
    run_finish(&expected);
    for (size_t i = 0; i < 3; i++) {
      if (!has_isa(isas[i])) continue;
      char settings[32];
      snprintf(settings, sizeof settings, "{isa: %s}", isas[i]);
      start(&got, hard ? &steep : &usual, "cpu", settings);
      run_finish(&got);
      for (size_t t = 0; t < got.b->g->tensor_count; t++) {
        const double error = run_difference(&got, &expected, t, 0);
        if (!(error <= (hard ? 5e-4 : 1e-5))) fail_msg("%s: '%s' error %g", isas[i], got.b->g->tensor[t]->name, error);
      }
      run_stop(&got);
    }
    run_stop(&expected);
  }
}

/* Only the last query sees the last key. */
static void test_masked_keys_have_no_influence(void **state)
{
  static const float poison[] = {NAN, INFINITY};
  for (int p = 0; p < 2; p++) {
    run clean, poisoned;
    start(&clean, &usual, "cpu", NULL);
    start(&poisoned, &usual, "cpu", NULL);
    for (int i = 1; i < 3; i++) ((float *)poisoned.b->memory[i])[(T - 1) * HEADS / 2 * D] = poison[p];
    run_finish(&clean);
    run_finish(&poisoned);
    const float *a = clean.b->memory[clean.b->result->id], *b = poisoned.b->memory[poisoned.b->result->id];
    double error = 0, norm = 0;
    for (size_t i = 0; i < (T - 1) * HEADS * D; i++) {
      error += (double)(a[i] - b[i]) * (a[i] - b[i]);
      norm += (double)a[i] * a[i];
    }
    assert_true(error <= 1e-12 * norm); /* the last block adds up in another order */
    assert_true(isnan(b[(T - 1) * HEADS * D]));
    run_stop(&clean);
    run_stop(&poisoned);
  }
}

static uint64_t workspace_of(const loaded *cpu, const char *op, int64_t length)
{
  brim_tensor t = {.dtype = BRIM_DTYPE_F32, .name = "t", .channel_block = 1, .shape = {3, {4, length, HEADS * D}}};
  brim_tensor *all[] = {&t, &t, &t, &t, &t, &t};
  const brim_node node = {.op = op, .in = all, .out = all, .in_count = 3, .out_count = 2};
  const brim_program_info program = {.batch = 4, .training = 1};
  const brim_backend_ops *ops = cpu->plugin->ops;
  for (const brim_kernel *const *k = ops->kernels; k < ops->kernels_end; k++) {
    brim_kernel_need need = {0};
    void *kernel_state = NULL;
    if (strcmp((*k)->op, op) != 0) continue;
    assert_int_equal((*k)->prepare(cpu->self, &program, &node, &need, &kernel_state), BRIM_OK);
    if (kernel_state && (*k)->release) (*k)->release(cpu->self, kernel_state);
    return need.workspace_bytes;
  }
  fail_msg("no kernel %s", op);
  return 0;
}

static void test_scratch_does_not_grow_with_the_sequence(void **state)
{
  static const char *const ops[] = {"attention", "attention_grad"};
  loaded cpu;
  assert_true(load_plugin(&cpu, "backend", "cpu", "{threads: 2}"));
  for (int i = 0; i < 2; i++) assert_int_equal(workspace_of(&cpu, ops[i], 10), workspace_of(&cpu, ops[i], 1000000));
  unload_plugin(&cpu);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_threads_do_not_change_a_bit),
      cmocka_unit_test(test_every_instruction_set_agrees_with_the_reference),
      cmocka_unit_test(test_masked_keys_have_no_influence),
      cmocka_unit_test(test_scratch_does_not_grow_with_the_sequence),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
