/* Compares updates with given gradients with a plain Python implementation of the papers: parameters and states after
 * some steps, through the real plan and execution on the reference backend. tests/golden/make_optimizers.py describes
 * the fixture and its sources. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/convert.h"
#include "builtin/builtin.h"
#include "conformance/golden.h"
#include "conformance/load.h"
#include "exec/exec.h"
#include "formula_adamw.h"
#include "must.h"
#include "plugin/registry.h"

#define STEPS 6
#define CLASSES 5

typedef struct updates {
  const char *name; /* in the fixture */
  const brim_plugin *optimizer;
  const char *settings;
  const char *model; /* settings of the model; NULL: width 6 */
} updates;

static const updates cases[] = {
    {"lion", &brim_optimizer_lion, "{lr: 0.01, weight_decay: 0.1}"},
    {"adafactor", &brim_optimizer_adafactor, "{lr: 0.05, eps1: 1e-7, d: 0.9, weight_decay: 0.1}"},
    {"adafactor_mean", &brim_optimizer_adafactor, "{lr: 0.05, eps1: 1e-7, beta1: 0.9, weight_decay: 0.1}"},
    {"adamw8bit", &brim_optimizer_adamw8bit, "{lr: 0.01, weight_decay: 0.1}"},
    {"muon", &brim_optimizer_muon, "{weight_decay: 0.1}"},
    {"muon_tall", &brim_optimizer_muon, "{weight_decay: 0.1}", "{width: 16}"}, /* more rows than columns */
    {"muon_match", &brim_optimizer_muon, "{nesterov: false, steps: 3, adjust: match_rms_adamw, weight_decay: 0.1}"},
    {"adan", &brim_optimizer_adan, "{lr: 0.01, weight_decay: 0.1}"},
    {"adan_no_prox", &brim_optimizer_adan,
     "{lr: 0.01, weight_decay: 0.1, no_prox: true, beta1: 0.9, beta2: 0.5, eps: 0.001}"},
    {"schedulefree", &brim_optimizer_schedulefree, "{lr: 0.01, weight_decay: 0.1}"},
    {"schedulefree_warm", &brim_optimizer_schedulefree,
     "{lr: 0.01, weight_decay: 0.1, warmup_steps: 4, beta1: 0.6, eps: 0.001}"},
};

typedef struct trainer {
  const updates *how;
  loaded model, backend, optimizer;
  golden fixture;
  brim_plan *plan;
  brim_exec *exec;
  const brim_program *update;
} trainer;

static void start_on(trainer *t, const updates *how, const char *backend)
{
  t->how = how;
  golden_read(&t->fixture, "optimizers.txt");
  assert_true(load_plugin(&t->model, "model", "cnn", how->model ? how->model : "{width: 6}"));
  assert_true(load_plugin(&t->backend, "backend", backend, NULL));
  load_core_plugin(&t->optimizer, how->optimizer, how->settings);
  brim_plan_request r = {.graph = {.model = t->model.plugin->ops,
                                   .model_self = t->model.self,
                                   .classes = CLASSES,
                                   .loss.op = "softmax_cross_entropy",
                                   .sample = {3, {1, 12, 14}},
                                   .real = ((const brim_backend_ops *)t->backend.plugin->ops)->real},
                         .backend = t->backend.plugin->ops,
                         .backend_self = t->backend.self,
                         .shape = {{BRIM_PROGRAM_TRAIN, 1}},
                         .shape_count = 1};
  brim_optimizer_describe(how->optimizer->ops, t->optimizer.self, &r.update);
  must(brim_plan_create(&r, &t->plan));
  must(brim_plan_check(t->plan));
  must(brim_exec_open(t->plan, 0, &t->exec));
  t->update = brim_plan_program(t->plan, BRIM_PROGRAM_UPDATE, 0);
}

static void start(trainer *t, const updates *how)
{
  start_on(t, how, "reference");
}

static void stop(trainer *t)
{
  brim_exec_close(t->exec);
  brim_plan_free(t->plan);
  unload_plugin(&t->model);
  unload_plugin(&t->backend);
  unload_plugin(&t->optimizer);
  brim_arena_release(&t->fixture.arena);
}

/* These functions are the same as in make_optimizers.py. */
static double start_value(int64_t which, int64_t i)
{
  return (double)((i * 7919 + which * 31) % 10007 - 5003) * 1e-4;
}

static double gradient_value(int64_t which, int64_t step, int64_t i)
{
  static const double sizes[] = {1, 1e-1, 1e-2, 1e-3, 1e-4};
  return (double)((i * 6007 + which * 17 + step * 4001) % 9973 - 4986) * 2e-4 * sizes[(i + step) % 5];
}

/* Writes the gradients of a step; step -1: writes the parameters. */
static void write_values(trainer *t, int64_t step)
{
  const brim_graph *g = t->update->graph;
  for (size_t k = 0; k < g->parameter_count; k++) {
    const brim_tensor *to = step < 0 ? g->parameter[k].value : g->parameter[k].gradient;
    double *value = brim_xmalloc(to->bytes);
    for (int64_t i = 0; i < brim_shape_count(&to->shape); i++)
      value[i] = step < 0 ? start_value((int64_t)k, i) : gradient_value((int64_t)k, step, i);
    must(brim_exec_write(t->exec, t->update, to, value));
    free(value);
  }
}

static bool has_tensor(const golden *g, const char *name)
{
  for (size_t i = 0; i < g->count; i++)
    if (strcmp(g->tensor[i].name, name) == 0) return true;
  return false;
}

static void check_tensor(const trainer *t, const brim_tensor *tensor)
{
  const int64_t count = brim_shape_count(&tensor->shape);
  void *raw = brim_xmalloc(tensor->bytes);
  double *value = brim_xmalloc((size_t)count * sizeof *value);
  char prefix[64];
  snprintf(prefix, sizeof prefix, "%s.", t->how->name);
  must(brim_exec_read(t->exec, t->update, tensor, raw));
  for (int64_t i = 0; i < count; i++)
    value[i] = tensor->dtype == BRIM_DTYPE_U8 ? ((const uint8_t *)raw)[i] : ((const double *)raw)[i];
  golden_check(&t->fixture, prefix, tensor->name, &tensor->shape, value);
  free(value);
  free(raw);
}

/* Checks the parameters in the fixture, all their states, and the parameters that are evaluated. Returns the number of
 * tensors checked. */
static size_t check_results(const trainer *t)
{
  const brim_graph *g = t->update->graph;
  size_t checked = 0;
  for (size_t k = 0; k < g->parameter_count; k++) {
    char name[128];
    snprintf(name, sizeof name, "%s.%s", t->how->name, g->parameter[k].value->name);
    if (!has_tensor(&t->fixture, name)) continue;
    check_tensor(t, g->parameter[k].value);
    checked++;
    for (size_t i = 0; i < g->state_count; i++) {
      if (g->state[i].parameter != k) continue;
      check_tensor(t, g->state[i].tensor);
      checked++;
    }
    for (size_t i = g->first_average; i < g->node_count; i++) {
      if (g->node[i]->in[0] != g->parameter[k].value) continue;
      check_tensor(t, g->node[i]->out[0]);
      checked++;
    }
  }
  return checked;
}

static size_t count_in_fixture(const trainer *t)
{
  char prefix[64];
  size_t count = 0;
  snprintf(prefix, sizeof prefix, "%s.", t->how->name);
  for (size_t i = 0; i < t->fixture.count; i++)
    count += strncmp(t->fixture.tensor[i].name, prefix, strlen(prefix)) == 0;
  return count;
}

static void check(const updates *how)
{
  trainer t = {0};
  start(&t, how);
  write_values(&t, -1);
  for (int64_t i = 0; i < STEPS; i++) {
    brim_step step = {.step = (uint64_t)i, .gradient_scale = 1};
    must(brim_optimizer_fill(how->optimizer, t.optimizer.self, 1, &step));
    write_values(&t, i);
    must(brim_exec_run(t.exec, t.update, &step, NULL));
  }
  assert_int_equal(check_results(&t), count_in_fixture(&t));
  stop(&t);
}

static void updates_match_the_papers(void **state)
{
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) check(&cases[i]);
}

/* 8-bit AdamW has two bytes a value instead of eight, and two floats for each 256 values; small parameters keep their
 * whole states. */
static void states_take_the_declared_bytes(void **state)
{
  const struct {
    const char *name;
    uint64_t bytes; /* bytes of the states of fc1.weight, [24, 240], which has 5760 doubles */
  } expected[] = {{"lion", 5760 * 8},
                  {"adafactor", (24 + 240) * 8},
                  {"adafactor_mean", (24 + 240 + 5760) * 8},
                  {"adamw8bit", 2 * 5760 + 2 * 23 * 8},
                  {"muon", 5760 * 8},
                  {"muon_tall", 64 * 640 * 8},
                  {"muon_match", 5760 * 8},
                  {"adan", 4 * 5760 * 8},
                  {"adan_no_prox", 4 * 5760 * 8},
                  {"schedulefree", 2 * 5760 * 8},
                  {"schedulefree_warm", 2 * 5760 * 8}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    trainer t = {0};
    uint64_t bytes = 0;
    start(&t, &cases[i]);
    const brim_graph *g = t.update->graph;
    for (size_t k = 0; k < g->state_count; k++)
      if (strcmp(g->parameter[g->state[k].parameter].value->name, "fc1.weight") == 0)
        bytes += g->state[k].tensor->bytes;
    assert_string_equal(expected[i].name, cases[i].name);
    assert_int_equal(bytes, expected[i].bytes);
    stop(&t);
  }
}

/* Writes `even` to elements with an even index and `odd` to the others. */
static void write_by_place(const trainer *t, const brim_tensor *to, double even, double odd)
{
  const size_t count = (size_t)brim_shape_count(&to->shape);
  double *value = brim_xmalloc(count * sizeof *value);
  void *raw = brim_xmalloc(to->bytes);
  for (size_t i = 0; i < count; i++) value[i] = i % 2 ? odd : even;
  brim_convert(to->dtype, raw, BRIM_DTYPE_F64, value, count);
  must(brim_exec_write(t->exec, t->update, to, raw));
  free(value);
  free(raw);
}

static double greatest_magnitude(const trainer *t, const brim_tensor *of)
{
  void *raw = brim_xmalloc(of->bytes);
  double most = 0;
  must(brim_exec_read(t->exec, t->update, of, raw));
  for (int64_t i = 0; i < brim_shape_count(&of->shape); i++) most = fmax(most, fabs(brim_value_at(of->dtype, raw, i)));
  free(raw);
  return most;
}

/* A small gradient becomes 0 next to large ones. Its second moment is then far below the first code, but its first
 * moment is not, so the quotient could become very large. Adam's step is at most the learning rate while gradients stay
 * similar, and much smaller here. */
static void weights_stay_near_after_a_gradient_becomes_zero(void **state)
{
  const char *const backends[] = {"reference", "cpu"};
  const updates how = {"adamw8bit", &brim_optimizer_adamw8bit, "{lr: 0.01, weight_decay: 0}"};
  for (size_t b = 0; b < sizeof backends / sizeof backends[0]; b++) {
    trainer t = {0};
    start_on(&t, &how, backends[b]);
    const brim_parameter *const parameter = t.update->graph->parameter;
    const brim_parameter *const end = parameter + t.update->graph->parameter_count;
    for (const brim_parameter *p = parameter; p < end; p++) write_by_place(&t, p->value, 0, 0);
    for (int64_t i = 0; i < STEPS; i++) {
      brim_step step = {.step = (uint64_t)i, .gradient_scale = 1};
      must(brim_optimizer_fill(how.optimizer, t.optimizer.self, 1, &step));
      for (const brim_parameter *p = parameter; p < end; p++) write_by_place(&t, p->gradient, 1, i == 0 ? 1e-5 : 0);
      must(brim_exec_run(t.exec, t.update, &step, NULL));
    }
    for (const brim_parameter *p = parameter; p < end; p++)
      assert_true(greatest_magnitude(&t, p->value) < 1.01 * 0.01 * STEPS);
    stop(&t);
  }
}

/* Returns all parameters and states after STEPS updates. */
static char *updated_on(const char *backend, const brim_plugin *optimizer, size_t *bytes)
{
  const updates how = {"lion", optimizer, "{lr: 0.01, weight_decay: 0.1}"};
  trainer t = {0};
  start_on(&t, &how, backend);
  const brim_graph *g = t.update->graph;
  char *all = NULL;
  *bytes = 0;
  for (int64_t i = -1; i < STEPS; i++) {
    brim_step step = {.step = (uint64_t)(i < 0 ? 0 : i), .gradient_scale = 1};
    for (size_t k = 0; k < g->parameter_count; k++) {
      const brim_tensor *to = i < 0 ? g->parameter[k].value : g->parameter[k].gradient;
      write_by_place(&t, to, 0.01 * (double)(i + 2), -0.3 / (double)(i + 3));
    }
    must(brim_optimizer_fill(optimizer, t.optimizer.self, 1, &step));
    if (i >= 0) must(brim_exec_run(t.exec, t.update, &step, NULL));
  }
  for (size_t k = 0; k < g->parameter_count + g->state_count; k++) {
    const brim_tensor *of = k < g->parameter_count ? g->parameter[k].value : g->state[k - g->parameter_count].tensor;
    all = brim_xrealloc(all, *bytes + of->bytes);
    must(brim_exec_read(t.exec, t.update, of, all + *bytes));
    *bytes += of->bytes;
  }
  stop(&t);
  return all;
}

/* AdamW written as a formula has the kernel's bits on cpu, and on reference equals the kernel up to rounding in double
 * precision. */
static void adamw_as_a_formula_is_adamw(void **state)
{
  size_t bytes = 0, same = 0;
  char *kernel = updated_on("cpu", &brim_optimizer_adamw, &bytes), *formula = updated_on("cpu", &formula_plugin, &same);
  assert_int_equal(bytes, same);
  assert_memory_equal(kernel, formula, bytes);
  free(kernel);
  free(formula);
  kernel = updated_on("reference", &brim_optimizer_adamw, &bytes);
  formula = updated_on("reference", &formula_plugin, &same);
  for (size_t i = 0; i < bytes / sizeof(double); i++)
    assert_true(fabs(((double *)kernel)[i] - ((double *)formula)[i]) <= 1e-14);
  free(kernel);
  free(formula);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(updates_match_the_papers), cmocka_unit_test(states_take_the_declared_bytes),
      cmocka_unit_test(weights_stay_near_after_a_gradient_becomes_zero), cmocka_unit_test(adamw_as_a_formula_is_adamw)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
