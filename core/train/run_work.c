/* Presents a run's trainer as the work that drive/loop.h drives: steps, the work after them, the handling of failures,
 * and the trainer's plan. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/order.h"
#include "base/tracing.h"
#include "store/rundir.h"
#include "train/run_parts.h"
#include "train/stop.h"

/* ---- steps ---- */

void brim_running_collect(brim_running *r)
{
  brim_report_memory(&r->report, r->trainer);
  r->report.queue_seconds = r->drive->planner.queue_seconds;
  r->report.loss_scale = r->state->loss_scale;
  r->report.skipped_steps = r->state->skipped_steps;
  r->report.epsilon = brim_trainer_epsilon(r->trainer, false);
  r->report.delta = r->settings->privacy.delta;
  r->report.has_world = r->settings->has_world;
  r->report.world_seconds = r->state->world_seconds;
  r->report.world_joules = r->state->world_joules;
  r->report.world_bytes = r->state->world_bytes;
}

double brim_running_own_seconds(const brim_running *r)
{
  return brim_now() - r->options->start - (r->drive ? r->drive->planner.queue_seconds : 0);
}

double brim_running_step_seconds(void *running)
{
  const brim_running *r = running;
  double sorted[BRIM_STEPS_RECENT];
  const size_t count = r->recent_count < BRIM_STEPS_RECENT ? r->recent_count : BRIM_STEPS_RECENT;
  if (count == 0) return 0;
  memcpy(sorted, r->recent, count * sizeof *sorted);
  qsort(sorted, count, sizeof *sorted, brim_by_double);
  return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

/* Whether another step follows the next one at once, without work in between that needs the parameters. */
static bool continues_at_once(const brim_running *r)
{
  const brim_training_settings *t = &r->settings->training;
  const int64_t next = r->state->step + 1;
  const bool is_wanted = r->options->dist
                             ? brim_trainer_verdict(r->trainer)->wishes != 0
                             : *r->stop || brim_pressure_is_due(r->pressure) || brim_resize_is_due(&r->loop.resize);
  return !is_wanted && !brim_running_trace_stops_ahead(r) && !brim_running_is_compared(r, next) &&
         !brim_loop_is_due(&r->loop, next, t->eval_every_steps) &&
         !brim_loop_is_due(&r->loop, next, t->checkpoint_every_steps) && !brim_running_has_histograms(r, next + 1);
}

static brim_status make(void *self)
{
  static const char *const name = "step";
  brim_running *r = self;
  brim_running_before_step(r);
  const double start = brim_now(), waited = brim_trainer_waited(r->trainer), scale = r->state->loss_scale;
  const double loaded = brim_trainer_loader_waited(r->trainer);
  const int64_t samples = r->state->samples, skipped = r->state->skipped_steps, step = r->state->step;
  BRIM_TRY(brim_running_trace_before(r));
  const int64_t began =
      brim_setup_is_federated(r->drive->setup) ? brim_tracing_begin(name) : brim_tracing_begin_step(name);
  const brim_status status = brim_trainer_step(r->trainer, continues_at_once(r));
  brim_tracing_end(began, BRIM_TRACING_STEP, name, (uint64_t)step + 1);
  /* If the step has been committed, the next one, which had begun ahead, failed. */
  if (r->state->step == step) return status;
  if (r->participants.log.fd >= 0)
    BRIM_TRY(brim_participants_add(&r->participants, r->state->step, brim_trainer_last_round(r->trainer)));
  if (r->state->skipped_steps > skipped) { /* each skipped step is an event; messages appear only as often as records */
    char detail[64];
    snprintf(detail, sizeof detail, "loss scale %.0f, then %.0f", scale, r->state->loss_scale);
    brim_running_event(r, "skipped_step", detail);
    if (r->reported_step < 0 || r->state->step >= r->reported_step + r->settings->observe.log_every_steps) {
      r->reported_step = r->state->step;
      brim_log(BRIM_LOG_INFO,
               "step %lld was skipped: its loss or a gradient was not finite in fp16 at a loss scale of %.0f, which is "
               "now %.0f; %lld step%s skipped so far",
               (long long)r->state->step, scale, r->state->loss_scale, (long long)r->state->skipped_steps,
               brim_plural(r->state->skipped_steps));
    }
  }
  if (brim_setup_is_federated(r->drive->setup))
    r->selection_seconds += brim_trainer_last_round(r->trainer)->selection_seconds;
  const double now = brim_now();
  r->recent[r->recent_count++ % BRIM_STEPS_RECENT] = now - start;
  r->window_seconds += now - start;
  r->window_timed += r->state->samples - samples;
  r->loader_seconds += brim_trainer_loader_waited(r->trainer) - loaded;
  r->steps_seconds += now - start;
  r->waited_seconds += brim_trainer_waited(r->trainer) - waited;
  brim_report_step(&r->report, r->state->samples - samples, now - start, brim_running_own_seconds(r));
  if (r->state->step % r->settings->observe.log_every_steps == 0 || brim_loop_is_due(&r->loop, r->state->step, 0))
    BRIM_TRY(brim_running_close_window(r));
  brim_running_show_progress(r);
  brim_running_update_metrics(r);
  if (status == BRIM_OK) BRIM_TRY(brim_running_after_step(r));
  if (status == BRIM_OK && brim_running_is_compared(r, r->state->step)) BRIM_TRY(brim_trainer_compare(r->trainer));
  return status == BRIM_OK ? brim_running_trace_after(r) : status;
}

/* ---- work due after a commit ---- */

static void begin_turn(void *self)
{
  brim_running *r = self;
  brim_reserve_take();
  r->turn_started = brim_now();
  brim_stop_at(r->loop.checkpoint_step, r->state->step);
  brim_stop_doing(BRIM_STOP_STEPS);
  brim_live_now(BRIM_LIVE_TRAINING);
  brim_running_trace_look(r);
  brim_running_wish(r);
}

/* Evaluates on validation data if there is any; only then can the step become the best. */
static brim_status evaluate(void *self, bool *is_new)
{
  brim_running *r = self;
  const brim_train_state *s = r->state;
  const int64_t *count = r->drive->setup->data.count;
  const enum brim_part part = count[BRIM_PART_VALIDATION] ? BRIM_PART_VALIDATION : BRIM_PART_TEST;
  *is_new = false;
  if (s->evaluated_step == s->step || count[part] == 0 || !r->settings->federate.train) return BRIM_OK;
  brim_evaluation e;
  BRIM_TRY(brim_running_evaluate(r, part, false, &e));
  brim_running_judge(r, part, &e);
  *is_new = true;
  return BRIM_OK;
}

static bool is_best(void *self)
{
  const brim_running *r = self;
  return r->state->best_step == r->state->step && r->state->step > 0;
}

static brim_status checkpoint(void *self)
{
  brim_running *r = self;
  const brim_phase phase = brim_phase_begin(BRIM_LIVE_CHECKPOINT, "checkpoint");
  const brim_status status = brim_trainer_checkpoint(r->trainer, r->dir, r->settings->training.keep_checkpoints);
  brim_phase_end(&phase);
  BRIM_TRY(status);
  brim_stop_at(r->state->step, r->state->step);
  brim_running_event(r, "checkpoint", NULL);
  brim_running_hook(r, BRIM_HOOK_CHECKPOINT, NULL);
  return BRIM_OK;
}

/* ---- the end ---- */

/* Writes a checkpoint of the last commit, unless there is one already, or the parameters are lost; a resumed run then
 * uses the newest checkpoint. */
static brim_status write_last_checkpoint(brim_running *r)
{
  return brim_trainer_has_values(r->trainer) ? brim_loop_save(&r->loop) : BRIM_OK;
}

static brim_status interrupt(brim_running *r)
{
  brim_live_now(BRIM_LIVE_STOPPING);
  BRIM_TRY(write_last_checkpoint(r));
  r->is_interrupted = true;
  const int signal = *r->stop ? *r->stop : SIGTERM; /* SIGTERM if only another rank received a signal */
  brim_running_event(r, "interrupted", strsignal(signal));
  return brim_fail(BRIM_EINTERRUPTED, "%s after step %lld of %lld%s\nresume with: %s %s",
                   signal == SIGINT ? "interrupted" : "terminated", (long long)r->state->step,
                   (long long)r->drive->order.steps,
                   r->loop.checkpoint_step == r->state->step ? "; a checkpoint was written" : "",
                   brim_run_resume_words(r->dir), BRIM_QUOTED(r->dir));
}

static brim_status evaluate_test(brim_running *r)
{
  const int64_t step = r->state->step;
  if (r->drive->setup->data.count[BRIM_PART_TEST] == 0 || r->report.test_step == step) return BRIM_OK;
  const bool recorded =
      step > 0 && r->drive->setup->data.count[BRIM_PART_VALIDATION] == 0 && r->state->evaluated_step == step;
  brim_evaluation e;
  return brim_running_evaluate(r, BRIM_PART_TEST, recorded, &e);
}

/* Finishes a run: evaluates the test data, unless that was just done, and a federation's clients. A run of zero steps
 * writes a checkpoint of its initial values, such as loaded weights, for the commands that need a run. */
static brim_status finish(void *self)
{
  brim_running *r = self;
  if (r->state->step < r->drive->order.steps && !r->has_stopped) BRIM_TRY(brim_running_stop_early(r));
  if (r->state->step == 0) BRIM_TRY(write_last_checkpoint(r));
  if (!r->settings->federate.train) return BRIM_OK; /* without training there is nothing to evaluate */
  brim_status status = evaluate_test(r);
  if (status == BRIM_OK) status = brim_running_evaluate_clients(r);
  return status == BRIM_EINTERRUPTED ? interrupt(r) : status;
}

static brim_status check_stop(void *self)
{
  brim_running *r = self;
  const bool stops = /* the decision on which all ranks agree */
      r->options->dist ? (brim_trainer_verdict(r->trainer)->wishes & BRIM_WISH_STOP) != 0 : *r->stop != 0;
  return stops && !brim_trainer_is_ahead(r->trainer) ? interrupt(r) : BRIM_OK;
}

/* ---- failures ---- */

/* Ends the run with a checkpoint of its last commit. */
static brim_status give_up(brim_running *r, brim_status failure)
{
  brim_error first;
  brim_error_take(&first);
  brim_live_now(BRIM_LIVE_STOPPING);
  const brim_status status = write_last_checkpoint(r);
  if (status != BRIM_OK)
    brim_log(BRIM_LOG_WARN, "no checkpoint of step %lld: %s", (long long)r->state->step, brim_error_text());
  brim_error_put(&first);
  if (r->loop.checkpoint_step < 0) return failure;
  return brim_fail_add(failure, "there is a checkpoint of step %lld\n%sresume with: %s %s",
                       (long long)r->loop.checkpoint_step, failure == BRIM_EPLUGIN ? "once the plugin is fixed, " : "",
                       brim_run_resume_words(r->dir), BRIM_QUOTED(r->dir));
}

/* Whether a policy caused the failure, so that the training state is sound. */
static bool is_of_policies(brim_status status)
{
  return status == BRIM_EPLUGIN || status == BRIM_ECONFIG;
}

/* Diverging clients and failing selectors leave the global model unchanged. */
static bool is_of_round(const brim_running *r, brim_status status)
{
  return brim_setup_is_federated(r->drive->setup) && (status == BRIM_ENUMERIC || status == BRIM_EPLUGIN);
}

/* Called after going back to an earlier state: removes the records written after it. */
static brim_status drop_later_records(brim_running *r)
{
  const brim_train_state *s = r->state;
  char path[4200];
  r->reported_step = -1;
  r->selection_seconds = 0;
  r->window_seconds = 0;
  r->window_timed = 0;
  r->loader_seconds = 0;
  brim_running_recall(r);
  if (r->metrics.fd < 0) return BRIM_OK; /* another rank writes the file */
  brim_running_heed_tensorboard(r, r->tensorboard.fd < 0 ? BRIM_OK
                                                         : brim_tensorboard_rewind(&r->tensorboard, s->step + 1));
  if (r->participants.log.fd >= 0) {
    brim_participants_close(&r->participants);
    BRIM_TRY(brim_participants_open(&r->participants, r->dir, s->step));
  }
  if (brim_histograms_rewind(&r->histograms, s->step) != BRIM_OK) brim_histograms_mute(&r->histograms);
  snprintf(path, sizeof path, "%s", r->metrics.path);
  brim_jsonl_close(&r->metrics);
  return brim_jsonl_open(&r->metrics, path, s->metrics_records);
}

/* Takes a measure against `failure`. The turn is then repeated; it has changed nothing durable. */
static brim_status recover(brim_running *r, brim_status failure)
{
  char what[sizeof r->loop.doing];
  bool rewound = false;
  const double now = brim_now(), at = brim_trainer_failed_at(r->trainer);
  brim_running_collect(r);
  memcpy(what, r->loop.doing, sizeof what);
  brim_running_hook(r, BRIM_HOOK_OOM, brim_error_text());
  brim_status status = brim_loop_recover(&r->loop, failure, &rewound);
  if (r->loop.recovery.is_remade) brim_running_follow_drive(r);
  if (status == BRIM_OK && rewound) status = drop_later_records(r);
  if (status == BRIM_OK && r->loop.recovery.is_remade) status = brim_running_keep_drive(r);
  if (status != BRIM_OK) return status;
  r->report.retries++;
  brim_report_recovered(&r->events, r->state->step, what, brim_now() - (at > r->turn_started ? at : now));
  return BRIM_OK;
}

/* Repeats the turn after another rank has failed. If the parameters are lost, goes back to a checkpoint first. */
static brim_status redo_of_others(brim_running *r)
{
  const brim_verdict *v = brim_trainer_verdict(r->trainer);
  r->report.retries++;
  brim_running_event(r, "redone", brim_error_text());
  brim_log(BRIM_LOG_INFO, "rank %d failed in %s: %s; repeating it", (int)v->failed, r->loop.doing,
           brim_status_text(v->status));
  if (brim_trainer_has_values(r->trainer)) return BRIM_OK;
  BRIM_TRY(brim_recover_follow(&r->loop.recovery, r->loop.doing));
  brim_loop_rewound(&r->loop);
  return drop_later_records(r);
}

/* Makes all ranks agree to repeat the turn; if one rank cannot, none does. */
static brim_status again(brim_running *r, brim_status failure)
{
  brim_live_now(BRIM_LIVE_RECOVERING);
  BRIM_TRY(brim_running_find_checkpoint(r));
  brim_status status = brim_status_is_want(failure) ? recover(r, failure) : redo_of_others(r);
  if (status == BRIM_EINTERRUPTED && !r->options->dist) return interrupt(r);
  status = brim_trainer_meet(r->trainer, BRIM_MEET_AGAIN, status);
  return status == BRIM_OK || status == BRIM_ECOMM ? status : give_up(r, status);
}

/* Reports the failure, so that other ranks do not wait for this one. *is_over: the turn will not be repeated. If a rank
 * is interrupted while it waits, the whole job ends, with a checkpoint. */
static brim_status report_failure(brim_running *r, brim_status failure, bool *is_over)
{
  *is_over = !brim_status_is_want(failure);
  if (!r->options->dist || r->is_interrupted || failure == BRIM_ECOMM) return failure;
  const brim_status met =
      brim_trainer_has_reported(r->trainer) ? failure : brim_trainer_meet(r->trainer, BRIM_MEET_AGAIN, failure);
  *is_over = brim_trainer_verdict(r->trainer)->is_over;
  if (brim_trainer_verdict(r->trainer)->status == BRIM_EINTERRUPTED) return interrupt(r);
  const brim_status first = brim_trainer_verdict(r->trainer)->status;
  return *is_over && (is_of_policies(first) || is_of_round(r, first)) ? give_up(r, met) : met;
}

/* Repeats a failed turn if that can help; else ends the run, with a checkpoint. */
static brim_status failed(void *self, enum brim_turn_part part, brim_status status)
{
  brim_running *r = self;
  bool is_over = false;
  const bool gives_up = !r->options->dist && (part == BRIM_TURN_DUE      ? is_of_policies(status)
                                              : part == BRIM_TURN_CHANGE ? !brim_status_is_want(status)
                                                                         : is_of_round(r, status));
  if (status == BRIM_EINTERRUPTED && (part == BRIM_TURN_DUE || gives_up))
    status = interrupt(r);
  else if (gives_up)
    status = give_up(r, status);
  status = report_failure(r, status, &is_over);
  return is_over ? status : again(r, status);
}

/* ---- between two steps ---- */

static bool is_ahead(void *self)
{
  const brim_running *r = self;
  return brim_trainer_is_ahead(r->trainer);
}

/* ---- the trainer's plan ---- */

static int64_t step_of(void *self)
{
  const brim_running *r = self;
  return brim_trainer_state(r->trainer)->step;
}

static uint64_t placed_bytes(void *self)
{
  const brim_running *r = self;
  const brim_plan *plan = brim_trainer_plan(r->trainer);
  return plan ? plan->peak_bytes : 0;
}

static bool has_values(void *self)
{
  const brim_running *r = self;
  return brim_trainer_has_values(r->trainer);
}

static void clean(void *self, enum brim_cleanup cleanup, bool of_round)
{
  const brim_running *r = self;
  if (of_round)
    brim_running_clean(r, cleanup);
  else
    brim_trainer_clean(r->trainer, cleanup);
}

/* Stops watching the device while the plan changes, because the device may change too. */
static void leave_device(brim_running *r)
{
  brim_running_collect(r);
  brim_running_trace_seal(r);
  brim_pressure_aim(r->pressure, NULL);
}

static brim_status watch_again(brim_running *r, brim_status status)
{
  if (brim_trainer_plan(r->trainer)) brim_running_aim(r);
  return status;
}

static brim_status park(void *self)
{
  brim_running *r = self;
  leave_device(r);
  const brim_status status = brim_trainer_park(r->trainer, r->dir);
  return status == BRIM_OK ? BRIM_OK : watch_again(r, status);
}

static brim_status replan(void *self)
{
  brim_running *r = self;
  leave_device(r);
  r->recent_count = 0;
  return watch_again(r, brim_trainer_replan(r->trainer, r->dir));
}

/* Goes back as --resume does, but in this process; ranks use the checkpoint on which they have agreed. */
static brim_status rewind_run(void *self)
{
  brim_running *r = self;
  if (!r->options->dist) BRIM_TRY(brim_running_find_newest(r));
  leave_device(r);
  r->recent_count = 0;
  return watch_again(r, brim_trainer_restart(r->trainer, r->checkpoint[0] ? r->checkpoint : NULL));
}

static void follow(void *self, brim_drive *drive)
{
  const brim_running *r = self;
  brim_trainer_follow(r->trainer, drive);
}

brim_work brim_running_work(brim_running *r)
{
  return (brim_work){.self = r,
                     .step = step_of,
                     .begin_turn = begin_turn,
                     .make = make,
                     .evaluate = evaluate,
                     .end_round = brim_running_report_ranks,
                     .is_best = is_best,
                     .is_over = brim_running_is_over,
                     .checkpoint = checkpoint,
                     .check_stop = check_stop,
                     .finish = finish,
                     .failed = failed,
                     .is_ahead = is_ahead,
                     .heed_pressure = brim_running_heed_pressure,
                     .checks_with_room = brim_running_checks_with_room,
                     .step_seconds = brim_running_step_seconds,
                     .placed_bytes = placed_bytes,
                     .has_values = has_values,
                     .clean = clean,
                     .park = park,
                     .replan = replan,
                     .rewind = rewind_run,
                     .follow = follow};
}
