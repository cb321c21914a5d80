/* Writes a run's records of its steps, and makes its evaluations. See run_parts.h. */
#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "base/process.h"
#include "train/run_parts.h"
#include "train/stop.h"

void brim_running_event(brim_running *r, const char *what, const char *detail)
{
  brim_report_event(&r->events, what, r->state ? r->state->step : 0, detail);
}

void brim_running_hook_facts(const brim_running *r, brim_hook_facts *out)
{
  const brim_order *o = &r->drive->order;
  *out = (brim_hook_facts){.status = "running", .split = "", .step = r->state->step, .steps = o->steps};
  out->epoch = (double)r->state->step / (double)o->steps_per_epoch;
  for (int i = 0; i < BRIM_PART_COUNT; i++) {
    const brim_evaluation *e = &r->report.figures[i];
    out->loss[i] = e->loss;
    out->accuracy[i] = r->report.task == BRIM_TASK_VALUES ? NAN : e->accuracy;
    out->mae[i] = e->mae;
  }
}

void brim_running_hook_failures(brim_running *r)
{
  brim_hook_failure failure;
  while (brim_hooks_take_failure(r->hooks, &failure))
    brim_report_event(&r->events, BRIM_HOOK_FAILED, failure.step, failure.detail);
}

void brim_running_hook(brim_running *r, enum brim_run_hook hook, const char *detail)
{
  brim_hook_facts facts;
  if (!r->hooks) return;
  brim_running_hook_failures(r);
  brim_running_hook_facts(r, &facts);
  if (detail) snprintf(facts.detail, sizeof facts.detail, "%s", detail);
  if (hook == BRIM_HOOK_EVALUATION) facts.split = r->evaluated;
  brim_hooks_post(r->hooks, hook, &facts);
}

void brim_running_heed_tensorboard(brim_running *r, brim_status status)
{
  if (status != BRIM_OK) brim_tensorboard_give_up(&r->tensorboard);
}

/* Records the device memory of the arena and the host memory of the process, as summary.json does at the end. */
static void record_memory(brim_running *r)
{
  brim_report_memory(&r->report, r->trainer);
  brim_jsonl_int(&r->metrics, "device_bytes", (int64_t)r->report.device_bytes);
  brim_jsonl_int(&r->metrics, "device_peak_bytes", (int64_t)r->report.device_peak_bytes);
  brim_jsonl_int(&r->metrics, "rss_bytes", (int64_t)brim_rss_bytes());
}

/* Records the mean over the clients that have trained, each with its own parameters or its personal model. */
static void record_personal(brim_running *r)
{
  brim_spread accuracy;
  const brim_setup *s = r->drive->setup;
  if (!brim_setup_is_personal(s) && !brim_setup_is_ditto(s)) return;
  if (brim_trainer_client_accuracy(r->trainer, &accuracy) != BRIM_OK) accuracy.mean = NAN;
  brim_jsonl_number(&r->metrics, "personal_accuracy", accuracy.mean);
}

/* Records the rounds since the previous record; the clock counts from the run's beginning. */
static void record_rounds(brim_running *r)
{
  const brim_round_result *round = brim_trainer_last_round(r->trainer);
  const brim_train_state *s = r->state;
  brim_jsonl *m = &r->metrics;
  brim_jsonl_int(m, "clients", round->clients);
  brim_jsonl_int(m, "clients_left_out", round->clients - round->arrived);
  record_personal(r);
  if (round->is_async) {
    brim_jsonl_int(m, "clients_stale", round->stale);
    brim_jsonl_number(m, "staleness", round->staleness);
    brim_jsonl_int(m, "staleness_max", round->staleness_most);
  }
  if (round->has_world) {
    brim_jsonl_number(m, "simulated_seconds", s->world_seconds - s->recorded_seconds);
    brim_jsonl_number(m, "simulated_clock", s->world_seconds);
    brim_jsonl_number(m, "joules", s->world_joules - s->recorded_joules);
    brim_jsonl_int(m, "bytes", s->world_bytes - s->recorded_bytes);
    if (r->settings->federate.edges > 0) brim_jsonl_int(m, "edge_bytes", s->world_edge_bytes - s->recorded_edge_bytes);
  }
  brim_jsonl_number(m, "selection_seconds", r->selection_seconds);
  if (brim_privacy_clips(r->settings)) brim_jsonl_number(m, "clip_norm", round->clip_norm);
  if (brim_privacy_has_noise(r->settings)) brim_jsonl_number(m, "epsilon", brim_trainer_epsilon(r->trainer, false));
  record_memory(r);
}

/* Writes a record. `seconds`: the time that `samples` took. */
static brim_status record(brim_running *r, enum brim_part part, const brim_evaluation *e, int64_t samples,
                          double seconds)
{
  const bool is_values = e->task == BRIM_TASK_VALUES, is_train = part == BRIM_PART_TRAIN;
  const double rate = seconds > 0 ? (double)samples / seconds : NAN;
  char top[32];
  snprintf(top, sizeof top, "accuracy_top%d", (int)e->top_k);
  brim_jsonl *m = &r->metrics;
  r->state->metrics_records++; /* counted on every rank, although only rank 0 writes records */
  if (m->fd < 0) return BRIM_OK;
  brim_jsonl_begin(m);
  brim_jsonl_int(m, "step", r->state->step);
  brim_jsonl_number(m, "epoch", (double)r->state->step / (double)r->drive->order.steps_per_epoch);
  brim_jsonl_string(m, "split", brim_part_names[part]);
  brim_jsonl_number(m, "loss", e->loss);
  if (e->task == BRIM_TASK_TOKENS) brim_jsonl_number(m, "perplexity", brim_evaluation_perplexity(e));
  brim_jsonl_number(m, is_values ? "mae" : "accuracy", is_values ? e->mae : e->accuracy);
  if (e->top_k > 0) brim_jsonl_number(m, top, e->accuracy_top);
  if (e->task == BRIM_TASK_CLASS && !is_train) brim_jsonl_number(m, "f1", e->f1);
  if (is_values && !is_train) { /* training counts only the first of these errors */
    brim_jsonl_number(m, "mape", e->mape);
    brim_jsonl_number(m, "rmse", e->rmse);
    brim_jsonl_number(m, "r2", e->r2);
  }
  brim_jsonl_number(m, "lr", brim_trainer_lr(r->trainer));
  if (is_train && brim_setup_is_federated(r->drive->setup)) record_rounds(r);
  if (is_train && r->settings->training.clip_norm > 0) brim_jsonl_number(m, "grad_norm", r->state->gradient_norm);
  if (is_train && r->state->loss_scale > 0) {
    brim_jsonl_number(m, "loss_scale", r->state->loss_scale);
    brim_jsonl_int(m, "skipped_steps", r->state->skipped_steps);
  }
  brim_jsonl_int(m, "samples", samples);
  brim_jsonl_number(m, "samples_per_second", rate);
  if (r->report.tokens_each > 0) brim_jsonl_number(m, "tokens_per_second", (double)r->report.tokens_each * rate);
  brim_jsonl_number(m, "seconds", seconds);
  if (is_train && !brim_setup_is_federated(r->drive->setup)) brim_jsonl_number(m, "loader_seconds", r->loader_seconds);
  const brim_status status = brim_jsonl_end(m);
  r->state->metrics_records -= status != BRIM_OK;
  if (status == BRIM_OK && r->tensorboard.fd >= 0)
    brim_running_heed_tensorboard(r, brim_tensorboard_add(&r->tensorboard, m->line, m->length));
  return status;
}

/* Returns the figures of the steps since the last record; if there were none, that record's figures. */
static brim_evaluation window_figures(const brim_running *r)
{
  const brim_train_state *s = r->state;
  const double samples = (double)s->window_samples, correct = s->window_correct;
  const int32_t task = r->report.task;
  brim_evaluation e = r->report.figures[BRIM_PART_TRAIN];
  if (s->window_samples == 0) return e;
  e.loss = s->window_loss / s->window_weight;
  e.accuracy = task == BRIM_TASK_VALUES ? NAN : correct / (task == BRIM_TASK_TOKENS ? s->window_tokens : samples);
  e.mae = task == BRIM_TASK_VALUES ? correct / samples : NAN;
  return e;
}

void brim_running_recall(brim_running *r)
{
  brim_evaluation *e = &r->report.figures[BRIM_PART_TRAIN];
  e->loss = r->state->train_loss;
  e->accuracy = r->state->train_accuracy;
  e->mae = r->report.task == BRIM_TASK_VALUES ? r->state->train_mae : NAN;
}

brim_progress_state brim_running_progress(const brim_running *r)
{
  const brim_train_state *s = r->state;
  const brim_order *o = &r->drive->order;
  const brim_evaluation e = window_figures(r);
  return (brim_progress_state){.epoch = (s->step > 0 ? s->step - 1 : 0) / o->steps_per_epoch + 1,
                               .epochs = r->settings->training.steps > 0 || brim_setup_is_federated(r->drive->setup)
                                             ? 0
                                             : r->settings->training.epochs,
                               .step = s->step,
                               .steps = o->steps,
                               .by_rounds = brim_setup_is_federated(r->drive->setup),
                               .loss = e.loss,
                               .accuracy = e.accuracy,
                               .mae = e.mae,
                               .epsilon = brim_trainer_epsilon(r->trainer, false),
                               .samples_per_second = brim_report_rate(&r->report),
                               .tokens_each = r->report.tokens_each,
                               .used_bytes = brim_trainer_device_bytes(r->trainer),
                               .planned_bytes = brim_trainer_plan(r->trainer)->peak_bytes};
}

void brim_running_publish(const brim_running *r, const brim_progress_state *state)
{
  const bool in_tokens = state->tokens_each > 0;
  brim_live_progress(&(brim_live_step){.step = state->step,
                                       .steps = state->steps,
                                       .epoch = state->epoch,
                                       .epochs = state->epochs,
                                       .rate = in_tokens ? (double)state->tokens_each * state->samples_per_second
                                                         : state->samples_per_second,
                                       .left_seconds = brim_progress_left(&r->progress, brim_now()),
                                       .loss = state->loss,
                                       .accuracy = state->accuracy,
                                       .by_rounds = state->by_rounds,
                                       .in_tokens = in_tokens});
}

void brim_running_show_progress(brim_running *r)
{
  const brim_progress_state state = brim_running_progress(r);
  brim_progress_update(&r->progress, &state);
  brim_running_publish(r, &state);
}

/* A training record covers the steps since the previous one. If a resumed run made only the last of these steps, it
 * assumes that the others took as long. */
brim_status brim_running_close_window(brim_running *r)
{
  brim_train_state *s = r->state;
  if (s->window_samples == 0) return BRIM_OK;
  const int64_t n = s->window_samples;
  const brim_evaluation e = window_figures(r);
  const double seconds = r->window_seconds > 0 ? r->window_seconds * (double)n / (double)r->window_timed : NAN;
  s->train_loss = e.loss;
  s->train_accuracy = e.accuracy;
  s->train_mae = e.mae;
  r->report.figures[BRIM_PART_TRAIN] = e;
  s->window_loss = s->window_correct = s->window_weight = s->window_tokens = 0;
  if (r->window_timed > 0) r->loader_seconds *= (double)n / (double)r->window_timed;
  s->window_samples = r->window_timed = 0;
  r->window_seconds = 0;
  const brim_status status = record(r, BRIM_PART_TRAIN, &e, n, seconds);
  r->loader_seconds = 0;
  s->recorded_seconds = s->world_seconds; /* on every rank */
  s->recorded_joules = s->world_joules;
  s->recorded_bytes = s->world_bytes;
  s->recorded_edge_bytes = s->world_edge_bytes;
  r->selection_seconds = 0;
  return status;
}

brim_status brim_running_evaluate(brim_running *r, enum brim_part part, bool recorded, brim_evaluation *out)
{
  char figures[BRIM_REPORT_ROOM];
  const double start = brim_now();
  snprintf(r->loop.doing, sizeof r->loop.doing, "the evaluation after step %lld", (long long)r->state->step);
  brim_stop_doing(r->options->dist ? "finishing the evaluation, then a checkpoint" : BRIM_STOP_EVALUATION);
  const brim_phase phase = brim_phase_begin(BRIM_LIVE_EVALUATING, "evaluate");
  const brim_status status = brim_running_evaluate_samples(r, part, r->options->dist ? NULL : r->stop, out);
  brim_phase_end(&phase);
  BRIM_TRY(status);
  brim_stop_doing(BRIM_STOP_STEPS);
  const double seconds = brim_now() - start;
  if (!isfinite(out->loss))
    return brim_fail(BRIM_ENUMERIC, "the %s loss after step %lld is %s\n%s; earlier checkpoints are kept",
                     brim_part_names[part], (long long)r->state->step, isnan(out->loss) ? "not a number" : "infinite",
                     r->state->loss_scale > 0
                         ? "an activation leaves the range of fp16, or the parameters have diverged"
                         : "the parameters have diverged");
  BRIM_TRY(brim_report_evaluation(&r->report, part, out, r->state->step));
  if (!recorded) BRIM_TRY(record(r, part, out, out->samples, seconds));
  r->evaluated = brim_part_names[part];
  brim_running_hook(r, BRIM_HOOK_EVALUATION, NULL);
  const brim_order *o = &r->drive->order;
  char when[80];
  if (brim_setup_is_federated(r->drive->setup))
    snprintf(when, sizeof when, "round %lld", (long long)r->state->step);
  else
    snprintf(when, sizeof when, "epoch %.4g, step %lld", (double)r->state->step / (double)o->steps_per_epoch,
             (long long)r->state->step);
  brim_say("%s: %s loss %.4f%s (%lld sample%s)", when, brim_part_names[part], out->loss,
           brim_report_format(figures, sizeof figures, out), (long long)out->samples, brim_plural(out->samples));
  return BRIM_OK;
}

/* The model that an evaluation of each client uses. */
enum subject { GLOBAL, PERSONAL, FINETUNED };

static brim_status evaluate_clients(brim_running *r, enum subject subject, brim_spread *out)
{
  const volatile int *stop = r->options->dist ? NULL : r->stop;
  const double start = brim_now();
  snprintf(r->loop.doing, sizeof r->loop.doing, "the evaluation of each client after step %lld",
           (long long)r->state->step);
  brim_stop_doing(r->options->dist ? "finishing the evaluation, then a checkpoint" : BRIM_STOP_EVALUATION);
  const brim_phase phase = brim_phase_begin(BRIM_LIVE_EVALUATING, "evaluate each client");
  const brim_status status = subject == GLOBAL ? brim_trainer_evaluate_clients(r->trainer, stop, out)
                                               : brim_trainer_evaluate_own(r->trainer, subject == FINETUNED, stop, out);
  brim_phase_end(&phase);
  BRIM_TRY(status);
  brim_stop_doing(BRIM_STOP_STEPS);
  brim_log(BRIM_LOG_DEBUG, "the evaluation of each client took %.3f s", brim_now() - start);
  return BRIM_OK;
}

brim_status brim_running_evaluate_clients(brim_running *r)
{
  const brim_setup *s = r->drive->setup;
  if (!brim_setup_is_federated(s) || r->report.task != BRIM_TASK_CLASS) return BRIM_OK;
  if (r->settings->federate.client_accuracy) {
    /* The global model's local parameters still have their initial values. */
    if (brim_setup_is_personal(s))
      BRIM_TRY(brim_trainer_client_accuracy(r->trainer, &r->report.client_accuracy));
    else
      BRIM_TRY(evaluate_clients(r, brim_setup_is_ditto(s) ? PERSONAL : GLOBAL, &r->report.client_accuracy));
  }
  if (!brim_setup_finetunes(s)) return BRIM_OK;
  return evaluate_clients(r, FINETUNED, &r->report.finetuned_accuracy);
}
