/* Tests casts of parameters that stay in place between the micro-batches of a step (graph/layout.h): the same bits as
 * casts in every micro-batch, with two sizes of micro-batches and with other programs in between, in no more memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "builtin/builtin.h"
#include "conformance/all_fused.h"
#include "conformance/load.h"
#include "exec/exec.h"
#include "graph/fuse.h"
#include "plugin/registry.h"

enum { CLASSES = 5, LARGE = 24, SMALL = 8, SAMPLE = 2 * 9 * 8, STEPS = 3 };

static const brim_model_ops model = {sizeof model, build_all_fused};

static brim_plan *plan_of(const loaded *backend, const loaded *optimizer, bool accumulates)
{
  const brim_backend_ops *ops = backend->plugin->ops;
  brim_plan_request r = {
      .graph = {.model = &model,
                .classes = CLASSES,
                .loss.op = "softmax_cross_entropy",
                .sample = {3, {2, 9, 8}},
                .norm_group = 4,
                .real = ops->real,
                .activations = BRIM_DTYPE_BF16,
                .fuse = BRIM_FUSE_ALL},
      .backend = ops,
      .backend_self = backend->self,
      .accumulates = accumulates,
      .shape = {{BRIM_PROGRAM_TRAIN, LARGE}, {BRIM_PROGRAM_TRAIN, SMALL}, {BRIM_PROGRAM_EVALUATE, LARGE}},
      .shape_count = 3};
  brim_optimizer_describe(brim_optimizer_adamw.ops, optimizer->self, &r.update);
  brim_plan *plan = NULL;
  must(brim_plan_create(&r, &plan));
  must(brim_plan_check(plan));
  return plan;
}

static void feed(brim_exec *exec, const brim_program *p)
{
  char *input = fused_numbers(p->graph->real, 1000, p->info.batch * SAMPLE, 1);
  int32_t label[LARGE];
  for (int i = 0; i < LARGE; i++) label[i] = i * 7 % CLASSES;
  must(brim_exec_load(exec, p, input, label));
  free(input);
}

static void run_micro_batch(brim_exec *exec, const brim_program *p, const brim_step *step)
{
  feed(exec, p);
  must(brim_exec_run(exec, p, step, NULL));
}

/* Between micro-batches, step 1 runs a node, which no training does, and step 2 an evaluation, which overwrites what
 * the first micro-batch left. */
static void run_step(brim_exec *exec, const brim_plan *plan, const brim_step *step)
{
  const brim_program *large = &plan->program[0], *small = &plan->program[1], *evaluation = &plan->program[2];
  must(brim_exec_zero_gradients(exec));
  must(brim_exec_zero_metrics(exec));
  run_micro_batch(exec, step->step == 1 ? small : large, step);
  if (step->step == 1) must(brim_exec_run_node(exec, small, 0, step));
  if (step->step == 2) run_micro_batch(exec, evaluation, step);
  run_micro_batch(exec, large, step);
  run_micro_batch(exec, small, step);
  must(brim_exec_run(exec, brim_plan_program(plan, BRIM_PROGRAM_UPDATE, 0), step, NULL));
}

static char *read_parameters(brim_exec *exec, const brim_plan *plan, size_t *count)
{
  const brim_graph *g = plan->program[0].graph;
  char *bytes = NULL;
  *count = 0;
  for (size_t i = 0; i < g->parameter_count; i++) {
    const brim_tensor *t = g->parameter[i].value;
    bytes = brim_xrealloc(bytes, *count + t->bytes);
    must(brim_exec_read(exec, &plan->program[0], t, bytes + *count));
    *count += t->bytes;
  }
  return bytes;
}

static char *train(const brim_plan *plan, const loaded *optimizer, size_t *count)
{
  brim_exec *exec = NULL;
  must(brim_exec_open(plan, 0, &exec));
  fill_all_fused(exec, &plan->program[0]);
  for (uint64_t i = 0; i < STEPS; i++) {
    brim_step step = {.seed = 3, .step = i, .loss_scale = 1.0 / 56, .gradient_scale = 1, .norm_groups = 14};
    must(brim_optimizer_fill(&brim_optimizer_adamw, optimizer->self, 1, &step));
    run_step(exec, plan, &step);
  }
  char *bytes = read_parameters(exec, plan, count);
  brim_exec_close(exec);
  return bytes;
}

/* Checks that both programs begin with the casts of the same parameters, in the same places, and that nothing else in a
 * program gets their memory. */
static void check_places(const brim_plan *plan)
{
  const brim_program *a = &plan->program[0], *b = &plan->program[1];
  assert_true(a->kept_casts > 0);
  assert_int_equal(a->kept_casts, b->kept_casts);
  for (size_t i = 0; i < a->kept_casts; i++) {
    const brim_node *x = a->graph->node[i], *y = b->graph->node[i];
    assert_string_equal(x->op, "cast");
    assert_string_equal(x->in[0]->name, y->in[0]->name);
    assert_int_equal(a->tensor_offset[x->out[0]->id], b->tensor_offset[y->out[0]->id]);
    const brim_buffer *of = &a->buffer[a->tensor_buffer[x->out[0]->id]];
    assert_int_equal(of->first, 0);
    assert_int_equal(of->last, a->graph->node_count);
  }
}

static void casts_stay_with_the_same_bits(void **state)
{
  loaded backend, optimizer;
  size_t counts[2];
  assert_true(load_plugin_from(&backend, "emulated", "backend", "cuda", NULL));
  must(((const brim_backend_ops *)backend.plugin->ops)->select(backend.self, 0));
  load_core_plugin(&optimizer, &brim_optimizer_adamw, "{lr: 0.02, weight_decay: 0.1}");
  brim_plan *each_time = plan_of(&backend, &optimizer, false), *once = plan_of(&backend, &optimizer, true);
  assert_int_equal(each_time->program[0].kept_casts, 0);
  assert_true(once->peak_bytes <= each_time->peak_bytes);
  check_places(once);
  char *a = train(each_time, &optimizer, &counts[0]), *b = train(once, &optimizer, &counts[1]);
  assert_int_equal(counts[0], counts[1]);
  assert_memory_equal(a, b, counts[0]);
  free(a);
  free(b);
  brim_plan_free(each_time);
  brim_plan_free(once);
  unload_plugin(&optimizer);
  unload_plugin(&backend);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(casts_stay_with_the_same_bits)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
