/* Gives memory back while other processes need it, and takes it again when it is free:
 *
 *     a run waits for the device, and a smaller plan of this run would let it start: give back its missing memory
 *     less than reserve_mb of the device are free, for any reason:                   give back the missing memory
 *     no run waits, and there has been room for more:                                take it, up to the first plan
 *
 * To use less memory, it first trains fewer clients of a federation at a time. Then it uses smaller micro-batches with
 * more accumulation, but only those with bit-identical results. Then it uses more recompute. It never goes below the
 * floor. To avoid oscillation, a need must last shrink_after_seconds, free memory must last grow_after_seconds, and a
 * change must gain at least min_gain_percent of the plan. */
#include <stdlib.h>

#include "brim/brim.h"

typedef struct elastic {
  double shrink_after_seconds, grow_after_seconds, min_gain_percent, floor_percent;
  uint64_t floor_mb, reserve_mb;
} elastic;

static const brim_param table[] = {
    BRIM_PARAM(F64, elastic, shrink_after_seconds, "1", "[0,inf)",
               "shrink after other processes have needed memory for this time"),
    BRIM_PARAM(F64, elastic, grow_after_seconds, "10", "[0,inf)", "grow after memory has been free for this time"),
    BRIM_PARAM(F64, elastic, min_gain_percent, "5", "(0,100]",
               "change the plan only if its memory changes by at least this percentage"),
    BRIM_PARAM(BYTES, elastic, floor_mb, "0", NULL, "minimum memory that the run keeps; 0: no minimum"),
    BRIM_PARAM(F64, elastic, floor_percent, "0", "[0,100]",
               "floor_mb in percent of the memory of the run's original plan; the larger minimum applies"),
    BRIM_PARAM(BYTES, elastic, reserve_mb, "0", NULL, "device memory to leave free for processes that do not queue"),
    BRIM_PARAMS_END,
};

/* The memory that the run had at first (had_...) and has now. */
typedef struct run {
  const elastic *p;
  int has_given;
  int32_t had_lanes;
  int64_t had_batch;
  uint64_t had_bytes;
  uint64_t before, after;          /* arena before and after this policy's last change */
  double wanted_since, free_since; /* negative while memory is not wanted, or is not free */
  uint64_t room_bytes;             /* the least room at the checks since free_since */
  uint64_t most_bytes;             /* the room at free_since */
  uint64_t hopeless_bytes;         /* least number of bytes that could not be given back; 0: not tried */
  uint64_t refused_bytes;          /* the need of a waiting run that was reported as refused */
} run;

static brim_status create(const void *params, void **self)
{
  run *r = calloc(1, sizeof *r);
  if (!r) return brim_fail(BRIM_ENOMEM_HOST, "no memory for policy 'elastic'");
  r->p = params;
  r->wanted_since = r->free_since = -1;
  *self = r;
  return BRIM_OK;
}

static uint64_t of_percent(double percent, uint64_t bytes)
{
  return (uint64_t)(percent / 100 * (double)bytes);
}

static uint64_t floor_of(const run *r)
{
  const uint64_t share = of_percent(r->p->floor_percent, r->had_bytes), fixed = r->p->floor_mb << 20;
  return share > fixed ? share : fixed;
}

static uint64_t missing(uint64_t wanted, uint64_t there)
{
  return wanted > there ? wanted - there : 0;
}

/* ---- which plan ---- */

/* Returns whether a micro-batch keeps the results bit-identical and is not larger than the run's first one. */
static int may_take(const run *r, const brim_step_view *v, int64_t batch)
{
  if (batch == v->micro_batch) return 1;
  return batch <= r->had_batch && v->grain > 0 && batch % v->grain == 0 && v->micro_batch % v->grain == 0;
}

static int32_t lanes_of(const brim_step_view *v)
{
  return BRIM_HAS(brim_step_view, v, peak_of) ? v->lanes : 0;
}

static brim_status peak_of(const brim_step_view *v, const brim_step_plan *plan, uint64_t *peak)
{
  if (plan->lanes == 0) return v->peak_within(v, plan->micro_batch, plan->within_bytes, peak);
  return v->peak_of(v, plan, peak);
}

/* Finds a plan of at most `bytes` with the least recompute. It has the most lanes, and then the largest micro-batch,
 * that fit without more recompute, or else the smallest ones. *peak is the plan's peak. It is above `bytes`, or 0, if
 * no plan fits. */
static brim_status find(const run *r, const brim_step_view *v, uint64_t bytes, brim_step_plan *plan, uint64_t *peak)
{
  int fits = 0;
  *peak = 0;
  *plan = (brim_step_plan){.micro_batch = r->had_batch, .lanes = r->had_lanes};
  while (plan->lanes > 1 && !fits) {
    BRIM_TRY(peak_of(v, plan, peak));
    fits = *peak <= bytes;
    if (!fits) plan->lanes--;
  }
  for (size_t i = 0; i < v->choice_count && !fits; i++) {
    if (!may_take(r, v, v->choice[i])) continue;
    plan->micro_batch = v->choice[i];
    BRIM_TRY(peak_of(v, plan, peak));
    fits = *peak <= bytes;
  }
  plan->within_bytes = bytes;
  return *peak > 0 ? peak_of(v, plan, peak) : BRIM_OK;
}

static brim_status take(run *r, const brim_step_view *v, const brim_step_plan *plan, uint64_t within, uint64_t peak,
                        brim_step_plan *out)
{
  r->has_given = 1;
  r->before = v->planned_bytes;
  r->after = peak;
  r->wanted_since = r->free_since = -1;
  r->hopeless_bytes = 0;
  out->micro_batch = plan->micro_batch;
  out->within_bytes = within;
  if (plan->lanes > 0) out->lanes = plan->lanes;
  return BRIM_OK;
}

/* ---- less ---- */

/* Reports that this run cannot make room, once for each waiting run. */
static brim_status refuse(run *r, const brim_step_view *v, const brim_device_view *d, uint64_t wanted, uint64_t least,
                          brim_step_plan *out)
{
  char a[32], b[32], c[32];
  r->hopeless_bytes = wanted;
  if (v->waiting_bytes == 0 || r->refused_bytes == v->waiting_bytes) return BRIM_ENOTSUP;
  r->refused_bytes = v->waiting_bytes;
  brim_reason(out->reason, "a run waits for %s of %s, which has %s free, but this run needs at least %s",
              brim_format_bytes(a, sizeof a, v->waiting_bytes), d->name, brim_format_bytes(b, sizeof b, d->free_bytes),
              brim_format_bytes(c, sizeof c, least));
  return BRIM_OK;
}

/* Gives back at least `wanted` bytes. If a run waits and less is possible, gives back nothing, because less would not
 * help that run. */
static brim_status shrink(run *r, const brim_step_view *v, const brim_device_view *d, uint64_t wanted,
                          brim_step_plan *out)
{
  char a[32], b[32];
  brim_step_plan plan;
  uint64_t peak;
  const uint64_t own = v->planned_bytes, least_gain = of_percent(r->p->min_gain_percent, own), floor = floor_of(r);
  const uint64_t target = missing(own, wanted > least_gain ? wanted : least_gain);
  const uint64_t within = target > floor ? target : floor;
  if (r->hopeless_bytes > 0 && wanted >= r->hopeless_bytes) return BRIM_ENOTSUP;
  BRIM_TRY(find(r, v, within, &plan, &peak));
  const uint64_t given = peak >= floor && peak > 0 ? missing(own, peak) : 0;
  if (given == 0 || given < least_gain || (v->waiting_bytes > 0 && given < wanted))
    return refuse(r, v, d, wanted, peak < floor || (within == floor && floor > 0) ? floor : peak, out);
  if (v->waiting_bytes > 0)
    brim_reason(out->reason, "as a run waits for %s", d->name);
  else
    brim_reason(out->reason, "as %s has %s free, and %s should be", d->name,
                brim_format_bytes(a, sizeof a, d->free_bytes), brim_format_bytes(b, sizeof b, r->p->reserve_mb << 20));
  return take(r, v, &plan, within, peak, out);
}

/* ---- more ---- */

static brim_status grow(run *r, const brim_step_view *v, const brim_device_view *d, brim_step_plan *out)
{
  brim_step_plan plan = {.micro_batch = r->had_batch, .lanes = r->had_lanes};
  const uint64_t room = missing(r->room_bytes, r->p->reserve_mb << 20);
  uint64_t within = r->had_bytes, peak = r->had_bytes;
  r->free_since = -1;
  if (room < r->had_bytes) BRIM_TRY(find(r, v, within = room, &plan, &peak));
  if (peak > within || peak < v->planned_bytes + of_percent(r->p->min_gain_percent, v->planned_bytes))
    return BRIM_ENOTSUP;
  brim_reason(out->reason, "as no run waits for %s", d->name);
  return take(r, v, &plan, within, peak, out);
}

/* Returns whether there is so much more room than before that a larger plan may be possible. Room beyond the need of
 * the first plan does not count. */
static int has_grown(const run *r, const brim_step_view *v, uint64_t room)
{
  const uint64_t gain = of_percent(r->p->min_gain_percent, v->planned_bytes),
                 most = r->had_bytes + (r->p->reserve_mb << 20);
  return r->most_bytes < most && (room >= r->most_bytes + gain || room >= most);
}

/* Returns whether there has been more room for long enough. room_bytes is the least room in that time. The time starts
 * again if the room grows beyond that at its start (see has_grown), because a plan for the smaller room would delay a
 * larger one. It does not start again if room that was lost comes back. */
static int is_free(run *r, const brim_step_view *v, uint64_t room)
{
  if (v->waiting > 0 || room <= v->planned_bytes) {
    r->free_since = -1;
    return 0;
  }
  if (r->free_since < 0 || has_grown(r, v, room)) {
    r->free_since = v->seconds;
    r->room_bytes = r->most_bytes = room;
  }
  if (room < r->room_bytes) r->room_bytes = room;
  return v->seconds - r->free_since >= r->p->grow_after_seconds;
}

/* ---- every second ---- */

/* If something other than this policy has changed the plan, for example a lack of memory, makes the present plan the
 * run's first plan. */
static void notice(run *r, const brim_step_view *v)
{
  const int is_own = v->planned_bytes == r->before || v->planned_bytes == r->after;
  if (r->has_given && is_own && v->planned_bytes < r->had_bytes) return;
  if (v->planned_bytes == r->had_bytes && !r->has_given) return;
  r->has_given = 0;
  r->had_lanes = lanes_of(v);
  r->had_batch = v->micro_batch;
  r->had_bytes = v->planned_bytes;
  r->hopeless_bytes = 0;
  r->free_since = -1;
}

static brim_status on_step(void *self, const brim_step_view *v, brim_step_plan *out)
{
  run *r = self;
  brim_device_view d;
  uint64_t room;
  const uint64_t reserve = r->p->reserve_mb << 20;
  notice(r, v);
  if (v->waiting_bytes == 0) r->refused_bytes = 0;
  if (v->waiting == 0 && reserve == 0 && !r->has_given) {
    r->wanted_since = -1;
    r->hopeless_bytes = 0;
    return BRIM_ENOTSUP;
  }
  BRIM_TRY(v->look(v, &d, &room));
  const uint64_t wanted = missing(v->waiting_bytes > 0 ? v->waiting_bytes : reserve, d.free_bytes);
  if (wanted == 0) {
    r->wanted_since = -1;
    r->hopeless_bytes = 0;
    return r->has_given && is_free(r, v, room) ? grow(r, v, &d, out) : BRIM_ENOTSUP;
  }
  r->free_since = -1;
  if (r->wanted_since < 0) r->wanted_since = v->seconds;
  return v->seconds - r->wanted_since >= r->p->shrink_after_seconds ? shrink(r, v, &d, wanted, out) : BRIM_ENOTSUP;
}

static const brim_policy_ops ops = {.size = sizeof ops, .on_step = on_step};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_POLICY,
                                   .id = "elastic",
                                   .help =
                                       "uses less memory while other processes need it, and more again when it is free",
                                   .params_size = sizeof(elastic),
                                   .params = table,
                                   .create = create,
                                   .destroy = free,
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-policies", "1.0", plugins)
