/* Begins a run, new or resumed. See run.c. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/crash.h"
#include "base/file.h"
#include "base/log.h"
#include "base/tracing.h"
#include "dist/line.h"
#include "drive/distribute.h"
#include "graph/plan_json.h"
#include "planner/communication.h"
#include "planner/figures.h"
#include "planner/strict.h"
#include "planner/taken.h"
#include "setup/partition_record.h"
#include "store/rundir.h"
#include "store/weights.h"
#include "train/environment.h"
#include "train/run_parts.h"
#include "train/scores.h"
#include "train/stop.h"

/* Returns the hash of the run's device profile; 0 if it has none because times decided nothing. */
static uint64_t hash_profile(const brim_running *r)
{
  char path[4200];
  uint64_t bytes, hash = 0;
  snprintf(path, sizeof path, "%s/%s", r->dir, BRIM_PROFILE_NAME);
  return access(path, F_OK) == 0 && brim_file_hash(path, &bytes, &hash) == BRIM_OK ? hash : 0;
}

static brim_status make_folder(brim_running *r, json_t *weights)
{
  brim_config *c = r->config;
  char name[256];
  snprintf(name, sizeof name, "%s-%s", brim_config_choice_of(c, "model")->plugin->id,
           brim_config_choice_of(c, "dataset")->name);
  for (char *slash = name; (slash = strchr(slash, '/'));) *slash = '-'; /* the option is in a subfolder of its group */
  BRIM_TRY(brim_run_create(r->settings->run.dir, r->settings->run.name[0] ? r->settings->run.name : name, r->dir,
                           sizeof r->dir));
  BRIM_TRY(brim_run_lock(r->dir, &r->lock));
  brim_line_send_folder(r->dir);
  BRIM_TRY(brim_report_write_inputs(r->dir, c, r->drive, brim_trainer_plan(r->trainer)));
  r->state->profile_hash = hash_profile(r);
  if (brim_setup_is_federated(r->drive->setup))
    BRIM_TRY(brim_partition_record_write(&r->drive->setup->data, &r->drive->setup->partition, r->dir));
  return weights ? brim_weights_record_write(r->dir, weights) : BRIM_OK;
}

/* Opens a federation's files: the first rank makes the file of client states, or all ranks open the run's existing
 * one. */
static brim_status keep_files(brim_running *r, bool is_new)
{
  const bool first = brim_running_prints(r);
  if (!brim_setup_is_federated(r->drive->setup)) return BRIM_OK;
  const brim_status status = first ? brim_trainer_keep_in(r->trainer, r->dir, is_new) : BRIM_OK;
  BRIM_TRY(brim_running_begin_together(r, status));
  return brim_running_begin_together(r, first ? BRIM_OK : brim_trainer_keep_in(r->trainer, r->dir, false));
}

/* Every rank reads the weights, because averages of parameters are not broadcast; the first rank hashes them. Wrong
 * weights fail before the folder is made. */
static brim_status open_new(brim_running *r)
{
  const bool speaks = brim_running_prints(r);
  json_t *weights = NULL;
  if (brim_config_backbone(r->drive->setup->config) && !r->settings->model.weights[0] && speaks)
    brim_log(BRIM_LOG_WARN, "the frozen backbone has random weights: set model.weights to a file, a folder or a run "
                            "with trained ones"); /* only a warning, because the user may want this for a test */
  brim_status status = brim_trainer_load_weights(r->trainer, speaks ? &weights : NULL);
  if (status == BRIM_OK && speaks) status = make_folder(r, weights);
  json_decref(weights);
  BRIM_TRY(brim_running_begin_together(r, status));
  BRIM_TRY(brim_dist_share_text(r->options->dist, r->dir, sizeof r->dir));
  return keep_files(r, true);
}

/* Rank 0, which has the run's lock, searches for the checkpoint. *path is empty without a checkpoint. */
static brim_status find_checkpoint(brim_running *r, char *path, size_t room)
{
  bool found = false;
  path[0] = '\0';
  brim_status status = BRIM_OK;
  if (brim_running_prints(r)) {
    status = brim_run_lock(r->dir, &r->lock);
    if (status == BRIM_OK && brim_setup_is_federated(r->drive->setup))
      status = brim_partition_record_check(&r->drive->setup->partition, r->dir);
    if (status == BRIM_OK) status = brim_checkpoint_find(r->dir, path, room, &found);
    if (!found) path[0] = '\0';
  }
  BRIM_TRY(brim_running_begin_together(r, status));
  return brim_dist_share_text(r->options->dist, path, room);
}

static brim_status open_resumed(brim_running *r)
{
  char checkpoint[4096];
  snprintf(r->dir, sizeof r->dir, "%s", r->options->resume);
  BRIM_TRY(find_checkpoint(r, checkpoint, sizeof checkpoint));
  if (!checkpoint[0]) {
    brim_say("no checkpoint in '%s' yet: starting at step 0", r->dir);
    r->state->profile_hash = hash_profile(r); /* the state continues as if the run had not been stopped */
    json_t *weights = NULL;                   /* the weights with which the run began */
    brim_status status = brim_trainer_load_weights(r->trainer, brim_running_prints(r) ? &weights : NULL);
    if (status == BRIM_OK && weights) status = brim_weights_record_check(r->dir, weights);
    json_decref(weights);
    BRIM_TRY(brim_running_begin_together(r, status));
    return keep_files(r, true);
  }
  BRIM_TRY(keep_files(r, false));
  BRIM_TRY(brim_running_begin_together(r, brim_trainer_resume(r->trainer, checkpoint)));
  if (brim_running_prints(r) && r->state->profile_hash != hash_profile(r))
    brim_log(BRIM_LOG_WARN, "%s/%s differs from the profile that the run began with (the checkpoint has its hash)",
             r->dir, BRIM_PROFILE_NAME);
  r->loop.checkpoint_step = r->loop.round_step =
      r->state->step; /* work that was due before the checkpoint was written is done */
  brim_running_recall(r);
  brim_say("resuming '%s' after %s %lld of %lld", r->dir, brim_setup_is_federated(r->drive->setup) ? "round" : "step",
           (long long)r->state->step, (long long)r->drive->order.steps);
  return BRIM_OK;
}

static void on_decision(void *context, const brim_decision *decision)
{
  brim_running *r = context;
  brim_report_decision(&r->events, decision, r->state->step);
  if (brim_tracing_records() && !decision->sight) {
    char note[240];
    snprintf(note, sizeof note, "decision: %s: %s", decision->policy, decision->choice);
    brim_tracing_note(note);
  }
  if (!decision->sight) brim_openmetrics_decided(&r->live_metrics.decisions, decision->policy, decision->action);
}

static brim_status open_logs(brim_running *r)
{
  char path[4200];
  if (!brim_running_prints(r)) return BRIM_OK;
  snprintf(path, sizeof path, "%s/metrics.jsonl", r->dir);
  BRIM_TRY(brim_jsonl_open(&r->metrics, path, r->state->metrics_records));
  if (brim_setup_is_federated(r->drive->setup))
    BRIM_TRY(brim_participants_open(&r->participants, r->dir, r->state->step));
  snprintf(path, sizeof path, "%s/events.jsonl", r->dir);
  BRIM_TRY(brim_jsonl_open(&r->events, path, BRIM_JSONL_ALL));
  if (r->settings->observe.tensorboard)
    brim_running_heed_tensorboard(
        r, brim_tensorboard_open(&r->tensorboard, r->dir, r->options->resume ? r->state->step + 1 : -1));
  brim_environment_write(r->dir, r->drive, brim_trainer_plan(r->trainer), r->state->step);
  brim_running_event(r, r->options->resume ? "resumed" : "started", NULL);
  brim_policies_listen(r->drive->dialogue.policies, on_decision, r);
  return BRIM_OK;
}

/* Adds "60000 samples for 100 clients (iid, 600 each), 100 rounds of 10". */
static void describe_federation(const brim_setup *s, brim_text *out)
{
  const brim_partition *p = &s->partition;
  const long long samples = (long long)p->samples, clients = (long long)p->clients,
                  rounds = (long long)s->settings->rounds;
  brim_text_printf(out, "%lld sample%s for %lld client%s (%s, ", samples, brim_plural(samples), clients,
                   brim_plural(clients), brim_partition_names[s->settings->partition.kind]);
  if (p->least == p->most)
    brim_text_printf(out, "%lld each)", (long long)p->least);
  else
    brim_text_printf(out, "%lld to %lld each)", (long long)p->least, (long long)p->most);
  brim_text_printf(out, ", %lld round%s of %lld", rounds, brim_plural(rounds),
                   (long long)s->settings->clients_per_round);
}

static void announce_world(const brim_running *r)
{
  brim_text text = {0};
  brim_trainer_print_world(r->trainer, &text);
  if (text.length > 0) brim_say("simulated world: %s", brim_text_str(&text));
  brim_text_release(&text);
  if (r->settings->protocol[0])
    brim_say("protocol=%s is only a label; set network=moderate or another network scenario to model messaging",
             r->settings->protocol);
  if (!r->settings->federate.train) brim_say("federate.train=false: rounds are simulated without training");
}

static void announce_async(const brim_running *r)
{
  const brim_settings *s = r->settings;
  if (!s->federate.async) return;
  brim_say("asynchronous rounds: %lld client%s in flight, %lld update%s a round, at most %lld round%s old; up to %lld "
           "versions of the global model in host memory",
           (long long)s->federate.concurrency, brim_plural(s->federate.concurrency), (long long)s->clients_per_round,
           brim_plural(s->clients_per_round), (long long)s->federate.max_staleness,
           brim_plural(s->federate.max_staleness), (long long)brim_setup_versions(r->drive->setup));
}

static void announce_privacy(const brim_running *r)
{
  const brim_settings *s = r->settings;
  if (!brim_privacy_has_noise(s)) return;
  brim_say("privacy of clients: %s noise of %g times the clip norm; epsilon %.4g at delta %g after round 1",
           s->privacy.noise == BRIM_NOISE_LOCAL ? "local" : "central", brim_privacy_update_multiplier(s),
           brim_setup_epsilon(r->drive->setup, 1), s->privacy.delta);
  if (s->privacy.seed == 0)
    brim_say("the noise follows from seed=%lld, which suits simulations: before you publish the model, set "
             "privacy.seed to a secret random number",
             (long long)s->seed);
}

static void announce(const brim_running *r)
{
  char bytes[32];
  const brim_drive *d = r->drive;
  const brim_plan *plan = brim_trainer_plan(r->trainer);
  brim_text text = {0};
  const long long samples = (long long)d->setup->data.count[BRIM_PART_TRAIN], steps = (long long)d->order.steps;
  if (brim_setup_is_federated(d->setup))
    describe_federation(d->setup, &text);
  else
    brim_text_printf(&text, "%lld sample%s, %lld step%s", samples, brim_plural(samples), steps, brim_plural(steps));
  brim_say("%s on %s: %s; %s, %s", brim_config_choice_of(r->config, "model")->plugin->id,
           brim_config_choice_of(r->config, "dataset")->name, brim_text_str(&text),
           brim_config_choice_of(r->config, "backend")->plugin->id, d->planner.device_info.name);
  brim_text_clear(&text);
  if (d->setup->data.train.summary)
    brim_say("%s: %s", brim_config_choice_of(r->config, "dataset")->name, d->setup->data.train.summary);
  brim_distribution_print(d, &text);
  brim_say("memory planned and placed: %s; %s; run folder %s", brim_format_bytes(bytes, sizeof bytes, plan->peak_bytes),
           brim_text_str(&text), r->dir);
  const brim_program *train = brim_plan_program(plan, BRIM_PROGRAM_TRAIN, d->choice.micro_batch);
  brim_text_clear(&text);
  if (train) brim_recompute_print(train, plan->request.recompute, &text);
  if (text.length > 0) brim_say("%s", text.s);
  brim_text_clear(&text);
  brim_plan_print_refused(plan, &text);
  if (text.length > 0) brim_log(BRIM_LOG_WARN, "%s", text.s);
  brim_text_clear(&text);
  brim_strict_print_precision(d->setup, &d->planner.device_info, &text);
  if (text.length > 0) brim_say("%s", text.s);
  brim_text_release(&text);
  if (brim_setup_rounds(d->setup, d->choice.micro_batch))
    brim_log(BRIM_LOG_WARN,
             "the micro-batch %lld is not a multiple of training.grain %lld: results differ by rounding from those of "
             "other micro-batches",
             (long long)d->choice.micro_batch, (long long)d->setup->grain);
}

/* Reports at the beginning which figures the run omits, before the user spends hours on it. */
static void report_omitted(brim_running *r)
{
  char text[200];
  const int64_t *count = r->drive->setup->data.count, classes = r->drive->setup->data.train.classes;
  if (r->drive->setup->data.train.task != BRIM_TASK_CLASS) return; /* other tasks do not have these figures */
  if (count[BRIM_PART_VALIDATION] + count[BRIM_PART_TEST] == 0) return;
  if (!brim_scores_left_out(text, sizeof text, classes)[0]) return;
  brim_say("%s", text);
  brim_running_event(r, "scores_left_out", text);
}

/* Connects the ranks before the plan is placed, because communication libraries use memory of the device. */
static brim_status connect(const brim_running *r)
{
  return brim_taken_connect(&r->drive->planner);
}

static brim_status check_schedule(const brim_running *r)
{
  const brim_setup *s = r->drive->setup;
  return brim_schedule_check(s->schedule, s->schedule_params, r->drive->order.steps);
}

static brim_status open_trainer(brim_running *r)
{
  for (;;) {
    const brim_status status = brim_trainer_open(r->drive, &r->trainer);
    brim_crash_watch_exit();
    if (status == BRIM_OK || !brim_drive_asks(r->drive)) return status;
    BRIM_TRY(brim_drive_remake(&r->drive));
    BRIM_TRY(brim_drive_settle(&r->drive));
    BRIM_TRY(connect(r));
  }
}

void brim_running_follow_drive(brim_running *r)
{
  if (r->drive->setup->own_config) r->config = r->drive->setup->own_config;
  r->settings = &r->config->settings;
  if (!r->loop.recovery.is_over) brim_policies_listen(r->drive->dialogue.policies, on_decision, r);
}

brim_status brim_running_keep_drive(brim_running *r)
{
  BRIM_TRY(brim_report_write_inputs(r->dir, r->config, r->drive, brim_trainer_plan(r->trainer)));
  r->state->profile_hash = hash_profile(r);
  return r->state->step > 0 ? brim_loop_checkpoint(&r->loop) : BRIM_OK;
}

static void follow_page(const brim_running *r)
{
  const double seconds = r->settings->observe.report_seconds;
  if (seconds > 0 && r->options->follow_page && brim_running_prints(r)) r->options->follow_page(r->dir, seconds);
}

brim_status brim_running_begin(brim_running *r)
{
  const brim_setup_options options = {
      .read_data = true, .resume = r->options->resume, .stop = r->stop, .dist = r->options->dist};
  brim_reserve_take();
  BRIM_TRY(brim_running_trace_check(r));
  const brim_status opened = brim_drive_open(r->config, &options, &r->drive);
  BRIM_TRY(brim_distribution_settle(r->options->dist, opened, &r->drive));
  BRIM_TRY(brim_running_begin_together(r, connect(r)));
  BRIM_TRY(brim_running_begin_together(r, brim_communication_time(&r->drive->planner)));
  BRIM_TRY(brim_running_check_processes(r));
  BRIM_TRY(brim_running_begin_together(r, open_trainer(r)));
  BRIM_TRY(brim_distribution_exchange_batches(r->drive));
  if (r->drive->setup->own_config) r->config = r->drive->setup->own_config;
  r->settings = &r->config->settings;
  r->state = brim_trainer_state(r->trainer);
  brim_report_begin(&r->report, r->drive);
  BRIM_TRY(brim_running_begin_together(r, check_schedule(r)));
  BRIM_TRY(brim_running_begin_together(r, brim_setup_check_disk(r->drive->setup)));
  r->loop = brim_loop_begin(&r->drive, &r->work);
  BRIM_TRY(r->options->resume ? open_resumed(r) : open_new(r));
  brim_live_run(r->dir, r->lock, brim_config_choice_of(r->config, "model")->plugin->id);
  if (r->settings->dist.shard != BRIM_SHARD_NONE) BRIM_TRY(brim_running_check_folder(r));
  BRIM_TRY(brim_trainer_broadcast(r->trainer));
  /* brim prints this if the process later runs out of host memory even for small blocks, or if a plugin crashes. */
  char advice[BRIM_QUOTED_BYTES + 100];
  snprintf(advice, sizeof advice, "to resume the run from its last checkpoint: %s %s", brim_run_resume_words(r->dir),
           BRIM_QUOTED(r->dir));
  brim_out_of_memory_advice(advice);
  brim_crash_advice(advice);
  brim_stop_set_folder(r->dir);
  BRIM_TRY(brim_running_begin_together(r, open_logs(r)));
  brim_running_trace_begin(r);
  BRIM_TRY(brim_running_open_insight(r));
  announce(r);
  announce_world(r);
  announce_async(r);
  announce_privacy(r);
  report_omitted(r);
  follow_page(r);
  BRIM_TRY(brim_running_watch_memory(r));
  brim_running_open_metrics(r);
  brim_progress_init(&r->progress, r->state->step, r->settings->observe.log_every_steps,
                     r->options->quiet || !brim_running_prints(r));
  if (brim_running_prints(r))
    r->hooks = brim_hooks_open(&r->settings->hooks, r->dir, brim_config_choice_of(r->config, "model")->plugin->id,
                               brim_config_choice_of(r->config, "dataset")->name);
  brim_running_hook(r, BRIM_HOOK_START, r->options->resume ? "resumed" : "started");
  const brim_progress_state state = brim_running_progress(r);
  brim_running_publish(r, &state);
  return BRIM_OK;
}
