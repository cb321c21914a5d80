/* Opens and reopens a drive, and manages its use of the device. See drive.h. */
#include "drive/drive.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "base/log.h"
#include "base/process.h"
#include "config/config.h"
#include "drive/extract.h"
#include "drive/precision.h"
#include "memory/live.h"
#include "planner/footprint.h"
#include "planner/room.h"
#include "planner/strict.h"
#include "planner/taken.h"

/* ---- opening ---- */

/* The state that a drive passes to its replacement. */
typedef struct legacy {
  brim_config *config; /* the new drive's own */
  int changes;
  bool has_begun;
  int32_t precision; /* -1: there was no drive */
  double queue_seconds;
  uint64_t host_share_bytes;
  int64_t decided_batch;
  brim_decisions decisions;
  brim_distribution distribution;
  json_t *was;
} legacy;

static brim_status open_setup(brim_drive *d, int32_t precision)
{
  BRIM_TRY(brim_setup_open(d->setup));
  BRIM_TRY(brim_decide_device(&d->dialogue));
  brim_precision_settle(d, precision);
  BRIM_TRY(brim_strict_check_precision(d->setup, &d->planner.device_info));
  BRIM_TRY(brim_taken_learn(&d->planner));
  BRIM_TRY(brim_planner_read_fraction(&d->planner));
  BRIM_TRY(brim_setup_finish(d->setup, &d->planner.device_info));
  d->choice.lanes = brim_planner_lanes(&d->planner);
  const int64_t asked = d->setup->settings->parallel_clients;
  if (asked > 1 && d->choice.lanes > 0 && !BRIM_HAS(brim_backend_ops, d->setup->backend_ops, lane))
    brim_log(BRIM_LOG_INFO, "parallel_clients=%lld: backend '%s' trains one client at a time", (long long)asked,
             brim_setup_backend_id(d->setup));
  brim_drive_cut(d, brim_setup_micro_batch(d->setup));
  return brim_extract_features(d);
}

/* Ranks place their plans only when all ranks have opened their drives. */
static uint64_t host_share(const brim_world *world)
{
  const uint64_t left = brim_host_memory_now().available_bytes;
  if (world->local_ranks < 2) return 0;
  return left == UINT64_MAX ? left : left / (uint64_t)world->local_ranks + brim_rss_bytes();
}

static brim_status open_once(const brim_drive_place *place, const brim_config *config, const legacy *before,
                             const brim_setup_options *options, brim_drive **out)
{
  brim_drive *d = *out = brim_xcalloc(1, sizeof *d);
  d->place = place;
  d->setup = brim_setup_create(config, before->config, options);
  d->setup->distribution = before->distribution;
  d->setup->was = before->was;
  if (!place && !options->maker) {
    brim_shared_folder_set(d->setup->settings->claims.dir);
    brim_live_begin((enum brim_live_mode)d->setup->settings->observe.live, &d->setup->world);
  }
  d->choice =
      (brim_choice){.precision = brim_setup_precision(d->setup), .recompute = config->settings.memory.recompute};
  brim_planner_open(&d->planner, d->setup);
  d->planner.model = place ? place->model : NULL;
  d->planner.queue_seconds = before->queue_seconds;
  d->planner.host_share_bytes = before->host_share_bytes > 0 ? before->host_share_bytes : host_share(&d->setup->world);
  BRIM_TRY(brim_dialogue_open(&d->dialogue, &d->planner, place ? place->env : &brim_real_env, before->decisions));
  d->dialogue.changes = before->changes;
  d->dialogue.decided_batch = before->decided_batch;
  if (before->has_begun) brim_drive_begin(d);
  if (place) brim_policies_listen(d->dialogue.policies, place->listen, place->context);
  if (place && place->answers_at_once) brim_policies_answer_there(d->dialogue.policies);
  return open_setup(d, before->precision);
}

bool brim_drive_asks(const brim_drive *d)
{
  return d->dialogue.again.count > 0 || d->setup->again.count > 0;
}

brim_status brim_drive_remake(brim_drive **drive)
{
  brim_drive *old = *drive;
  brim_dialogue *dialogue = &old->dialogue;
  const brim_setup_options options = old->setup->options;
  const brim_drive_place *place = old->place;
  brim_again asked = old->setup->again.count > 0 ? old->setup->again : dialogue->again;
  legacy left = {.changes = dialogue->changes + !asked.by_data,
                 .has_begun = dialogue->has_begun,
                 .precision = brim_setup_precision(old->setup),
                 .queue_seconds = old->planner.queue_seconds,
                 .host_share_bytes = old->planner.host_share_bytes,
                 .decided_batch = dialogue->decided_batch};
  dialogue->again.count = old->setup->again.count = 0;
  if (options.maker) BRIM_TRY(options.maker->hear(options.maker->context, &asked));
  const size_t count = asked.count;
  brim_status status = brim_config_load_again(old->setup->config, asked.word, count, &left.config);
  if (status != BRIM_OK && !asked.by_data && brim_policies_decider(dialogue->policies))
    return brim_fail_add(status, "%s requested %s%s%s", brim_policies_decider(dialogue->policies), asked.word[0],
                         count > 1 ? " " : "", count > 1 ? asked.word[1] : "");
  BRIM_TRY(status);
  status = brim_config_anchor_paths(left.config);
  if (status != BRIM_OK) {
    brim_config_free(left.config);
    return status;
  }
  left.decisions = brim_policies_take_decisions(dialogue->policies);
  left.distribution = old->setup->distribution;
  old->setup->distribution = (brim_distribution){0};
  left.was = json_incref(old->setup->was);
  brim_drive_close(old);
  brim_guard_cancel_alarm(); /* a policy that hung in destroy has set an alarm that would end the process */
  return open_once(place, left.config, &left, &options, drive);
}

brim_status brim_drive_open_in(const brim_drive_place *place, const brim_config *config,
                               const brim_setup_options *options, brim_drive **out)
{
  brim_drive *d;
  brim_status status = open_once(place, config, &(legacy){.precision = -1}, options, &d);
  while (status != BRIM_OK && brim_drive_asks(d)) status = brim_drive_remake(&d);
  if (status != BRIM_OK) {
    brim_drive_close(d);
    return status;
  }
  *out = d;
  return BRIM_OK;
}

brim_status brim_drive_open(const brim_config *config, const brim_setup_options *options, brim_drive **out)
{
  return brim_drive_open_in(NULL, config, options, out);
}

void brim_drive_close(brim_drive *d)
{
  if (!d) return;
  brim_dist_disconnect(d->setup->options.dist); /* must happen before the device is released */
  brim_drive_end_hold(d);
  brim_planner_close(&d->planner);
  brim_dialogue_close(&d->dialogue);
  brim_setup_close(d->setup);
  free(d);
}

/* ---- choices ---- */

/* Predicts the process's memory besides the arena, on the device and on the host, before anything is chosen by free
 * memory. Assumes the smallest micro-batch; loaders of larger ones need more. */
static brim_status foresee(brim_drive *d)
{
  brim_planner *planner = &d->planner;
  const bool matters = brim_decide_is_open(&d->dialogue, &d->choice) && !planner->model && !d->dialogue.has_begun;
  const size_t count = matters ? brim_planner_list_cuts(planner) : 0;
  brim_plan *plan = NULL;
  if (count == 0) return BRIM_OK;
  BRIM_TRY(brim_taken_measure(planner, &d->choice));
  const brim_choice c = brim_choice_cut(&d->choice, planner->micro_batch[count - 1]);
  BRIM_TRY(brim_planner_plan(planner, &c, true, &plan));
  const brim_status status = brim_planner_foresee(planner, plan, c.micro_batch);
  brim_plan_free(plan);
  return status;
}

/* If the user leaves the number of lanes to brim, chooses as many as fit. */
static brim_status fit_lanes(brim_drive *d)
{
  uint64_t peak = 0;
  if (d->choice.lanes <= 1 || d->setup->settings->parallel_clients >= 0) return BRIM_OK;
  for (;; d->choice.lanes--) {
    d->planner.lanes = d->choice.lanes;
    const uint64_t room = brim_planner_room(&d->planner, true);
    BRIM_TRY(brim_planner_peak(&d->planner, &d->choice, &peak));
    if (peak <= room || d->choice.lanes == 1) return BRIM_OK;
  }
}

brim_status brim_drive_settle(brim_drive **drive)
{
  for (;;) {
    brim_drive *d = *drive;
    brim_choice to = d->choice;
    BRIM_TRY(foresee(d));
    const brim_status status = brim_decide_plan(&d->dialogue, &to);
    brim_drive_go(d, &to);
    BRIM_TRY(status);
    if (!brim_drive_asks(d)) return fit_lanes(d);
    BRIM_TRY(brim_drive_remake(drive));
  }
}

brim_status brim_drive_after_oom(brim_drive *d, brim_status failure, uint64_t needed)
{
  const int device = d->planner.device;
  brim_choice to = d->choice;
  const brim_status status = brim_decide_after_oom(&d->dialogue, &to, failure, needed);
  if (d->planner.device != device) brim_drive_end_hold(d);
  brim_drive_go(d, &to);
  return status;
}

void brim_drive_go(brim_drive *d, const brim_choice *choice)
{
  d->choice = *choice;
  d->planner.lanes = choice->lanes;
  d->choice.micro_batch = brim_setup_limit_batch(d->setup, choice->micro_batch);
  d->order = brim_setup_order(d->setup, d->choice.micro_batch);
  d->dialogue.demands.steps = d->order.steps;
}

void brim_drive_cut(brim_drive *d, int64_t batch)
{
  const brim_choice to = brim_choice_cut(&d->choice, batch);
  brim_drive_go(d, &to);
}

int64_t brim_drive_eval_batch(const brim_drive *d)
{
  return brim_setup_eval_batch(d->setup, d->choice.micro_batch);
}

void brim_drive_distribute(brim_drive *d, int64_t *weight)
{
  free(d->setup->distribution.weight);
  d->setup->distribution.weight = weight;
  brim_planner_forget(&d->planner);
  brim_drive_cut(d, d->choice.micro_batch);
  brim_setup_warn_of_idle_ranks(d->setup);
}

/* ---- life cycle ---- */

brim_status brim_drive_start(brim_drive *d)
{
  if (d->started) return BRIM_OK;
  d->started = d->planner.has_begun = true;
  BRIM_TRY(brim_planner_measure(&d->planner));
  return brim_setup_start_data(d->setup);
}

void brim_drive_begin(brim_drive *d)
{
  d->dialogue.has_begun = d->planner.has_begun = true;
}

double brim_drive_now(const brim_drive *d)
{
  const brim_env *env = d->dialogue.env;
  return env->now(env->self);
}

/* ---- the device ---- */

bool brim_drive_hold(brim_drive *d, bool alone)
{
  const brim_env *env = d->dialogue.env;
  const brim_claim_request request = {
      .backend = brim_setup_backend_id(d->setup), .ops = d->setup->backend_ops, .self = d->setup->backend};
  if (d->held || !brim_device_is_shared(&d->planner.device_info)) return true;
  return env->hold(env->self, &request, d->planner.device, alone, &d->held) == BRIM_OK;
}

void brim_drive_end_hold(brim_drive *d)
{
  const brim_env *env = d->dialogue.env;
  env->release(env->self, d->held);
  d->held = NULL;
}

typedef struct waiting {
  const brim_dialogue *dialogue;
  uint64_t need_bytes;
} waiting;

static void on_wait(void *context, const char *place)
{
  const waiting *w = context;
  brim_dialogue_show_wait(w->dialogue, w->dialogue->wanted, w->need_bytes, place, -1);
}

static void log_claim(const brim_drive *d, int device, uint64_t need_bytes, double seconds)
{
  char name[64], waited[128];
  snprintf(name, sizeof name, "%s:%d", brim_setup_backend_id(d->setup), device);
  snprintf(waited, sizeof waited, "%s, after %.3g s in the queue", name, seconds);
  brim_dialogue_show_wait(&d->dialogue, name, need_bytes, waited, seconds);
}

brim_status brim_drive_claim(brim_drive *d, uint64_t peak, void **claim, int *device)
{
  const brim_env *env = d->dialogue.env;
  const brim_device_wish wish = brim_dialogue_wish(&d->dialogue);
  waiting w = {&d->dialogue, peak > wish.min_bytes ? peak : wish.min_bytes};
  double waited = 0;
  brim_claim_request request = brim_planner_claim_request(&d->planner, &wish, w.need_bytes, d->planner.waits);
  request.on_wait = on_wait;
  request.context = &w;
  *claim = NULL;
  *device = d->planner.device;
  if (!brim_device_is_shared(&d->planner.device_info)) return BRIM_OK;
  const brim_status status = env->claim(env->self, &request, claim, device, &waited);
  d->planner.queue_seconds += waited;
  if (status == BRIM_OK && waited > 0) log_claim(d, *device, w.need_bytes, waited);
  return status;
}

brim_status brim_drive_move(brim_drive *d, int device)
{
  if (device != d->planner.device) brim_drive_end_hold(d);
  BRIM_TRY(brim_planner_select(&d->planner, device));
  return brim_taken_learn(&d->planner);
}

void brim_drive_log_device(const brim_drive *d)
{
  const brim_device_wish wish = brim_dialogue_wish(&d->dialogue);
  brim_device_log_choice(brim_setup_backend_id(d->setup), d->setup->backend_ops, d->setup->backend, &wish,
                         d->planner.device);
}
