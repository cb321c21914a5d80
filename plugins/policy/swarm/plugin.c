/* For volunteers' GPUs of all sizes. Chooses model, precision and micro-batch by the memory of the device:
 *
 *     a device of less than small_below_gb:  micro-batch 1, and half precision
 *                 less than medium_below_gb: micro-batch 2
 *                 otherwise:                 the largest micro-batch that fits
 *     all devices together less than model_below_gb: small_model instead of the model
 *     out of memory: micro-batch 1 -> half precision -> small_model
 *
 * Accumulation follows from the effective batch: with an effective batch of 8, micro-batches of 1 and 2 are accumulated
 * 8 and 4 times. Precision and model change the results, so the policy chooses them only before the first step. */
#include <string.h>

#include "brim/brim.h"

#define GB 1e9

typedef struct swarm {
  double small_below_gb, medium_below_gb, model_below_gb;
  const char *small_model;
} swarm;

static const brim_param table[] = {
    BRIM_PARAM(F64, swarm, small_below_gb, "8", "[0,inf)",
               "on devices with less memory (GB) use micro-batch 1 and half precision"),
    BRIM_PARAM(F64, swarm, medium_below_gb, "12", "[0,inf)", "on devices with less memory (GB) use micro-batch 2"),
    BRIM_PARAM(F64, swarm, model_below_gb, "40", "[0,inf)",
               "if all devices of the host together have less memory (GB), train small_model"),
    BRIM_PARAM(STR, swarm, small_model, "", NULL, "model for hosts below model_below_gb; empty: keep the model"),
    BRIM_PARAMS_END,
};

/* Returns the smallest micro-batch of the list that is at least `least`, or else the largest of the list. */
static int64_t nearest(const brim_plan_query *q, int64_t least)
{
  size_t i = q->micro_batch_count - 1;
  while (i > 0 && q->micro_batch[i] < least) i--;
  return q->micro_batch[i];
}

static brim_status largest_fitting(const brim_plan_query *q, int64_t *out)
{
  for (size_t i = 0; i < q->micro_batch_count; i++) {
    uint64_t peak;
    *out = q->micro_batch[i];
    BRIM_TRY(q->peak(q, *out, &peak));
    if (peak <= q->later_bytes) return BRIM_OK;
  }
  return BRIM_OK; /* the smallest; brim then reports the missing memory */
}

/* Returns the backend's 16-bit precision, or BRIM_AS_IT_IS if the backend has none or the run uses it already. On CPUs,
 * 16 bits save memory only in deep models, because the CPU computes in fp32 anyway; so there the user must choose
 * it. */
static int32_t half_precision(const brim_plan_query *q)
{
  if (!q->may_change_variant || q->precision > BRIM_TAKE_FP32 || q->device->on_host) return BRIM_AS_IT_IS;
  if (q->precisions >> BRIM_TAKE_BF16 & 1) return BRIM_TAKE_BF16;
  return q->precisions >> BRIM_TAKE_FP16 & 1 ? BRIM_TAKE_FP16 : BRIM_AS_IT_IS;
}

static const char *small_model(const swarm *p, const brim_plan_query *q)
{
  const bool there = p->small_model[0] && strcmp(p->small_model, q->model) != 0;
  return q->may_change_variant && there ? p->small_model : NULL;
}

static brim_status choose_plan(void *self, const brim_plan_query *q, brim_plan_choice *out)
{
  const swarm *p = self;
  char a[32], b[32];
  const double total = (double)q->device->total_bytes;
  if (total < p->small_below_gb * GB) {
    out->micro_batch = nearest(q, 1);
    out->precision = half_precision(q);
  } else if (total < p->medium_below_gb * GB) {
    out->micro_batch = nearest(q, 2);
  } else {
    BRIM_TRY(largest_fitting(q, &out->micro_batch));
  }
  if ((double)q->all_bytes < p->model_below_gb * GB) out->model = small_model(p, q);
  brim_reason(out->reason, "%s has %s, all devices together %s", q->device->name,
              brim_format_bytes(a, sizeof a, q->device->total_bytes), brim_format_bytes(b, sizeof b, q->all_bytes));
  return BRIM_OK;
}

static brim_status on_oom(void *self, const brim_oom *event, brim_action *out)
{
  const swarm *p = self;
  const brim_plan_query *q = &event->plan;
  char a[32], b[32];
  out->kind = BRIM_ACT_PLAN;
  out->plan.micro_batch = nearest(q, 1);
  if (out->plan.micro_batch == event->micro_batch) out->plan.precision = half_precision(q);
  if (out->plan.micro_batch == event->micro_batch && out->plan.precision == BRIM_AS_IT_IS)
    out->plan.model = small_model(p, q);
  if (out->plan.micro_batch == event->micro_batch && out->plan.precision == BRIM_AS_IT_IS && !out->plan.model)
    return BRIM_ENOTSUP;
  brim_reason(out->plan.reason, "%s were needed, and %s had room for %s",
              brim_format_bytes(a, sizeof a, event->needed_bytes), q->device->name,
              brim_format_bytes(b, sizeof b, event->room_bytes));
  return BRIM_OK;
}

static const brim_policy_ops ops = {.size = sizeof ops, .choose_plan = choose_plan, .on_oom = on_oom};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_POLICY,
                                   .id = "swarm",
                                   .help = "chooses micro-batch, precision and model by available memory",
                                   .params_size = sizeof(swarm),
                                   .params = table,
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-policies", "1.0", plugins)
