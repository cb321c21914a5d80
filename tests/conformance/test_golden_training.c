/* Compares training options with PyTorch in double precision: 20 steps of the model mlp through the real plan and
 * execution on the reference backend, with the core's own optimizers and schedules. tests/golden/make_training.py makes
 * and describes the fixture. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "builtin/builtin.h"
#include "conformance/golden.h"
#include "conformance/load.h"
#include "exec/exec.h"
#include "must.h"
#include "plugin/registry.h"

#define STEPS 20
#define CLASSES 5
#define BATCH 6
#define MODEL "{hidden: [10, 7], dropout: 0}"

/* One way to train; the settings are YAML, NULL: the defaults. */
typedef struct training {
  const char *name; /* its name in the fixture */
  const brim_plugin *optimizer;
  const char *optimizer_settings;
  const brim_plugin *schedule; /* NULL: constant */
  const char *schedule_settings;
  double clip_norm; /* 0: off */
  const char *loss_settings;
  double ema_decay; /* 0: off */
} training;

#define ADAM "{lr: 0.01, weight_decay: 0.1}"
#define SGD "{lr: 0.05, weight_decay: 0.01, momentum: 0.9}"
static const training cases[] = {
    {"adam", &brim_optimizer_adam, ADAM, NULL, NULL},
    {"nesterov", &brim_optimizer_sgd, "{lr: 0.05, weight_decay: 0.01, momentum: 0.9, nesterov: true}", NULL, NULL},
    {"no_decay", &brim_optimizer_adamw, "{lr: 0.01, weight_decay: 0.1, no_decay: '*.bias, fc2.w*'}", NULL, NULL},
    {"step", &brim_optimizer_sgd, SGD, &brim_schedule_step, "{every_steps: 7, gamma: 0.3}"},
    {"polynomial", &brim_optimizer_adam, ADAM, &brim_schedule_polynomial, "{power: 2}"},
    {"clip", &brim_optimizer_sgd, SGD, .clip_norm = 0.2},
    {"clip_adam", &brim_optimizer_adam, ADAM, .clip_norm = 0.2},
    {"smoothing", &brim_optimizer_adamw, ADAM, .loss_settings = "{label_smoothing: 0.1}"},
    {"ema", &brim_optimizer_adamw, ADAM, .ema_decay = 0.8},
    {"weights", &brim_optimizer_sgd, SGD, .loss_settings = "{class_weights: [0.5, 2, 0.25, 1, 3]}"},
    {"adam_uncorrected", &brim_optimizer_adam, "{lr: 0.01, weight_decay: 0.1, bias_correction: false}"},
    {"yogi", &brim_optimizer_yogi, "{lr: 0.01, weight_decay: 0.1}"},
    {"yogi_uncorrected", &brim_optimizer_yogi,
     "{lr: 0.01, weight_decay: 0.1, initial_accumulator: 0.01, bias_correction: false}", .clip_norm = 0.2},
    {"adagrad", &brim_optimizer_adagrad, "{lr: 0.05, weight_decay: 0.1}"},
    {"adagrad_options", &brim_optimizer_adagrad,
     "{lr: 0.05, weight_decay: 0.1, lr_decay: 0.1, initial_accumulator: 0.1, eps: 0.001}", .clip_norm = 0.2},
    {"smoothing_weights_clip", &brim_optimizer_adam, ADAM, .clip_norm = 0.2,
     .loss_settings = "{label_smoothing: 0.2, class_weights: [0.5, 2, 0.25, 1, 3]}"},
};

typedef struct trainer {
  const training *how;
  loaded model, backend, optimizer, schedule, loss;
  brim_loss_attr loss_attr;
  brim_list class_weights;
  golden fixture;
  brim_plan *plan;
  brim_exec *exec;
  int32_t label[BATCH];
} trainer;

static void load(trainer *t, const training *how)
{
  t->how = how;
  golden_read(&t->fixture, "training.txt");
  assert_true(load_plugin(&t->model, "model", "mlp", MODEL));
  assert_true(load_plugin(&t->backend, "backend", "reference", NULL));
  load_core_plugin(&t->optimizer, how->optimizer, how->optimizer_settings);
  load_core_plugin(&t->schedule, how->schedule ? how->schedule : &brim_schedule_constant, how->schedule_settings);
  load_core_plugin(&t->loss, &brim_loss_cross_entropy, how->loss_settings);
  t->loss_attr = brim_loss_describe(t->loss.plugin, t->loss.self, &t->class_weights).attr;
  const golden_tensor *label = golden_find(&t->fixture, "", "label");
  assert_int_equal(label->shape.dim[0], BATCH);
  for (int n = 0; n < BATCH; n++) t->label[n] = (int32_t)label->value[n];
}

static void place(trainer *t)
{
  brim_plan_request r = {.graph = {.model = t->model.plugin->ops,
                                   .model_self = t->model.self,
                                   .classes = CLASSES,
                                   .loss.op = "softmax_cross_entropy",
                                   .loss.attr = t->loss_attr,
                                   .class_weights = t->class_weights.count > 0,
                                   .sample = {3, {1, 4, 3}},
                                   .real = BRIM_DTYPE_F64},
                         .backend = t->backend.plugin->ops,
                         .backend_self = t->backend.self,
                         .update = {.scaled = t->how->clip_norm > 0 || t->class_weights.count > 0,
                                    .max_norm = t->how->clip_norm,
                                    .ema_decay = t->how->ema_decay},
                         .shape = {{BRIM_PROGRAM_TRAIN, 4}, {BRIM_PROGRAM_TRAIN, 2}, {BRIM_PROGRAM_EVALUATE, 2}},
                         .shape_count = 3};
  brim_optimizer_describe(t->optimizer.plugin->ops, t->optimizer.self, &r.update);
  must(brim_plan_create(&r, &t->plan));
  must(brim_plan_check(t->plan));
  must(brim_exec_open(t->plan, 0, &t->exec));
  const brim_program *p = &t->plan->program[0];
  if (p->graph->class_weight) must(brim_exec_write(t->exec, p, p->graph->class_weight, t->class_weights.item));
  for (size_t i = 0; i < p->graph->parameter_count; i++) {
    const brim_tensor *value = p->graph->parameter[i].value;
    must(brim_exec_write(t->exec, p, value, golden_find(&t->fixture, "parameter.", value->name)->value));
  }
}

static void stop(trainer *t)
{
  brim_exec_close(t->exec);
  brim_plan_free(t->plan);
  unload_plugin(&t->model);
  unload_plugin(&t->backend);
  unload_plugin(&t->optimizer);
  unload_plugin(&t->schedule);
  unload_plugin(&t->loss);
  brim_arena_release(&t->fixture.arena);
}

/* Runs samples [first, first + count) of the effective batch. */
static void run_micro_batch(trainer *t, int64_t first, int64_t count, brim_step *step)
{
  const golden_tensor *input = golden_find(&t->fixture, "", "input");
  const int64_t size = brim_shape_count(&input->shape) / BATCH;
  const brim_program *p = brim_plan_program(t->plan, BRIM_PROGRAM_TRAIN, count);
  step->first_sample = first;
  must(brim_exec_load(t->exec, p, input->value + first * size, t->label + first));
  must(brim_exec_run(t->exec, p, step, NULL));
}

/* Trains one step in two unequal micro-batches; returns the loss before it. *norm: the norm of the gradients if they
 * are clipped, else 0. */
static double train_step(trainer *t, int index, double *norm)
{
  double weight = 0;
  for (int n = 0; n < BATCH; n++) weight += t->class_weights.count ? t->class_weights.item[t->label[n]] : 1;
  const brim_schedule_ops *schedule = t->schedule.plugin->ops;
  brim_step step = {.step = (uint64_t)index, .loss_scale = 1.0 / BATCH, .gradient_scale = BATCH / weight};
  double metrics[2];
  must(brim_optimizer_fill(t->optimizer.plugin, t->optimizer.self, schedule->factor(t->schedule.self, index, STEPS),
                           &step));
  must(brim_exec_zero_gradients(t->exec));
  must(brim_exec_zero_metrics(t->exec));
  run_micro_batch(t, 0, 4, &step);
  run_micro_batch(t, 4, 2, &step);
  must(brim_exec_metrics(t->exec, &t->plan->program[0], metrics, 2));
  const brim_program *update = brim_plan_program(t->plan, BRIM_PROGRAM_UPDATE, 0);
  must(brim_exec_run(t->exec, update, &step, NULL));
  double norm_and_factor[2] = {0};
  if (t->how->clip_norm > 0) must(brim_exec_read(t->exec, update, update->graph->gradient_scale, norm_and_factor));
  *norm = norm_and_factor[0];
  return metrics[0] / weight;
}

/* Checks the parameters as a program sees them: evaluation uses the averages, if the case has any. */
static void check_parameters(const trainer *t, enum brim_program_kind kind, const char *prefix)
{
  double value[200];
  const brim_program *p = brim_plan_program(t->plan, kind, 2);
  for (size_t i = 0; i < p->graph->parameter_count; i++) {
    const brim_tensor *parameter = p->graph->parameter[i].value;
    assert_true(parameter->bytes <= sizeof value);
    must(brim_exec_read(t->exec, p, parameter, value));
    golden_check(&t->fixture, prefix, parameter->name, &parameter->shape, value);
  }
}

static void check(const training *how)
{
  trainer t = {0};
  double loss[STEPS], norm[STEPS];
  char prefix[64];
  snprintf(prefix, sizeof prefix, "%s.", how->name);
  load(&t, how);
  place(&t);
  for (int i = 0; i < STEPS; i++) loss[i] = train_step(&t, i, &norm[i]);
  golden_check(&t.fixture, prefix, "loss", &(brim_shape){1, {STEPS}}, loss);
  if (how->clip_norm > 0) golden_check(&t.fixture, prefix, "norm", &(brim_shape){1, {STEPS}}, norm);
  check_parameters(&t, BRIM_PROGRAM_TRAIN, prefix);
  if (how->ema_decay > 0) {
    snprintf(prefix, sizeof prefix, "%s.average.", how->name);
    check_parameters(&t, BRIM_PROGRAM_EVALUATE, prefix);
  }
  stop(&t);
}

static void training_matches_pytorch(void **state)
{
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) check(&cases[i]);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(training_matches_pytorch)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
