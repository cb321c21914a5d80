/* A policy of which the table can be spoiled from the build, as those of plugin.c. As it stands it gives up at once. */
#include "brim/brim.h"

#ifndef OPS_SIZE
#define OPS_SIZE sizeof(brim_policy_ops)
#endif
#ifndef ON_OOM
#define ON_OOM on_oom
#endif

static brim_status on_oom(void *self, const brim_oom *event, brim_action *out)
{
  (void)self;
  (void)event;
  out->kind = BRIM_ACT_GIVE_UP;
  brim_reason(out->reason, "policy of the test");
  return BRIM_OK;
}

static const brim_policy_ops ops = {.size = OPS_SIZE, .on_oom = ON_OOM};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_POLICY,
                                   .id = "mine",
                                   .help = "a policy that only exists for this test",
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("abi-test-policy", "1.0", plugins)
