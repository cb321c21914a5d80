/* Uses the configured plan and no other plan: if it does not get its memory, the run ends. */
#include "brim/brim.h"

typedef struct fixed {
  int64_t micro_batch;
} fixed;

static const brim_param table[] = {
    BRIM_PARAM(I64, fixed, micro_batch, "0", "[0,1048576]", "samples in a micro-batch; 0: training.batch_size"),
    BRIM_PARAMS_END,
};

static brim_status choose_plan(void *self, const brim_plan_query *q, brim_plan_choice *out)
{
  const fixed *p = self;
  out->micro_batch = p->micro_batch ? p->micro_batch : q->batch_size;
  if (out->micro_batch == 0) return BRIM_ENOTSUP; /* training.batch_size=auto: another policy must decide */
  brim_reason(out->reason, p->micro_batch ? "from policy.fixed.micro_batch" : "from training.batch_size");
  return BRIM_OK;
}

static brim_status on_oom(void *self, const brim_oom *event, brim_action *out)
{
  (void)self;
  (void)event;
  out->kind = BRIM_ACT_GIVE_UP;
  brim_reason(out->reason, "nothing else is tried");
  return BRIM_OK;
}

static const brim_policy_ops ops = {.size = sizeof ops, .choose_plan = choose_plan, .on_oom = on_oom};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_POLICY,
                                   .id = "fixed",
                                   .help = "uses the configured device, precision and batch size, without changes",
                                   .params_size = sizeof(fixed),
                                   .params = table,
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-policies", "1.0", plugins)
