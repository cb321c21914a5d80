/* A policy as written for ABI 1.3, the oldest one whose policies this brim accepts: those of 1.2 used other views, and
 * are refused by the size of their table. */
#include <brim/plugin.h>
#include <brim/policy.h>

typedef struct half {
  int64_t most;
} half;
static const brim_param params[] = {
    BRIM_PARAM(I64, half, most, "16", "[1,4096]", "largest micro-batch"),
    BRIM_PARAMS_END,
};

static brim_status choose_plan(void *self, const brim_plan_query *query, brim_plan_choice *out)
{
  const half *p = self;
  for (size_t i = 0; i < query->micro_batch_count; i++) {
    uint64_t peak = 0;
    if (query->micro_batch[i] > p->most) continue;
    BRIM_TRY(query->peak(query, query->micro_batch[i], &peak));
    if (peak > query->room_bytes) continue;
    out->micro_batch = query->micro_batch[i];
    brim_reason(out->reason, "%lld of %lld samples of %s on %s", (long long)out->micro_batch,
                (long long)query->effective_batch, query->model, query->device->name);
    return BRIM_OK;
  }
  return BRIM_ENOTSUP;
}

static brim_status on_boundary(void *self, const brim_memory_view *memory, brim_boundary *out)
{
  (void)self;
  if (!memory->is_end) return BRIM_ENOTSUP;
  out->cleanup = BRIM_CLEAN_LIGHT;
  brim_reason(out->reason, "%lld steps have ended", (long long)memory->step);
  return BRIM_OK;
}

static const brim_policy_ops ops = {.size = sizeof ops, .choose_plan = choose_plan, .on_boundary = on_boundary};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_POLICY,
                                   .id = "kept",
                                   .help = "a policy of ABI 1.3",
                                   .params_size = sizeof(half),
                                   .params = params,
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("kept_policy", "1.3", plugins)
