/* For runs of several days on shared GPUs: takes little memory by day, and as much as possible at night.
 *
 *     by day    at most day_percent of the device, and less if that lets a waiting run start
 *     by night  the largest micro-batch that fits
 *
 * The plan changes while the run trains, between micro-batches with bit-identical results. Hours are local time. */
#include <stdlib.h>
#include <time.h>

#include <brim/host.h>
#include <brim/plugin.h>
#include <brim/policy.h>

typedef struct night_shift {
  int64_t night_from_hour, night_to_hour;
  double day_percent, settle_seconds;
} night_shift;

static const brim_param table[] = {
    BRIM_PARAM(I64, night_shift, night_from_hour, "20", "[0,24]", "when the night begins"),
    BRIM_PARAM(I64, night_shift, night_to_hour, "7", "[0,24]", "when it ends"),
    BRIM_PARAM(F64, night_shift, day_percent, "25", "[0,100]", "largest share of the device by day"),
    BRIM_PARAM(SECONDS, night_shift, settle_seconds, "60s", "[0,inf)", "shortest time between two changes of the plan"),
    BRIM_PARAMS_END,
};

typedef struct run {
  const night_shift *p;
  double changed; /* when the plan last changed, as brim_step_view.seconds */
} run;

static brim_status create(const void *params, void **self)
{
  run *r = brim_try_calloc(1, sizeof *r);
  if (!r) return brim_fail(BRIM_ENOMEM_HOST, "no memory for policy 'night_shift'");
  *r = (run){params, -1e9};
  *self = r;
  return BRIM_OK;
}

static int is_night(const night_shift *p)
{
  const time_t now = (time_t)brim_policy_clock();
  struct tm local;
  localtime_r(&now, &local);
  const int64_t hour = local.tm_hour, from = p->night_from_hour, to = p->night_to_hour;
  return from <= to ? hour >= from && hour < to : hour >= from || hour < to; /* the night may cross midnight */
}

/* Returns how many of the `room` bytes on a device a plan may use. */
static uint64_t allowed(const night_shift *p, const brim_device_view *d, uint64_t room)
{
  const uint64_t share = (uint64_t)(p->day_percent / 100 * (double)d->total_bytes);
  return is_night(p) || room < share ? room : share;
}

/* Chooses the largest micro-batch below `below` whose plan is within the limit, or else the smallest. */
static brim_status choose(const run *r, const brim_plan_query *q, int64_t below, brim_plan_choice *out)
{
  char a[32];
  const uint64_t bytes = allowed(r->p, q->device, q->room_bytes);
  for (size_t i = 0; i < q->micro_batch_count; i++) {
    uint64_t peak;
    if (q->micro_batch[i] >= below) continue;
    out->micro_batch = q->micro_batch[i];
    BRIM_TRY(q->peak(q, out->micro_batch, &peak));
    if (peak <= bytes) break;
  }
  brim_reason(out->reason, "it is %s, and %s of %s may be taken", is_night(r->p) ? "night" : "day",
              brim_format_bytes(a, sizeof a, bytes), q->device->name);
  return out->micro_batch > 0 ? BRIM_OK : BRIM_ENOTSUP;
}

static brim_status choose_plan(void *self, const brim_plan_query *q, brim_plan_choice *out)
{
  return choose(self, q, INT64_MAX, out);
}

/* Called when the plan did not get its memory, for example because another process took it first. */
static brim_status on_oom(void *self, const brim_oom *event, brim_action *out)
{
  out->kind = BRIM_ACT_PLAN;
  return choose(self, &event->plan, event->micro_batch, &out->plan);
}

/* Returns the limit during the run: by day it leaves room for the runs that wait. */
static uint64_t allowed_now(const run *r, const brim_step_view *v, const brim_device_view *d, uint64_t room)
{
  const uint64_t bytes = allowed(r->p, d, room), there = d->free_bytes + v->planned_bytes;
  if (is_night(r->p) || v->waiting == 0 || there < v->waiting_bytes)
    return bytes; /* returning memory would not be enough */
  return there - v->waiting_bytes < bytes ? there - v->waiting_bytes : bytes;
}

static brim_status on_step(void *self, const brim_step_view *v, brim_step_plan *out)
{
  run *r = self;
  brim_device_view d;
  uint64_t room, peak;
  if (v->seconds - r->changed < r->p->settle_seconds) return BRIM_ENOTSUP;
  BRIM_TRY(v->look(v, &d, &room));
  const uint64_t bytes = allowed_now(r, v, &d, room);
  for (size_t i = 0; i < v->choice_count; i++) {
    const int64_t batch = v->choice[i];
    const int same_bits = v->grain > 0 && batch % v->grain == 0 && v->micro_batch % v->grain == 0;
    if (!same_bits && batch != v->micro_batch) continue;
    out->micro_batch = batch;
    BRIM_TRY(v->peak_within(v, batch, 0, &peak));
    if (peak <= bytes) break;
  }
  if (out->micro_batch == 0 || out->micro_batch == v->micro_batch) return BRIM_ENOTSUP;
  r->changed = v->seconds;
  brim_reason(out->reason, "as it is %s%s", is_night(r->p) ? "night" : "day", v->waiting > 0 ? " and a run waits" : "");
  return BRIM_OK;
}

static const brim_policy_ops ops = {
    .size = sizeof ops, .choose_plan = choose_plan, .on_oom = on_oom, .on_step = on_step};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_POLICY,
                                   .id = "night_shift",
                                   .help = "little memory by day, as much as possible at night",
                                   .params_size = sizeof(night_shift),
                                   .params = table,
                                   .create = create,
                                   .destroy = free,
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("night_shift", "1.0", plugins)
