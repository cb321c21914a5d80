/* Tests that updates in the backward pass give the same bits as an update after it, on every backend, with all options
 * that change the backward pass, and that not all gradients exist at the same time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "builtin/builtin.h"
#include "conformance/all_fused.h"
#include "conformance/load.h"
#include "exec/exec.h"
#include "graph/fuse.h"
#include "plugin/registry.h"

#define CLASSES 5
#define BATCH 24
#define SAMPLE (2 * 5 * 6)
#define STEPS 2 /* the second starts from states and parameters of the first */

static const brim_model_ops model = {sizeof model, build_all_fused};

typedef struct way {
  const char *name;
  const brim_plugin *optimizer;
  enum brim_recompute_kind recompute;
  uint32_t activations;
  bool scaled;
} way;

static const way ways[] = {
    {"adamw", &brim_optimizer_adamw, BRIM_RECOMPUTE_NONE, 0, false},
    {"sgd, blocks again", &brim_optimizer_sgd, BRIM_RECOMPUTE_BLOCKS, 0, false},
    {"yogi, scaled", &brim_optimizer_yogi, BRIM_RECOMPUTE_NONE, 0, true},
    {"adagrad, blocks again", &brim_optimizer_adagrad, BRIM_RECOMPUTE_BLOCKS, 0, false},
    {"adafactor, all again, scaled", &brim_optimizer_adafactor, BRIM_RECOMPUTE_FULL, 0, true},
    {"adamw8bit, scaled", &brim_optimizer_adamw8bit, BRIM_RECOMPUTE_NONE, 0, true},
    {"lion, bf16, least memory", &brim_optimizer_lion, BRIM_RECOMPUTE_AUTO, BRIM_DTYPE_BF16, false},
    {"adamw, bf16, blocks again", &brim_optimizer_adamw, BRIM_RECOMPUTE_BLOCKS, BRIM_DTYPE_BF16, true},
};
enum { WAYS = sizeof ways / sizeof ways[0] };

static brim_plan *plan_of(const loaded *backend, const way *w, const loaded *optimizer, bool in_backward)
{
  const brim_backend_ops *ops = backend->plugin->ops;
  brim_plan_request r = {.graph = {.model = &model,
                                   .classes = CLASSES,
                                   .loss.op = "softmax_cross_entropy",
                                   .sample = {3, {2, 5, 6}},
                                   .norm_group = 4,
                                   .real = ops->real,
                                   .activations = w->activations,
                                   .fuse = BRIM_FUSE_ALL},
                         .backend = ops,
                         .backend_self = backend->self,
                         .grain = 8,
                         .recompute = w->recompute,
                         .budget_bytes = 1,
                         .shape = {{BRIM_PROGRAM_TRAIN, BATCH}, {BRIM_PROGRAM_EVALUATE, BATCH}},
                         .shape_count = 2};
  brim_optimizer_describe(w->optimizer->ops, optimizer->self, &r.update);
  r.update.scaled = w->scaled;
  r.update.in_backward = in_backward;
  r.update.ema_decay = 0.5;
  brim_plan *plan = NULL;
  must(brim_plan_create(&r, &plan));
  must(brim_plan_check(plan));
  return plan;
}

/* Runs a step as the trainer does: the update, or the backward pass that contains it, follows the check of the loss. */
static void run_step(brim_exec *exec, const brim_plan *plan, const brim_step *step)
{
  const brim_program *p = &plan->program[0], *update = brim_plan_program(plan, BRIM_PROGRAM_UPDATE, 0);
  char *input = fused_numbers(p->graph->real, 1000, (int64_t)BATCH * SAMPLE, 1);
  int32_t label[BATCH];
  double metrics[2];
  for (int i = 0; i < BATCH; i++) label[i] = i * 7 % CLASSES;
  must(brim_exec_zero_gradients(exec));
  must(brim_exec_zero_metrics(exec));
  must(brim_exec_load(exec, p, input, label));
  const brim_exec_options forward = {.part = BRIM_EXEC_FORWARD}, backward = {.part = BRIM_EXEC_BACKWARD};
  must(brim_exec_run(exec, p, step, p->graph->passes ? &forward : NULL));
  must(brim_exec_metrics(exec, p, metrics, 2));
  assert_true(metrics[0] - metrics[0] == 0);
  if (p->graph->passes) must(brim_exec_run(exec, p, step, &backward));
  must(brim_exec_run(exec, update, step, NULL));
  free(input);
}

/* Returns all parameters, states and averages as bytes; the caller frees them. */
static char *read_all(brim_exec *exec, const brim_plan *plan, size_t *count)
{
  const brim_program *update = brim_plan_program(plan, BRIM_PROGRAM_UPDATE, 0);
  const brim_graph *g = update->graph;
  char *bytes = NULL;
  *count = 0;
  for (size_t i = 0; i < g->tensor_count; i++) {
    const brim_tensor *t = g->tensor[i];
    if ((t->role != BRIM_ROLE_PARAMETER && t->role != BRIM_ROLE_OPTIMIZER) || t == g->gradient_scale) continue;
    bytes = brim_xrealloc(bytes, *count + t->bytes);
    must(brim_exec_read(exec, update, t, bytes + *count));
    *count += t->bytes;
  }
  return bytes;
}

static char *train(const loaded *backend, const way *w, bool in_backward, size_t *count)
{
  loaded optimizer;
  load_core_plugin(&optimizer, w->optimizer, "{lr: 0.02, weight_decay: 0.1}");
  brim_plan *plan = plan_of(backend, w, &optimizer, in_backward);
  brim_exec *exec = NULL;
  must(brim_exec_open(plan, 0, &exec));
  fill_all_fused(exec, &plan->program[0]);
  for (uint64_t i = 0; i < STEPS; i++) {
    brim_step step = {
        .seed = 3, .step = i, .loss_scale = 1.0 / BATCH, .gradient_scale = 0.75, .norm_groups = BATCH / 4};
    must(brim_optimizer_fill(w->optimizer, optimizer.self, 1, &step));
    run_step(exec, plan, &step);
  }
  char *bytes = read_all(exec, plan, count);
  brim_exec_close(exec);
  brim_plan_free(plan);
  unload_plugin(&optimizer);
  return bytes;
}

static void check(const char *folder, const char *id)
{
  loaded backend;
  if (!load_plugin_from(&backend, folder, "backend", id, NULL)) skip();
  const brim_backend_ops *ops = backend.plugin->ops;
  if (BRIM_HAS(brim_backend_ops, ops, select)) must(ops->select(backend.self, 0));
  const size_t every = BENCH_SHARE > 1 ? 3 : 1;
  for (size_t i = 0; i < WAYS; i += every) {
    size_t counts[2];
    if (ways[i].activations && !(ops->stores & BRIM_STORES(ways[i].activations))) continue;
    char *after = train(&backend, &ways[i], false, &counts[0]), *within = train(&backend, &ways[i], true, &counts[1]);
    assert_int_equal(counts[0], counts[1]);
    if (memcmp(after, within, counts[0]) != 0) fail_msg("%s, %s: other bits", id, ways[i].name);
    free(after);
    free(within);
  }
  unload_plugin(&backend);
}

static void reference_leaves_the_same_bits(void **state)
{
  check("", "reference");
}

static void cpu_leaves_the_same_bits(void **state)
{
  check("", "cpu");
}

/* Runs the kernels of a GPU on the host. */
static void cuda_leaves_the_same_bits(void **state)
{
  check("emulated", "cuda");
}

/* ---- the graph ---- */

static const brim_node *update_of(const brim_graph *g, const brim_tensor *parameter)
{
  const brim_node *found = NULL;
  for (size_t i = 0; i < g->node_count; i++)
    for (uint32_t k = 0; k < g->node[i]->out_count; k++)
      if (g->node[i]->out[k] == parameter) {
        assert_null(found); /* a parameter has one update */
        found = g->node[i];
      }
  assert_non_null(found);
  return found;
}

static void each_update_directly_follows_the_last_use(void **state)
{
  loaded backend, optimizer;
  assert_true(load_plugin(&backend, "backend", "reference", NULL));
  load_core_plugin(&optimizer, &brim_optimizer_adamw, NULL);
  brim_plan *plan = plan_of(&backend, &ways[0], &optimizer, true);
  const brim_program *p = &plan->program[0];
  const brim_graph *g = p->graph;
  assert_true(g->further_count >= 2); /* a tied weight */
  for (size_t i = 0; i < g->parameter_count; i++) {
    const brim_parameter *parameter = &g->parameter[i];
    if (parameter->is_buffer) {
      assert_int_equal(p->tensor_buffer[parameter->gradient->id], -1); /* still exists at the commit */
      continue;
    }
    const brim_node *update = update_of(g, parameter->value);
    const brim_buffer *b = &p->buffer[p->tensor_buffer[parameter->gradient->id]];
    assert_int_equal(b->role, BRIM_ROLE_GRADIENT);
    assert_int_equal(b->last, update->index);
    assert_string_equal(g->node[b->first]->op, "zero");
    for (size_t n = update->index + 1; n < g->node_count; n++)
      for (uint32_t k = 0; k < g->node[n]->in_count; k++) assert_ptr_not_equal(g->node[n]->in[k], parameter->value);
  }
  must(brim_graph_check_updates(g));
  brim_plan_free(plan);
  unload_plugin(&optimizer);
  unload_plugin(&backend);
}

static void a_use_after_the_update_is_found(void **state)
{
  loaded backend, optimizer;
  assert_true(load_plugin(&backend, "backend", "reference", NULL));
  load_core_plugin(&optimizer, &brim_optimizer_adamw, NULL);
  brim_plan *plan = plan_of(&backend, &ways[0], &optimizer, true);
  brim_graph *g = plan->program[0].graph;
  brim_node *last = g->node[g->node_count - 1], *first = NULL;
  for (size_t i = g->forward_count; i < g->node_count && !first; i++)
    if (strcmp(g->node[i]->op, "adamw") == 0) first = g->node[i];
  assert_ptr_not_equal(first, last);
  brim_tensor *const own = last->in[1];
  last->in[1] = first->out[0];
  assert_int_equal(brim_graph_check_updates(g), BRIM_EINTERNAL);
  assert_non_null(strstr(brim_error_text(), "after its update"));
  last->in[1] = own;
  brim_plan_free(plan);
  unload_plugin(&optimizer);
  unload_plugin(&backend);
}

/* Returns the largest value over all nodes. */
static uint64_t most_gradient_bytes(const brim_program *p)
{
  uint64_t most = 0;
  for (size_t n = 0; n < p->graph->node_count; n++) {
    uint64_t bytes = 0;
    for (size_t b = 0; b < p->buffer_count; b++)
      if (p->buffer[b].role == BRIM_ROLE_GRADIENT && p->buffer[b].first <= (int32_t)n &&
          p->buffer[b].last >= (int32_t)n)
        bytes += p->buffer[b].bytes;
    most = bytes > most ? bytes : most;
  }
  return most;
}

static void all_gradients_never_exist_at_once(void **state)
{
  loaded backend, optimizer;
  assert_true(load_plugin(&backend, "backend", "reference", NULL));
  load_core_plugin(&optimizer, &brim_optimizer_adamw, NULL);
  brim_plan *after = plan_of(&backend, &ways[0], &optimizer, false);
  brim_plan *within = plan_of(&backend, &ways[0], &optimizer, true);
  uint64_t largest = 0;
  const brim_graph *g = after->program[0].graph;
  for (size_t i = 0; i < g->parameter_count; i++)
    if (g->parameter[i].gradient->bytes > largest) largest = g->parameter[i].gradient->bytes;
  const uint64_t most = most_gradient_bytes(&within->program[0]);
  assert_true(most >= largest && most < after->gradient_bytes * 3 / 4);
  assert_true(within->peak_bytes < after->peak_bytes);
  assert_true(within->gradient_bytes > 0); /* the buffers' */
  brim_plan_free(after);
  brim_plan_free(within);
  unload_plugin(&optimizer);
  unload_plugin(&backend);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_update_directly_follows_the_last_use),
                                     cmocka_unit_test(a_use_after_the_update_is_found),
                                     cmocka_unit_test(all_gradients_never_exist_at_once),
                                     cmocka_unit_test(reference_leaves_the_same_bits),
                                     cmocka_unit_test(cpu_leaves_the_same_bits),
                                     cmocka_unit_test(cuda_leaves_the_same_bits)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
