/* The normalisations on the cpu backend beyond what the conformance suite sees: on every instruction set that this
 * processor has, on numbers of threads that cut the work differently, and of values far from 0, whose variance is lost
 * if it is taken as the difference of two large numbers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/bench.h"
#include "conformance/load.h"

#define BATCH 19 /* four groups of 4, the last with 3 more */

/* In blocks of channels, where the backend's reshape gives them. */
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
  brim_tensor *x = bench_input(b, &(brim_shape){2, {BATCH, 131}}, "x"); /* two strips of channels, and a rest */
  return brim_batch_norm(b->g, "norm", x, 1e-2, 0.1);
}
static brim_tensor *make_group_norm(bench *b)
{
  return brim_group_norm(b->g, "norm", blocked_input(b, 48), 4, 1e-5); /* 12 channels: across blocks */
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
#define EACH_ROW(row) (const bench_row *row = rows; row < rows + sizeof rows / sizeof rows[0]; row++)

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
  r->b = bench_create(&(bench_options){.backend = &r->on, .row = row, .seed = 3, .batch = BATCH});
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

static void test_threads_do_not_change_a_bit(void **state)
{
  (void)state;
  static const char *const threads[] = {"{threads: 2}", "{threads: 7}"};
  for
    EACH_ROW(row)
    {
      run one;
      start(&one, row, "cpu", "{threads: 1}");
      finish(&one);
      for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++) {
        run many;
        start(&many, row, "cpu", threads[i]);
        finish(&many);
        for (size_t t = 0; t < one.b->g->tensor_count; t++)
          if (memcmp(one.b->memory[t], many.b->memory[t], one.b->g->tensor[t]->bytes) != 0)
            fail_msg("%s, %s: '%s' differs", row->name, threads[i], one.b->g->tensor[t]->name);
        stop(&many);
      }
      stop(&one);
    }
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

static void check_isa(const bench_row *row, const run *expected, const char *isa)
{
  char settings[32];
  run got;
  snprintf(settings, sizeof settings, "{isa: %s}", isa);
  start(&got, row, "cpu", settings);
  finish(&got);
  for (size_t t = 0; t < got.b->g->tensor_count; t++) {
    const double error = difference(&got, expected, t);
    if (!(error <= 1e-5)) fail_msg("%s, %s: '%s' error %g", row->name, isa, got.b->g->tensor[t]->name, error);
  }
  stop(&got);
}

static void test_every_instruction_set_agrees_with_the_reference(void **state)
{
  (void)state;
  static const char *const isas[] = {"v2", "v3", "v4"};
  for
    EACH_ROW(row)
    {
      run expected;
      start(&expected, row, "reference", NULL);
      finish(&expected);
      for (size_t i = 0; i < 3 && has_isa(isas[i]); i++) check_isa(row, &expected, isas[i]);
      stop(&expected);
    }
}

/* Both backends get the same numbers around 1000, as single precision has them. */
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
  (void)state;
  for
    EACH_ROW(row)
    {
      run expected, got;
      if (row->make == make_rms_norm) continue; /* it has no mean */
      start(&expected, row, "reference", NULL);
      start(&got, row, "cpu", NULL);
      move_away(&expected);
      move_away(&got);
      finish(&expected);
      finish(&got);
      for (size_t i = 0; i < got.b->g->forward_count; i++) {
        const brim_node *n = got.b->g->node[i];
        if (n->out_count < 3) continue;
        const double error = difference(&got, &expected, n->out[2]->id); /* rstd */
        if (!(error <= 1e-6)) fail_msg("%s: 1/deviation has error %g", row->name, error);
      }
      stop(&got);
      stop(&expected);
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
