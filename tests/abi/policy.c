/* Policies for tests: "mine" gives up at once, and the build can spoil its table, as in plugin.c; "first" takes the
 * first device, however much others use of it; "mover" moves to another device when memory runs out; "to_host" moves to
 * the host's processors; "night" decides by the clock. */
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

static brim_status choose_first(void *self, const brim_device_query *query, brim_place *out)
{
  (void)self;
  (void)query;
  out->kind = BRIM_PLACE_DEVICE;
  brim_reason(out->reason, "it is the first");
  return BRIM_OK;
}

static const brim_policy_ops first_ops = {.size = sizeof first_ops, .choose_device = choose_first};
static const brim_plugin first = {.size = sizeof first,
                                  .kind = BRIM_POLICY,
                                  .id = "first",
                                  .help = "another policy that only exists for this test",
                                  .ops = &first_ops};

static brim_status move_on(void *self, const brim_oom *event, brim_action *out)
{
  (void)self;
  out->kind = BRIM_ACT_PLACE;
  out->place.kind = BRIM_PLACE_DEVICE;
  out->place.device = (event->device + 1) % (int32_t)event->devices.count;
  return BRIM_OK;
}

static const brim_policy_ops mover_ops = {.size = sizeof mover_ops, .on_oom = move_on};
static const brim_plugin mover = {.size = sizeof mover,
                                  .kind = BRIM_POLICY,
                                  .id = "mover",
                                  .help = "a third policy that only exists for this test",
                                  .ops = &mover_ops};

static brim_status go_to_host(void *self, const brim_oom *event, brim_action *out)
{
  (void)self;
  (void)event;
  out->kind = BRIM_ACT_PLACE;
  out->place.kind = BRIM_PLACE_HOST;
  return BRIM_OK;
}

static const brim_policy_ops to_host_ops = {.size = sizeof to_host_ops, .on_oom = go_to_host};
static const brim_plugin to_host = {.size = sizeof to_host,
                                    .kind = BRIM_POLICY,
                                    .id = "to_host",
                                    .help = "a fifth policy that only exists for this test",
                                    .ops = &to_host_ops};

/* Chooses the largest micro-batch from eight in the evening to eight in the morning, and the smallest one by day. */
static brim_status choose_by_hour(void *self, const brim_plan_query *query, brim_plan_choice *out)
{
  (void)self;
  const int hour = (int)((int64_t)brim_policy_clock() / 3600 % 24);
  const int is_night = hour < 8 || hour >= 20;
  out->micro_batch = query->micro_batch[is_night ? 0 : query->micro_batch_count - 1];
  brim_reason(out->reason, "it is %d o'clock", hour);
  return BRIM_OK;
}

static const brim_policy_ops night_ops = {.size = sizeof night_ops, .choose_plan = choose_by_hour};
static const brim_plugin night = {.size = sizeof night,
                                  .kind = BRIM_POLICY,
                                  .id = "night",
                                  .help = "a fourth policy that only exists for this test",
                                  .ops = &night_ops};

static const brim_plugin *const plugins[] = {&plugin, &first, &mover, &to_host, &night, NULL};
BRIM_MODULE("abi-test-policy", "1.0", plugins)
