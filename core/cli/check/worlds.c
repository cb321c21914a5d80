#include "cli/check/worlds.h"

#include <stdio.h>
#include <string.h>

#define START 1750000000.0 /* time of the first world, in seconds since 1970 */
#define BETWEEN 18311.0    /* seconds between the times of two worlds: about five hours */
#define GIB (UINT64_C(1) << 30)

enum edge {
  ONE_DEVICE,
  NONE_FREE,
  ALL_SHARED,
  HUGE_NUMBERS,
  MANY_DEVICES,
  ONE_BATCH,
  MANY_BATCHES,
  AUTO,
  EMPTY_DEVICE
};

/* xorshift64*, which gives the same numbers on all machines. */
static uint64_t draw(brim_made_world *w, uint64_t below)
{
  w->random ^= w->random >> 12;
  w->random ^= w->random << 25;
  w->random ^= w->random >> 27;
  return w->random * UINT64_C(0x2545f4914f6cdd1d) % below;
}

/* ---- answers of the core ---- */

static brim_made_world *world_of(const brim_plan_query *q)
{
  return ((const brim_policy_host *)q->host)->self;
}

static uint64_t peak_bytes(const brim_made_world *w, int64_t micro_batch)
{
  uint64_t samples, bytes;
  if (__builtin_mul_overflow(w->sample_bytes, (uint64_t)micro_batch, &samples) ||
      __builtin_add_overflow(samples, w->base_bytes, &bytes))
    return UINT64_MAX;
  return bytes;
}

static brim_status check_batch(const brim_made_world *w, int64_t micro_batch)
{
  for (size_t i = 0; i < w->plan.micro_batch_count; i++)
    if (w->batch[i] == micro_batch) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "policy asks for the peak of micro-batch %lld, which is not in the list",
                   (long long)micro_batch);
}

static brim_status peak(const brim_plan_query *q, int64_t micro_batch, uint64_t *bytes)
{
  const brim_made_world *w = world_of(q);
  BRIM_TRY(check_batch(w, micro_batch));
  *bytes = peak_bytes(w, micro_batch);
  return BRIM_OK;
}

/* Larger micro-batches are slightly faster; with smaller types, steps are twice as fast. */
static brim_status figures(const brim_plan_query *q, int64_t micro_batch, int32_t precision, brim_plan_figures *out)
{
  const brim_made_world *w = world_of(q);
  const double micros = (double)q->effective_batch / (double)micro_batch;
  *out = (brim_plan_figures){.size = sizeof *out,
                             .basis = 1 + (int32_t)(w->plan.micro_batch_count % 3),
                             .peak_bytes = peak_bytes(w, micro_batch) / (precision == BRIM_TAKE_FP32 ? 1 : 2),
                             .step_seconds = (0.1 + 0.001 * micros) / (precision == BRIM_TAKE_FP32 ? 1 : 2)};
  return BRIM_OK;
}

static brim_status look_at_device(const brim_step_view *view, brim_device_view *device, uint64_t *room)
{
  const brim_made_world *w = view->host;
  *device = w->device[0];
  device->waiting = view->waiting;
  *room = w->plan.room_bytes;
  return BRIM_OK;
}

/* Lists the run itself, and another process that has the rest of the used memory. */
static brim_status users(const brim_step_view *view, int32_t device, brim_device_use *out, size_t room, size_t *count)
{
  const brim_made_world *w = view->host;
  if (device < 0 || device >= (int32_t)w->devices.count)
    return brim_fail(BRIM_ECONFIG, "there is no device %d to ask about", (int)device);
  const brim_device_view *d = &w->device[device];
  const uint64_t used = d->total_bytes - d->free_bytes, own = device == 0 ? view->planned_bytes : 0;
  const brim_device_use all[] = {{.pid = 1000, .bytes = own, .is_own = 1, .name = "brim"},
                                 {.pid = 1001, .bytes = used > own ? used - own : 0, .name = "other"}};
  *count = sizeof all / sizeof all[0];
  memcpy(out, all, (room < *count ? room : *count) * sizeof *out);
  return BRIM_OK;
}

/* A federation's peak is in proportion to its lanes, and recompute halves a plan's peak at most. */
static brim_status peak_of(const brim_step_view *view, const brim_step_plan *plan, uint64_t *out)
{
  const brim_made_world *w = view->host;
  const int32_t lanes = plan->lanes > 0 ? plan->lanes : w->step.lanes;
  const uint64_t bytes = plan->within_bytes;
  BRIM_TRY(check_batch(w, plan->micro_batch));
  if (plan->lanes < 0 || plan->lanes > w->step.lanes_max)
    return brim_fail(BRIM_EINVAL, "policy asks for the peak of %d lanes, of at most %d", (int)plan->lanes,
                     (int)w->step.lanes_max);
  *out = peak_bytes(w, plan->micro_batch);
  if (lanes > 0) *out = *out / (uint64_t)w->step.lanes_max * (uint64_t)lanes;
  if (bytes > 0 && *out > bytes) *out = *out / 2 > bytes ? *out / 2 : bytes;
  return BRIM_OK;
}

static brim_status peak_within(const brim_step_view *view, int64_t micro_batch, uint64_t bytes, uint64_t *out)
{
  return peak_of(view, &(brim_step_plan){.micro_batch = micro_batch, .within_bytes = bytes}, out);
}

/* ---- time ---- */

static double clock_of_policies; /* static, because an abandoned policy may read it at any later time */

/* Advances the time from one question to the next; 7 and 16, the period in which waiting runs come and go, have no
 * common divisor. */
static void pass_time(brim_made_world *w)
{
  static const double step[] = {1, 0.1, 30, 0.5, 600, 5, 7200};
  const double seconds = step[w->now % (int64_t)(sizeof step / sizeof step[0])];
  w->seconds += seconds;
  clock_of_policies += seconds;
}

/* ---- making ---- */

static void set_devices(brim_made_world *w, uint64_t number)
{
  size_t count = number == MANY_DEVICES ? BRIM_WORLD_DEVICES : number == ONE_DEVICE ? 1 : 1 + draw(w, 8);
  if (number == ALL_SHARED) count = 4;
  for (size_t i = 0; i < count; i++) {
    brim_device_view *d = &w->device[i];
    d->total_bytes = number == HUGE_NUMBERS ? UINT64_MAX : GIB + draw(w, 80 * GIB);
    d->free_bytes = number == HUGE_NUMBERS ? UINT64_MAX - i : draw(w, 4) ? draw(w, d->total_bytes) : d->total_bytes;
    if (number == NONE_FREE || number == EMPTY_DEVICE) d->free_bytes = 0;
    if (number == EMPTY_DEVICE) d->total_bytes = 0;
    d->is_shared = number == ALL_SHARED || number == NONE_FREE || draw(w, 2);
    d->on_host = draw(w, 4) == 0;
    d->waiting = d->is_shared ? (int32_t)draw(w, number == ALL_SHARED ? 1000 : 3) : 0;
    d->tried = draw(w, 8) == 0;
    snprintf(d->name, sizeof d->name, "%s:%zu", number % 2 ? "cuda" : "cpu", i);
  }
  w->devices = (brim_device_query){sizeof w->devices, &w->demands, w->device, count};
}

/* Lists divisors of the effective batch, largest first. */
static size_t set_batches(brim_made_world *w, uint64_t number, int64_t effective)
{
  size_t count = 0;
  if (number == MANY_BATCHES) /* if ranks share a step unequally, the list may have this length */
    for (; count < BRIM_WORLD_BATCHES; count++) w->batch[count] = effective - (int64_t)count;
  for (int64_t b = effective; b >= 1 && number != MANY_BATCHES && count < BRIM_WORLD_BATCHES; b--)
    if (effective % b == 0) w->batch[count++] = b;
  return number == ONE_BATCH ? 1 : count;
}

static void set_plan(brim_made_world *w, uint64_t number)
{
  const int64_t effective = number == MANY_BATCHES ? 65536 : number == HUGE_NUMBERS ? 1 << 20 : 1 << draw(w, 11);
  const size_t count = set_batches(w, number, effective);
  const uint64_t free = w->device[0].free_bytes, total = w->device[0].total_bytes;
  uint64_t all = 0;
  for (size_t i = 0; i < w->devices.count; i++)
    if (__builtin_add_overflow(all, w->device[i].total_bytes, &all)) all = UINT64_MAX;
  w->base_bytes = number == HUGE_NUMBERS ? UINT64_MAX / 2 : draw(w, 4 * GIB);
  w->sample_bytes = number == HUGE_NUMBERS ? UINT64_MAX / 4 : 1 + draw(w, GIB / 4);
  const bool is_auto = number == AUTO || (number > AUTO && draw(w, 2));
  const int32_t may_change = (int32_t)draw(w, 2);
  w->plan = (brim_plan_query){.size = sizeof w->plan,
                              .demands = &w->demands,
                              .device = &w->device[0],
                              .room_bytes = free,
                              .later_bytes = w->demands.wait ? total : free,
                              .all_bytes = all,
                              .effective_batch = effective,
                              .batch_size = is_auto ? 0 : w->batch[draw(w, count)],
                              .micro_batch = w->batch,
                              .micro_batch_count = count,
                              .may_change_variant = may_change,
                              .precisions = 1u << BRIM_TAKE_FP32 | (uint32_t)draw(w, 4) << BRIM_TAKE_BF16,
                              .precision = may_change && draw(w, 2) ? BRIM_AS_IT_IS : BRIM_TAKE_FP32,
                              .model = "mlp",
                              .peak = peak,
                              .host = &w->host};
}

static void set_step(brim_made_world *w)
{
  const int64_t batch = w->batch[draw(w, w->plan.micro_batch_count)];
  w->step = (brim_step_view){.size = sizeof w->step,
                             .demands = &w->demands,
                             .micro_batch = batch,
                             .effective_batch = w->plan.effective_batch,
                             .grain = draw(w, 3) ? 1 : 0,
                             .choice = w->batch,
                             .choice_count = w->plan.micro_batch_count,
                             .look = look_at_device,
                             .peak_within = peak_within,
                             .host = w,
                             .step_seconds = 0.1,
                             .users = users,
                             .peak_of = peak_of};
  if (draw(w, 3) == 0) w->step.lanes = w->step.lanes_max = 1 + (int32_t)draw(w, 16);
  (void)peak_within(&w->step, batch, 0, &w->step.planned_bytes);
}

void brim_made_world_set(brim_made_world *w, uint64_t number)
{
  memset(w, 0, sizeof *w);
  w->random = (number + 1) * UINT64_C(0x9e3779b97f4a7c15);
  w->host = (brim_policy_host){figures, w};
  w->demands = (brim_demands){.device = "auto",
                              .wait = number == NONE_FREE ? 0 : (int32_t)draw(w, 2),
                              .min_device_bytes = draw(w, 2) ? GIB : 0,
                              .min_batch_size = 1,
                              .max_retries = (int64_t)draw(w, 4)};
  set_devices(w, number);
  if (draw(w, 3) == 0) w->demands.device = w->device[draw(w, w->devices.count)].name;
  set_plan(w, number);
  set_step(w);
  clock_of_policies = START + BETWEEN * (double)number;
  brim_policy_clock_follow(&clock_of_policies);
}

brim_oom brim_made_oom(brim_made_world *w, int32_t device, int64_t micro_batch, int64_t retries)
{
  brim_oom event = {.size = sizeof event,
                    .micro_batch = micro_batch,
                    .needed_bytes = peak_bytes(w, micro_batch),
                    .room_bytes = w->device[device].free_bytes,
                    .retries = retries,
                    .plan = w->plan,
                    .devices = w->devices,
                    .device = device};
  event.plan.device = &w->device[device];
  event.plan.room_bytes = event.plan.later_bytes = w->device[device].free_bytes;
  return event;
}

brim_memory_view brim_made_memory(brim_made_world *w, int64_t round)
{
  const brim_device_view *d = &w->device[0];
  const uint64_t total = d->total_bytes ? d->total_bytes : 1;
  return (brim_memory_view){.size = sizeof(brim_memory_view),
                            .step = 10 * round,
                            .round = round,
                            .is_end = round % 7 == 0,
                            .host_total_bytes = total,
                            .host_available_bytes = round % 3 ? draw(w, total) : 0,
                            .process_bytes = draw(w, total),
                            .device_total_bytes = d->total_bytes,
                            .device_free_bytes = d->free_bytes,
                            .device_planned_bytes = w->step.planned_bytes};
}

const brim_step_view *brim_made_step(brim_made_world *w)
{
  w->now++;
  pass_time(w);
  w->step.step = 1 + (int64_t)(20 * w->seconds);
  w->step.seconds = 1000 + w->seconds;
  w->step.waiting = w->now / 8 % 2 ? 1 + (int32_t)draw(w, 3) : 0;
  w->step.waiting_bytes = w->step.waiting ? 1 + draw(w, 8 * GIB) : 0;
  w->plan.room_bytes = w->step.waiting ? w->step.planned_bytes : UINT64_MAX / 2;
  return &w->step;
}

const brim_step_view *brim_made_same_step(brim_made_world *w)
{
  w->now++;
  w->seconds++;
  clock_of_policies++;
  w->step.step = 1 + (int64_t)(20 * w->seconds);
  w->step.seconds = 1000 + w->seconds;
  return &w->step;
}

void brim_made_follow(brim_made_world *w, const brim_step_plan *plan)
{
  uint64_t bytes;
  if (plan->micro_batch == 0 || peak_of(&w->step, plan, &bytes) != BRIM_OK) return;
  w->step.micro_batch = plan->micro_batch;
  if (plan->lanes > 0) w->step.lanes = plan->lanes;
  w->step.planned_bytes = bytes;
}

void brim_made_world_print(const brim_made_world *w, brim_text *out)
{
  char a[32], b[32];
  brim_text_printf(
      out, "%zu device%s, %s with %s of %s free, effective batch %lld, micro-batches from %lld down to %lld",
      w->devices.count, brim_plural((int64_t)w->devices.count), w->device[0].name,
      brim_format_bytes(a, sizeof a, w->device[0].free_bytes), brim_format_bytes(b, sizeof b, w->device[0].total_bytes),
      (long long)w->plan.effective_batch, (long long)w->batch[0], (long long)w->batch[w->plan.micro_batch_count - 1]);
}
