/* See golden_run.h. */
#include "conformance/golden_run.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "brim/dataset.h"
#include "must.h"

/* ---- a model, placed ---- */

void golden_run_read(golden_run *r, const char *fixture)
{
  golden_read(&r->fixture, fixture);
  const golden_tensor *label = golden_find(&r->fixture, "", "label");
  const int64_t count = brim_shape_count(&label->shape);
  r->batch = label->shape.dim[0];
  r->label = brim_xcalloc((size_t)count, sizeof *r->label);
  for (int64_t i = 0; i < count; i++) {
    r->label[i] = (int32_t)label->value[i];
    r->counted += r->label[i] != BRIM_NO_TOKEN;
  }
}

brim_graph_options golden_run_graph(const golden_run *r, brim_graph_options graph)
{
  const golden_tensor *input = golden_find(&r->fixture, "", "input");
  graph.model = r->model.plugin->ops;
  graph.model_self = r->model.self;
  if (r->backbone.plugin) {
    if (!graph.backbone) graph.backbone = r->backbone.plugin->ops;
    graph.backbone_self = r->backbone.self;
    graph.backbone_id = r->backbone.plugin->id;
  }
  graph.real = ((const brim_backend_ops *)r->backend.plugin->ops)->real;
  graph.loss.op = "softmax_cross_entropy";
  if (graph.task == BRIM_TASK_TOKENS) graph.loss.attr = (brim_loss_attr){.ignores = 1, .ignore_index = BRIM_NO_TOKEN};
  graph.sample.rank = input->shape.rank - 1;
  for (int32_t d = 1; d < input->shape.rank; d++) graph.sample.dim[d - 1] = input->shape.dim[d];
  return graph;
}

void golden_run_plan(golden_run *r, brim_graph_options graph, const char *optimizer)
{
  const brim_plan_request request = {
      .graph = golden_run_graph(r, graph),
      .backend = r->backend.plugin->ops,
      .backend_self = r->backend.self,
      .update = {.op = optimizer, .state_count = strcmp(optimizer, "adamw") == 0 ? 2 : 1},
      .shape = {{BRIM_PROGRAM_TRAIN, r->batch},
                {BRIM_PROGRAM_TRAIN, 4},
                {BRIM_PROGRAM_TRAIN, 2},
                {BRIM_PROGRAM_EVALUATE, r->batch}},
      .shape_count = 4};
  must(brim_plan_create(&request, &r->plan));
  must(brim_plan_check(r->plan));
}

/* Returns a copy of the values in the given type; the caller frees it. */
static void *values_in(uint32_t dtype, const double *from, int64_t count)
{
  double *out = brim_xcalloc((size_t)count, sizeof *out);
  for (int64_t i = 0; i < count; i++)
    if (dtype == BRIM_DTYPE_I32)
      ((int32_t *)out)[i] = (int32_t)from[i];
    else if (dtype == BRIM_DTYPE_F32)
      ((float *)out)[i] = (float)from[i];
    else
      out[i] = from[i];
  return out;
}

void golden_run_place(golden_run *r)
{
  const brim_program *p = &r->plan->program[0];
  const golden_tensor *input = golden_find(&r->fixture, "", "input");
  must(brim_exec_open(r->plan, 0, &r->exec));
  r->samples = values_in(p->graph->input->dtype, input->value, brim_shape_count(&input->shape));
  for (size_t i = 0; i < p->graph->parameter_count; i++) {
    const brim_tensor *to = p->graph->parameter[i].value;
    const golden_tensor *from = golden_find(&r->fixture, "parameter.", to->name);
    assert_int_equal(brim_shape_count(&from->shape), brim_shape_count(&to->shape));
    void *values = values_in(to->dtype, from->value, brim_shape_count(&to->shape));
    must(brim_exec_write(r->exec, p, to, values));
    free(values);
  }
}

void golden_run_close(golden_run *r)
{
  if (r->exec) brim_exec_close(r->exec);
  if (r->plan) brim_plan_free(r->plan);
  unload_plugin(&r->model);
  unload_plugin(&r->backbone);
  unload_plugin(&r->backend);
  brim_arena_release(&r->fixture.arena);
  free(r->samples);
  free(r->label);
}

/* ---- running ---- */

const brim_program *golden_run_batch(golden_run *r, enum brim_program_kind kind, int64_t first, int64_t count)
{
  const brim_program *p = brim_plan_program(r->plan, kind, count);
  const brim_step step = {.first_sample = first, .loss_scale = 1 / r->counted};
  assert_non_null(p);
  const uint64_t bytes = p->graph->input->bytes / (uint64_t)count; /* bytes of a sample */
  const int64_t labels = brim_shape_count(&golden_find(&r->fixture, "", "label")->shape) / r->batch;
  must(brim_exec_load(r->exec, p, (char *)r->samples + (uint64_t)first * bytes, r->label + first * labels));
  must(brim_exec_run(r->exec, p, &step, NULL));
  return p;
}

/* Returns a persistent tensor's values; the caller frees them. */
static double *values_of(const golden_run *r, const brim_tensor *t)
{
  const int64_t count = brim_shape_count(&t->shape);
  double *values = brim_xcalloc((size_t)count, sizeof *values);
  must(brim_exec_read(r->exec, &r->plan->program[0], t, values));
  for (int64_t i = count - 1; i >= 0 && t->dtype == BRIM_DTYPE_F32; i--) values[i] = ((float *)values)[i];
  return values;
}

void golden_run_train(golden_run *r, brim_step step, double loss[GOLDEN_STEPS])
{
  double metrics[2];
  step.norm_groups = 1;
  for (int i = 0; i < GOLDEN_STEPS; i++) {
    must(brim_exec_zero_gradients(r->exec));
    must(brim_exec_zero_metrics(r->exec));
    const brim_program *p = golden_run_batch(r, BRIM_PROGRAM_TRAIN, 0, r->batch);
    must(brim_exec_metrics(r->exec, p, metrics, 2));
    loss[i] = metrics[0] / r->counted;
    step.step = (uint64_t)i;
    step.bias_correction1 = 1 - pow(step.beta1, i + 1);
    step.bias_correction2 = 1 - pow(step.beta2, i + 1);
    must(brim_exec_run(r->exec, brim_plan_program(r->plan, BRIM_PROGRAM_UPDATE, 0), &step, NULL));
  }
}

brim_step golden_adamw(void)
{
  return (brim_step){.lr = 0.01, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
}

/* ---- comparing ---- */

double golden_run_gradient_norm(const golden_run *r)
{
  double norm = 0;
  for (size_t i = 0; i < r->fixture.count; i++) {
    const golden_tensor *t = &r->fixture.tensor[i];
    if (strncmp(t->name, "gradient.", 9) != 0) continue;
    for (int64_t k = 0; k < brim_shape_count(&t->shape); k++) norm = hypot(norm, t->value[k]);
  }
  return norm;
}

void golden_run_check_forward(golden_run *r)
{
  const brim_program *p = golden_run_batch(r, BRIM_PROGRAM_EVALUATE, 0, r->batch);
  const brim_tensor *logits = p->graph->output, *loss = p->graph->loss;
  golden_check(&r->fixture, "", "logits", &logits->shape, brim_exec_pointer(r->exec, p, logits));
  golden_check(&r->fixture, "", "loss", &loss->shape, brim_exec_pointer(r->exec, p, loss));
}

/* Adds the parameter's further gradients, which only the update adds up: a tied embedding has two gradients. The
 * gradient of gpt2's position embedding is the gradient of the slice that the model uses. */
static void add_further(const golden_run *r, const brim_tensor *parameter, double *values)
{
  const brim_graph *g = r->plan->program[0].graph;
  for (size_t i = 0; i < g->further_count; i++) {
    const brim_further *f = &g->further[i];
    const brim_tensor *of = f->of ? g->node[f->of->producer]->in[0] : g->parameter[f->parameter].value;
    if (of != parameter) continue;
    double *more = values_of(r, f->gradient);
    for (int64_t k = 0; k < brim_shape_count(&f->gradient->shape); k++) values[k] += more[k];
    free(more);
  }
}

size_t golden_run_check_gradients(golden_run *r, double least)
{
  const brim_graph *g = r->plan->program[0].graph;
  size_t checked = 0;
  for (int pieces = 1; pieces <= (g->uses_norm_group ? 1 : 2); pieces++) {
    must(brim_exec_zero_gradients(r->exec));
    golden_run_batch(r, BRIM_PROGRAM_TRAIN, 0, pieces == 1 ? r->batch : 4);
    if (pieces == 2) golden_run_batch(r, BRIM_PROGRAM_TRAIN, 4, r->batch - 4);
    checked = 0;
    for (size_t i = 0; i < g->parameter_count; i++) {
      const brim_parameter *parameter = &g->parameter[i];
      if (parameter->is_frozen || parameter->is_buffer) continue;
      double *values = values_of(r, parameter->gradient);
      add_further(r, parameter->value, values);
      golden_check_least(&r->fixture, "gradient.", parameter->value->name, &parameter->gradient->shape, values, least);
      free(values);
      checked++;
    }
  }
  return checked;
}

void golden_run_check_single(golden_run *r)
{
  const brim_graph *g = r->plan->program[0].graph;
  const double all = golden_run_gradient_norm(r);
  double errors = 0;
  must(brim_exec_zero_gradients(r->exec));
  golden_run_batch(r, BRIM_PROGRAM_TRAIN, 0, r->batch);
  for (size_t i = 0; i < g->parameter_count; i++) {
    const brim_parameter *parameter = &g->parameter[i];
    if (parameter->is_frozen || parameter->is_buffer) continue;
    const golden_tensor *expected = golden_find(&r->fixture, "gradient.", parameter->value->name);
    double *got = values_of(r, parameter->gradient), norm = 0, error = 0;
    for (int64_t k = 0; k < brim_shape_count(&expected->shape); k++) {
      norm = hypot(norm, expected->value[k]);
      error = hypot(error, got[k] - expected->value[k]);
    }
    if (!g->uses_norm_group && !(error <= 1e-5 * fmax(norm, 1e-2 * all)))
      fail_msg("%s: error %g of %g, all of %g", expected->name, error, norm, all);
    errors = hypot(errors, error);
    free(got);
  }
  if (!(errors <= 1e-4 * all)) fail_msg("all gradients together: relative error %g", errors / all);
}

void golden_run_check_frozen(const golden_run *r)
{
  const brim_graph *g = r->plan->program[0].graph;
  for (size_t i = 0; i < g->parameter_count; i++) {
    const brim_tensor *value = g->parameter[i].value;
    if (!g->parameter[i].is_frozen) continue;
    double *got = values_of(r, value);
    assert_memory_equal(got, golden_find(&r->fixture, "parameter.", value->name)->value,
                        (size_t)brim_shape_count(&value->shape) * sizeof *got);
    free(got);
  }
}

void golden_run_check_training(golden_run *r, brim_step step, const char *prefix)
{
  const brim_graph *g = r->plan->program[0].graph;
  double loss[GOLDEN_STEPS];
  golden_run_train(r, step, loss);
  golden_check(&r->fixture, prefix, "loss", &(brim_shape){1, {GOLDEN_STEPS}}, loss);
  golden_run_check_frozen(r);
  for (size_t i = 0; i < g->parameter_count; i++) {
    const brim_tensor *value = g->parameter[i].value;
    if (g->parameter[i].is_frozen) continue;
    double *got = values_of(r, value);
    golden_check(&r->fixture, prefix, value->name, &value->shape, got);
    free(got);
  }
}
