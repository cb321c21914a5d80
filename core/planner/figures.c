/* See figures.h. */
#include "planner/figures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/host.h"
#include "exec/ceiling.h"
#include "exec/timing.h"
#include "memory/choose.h"
#include "memory/claims.h"
#include "planner/communication.h"
#include "planner/room.h"
#include "planner/taken.h"

#define TIMED_SECONDS 3.0                      /* limit for timing; times that are still missing then are guessed */
#define TIMED_HOST_BYTES ((uint64_t)512 << 20) /* limit of arenas placed on the host for timing */
#define ROUNDS 7                               /* minimum number of timed rounds, to foresee the duration */

/* ---- the profile ---- */

static brim_profile_subject subject_of(const brim_planner *p, const brim_device_info *info)
{
  const brim_config_choice *backend = brim_config_choice_of(p->setup->config, "backend");
  return brim_profile_subject_of(backend->plugin->id, backend->file, info);
}

/* A resumed run has a profile in its folder; times missing from it are guessed. */
static bool find_path(const brim_planner *p, const brim_profile_subject *subject, char *out, size_t room)
{
  const char *named = p->setup->settings->memory.profile;
  if (p->setup->options.resume) {
    snprintf(out, room, "%s/%s", p->setup->options.resume, BRIM_PROFILE_NAME);
    return true;
  }
  if (named[0] == '\0') return brim_profile_default_path(subject, out, room);
  snprintf(out, room, "%s", named);
  return true;
}

brim_status brim_planner_open_profile(brim_planner *p)
{
  char path[BRIM_PATH_MAX];
  if (p->profile) return BRIM_OK;
  const brim_profile_subject subject = subject_of(p, &p->device_info);
  const bool has_path = find_path(p, &subject, path, sizeof path);
  const brim_status status = brim_profile_open(has_path ? path : NULL, &subject, &p->profile);
  if (status == BRIM_OK || (p->setup->settings->memory.profile[0] && !p->setup->options.resume)) return status;
  brim_log(BRIM_LOG_INFO, "continuing without a device profile: %s", brim_error_text());
  if (!p->setup->options.resume) unlink(path); /* a cached profile that cannot be read is made again */
  return brim_profile_open(p->setup->options.resume ? NULL : path, &subject, &p->profile);
}

brim_status brim_planner_profile_of(const brim_planner *p, const brim_device_info *info, brim_profile **out)
{
  char path[BRIM_PATH_MAX];
  const brim_profile_subject subject = subject_of(p, info);
  const bool has_path = brim_profile_default_path(&subject, path, sizeof path);
  if (brim_profile_open(has_path ? path : NULL, &subject, out) == BRIM_OK) return BRIM_OK;
  return brim_profile_open(NULL, &subject, out);
}

void brim_planner_save_profile_of(const brim_planner *p, brim_profile *profile)
{
  if (!p->setup->options.resume && brim_profile_save(profile) != BRIM_OK)
    brim_log(BRIM_LOG_WARN, "%s", brim_error_text());
}

void brim_planner_save_profile(const brim_planner *p)
{
  if (p->profile) brim_planner_save_profile_of(p, p->profile);
}

/* ---- time ---- */

#define ELEMENT_SECONDS 1e-9 /* typical time of a host to prepare an element of a sample */

static void time_sample(brim_planner *p, brim_profile *profile, const char *what)
{
  double seconds = 0;
  const void *params =
      p->setup->features ? p->setup->data.self : brim_config_choice_of(p->setup->config, "dataset")->params;
  if (brim_data_sample_seconds(&p->setup->data, params, p->setup->backend_ops->real, &seconds) == BRIM_OK)
    brim_profile_add(profile, what, 1, seconds, 0);
  else
    brim_log(BRIM_LOG_DEBUG, "cannot time samples: %s", brim_error_text());
}

brim_prediction brim_planner_predict_samples(brim_planner *p, brim_profile *profile, int64_t samples)
{
  char what[288], shape[96], transform[128];
  brim_prediction out = {0};
  snprintf(what, sizeof what, "sample %s %s %s to %s%s", p->setup->data.plugin->id,
           brim_dtype_name(p->setup->data.train.dtype),
           brim_shape_format(shape, sizeof shape, &p->setup->data.train.sample),
           brim_dtype_name(p->setup->backend_ops->real),
           brim_transform_text(&p->setup->data.transform, transform, sizeof transform));
  if (brim_setup_may_time(p->setup) && brim_profile_lacks(profile, what, 1)) time_sample(p, profile, what);
  brim_predict_other(profile, what, 1, ELEMENT_SECONDS * (double)p->setup->data.elements, (double)samples, &out);
  return out;
}

/* Adds the time by which the loader slows a step, if its threads share processors with kernels. The threads of a kernel
 * wait for each other, so a delay of one delays all. */
static void add_loading(brim_planner *p, int64_t samples, brim_prediction *t)
{
  const double workers = (double)p->setup->settings->training.num_workers;
  const brim_prediction loading = brim_planner_predict_samples(p, p->profile, samples);
  t->guessed_seconds += loading.guessed_seconds;
  const double quota = brim_host_quota();
  const double online = (double)sysconf(_SC_NPROCESSORS_ONLN),
               processors = (quota > 0 && quota < online ? quota : online) / brim_host_ranks();
  const double threads = p->device_info.on_host ? p->device_info.threads : 1;
  if (workers == 0 || threads + workers > processors) t->seconds += loading.seconds;
  if (workers > 0 && t->seconds < loading.seconds / workers) t->seconds = loading.seconds / workers;
}

static double rated_copy(const brim_rates *rates, uint64_t bytes)
{
  return brim_rates_seconds(rates, (brim_cost){.bytes = bytes});
}

/* Returns the program of the last micro-batch of the rank's share, if its size differs from the others. */
static const brim_program *last_program(const brim_planner *p, const brim_plan *plan, int64_t batch)
{
  const int64_t micros = brim_setup_step_micros(p->setup, batch),
                rest = brim_setup_step_samples(p->setup) - (micros - 1) * batch;
  return micros > 1 && rest != batch ? brim_plan_program(plan, BRIM_PROGRAM_TRAIN, rest) : NULL;
}

/* Predicts a step as the trainer runs it: see `accumulate` in trainer_step.c. */
static brim_prediction predict_step(brim_planner *p, const brim_plan *plan, int64_t batch)
{
  const brim_rates rates = brim_rates_of(&p->device_info);
  const double micros = (double)brim_setup_step_micros(p->setup, batch);
  const brim_program *train = brim_plan_program(plan, BRIM_PROGRAM_TRAIN, batch);
  const brim_program *last = last_program(p, plan, batch);
  brim_prediction t = {0};
  if (!train) train = &plan->program[0];
  const uint64_t fed = train->graph->input->bytes + train->graph->label->bytes;
  brim_predict_other(p->profile, BRIM_TIMED_ZERO, (int64_t)plan->zeroed_bytes, rated_copy(&rates, plan->zeroed_bytes),
                     1, &t);
  brim_predict_other(p->profile, BRIM_TIMED_LOAD, (int64_t)fed, rated_copy(&rates, fed), micros, &t);
  brim_predict_other(p->profile, BRIM_TIMED_METRICS, 1, rates.node_seconds, 1, &t);
  brim_predict_program(p->profile, &rates, train, last ? micros - 1 : micros, &t);
  if (last) brim_predict_program(p->profile, &rates, last, 1, &t);
  for (size_t i = 0; i < plan->program_count; i++)
    if (plan->program[i].info.batch == 0) brim_predict_program(p->profile, &rates, &plan->program[i], 1, &t);
  add_loading(p, brim_setup_step_samples(p->setup), &t);
  t.seconds += brim_communication_predict(p, plan, micros);
  return t;
}

/* The time of a step after its micro-batches: collectives and update. */
static double predict_update(brim_planner *p, const brim_plan *plan, int64_t batch)
{
  const brim_rates rates = brim_rates_of(&p->device_info);
  brim_prediction t = {0};
  for (size_t i = 0; i < plan->program_count; i++)
    if (plan->program[i].info.batch == 0) brim_predict_program(p->profile, &rates, &plan->program[i], 1, &t);
  return t.seconds + brim_communication_predict(p, plan, (double)brim_setup_step_micros(p->setup, batch));
}

double brim_planner_step_seconds(brim_planner *p, const brim_plan *plan, int64_t batch)
{
  if (!p->profile || brim_profile_ratio(p->profile, NULL) <= 0) return NAN;
  return predict_step(p, plan, batch).seconds;
}

void brim_planner_compare_times(brim_planner *p, const brim_plan *plan, int64_t batch, double seconds)
{
  if (!p->profile || !brim_setup_may_time(p->setup) || p->setup->world.ranks > 1)
    return; /* the profile does not include waiting for other ranks */
  const brim_prediction t = predict_step(p, plan, batch);
  if (t.guessed_seconds > 0 || t.derived_seconds > 0 || brim_profile_agree(t.seconds, seconds)) return;
  if (brim_profile_doubt(p->profile) == 0) return;
  brim_log(BRIM_LOG_INFO,
           "steps take %.3g ms, but the device profile predicts %.3g ms: the next run that needs these times will "
           "measure them again",
           1e3 * seconds, 1e3 * t.seconds);
  brim_planner_save_profile(p);
}

/* ---- timing ---- */

/* Whether timing is worthwhile: some time is unknown, timing would be short, and there is room. The first timing may
 * take longer. */
static bool is_worth_timing(brim_planner *p, brim_profile *profile, const brim_rates *rates, const brim_plan *plan)
{
  const uint64_t most = p->device_info.on_host ? TIMED_HOST_BYTES : UINT64_MAX;
  if (plan->peak_bytes > brim_planner_room(p, false) || plan->peak_bytes > most) return false;
  const double seconds = ROUNDS * brim_timing_foresee(profile, rates, plan);
  return seconds > 0 && p->timing_seconds + seconds <= (p->timing_seconds > 0 ? TIMED_SECONDS : 2 * TIMED_SECONDS);
}

/* Times a plan's own kernels, or those that measure a ceiling. */
static brim_status time_here(brim_planner *p, const brim_plan *plan, enum brim_ceiling_kind kind)
{
  const brim_rates rates = brim_rates_of(&p->device_info);
  if (kind < BRIM_CEILINGS) return brim_ceiling_time(p->profile, plan, kind, p->device);
  return brim_timing_run(p->profile, &rates, plan, p->device);
}

/* On a shared device, joins the queue, and does not time if another run waits. */
brim_status brim_planner_claim_own(brim_planner *p, uint64_t bytes, brim_claim **claim)
{
  char name[64];
  int device;
  double waited = 0;
  *claim = NULL;
  snprintf(name, sizeof name, "%s:%d", brim_setup_backend_id(p->setup), p->device);
  const brim_device_wish wish = {.device = name};
  const brim_claim_request request = brim_planner_claim_request(p, &wish, bytes, false);
  if (!brim_device_is_shared(&p->device_info)) return BRIM_OK;
  const brim_status status = brim_claim_take(&request, claim, &device, &waited);
  p->queue_seconds += waited;
  return status;
}

static brim_status time_plan(brim_planner *p, const brim_plan *plan, enum brim_ceiling_kind kind)
{
  brim_claim *claim = NULL;
  brim_status status = brim_planner_claim_own(p, plan->peak_bytes, &claim);
  if (status == BRIM_OK) status = time_here(p, plan, kind);
  brim_claim_release(claim);
  return status;
}

/* Continues without timing, so that times are guessed. If the device failed for another reason than lack of memory,
 * warns, because the run may fail in the same way. */
static brim_status go_without(brim_planner *p, brim_status status)
{
  const bool is_want = status == BRIM_ENOMEM_DEVICE || status == BRIM_ENODEVICE;
  brim_log(is_want ? BRIM_LOG_DEBUG : BRIM_LOG_WARN, "cannot time kernels: %s", brim_error_text());
  if (!is_want) p->timing_seconds = TIMED_SECONDS;
  return BRIM_OK;
}

static brim_status time_choice(brim_planner *p, const brim_choice *v)
{
  brim_plan *plan = NULL;
  if (!brim_setup_may_time(p->setup)) return BRIM_OK;
  BRIM_TRY(brim_planner_plan(p, v, true, &plan));
  brim_status status = BRIM_OK;
  const brim_rates rates = brim_rates_of(&p->device_info);
  if (is_worth_timing(p, p->profile, &rates, plan)) {
    const double start = brim_now();
    status = time_plan(p, plan, BRIM_CEILINGS);
    p->timing_seconds += brim_now() - start;
    if (status == BRIM_OK) {
      brim_taken_keep(p, v->precision);
      brim_planner_save_profile(p);
      status = brim_planner_look(p);
    } else if (status != BRIM_EINTERRUPTED) {
      status = go_without(p, status);
    }
  }
  brim_plan_free(plan);
  return status;
}

brim_status brim_planner_time_client(brim_planner *p, brim_profile *profile, const brim_device_info *info,
                                     const brim_plan *plan)
{
  const brim_rates rates = brim_rates_of(info);
  brim_claim *claim = NULL;
  if (!brim_setup_may_time(p->setup) || !is_worth_timing(p, profile, &rates, plan)) return BRIM_OK;
  const double start = brim_now();
  brim_status status = brim_planner_claim_own(p, plan->peak_bytes, &claim);
  if (status == BRIM_OK) status = brim_timing_run(profile, &rates, plan, p->device);
  brim_claim_release(claim);
  p->timing_seconds += brim_now() - start;
  return status == BRIM_OK || status == BRIM_EINTERRUPTED ? status : go_without(p, status);
}

static brim_status time_ceiling(brim_planner *p, const brim_plan *like, enum brim_ceiling_kind kind)
{
  brim_plan *plan = NULL;
  BRIM_TRY(brim_ceiling_plan(&like->request, p->device_info.on_host != 0, kind, &plan));
  const brim_status status = time_plan(p, plan, kind);
  brim_plan_free(plan);
  return status;
}

brim_status brim_planner_time_ceilings(brim_planner *p, const brim_plan *like)
{
  BRIM_TRY(brim_planner_open_profile(p));
  const brim_ceiling known = brim_ceiling_find(p->profile, &like->request);
  if (!brim_setup_may_time(p->setup) || (known.flops > 0 && known.bytes > 0)) return BRIM_OK;
  for (int kind = 0; kind < BRIM_CEILINGS; kind++) BRIM_TRY(time_ceiling(p, like, (enum brim_ceiling_kind)kind));
  brim_planner_save_profile(p);
  return BRIM_OK;
}

brim_status brim_planner_time(brim_planner *p, const brim_plan *plan)
{
  BRIM_TRY(brim_planner_open_profile(p));
  if (!brim_setup_may_time(p->setup))
    return brim_fail(BRIM_ECONFIG, "timing is disabled: remove --no-timing and memory.timing=false");
  for (int kind = 0; kind < BRIM_CEILINGS; kind++) BRIM_TRY(time_ceiling(p, plan, (enum brim_ceiling_kind)kind));
  BRIM_TRY(time_plan(p, plan, BRIM_CEILINGS));
  brim_planner_save_profile(p);
  return BRIM_OK;
}

/* ---- figures ---- */

enum brim_basis brim_prediction_basis(const brim_prediction *t)
{
  return t->guessed_seconds > 0 ? BRIM_BASIS_GUESSED : t->derived_seconds > 0 ? BRIM_BASIS_DERIVED : BRIM_BASIS_TIMED;
}

brim_status brim_planner_figures(brim_planner *p, const brim_choice *choice, brim_figures *out)
{
  brim_plan *plan = NULL;
  if (p->model) {
    brim_choice c = *choice;
    c.within_bytes = brim_planner_budget(p, choice);
    return p->model->figures(p->model->context, &c, out);
  }
  BRIM_TRY(brim_planner_open_profile(p));
  BRIM_TRY(time_choice(p, choice));
  BRIM_TRY(brim_planner_plan(p, choice, false, &plan));
  const brim_program *train = brim_plan_program(plan, BRIM_PROGRAM_TRAIN, choice->micro_batch);
  const brim_prediction t = predict_step(p, plan, choice->micro_batch);
  *out = (brim_figures){.peak_bytes = plan->peak_bytes,
                        .lower_bound_bytes = plan->lower_bound_bytes,
                        .activation_bytes = plan->class_bytes[BRIM_ROLE_ACTIVATION],
                        .recomputed = train ? train->graph->recomputed_count : 0,
                        .recompute_share = train ? brim_recompute_share(train) : 0,
                        .step_seconds = t.seconds,
                        .update_seconds = predict_update(p, plan, choice->micro_batch),
                        .basis = brim_prediction_basis(&t)};
  brim_plan_free(plan);
  return BRIM_OK;
}
