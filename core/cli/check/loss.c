/* Checks of losses: the graph can be built, planned and differentiated for each task that the loss accepts, on the
 * reference backend; losses are finite, and gradients agree with finite differences. See check.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "brim/random.h"
#include "builtin/builtin.h"
#include "cli/check/check.h"
#include "drive/drive.h"
#include "exec/exec.h"

#define CLASSES 5 /* number of classes, also of a vocabulary's tokens and of real targets */
#define TOKENS 4  /* tokens of a sample; all different, so that each has its own outputs */
#define OUTPUTS_MAX (CLASSES * CLASSES)
#define DIFFERENCE 1e-5
#define TOLERANCE 1e-4

static const int64_t batches[] = {1, 2, 3};
#define BATCHES (sizeof batches / sizeof batches[0])
#define BATCH_MAX 3
/* scales of outputs; with the last one, results are only checked to be finite. */
static const double scales[] = {0.5, 4, 60};
#define SCALES (sizeof scales / sizeof scales[0])

static const struct {
  const char *name, *word, *model;
  enum brim_task task;
  bool soft;
} kinds[] = {{"classes", "dataset.task=class", "model=mlp", BRIM_TASK_CLASS, false},
             {"mixed classes", "dataset.task=class", "model=mlp", BRIM_TASK_CLASS, true},
             {"tokens", "dataset.task=tokens", "model=gpt2_tiny", BRIM_TASK_TOKENS, false},
             {"real numbers", "dataset.task=values", "model=mlp", BRIM_TASK_VALUES, false}};
#define KINDS (sizeof kinds / sizeof kinds[0])

/* ---- a graph whose outputs are parameters ---- */

static brim_status build_outputs(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_input(g);
  if (brim_task_of(g) == BRIM_TASK_TOKENS)
    brim_output(g, brim_embedding(g, "outputs", x, brim_classes(g), brim_classes(g)));
  else
    brim_output(g, brim_add(g, x,
                            brim_parameter_new(g, "outputs", 1, (const int64_t[]){brim_classes(g)},
                                               (brim_init){.kind = BRIM_INIT_CONSTANT})));
  return BRIM_OK;
}

typedef struct trial {
  size_t kind;
  brim_plan *plan;
  brim_exec *exec;
  const brim_program *train;
  uint32_t draw;
  double at[OUTPUTS_MAX];
} trial;

static brim_status open_trial(const brim_check *c, const brim_drive *drive, size_t kind, int64_t batch, trial *t)
{
  static const brim_model_ops model = {.size = sizeof model, .build = build_outputs};
  const brim_setup *s = drive->setup;
  const bool is_tokens = kinds[kind].task == BRIM_TASK_TOKENS;
  brim_list weights;
  brim_graph_loss loss = brim_loss_describe(c->plugin, brim_config_choice_of(s->config, "loss")->params, &weights);
  if (is_tokens) loss.attr.ignore_index = BRIM_NO_TOKEN;
  const brim_plan_request r = {.graph = {.model = &model,
                                         .loss = loss,
                                         .sample = {1, {is_tokens ? TOKENS : CLASSES}},
                                         .task = kinds[kind].task,
                                         .soft_labels = kinds[kind].soft,
                                         .classes = CLASSES,
                                         .real = s->backend_ops->real},
                               .backend = s->backend_ops,
                               .backend_self = s->backend,
                               .update = {.op = "sgd", .state_count = 1},
                               .shape = {{BRIM_PROGRAM_TRAIN, batch}},
                               .shape_count = 1};
  t->kind = kind;
  BRIM_TRY(brim_plan_create(&r, &t->plan));
  BRIM_TRY(brim_plan_check(t->plan));
  BRIM_TRY(brim_exec_open(t->plan, 0, &t->exec));
  t->train = &t->plan->program[0];
  return BRIM_OK;
}

static double drawn(uint32_t draw, uint32_t i)
{
  return 2.0 * brim_philox4x32(i, draw, 0, 0, 3, 5).v[0] / UINT32_MAX - 1;
}

/* Loads samples of 0, to which the outputs are added, or tokens in their order. Loads labels, with the first token
 * ignored; real numbers; or class probabilities for mixed classes. */
static brim_status load(const trial *t)
{
  double zero[BATCH_MAX * CLASSES] = {0}, target[BATCH_MAX * CLASSES];
  int32_t token[BATCH_MAX * TOKENS], label[BATCH_MAX * TOKENS];
  const brim_graph *g = t->train->graph;
  for (uint32_t i = 0; i < BATCH_MAX * TOKENS; i++) {
    token[i] = (int32_t)(i % TOKENS);
    label[i] = (int32_t)(brim_philox4x32(i, t->draw, 0, 0, 3, 6).v[0] % CLASSES);
  }
  if (g->task == BRIM_TASK_TOKENS) label[0] = BRIM_NO_TOKEN;
  for (uint32_t i = 0; i < BATCH_MAX * CLASSES; i++) target[i] = drawn(t->draw + 1000, i);
  for (uint32_t i = 0; kinds[t->kind].soft && i < BATCH_MAX * CLASSES; i++)
    target[i] = i % CLASSES == 1 ? 0.25 : i % CLASSES == 3 ? 0.75 : 0;
  return brim_exec_load(t->exec, t->train, g->task == BRIM_TASK_TOKENS ? (void *)token : (void *)zero,
                        g->label->dtype == BRIM_DTYPE_I32 ? (void *)label : (void *)target);
}

/* Computes the sum of all losses, and the gradients of the outputs. */
static brim_status run(const trial *t, double *loss, double *gradient)
{
  const brim_parameter *outputs = &t->train->graph->parameter[0];
  const brim_step step = {.loss_scale = 1};
  double metrics[2];
  BRIM_TRY(load(t)); /* the program overwrites this memory while it runs */
  BRIM_TRY(brim_exec_write(t->exec, t->train, outputs->value, t->at));
  BRIM_TRY(brim_exec_zero_metrics(t->exec));
  BRIM_TRY(brim_exec_zero_gradients(t->exec));
  BRIM_TRY(brim_exec_run(t->exec, t->train, &step, NULL));
  BRIM_TRY(brim_exec_metrics(t->exec, t->train, metrics, 2));
  *loss = metrics[0];
  return brim_exec_read(t->exec, t->train, outputs->gradient, gradient);
}

static brim_status check_finite(const trial *t, double scale, double loss, const double *gradient, int64_t count)
{
  if (!isfinite(loss))
    return brim_fail(BRIM_ENUMERIC, "%s: the loss is %g for outputs up to %g", kinds[t->kind].name, loss, scale);
  for (int64_t i = 0; i < count; i++)
    if (!isfinite(gradient[i]))
      return brim_fail(BRIM_ENUMERIC, "%s: the gradient is %g where an output is %g", kinds[t->kind].name, gradient[i],
                       t->at[i]);
  return BRIM_OK;
}

static brim_status compare_differences(trial *t, const double *gradient, int64_t count)
{
  double unused[OUTPUTS_MAX];
  for (int64_t i = 0; i < count; i++) {
    const double at = t->at[i];
    double more, less;
    t->at[i] = at + DIFFERENCE;
    BRIM_TRY(run(t, &more, unused));
    t->at[i] = at - DIFFERENCE;
    BRIM_TRY(run(t, &less, unused));
    t->at[i] = at;
    const double slope = (more - less) / (2 * DIFFERENCE);
    if (!(fabs(slope - gradient[i]) <= TOLERANCE * (1 + fabs(slope))))
      return brim_fail(BRIM_EPLUGIN, "%s: the gradient is %g where an output is %g, but finite differences give %g",
                       kinds[t->kind].name, gradient[i], at, slope);
  }
  return BRIM_OK;
}

static brim_status measure(trial *t)
{
  const int64_t count = brim_shape_count(&t->train->graph->parameter[0].value->shape);
  double gradient[OUTPUTS_MAX], loss, most = 0;
  for (uint32_t k = 0; k < SCALES; k++) {
    t->draw = k;
    for (uint32_t i = 0; i < count; i++) t->at[i] = scales[k] * drawn(k, i);
    BRIM_TRY(run(t, &loss, gradient));
    BRIM_TRY(check_finite(t, scales[k], loss, gradient, count));
    for (int64_t i = 0; i < count; i++) most = fmax(most, fabs(gradient[i]));
    if (k + 1 < SCALES) BRIM_TRY(compare_differences(t, gradient, count));
  }
  if (most > 0) return BRIM_OK;
  return brim_fail(BRIM_EPLUGIN, "%s: the gradient is 0 everywhere: the model would learn nothing",
                   kinds[t->kind].name);
}

/* ---- checks ---- */

static brim_status try_batches(const brim_check *c, const brim_drive *drive, size_t kind, bool measured)
{
  size_t nodes = 0;
  for (size_t b = 0; b < BATCHES; b++) {
    trial t = {.kind = kind};
    brim_status status = open_trial(c, drive, kind, batches[b], &t);
    if (status == BRIM_OK && b > 0 && t.train->graph->node_count != nodes)
      status = brim_fail(BRIM_EPLUGIN, "%s: the graph for %lld samples differs from that for %lld in more than N",
                         kinds[kind].name, (long long)batches[b], (long long)batches[b - 1]);
    if (status == BRIM_OK) nodes = t.train->graph->node_count;
    if (status == BRIM_OK && measured) status = measure(&t);
    brim_exec_close(t.exec);
    brim_plan_free(t.plan);
    BRIM_TRY(status);
  }
  return BRIM_OK;
}

/* Tries one kind of task. *refused: brim rejected its configuration. */
static brim_status try_kind(brim_check *c, size_t kind, const char *further, bool measured, bool *refused)
{
  brim_config *config = NULL;
  brim_drive *drive = NULL;
  const char *word[] = {kinds[kind].word, kinds[kind].model,   "dataset=synthetic",
                        "policy=[]",      "backend=reference", NULL};
  brim_status status = brim_check_config(c, word, further, &config);
  if (status == BRIM_OK) status = brim_drive_open(config, &(brim_setup_options){0}, &drive);
  *refused = status != BRIM_OK;
  if (status == BRIM_OK) status = try_batches(c, drive, kind, measured);
  brim_drive_close(drive);
  brim_config_free(config);
  return status;
}

static bool takes(const brim_check *c, size_t kind)
{
  return ((const brim_loss_ops *)c->plugin->ops)->takes & BRIM_TAKES(kinds[kind].task);
}

static enum brim_finding try_all(brim_check *c, bool measured, const char *what)
{
  brim_text names = {0};
  for (size_t kind = 0; kind < KINDS; kind++) {
    bool refused = false;
    if (!takes(c, kind)) continue;
    if (try_kind(c, kind, NULL, measured, &refused) != BRIM_OK) {
      brim_text_release(&names);
      return brim_check_blame(c, refused);
    }
    brim_text_printf(&names, "%s%s", names.length ? ", " : "", kinds[kind].name);
  }
  const enum brim_finding finding = brim_check_say(c, BRIM_FOUND_OK, what, brim_text_str(&names));
  brim_text_release(&names);
  return finding;
}

static enum brim_finding check_build(brim_check *c)
{
  return try_all(c, false, "%s: one number per sample");
}

static enum brim_finding check_gradient(brim_check *c)
{
  return try_all(c, true, "%s: finite, and equal to finite differences");
}

static enum brim_check_trial try_word(brim_check *c, const char *word)
{
  for (size_t kind = 0; kind < KINDS; kind++) {
    bool refused = false;
    if (!takes(c, kind)) continue;
    const brim_status status = try_kind(c, kind, word, false, &refused);
    if (status != BRIM_OK) return brim_check_tried(c, word, status, refused);
  }
  return BRIM_TRIAL_DONE;
}

const brim_check_kind brim_loss_checks[] = {
    {"build", check_build}, {"gradient", check_gradient}, BRIM_CHECK_PARAMETERS(try_word), {NULL}};
