/* The step loop's body. See trainer.h. */
#include "train/trainer.h"

#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "train/initialize.h"
#include "train/loss_scale.h"
#include "train/nonfinite.h"
#include "train/placement.h"
#include "train/scores.h"
#include "train/snapshot.h"

/* A step that was begun. */
typedef struct begun {
  brim_span span;
  brim_step step;
  brim_step update;            /* the same for the update, which counts updates and not steps */
  double scale;                /* of the loss */
  double proof;                /* is not finite if the update must not be made */
  double weight;               /* what its samples count for in the mean */
  double metrics[2];           /* sum of losses, right answers */
  double norm[2];              /* of the gradients, and the factor that limits it */
  const brim_program *program; /* whose backward pass updates the parameters; NULL: the update does */
} begun;

struct brim_trainer {
  brim_session *session;
  brim_plan *plan;
  brim_exec *exec;
  brim_loader *loader;
  uint64_t loader_bytes;
  brim_footprint footprint;           /* of training: as predicted */
  int64_t first_sequence;             /* of the loader's stream: where training began or resumed */
  const brim_program *check, *update; /* check: NULL where none is needed */
  brim_train_state state;
  brim_step step;      /* of the last step that was committed, or looked at */
  begun begun[2];      /* steps by their number, modulo 2: begun, but not committed */
  int64_t begun_steps; /* how many were begun in all, with those before a resume; never below state.step */
  double failed_at;    /* when a step or an evaluation failed last: brim_now() */
  bool torn;           /* an update began and did not end: the parameters are those of no commit */
  bool is_kept;        /* nothing is placed, and the values of the last commit are in `kept` */
  brim_snapshot kept;
  double *metrics; /* of an evaluation: 2, the cells of the confusion matrix, and perhaps one for the top k */
};

static const brim_settings *settings_of(const brim_trainer *t)
{
  return t->session->settings;
}

static void init_state(brim_trainer *t)
{
  const brim_config *c = t->session->config;
  t->state = (brim_train_state){
      .gradient_norm = NAN, .best_loss = NAN, .best_step = -1, .train_loss = NAN, .train_accuracy = NAN};
  t->state.model_hash = brim_graph_hash(t->plan->program[0].graph);
  const struct {
    const char *group;
    char *id;
  } ids[] = {{"model", t->state.model_id}, {"optimizer", t->state.optimizer_id}, {"backend", t->state.backend_id}};
  for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
    snprintf(ids[i].id, sizeof t->state.model_id, "%s", brim_config_choice_of(c, ids[i].group)->plugin->id);
  brim_loss_scale_start(settings_of(t), &t->state);
}

static brim_status write_class_weights(brim_trainer *t)
{
  const brim_program *p = &t->plan->program[0];
  const brim_tensor *w = p->graph->class_weight;
  if (!w) return BRIM_OK;
  void *host = brim_xmalloc(w->bytes);
  for (size_t i = 0; i < t->session->class_weights.count; i++)
    if (w->dtype == BRIM_DTYPE_F64)
      ((double *)host)[i] = t->session->class_weights.item[i];
    else
      ((float *)host)[i] = (float)t->session->class_weights.item[i];
  const brim_status status = brim_exec_write(t->exec, p, w, host);
  free(host);
  return status;
}

/* Of the confusion matrix; 0: it is not counted. */
static int64_t confusion_cells(const brim_trainer *t)
{
  const int64_t classes = t->session->data.train.classes;
  return classes < BRIM_MANY_CLASSES ? classes * classes : 0;
}

static brim_status place(brim_trainer *t, const brim_placement_wish *wish)
{
  BRIM_TRY(brim_placement_open(t->session, wish, &t->plan, &t->exec));
  t->check = brim_plan_program(t->plan, BRIM_PROGRAM_CHECK, 0);
  t->update = brim_plan_program(t->plan, BRIM_PROGRAM_UPDATE, 0);
  return write_class_weights(t);
}

static void unplace(brim_trainer *t)
{
  brim_loader_close(t->loader); /* its micro-batches are of the plan */
  brim_exec_close(t->exec);
  brim_plan_free(t->plan);
  t->loader = NULL;
  t->exec = NULL;
  t->plan = NULL;
  t->check = t->update = NULL;
}

/* The first state, and its values. */
static brim_status begin_training(brim_trainer *t)
{
  init_state(t);
  t->begun_steps = 0;
  t->torn = false;
  /* Evaluation may have weights of its own, which start at the same values. */
  for (size_t i = 0; i < t->plan->program_count; i++)
    if (i == 0 || (settings_of(t)->training.ema_decay > 0 && t->plan->program[i].kind == BRIM_PROGRAM_EVALUATE))
      BRIM_TRY(brim_initialize_parameters(t->exec, &t->plan->program[i], (uint64_t)settings_of(t)->seed));
  return BRIM_OK;
}

static brim_status open_trainer(brim_trainer *t, brim_session *s)
{
  t->metrics = brim_xcalloc((size_t)(3 + confusion_cells(t)), sizeof(double));
  BRIM_TRY(place(t, &(brim_placement_wish){0}));
  brim_footprint_predict(s, t->plan, &t->footprint);
  BRIM_TRY(begin_training(t));
  return brim_session_finish_data(s);
}

brim_status brim_trainer_open(brim_session *session, brim_trainer **out)
{
  brim_trainer *t = brim_xcalloc(1, sizeof *t);
  t->session = session;
  const brim_status status = open_trainer(t, session);
  if (status != BRIM_OK) {
    brim_trainer_close(t);
    return status;
  }
  *out = t;
  return BRIM_OK;
}

void brim_trainer_close(brim_trainer *t)
{
  if (!t) return;
  unplace(t);
  brim_snapshot_release(&t->kept);
  free(t->metrics);
  free(t);
}

const brim_plan *brim_trainer_plan(const brim_trainer *t)
{
  return t->plan;
}
brim_exec *brim_trainer_exec(brim_trainer *t)
{
  return t->exec;
}
uint64_t brim_trainer_device_bytes(const brim_trainer *t)
{
  return t->exec ? brim_exec_bytes(t->exec) : 0;
}
uint64_t brim_trainer_host_bytes(const brim_trainer *t)
{
  return t->loader_bytes;
}
const brim_footprint *brim_trainer_footprint(const brim_trainer *t)
{
  return &t->footprint;
}
brim_train_state *brim_trainer_state(brim_trainer *t)
{
  return &t->state;
}
double brim_trainer_lr(const brim_trainer *t)
{
  return t->step.lr;
}

/* What the nodes of a step need to know. Schedules go by steps, as the data does; what optimizers correct is by the
 * updates that were made, as in PyTorch. */
static void make_step(const brim_trainer *t, int64_t number, int64_t samples, begun *b)
{
  const brim_session *s = t->session;
  b->step = (brim_step){.seed = (uint64_t)settings_of(t)->seed,
                        .step = (uint64_t)number,
                        .loss_scale = b->scale / (double)samples,
                        .norm_groups = brim_session_norm_groups(s, samples),
                        .gradient_scale = 1};
  const double factor = s->schedule_ops->factor(s->schedule_params, number, s->order.steps);
  b->update = b->step;
  b->update.step = (uint64_t)(number - t->state.skipped_steps);
  s->optimizer_ops->fill(s->optimizer_params, factor, &b->step);
  s->optimizer_ops->fill(s->optimizer_params, factor, &b->update);
}

/* ---- checkpoints ---- */

static brim_status copy_values(brim_trainer *t, brim_snapshot *s)
{
  BRIM_TRY(brim_snapshot_make(t->plan, s));
  const brim_status status = brim_snapshot_read(s, t->exec);
  if (status != BRIM_OK) brim_snapshot_release(s);
  return status;
}

bool brim_trainer_has_values(const brim_trainer *t)
{
  return t->is_kept || (t->exec && !t->torn);
}

brim_status brim_trainer_checkpoint(brim_trainer *t, const char *run_dir, int64_t keep)
{
  brim_snapshot s;
  if (t->is_kept) return brim_checkpoint_write(run_dir, &t->state, &t->kept.tensors, keep);
  if (!brim_trainer_has_values(t))
    return brim_fail(BRIM_EINTERNAL, "the parameters of step %lld are lost", (long long)t->state.step);
  BRIM_TRY(copy_values(t, &s));
  const brim_status status = brim_checkpoint_write(run_dir, &t->state, &s.tensors, keep);
  brim_snapshot_release(&s);
  return status;
}

/* ---- another plan ---- */

static brim_status place_again(brim_trainer *t)
{
  brim_footprint again;
  const uint64_t before = t->footprint.total_bytes;
  t->session->running = true;
  BRIM_TRY(brim_session_look(t->session));
  BRIM_TRY(place(t, &(brim_placement_wish){0}));
  brim_footprint_predict(t->session, t->plan, &again);
  t->footprint = again;
  if (before > again.total_bytes) t->footprint.total_bytes = before;
  return BRIM_OK;
}

static brim_status put_back(brim_trainer *t)
{
  BRIM_TRY(place_again(t));
  BRIM_TRY(brim_snapshot_bind(&t->kept, t->plan));
  return brim_snapshot_write(&t->kept, t->exec);
}

brim_status brim_trainer_park(brim_trainer *t)
{
  if (brim_trainer_is_ahead(t))
    return brim_fail(BRIM_EINTERNAL, "a plan is to be changed within step %lld", (long long)t->state.step + 1);
  if (!t->is_kept && brim_trainer_has_values(t)) {
    BRIM_TRY(copy_values(t, &t->kept));
    t->is_kept = true;
  }
  unplace(t);
  return BRIM_OK;
}

brim_status brim_trainer_replan(brim_trainer *t)
{
  BRIM_TRY(brim_trainer_park(t));
  if (!t->is_kept) return brim_fail(BRIM_EINTERNAL, "the parameters of step %lld are lost", (long long)t->state.step);
  const brim_status status = put_back(t);
  if (status != BRIM_OK) {
    unplace(t);
    return status;
  }
  t->is_kept = false;
  brim_snapshot_release(&t->kept);
  return BRIM_OK;
}

brim_status brim_trainer_restart(brim_trainer *t)
{
  const uint64_t profile = t->state.profile_hash;
  t->torn = true; /* until all values are there */
  t->is_kept = false;
  brim_snapshot_release(&t->kept);
  unplace(t);
  brim_status status = place_again(t);
  if (status == BRIM_OK) status = begin_training(t);
  if (status != BRIM_OK) {
    t->torn = true;
    unplace(t);
    return status;
  }
  t->state.profile_hash = profile;
  return BRIM_OK;
}

/* ---- from a checkpoint ---- */

static brim_status check_state(const brim_trainer *t, const brim_train_state *state, const char *path)
{
  const brim_train_state *own = &t->state;
  const struct {
    const char *what, *theirs, *ours;
  } ids[] = {{"model", state->model_id, own->model_id},
             {"optimizer", state->optimizer_id, own->optimizer_id},
             {"backend", state->backend_id, own->backend_id}};
  for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
    if (strcmp(ids[i].theirs, ids[i].ours) != 0)
      return brim_fail(BRIM_ELOAD, "checkpoint '%s' is of %s '%s', this run has '%s'", path, ids[i].what, ids[i].theirs,
                       ids[i].ours);
  return BRIM_OK;
}

brim_status brim_trainer_resume(brim_trainer *t, const char *checkpoint)
{
  brim_train_state state;
  BRIM_TRY(brim_checkpoint_read_state(checkpoint, &state));
  BRIM_TRY(check_state(t, &state, checkpoint));
  brim_snapshot s;
  brim_footprint_add_resume(&t->footprint);
  BRIM_TRY(brim_snapshot_make(t->plan, &s));
  brim_status status = brim_checkpoint_read(checkpoint, &s.tensors);
  if (status == BRIM_OK && state.model_hash != t->state.model_hash)
    status =
        brim_fail(BRIM_ELOAD, "checkpoint '%s' is of another model: its parameters are in another order", checkpoint);
  if (status == BRIM_OK) status = brim_snapshot_write(&s, t->exec);
  brim_snapshot_release(&s);
  if (status != BRIM_OK) return status;
  t->state = state;
  t->begun_steps = state.step;
  brim_loss_scale_start(settings_of(t), &t->state);
  begun last = {.scale = 1};
  if (state.step > 0) make_step(t, state.step - 1, 1, &last);
  t->step = last.step; /* for the learning rate in records made before a step */
  return BRIM_OK;
}

/* ---- evaluation only ---- */

static brim_status read_model(brim_trainer *t, const char *checkpoint)
{
  brim_train_state state;
  BRIM_TRY(brim_checkpoint_read_state(checkpoint, &state));
  if (strcmp(state.model_id, t->state.model_id) != 0)
    return brim_fail(BRIM_ELOAD, "checkpoint '%s' is of model '%s', the configuration has '%s'", checkpoint,
                     state.model_id, t->state.model_id);
  brim_snapshot s;
  BRIM_TRY(brim_snapshot_make(t->plan, &s));
  brim_status status = brim_checkpoint_read(checkpoint, &s.tensors);
  if (status == BRIM_OK) status = brim_snapshot_write(&s, t->exec);
  brim_snapshot_release(&s);
  if (status == BRIM_OK) t->state = state;
  return status;
}

brim_status brim_trainer_open_evaluation(brim_session *session, int64_t count, int64_t batch, bool keep_output,
                                         const char *checkpoint, brim_trainer **out)
{
  brim_trainer *t = brim_xcalloc(1, sizeof *t);
  t->session = session;
  t->metrics = brim_xcalloc((size_t)(3 + confusion_cells(t)), sizeof(double));
  brim_status status = place(t, &(brim_placement_wish){count, batch, keep_output});
  if (status == BRIM_OK) init_state(t);
  if (status == BRIM_OK) status = read_model(t, checkpoint);
  if (status == BRIM_OK) status = brim_session_finish_data(session);
  if (status != BRIM_OK) {
    brim_trainer_close(t);
    return status;
  }
  *out = t;
  return BRIM_OK;
}

/* ---- steps ---- */

static brim_span next_span(void *context, int64_t sequence)
{
  const brim_trainer *t = context;
  return brim_order_span(&t->session->order, t->first_sequence + sequence);
}

static brim_status open_loader(brim_trainer *t)
{
  t->first_sequence = brim_order_sequence(&t->session->order, t->state.step);
  brim_loader_options options = brim_session_train_loader(t->session);
  options.next = next_span;
  options.context = t;
  t->loader_bytes = brim_loader_bytes(&options);
  return brim_loader_open(&options, &t->loader);
}

/* What the samples count for in the mean: each 1, or the weight of its class. */
static double weight_of(const brim_trainer *t, const int32_t *label, int64_t count)
{
  const double *weight = t->session->label_weights.item;
  double sum = 0;
  if (t->session->label_weights.count == 0) return (double)count;
  for (int64_t i = 0; i < count; i++) sum += weight[label[i]];
  return sum;
}

/* The labels of a step are known only when its last micro-batch has come, so a weighted mean is divided by the number
 * of samples first, and put right by the gradients' scale in the update. */
static brim_status accumulate(brim_trainer *t, begun *b)
{
  b->weight = 0;
  b->program = NULL;
  BRIM_TRY(brim_exec_zero_gradients(t->exec));
  BRIM_TRY(brim_exec_zero_metrics(t->exec));
  for (int64_t done = 0; done < b->span.count;) {
    const brim_batch *batch = NULL;
    BRIM_TRY(brim_loader_next(t->loader, &batch));
    if (!batch) return brim_fail(BRIM_EINTERNAL, "the loader ended in step %llu", (unsigned long long)b->step.step);
    const brim_program *program = brim_plan_program(t->plan, BRIM_PROGRAM_TRAIN, batch->span.count);
    BRIM_TRY(brim_exec_load(t->exec, program, batch->values, batch->labels));
    b->step.first_sample = done;
    const bool passes = program->graph->passes != NULL;
    if (passes) b->program = program;
    BRIM_TRY(passes ? brim_exec_run_forward(t->exec, program, &b->step) : brim_exec_run(t->exec, program, &b->step));
    done += batch->span.count;
    b->weight += weight_of(t, batch->labels, batch->span.count);
  }
  b->step.gradient_scale = b->update.gradient_scale = b->weight > 0 ? (double)b->span.count / b->weight / b->scale : 0;
  return BRIM_OK;
}

bool brim_trainer_is_ahead(const brim_trainer *t)
{
  return t->begun_steps > t->state.step;
}

/* The gradients' norm, before it was limited; NULL if nobody asks for it. */
static const brim_tensor *norm_wanted(const brim_trainer *t)
{
  return settings_of(t)->training.clip_norm ? t->update->graph->gradient_scale : NULL;
}

/* Of the step that is begun next; 1 where the loss is not scaled. If the one before it is under way, as it will be if
 * that one is kept: else this one is begun again. */
static double next_scale(const brim_trainer *t)
{
  brim_train_state state = t->state;
  if (!t->check) return 1;
  if (brim_trainer_is_ahead(t)) brim_loss_scale_keep(settings_of(t), &state);
  return state.loss_scale;
}

/* Where the device works while the host goes on, everything of a step is started, the update too: it looks at the proof
 * by itself. */
static brim_status begin_step(brim_trainer *t)
{
  begun *b = &t->begun[t->begun_steps % 2];
  brim_fault_step(t->begun_steps + 1);
  if (brim_fault_hit(BRIM_FAULT_BEGIN, NULL))
    return brim_fail(BRIM_ENOMEM_DEVICE, "step %lld was made to fail at its beginning, by %s",
                     (long long)t->begun_steps + 1, BRIM_FAULT_ENVIRONMENT);
  b->span = brim_order_step(&t->session->order, t->begun_steps);
  b->scale = next_scale(t);
  make_step(t, t->begun_steps, b->span.count, b);
  b->norm[0] = NAN;
  BRIM_TRY(accumulate(t, b));
  if (t->check) BRIM_TRY(brim_exec_run(t->exec, t->check, &b->step));
  if (brim_exec_is_asynchronous(t->exec)) {
    t->torn = true;
    if (b->program) BRIM_TRY(brim_exec_run_backward_proved(t->exec, b->program, &b->step));
    BRIM_TRY(brim_exec_run_proved(t->exec, t->update, &b->update));
    BRIM_TRY(brim_exec_fetch(t->exec, b->metrics, 2, &b->proof, t->update, norm_wanted(t), b->norm));
    t->torn = false; /* it will be whole: see discard */
  }
  t->begun_steps++;
  return BRIM_OK;
}

/* The update is done or will be, or was left out: then a loss that is no number is not counted. */
static void commit(brim_trainer *t, const begun *b)
{
  brim_train_state *state = &t->state;
  if (isfinite(b->metrics[0])) {
    state->window_loss += b->metrics[0];
    state->window_correct += b->metrics[1];
    state->window_weight += b->weight;
    state->window_samples += b->span.count;
  }
  state->samples += b->span.count;
  state->step++;
  state->epoch = state->step / t->session->order.steps_per_epoch;
}

/* A device that works ahead has refused the update, and that of the step that was begun with the scale of before, if
 * one was: it is begun again. */
static brim_status take_back(brim_trainer *t)
{
  const begun *b = &t->begun[t->state.step % 2];
  double metrics[2];
  if (!brim_exec_is_asynchronous(t->exec)) return BRIM_OK;
  if (t->begun_steps > t->state.step + 1) {
    BRIM_TRY(brim_exec_collect(t->exec));
    brim_loader_close(t->loader);
    t->loader = NULL;
    t->begun_steps = b->step.step + 1;
  }
  return brim_exec_metrics(t->exec, &t->plan->program[0], metrics, 2); /* from here on updates are made again */
}

/* Something is not finite: with a loss scale the step goes without an update, unless that does not help any more. */
static brim_status refuse(brim_trainer *t, const begun *b)
{
  if (!t->check || !brim_loss_scale_skip(settings_of(t), &t->state))
    return brim_nonfinite_explain(
        &(brim_nonfinite){t->session, t->plan, t->exec, &t->state, &b->span, b->step, b->metrics[0], t->check != NULL});
  BRIM_TRY(take_back(t));
  commit(t, b);
  return BRIM_OK;
}

static brim_status end_step(brim_trainer *t)
{
  begun *b = &t->begun[t->state.step % 2];
  const bool asynchronous = brim_exec_is_asynchronous(t->exec);
  t->step = b->step;
  if (asynchronous) {
    BRIM_TRY(brim_exec_collect(t->exec));
  } else {
    BRIM_TRY(brim_exec_metrics(t->exec, &t->plan->program[0], b->metrics, 2));
    BRIM_TRY(brim_exec_proof(t->exec, &b->proof));
  }
  if (!isfinite(b->proof)) return refuse(t, b);
  if (!asynchronous) {
    t->torn = true;
    if (b->program) BRIM_TRY(brim_exec_run_backward(t->exec, b->program, &b->step));
    BRIM_TRY(brim_exec_run(t->exec, t->update, &b->update));
    if (norm_wanted(t)) BRIM_TRY(brim_exec_read(t->exec, t->update, norm_wanted(t), b->norm));
    t->torn = false;
  }
  if (norm_wanted(t)) t->state.gradient_norm = b->norm[0];
  brim_loss_scale_keep(settings_of(t), &t->state);
  commit(t, b);
  return BRIM_OK;
}

/* If the step behind this one does not get its memory, this one is ended all the same. */
static brim_status try_step(brim_trainer *t, bool more)
{
  brim_status ahead = BRIM_OK;
  if (!t->loader) BRIM_TRY(open_loader(t));
  if (!brim_trainer_is_ahead(t)) BRIM_TRY(begin_step(t));
  if (more && brim_exec_is_asynchronous(t->exec)) ahead = begin_step(t);
  if (ahead != BRIM_OK && !brim_status_is_want(ahead)) return ahead;
  BRIM_TRY(end_step(t));
  return ahead;
}

/* What was begun is forgotten; samples are read again from the last commit on. A device that works ahead may have made
 * updates of what was begun. */
static void discard(brim_trainer *t)
{
  char error[4096];
  snprintf(error, sizeof error, "%s", brim_error_text());
  if (brim_trainer_is_ahead(t) && brim_exec_is_asynchronous(t->exec)) t->torn = true;
  (void)brim_exec_wait(t->exec); /* it may be reading what the loader has */
  brim_loader_close(t->loader);
  t->loader = NULL;
  t->begun_steps = t->state.step;
  (void)brim_fail(BRIM_OK, "%s", error); /* the first error is the one to show */
}

brim_status brim_trainer_step(brim_trainer *t, bool more)
{
  const brim_status status = try_step(t, more);
  if (status == BRIM_OK) return BRIM_OK;
  t->failed_at = brim_now();
  discard(t);
  return status;
}

double brim_trainer_failed_at(const brim_trainer *t)
{
  return t->failed_at;
}

void brim_trainer_clean(brim_trainer *t, enum brim_cleanup cleanup)
{
  if (cleanup == BRIM_CLEAN_HEAVY && !brim_trainer_is_ahead(t)) {
    brim_loader_close(t->loader); /* the next step opens it where it is then */
    t->loader = NULL;
  }
  if (cleanup != BRIM_CLEAN_NONE) malloc_trim(0);
}

/* ---- evaluation ---- */

typedef struct part_stream {
  enum brim_part part;
  int64_t count, batch;
} part_stream;

static brim_span next_part_span(void *context, int64_t sequence)
{
  const part_stream *p = context;
  const int64_t first = sequence * p->batch, rest = p->count - first;
  return (brim_span){p->part, 0, first, rest <= 0 ? 0 : rest < p->batch ? rest : p->batch};
}

/* *weight: what the samples counted for. */
static brim_status evaluate(brim_trainer *t, brim_loader *loader, const volatile int *stop, double *weight)
{
  *weight = 0;
  BRIM_TRY(brim_exec_zero_metrics(t->exec));
  const brim_step step = {.loss_scale = 1};
  for (;;) {
    const brim_batch *batch = NULL;
    if (stop && *stop) return brim_fail(BRIM_EINTERRUPTED, "interrupted during evaluation");
    BRIM_TRY(brim_loader_next(loader, &batch));
    if (!batch) return BRIM_OK;
    const brim_program *program = brim_plan_program(t->plan, BRIM_PROGRAM_EVALUATE, batch->span.count);
    BRIM_TRY(brim_exec_load(t->exec, program, batch->values, batch->labels));
    BRIM_TRY(brim_exec_run(t->exec, program, &step));
    *weight += weight_of(t, batch->labels, batch->span.count);
  }
}

brim_status brim_trainer_evaluate(brim_trainer *t, enum brim_part part, const volatile int *stop, brim_evaluation *out)
{
  const brim_session *s = t->session;
  const int64_t classes = s->data.train.classes, cells = confusion_cells(t);
  part_stream stream = {part, s->data.count[part], s->eval_batch};
  brim_loader_options options = brim_session_part_loader(s, part);
  options.next = next_part_span;
  options.context = &stream;
  brim_loader *loader = NULL;
  BRIM_TRY(brim_loader_open(&options, &loader));
  double weight = 0;
  brim_status status = evaluate(t, loader, stop, &weight);
  if (status != BRIM_OK) t->failed_at = brim_now();
  brim_loader_close(loader);
  if (status != BRIM_OK) return status;
  const brim_program *any = brim_plan_program(t->plan, BRIM_PROGRAM_EVALUATE, next_part_span(&stream, 0).count);
  BRIM_TRY(brim_exec_metrics(t->exec, any, t->metrics, (size_t)(2 + cells + (s->top_k > 0))));
  const double count = (double)stream.count;
  *out = (brim_evaluation){.samples = stream.count,
                           .loss = t->metrics[0] / weight,
                           .accuracy = t->metrics[1] / count,
                           .top_k = s->top_k,
                           .accuracy_top = s->top_k > 0 ? t->metrics[2 + cells] / count : NAN,
                           .f1 = cells > 0 ? brim_scores_macro_f1(t->metrics + 2, classes) : NAN,
                           .classes = classes,
                           .class_names = s->data.train.class_names,
                           .confusion = cells > 0 ? t->metrics + 2 : NULL};
  return BRIM_OK;
}
