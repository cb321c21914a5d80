/* Steps of a trainer. See trainer.h. */
#include <math.h>

#include "base/fault.h"
#include "base/tracing.h"
#include "setup/loss_scale.h"
#include "train/trainer_parts.h"

brim_status brim_trainer_make_step(const brim_trainer *t, int64_t number, int64_t samples, brim_begun *b)
{
  const brim_drive *d = t->drive;
  b->step = (brim_step){.seed = (uint64_t)t->drive->setup->settings->seed,
                        .step = (uint64_t)number,
                        .loss_scale = b->scale / (double)(samples * brim_setup_losses_each(t->drive->setup)),
                        .norm_groups = brim_setup_norm_groups(d->setup, samples),
                        .gradient_scale = 1};
  const brim_setup *s = d->setup;
  double factor;
  b->update = b->step;
  b->update.step = (uint64_t)(number - t->state.skipped_steps);
  BRIM_TRY(brim_schedule_factor(s->schedule, s->schedule_params, number, d->order.steps, &factor));
  BRIM_TRY(brim_optimizer_fill(s->optimizer, s->optimizer_params, factor, &b->step));
  return brim_optimizer_fill(s->optimizer, s->optimizer_params, factor, &b->update);
}

static brim_span next_span(void *context, int64_t sequence)
{
  const brim_trainer *t = context;
  return brim_order_span(&t->drive->order, t->first_sequence + sequence);
}

/* ---- the micro-batches of a step ---- */

static brim_status open_loader(brim_trainer *t)
{
  static const char *const name = "start the loader";
  brim_loader_options options = brim_setup_train_loader(t->drive->setup, t->drive->choice.micro_batch);
  options.next = next_span;
  options.context = t;
  t->first_sequence = brim_order_sequence(&t->drive->order, t->state.step);
  t->loader_bytes = brim_loader_bytes(&options);
  const int64_t began = brim_tracing_begin(name);
  const brim_status status = brim_loader_open(&options, &t->loader);
  brim_tracing_end(began, BRIM_TRACING_PHASE, name, 0);
  return status;
}

static brim_status prepare(brim_trainer *t)
{
  if (!t->loader && brim_order_batch_max(&t->drive->order) > 0) BRIM_TRY(open_loader(t));
  if (brim_fault_hit(BRIM_FAULT_BEGIN, NULL))
    return brim_fail(BRIM_ENOMEM_DEVICE, "failed at its beginning (injected by %s)", BRIM_FAULT_ENVIRONMENT);
  BRIM_TRY(brim_exec_zero_gradients(t->exec));
  return brim_exec_zero_metrics(t->exec);
}

static const brim_exec_options collectives = {.part = BRIM_EXEC_COLLECTIVES};

/* A step's micro-batches on this rank. */
typedef struct micros {
  int64_t loaded;          /* samples */
  const brim_batch *batch; /* micro-batch on the device; NULL: none left */
  bool is_last;            /* no rank has a micro-batch after it */
} micros;

/* Whether the ranks meet before every micro-batch, because each sums its gradients over the ranks. */
static bool is_together(const brim_trainer *t)
{
  return t->drive->setup->settings->dist.shard == BRIM_SHARD_GRADIENTS && t->drive->setup->world.ranks > 1;
}

static brim_status run_batch(brim_trainer *t, brim_begun *b, const micros *m)
{
  if (!m->batch) {
    const brim_program *any = t->plan->program; /* all training programs have the same collectives */
    if (!is_together(t)) return BRIM_OK;
    while (any->kind != BRIM_PROGRAM_TRAIN) any++;
    return brim_exec_run(t->exec, any, &b->step, &(brim_exec_options){.part = BRIM_EXEC_NEEDED});
  }
  const brim_program *program = brim_plan_program(t->plan, BRIM_PROGRAM_TRAIN, m->batch->span.count);
  if (program->graph->passes) b->program = program;
  const brim_exec_options options = {.part = b->program ? BRIM_EXEC_FORWARD : BRIM_EXEC_WHOLE,
                                     .sums = m->is_last && !b->program};
  return brim_exec_run(t->exec, program, &b->step, &options);
}

/* Runs micro-batches up to the next one before which the ranks meet: the last or, with dist.shard=gradients, each. */
static brim_status run_to_meeting(brim_trainer *t, brim_begun *b, micros *m)
{
  static const char *const waiting = "wait for samples", *const weighing = "weigh samples";
  for (;;) {
    m->batch = NULL;
    if (m->loaded == b->share.count) return BRIM_OK;
    int64_t began = brim_tracing_begin(waiting);
    const double start = brim_now();
    const brim_status status = brim_loader_next(t->loader, &m->batch);
    t->loader_waited += brim_now() - start;
    brim_tracing_end(began, BRIM_TRACING_PHASE, waiting, 0);
    BRIM_TRY(status);
    if (!m->batch) return brim_fail(BRIM_EINTERNAL, "the loader ended in step %llu", (unsigned long long)b->step.step);
    const brim_span *span = &m->batch->span;
    const brim_program *program = brim_plan_program(t->plan, BRIM_PROGRAM_TRAIN, span->count);
    BRIM_TRY(brim_exec_load(t->exec, program, m->batch->values, m->batch->labels));
    b->step.first_sample = span->first - b->span.first;
    began = brim_tracing_begin(weighing);
    brim_setup_weigh(t->drive->setup, m->batch, &b->weight, &b->tokens);
    brim_tracing_end(began, BRIM_TRACING_PHASE, weighing, 0);
    m->loaded += span->count;
    if (is_together(t) || m->loaded == b->share.count) return BRIM_OK;
    BRIM_TRY(run_batch(t, b, m));
  }
}

/* Keeps the first failure of this rank's work after the meeting, which is reported after the sums. */
static void keep_failure(brim_trainer *t, brim_begun *b, brim_status status)
{
  if (status == BRIM_OK || b->failed != BRIM_OK) return;
  b->failed = status;
  brim_error_take(&t->error);
}

/* Runs all micro-batches, and sums over all ranks. After the meeting before the last micro-batch, every rank takes part
 * in the sums, even if its own work fails. All labels of the step, and with them the weight of the mean (of weighted
 * losses, or of the tokens that count), are known only at that meeting. So the losses are first divided by their
 * number, and `gradient_scale` corrects this in the update. */
static brim_status accumulate(brim_trainer *t, brim_begun *b)
{
  micros m = {0};
  brim_status status = prepare(t);
  b->weight = b->tokens = 0;
  b->program = NULL;
  b->failed = BRIM_OK;
  while (!m.is_last) {
    double sum[BRIM_BALLOT_SUMS] = {0};
    if (status == BRIM_OK) status = run_to_meeting(t, b, &m);
    sum[0] = b->weight;
    sum[1] = (double)(b->share.count - m.loaded);
    sum[2] = b->tokens;
    BRIM_TRY(brim_trainer_meet_for(t, BRIM_MEET_READY, t->begun_steps, status, sum));
    m.is_last = sum[1] == 0;
    if (m.is_last) { /* the sums then cover all micro-batches */
      const double losses = (double)(b->span.count * brim_setup_losses_each(t->drive->setup));
      b->weight = sum[0];
      b->tokens = sum[2];
      b->step.gradient_scale = b->update.gradient_scale = sum[0] > 0 ? losses / sum[0] / b->scale : 0;
    }
    status = run_batch(t, b, &m);
  }
  keep_failure(t, b, status);
  status = brim_exec_reduce(t->exec, status != BRIM_OK);
  if (status != BRIM_ECOMM) keep_failure(t, b, status);
  return status == BRIM_ECOMM ? status : BRIM_OK;
}

bool brim_trainer_is_ahead(const brim_trainer *t)
{
  return t->begun_steps > t->state.step;
}

/* Returns the gradients' norm before clipping, or NULL if it is not needed. */
static const brim_tensor *norm_wanted(const brim_trainer *t)
{
  return t->drive->setup->settings->training.clip_norm ? t->update->graph->gradient_scale : NULL;
}

/* On an asynchronous device, starts the whole step, including the update, which checks the proof itself. */
static brim_status start_update(brim_trainer *t, brim_begun *b)
{
  if (t->check) BRIM_TRY(brim_exec_run(t->exec, t->check, &b->step, NULL));
  t->torn = true;
  const brim_exec_options proved = {.proved = true}, backward = {.part = BRIM_EXEC_BACKWARD, .proved = true};
  if (b->program) BRIM_TRY(brim_exec_run(t->exec, b->program, &b->step, &backward));
  BRIM_TRY(brim_exec_run(t->exec, t->update, &b->update, &proved));
  BRIM_TRY(brim_exec_fetch(t->exec, b->metrics, 2, &b->proof, t->update, norm_wanted(t), b->norm));
  t->torn = false; /* the update will be complete, unless the step is discarded */
  return BRIM_OK;
}

static brim_status begin_step(brim_trainer *t)
{
  brim_begun *b = &t->begun[t->begun_steps % 2];
  brim_fault_step(t->begun_steps + 1);
  b->span = brim_order_step(&t->drive->order, t->begun_steps);
  b->share = brim_order_share(&t->drive->order, t->begun_steps);
  b->scale = 1;
  if (t->check) { /* the scale after the step in progress, if that is not skipped; if it is, this step is begun again */
    brim_train_state state = t->state;
    if (brim_trainer_is_ahead(t)) brim_loss_scale_keep(t->drive->setup->settings, &state);
    b->scale = state.loss_scale;
  }
  static const char *const preparing = "prepare the step", *const name = "micro-batches";
  int64_t began = brim_tracing_begin(preparing);
  brim_status status = brim_trainer_make_step(t, t->begun_steps, b->span.count, b);
  brim_tracing_end(began, BRIM_TRACING_PHASE, preparing, 0);
  BRIM_TRY(status);
  b->norm[0] = NAN;
  began = brim_tracing_begin(name);
  status = accumulate(t, b);
  brim_tracing_end(began, BRIM_TRACING_PHASE, name, 0);
  BRIM_TRY(status);
  if (b->failed != BRIM_OK && !t->drive->setup->options.dist) {
    brim_error_put(&t->error);
    return b->failed;
  }
  if (brim_exec_is_asynchronous(t->exec) && b->failed == BRIM_OK) {
    BRIM_TRY(start_update(t, b));
  } else if (brim_exec_is_asynchronous(
                 t->exec)) { /* the other ranks begin the update, which has no effect because of their proof */
    if (t->check) BRIM_TRY(brim_exec_run(t->exec, t->check, &b->step, &collectives));
    BRIM_TRY(brim_exec_run(t->exec, t->update, &b->update, &collectives));
  }
  t->begun_steps++;
  return BRIM_OK;
}

/* Commits the step, whose update is done, in progress or skipped. Leaves a loss that is not finite out of the sums;
 * only a skipped step can have one. */
static void commit(brim_trainer *t, const brim_begun *b)
{
  brim_train_state *state = &t->state;
  if (isfinite(b->metrics[0])) {
    state->window_loss += b->metrics[0];
    state->window_correct += b->metrics[1];
    state->window_weight += b->weight;
    state->window_tokens += b->tokens;
    state->window_samples += b->span.count;
  }
  state->samples += b->span.count;
  state->step++;
  state->epoch = state->step / t->drive->order.steps_per_epoch;
}

/* Called if an asynchronous device rejected the update, and with it that of the next step if that was begun with the
 * old scale: the next step is then begun again. */
static brim_status take_back(brim_trainer *t)
{
  const brim_begun *b = &t->begun[t->state.step % 2];
  double metrics[2];
  if (!brim_exec_is_asynchronous(t->exec)) return BRIM_OK;
  if (t->begun_steps > t->state.step + 1) {
    BRIM_TRY(brim_exec_collect(t->exec));
    brim_loader_close(t->loader);
    t->loader = NULL;
    t->begun_steps = b->step.step + 1;
  }
  return brim_exec_metrics(t->exec, &t->plan->program[0], metrics, 2); /* updates have an effect again from here on */
}

/* Handles non-finite values: with a loss scale, skips the update, unless that no longer helps. */
static brim_status refuse(brim_trainer *t, const brim_begun *b)
{
  const brim_train_state before = t->state;
  brim_status status;
  if (t->check && brim_loss_scale_skip(t->drive->setup->settings, &t->state)) {
    status = take_back(t);
  } else {
    bool is_found = false;
    status = brim_trainer_explain(t, b, &is_found);
    status = brim_trainer_report_once(t, status, is_found);
  }
  if (status == BRIM_OK)
    commit(t, b);
  else
    t->state = before; /* if memory ran out in the meantime, the step is repeated */
  return status;
}

/* Checks the result of a step before its update; afterwards no work is in progress. */
static brim_status look_at_loss(brim_trainer *t, brim_begun *b)
{
  const bool asynchronous = brim_exec_is_asynchronous(t->exec);
  const double start = brim_now();
  if (!asynchronous) BRIM_TRY(brim_exec_finish_sums(t->exec));
  t->waited += brim_now() - start;
  if (b->failed != BRIM_OK && !asynchronous && t->check)
    BRIM_TRY(brim_exec_run(t->exec, t->check, &b->step, &collectives));
  if (b->failed != BRIM_OK) {
    brim_error_put(&t->error);
    return b->failed;
  }
  if (asynchronous) return brim_exec_collect(t->exec);
  if (t->check) BRIM_TRY(brim_exec_run(t->exec, t->check, &b->step, NULL));
  BRIM_TRY(brim_exec_metrics(t->exec, &t->plan->program[0], b->metrics, 2));
  return brim_exec_proof(t->exec, &b->proof);
}

static brim_status read_norm(brim_trainer *t, brim_begun *b)
{
  static const char *const name = "read the norm";
  const int64_t began = brim_tracing_begin(name);
  const brim_status status = brim_exec_read(t->exec, t->update, norm_wanted(t), b->norm);
  brim_tracing_end(began, BRIM_TRACING_PHASE, name, 0);
  return status;
}

static brim_status run_update(brim_trainer *t, brim_begun *b)
{
  t->torn = true;
  const brim_exec_options backward = {.part = BRIM_EXEC_BACKWARD};
  if (b->program) BRIM_TRY(brim_exec_run(t->exec, b->program, &b->step, &backward));
  BRIM_TRY(brim_exec_run(t->exec, t->update, &b->update, NULL));
  if (norm_wanted(t)) BRIM_TRY(read_norm(t, b));
  if (brim_fault_hit(BRIM_FAULT_UPDATE, NULL))
    return brim_fail(BRIM_ENOMEM_DEVICE, "update failed (injected by %s)", BRIM_FAULT_ENVIRONMENT);
  t->torn = false;
  return BRIM_OK;
}

static brim_status end_step(brim_trainer *t)
{
  static const char *const checking = "check the loss", *const updating = "update";
  brim_begun *b = &t->begun[t->state.step % 2];
  t->step = b->step;
  int64_t began = brim_tracing_begin(checking);
  const brim_status status = look_at_loss(t, b);
  brim_tracing_end(began, BRIM_TRACING_PHASE, checking, 0);
  BRIM_TRY(brim_trainer_meet(t, BRIM_MEET_COMMIT, status));
  if (!isfinite(b->proof)) return refuse(t, b);
  if (!brim_exec_is_asynchronous(t->exec)) {
    began = brim_tracing_begin(updating);
    const brim_status updated = run_update(t, b);
    brim_tracing_end(began, BRIM_TRACING_PHASE, updating, 0);
    BRIM_TRY(updated);
  }
  if (norm_wanted(t)) t->state.gradient_norm = b->norm[0];
  brim_loss_scale_keep(t->drive->setup->settings, &t->state);
  commit(t, b);
  return BRIM_OK;
}

/* Makes a step. If the next one, begun ahead, gets no memory, this one is still completed. */
static brim_status try_step(brim_trainer *t, bool more)
{
  brim_status ahead = BRIM_OK;
  t->is_reported = false;
  if (!brim_trainer_is_ahead(t)) BRIM_TRY(begin_step(t));
  if (more && brim_exec_is_asynchronous(t->exec)) ahead = begin_step(t);
  const bool is_lost = ahead != BRIM_OK && !brim_status_is_want(ahead) && ahead != BRIM_EPEER;
  if (is_lost) return ahead;
  const bool was_reported = t->is_reported;
  BRIM_TRY(end_step(t));
  t->is_reported = was_reported;
  return ahead;
}

/* A failure discards the steps that have begun; samples are read again from the last commit on. An asynchronous device
 * may have applied updates of those steps. */
brim_status brim_trainer_step(brim_trainer *t, bool more)
{
  const brim_status status = t->federation ? brim_trainer_round(t) : try_step(t, more);
  if (status == BRIM_OK) return BRIM_OK;
  brim_error first; /* the error to show */
  brim_error_take(&first);
  t->failed_at = brim_now();
  if (brim_trainer_is_ahead(t) && brim_exec_is_asynchronous(t->exec)) t->torn = true;
  (void)brim_exec_wait(t->exec); /* the device may be reading the loader's data */
  brim_loader_close(t->loader);
  t->loader = NULL;
  t->begun_steps = t->state.step;
  brim_error_put(&first);
  return status;
}

double brim_trainer_failed_at(const brim_trainer *t)
{
  return t->failed_at;
}
