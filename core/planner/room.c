/* Checks whether a plan fits the device, and the limits of the process. If not, lists the memory by class, and names a
 * plan that would fit. See room.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "memory/choose.h"
#include "planner/footprint.h"
#include "planner/headroom.h"
#include "planner/room.h"

/* Returns the largest micro-batch below the chosen one that fits, or 0. */
static int64_t find_fitting(brim_planner *p, const brim_choice *choice, uint64_t room, uint64_t *peak_bytes)
{
  for (size_t i = 0; i < p->micro_batch_count; i++) {
    const brim_choice smaller = brim_choice_cut(choice, p->micro_batch[i]);
    if (smaller.micro_batch >= choice->micro_batch) continue;
    if (brim_planner_peak(p, &smaller, peak_bytes) != BRIM_OK) return 0;
    if (*peak_bytes <= room) return p->micro_batch[i];
  }
  return 0;
}

/* Adds the setting, if any, that prevents smaller micro-batches. */
static void add_floor(const brim_planner *p, const brim_choice *choice, brim_text *text)
{
  const int64_t least = p->micro_batch_count ? p->micro_batch[p->micro_batch_count - 1] : choice->micro_batch;
  if (least <= 1) return;
  if (p->setup->norm_group > 1 && p->setup->norm_group >= p->setup->settings->min_batch_size)
    brim_text_printf(text, "\nmicro-batches cannot be smaller than %lld because of training.norm_group=%lld",
                     (long long)least, (long long)p->setup->norm_group);
  else
    brim_text_printf(text, "\nmicro-batches cannot be smaller than %lld because of min_batch_size=%lld",
                     (long long)least, (long long)p->setup->settings->min_batch_size);
}

/* Suggests the nearest micro-batch that would fit, or says how much memory the smallest one needs. `beside`: bytes that
 * the text counts in addition to the arena. */
static void suggest_batch(brim_planner *p, const brim_choice *choice, uint64_t room, uint64_t beside, brim_text *text)
{
  const int64_t effective = p->setup->settings->training.effective_batch_size;
  char bytes[32];
  uint64_t peak = 0;
  const size_t last = brim_planner_list_cuts(p);
  const int64_t batch = find_fitting(p, choice, room, &peak);
  if (batch > 0) {
    brim_text_printf(text, "\ntraining.batch_size=%lld training.gradient_accumulation_steps=%lld would fit, with %s",
                     (long long)batch, (long long)(effective / batch),
                     brim_format_bytes(bytes, sizeof bytes, beside + peak));
    return;
  }
  if (last > 0 && p->micro_batch[last - 1] >= choice->micro_batch)
    brim_text_printf(text, "\ntraining.batch_size=%lld is already the smallest possible",
                     (long long)choice->micro_batch);
  else
    brim_text_add(text, "\nno smaller training.batch_size fits");
  const brim_choice least = brim_choice_cut(choice, last > 0 ? p->micro_batch[last - 1] : choice->micro_batch);
  if (least.micro_batch < choice->micro_batch && brim_planner_peak(p, &least, &peak) == BRIM_OK)
    brim_text_printf(text, ": the nearest, %lld, needs %s", (long long)least.micro_batch,
                     brim_format_bytes(bytes, sizeof bytes, beside + peak));
  add_floor(p, choice, text);
}

/* Suggests recompute if the batch would fit with it. */
static void suggest_recompute(const brim_planner *p, const brim_choice *choice, uint64_t room, uint64_t beside,
                              brim_text *text)
{
  brim_choice v = *choice;
  brim_plan *plan = NULL;
  char bytes[32];
  if (v.recompute == BRIM_RECOMPUTE_AUTO) return;
  v.recompute = BRIM_RECOMPUTE_AUTO;
  v.within_bytes = room;
  if (room == 0 || brim_planner_plan(p, &v, false, &plan) != BRIM_OK) return;
  const brim_program *train = brim_plan_program(plan, BRIM_PROGRAM_TRAIN, choice->micro_batch);
  if (train && plan->peak_bytes <= room)
    brim_text_printf(text, "\nmemory.recompute=auto would fit, with %s and %.1f %% more work in a step",
                     brim_format_bytes(bytes, sizeof bytes, beside + plan->peak_bytes),
                     100 * brim_recompute_share(train));
  brim_plan_free(plan);
}

/* Adds suggestions to the text about a plan that does not fit. */
static void suggest_training(brim_planner *p, const brim_choice *choice, uint64_t room, uint64_t beside,
                             brim_text *text)
{
  suggest_batch(p, choice, room, beside, text);
  suggest_recompute(p, choice, room, beside, text);
}

/* The same for an evaluation plan with the same outputs. */
static void suggest_evaluation(brim_planner *p, const brim_choice *choice, const brim_plan *plan, uint64_t room,
                               uint64_t beside, brim_text *text)
{
  char bytes[32];
  for (int64_t batch = brim_setup_eval_batch(p->setup, choice->micro_batch) / 2; batch >= 1; batch /= 2) {
    brim_plan *smaller = NULL;
    const brim_graph_options *g = &plan->request.graph;
    const brim_evaluation_wish wish = {.count = batch,
                                       .batch = batch,
                                       .keep_output = g->keep_output,
                                       .keep_features = g->keep_features,
                                       .keep_losses = g->keep_losses};
    if (brim_planner_plan_evaluation(p, choice, &wish, &smaller) != BRIM_OK) break;
    const uint64_t peak = smaller->peak_bytes;
    brim_plan_free(smaller);
    if (peak > room) continue;
    brim_text_printf(text, "\ntraining.eval_batch_size=%lld would fit, with %s", (long long)batch,
                     brim_format_bytes(bytes, sizeof bytes, beside + peak));
    return;
  }
  brim_text_add(text, "\nno smaller training.eval_batch_size fits");
}

/* Returns the smallest limit of the process on a device, with its name; 0: none. `cap`: a policy's limit (0: none). */
static uint64_t least_limit(const brim_planner *p, const brim_device_info *device, uint64_t cap, char *name,
                            size_t room)
{
  const brim_memory_settings *m = &p->setup->settings->memory;
  const double share = m->limit > 0 ? m->limit : p->fraction;
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

static uint64_t less(uint64_t bytes, uint64_t by)
{
  return bytes > by ? bytes - by : 0;
}

static uint64_t taken_of(const brim_planner *p, const brim_device_info *device)
{
  return device->taken_bytes + p->comm_bytes;
}

/* Returns the part of a limit that is left for arenas after the current and the predicted memory of the process. */
static uint64_t left_of(const brim_planner *p, uint64_t limit, const brim_device_info *device)
{
  return less(limit, taken_of(p, device) + brim_planner_headroom(p, device));
}

/* Adds "memory.limit_mb allows 32.0 MiB, of which the driver and the libraries use 1.0 MiB". */
static void add_limit(const brim_planner *p, const char *name, uint64_t limit, brim_text *text)
{
  char bytes[32];
  const uint64_t taken = taken_of(p, &p->device_info);
  brim_text_printf(text, "%s allows %s", name, brim_format_bytes(bytes, sizeof bytes, limit));
  if (taken > 0)
    brim_text_printf(text, ", of which the driver and the libraries use %s",
                     brim_format_bytes(bytes, sizeof bytes, taken));
}

/* Adds ", of which memory.headroom_mb=auto reserves 256.0 MiB for later use by the driver and the libraries", and a
 * hint if a plan of `peak` bytes would fit with a smaller headroom. */
static void add_headroom(const brim_planner *p, uint64_t has, uint64_t peak, brim_text *text)
{
  char bytes[32];
  const uint64_t set = p->setup->settings->memory.headroom_mb, kept = brim_planner_headroom(p, &p->device_info);
  if (kept == 0) return;
  brim_text_add(text, ", of which memory.headroom_mb=");
  if (set == UINT64_MAX)
    brim_text_add(text, "auto");
  else
    brim_text_printf(text, "%llu", (unsigned long long)set);
  brim_text_printf(text, " reserves %s for later use by the driver and the libraries",
                   brim_format_bytes(bytes, sizeof bytes, kept));
  if (peak <= has)
    brim_text_printf(text, "\nmemory.headroom_mb=%llu would make it fit, at the risk that they run out of memory",
                     (unsigned long long)((has - peak) >> 20));
}

static bool may_wait(const brim_planner *p)
{
  return p->waits && brim_device_is_shared(&p->device_info);
}

uint64_t brim_planner_room_on(const brim_planner *p, const brim_device_info *device, uint64_t cap, uint64_t has)
{
  char name[64];
  const uint64_t limit = least_limit(p, device, cap, name, sizeof name);
  const uint64_t left = less(has, brim_planner_headroom(p, device));
  return limit > 0 && left_of(p, limit, device) < left ? left_of(p, limit, device) : left;
}

/* Returns the total host memory that this process may use: its current memory and the free memory, or its share of that
 * with several ranks on this host. UINT64_MAX if unknown. */
static uint64_t host_allows(const brim_planner *p, bool later, bool *is_grouped)
{
  const brim_host_memory host = brim_host_memory_now();
  const uint64_t ranks = p->setup->world.local_ranks > 1 ? (uint64_t)p->setup->world.local_ranks : 1;
  const uint64_t left = later ? host.total_bytes : host.available_bytes;
  *is_grouped = host.is_grouped;
  if (left == UINT64_MAX) return left;
  if (later) return left / ranks;
  return p->host_share_bytes > 0 ? p->host_share_bytes : left + brim_rss_bytes();
}

uint64_t brim_planner_room_beside(const brim_planner *p, const brim_device_info *device, uint64_t room, bool later)
{
  bool is_grouped;
  if (p->besides_bytes == 0 || !device->on_host) return room;
  const uint64_t allowed = host_allows(p, later, &is_grouped), others = p->resident_bytes + p->besides_bytes;
  const uint64_t left = allowed > others ? allowed - others : 0;
  return left < room ? left : room;
}

/* Returns the device's free memory; `later`: the memory that is free when all other processes are gone, if the run may
 * wait. */
static uint64_t has_of(const brim_planner *p, bool later)
{
  const brim_device_info *device = &p->device_info;
  return later && may_wait(p) ? less(device->total_bytes, taken_of(p, device)) : device->free_bytes;
}

uint64_t brim_planner_room(const brim_planner *p, bool later)
{
  const bool waits = later && may_wait(p);
  const uint64_t has = has_of(p, later);
  const uint64_t room = brim_planner_room_on(p, &p->device_info, p->limit_bytes, has);
  return brim_planner_room_beside(p, &p->device_info, room, waits);
}

/* Adds "the run needs 44.6 MiB, but memory.limit_mb allows 32.0 MiB". Returns EBUDGET or ENOMEM_DEVICE. */
static brim_status add_shortage(const brim_planner *p, uint64_t peak, const char *purpose, brim_text *text)
{
  char name[64], bytes[32];
  const uint64_t limit = least_limit(p, &p->device_info, p->limit_bytes, name, sizeof name);
  const bool over_limit = limit > 0 && peak > left_of(p, limit, &p->device_info);
  const uint64_t has = over_limit ? less(limit, taken_of(p, &p->device_info))
                                  : brim_planner_room_beside(p, &p->device_info, has_of(p, true), may_wait(p));
  brim_text_printf(text, "the %s needs %s, but ", purpose, brim_format_bytes(bytes, sizeof bytes, peak));
  if (over_limit)
    add_limit(p, name, limit, text);
  else
    brim_text_printf(text, "the device has %s%s", brim_format_bytes(bytes, sizeof bytes, has),
                     may_wait(p) ? "" : " free");
  add_headroom(p, has, peak, text);
  return over_limit ? BRIM_EBUDGET : BRIM_ENOMEM_DEVICE;
}

brim_status brim_planner_check_peak(const brim_planner *p, uint64_t peak)
{
  brim_text text = {0};
  if (peak <= brim_planner_room(p, true)) return BRIM_OK;
  const brim_status status = add_shortage(p, peak, "run", &text);
  (void)brim_fail(status, "%s", brim_text_str(&text));
  brim_text_release(&text);
  return status;
}

/* Adds the predicted uses of host memory. */
static void add_causes(const brim_planner *p, const brim_choice *choice, const brim_plan *plan, uint64_t total,
                       brim_text *text)
{
  brim_footprint f;
  if (!brim_plan_program(plan, BRIM_PROGRAM_UPDATE, 0)) return;
  brim_footprint_predict(p, plan, choice->micro_batch, &f);
  f.data_bytes -= f.mapped_bytes;
  f.total_bytes = total; /* excludes memory that the process used before and has released */
  brim_text_add(text, "\n");
  brim_footprint_print(&f, text);
}

/* Whether the process with this plan exceeds the host memory left for it. Adds the numbers to the text. */
static bool is_over_host(const brim_planner *p, const brim_choice *choice, const brim_plan *plan, const char *purpose,
                         brim_text *text)
{
  bool is_grouped;
  char needed[32], left[32];
  const uint64_t arena = p->device_info.on_host ? plan->peak_bytes : 0;
  const uint64_t total = p->resident_bytes + p->besides_bytes + arena;
  if (p->besides_bytes == 0) return false;
  const uint64_t allowed = host_allows(p, may_wait(p), &is_grouped);
  if (total <= allowed) return false;
  brim_text_printf(text, "the %s needs %s of host memory, but the %s leaves it %s", purpose,
                   brim_format_bytes(needed, sizeof needed, total), is_grouped ? "control group" : "machine",
                   brim_format_bytes(left, sizeof left, allowed));
  add_causes(p, choice, plan, total, text);
  return true;
}

static brim_status check_host(brim_planner *p, const brim_choice *choice, const brim_plan *plan, bool evaluating)
{
  brim_text text = {0};
  brim_status status = BRIM_OK;
  if (is_over_host(p, choice, plan, evaluating ? "evaluation" : "run", &text)) {
    const uint64_t room = brim_planner_room(p, true), beside = p->resident_bytes + p->besides_bytes;
    if (p->device_info.on_host)
      evaluating ? suggest_evaluation(p, choice, plan, room, beside, &text)
                 : suggest_training(p, choice, room, beside, &text);
    status = brim_fail(BRIM_ENOMEM_DEVICE, "%s", brim_text_str(&text));
  }
  brim_text_release(&text);
  return status;
}

brim_status brim_planner_check(brim_planner *p, const brim_choice *choice, const brim_plan *plan)
{
  char bytes[32];
  const bool evaluating = !brim_plan_program(plan, BRIM_PROGRAM_UPDATE, 0);
  BRIM_TRY(check_host(p, choice, plan, evaluating));
  const uint64_t room = brim_planner_room(p, true);
  if (plan->peak_bytes <= room) return BRIM_OK;
  brim_text text = {0};
  const brim_status status = add_shortage(p, plan->peak_bytes, evaluating ? "evaluation" : "run", &text);
  brim_text_printf(&text, "\nat its peak, in %s: ", plan->peak_op);
  for (uint32_t r = 0; r < BRIM_ROLE_COUNT; r++)
    if (brim_plan_has_role(plan, r))
      brim_text_printf(&text, "%s%s %s", r ? ", " : "", brim_role_name(r),
                       brim_format_bytes(bytes, sizeof bytes, plan->class_bytes[r]));
  if (plan->class_bytes[BRIM_ROLE_CACHE] > 0)
    brim_text_add(&text, "\nfewer texts side by side, or a smaller context, need a smaller cache");
  else
    evaluating ? suggest_evaluation(p, choice, plan, room, 0, &text) : suggest_training(p, choice, room, 0, &text);
  (void)brim_fail(status, "%s", brim_text_str(&text));
  brim_text_release(&text);
  return status;
}

uint64_t brim_planner_within(const brim_planner *p, uint64_t bytes)
{
  const uint64_t set = p->setup->settings->memory.recompute_budget_mb << 20;
  return set > 0 && set < bytes ? set : bytes;
}

brim_status brim_planner_read_fraction(brim_planner *p)
{
  const char *text = getenv("TF_GPU_MEMORY_FRACTION");
  char *end = NULL;
  if (p->model || !text || !text[0] || p->setup->settings->memory.limit > 0 || !brim_device_is_shared(&p->device_info))
    return BRIM_OK;
  p->fraction = strtod(text, &end);
  if (*end || !(p->fraction > 0 && p->fraction <= 1))
    return brim_fail(BRIM_ECONFIG, "TF_GPU_MEMORY_FRACTION is '%s'; it must be a number in (0,1]", text);
  brim_log(BRIM_LOG_INFO, "TF_GPU_MEMORY_FRACTION=%s sets memory.limit=%s", text, text);
  return BRIM_OK;
}
