/* Compares fusion with no fusion: a model with every fused operation is trained for a few steps by the real plan and
 * execution, and every parameter must have the same bits, on every backend, with each kind of fusion and with all; and
 * with all, for every micro-batch, if a backend's sums do not depend on it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/all_fused.h"
#include "conformance/load.h"
#include "exec/exec.h"
#include "graph/fuse.h"
#include "tier.h"

#define EFFECTIVE 32
#define SAMPLE (2 * 5 * 6)
#define CLASSES 5
#define STEPS 2 /* the second starts from states and parameters of the first */

static const brim_model_ops model = {sizeof model, build_all_fused};

static brim_plan *plan_of(const loaded *backend, uint64_t fusions, int64_t batch)
{
  const brim_backend_ops *ops = backend->plugin->ops;
  const brim_plan_request r = {.graph = {.model = &model,
                                         .classes = CLASSES,
                                         .loss.op = "softmax_cross_entropy",
                                         .sample = {3, {2, 5, 6}},
                                         .norm_group = 4,
                                         .real = ops->real,
                                         .fuse = fusions},
                               .backend = ops,
                               .backend_self = backend->self,
                               .grain = 8,
                               .update = {.op = "sgd", .state_count = 1},
                               .shape = {{BRIM_PROGRAM_TRAIN, batch}, {BRIM_PROGRAM_EVALUATE, batch}},
                               .shape_count = 2};
  brim_plan *plan = NULL;
  must(brim_plan_create(&r, &plan));
  must(brim_plan_check(plan));
  return plan;
}

/* Returns the losses of an evaluation and of the last training step, then all parameters, as bytes; the caller frees
 * them. */
typedef struct outcome {
  char *bytes;
  size_t count;
  double loss[2];
} outcome;

static void run_batches(brim_exec *exec, const brim_program *p, brim_step *step, double *loss)
{
  const int64_t batch = p->info.batch;
  const uint32_t real = p->graph->real;
  char *input = fused_numbers(real, 1000, (int64_t)EFFECTIVE * SAMPLE, 1);
  int32_t label[EFFECTIVE];
  double metrics[2];
  for (int i = 0; i < EFFECTIVE; i++) label[i] = i * 7 % CLASSES;
  must(brim_exec_zero_metrics(exec));
  for (int64_t first = 0; first < EFFECTIVE; first += batch) {
    step->first_sample = first;
    must(brim_exec_load(exec, p, input + (size_t)first * SAMPLE * brim_dtype_bytes(real), label + first));
    must(brim_exec_run(exec, p, step, NULL));
  }
  must(brim_exec_metrics(exec, p, metrics, 2));
  *loss = metrics[0];
  free(input);
}

static outcome train(const loaded *backend, uint64_t fusions, int64_t batch)
{
  brim_plan *plan = plan_of(backend, fusions, batch);
  const brim_program *p = &plan->program[0];
  brim_exec *exec = NULL;
  outcome out = {0};
  must(brim_exec_open(plan, 0, &exec));
  fill_all_fused(exec, p);
  for (uint64_t i = 0; i < STEPS; i++) {
    brim_step step = {.seed = 3,
                      .step = i,
                      .loss_scale = 1.0 / EFFECTIVE,
                      .gradient_scale = 1,
                      .lr = 0.1,
                      .momentum = 0.9,
                      .norm_groups = EFFECTIVE / 4};
    must(brim_exec_zero_gradients(exec));
    run_batches(exec, p, &step, &out.loss[0]);
    must(brim_exec_run(exec, brim_plan_program(plan, BRIM_PROGRAM_UPDATE, 0), &step, NULL));
  }
  run_batches(exec, &plan->program[1], &(brim_step){.seed = 3}, &out.loss[1]);
  for (size_t i = 0; i < p->graph->parameter_count; i++) out.count += p->graph->parameter[i].value->bytes;
  char *at = out.bytes = brim_xcalloc(out.count, 1);
  for (size_t i = 0; i < p->graph->parameter_count; at += p->graph->parameter[i++].value->bytes)
    must(brim_exec_read(exec, p, p->graph->parameter[i].value, at));
  brim_exec_close(exec);
  brim_plan_free(plan);
  return out;
}

static void expect_same(const outcome *a, const outcome *b, const char *what)
{
  assert_true(a->loss[0] - a->loss[0] == 0 && a->loss[1] - a->loss[1] == 0); /* finite: NaN would equal NaN */
  assert_int_equal(a->count, b->count);
  /* The same bits. NOLINTNEXTLINE(bugprone-suspicious-memory-comparison) */
  if (memcmp(a->loss, b->loss, sizeof a->loss) != 0)
    fail_msg("%s: losses %.17g and %.17g, not %.17g and %.17g", what, b->loss[0], b->loss[1], a->loss[0], a->loss[1]);
  if (memcmp(a->bytes, b->bytes, a->count) != 0) fail_msg("%s: other parameters", what);
}

static const uint64_t kinds[] = {BRIM_FUSE_BIAS_ACTIVATION, BRIM_FUSE_NORM_ACTIVATION, BRIM_FUSE_RESIDUAL_NORM,
                                 BRIM_FUSE_DROPOUT_ADD,     BRIM_FUSE_NORM_ADD,        BRIM_FUSE_ALL};

/* Plans have the layouts and scratch that a backend chooses; tests/unit/test_plan_fusion.c has more graphs. */
static void expect_no_more_memory(const loaded *backend)
{
  for (int64_t batch = 4; batch <= 64; batch *= 4) {
    brim_plan *plain = plan_of(backend, 0, batch);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
      brim_plan *fused = plan_of(backend, kinds[i], batch);
      assert_true(fused->peak_bytes <= plain->peak_bytes);
      assert_true(fused->lower_bound_bytes <= plain->lower_bound_bytes);
      brim_plan_free(fused);
    }
    brim_plan_free(plain);
  }
}

static void check(const char *folder, const char *id, bool in_pieces)
{
  loaded backend;
  if (!load_plugin_from(&backend, folder, "backend", id, NULL)) skip();
  const brim_backend_ops *ops = backend.plugin->ops;
  if (BRIM_HAS(brim_backend_ops, ops, select)) must(ops->select(backend.self, 0));
  expect_no_more_memory(&backend);
  outcome plain = train(&backend, 0, EFFECTIVE);
  /* Sanitizers check memory, for which one run with all fused nodes is enough; the conformance suite runs the nodes of
   * each kind. */
  const bool runs_all = BENCH_SHARE == 1 || is_tier("full");
  for (size_t i = 0; runs_all && i < sizeof kinds / sizeof kinds[0]; i++) {
    char what[64];
    snprintf(what, sizeof what, "%s with fusions %llu", id, (unsigned long long)kinds[i]);
    outcome fused = train(&backend, kinds[i], EFFECTIVE);
    expect_same(&plain, &fused, what);
    free(fused.bytes);
  }
  const int64_t batches_end = runs_all ? EFFECTIVE : 16;
  for (int64_t batch = 8; in_pieces && batch < batches_end; batch *= 2) {
    outcome fused = train(&backend, BRIM_FUSE_ALL, batch);
    expect_same(&plain, &fused, "all fusions in smaller micro-batches");
    free(fused.bytes);
  }
  free(plain.bytes);
  unload_plugin(&backend);
}

static void reference_computes_the_same_bits(void **state)
{
  check("", "reference", true);
}

static void cpu_computes_the_same_bits(void **state)
{
  check("", "cpu", true);
}

/* Runs the kernels of a GPU on the host. */
static void cuda_computes_the_same_bits(void **state)
{
  check("emulated", "cuda", false);
}

/* Without fused nodes, the tests above would compare identical graphs. */
static void the_model_has_every_fused_operation(void **state)
{
  loaded backend;
  assert_true(load_plugin(&backend, "backend", "reference", NULL));
  brim_plan *plan = plan_of(&backend, BRIM_FUSE_ALL, 8);
  for (size_t i = 0; i < brim_op_count(); i++) {
    const char *op = brim_op_at(i)->name;
    bool found = !brim_op_at(i)->fusion.kind;
    for (size_t k = 0; k < 2; k++)
      for (size_t n = 0; n < plan->program[k].graph->node_count; n++)
        found = found || strcmp(plan->program[k].graph->node[n]->op, op) == 0;
    if (!found) fail_msg("no %s in the model", op);
  }
  brim_plan_free(plan);
  unload_plugin(&backend);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_model_has_every_fused_operation), cmocka_unit_test(reference_computes_the_same_bits),
      cmocka_unit_test(cpu_computes_the_same_bits), cmocka_unit_test(cuda_computes_the_same_bits)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
