/* For training.batch_size=auto: the largest micro-batch whose plan fits, by its exact peak. Fewer, larger micro-batches
 * are faster, and the effective batch is the same with any. Where a batch_size is given, it is left alone. */
#include "brim/brim.h"

/* The largest micro-batch below `below` that fits so many bytes; 0: none. */
static brim_status find_fitting(const brim_plan_query *q, int64_t below, uint64_t room, int64_t *out, uint64_t *peak)
{
  *out = 0;
  for (size_t i = 0; i < q->micro_batch_count; i++) {
    if (q->micro_batch[i] >= below) continue;
    BRIM_TRY(q->peak(q, q->micro_batch[i], peak));
    if (*peak > room) continue;
    *out = q->micro_batch[i];
    return BRIM_OK;
  }
  return BRIM_OK;
}

/* What fits now; or else, in a run that may wait, what will fit when the device is empty. */
static brim_status choose(const brim_plan_query *q, int64_t below, brim_plan_choice *out)
{
  char a[32], b[32];
  uint64_t peak, room = q->room_bytes;
  if (q->batch_size > 0) return BRIM_ENOTSUP;
  BRIM_TRY(find_fitting(q, below, room, &out->micro_batch, &peak));
  if (out->micro_batch == 0) BRIM_TRY(find_fitting(q, below, room = q->later_bytes, &out->micro_batch, &peak));
  if (out->micro_batch == 0) return BRIM_ENOTSUP;
  brim_reason(out->reason, "the largest that fits: %s of %s on %s", brim_format_bytes(a, sizeof a, peak),
              brim_format_bytes(b, sizeof b, room), q->device->name);
  return BRIM_OK;
}

static brim_status choose_plan(void *self, const brim_plan_query *q, brim_plan_choice *out)
{
  (void)self;
  const brim_status status = choose(q, INT64_MAX, out);
  if (status != BRIM_ENOTSUP || q->batch_size > 0) return status;
  out->micro_batch = q->micro_batch[q->micro_batch_count - 1]; /* what it lacks will be told, or waited for */
  brim_reason(out->reason, "the smallest, and still too large for %s", q->device->name);
  return BRIM_OK;
}

/* Somebody was faster: what fits now? */
static brim_status on_oom(void *self, const brim_oom *event, brim_action *out)
{
  (void)self;
  if (event->retries >= event->plan.demands->max_retries) return BRIM_ENOTSUP;
  out->kind = BRIM_ACT_PLAN;
  return choose(&event->plan, event->micro_batch, &out->plan);
}

static const brim_policy_ops ops = {.size = sizeof ops, .choose_plan = choose_plan, .on_oom = on_oom};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_POLICY,
                                   .id = "auto_plan",
                                   .help = "for training.batch_size=auto: the largest micro-batch that fits",
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-policies", "1.0", plugins)
