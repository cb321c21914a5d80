/* Attention on the cpu backend beyond what the conformance suite sees: on every instruction set that this processor
 * has, on numbers of threads that cut the backward pass differently, with scores that exp() could not take, with keys
 * that are not finite but not seen either; and scratch that does not grow with the sequence. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/bench.h"
#include "conformance/load.h"

#define T 150 /* three blocks of queries and keys, the last partly filled */
#define HEADS 4
#define D 20

/* q, k, v for two query heads to a key head; more samples than one would give every thread its own. */
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

/* A bench, with its backend. */
typedef struct run {
  loaded plugin;
  backend on;
  bench *b;
} run;

static void start(run *r, const bench_row *row, const char *id, const char *settings)
{
  assert_true(load_plugin(&r->plugin, "backend", id, settings));
  r->on = (backend){id, r->plugin.plugin->ops, r->plugin.self};
  r->b = bench_create(&(bench_options){.backend = &r->on, .row = row, .seed = 3, .batch = 1, .first_sample = 2});
}
static void finish(run *r)
{
  bench_run(r->b, 0, r->b->g->node_count);
}
static void stop(run *r)
{
  bench_free(r->b);
  unload_plugin(&r->plugin);
}

/* ||a - b|| / ||b|| of the tensor with this number. */
static double difference(const run *a, const run *b, size_t id)
{
  const int64_t count = brim_shape_count(&a->b->g->tensor[id]->shape);
  double *x = bench_values_of(a->b, a->b->g->tensor[id]), *y = bench_values_of(b->b, b->b->g->tensor[id]);
  double error = 0, norm = 0;
  for (int64_t i = 0; i < count; i++) {
    error += (x[i] - y[i]) * (x[i] - y[i]);
    norm += y[i] * y[i];
  }
  free(x);
  free(y);
  return sqrt(error / norm);
}

static bool has_isa(const char *isa)
{
  if (strcmp(isa, "v2") == 0) return true;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return false;
  return strcmp(isa, "v3") == 0 || (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                                    __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                                    __builtin_cpu_supports("avx512vl"));
}

static void test_threads_do_not_change_a_bit(void **state)
{
  (void)state;
  static const char *const threads[] = {"{threads: 2}", "{threads: 7}", "{threads: 32}"};
  run one;
  start(&one, &usual, "cpu", "{threads: 1}");
  finish(&one);
  for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++) {
    run many;
    start(&many, &usual, "cpu", threads[i]);
    finish(&many);
    for (size_t t = 0; t < one.b->g->tensor_count; t++)
      if (memcmp(one.b->memory[t], many.b->memory[t], one.b->g->tensor[t]->bytes) != 0)
        fail_msg("%s: '%s' differs", threads[i], one.b->g->tensor[t]->name);
    stop(&many);
  }
  stop(&one);
}

/* Scores of some hundreds: their rounding in fp32 is what the second bound allows for. */
static void test_every_instruction_set_agrees_with_the_reference(void **state)
{
  (void)state;
  static const char *const isas[] = {"v2", "v3", "v4"};
  for (int hard = 0; hard < 2; hard++) {
    run expected, got;
    start(&expected, hard ? &steep : &usual, "reference", NULL);
    finish(&expected);
    for (size_t i = 0; i < 3 && has_isa(isas[i]); i++) {
      char settings[32];
      snprintf(settings, sizeof settings, "{isa: %s}", isas[i]);
      start(&got, hard ? &steep : &usual, "cpu", settings);
      finish(&got);
      for (size_t t = 0; t < got.b->g->tensor_count; t++) {
        const double error = difference(&got, &expected, t);
        if (!(error <= (hard ? 5e-4 : 1e-5))) fail_msg("%s: '%s' error %g", isas[i], got.b->g->tensor[t]->name, error);
      }
      stop(&got);
    }
    stop(&expected);
  }
}

/* The last key is seen by the last query alone. */
static void test_keys_that_are_not_seen_have_no_influence(void **state)
{
  (void)state;
  static const float poison[] = {NAN, INFINITY};
  for (int p = 0; p < 2; p++) {
    run clean, poisoned;
    start(&clean, &usual, "cpu", NULL);
    start(&poisoned, &usual, "cpu", NULL);
    for (int i = 1; i < 3; i++) ((float *)poisoned.b->memory[i])[(T - 1) * HEADS / 2 * D] = poison[p];
    finish(&clean);
    finish(&poisoned);
    const float *a = clean.b->memory[clean.b->result->id], *b = poisoned.b->memory[poisoned.b->result->id];
    double error = 0, norm = 0;
    for (size_t i = 0; i < (T - 1) * HEADS * D; i++) {
      error += (double)(a[i] - b[i]) * (a[i] - b[i]);
      norm += (double)a[i] * a[i];
    }
    assert_true(error <= 1e-12 * norm); /* other sums, in another order, in the last block */
    assert_true(isnan(b[(T - 1) * HEADS * D]));
    stop(&clean);
    stop(&poisoned);
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
    return need.workspace_bytes;
  }
  fail_msg("no kernel %s", op);
  return 0;
}

static void test_scratch_does_not_grow_with_the_sequence(void **state)
{
  (void)state;
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
      cmocka_unit_test(test_keys_that_are_not_seen_have_no_influence),
      cmocka_unit_test(test_scratch_does_not_grow_with_the_sequence),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
