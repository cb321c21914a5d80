/* Does a plan fit what the device has, and what the process may take of it? If not: where the memory goes, and what
 * would fit. See brim_session_check_budget. */
#include <stdio.h>
#include <string.h>

#include "base/process.h"
#include "session/cuts.h"
#include "session/footprint.h"

/* The largest micro-batch below the chosen one that fits. 0: none. */
static int64_t find_fitting(brim_session *s, uint64_t room, uint64_t *peak_bytes)
{
  for (size_t i = 0; i < s->micro_batch_count; i++) {
    if (s->micro_batch[i] >= s->choice.micro_batch) continue;
    if (brim_session_peak(s, i, peak_bytes) != BRIM_OK) return 0;
    if (*peak_bytes <= room) return s->micro_batch[i];
  }
  return 0;
}

/* What keeps micro-batches from being smaller still, if anything does. */
static void tell_floor(const brim_session *s, brim_text *text)
{
  const int64_t least = s->micro_batch_count ? s->micro_batch[s->micro_batch_count - 1] : s->choice.micro_batch;
  if (least <= 1) return;
  if (s->norm_group > 1 && s->norm_group >= s->demands.min_batch_size)
    brim_text_printf(text, "\nmicro-batches are no smaller than %lld because of training.norm_group=%lld",
                     (long long)least, (long long)s->norm_group);
  else
    brim_text_printf(text, "\nmicro-batches are no smaller than %lld because of min_batch_size=%lld", (long long)least,
                     (long long)s->demands.min_batch_size);
}

/* The nearest micro-batch that would fit, or the memory that the smallest one needs. `beside`: what the text counts
 * besides arenas. */
static void suggest_batch(brim_session *s, uint64_t room, uint64_t beside, brim_text *text)
{
  const int64_t effective = s->settings->training.effective_batch_size;
  char bytes[32];
  uint64_t peak = 0;
  const size_t last = brim_session_list_micro_batches(s);
  const int64_t batch = find_fitting(s, room, &peak);
  if (batch > 0) {
    brim_text_printf(text, "\ntraining.batch_size=%lld training.gradient_accumulation_steps=%lld would fit, with %s",
                     (long long)batch, (long long)(effective / batch),
                     brim_format_bytes(bytes, sizeof bytes, beside + peak));
    return;
  }
  if (last > 0 && s->micro_batch[last - 1] >= s->choice.micro_batch)
    brim_text_printf(text, "\ntraining.batch_size=%lld is the smallest there is", (long long)s->choice.micro_batch);
  else
    brim_text_add(text, "\nno smaller training.batch_size fits");
  if (last > 0 && s->micro_batch[last - 1] < s->choice.micro_batch && brim_session_peak(s, last - 1, &peak) == BRIM_OK)
    brim_text_printf(text, ": the nearest, %lld, needs %s", (long long)s->micro_batch[last - 1],
                     brim_format_bytes(bytes, sizeof bytes, beside + peak));
  tell_floor(s, text);
}

/* Would the batch fit as it is, if some of it were made again? */
static void suggest_recompute(const brim_session *s, uint64_t room, uint64_t beside, brim_text *text)
{
  brim_choice v = brim_session_choice(s, s->choice.micro_batch);
  brim_plan *plan = NULL;
  char bytes[32];
  if (v.recompute == BRIM_RECOMPUTE_AUTO) return;
  v.recompute = BRIM_RECOMPUTE_AUTO;
  v.within_bytes = room;
  if (room == 0 || brim_session_plan_choice(s, &v, false, &plan) != BRIM_OK) return;
  const brim_program *train = brim_plan_program(plan, BRIM_PROGRAM_TRAIN, s->choice.micro_batch);
  if (train && plan->peak_bytes <= room)
    brim_text_printf(text, "\nmemory.recompute=auto would fit, with %s and %.1f %% more work in a step",
                     brim_format_bytes(bytes, sizeof bytes, beside + plan->peak_bytes),
                     100 * brim_recompute_share(train));
  brim_plan_free(plan);
}

/* Adds what would fit, to the text about a plan that does not. */
static void suggest_training(brim_session *s, uint64_t room, uint64_t beside, brim_text *text)
{
  suggest_batch(s, room, beside, text);
  suggest_recompute(s, room, beside, text);
}

static void suggest_evaluation(brim_session *s, uint64_t room, uint64_t beside, brim_text *text)
{
  char bytes[32];
  for (int64_t batch = s->eval_batch / 2; batch >= 1; batch /= 2) {
    brim_plan *smaller = NULL;
    if (brim_session_plan_evaluation(s, batch, batch, true, &smaller) != BRIM_OK) break;
    const uint64_t peak = smaller->peak_bytes;
    brim_plan_free(smaller);
    if (peak > room) continue;
    brim_text_printf(text, "\ntraining.eval_batch_size=%lld would fit, with %s", (long long)batch,
                     brim_format_bytes(bytes, sizeof bytes, beside + peak));
    return;
  }
  brim_text_add(text, "\nno smaller training.eval_batch_size fits");
}

/* The least of what limits the process on a device, of which a policy lets it have `cap` (0: all), and what it is
 * called; 0: nothing does. */
static uint64_t least_limit(const brim_session *s, const brim_device_info *device, uint64_t cap, char *name,
                            size_t room)
{
  const brim_memory_settings *m = &s->settings->memory;
  const double share = m->limit > 0 ? m->limit : s->fraction;
  const uint64_t limits[] = {m->limit_mb << 20, (uint64_t)(share * (double)device->total_bytes), cap};
  char of_share[64];
  snprintf(of_share, sizeof of_share, "%s=%.4g", m->limit > 0 ? "memory.limit" : "TF_GPU_MEMORY_FRACTION", share);
  const char *const names[] = {"memory.limit_mb", of_share, "the policy"};
  uint64_t least = 0;
  for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
    if (limits[i] == 0 || (least > 0 && limits[i] >= least)) continue;
    least = limits[i];
    snprintf(name, room, "%s", names[i]);
  }
  return least;
}

/* What is left of it for arenas: it counts what the process has of the device already. */
static uint64_t left_of(uint64_t limit, const brim_device_info *device)
{
  const uint64_t taken = device->taken_bytes;
  return limit > taken ? limit - taken : 0;
}

/* "memory.limit_mb allows 32.0 MiB, of which the driver and the libraries have 1.0 MiB" */
static void tell_limit(const brim_session *s, const char *name, uint64_t limit, brim_text *text)
{
  char bytes[32];
  brim_text_printf(text, "%s allows %s", name, brim_format_bytes(bytes, sizeof bytes, limit));
  if (s->device_info.taken_bytes > 0)
    brim_text_printf(text, ", of which the driver and the libraries have %s",
                     brim_format_bytes(bytes, sizeof bytes, s->device_info.taken_bytes));
}

static bool may_wait(const brim_session *s)
{
  return s->wait && brim_device_is_shared(&s->device_info);
}

uint64_t brim_session_room_on(const brim_session *s, const brim_device_info *device, uint64_t cap, uint64_t has)
{
  char name[64];
  const uint64_t limit = least_limit(s, device, cap, name, sizeof name);
  return limit > 0 && left_of(limit, device) < has ? left_of(limit, device) : has;
}

/* What this process may have of the host in all: what it has, and what is left; its share among several ranks here.
 * UINT64_MAX: not known. */
static uint64_t host_allows(const brim_session *s, bool later, bool *is_grouped)
{
  const brim_host_memory host = brim_host_memory_now();
  const uint64_t ranks = s->world.local_ranks > 1 ? (uint64_t)s->world.local_ranks : 1;
  const uint64_t left = later ? host.total_bytes : host.available_bytes;
  *is_grouped = host.is_grouped;
  if (left == UINT64_MAX) return left;
  if (later) return left / ranks;
  return s->host_share_bytes > 0 ? s->host_share_bytes : left + brim_rss_bytes();
}

uint64_t brim_session_room_beside(const brim_session *s, const brim_device_info *device, uint64_t room, bool later)
{
  bool is_grouped;
  if (s->besides_bytes == 0 || !device->on_host) return room;
  const uint64_t allowed = host_allows(s, later, &is_grouped), others = s->resident_bytes + s->besides_bytes;
  const uint64_t left = allowed > others ? allowed - others : 0;
  return left < room ? left : room;
}

uint64_t brim_session_room(const brim_session *s, bool later)
{
  const bool waits = later && may_wait(s);
  const uint64_t has = waits ? s->device_info.total_bytes : s->device_info.free_bytes;
  const uint64_t room = brim_session_room_on(s, &s->device_info, s->limit_bytes, has);
  return brim_session_room_beside(s, &s->device_info, room, waits);
}

/* "the run needs 44.6 MiB, but memory.limit_mb allows 32.0 MiB": what it is, EBUDGET or ENOMEM_DEVICE. */
static brim_status tell_want(const brim_session *s, uint64_t peak, const char *who, brim_text *text)
{
  char name[64], bytes[32];
  const uint64_t room = brim_session_room(s, true);
  const uint64_t limit = least_limit(s, &s->device_info, s->limit_bytes, name, sizeof name);
  const bool over_limit = limit > 0 && peak > left_of(limit, &s->device_info);
  brim_text_printf(text, "the %s needs %s, but ", who, brim_format_bytes(bytes, sizeof bytes, peak));
  if (over_limit)
    tell_limit(s, name, limit, text);
  else
    brim_text_printf(text, "the device has %s%s", brim_format_bytes(bytes, sizeof bytes, room),
                     may_wait(s) ? "" : " free");
  return over_limit ? BRIM_EBUDGET : BRIM_ENOMEM_DEVICE;
}

brim_status brim_session_check_peak(const brim_session *s, uint64_t peak)
{
  brim_text text = {0};
  if (peak <= brim_session_room(s, true)) return BRIM_OK;
  const brim_status status = tell_want(s, peak, "run", &text);
  (void)brim_fail(status, "%s", brim_text_str(&text));
  brim_text_release(&text);
  return status;
}

/* Where it goes, as far as that is predicted. */
static void tell_causes(const brim_session *s, const brim_plan *plan, uint64_t total, brim_text *text)
{
  brim_footprint f;
  if (!brim_plan_program(plan, BRIM_PROGRAM_UPDATE, 0)) return;
  brim_footprint_predict(s, plan, &f);
  f.data_bytes -= f.mapped_bytes;
  f.total_bytes = total; /* without what the process had before and has given back */
  brim_text_add(text, "\n");
  brim_footprint_tell(&f, text);
}

/* Is the process, with this plan, more than the host leaves for it? Adds the numbers to the text. */
static bool is_over_host(const brim_session *s, const brim_plan *plan, const char *who, brim_text *text)
{
  bool is_grouped;
  char needed[32], left[32];
  const uint64_t arena = s->device_info.on_host ? plan->peak_bytes : 0;
  const uint64_t total = s->resident_bytes + s->besides_bytes + arena;
  if (s->besides_bytes == 0) return false;
  const uint64_t allowed = host_allows(s, may_wait(s), &is_grouped);
  if (total <= allowed) return false;
  brim_text_printf(text, "the %s needs %s of the host's memory, but the %s leaves it %s", who,
                   brim_format_bytes(needed, sizeof needed, total), is_grouped ? "control group" : "machine",
                   brim_format_bytes(left, sizeof left, allowed));
  tell_causes(s, plan, total, text);
  return true;
}

static brim_status check_host(brim_session *s, const brim_plan *plan, bool evaluating)
{
  brim_text text = {0};
  brim_status status = BRIM_OK;
  if (is_over_host(s, plan, evaluating ? "evaluation" : "run", &text)) {
    const uint64_t room = brim_session_room(s, true), beside = s->resident_bytes + s->besides_bytes;
    if (s->device_info.on_host)
      evaluating ? suggest_evaluation(s, room, beside, &text) : suggest_training(s, room, beside, &text);
    status = brim_fail(BRIM_ENOMEM_DEVICE, "%s", brim_text_str(&text));
  }
  brim_text_release(&text);
  return status;
}

brim_status brim_session_check_budget(brim_session *s, const brim_plan *plan)
{
  char bytes[32];
  const bool evaluating = !brim_plan_program(plan, BRIM_PROGRAM_UPDATE, 0);
  BRIM_TRY(check_host(s, plan, evaluating));
  const uint64_t room = brim_session_room(s, true);
  if (plan->peak_bytes <= room) return BRIM_OK;
  brim_text text = {0};
  const brim_status status = tell_want(s, plan->peak_bytes, evaluating ? "evaluation" : "run", &text);
  brim_text_printf(&text, "\nat its peak, in %s: ", plan->peak_op);
  for (uint32_t r = 0; r < BRIM_ROLE_COUNT; r++)
    brim_text_printf(&text, "%s%s %s", r ? ", " : "", brim_role_name(r),
                     brim_format_bytes(bytes, sizeof bytes, plan->class_bytes[r]));
  evaluating ? suggest_evaluation(s, room, 0, &text) : suggest_training(s, room, 0, &text);
  (void)brim_fail(status, "%s", brim_text_str(&text));
  brim_text_release(&text);
  return status;
}
