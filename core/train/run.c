/* The runner: steps, records, evaluations, checkpoints, in this order after each commit:
 *     training record -> evaluation (validation, else test) -> checkpoint
 * Each is due by the number of the step alone, so a resumed run does what an undisturbed one does. */
#include "train/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/crash.h"
#include "base/log.h"
#include "base/order.h"
#include "planner/figures.h"
#include "train/run_parts.h"
#include "train/stop.h"

/* ---- the loop ---- */

/* Each is an event; a line for a person comes as often as records do. */
static void tell_skipped(brim_running *r, double scale)
{
  char detail[64];
  const brim_train_state *s = r->state;
  snprintf(detail, sizeof detail, "loss scale %.0f, then %.0f", scale, s->loss_scale);
  brim_running_event(r, "skipped_step", detail);
  if (r->told_step >= 0 && s->step < r->told_step + r->settings->observe.log_every_steps) return;
  r->told_step = s->step;
  brim_log(BRIM_LOG_INFO,
           "step %lld was skipped: its loss or a gradient was not finite in fp16 at a loss scale of %.0f, which is "
           "%.0f now; "
           "%lld step%s skipped so far",
           (long long)s->step, scale, s->loss_scale, (long long)s->skipped_steps, brim_plural(s->skipped_steps));
}

/* Of this process, without what it has spent in line for devices. */
static double own_seconds(const brim_running *r)
{
  return brim_now() - r->options->start - (r->drive ? r->drive->planner.queue_seconds : 0);
}

/* The median of the last steps; 0: there were none under this plan. */
static double recent_seconds(const brim_running *r)
{
  double sorted[BRIM_STEPS_RECENT];
  const size_t count = r->recent_count < BRIM_STEPS_RECENT ? r->recent_count : BRIM_STEPS_RECENT;
  if (count == 0) return 0;
  memcpy(sorted, r->recent, count * sizeof *sorted);
  qsort(sorted, count, sizeof *sorted, brim_by_double);
  return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

static brim_status one_step(brim_running *r)
{
  const double start = brim_now(), waited = brim_trainer_waited(r->trainer), scale = r->state->loss_scale;
  const int64_t samples = r->state->samples, skipped = r->state->skipped_steps, step = r->state->step;
  snprintf(r->doing, sizeof r->doing, "step %lld", (long long)step + 1);
  const brim_status status = brim_trainer_step(r->trainer, brim_running_goes_on(r));
  if (r->state->step == step) return status; /* else the one that was begun behind it has failed */
  brim_recover_committed(&r->recovery);
  if (r->state->skipped_steps > skipped) tell_skipped(r, scale);
  const double now = brim_now();
  r->recent[r->recent_count++ % BRIM_STEPS_RECENT] = now - start;
  r->window_seconds += now - start;
  r->window_timed += r->state->samples - samples;
  r->steps_seconds += now - start;
  r->waited_seconds += brim_trainer_waited(r->trainer) - waited;
  brim_report_step(&r->report, r->state->samples - samples, now - start, own_seconds(r));
  if (r->state->step % r->settings->observe.log_every_steps == 0 || brim_running_is_due(r, 0))
    BRIM_TRY(brim_running_close_window(r));
  brim_running_show_progress(r);
  if (status == BRIM_OK && brim_running_is_compared(r, r->state->step)) return brim_trainer_compare(r->trainer);
  return status;
}

static brim_status stop_early(brim_running *r)
{
  char detail[128];
  snprintf(detail, sizeof detail, "no better validation loss since step %lld", (long long)r->state->best_step);
  BRIM_TRY(brim_running_close_window(r));
  if (r->checkpoint_step != r->state->step) BRIM_TRY(brim_running_write_checkpoint(r));
  r->has_stopped = true;
  brim_running_event(r, "stopped_early", detail);
  brim_say("stopped early after step %lld of %lld: %s (training.patience=%lld)", (long long)r->state->step,
           (long long)r->drive->order.steps, detail, (long long)r->settings->training.patience);
  return BRIM_OK;
}

/* Unless it is written, or the parameters are lost: then the newest one is what the run goes on with. */
static brim_status write_last_checkpoint(brim_running *r)
{
  return r->checkpoint_step == r->state->step || !brim_trainer_has_values(r->trainer)
             ? BRIM_OK
             : brim_running_write_checkpoint(r);
}

static brim_status interrupt(brim_running *r)
{
  BRIM_TRY(write_last_checkpoint(r));
  r->is_interrupted = true;
  const int signal = *r->stop ? *r->stop : SIGTERM; /* another rank's */
  brim_running_event(r, "interrupted", strsignal(signal));
  return brim_fail(BRIM_EINTERRUPTED, "%s after step %lld of %lld%s\ngo on with: brim train --resume %s",
                   signal == SIGINT ? "interrupted" : "terminated", (long long)r->state->step,
                   (long long)r->drive->order.steps,
                   r->checkpoint_step == r->state->step ? "; a checkpoint was written" : "", r->dir);
}

/* The last word: the test data, unless it was just evaluated. A run of no steps is what it began with, as weights from
 * elsewhere, and has a checkpoint of that for the commands that take runs. */
static brim_status finish(brim_running *r)
{
  if (r->state->step == 0) BRIM_TRY(write_last_checkpoint(r));
  if (r->drive->setup->data.count[BRIM_PART_TEST] == 0 || r->report.test_step == r->state->step) return BRIM_OK;
  const int64_t step = r->state->step;
  const bool recorded =
      step > 0 && r->drive->setup->data.count[BRIM_PART_VALIDATION] == 0 && r->state->evaluated_step == step;
  brim_evaluation e;
  const brim_status status = brim_running_evaluate(r, BRIM_PART_TEST, recorded, &e);
  return status == BRIM_EINTERRUPTED ? interrupt(r) : status;
}

static void collect_memory(brim_running *r)
{
  brim_report_memory(&r->report, r->trainer);
  r->report.queue_seconds = r->drive->planner.queue_seconds;
  r->report.loss_scale = r->state->loss_scale;
  r->report.skipped_steps = r->state->skipped_steps;
}

/* Another plan, if a policy says so. Nobody looks at the device meanwhile. */
static brim_status resize(brim_running *r)
{
  bool changes;
  r->resize.question.step_seconds = recent_seconds(r);
  BRIM_TRY(brim_resize_ask(&r->resize, &changes));
  if (!changes) return BRIM_OK;
  snprintf(r->doing, sizeof r->doing, "the plan after step %lld", (long long)r->state->step);
  collect_memory(r);
  brim_relief_aim(NULL, r->pressure);
  r->recent_count = 0;
  const brim_status status = brim_resize_do(&r->resize);
  brim_relief_aim(r->trainer, r->pressure);
  return status;
}

/* Between two steps the run may take another plan. */
static brim_status look_around(brim_running *r)
{
  BRIM_TRY(brim_running_heed_pressure(r));
  return brim_resize_is_due(&r->resize) && !brim_trainer_is_ahead(r->trainer) ? resize(r) : BRIM_OK;
}

/* The end, but not of what was trained. */
static brim_status give_up(brim_running *r, brim_status failure)
{
  char error[4096];
  snprintf(error, sizeof error, "%s", brim_error_text());
  const brim_status status = write_last_checkpoint(r);
  if (status != BRIM_OK)
    brim_log(BRIM_LOG_WARN, "no checkpoint of step %lld: %s", (long long)r->state->step, brim_error_text());
  (void)brim_fail(failure, "%s", error);
  if (r->checkpoint_step < 0) return failure;
  return brim_fail_add(failure, "there is a checkpoint of step %lld\n%sgo on with: brim train --resume %s",
                       (long long)r->checkpoint_step, failure == BRIM_EPLUGIN ? "when the plugin is mended, " : "",
                       r->dir);
}

/* Is it a policy's doing, and nothing is wrong with what was trained? */
static bool is_of_policies(brim_status status)
{
  return status == BRIM_EPLUGIN || status == BRIM_ECONFIG;
}

/* What is due, and a step. *done: there was no step to make. */
static brim_status turn(brim_running *r, bool *done)
{
  const brim_status status = brim_running_after_commit(r);
  const bool is_end = r->state->step >= r->drive->order.steps;
  if (status == BRIM_EINTERRUPTED) return interrupt(r);
  if (is_of_policies(status) && !r->options->dist) return give_up(r, status);
  BRIM_TRY(status);
  if (is_end || brim_running_is_out_of_patience(r)) {
    if (!is_end && !r->has_stopped) BRIM_TRY(stop_early(r));
    *done = true;
    return finish(r);
  }
  if (brim_running_stops(r) && !brim_trainer_is_ahead(r->trainer)) return interrupt(r);
  const brim_status changed = look_around(r);
  if (changed == BRIM_OK) return one_step(r);
  if (r->options->dist || brim_status_is_want(changed)) return changed;
  return changed == BRIM_EINTERRUPTED ? interrupt(r) : give_up(r, changed);
}

/* ---- out of memory ---- */

/* The state is an earlier one: what came behind it has not been. */
static brim_status forget_what_came_behind(brim_running *r)
{
  const brim_train_state *s = r->state;
  char path[4200];
  r->checkpoint_step = r->round_step = s->step > 0 ? s->step : -1;
  r->told_step = -1;
  r->window_seconds = 0;
  r->window_timed = 0;
  brim_running_recall(r);
  if (r->metrics.fd < 0) return BRIM_OK; /* another rank writes it */
  brim_running_heed_tensorboard(r, r->tensorboard.fd < 0 ? BRIM_OK
                                                         : brim_tensorboard_rewind(&r->tensorboard, s->step + 1));
  snprintf(path, sizeof path, "%s", r->metrics.path);
  brim_jsonl_close(&r->metrics);
  return brim_jsonl_open(&r->metrics, path, s->metrics_records);
}

/* What was tried in this turn has changed nothing that lasts, so it is tried again after what helps against `failure`.
 */
static brim_status recover(brim_running *r, brim_status failure)
{
  char what[sizeof r->doing];
  bool rewound = false;
  const double now = brim_now(), at = brim_trainer_failed_at(r->trainer);
  collect_memory(r);
  brim_relief_aim(NULL, r->pressure);
  memcpy(what, r->doing, sizeof what);
  brim_status status = brim_recover(&r->recovery, failure, what, &rewound);
  const bool is_remade = r->recovery.is_remade;
  r->recovery.is_remade = false;
  if (is_remade) brim_running_follow_drive(r);
  if (!r->recovery.is_over) brim_relief_aim(r->trainer, r->pressure);
  r->recent_count = 0;
  if (status == BRIM_OK && rewound) status = forget_what_came_behind(r);
  if (status == BRIM_OK && is_remade) status = brim_running_keep_drive(r);
  if (status != BRIM_OK) return status;
  r->report.retries++;
  brim_report_recovered(&r->events, r->state->step, what, brim_now() - (at > r->turn_started ? at : now));
  return BRIM_OK;
}

/* The same after another rank has failed: its part of the turn is what this rank has lost. */
static brim_status follow(brim_running *r)
{
  const brim_verdict *v = brim_trainer_verdict(r->trainer);
  r->report.retries++;
  brim_running_event(r, "redone", brim_error_text());
  brim_log(BRIM_LOG_INFO, "rank %d failed in %s: %s; it is done again", (int)v->failed, r->doing,
           brim_status_text(v->status));
  if (brim_trainer_has_values(r->trainer)) return BRIM_OK;
  BRIM_TRY(brim_recover_follow(&r->recovery, r->doing));
  return forget_what_came_behind(r);
}

/* All ranks are ready to do it again, or none does. */
static brim_status again(brim_running *r, brim_status failure)
{
  BRIM_TRY(brim_running_find_checkpoint(r));
  brim_status status = brim_status_is_want(failure) ? recover(r, failure) : follow(r);
  if (status == BRIM_EINTERRUPTED && !r->options->dist) return interrupt(r);
  status = brim_trainer_meet(r->trainer, BRIM_MEET_AGAIN, status);
  return status == BRIM_OK || status == BRIM_ECOMM ? status : give_up(r, status);
}

/* Another rank must not wait for one that has failed. *is_over: nothing is to be done again. A rank that was
 * interrupted while it waited for something ends all, with a checkpoint. */
static brim_status tell(brim_running *r, brim_status failure, bool *is_over)
{
  *is_over = !brim_status_is_want(failure);
  if (!r->options->dist || r->is_interrupted || failure == BRIM_ECOMM) return failure;
  const brim_status met =
      brim_trainer_has_told(r->trainer) ? failure : brim_trainer_meet(r->trainer, BRIM_MEET_AGAIN, failure);
  *is_over = brim_trainer_verdict(r->trainer)->is_over;
  if (brim_trainer_verdict(r->trainer)->status == BRIM_EINTERRUPTED) return interrupt(r);
  return *is_over && is_of_policies(brim_trainer_verdict(r->trainer)->status) ? give_up(r, met) : met;
}

static brim_status loop(brim_running *r)
{
  for (bool done = false; !done;) {
    bool is_over = false;
    brim_reserve_take();
    r->turn_started = brim_now();
    brim_stop_at(r->checkpoint_step, r->state->step);
    brim_stop_doing(BRIM_STOP_STEPS);
    brim_running_wish(r);
    brim_status status = turn(r, &done);
    if (status != BRIM_OK) status = tell(r, status, &is_over);
    if (status != BRIM_OK && !is_over) {
      done = false;
      status = again(r, status);
    }
    BRIM_TRY(status);
  }
  return BRIM_OK;
}

/* ---- the end ---- */

/* The error text stays. */
static void write_page(const brim_running *r, brim_status status)
{
  char error[4096];
  snprintf(error, sizeof error, "%s", brim_error_text());
  r->options->write_page(r->dir);
  if (status != BRIM_OK) brim_fail(status, "%s", error);
}

static brim_status close_run(brim_running *r, brim_status status)
{
  brim_progress_finish(&r->progress);
  const bool opened = r->lock >= 0 && r->state; /* else the folder is another's, and not ours to write to */
  if (!opened) brim_report_release(&r->report);
  if (opened) {
    char error[4096];
    snprintf(error, sizeof error, "%s", status == BRIM_OK ? "" : brim_error_text());
    if (status != BRIM_OK && status != BRIM_EINTERRUPTED) brim_running_event(r, "failed", error);
    if (status == BRIM_OK) brim_running_event(r, "finished", NULL);
    collect_memory(r);
    const brim_status written =
        brim_report_write_summary(&r->report, r->dir, status, error, r->state->step, own_seconds(r));
    if (status == BRIM_OK)
      status = written;
    else
      brim_fail(status, "%s", error); /* the first error is the one to show */
  }
  brim_jsonl_close(&r->metrics);
  brim_jsonl_close(&r->events);
  brim_tensorboard_close(&r->tensorboard);
  brim_pressure_close(r->pressure); /* before what it looks at */
  brim_trainer_close(r->trainer);
  brim_drive_close(r->drive);
  if (opened && r->options->write_page) write_page(r, status);
  if (r->lock >= 0) close(r->lock);
  brim_out_of_memory_advice(NULL);
  brim_crash_advice(NULL);
  brim_reserve_give();
  return status;
}

brim_status brim_run(const brim_run_options *options)
{
  brim_running *r = brim_xcalloc(1, sizeof *r);
  r->options = options;
  r->config = options->config;
  r->settings = &options->config->settings;
  r->stop = brim_stop_watch(brim_running_speaks(r));
  signal(SIGPIPE, SIG_IGN); /* a reader of messages that went away is no reason to end */
  r->lock = -1;
  r->metrics.fd = r->events.fd = r->tensorboard.fd = -1;
  r->checkpoint_step = r->round_step = r->told_step = -1;
  brim_report_init(&r->report);
  brim_status status = brim_running_begin(r);
  if (status == BRIM_OK) status = loop(r);
  brim_stop_doing(BRIM_STOP_ENDING);
  status = brim_running_end_together(r, status);
  if (status == BRIM_OK && r->recent_count >= BRIM_STEPS_RECENT)
    brim_planner_compare_times(&r->drive->planner, brim_trainer_plan(r->trainer), r->drive->choice.micro_batch,
                               recent_seconds(r));
  if (status == BRIM_OK && brim_running_speaks(r)) {
    brim_progress_finish(&r->progress);
    collect_memory(r);
    brim_report_say(&r->report, r->dir, own_seconds(r));
  }
  status = close_run(r, status);
  free(r);
  return status;
}
