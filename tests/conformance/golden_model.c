/* Placing a model with a fixture's parameters, running it, and comparing. */
#include "conformance/golden_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "exec/exec.h"

#define STEPS 20
#define BATCH_MAX 16

typedef struct trainer {
  loaded model, backend;
  golden fixture;
  brim_plan *plan;
  brim_exec *exec;
  int64_t batch;
  int32_t label[BATCH_MAX];
} trainer;

typedef struct subject {
  const char *fixture, *model, *settings;
  int64_t classes;
} subject;

static void must(brim_status status)
{
  if (status != BRIM_OK) fail_msg("%s", brim_error_text());
}

/* ---- values of the backend's real type ---- */

static void *real_of(const double *from, int64_t count, uint32_t dtype)
{
  double *out = brim_xmalloc((size_t)count * sizeof *out);
  memcpy(out, from, (size_t)count * sizeof *out);
  if (dtype == BRIM_DTYPE_F32)
    for (int64_t i = 0; i < count; i++) ((float *)out)[i] = (float)from[i];
  return out;
}

static void write_tensor(trainer *t, const brim_program *p, const brim_tensor *to, const golden_tensor *from)
{
  assert_int_equal(brim_shape_count(&from->shape), brim_shape_count(&to->shape));
  void *value = real_of(from->value, brim_shape_count(&to->shape), to->dtype);
  must(brim_exec_write(t->exec, p, to, value));
  free(value);
}

/* The caller frees it. */
static double *read_tensor(trainer *t, const brim_program *p, const brim_tensor *tensor)
{
  const int64_t count = brim_shape_count(&tensor->shape);
  double *value = brim_xmalloc((size_t)count * sizeof *value);
  must(brim_exec_read(t->exec, p, tensor, value));
  if (tensor->dtype == BRIM_DTYPE_F32)
    for (int64_t i = count - 1; i >= 0; i--) value[i] = ((float *)value)[i];
  return value;
}

/* ---- a model, placed ---- */

static brim_plan_request request_of(const trainer *t, int64_t classes, const char *optimizer, uint32_t real)
{
  const golden_tensor *input = golden_find(&t->fixture, "", "input");
  brim_plan_request r = {.graph = {.model = t->model.plugin->ops,
                                   .model_self = t->model.self,
                                   .classes = classes,
                                   .loss.op = "softmax_cross_entropy",
                                   .real = real},
                         .backend = t->backend.plugin->ops,
                         .backend_self = t->backend.self,
                         .update = {.op = optimizer, .state_count = strcmp(optimizer, "adamw") == 0 ? 2 : 1},
                         .shape = {{BRIM_PROGRAM_TRAIN, t->batch},
                                   {BRIM_PROGRAM_TRAIN, 4},
                                   {BRIM_PROGRAM_TRAIN, 2},
                                   {BRIM_PROGRAM_EVALUATE, t->batch}},
                         .shape_count = 4};
  r.graph.sample.rank = input->shape.rank - 1;
  for (int32_t d = 1; d < input->shape.rank; d++) r.graph.sample.dim[d - 1] = input->shape.dim[d];
  return r;
}

static void start(trainer *t, const subject *s, const char *optimizer, uint32_t real)
{
  golden_read(&t->fixture, s->fixture);
  const golden_tensor *label = golden_find(&t->fixture, "", "label");
  t->batch = label->shape.dim[0];
  assert_in_range(t->batch, 1, BATCH_MAX);
  for (int64_t n = 0; n < t->batch; n++) t->label[n] = (int32_t)label->value[n];
  const brim_plan_request r = request_of(t, s->classes, optimizer, real);
  must(brim_plan_create(&r, &t->plan));
  must(brim_plan_check(t->plan));
  must(brim_exec_open(t->plan, 0, &t->exec));
  const brim_program *p = &t->plan->program[0];
  for (size_t i = 0; i < p->graph->parameter_count; i++) {
    const brim_tensor *value = p->graph->parameter[i].value;
    write_tensor(t, p, value, golden_find(&t->fixture, "parameter.", value->name));
  }
}

static void stop(trainer *t)
{
  brim_exec_close(t->exec);
  brim_plan_free(t->plan);
  unload_plugin(&t->model);
  unload_plugin(&t->backend);
  brim_arena_release(&t->fixture.arena);
  free(t);
}

/* The caller ends it with stop. NULL: the backend does not exist. */
static trainer *trainer_of(const subject *s, const char *backend, const char *optimizer, uint32_t real)
{
  trainer *t = brim_xcalloc(1, sizeof *t);
  if (!load_plugin(&t->backend, "backend", backend, NULL)) {
    free(t);
    return NULL;
  }
  if (!load_plugin(&t->model, "model", s->model, s->settings))
    assert_true(load_plugin_from(&t->model, "tests/conformance/examples", "model", s->model, s->settings));
  start(t, s, optimizer, real);
  return t;
}

/* Runs the forward and backward pass of samples [first, first + batch). */
static void run_batch(trainer *t, enum brim_program_kind kind, int64_t first, int64_t batch)
{
  const golden_tensor *input = golden_find(&t->fixture, "", "input");
  const brim_program *p = brim_plan_program(t->plan, kind, batch);
  assert_non_null(p);
  const int64_t size = brim_shape_count(&input->shape) / t->batch;
  const brim_step step = {.first_sample = first, .loss_scale = 1 / (double)t->batch};
  void *values = real_of(input->value + first * size, batch * size, p->graph->real);
  must(brim_exec_load(t->exec, p, values, t->label + first));
  must(brim_exec_run(t->exec, p, &step, NULL));
  free(values);
}

/* ---- checks ---- */

/* ||x - y||; y may be NULL. */
static double norm_of(const double *x, const double *y, int64_t count)
{
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += (x[i] - (y ? y[i] : 0)) * (x[i] - (y ? y[i] : 0));
  return sqrt(sum);
}

static void check_persistent(trainer *t, const brim_program *p, const brim_tensor *tensor, const char *prefix,
                             const char *name, double least)
{
  double *value = read_tensor(t, p, tensor);
  golden_check_least(&t->fixture, prefix, name, &tensor->shape, value, least);
  free(value);
}

/* The norm of all gradients in the fixture. */
static double gradient_norm(const golden *fixture)
{
  double norm = 0;
  for (size_t i = 0; i < fixture->count; i++) {
    const golden_tensor *t = &fixture->tensor[i];
    if (strncmp(t->name, "gradient.", 9) == 0) norm = hypot(norm, norm_of(t->value, NULL, brim_shape_count(&t->shape)));
  }
  return norm;
}

static void check_forward(trainer *t)
{
  run_batch(t, BRIM_PROGRAM_EVALUATE, 0, t->batch);
  const brim_program *p = brim_plan_program(t->plan, BRIM_PROGRAM_EVALUATE, t->batch);
  const brim_tensor *logits = p->graph->output, *loss = p->graph->loss;
  golden_check(&t->fixture, "", "logits", &logits->shape, brim_exec_pointer(t->exec, p, logits));
  golden_check(&t->fixture, "", "loss", &loss->shape, brim_exec_pointer(t->exec, p, loss));
}

/* The whole batch at once, then in unequal micro-batches, which give other results with batch norm. Some gradients are
 * 0 except for rounding, such as that of the keys' biases in attention. */
static void check_gradients(trainer *t)
{
  const double least = 1e-3 * gradient_norm(&t->fixture);
  const brim_program *p = &t->plan->program[0];
  for (int pieces = 1; pieces <= (p->graph->uses_norm_group ? 1 : 2); pieces++) {
    must(brim_exec_zero_gradients(t->exec));
    run_batch(t, BRIM_PROGRAM_TRAIN, 0, pieces == 1 ? t->batch : 4);
    if (pieces == 2) run_batch(t, BRIM_PROGRAM_TRAIN, 4, t->batch - 4);
    for (size_t i = 0; i < p->graph->parameter_count; i++) {
      const brim_parameter *parameter = &p->graph->parameter[i];
      if (!parameter->is_buffer)
        check_persistent(t, p, parameter->gradient, "gradient.", parameter->value->name, least);
    }
  }
}

static void check_training(trainer *t, const char *prefix, brim_step step)
{
  const brim_program *p = &t->plan->program[0], *update = brim_plan_program(t->plan, BRIM_PROGRAM_UPDATE, 0);
  double loss[STEPS], metrics[2];
  for (int i = 0; i < STEPS; i++) {
    must(brim_exec_zero_gradients(t->exec));
    must(brim_exec_zero_metrics(t->exec));
    run_batch(t, BRIM_PROGRAM_TRAIN, 0, t->batch);
    must(brim_exec_metrics(t->exec, p, metrics, 2));
    loss[i] = metrics[0] / (double)t->batch;
    step.step = (uint64_t)i;
    step.norm_groups = 1;
    step.bias_correction1 = 1 - pow(step.beta1, i + 1);
    step.bias_correction2 = 1 - pow(step.beta2, i + 1);
    must(brim_exec_run(t->exec, update, &step, NULL));
  }
  golden_check(&t->fixture, prefix, "loss", &(brim_shape){1, {STEPS}}, loss);
  for (size_t i = 0; i < p->graph->parameter_count; i++)
    check_persistent(t, p, p->graph->parameter[i].value, prefix, p->graph->parameter[i].value->name, 0);
}

void golden_model_check(const char *fixture, const char *model, const char *settings, int64_t classes)
{
  const subject s = {fixture, model, settings, classes};
  const brim_step adamw = {.lr = 0.01, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
  const brim_step sgd = {.lr = 0.05, .weight_decay = 0.01, .momentum = 0.9};
  trainer *t = trainer_of(&s, "reference", "adamw", BRIM_DTYPE_F64);
  assert_non_null(t);
  check_forward(t);
  check_gradients(t);
  check_training(t, "adamw.", adamw);
  stop(t);
  t = trainer_of(&s, "reference", "sgd", BRIM_DTYPE_F64);
  check_training(t, "sgd.", sgd);
  stop(t);
}

/* ---- in single precision ---- */

typedef struct gradient {
  const char *name;
  double norm, error;
} gradient;

static void check_errors(const gradient *of, size_t count, bool batch_norm)
{
  double norm = 0, error = 0;
  for (size_t i = 0; i < count; i++) {
    norm = hypot(norm, of[i].norm);
    error = hypot(error, of[i].error);
  }
  if (batch_norm && !(error <= 1e-4 * norm)) fail_msg("all gradients together: relative error %g", error / norm);
  for (size_t i = 0; i < count && !batch_norm; i++)
    if (!(of[i].error <= 1e-5 * fmax(of[i].norm, 1e-2 * norm)))
      fail_msg("%s: error %g of %g, all of %g", of[i].name, of[i].error, of[i].norm, norm);
}

void golden_model_check_cpu(const char *fixture, const char *model, const char *settings, int64_t classes)
{
  const subject s = {fixture, model, settings, classes};
  trainer *t = trainer_of(&s, "cpu", "sgd", BRIM_DTYPE_F32);
  if (!t) return;
  const brim_program *p = &t->plan->program[0];
  gradient *of = brim_xcalloc(p->graph->parameter_count, sizeof *of);
  size_t count = 0;
  must(brim_exec_zero_gradients(t->exec));
  run_batch(t, BRIM_PROGRAM_TRAIN, 0, t->batch);
  for (size_t i = 0; i < p->graph->parameter_count; i++) {
    const brim_parameter *parameter = &p->graph->parameter[i];
    if (parameter->is_buffer) continue;
    const golden_tensor *expected = golden_find(&t->fixture, "gradient.", parameter->value->name);
    const int64_t values = brim_shape_count(&expected->shape);
    double *got = read_tensor(t, p, parameter->gradient);
    of[count++] = (gradient){parameter->value->name, norm_of(expected->value, NULL, values),
                             norm_of(got, expected->value, values)};
    free(got);
  }
  check_errors(of, count, p->graph->uses_norm_group);
  free(of);
  stop(t);
}
