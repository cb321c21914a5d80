/* The runner: steps, records, evaluations, checkpoints, in this order after each commit:
 *     training record -> evaluation (validation, else test) -> checkpoint
 * Each is due by the number of the step alone, so a resumed run does what an undisturbed one does. */
#include "train/run.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "observe/progress.h"
#include "train/decide.h"
#include "train/figures.h"
#include "train/file.h"
#include "train/recover.h"
#include "train/report.h"
#include "train/rundir.h"
#include "train/scores.h"
#include "train/trainer.h"

typedef struct run {
  const brim_run_options *options;
  brim_config *config; /* the session's: a policy may have asked for another than the caller's */
  const brim_settings *settings;
  brim_session *session;
  brim_trainer *trainer;
  brim_train_state *state;
  char dir[4096];
  int lock;
  brim_jsonl metrics, events;
  brim_progress progress;
  brim_report report;
  brim_recovery recovery;
  char doing[64];          /* what memory would be wanting for */
  double turn_started;     /* brim_now() */
  bool has_stopped;        /* early */
  int64_t checkpoint_step; /* of the newest checkpoint; -1: none */
  int64_t round_step;      /* at which a round ended last; -1: none */
  int64_t told_step;       /* that was skipped, and told; -1: none */
  double window_seconds;   /* spent in the steps of the window */
} run;

static volatile sig_atomic_t stop_signal;
static void on_signal(int number)
{
  stop_signal = number;
}

static void catch_signals(void)
{
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)(SA_RESETHAND | SA_RESTART)}, before;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGHUP, NULL, &before);
  if (before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, NULL); /* the terminal went away; nohup minds not */
  signal(SIGPIPE, SIG_IGN);                                           /* whoever read the messages went away */
}

/* ---- records ---- */

static const char *const part_names[] = {"train", "validation", "test"};

static void event(run *r, const char *what, const char *detail)
{
  brim_report_event(&r->events, what, r->state ? r->state->step : 0, detail);
}

static brim_status record(run *r, enum brim_part part, const brim_evaluation *e, double samples_per_second)
{
  char top[32];
  brim_jsonl *m = &r->metrics;
  brim_jsonl_begin(m);
  brim_jsonl_int(m, "step", r->state->step);
  brim_jsonl_number(m, "epoch", (double)r->state->step / (double)r->session->order.steps_per_epoch);
  brim_jsonl_string(m, "split", part_names[part]);
  brim_jsonl_number(m, "loss", e->loss);
  brim_jsonl_number(m, "accuracy", e->accuracy);
  snprintf(top, sizeof top, "accuracy_top%d", (int)e->top_k);
  if (e->top_k > 0) brim_jsonl_number(m, top, e->accuracy_top);
  if (part != BRIM_PART_TRAIN) brim_jsonl_number(m, "f1", e->f1);
  brim_jsonl_number(m, "lr", brim_trainer_lr(r->trainer));
  if (part == BRIM_PART_TRAIN && r->settings->training.clip_norm > 0)
    brim_jsonl_number(m, "grad_norm", r->state->gradient_norm);
  if (part == BRIM_PART_TRAIN && r->state->loss_scale > 0) {
    brim_jsonl_number(m, "loss_scale", r->state->loss_scale);
    brim_jsonl_int(m, "skipped_steps", r->state->skipped_steps);
  }
  brim_jsonl_number(m, "samples_per_second", samples_per_second);
  BRIM_TRY(brim_jsonl_end(m));
  r->state->metrics_records++;
  return BRIM_OK;
}

static void show_progress(run *r)
{
  const brim_train_state *s = r->state;
  const brim_order *o = &r->session->order;
  const double n = (double)s->window_samples;
  const brim_progress_state state = {.epoch = (s->step > 0 ? s->step - 1 : 0) / o->steps_per_epoch + 1,
                                     .epochs = r->settings->training.steps > 0 ? 0 : r->settings->training.epochs,
                                     .step = s->step,
                                     .steps = o->steps,
                                     .loss = n > 0 ? s->window_loss / s->window_weight : r->report.train_loss,
                                     .accuracy = n > 0 ? s->window_correct / n : r->report.train_accuracy,
                                     .samples_per_second = brim_report_rate(&r->report),
                                     .used_bytes = brim_trainer_device_bytes(r->trainer),
                                     .planned_bytes = brim_trainer_plan(r->trainer)->peak_bytes};
  brim_progress_update(&r->progress, &state);
}

/* A training record covers the steps since the one before it. */
static brim_status close_window(run *r)
{
  brim_train_state *s = r->state;
  const double n = (double)s->window_samples;
  if (s->window_samples == 0) return BRIM_OK;
  s->train_loss = r->report.train_loss = s->window_loss / s->window_weight;
  s->train_accuracy = r->report.train_accuracy = s->window_correct / n;
  const double rate = r->window_seconds > 0 ? n / r->window_seconds : NAN;
  s->window_loss = s->window_correct = s->window_weight = 0;
  s->window_samples = 0;
  r->window_seconds = 0;
  const brim_evaluation e = {.loss = r->report.train_loss, .accuracy = r->report.train_accuracy};
  return record(r, BRIM_PART_TRAIN, &e, rate);
}

/* ---- what is due after a commit ---- */

static bool is_due_at(const run *r, int64_t step, int64_t every_steps)
{
  if (step == 0) return false;
  if (step == r->session->order.steps) return true;
  return every_steps > 0 ? step % every_steps == 0 : brim_order_ends_epoch(&r->session->order, step - 1);
}

static bool is_due(const run *r, int64_t every_steps)
{
  return is_due_at(r, r->state->step, every_steps);
}

/* Will the step after the present one be followed by another at once, with nothing that needs the parameters between?
 */
static bool goes_on(const run *r)
{
  const brim_training_settings *t = &r->settings->training;
  const int64_t next = r->state->step + 1;
  return !stop_signal && !is_due_at(r, next, t->eval_every_steps) && !is_due_at(r, next, t->checkpoint_every_steps);
}

/* `recorded`: the record is there already, from before the run was resumed. */
static brim_status evaluate(run *r, enum brim_part part, bool recorded, brim_evaluation *out)
{
  const double start = brim_now();
  snprintf(r->doing, sizeof r->doing, "the evaluation after step %lld", (long long)r->state->step);
  BRIM_TRY(brim_trainer_evaluate(r->trainer, part, &stop_signal, out));
  const double seconds = brim_now() - start;
  if (!isfinite(out->loss))
    return brim_fail(BRIM_ENUMERIC, "the %s loss after step %lld is %s\n%s; checkpoints before are kept",
                     part_names[part], (long long)r->state->step, isnan(out->loss) ? "not a number" : "infinite",
                     r->state->loss_scale > 0 ? "an activation leaves the range of fp16, or the parameters are no good"
                                              : "the parameters are no good");
  if (!recorded) BRIM_TRY(record(r, part, out, (double)out->samples / seconds));
  const brim_order *o = &r->session->order;
  brim_log(BRIM_LOG_INFO, "epoch %.4g, step %lld: %s loss %.4f, accuracy %.2f %% (%lld sample%s)",
           (double)r->state->step / (double)o->steps_per_epoch, (long long)r->state->step, part_names[part], out->loss,
           100 * out->accuracy, (long long)out->samples, brim_plural(out->samples));
  brim_report_evaluation(&r->report, part, out, r->state->step);
  return BRIM_OK;
}

/* Evaluates at the present step, on validation data if there is some; then, and only then, it can be the best. */
static brim_status evaluate_if_due(run *r)
{
  brim_train_state *s = r->state;
  const int64_t *count = r->session->data.count;
  if (s->evaluated_step == s->step || !is_due(r, r->settings->training.eval_every_steps)) return BRIM_OK;
  const enum brim_part part = count[BRIM_PART_VALIDATION] ? BRIM_PART_VALIDATION : BRIM_PART_TEST;
  if (count[part] == 0) return BRIM_OK;
  brim_evaluation e;
  BRIM_TRY(evaluate(r, part, false, &e));
  s->evaluated_step = s->step;
  if (part != BRIM_PART_VALIDATION) return BRIM_OK;
  s->worse_evaluations++;
  if (!isnan(s->best_loss) && !(e.loss < s->best_loss)) return BRIM_OK;
  s->worse_evaluations = 0;
  s->best_loss = e.loss;
  s->best_step = s->step;
  return BRIM_OK;
}

static brim_status write_checkpoint(run *r)
{
  snprintf(r->doing, sizeof r->doing, "the checkpoint of step %lld", (long long)r->state->step);
  BRIM_TRY(brim_trainer_checkpoint(r->trainer, r->dir, r->settings->training.keep_checkpoints));
  r->checkpoint_step = r->state->step;
  event(r, "checkpoint", NULL);
  return BRIM_OK;
}

/* As the system that brim replaces says it, in GB. */
static void clean(run *r, enum brim_cleanup cleanup)
{
  if (cleanup == BRIM_CLEAN_NONE) return;
  const double before = (double)brim_rss_bytes();
  brim_trainer_clean(r->trainer, cleanup);
  const double after = (double)brim_rss_bytes();
  brim_log(BRIM_LOG_INFO, "[Memory] Before cleanup: %.2f GB allocated", 1e-9 * before);
  brim_log(BRIM_LOG_INFO, "[Memory] After cleanup: %.2f GB (freed %.2f GB)", 1e-9 * after,
           after < before ? 1e-9 * (before - after) : 0);
}

/* Has the validation loss not got better for long enough? By the state alone, so a resumed run ends where it would. */
static bool is_out_of_patience(const run *r)
{
  const int64_t patience = r->settings->training.patience;
  return patience > 0 && r->state->worse_evaluations >= patience;
}

/* A round is what lies between two evaluations; they may be switched off, but are due all the same. */
static brim_status end_round(run *r)
{
  enum brim_cleanup cleanup;
  const int64_t every = r->settings->training.eval_every_steps, per_epoch = r->session->order.steps_per_epoch;
  const int64_t step = r->state->step, length = every > 0 ? every : per_epoch;
  const bool is_end = step >= r->session->order.steps || is_out_of_patience(r);
  if (r->round_step == step || !is_due(r, every)) return BRIM_OK;
  r->round_step = step;
  BRIM_TRY(brim_decide_at_boundary(r->session, step, (step + length - 1) / length, is_end,
                                   brim_trainer_plan(r->trainer)->peak_bytes, &cleanup));
  clean(r, cleanup);
  return BRIM_OK;
}

static brim_status after_commit(run *r)
{
  const int64_t evaluated_step = r->state->evaluated_step;
  BRIM_TRY(evaluate_if_due(r));
  BRIM_TRY(end_round(r));
  /* A run that was interrupted in this very evaluation has a checkpoint of this step without it: write it again. */
  if (r->state->evaluated_step != evaluated_step) r->checkpoint_step = -1;
  const bool new_best = r->state->best_step == r->state->step && r->state->step > 0;
  if (r->checkpoint_step == r->state->step) return BRIM_OK;
  return new_best || is_due(r, r->settings->training.checkpoint_every_steps) ? write_checkpoint(r) : BRIM_OK;
}

/* ---- the loop ---- */

/* Each is an event; a line for a person comes as often as records do. */
static void tell_skipped(run *r, double scale)
{
  char detail[64];
  const brim_train_state *s = r->state;
  snprintf(detail, sizeof detail, "loss scale %.0f, then %.0f", scale, s->loss_scale);
  event(r, "skipped_step", detail);
  if (r->told_step >= 0 && s->step < r->told_step + r->settings->observe.log_every_steps) return;
  r->told_step = s->step;
  brim_log(BRIM_LOG_INFO,
           "step %lld was skipped: its loss or a gradient was not finite in fp16 at a loss scale of %.0f, which is "
           "%.0f now; "
           "%lld step%s skipped so far",
           (long long)s->step, scale, s->loss_scale, (long long)s->skipped_steps, brim_plural(s->skipped_steps));
}

static brim_status one_step(run *r)
{
  const double start = brim_now(), scale = r->state->loss_scale;
  const int64_t samples = r->state->samples, skipped = r->state->skipped_steps, step = r->state->step;
  snprintf(r->doing, sizeof r->doing, "step %lld", (long long)step + 1);
  const brim_status status = brim_trainer_step(r->trainer, goes_on(r));
  if (r->state->step == step) return status; /* else the one that was begun behind it has failed */
  brim_recover_committed(&r->recovery);
  if (r->state->skipped_steps > skipped) tell_skipped(r, scale);
  const double now = brim_now();
  r->window_seconds += now - start;
  brim_report_step(&r->report, r->state->samples - samples, now - start, now - r->options->start);
  if (r->state->step % r->settings->observe.log_every_steps == 0 || is_due(r, 0)) BRIM_TRY(close_window(r));
  show_progress(r);
  return status;
}

static brim_status stop_early(run *r)
{
  char detail[128];
  snprintf(detail, sizeof detail, "no better validation loss since step %lld", (long long)r->state->best_step);
  BRIM_TRY(close_window(r));
  if (r->checkpoint_step != r->state->step) BRIM_TRY(write_checkpoint(r));
  r->has_stopped = true;
  event(r, "stopped_early", detail);
  brim_log(BRIM_LOG_INFO, "stopped early after step %lld of %lld: %s (training.patience=%lld)",
           (long long)r->state->step, (long long)r->session->order.steps, detail,
           (long long)r->settings->training.patience);
  return BRIM_OK;
}

/* Unless it is written, or the parameters are lost: then the newest one is what the run goes on with. */
static brim_status write_last_checkpoint(run *r)
{
  return r->checkpoint_step == r->state->step || !brim_trainer_has_values(r->trainer) ? BRIM_OK : write_checkpoint(r);
}

static brim_status interrupt(run *r)
{
  BRIM_TRY(write_last_checkpoint(r));
  event(r, "interrupted", strsignal(stop_signal));
  return brim_fail(BRIM_EINTERRUPTED,
                   "%s after step %lld of %lld; a checkpoint was written\ngo on with: brim train --resume %s",
                   stop_signal == SIGINT ? "interrupted" : "terminated", (long long)r->state->step,
                   (long long)r->session->order.steps, r->dir);
}

/* The last word: the test data, unless it was just evaluated. */
static brim_status finish(run *r)
{
  if (r->session->data.count[BRIM_PART_TEST] == 0 || r->report.test_step == r->state->step) return BRIM_OK;
  const int64_t step = r->state->step;
  const bool recorded =
      step > 0 && r->session->data.count[BRIM_PART_VALIDATION] == 0 && r->state->evaluated_step == step;
  brim_evaluation e;
  const brim_status status = evaluate(r, BRIM_PART_TEST, recorded, &e);
  return status == BRIM_EINTERRUPTED ? interrupt(r) : status;
}

/* What is due, and a step. *done: there was no step to make. */
static brim_status turn(run *r, bool *done)
{
  const brim_status status = after_commit(r);
  const bool is_end = r->state->step >= r->session->order.steps;
  if (status == BRIM_EINTERRUPTED) return interrupt(r);
  BRIM_TRY(status);
  if (is_end || is_out_of_patience(r)) {
    if (!is_end && !r->has_stopped) BRIM_TRY(stop_early(r));
    *done = true;
    return finish(r);
  }
  if (stop_signal && !brim_trainer_is_ahead(r->trainer)) return interrupt(r);
  return one_step(r);
}

/* ---- out of memory ---- */

static void collect_memory(run *r)
{
  const brim_plan *plan = brim_trainer_plan(r->trainer);
  brim_report_memory(&r->report, plan ? plan->peak_bytes : 0, brim_trainer_device_bytes(r->trainer),
                     brim_trainer_host_bytes(r->trainer));
  r->report.loss_scale = r->state->loss_scale;
  r->report.skipped_steps = r->state->skipped_steps;
  r->report.predicted_rss_bytes = brim_trainer_footprint(r->trainer)->total_bytes;
}

/* The state is an earlier one: what came behind it has not been. */
static brim_status forget_what_came_behind(run *r)
{
  const brim_train_state *s = r->state;
  char path[4200];
  r->checkpoint_step = r->round_step = s->step > 0 ? s->step : -1;
  r->told_step = -1;
  r->window_seconds = 0;
  r->report.train_loss = s->train_loss;
  r->report.train_accuracy = s->train_accuracy;
  snprintf(path, sizeof path, "%s", r->metrics.path);
  brim_jsonl_close(&r->metrics);
  return brim_jsonl_open(&r->metrics, path, s->metrics_records);
}

/* The end, but not of what was trained. */
static brim_status give_up(run *r, brim_status failure)
{
  char error[4096];
  snprintf(error, sizeof error, "%s", brim_error_text());
  const brim_status status = write_last_checkpoint(r);
  if (status != BRIM_OK)
    brim_log(BRIM_LOG_WARN, "no checkpoint of step %lld: %s", (long long)r->state->step, brim_error_text());
  (void)brim_fail(failure, "%s", error);
  if (r->checkpoint_step < 0) return failure;
  return brim_fail_add(failure, "there is a checkpoint of step %lld\ngo on with: brim train --resume %s",
                       (long long)r->checkpoint_step, r->dir);
}

/* What was tried in this turn has changed nothing that lasts, so it is tried again after what helps against `failure`.
 */
static brim_status recover(run *r, brim_status failure)
{
  bool rewound = false;
  const double now = brim_now(), at = brim_trainer_failed_at(r->trainer);
  collect_memory(r);
  brim_status status = brim_recover(&r->recovery, failure, r->doing, &rewound);
  if (status == BRIM_EINTERRUPTED) return interrupt(r);
  if (status == BRIM_OK && rewound) status = forget_what_came_behind(r);
  if (status != BRIM_OK) return give_up(r, status);
  r->report.retries++;
  brim_report_recovered(&r->events, r->state->step, r->doing, brim_now() - (at > r->turn_started ? at : now));
  return BRIM_OK;
}

static brim_status loop(run *r)
{
  for (bool done = false; !done;) {
    r->turn_started = brim_now();
    brim_status status = turn(r, &done);
    if (brim_status_is_want(status)) {
      done = false;
      status = recover(r, status);
    }
    BRIM_TRY(status);
  }
  return BRIM_OK;
}

/* ---- beginning and end ---- */

/* Of the run's device profile; 0: it has none, as nothing was chosen by time. */
static uint64_t hash_profile(const run *r)
{
  char path[4200];
  uint64_t bytes, hash = 0;
  snprintf(path, sizeof path, "%s/%s", r->dir, BRIM_PROFILE_NAME);
  return access(path, F_OK) == 0 && brim_file_hash(path, &bytes, &hash) == BRIM_OK ? hash : 0;
}

static brim_status open_new(run *r)
{
  brim_config *c = r->config;
  char name[256];
  snprintf(name, sizeof name, "%s-%s", brim_config_choice_of(c, "model")->plugin->id,
           brim_config_choice_of(c, "dataset")->plugin->id);
  BRIM_TRY(brim_run_create(r->settings->run.dir, r->settings->run.name[0] ? r->settings->run.name : name, r->dir,
                           sizeof r->dir));
  BRIM_TRY(brim_run_lock(r->dir, &r->lock));
  BRIM_TRY(brim_report_write_inputs(r->dir, c, r->session, brim_trainer_plan(r->trainer)));
  r->state->profile_hash = hash_profile(r);
  return BRIM_OK;
}

static brim_status open_resumed(run *r)
{
  char checkpoint[4096];
  bool found = false;
  snprintf(r->dir, sizeof r->dir, "%s", r->options->resume);
  BRIM_TRY(brim_run_lock(r->dir, &r->lock));
  BRIM_TRY(brim_checkpoint_find(r->dir, checkpoint, sizeof checkpoint, &found));
  if (!found) {
    brim_log(BRIM_LOG_INFO, "no checkpoint in '%s' yet: starting at step 0", r->dir);
    return BRIM_OK;
  }
  BRIM_TRY(brim_trainer_resume(r->trainer, checkpoint));
  if (r->state->profile_hash != hash_profile(r))
    brim_log(BRIM_LOG_WARN, "%s/%s is not what the run began with; the checkpoint has the hash of that", r->dir,
             BRIM_PROFILE_NAME);
  r->checkpoint_step = r->round_step = r->state->step; /* what was due before the checkpoint was done */
  r->report.train_loss = r->state->train_loss;
  r->report.train_accuracy = r->state->train_accuracy;
  brim_log(BRIM_LOG_INFO, "resuming '%s' after step %lld of %lld", r->dir, (long long)r->state->step,
           (long long)r->session->order.steps);
  return BRIM_OK;
}

static void on_decision(void *context, const brim_decision *decision)
{
  run *r = context;
  brim_report_decision(&r->events, decision, r->state->step);
}

static brim_status open_logs(run *r)
{
  char path[4200];
  snprintf(path, sizeof path, "%s/metrics.jsonl", r->dir);
  BRIM_TRY(brim_jsonl_open(&r->metrics, path, r->state->metrics_records));
  snprintf(path, sizeof path, "%s/events.jsonl", r->dir);
  BRIM_TRY(brim_jsonl_open(&r->events, path, BRIM_JSONL_ALL));
  event(r, r->options->resume ? "resumed" : "started", NULL);
  brim_policies_listen(r->session->policies, on_decision, r);
  return BRIM_OK;
}

static void announce_recompute(const run *r)
{
  const brim_plan *plan = brim_trainer_plan(r->trainer);
  const brim_program *train = brim_plan_program(plan, BRIM_PROGRAM_TRAIN, r->session->batch);
  brim_text text = {0};
  if (train) brim_recompute_tell(train, plan->request.recompute, &text);
  if (text.length > 0) brim_log(BRIM_LOG_INFO, "%s", text.s);
  brim_text_release(&text);
}

static void announce(const run *r)
{
  char bytes[32];
  const brim_session *s = r->session;
  const brim_training_settings *t = &r->settings->training;
  brim_log(BRIM_LOG_INFO, "%s on %s: %lld sample%s, %lld step%s; %s, %s",
           brim_config_choice_of(r->config, "model")->plugin->id,
           brim_config_choice_of(r->config, "dataset")->plugin->id, (long long)s->data.count[BRIM_PART_TRAIN],
           brim_plural(s->data.count[BRIM_PART_TRAIN]), (long long)s->order.steps, brim_plural(s->order.steps),
           brim_config_choice_of(r->config, "backend")->plugin->id, s->device_info.name);
  brim_log(BRIM_LOG_INFO, "memory planned and placed: %s; effective batch %lld = %lld x %lld; run folder %s",
           brim_format_bytes(bytes, sizeof bytes, brim_trainer_plan(r->trainer)->peak_bytes),
           (long long)t->effective_batch_size, (long long)s->batch, (long long)(t->effective_batch_size / s->batch),
           r->dir);
  announce_recompute(r);
  const char *precision = brim_precision_names[r->settings->precision];
  if (r->settings->precision != BRIM_PRECISION_FP32 && s->device_info.on_host)
    brim_log(BRIM_LOG_INFO, "precision=%s: activations are kept in %s and computed in fp32", precision, precision);
  if (s->grain > 0 && s->batch % s->grain != 0)
    brim_log(BRIM_LOG_WARN,
             "the micro-batch %lld is not a multiple of training.grain %lld: with another one the results differ by "
             "rounding",
             (long long)s->batch, (long long)s->grain);
}

/* Before hours are spent on a run of whose classes somebody wants to know more. */
static void announce_left_out(run *r)
{
  char text[200];
  const int64_t *count = r->session->data.count, classes = r->session->data.train.classes;
  if (classes < BRIM_MANY_CLASSES || count[BRIM_PART_VALIDATION] + count[BRIM_PART_TEST] == 0) return;
  brim_scores_left_out(text, sizeof text, classes);
  brim_log(BRIM_LOG_INFO, "%s", text);
  event(r, "scores_left_out", text);
}

static brim_status open_trainer(run *r)
{
  const brim_session_options options = {.read_data = true, .resume = r->options->resume, .stop = &stop_signal};
  BRIM_TRY(brim_session_open(r->config, &options, &r->session));
  for (;;) {
    BRIM_TRY(brim_session_settle(&r->session));
    const brim_status status = brim_trainer_open(r->session, &r->trainer);
    if (status == BRIM_OK || r->session->again.count == 0) return status;
    BRIM_TRY(brim_session_remake(&r->session));
  }
}

static brim_status start(run *r)
{
  BRIM_TRY(open_trainer(r));
  if (r->session->own_config) r->config = r->session->own_config;
  r->settings = &r->config->settings;
  r->state = brim_trainer_state(r->trainer);
  r->recovery = (brim_recovery){.session = r->session, .trainer = r->trainer, .run_dir = r->dir};
  BRIM_TRY(r->options->resume ? open_resumed(r) : open_new(r));
  BRIM_TRY(open_logs(r));
  announce(r);
  announce_left_out(r);
  brim_progress_init(&r->progress, r->state->step, r->settings->observe.log_every_steps, r->options->quiet);
  return BRIM_OK;
}

static brim_status close_run(run *r, brim_status status)
{
  brim_progress_finish(&r->progress);
  const bool opened = r->lock >= 0 && r->state; /* else the folder is another's, and not ours to write to */
  if (opened) {
    char error[4096];
    snprintf(error, sizeof error, "%s", status == BRIM_OK ? "" : brim_error_text());
    if (status != BRIM_OK && status != BRIM_EINTERRUPTED) event(r, "failed", error);
    if (status == BRIM_OK) event(r, "finished", NULL);
    collect_memory(r);
    const brim_status written =
        brim_report_write_summary(&r->report, r->dir, status, error, r->state->step, brim_now() - r->options->start);
    if (status == BRIM_OK)
      status = written;
    else
      brim_fail(status, "%s", error); /* the first error is the one to show */
  }
  brim_jsonl_close(&r->metrics);
  brim_jsonl_close(&r->events);
  brim_trainer_close(r->trainer);
  brim_session_close(r->session);
  if (r->lock >= 0) close(r->lock);
  return status;
}

brim_status brim_run(const brim_run_options *options)
{
  run *r = brim_xcalloc(1, sizeof *r);
  r->options = options;
  r->config = options->config;
  r->settings = &options->config->settings;
  r->lock = -1;
  r->metrics.fd = r->events.fd = -1;
  r->checkpoint_step = r->round_step = r->told_step = -1;
  brim_report_init(&r->report);
  catch_signals();
  brim_status status = start(r);
  if (status == BRIM_OK) status = loop(r);
  if (status == BRIM_OK) {
    brim_progress_finish(&r->progress);
    collect_memory(r);
    brim_report_say(&r->report, r->dir, brim_now() - options->start);
  }
  status = close_run(r, status);
  free(r);
  return status;
}
