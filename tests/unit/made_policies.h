/* Policies for tests: each returns the answers that a test has stored in it. Also the questions that tests ask them. */
#ifndef BRIM_TESTS_MADE_POLICIES_H
#define BRIM_TESTS_MADE_POLICIES_H
#include <stdio.h>
#include <string.h>

#include "memory/policies.h"

/* A policy's parameters and its answers. */
typedef struct made {
  int asked;          /* number of calls */
  brim_status status; /* the status that every hook returns */
  const char *text;   /* error text to set on the thread, or NULL */
  brim_place place;
  brim_plan_choice plan;
  brim_action action;
  brim_boundary boundary;
  brim_step_plan step_plan;
  brim_status create_status;
  int destroyed;
} made;

static brim_status answer(made *m)
{
  m->asked++;
  return m->text ? brim_fail(m->status, "%s", m->text) : m->status;
}

static brim_status choose_device(void *self, const brim_device_query *query, brim_place *out)
{
  (void)query;
  *out = ((made *)self)->place;
  return answer(self);
}
static brim_status choose_plan(void *self, const brim_plan_query *query, brim_plan_choice *out)
{
  (void)query;
  *out = ((made *)self)->plan;
  return answer(self);
}
static brim_status on_oom(void *self, const brim_oom *event, brim_action *out)
{
  (void)event;
  *out = ((made *)self)->action;
  return answer(self);
}
static brim_status on_boundary(void *self, const brim_memory_view *memory, brim_boundary *out)
{
  (void)memory;
  *out = ((made *)self)->boundary;
  return answer(self);
}

static brim_status on_step(void *self, const brim_step_view *view, brim_step_plan *out)
{
  (void)view;
  *out = ((made *)self)->step_plan;
  return answer(self);
}

static brim_status create(const void *params, void **self)
{
  const made *m = params;
  *self = (void *)params;
  return m->create_status == BRIM_OK ? BRIM_OK : brim_fail(m->create_status, "%s", m->text);
}
static void destroy(void *self)
{
  ((made *)self)->destroyed++;
}

static const brim_policy_ops all_ops = {.size = sizeof all_ops,
                                        .choose_device = choose_device,
                                        .choose_plan = choose_plan,
                                        .on_oom = on_oom,
                                        .on_boundary = on_boundary,
                                        .on_step = on_step};

/* Up to three policies, "first", "second" and "third", and the decisions that were reported. */
typedef struct fixture {
  made made[3];
  brim_policy_ops ops[3];
  brim_plugin plugin[3];
  brim_config config;
  brim_policies *policies;
  int heard;
  char policy[16][64], choice[16][256], reason[16][256];
} fixture;

static void prepare(fixture *f, size_t count)
{
  static const char *const id[] = {"first", "second", "third"};
  static const char *const group[] = {"policy.first", "policy.second", "policy.third"};
  static const brim_plugin model = {.size = sizeof model, .kind = BRIM_MODEL, .id = "model"};
  memset(f, 0, sizeof *f);
  f->config.choice[f->config.choice_count++] = (brim_config_choice){.group = "model", .plugin = &model};
  for (size_t i = 0; i < count; i++) {
    f->made[i].status = BRIM_ENOTSUP;
    f->ops[i] = all_ops;
    f->plugin[i] =
        (brim_plugin){.size = sizeof(brim_plugin), .kind = BRIM_POLICY, .id = id[i], .help = "", .ops = &f->ops[i]};
    f->config.choice[f->config.choice_count++] =
        (brim_config_choice){.group = group[i], .plugin = &f->plugin[i], .params = &f->made[i]};
  }
}

static void hear(void *context, const brim_decision *decision)
{
  fixture *f = context;
  assert_true(f->heard < 16);
  snprintf(f->policy[f->heard], sizeof f->policy[0], "%s", decision->policy);
  snprintf(f->choice[f->heard], sizeof f->choice[0], "%s", decision->choice);
  snprintf(f->reason[f->heard], sizeof f->reason[0], "%s", decision->reason);
  f->heard++;
}

/* `listening`: register the listener at once. */
static void open_policies(fixture *f, bool listening)
{
  assert_int_equal(brim_policies_open(&f->config, (brim_decisions){0}, &f->policies), BRIM_OK);
  if (listening) brim_policies_listen(f->policies, hear, f);
}

static void check_heard(const fixture *f, int i, const char *policy, const char *choice, const char *reason)
{
  assert_true(i < f->heard);
  assert_string_equal(f->policy[i], policy);
  assert_string_equal(f->choice[i], choice);
  assert_string_equal(f->reason[i], reason);
}

/* ---- questions ---- */

static const brim_demands demands = {.device = "auto"};
static const brim_device_view two_devices[] = {{.name = "cpu:0", .total_bytes = 64, .free_bytes = 32, .is_shared = 1},
                                               {.name = "cpu:1", .total_bytes = 64, .free_bytes = 64, .is_shared = 1}};
static const int64_t micro_batches[] = {128, 64, 32};

static brim_device_query device_query(void)
{
  return (brim_device_query){sizeof(brim_device_query), &demands, two_devices, 2};
}

static brim_plan_query plan_query(void)
{
  return (brim_plan_query){.size = sizeof(brim_plan_query),
                           .demands = &demands,
                           .device = &two_devices[0],
                           .effective_batch = 128,
                           .micro_batch = micro_batches,
                           .micro_batch_count = 3,
                           .may_change_variant = 1,
                           .precisions = 1u << BRIM_TAKE_FP32 | 1u << BRIM_TAKE_BF16,
                           .precision = BRIM_TAKE_FP32,
                           .model = "mlp"};
}

static brim_oom oom(void)
{
  return (brim_oom){.size = sizeof(brim_oom), .micro_batch = 128, .plan = plan_query(), .devices = device_query()};
}

/* The kinds of questions, one for each hook. */
enum { DEVICE, PLAN, OOM, BOUNDARY, QUESTIONS };

static brim_status ask(fixture *f, int question)
{
  const brim_device_query devices = device_query();
  const brim_plan_query plan = plan_query();
  const brim_oom event = oom();
  const brim_memory_view memory = {.size = sizeof memory, .round = 1};
  brim_place place;
  brim_plan_choice choice;
  brim_action action;
  brim_boundary boundary;
  switch (question) {
  case DEVICE:
    return brim_policies_choose_device(f->policies, &devices, &place);
  case PLAN:
    return brim_policies_choose_plan(f->policies, &plan, &choice);
  case OOM:
    return brim_policies_on_oom(f->policies, &event, &action);
  default:
    return brim_policies_on_boundary(f->policies, &memory, &boundary);
  }
}

/* Sets valid decisions, one of each kind. */
static void decide(made *m, int64_t micro_batch)
{
  m->status = BRIM_OK;
  m->place = (brim_place){.kind = BRIM_PLACE_DEVICE, .device = 1, .limit_bytes = 48 << 20, .reason = "it is free"};
  m->plan = (brim_plan_choice){.micro_batch = micro_batch, .reason = "it fits"};
  m->action = (brim_action){.kind = BRIM_ACT_PLAN, .plan = m->plan};
  m->boundary = (brim_boundary){.cleanup = BRIM_CLEAN_LIGHT, .reason = "it is time"};
}
#endif
