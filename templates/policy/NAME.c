/* @NAME@: a memory policy that leaves part of a device's memory to others. It takes the largest micro-batch whose plan
 * needs at most a share of the free memory, and a smaller one if memory still runs out. The effective batch stays the
 * same, so the results do too. brim/policy.h lists all decisions that a policy can make. */
#include <brim/brim.h>

typedef struct settings { /* brim fills this struct from the table below */
  double share;
} settings;

static const brim_param table[] = {
    BRIM_PARAM(F64, settings, share, "0.5", "(0,1]", "largest share of the free memory for a plan"),
    BRIM_PARAMS_END,
};

/* Chooses the largest micro-batch below `below` whose plan fits, else the smallest. Peaks are exact: brim allocates
 * that many bytes and no more. */
static brim_status choose(const settings *s, const brim_plan_query *q, int64_t below, brim_plan_choice *out)
{
  const uint64_t room = (uint64_t)(s->share * (double)q->room_bytes);
  for (size_t i = 0; i < q->micro_batch_count; i++) { /* from large to small */
    uint64_t peak;
    char a[32], b[32];
    if (q->micro_batch[i] >= below || q->micro_batch[i] < q->demands->min_batch_size) continue;
    BRIM_TRY(q->peak(q, q->micro_batch[i], &peak));
    if (peak > room && i + 1 < q->micro_batch_count) continue;
    out->micro_batch = q->micro_batch[i];
    brim_reason(out->reason, "%s, where its share of %s is %s", brim_format_bytes(a, sizeof a, peak), q->device->name,
                brim_format_bytes(b, sizeof b, room)); /* brim prints the reason */
    return BRIM_OK;
  }
  return BRIM_ENOTSUP; /* no decision: brim asks the next policy in the list */
}

static brim_status choose_plan(void *self, const brim_plan_query *query, brim_plan_choice *out)
{
  return choose(self, query, INT64_MAX, out);
}

/* Called when the plan did not get its memory, for example because another process took it first. */
static brim_status on_oom(void *self, const brim_oom *event, brim_action *out)
{
  out->kind = BRIM_ACT_PLAN;
  return choose(self, &event->plan, event->micro_batch, &out->plan);
}

static const brim_policy_ops ops = {.size = sizeof ops, .choose_plan = choose_plan, .on_oom = on_oom};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_POLICY,
                                   .id = "@NAME@",
                                   .help = "the largest micro-batch within a share of the free memory",
                                   .params_size = sizeof(settings),
                                   .params = table,
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("@NAME@", "0.1", plugins)
