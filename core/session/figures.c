/* See figures.h. */
#include "session/figures.h"

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
#include "session/communication.h"

#define TIMED_SECONDS 3.0                      /* that a session spends on timing, before it guesses */
#define TIMED_HOST_BYTES ((uint64_t)512 << 20) /* of arenas that are placed on the host to be timed */
#define ROUNDS 7                               /* that timing takes at least, when it is foreseen how long */

/* ---- the profile ---- */

static brim_profile_subject subject_of(const brim_session *s)
{
  const brim_config_choice *backend = brim_config_choice_of(s->config, "backend");
  brim_profile_subject subject = {
      .backend = backend->plugin->id, .device = s->device_info.name, .threads = s->device_info.threads};
  uint64_t bytes = 0;
  if (backend->file[0] && brim_file_hash(backend->file, &bytes, &subject.build) != BRIM_OK) subject.build = 0;
  return subject;
}

/* A run that is gone on with has its own; what it lacks is guessed. */
static bool find_path(const brim_session *s, const brim_profile_subject *subject, char *out, size_t room)
{
  const char *named = s->settings->memory.profile;
  if (s->options.resume) {
    snprintf(out, room, "%s/%s", s->options.resume, BRIM_PROFILE_NAME);
    return true;
  }
  if (named[0] == '\0') return brim_profile_default_path(subject, out, room);
  snprintf(out, room, "%s", named);
  return true;
}

static brim_status open_profile(brim_session *s)
{
  char path[BRIM_PATH_MAX];
  if (s->profile) return BRIM_OK;
  const brim_profile_subject subject = subject_of(s);
  const bool has_path = find_path(s, &subject, path, sizeof path);
  const brim_status status = brim_profile_open(has_path ? path : NULL, &subject, &s->profile);
  if (status == BRIM_OK || (s->settings->memory.profile[0] && !s->options.resume)) return status;
  brim_log(BRIM_LOG_INFO, "without a device profile: %s", brim_error_text());
  if (!s->options.resume) unlink(path); /* a cache that cannot be read is made anew */
  return brim_profile_open(s->options.resume ? NULL : path, &subject, &s->profile);
}

void brim_session_save_profile(const brim_session *s)
{
  if (s->profile && !s->options.resume && brim_profile_save(s->profile) != BRIM_OK)
    brim_log(BRIM_LOG_WARN, "%s", brim_error_text());
}

bool brim_session_may_time(const brim_session *s)
{
  return s->settings->memory.timing && !s->options.no_timing && !s->options.resume;
}

/* ---- time ---- */

#define ELEMENT_SECONDS 1e-9 /* that common hosts take to prepare an element of a sample */

static void time_sample(brim_session *s, const char *what)
{
  double seconds = 0;
  const void *params = s->features ? s->data.self : brim_config_choice_of(s->config, "dataset")->params;
  if (brim_data_sample_seconds(&s->data, params, s->backend_ops->real, &seconds) == BRIM_OK)
    brim_profile_add(s->profile, what, 1, seconds, 0);
  else
    brim_log(BRIM_LOG_DEBUG, "samples could not be timed: %s", brim_error_text());
}

/* Samples that the loader prepares take the host's time too, where its threads share the processors with kernels: the
 * threads of a kernel wait for each other, so what one of them loses all lose. */
static void add_loading(brim_session *s, int64_t samples, brim_prediction *p)
{
  char what[288], shape[96], transform[128];
  const double workers = (double)s->settings->training.num_workers;
  snprintf(what, sizeof what, "sample %s %s %s to %s%s", s->data.plugin->id, brim_dtype_name(s->data.train.dtype),
           brim_shape_format(shape, sizeof shape, &s->data.train.sample), brim_dtype_name(s->backend_ops->real),
           brim_transform_text(&s->data.transform, transform, sizeof transform));
  if (brim_session_may_time(s) && brim_profile_lacks(s->profile, what, 1)) time_sample(s, what);
  brim_prediction loading = {0};
  brim_predict_other(s->profile, what, 1, ELEMENT_SECONDS * (double)s->data.elements, (double)samples, &loading);
  p->guessed_seconds += loading.guessed_seconds;
  const double quota = brim_cgroup_read("/sys/fs/cgroup", "/proc/self/cgroup").processors;
  const double online = (double)sysconf(_SC_NPROCESSORS_ONLN),
               processors = (quota > 0 && quota < online ? quota : online) / brim_host_ranks();
  const double threads = s->device_info.on_host ? s->device_info.threads : 1;
  if (workers == 0 || threads + workers > processors) p->seconds += loading.seconds;
  if (workers > 0 && p->seconds < loading.seconds / workers) p->seconds = loading.seconds / workers;
}

static double rated_copy(const brim_rates *rates, uint64_t bytes)
{
  return brim_rates_seconds(rates, (brim_cost){.bytes = bytes});
}

/* The last micro-batch of the rank's share, if it is another than the ones before it. */
static const brim_program *odd_one(const brim_session *s, const brim_plan *plan, int64_t batch)
{
  const int64_t micros = brim_session_step_micros(s, batch), rest = brim_session_step_samples(s) - (micros - 1) * batch;
  return micros > 1 && rest != batch ? brim_plan_program(plan, BRIM_PROGRAM_TRAIN, rest) : NULL;
}

/* A step as the trainer does it: see accumulate in trainer.c. */
static brim_prediction predict_step(brim_session *s, const brim_plan *plan, int64_t batch)
{
  const brim_rates rates = brim_rates_of(&s->device_info);
  const double micros = (double)brim_session_step_micros(s, batch);
  const brim_program *train = brim_plan_program(plan, BRIM_PROGRAM_TRAIN, batch);
  const brim_program *odd = odd_one(s, plan, batch);
  brim_prediction p = {0};
  if (!train) train = &plan->program[0];
  const uint64_t fed = train->graph->input->bytes + train->graph->label->bytes;
  brim_predict_other(s->profile, BRIM_TIMED_ZERO, (int64_t)plan->gradient_bytes,
                     rated_copy(&rates, plan->gradient_bytes), 1, &p);
  brim_predict_other(s->profile, BRIM_TIMED_LOAD, (int64_t)fed, rated_copy(&rates, fed), micros, &p);
  brim_predict_other(s->profile, BRIM_TIMED_METRICS, 1, rates.node_seconds, 1, &p);
  brim_predict_program(s->profile, &rates, train, odd ? micros - 1 : micros, &p);
  if (odd) brim_predict_program(s->profile, &rates, odd, 1, &p);
  for (size_t i = 0; i < plan->program_count; i++)
    if (plan->program[i].info.batch == 0) brim_predict_program(s->profile, &rates, &plan->program[i], 1, &p);
  add_loading(s, brim_session_step_samples(s), &p);
  p.seconds += brim_communication_predict(s, plan, micros);
  return p;
}

/* The time of a step after its micro-batches: the sums of ranks, and the update. */
static double predict_update(brim_session *s, const brim_plan *plan, int64_t batch)
{
  const brim_rates rates = brim_rates_of(&s->device_info);
  brim_prediction p = {0};
  for (size_t i = 0; i < plan->program_count; i++)
    if (plan->program[i].info.batch == 0) brim_predict_program(s->profile, &rates, &plan->program[i], 1, &p);
  return p.seconds + brim_communication_predict(s, plan, (double)brim_session_step_micros(s, batch));
}

double brim_session_step_seconds(brim_session *s, const brim_plan *plan, int64_t batch)
{
  if (!s->profile || brim_profile_ratio(s->profile, NULL) <= 0) return NAN;
  return predict_step(s, plan, batch).seconds;
}

void brim_session_compare_times(brim_session *s, const brim_plan *plan, double seconds)
{
  if (!s->profile || !brim_session_may_time(s) || s->world.ranks > 1)
    return; /* what ranks wait for each other is in no profile */
  const brim_prediction p = predict_step(s, plan, s->choice.micro_batch);
  if (p.guessed_seconds > 0 || p.derived_seconds > 0 || brim_profile_agree(p.seconds, seconds)) return;
  if (brim_profile_doubt(s->profile) == 0) return;
  brim_log(BRIM_LOG_INFO,
           "steps take %.3g ms, but the device profile predicts %.3g ms: the next run that needs these times takes "
           "them again",
           1e3 * seconds, 1e3 * p.seconds);
  brim_session_save_profile(s);
}

/* ---- timing ---- */

/* Is something of it not known, would it be over soon, and is there room? The first of a session may take longer. */
static bool is_worth_timing(brim_session *s, const brim_plan *plan)
{
  const brim_rates rates = brim_rates_of(&s->device_info);
  const uint64_t most = s->device_info.on_host ? TIMED_HOST_BYTES : UINT64_MAX;
  if (plan->peak_bytes > brim_session_room(s, false) || plan->peak_bytes > most) return false;
  const double seconds = ROUNDS * brim_timing_foresee(s->profile, &rates, plan);
  return seconds > 0 && s->timing_seconds + seconds <= (s->timing_seconds > 0 ? TIMED_SECONDS : 2 * TIMED_SECONDS);
}

/* What is timed of a plan: what it is made of, unless it is one by which a ceiling is timed. */
static brim_status time_here(brim_session *s, const brim_plan *plan, enum brim_ceiling_kind kind)
{
  const brim_rates rates = brim_rates_of(&s->device_info);
  if (kind < BRIM_CEILINGS) return brim_ceiling_time(s->profile, plan, kind, s->device);
  return brim_timing_run(s->profile, &rates, plan, s->device);
}

/* On a device that others use, in line with them, and not where somebody waits. */
static brim_status time_plan(brim_session *s, const brim_plan *plan, enum brim_ceiling_kind kind)
{
  brim_claim *claim = NULL;
  int device = s->device;
  const bool waits = s->wait;
  s->wait = false;
  brim_status status = brim_session_claim(s, plan, &claim, &device);
  s->wait = waits;
  if (status == BRIM_OK && device == s->device) status = time_here(s, plan, kind);
  brim_claim_release(claim);
  return status;
}

/* Plans are guessed about then. What is wrong with the device, if it is more than want of room, a run will meet too. */
static brim_status go_without(brim_session *s, brim_status status)
{
  const bool is_want = status == BRIM_ENOMEM_DEVICE || status == BRIM_ENODEVICE;
  brim_log(is_want ? BRIM_LOG_DEBUG : BRIM_LOG_WARN, "kernels could not be timed: %s", brim_error_text());
  if (!is_want) s->timing_seconds = TIMED_SECONDS;
  return BRIM_OK;
}

static brim_status time_choice(brim_session *s, const brim_choice *v)
{
  brim_plan *plan = NULL;
  if (!brim_session_may_time(s)) return BRIM_OK;
  BRIM_TRY(brim_session_plan_choice(s, v, true, &plan));
  brim_status status = BRIM_OK;
  if (is_worth_timing(s, plan)) {
    const double start = brim_now();
    status = time_plan(s, plan, BRIM_CEILINGS);
    s->timing_seconds += brim_now() - start;
    if (status == BRIM_OK)
      brim_session_save_profile(s);
    else if (status != BRIM_EINTERRUPTED)
      status = go_without(s, status);
  }
  brim_plan_free(plan);
  return status;
}

static brim_status time_ceiling(brim_session *s, const brim_plan *like, enum brim_ceiling_kind kind)
{
  brim_plan *plan = NULL;
  BRIM_TRY(brim_ceiling_plan(&like->request, s->device_info.on_host != 0, kind, &plan));
  const brim_status status = time_plan(s, plan, kind);
  brim_plan_free(plan);
  return status;
}

brim_status brim_session_time(brim_session *s, const brim_plan *plan)
{
  BRIM_TRY(open_profile(s));
  if (!brim_session_may_time(s))
    return brim_fail(BRIM_ECONFIG, "nothing is to be timed here: leave out --no-timing and memory.timing=false");
  for (int kind = 0; kind < BRIM_CEILINGS; kind++) BRIM_TRY(time_ceiling(s, plan, (enum brim_ceiling_kind)kind));
  BRIM_TRY(time_plan(s, plan, BRIM_CEILINGS));
  brim_session_save_profile(s);
  return BRIM_OK;
}

/* ---- figures ---- */

brim_status brim_session_figures(brim_session *s, const brim_choice *choice, brim_figures *out)
{
  brim_plan *plan = NULL;
  if (s->stand_in) return s->stand_in->figures(s->stand_in->context, choice, brim_session_budget(s, choice), out);
  BRIM_TRY(open_profile(s));
  BRIM_TRY(time_choice(s, choice));
  BRIM_TRY(brim_session_plan_choice(s, choice, false, &plan));
  const brim_program *train = brim_plan_program(plan, BRIM_PROGRAM_TRAIN, choice->micro_batch);
  const brim_prediction p = predict_step(s, plan, choice->micro_batch);
  *out = (brim_figures){.peak_bytes = plan->peak_bytes,
                        .lower_bound_bytes = plan->lower_bound_bytes,
                        .activation_bytes = plan->class_bytes[BRIM_ROLE_ACTIVATION],
                        .recomputed = train ? train->graph->recomputed_count : 0,
                        .recompute_share = train ? brim_recompute_share(train) : 0,
                        .step_seconds = p.seconds,
                        .update_seconds = predict_update(s, plan, choice->micro_batch),
                        .basis = p.guessed_seconds > 0   ? BRIM_BASIS_GUESSED
                                 : p.derived_seconds > 0 ? BRIM_BASIS_DERIVED
                                                         : BRIM_BASIS_TIMED};
  brim_plan_free(plan);
  return BRIM_OK;
}
