/* Tests the policies' host: the order in which it asks policies, the answers that it refuses, and how it reports
 * decisions. The policies return the answers that a test stored in them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "memory/policies.h"
#include "unit/made_policies.h"

/* ---- order ---- */

static void policies_are_called_in_order_and_the_first_decision_wins(void **state)
{
  for (int question = 0; question < QUESTIONS; question++) {
    fixture f;
    prepare(&f, 3);
    decide(&f.made[1], 64);
    decide(&f.made[2], 32);
    open_policies(&f, true);
    assert_int_equal(ask(&f, question), BRIM_OK);
    assert_int_equal(f.made[0].asked, 1);
    assert_int_equal(f.made[1].asked, 1);
    assert_int_equal(f.made[2].asked, 0);
    assert_int_equal(f.heard, 1);
    assert_string_equal(f.policy[0], "policy.second");
    brim_policies_close(f.policies);
  }
}

static void no_decision_if_all_policies_abstain(void **state)
{
  for (size_t count = 0; count <= 3; count++) {
    fixture f;
    prepare(&f, count);
    open_policies(&f, true);
    for (int question = 0; question < QUESTIONS; question++) {
      assert_int_equal(ask(&f, question), BRIM_ENOTSUP);
      for (size_t i = 0; i < count; i++) assert_int_equal(f.made[i].asked, question + 1);
    }
    assert_int_equal(f.heard, 0);
    brim_policies_close(f.policies);
  }
}

static void any_other_status_ends_it_with_the_policys_text_and_name(void **state)
{
  for (int question = 0; question < QUESTIONS; question++) {
    fixture f;
    prepare(&f, 3);
    f.made[1].status = BRIM_EIO;
    f.made[1].text = "the table is gone";
    decide(&f.made[2], 64);
    open_policies(&f, true);
    assert_int_equal(ask(&f, question), BRIM_EIO);
    assert_string_equal(brim_error_text(), "the table is gone\ndecided by policy 'second'");
    assert_int_equal(f.made[2].asked, 0);
    assert_int_equal(f.heard, 0);
    brim_policies_close(f.policies);
  }
}

/* The host must not take values that the first policy wrote before it abstained for those of the next policy. */
static void values_of_a_policy_that_abstains_are_discarded(void **state)
{
  fixture f;
  brim_plan_choice choice;
  const brim_plan_query query = plan_query();
  prepare(&f, 2);
  f.made[0].plan = (brim_plan_choice){.micro_batch = 32, .precision = BRIM_TAKE_BF16, .model = "cnn"};
  f.ops[1].choose_plan = NULL;
  open_policies(&f, true);
  assert_int_equal(brim_policies_choose_plan(f.policies, &query, &choice), BRIM_ENOTSUP);
  brim_policies_close(f.policies);
  f.ops[1].choose_plan = choose_plan;
  decide(&f.made[1], 64);
  open_policies(&f, true);
  assert_int_equal(brim_policies_choose_plan(f.policies, &query, &choice), BRIM_OK);
  assert_int_equal(choice.micro_batch, 64);
  assert_int_equal(choice.precision, BRIM_AS_IT_IS);
  assert_null(choice.model);
  brim_policies_close(f.policies);
}

/* ---- tables of other versions ---- */

static void a_null_hook_leaves_the_decision_to_the_next(void **state)
{
  fixture f;
  prepare(&f, 2);
  f.ops[0] = (brim_policy_ops){.size = sizeof(brim_policy_ops)};
  decide(&f.made[1], 64);
  open_policies(&f, true);
  for (int question = 0; question < QUESTIONS; question++) assert_int_equal(ask(&f, question), BRIM_OK);
  assert_int_equal(f.made[0].asked, 0);
  assert_int_equal(f.made[1].asked, QUESTIONS);
  brim_policies_close(f.policies);
}

/* Memory beyond the size in a table does not belong to the table. */
static void a_shorter_table_offers_only_its_own_hooks(void **state)
{
  const size_t ends[] = {offsetof(brim_policy_ops, choose_device), offsetof(brim_policy_ops, choose_plan),
                         offsetof(brim_policy_ops, on_oom), offsetof(brim_policy_ops, on_boundary)};
  for (int has = 0; has < QUESTIONS; has++) {
    fixture f;
    prepare(&f, 1);
    f.ops[0].size = (uint32_t)ends[has];
    decide(&f.made[0], 64);
    open_policies(&f, true);
    for (int question = 0; question < QUESTIONS; question++)
      assert_int_equal(ask(&f, question), question < has ? BRIM_OK : BRIM_ENOTSUP);
    assert_int_equal(f.made[0].asked, has);
    assert_false(brim_policies_watch(f.policies));
    brim_policies_close(f.policies);
  }
}

static void memory_is_watched_if_a_policy_has_the_hook(void **state)
{
  fixture f;
  prepare(&f, 0);
  open_policies(&f, true);
  assert_false(brim_policies_watch(f.policies));
  brim_policies_close(f.policies);
  prepare(&f, 2);
  f.ops[0].on_boundary = NULL;
  open_policies(&f, true);
  assert_true(brim_policies_watch(f.policies));
  brim_policies_close(f.policies);
}

/* ---- plans between steps ---- */

static brim_status ask_for_step(fixture *f, brim_step_plan *plan, const char **policy)
{
  const brim_step_view view = {
      .size = sizeof view, .step = 7, .choice = micro_batches, .choice_count = 3, .micro_batch = 128};
  *policy = "";
  return brim_policies_on_step(f->policies, &view, plan, policy);
}

/* The policy that acts reports it, with the outcome. */
static void the_first_plan_between_steps_wins(void **state)
{
  fixture f;
  brim_step_plan plan;
  const char *policy;
  prepare(&f, 3);
  f.made[0].step_plan.within_bytes = 5;
  f.made[1].status = f.made[2].status = BRIM_OK;
  f.made[1].step_plan = (brim_step_plan){.micro_batch = 64, .reason = "as others want it"};
  open_policies(&f, true);
  assert_true(brim_policies_follow(f.policies));
  assert_int_equal(ask_for_step(&f, &plan, &policy), BRIM_OK);
  assert_string_equal(policy, "policy.second");
  assert_int_equal(plan.micro_batch, 64);
  assert_int_equal(plan.within_bytes, 0);
  assert_string_equal(plan.reason, "as others want it");
  f.made[1].step_plan.micro_batch = 0; /* the policy gives a reason but no new plan */
  assert_int_equal(ask_for_step(&f, &plan, &policy), BRIM_OK);
  f.made[1].step_plan.micro_batch = 48;
  assert_int_equal(ask_for_step(&f, &plan, &policy), BRIM_ECONFIG);
  assert_string_equal(brim_error_text(), "policy.second chose the micro-batch 48 after step 7, which is not one of "
                                         "the allowed micro-batches");
  f.made[1].status = BRIM_EIO;
  f.made[1].text = "the table is gone";
  assert_int_equal(ask_for_step(&f, &plan, &policy), BRIM_EIO);
  assert_string_equal(brim_error_text(), "the table is gone\ndecided by policy 'second'");
  assert_int_equal(f.made[2].asked, 0);
  assert_int_equal(f.heard, 0);
  brim_policies_close(f.policies);
}

/* Policies of ABI 1.2 and before have a shorter table. */
static void runs_are_followed_if_a_policy_has_the_hook(void **state)
{
  fixture f;
  brim_step_plan plan;
  const char *policy;
  prepare(&f, 2);
  f.ops[0].size = offsetof(brim_policy_ops, on_step);
  f.ops[1].on_step = NULL;
  decide(&f.made[0], 64);
  open_policies(&f, true);
  assert_false(brim_policies_follow(f.policies));
  assert_int_equal(ask_for_step(&f, &plan, &policy), BRIM_ENOTSUP);
  assert_int_equal(f.made[0].asked, 0);
  brim_policies_close(f.policies);
}

/* ---- invalid answers ---- */

static void check_refused(fixture *f, int question, const char *want)
{
  open_policies(f, true);
  assert_int_equal(ask(f, question), BRIM_ECONFIG);
  assert_string_equal(brim_error_text(), want);
  assert_int_equal(f->heard, 0); /* a refused answer is not reported as a decision */
  brim_policies_close(f->policies);
}

static void an_unknown_place_is_refused(void **state)
{
  static const struct {
    brim_place place;
    const char *want;
  } cases[] = {
      {{.kind = BRIM_PLACE_DEVICE, .device = 7}, "policy.first chose device 7 of 2"},
      {{.kind = BRIM_PLACE_DEVICE, .device = 2}, "policy.first chose device 2 of 2"},
      {{.kind = BRIM_PLACE_DEVICE, .device = -1}, "policy.first chose device -1 of 2"},
      {{.kind = 0}, "policy.first returned an unknown place kind 0"},
      {{.kind = BRIM_PLACE_HOST + 1}, "policy.first returned an unknown place kind 4"},
      {{.kind = -3}, "policy.first returned an unknown place kind -3"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    fixture f;
    prepare(&f, 1);
    f.made[0].status = BRIM_OK;
    f.made[0].place = cases[i].place;
    f.made[0].action = (brim_action){.kind = BRIM_ACT_PLACE, .place = cases[i].place};
    check_refused(&f, DEVICE, cases[i].want);
    check_refused(&f, OOM, cases[i].want);
  }
}

#define NONE_OF_THEM                                                                                                   \
  ", which is not allowed: micro-batches divide the effective batch 128, range from 128 down to 32, and respect "      \
  "training.grain, training.norm_group and min_batch_size"

static void an_impossible_plan_is_refused(void **state)
{
  static const struct {
    brim_plan_choice plan;
    const char *want;
  } cases[] = {
      {{.micro_batch = 0}, "policy.first chose the micro-batch 0" NONE_OF_THEM},
      {{.micro_batch = 16}, "policy.first chose the micro-batch 16" NONE_OF_THEM}, /* 16 is a divisor, but too small */
      {{.micro_batch = 48}, "policy.first chose the micro-batch 48" NONE_OF_THEM},
      {{.micro_batch = -64}, "policy.first chose the micro-batch -64" NONE_OF_THEM},
      {{.micro_batch = 64, .precision = BRIM_TAKE_FP16},
       "policy.first chose a precision that the backend does not have: fp16"},
      {{.micro_batch = 64, .precision = 9}, "policy.first chose a precision that the backend does not have: unknown"},
      {{.micro_batch = 64, .precision = -1}, "policy.first chose a precision that the backend does not have: unknown"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    fixture f;
    prepare(&f, 1);
    f.made[0].status = BRIM_OK;
    f.made[0].plan = cases[i].plan;
    f.made[0].action = (brim_action){.kind = BRIM_ACT_PLAN, .plan = cases[i].plan};
    check_refused(&f, PLAN, cases[i].want);
    check_refused(&f, OOM, cases[i].want);
  }
}

/* A limit on a device does not permit a move to another one. */
static void a_limited_run_stays_on_its_device(void **state)
{
  for (int32_t kind = BRIM_PLACE_DEVICE; kind <= BRIM_PLACE_HOST; kind++) {
    fixture f;
    brim_action action;
    brim_oom event = oom();
    const brim_demands bound = {.device = "cpu:0", .stays = 1};
    prepare(&f, 1);
    f.made[0].status = BRIM_OK;
    f.made[0].action = (brim_action){.kind = BRIM_ACT_PLACE, .place = {.kind = kind, .device = 1}};
    open_policies(&f, true);
    event.devices.demands = event.plan.demands = &bound;
    assert_int_equal(brim_policies_on_oom(f.policies, &event, &action), BRIM_ECONFIG);
    assert_string_equal(
        brim_error_text(),
        "policy.first chose another device, but the run has a memory limit on cpu:0 and must stay there");
    assert_int_equal(f.heard, 0);
    f.made[0].action = (brim_action){.kind = BRIM_ACT_PLAN, .plan = {.micro_batch = 32}};
    assert_int_equal(brim_policies_on_oom(f.policies, &event, &action), BRIM_OK);
    brim_policies_close(f.policies);
  }
}

static void another_variant_after_the_first_step_is_refused(void **state)
{
  static const brim_plan_choice choices[] = {{.micro_batch = 64, .precision = BRIM_TAKE_BF16},
                                             {.micro_batch = 64, .precision = BRIM_TAKE_FP32},
                                             {.micro_batch = 64, .model = "mlp"}};
  for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
    fixture f;
    brim_plan_choice choice;
    brim_plan_query query = plan_query();
    prepare(&f, 1);
    f.made[0].status = BRIM_OK;
    f.made[0].plan = choices[i];
    open_policies(&f, true);
    assert_int_equal(brim_policies_choose_plan(f.policies, &query, &choice), BRIM_OK);
    query.may_change_variant = 0;
    assert_int_equal(brim_policies_choose_plan(f.policies, &query, &choice), BRIM_ECONFIG);
    assert_string_equal(brim_error_text(),
                        "policy.first chose another precision or model, which is possible only before the first step");
    assert_int_equal(f.heard, 1);
    brim_policies_close(f.policies);
  }
}

static void unknown_kinds_are_refused(void **state)
{
  fixture f;
  prepare(&f, 1);
  f.made[0].status = BRIM_OK;
  check_refused(&f, OOM, "policy.first returned an unknown action kind 0");
  f.made[0].action.kind = BRIM_ACT_GIVE_UP + 1;
  check_refused(&f, OOM, "policy.first returned an unknown action kind 4");
  f.made[0].boundary.cleanup = BRIM_CLEAN_HEAVY + 1;
  check_refused(&f, BOUNDARY, "policy.first returned an unknown cleanup kind 3");
  f.made[0].boundary.cleanup = -1;
  check_refused(&f, BOUNDARY, "policy.first returned an unknown cleanup kind -1");
}

/* ---- reporting ---- */

static void decisions_are_reported_with_choice_and_reason(void **state)
{
  fixture f;
  prepare(&f, 1);
  decide(&f.made[0], 32);
  open_policies(&f, true);
  for (int question = 0; question < QUESTIONS; question++) assert_int_equal(ask(&f, question), BRIM_OK);
  check_heard(&f, 0, "policy.first", "cpu:1, at most 48.0 MiB", "it is free");
  check_heard(&f, 1, "policy.first", "micro-batch 32 x 4", "it fits");
  check_heard(&f, 2, "policy.first", "micro-batch 32 x 4", "it fits");
  check_heard(&f, 3, "policy.first", "light cleanup", "it is time");
  f.made[0].place = (brim_place){.kind = BRIM_PLACE_WAIT, .reason = "all are full"};
  f.made[0].action = (brim_action){.kind = BRIM_ACT_PLACE, .place = {.kind = BRIM_PLACE_HOST}};
  f.made[0].plan = (brim_plan_choice){.micro_batch = 64, .precision = BRIM_TAKE_BF16, .model = "cnn"};
  f.made[0].boundary = (brim_boundary){.cleanup = BRIM_CLEAN_NONE, .warn = 1, .reason = "it is full"};
  for (int question = 0; question < QUESTIONS; question++) assert_int_equal(ask(&f, question), BRIM_OK);
  check_heard(&f, 4, "policy.first", "waits for any device", "all are full");
  check_heard(&f, 5, "policy.first", "micro-batch 64 x 2, precision bf16, model cnn", "");
  check_heard(&f, 6, "policy.first", "the host's processors", "");
  check_heard(&f, 7, "policy.first", "no cleanup", "it is full");
  f.made[0].action = (brim_action){.kind = BRIM_ACT_GIVE_UP, .reason = "enough"};
  f.made[0].boundary.cleanup = BRIM_CLEAN_HEAVY;
  assert_int_equal(ask(&f, OOM), BRIM_OK);
  assert_int_equal(ask(&f, BOUNDARY), BRIM_OK);
  check_heard(&f, 8, "policy.first", "gives up", "enough");
  check_heard(&f, 9, "policy.first", "heavy cleanup", "it is full");
  brim_policies_report(f.policies, "a key", "light cleanup", "");
  check_heard(&f, 10, "a key", "light cleanup", "");
  assert_int_equal(f.heard, 11);
  brim_policies_close(f.policies);
}

static void decisions_before_the_listener_are_kept_in_order_and_reported_once(void **state)
{
  fixture f;
  prepare(&f, 1);
  decide(&f.made[0], 32);
  open_policies(&f, false);
  assert_int_equal(ask(&f, DEVICE), BRIM_OK);
  brim_reason(f.made[0].place.reason, "another"); /* the report was a copy */
  assert_int_equal(ask(&f, PLAN), BRIM_OK);
  assert_int_equal(f.heard, 0);
  brim_policies_listen(f.policies, hear, &f);
  assert_int_equal(f.heard, 2);
  check_heard(&f, 0, "policy.first", "cpu:1, at most 48.0 MiB", "it is free");
  check_heard(&f, 1, "policy.first", "micro-batch 32 x 4", "it fits");
  assert_int_equal(ask(&f, BOUNDARY), BRIM_OK);
  assert_int_equal(f.heard, 3); /* the host reports at once */
  brim_policies_listen(f.policies, hear, &f);
  assert_int_equal(f.heard, 3); /* but not again */
  brim_policies_close(f.policies);
}

/* If a policy chooses another configuration, that configuration's policies replace the present ones. */
static void decisions_continue_with_replacement_policies(void **state)
{
  fixture f, after;
  prepare(&f, 1);
  prepare(&after, 1);
  decide(&f.made[0], 32);
  decide(&after.made[0], 64);
  open_policies(&f, false);
  assert_int_equal(ask(&f, PLAN), BRIM_OK);
  const brim_decisions before = brim_policies_take_decisions(f.policies);
  brim_policies_close(f.policies);
  assert_int_equal(brim_policies_open(&after.config, before, &after.policies), BRIM_OK);
  assert_int_equal(ask(&after, PLAN), BRIM_OK);
  brim_policies_listen(after.policies, hear, &after);
  assert_int_equal(after.heard, 2);
  check_heard(&after, 0, "policy.first", "micro-batch 32 x 4", "it fits");
  check_heard(&after, 1, "policy.first", "micro-batch 64 x 2", "it fits");
  brim_policies_close(after.policies);
}

static void a_reason_is_cut_where_it_does_not_fit(void **state)
{
  char reason[BRIM_REASON_BYTES + 1], text[2 * BRIM_REASON_BYTES];
  memset(text, 'x', sizeof text);
  text[sizeof text - 1] = '\0';
  reason[BRIM_REASON_BYTES] = '!';
  brim_reason(reason, "%d%s", 7, text);
  assert_int_equal(strlen(reason), BRIM_REASON_BYTES - 1);
  assert_true(brim_starts_with(reason, "7xx"));
  assert_int_equal(reason[BRIM_REASON_BYTES], '!');
  for (size_t i = 0; i < 4; i++) { /* at any length, the text does not end in part of a character */
    brim_reason(reason, "%.*s\xf0\x9f\x98\x80%s", (int)(BRIM_REASON_BYTES - 5 + i), text, "more");
    assert_int_equal(strlen(reason), i == 0 ? BRIM_REASON_BYTES - 1 : BRIM_REASON_BYTES - 5 + i);
  }
}

/* ---- instances ---- */

static void instances_are_created_and_destroyed(void **state)
{
  fixture f;
  prepare(&f, 2);
  for (int i = 0; i < 2; i++) {
    f.plugin[i].create = create;
    f.plugin[i].destroy = destroy;
  }
  decide(&f.made[1], 64);
  open_policies(&f, true);
  assert_int_equal(ask(&f, PLAN), BRIM_OK);
  assert_int_equal(f.made[1].asked, 1);
  brim_policies_close(f.policies);
  assert_int_equal(f.made[0].destroyed, 1);
  assert_int_equal(f.made[1].destroyed, 1);
  brim_policies_close(NULL);
}

static void a_policy_that_cannot_be_created_is_named_and_earlier_ones_destroyed(void **state)
{
  fixture f;
  prepare(&f, 3);
  for (int i = 0; i < 3; i++) {
    f.plugin[i].create = create;
    f.plugin[i].destroy = destroy;
  }
  f.made[1].create_status = BRIM_EIO;
  f.made[1].text = "no such table";
  assert_int_equal(brim_policies_open(&f.config, (brim_decisions){0}, &f.policies), BRIM_EIO);
  assert_string_equal(brim_error_text(), "no such table\nwhile creating policy 'second'");
  assert_int_equal(f.made[0].destroyed, 1);
  assert_int_equal(f.made[1].destroyed, 0);
  assert_int_equal(f.made[2].destroyed, 0);
}

/* ---- the clock ---- */

static void the_clock_is_the_systems_unless_another_is_set(void **state)
{
  double made_up = 1e9;
  const double before = brim_policy_clock();
  assert_true(before > made_up);
  brim_policy_clock_follow(&made_up);
  assert_true(brim_policy_clock() == 1e9);
  made_up += 60;
  assert_true(brim_policy_clock() == 1e9 + 60);
  brim_policy_clock_follow(NULL);
  assert_true(brim_policy_clock() >= before);
}

int main(void)
{
  static const struct CMUnitTest tests[] = {
      cmocka_unit_test(policies_are_called_in_order_and_the_first_decision_wins),
      cmocka_unit_test(no_decision_if_all_policies_abstain),
      cmocka_unit_test(any_other_status_ends_it_with_the_policys_text_and_name),
      cmocka_unit_test(values_of_a_policy_that_abstains_are_discarded),
      cmocka_unit_test(a_null_hook_leaves_the_decision_to_the_next),
      cmocka_unit_test(a_shorter_table_offers_only_its_own_hooks),
      cmocka_unit_test(memory_is_watched_if_a_policy_has_the_hook),
      cmocka_unit_test(the_first_plan_between_steps_wins),
      cmocka_unit_test(runs_are_followed_if_a_policy_has_the_hook),
      cmocka_unit_test(an_unknown_place_is_refused),
      cmocka_unit_test(an_impossible_plan_is_refused),
      cmocka_unit_test(a_limited_run_stays_on_its_device),
      cmocka_unit_test(another_variant_after_the_first_step_is_refused),
      cmocka_unit_test(unknown_kinds_are_refused),
      cmocka_unit_test(decisions_are_reported_with_choice_and_reason),
      cmocka_unit_test(decisions_before_the_listener_are_kept_in_order_and_reported_once),
      cmocka_unit_test(decisions_continue_with_replacement_policies),
      cmocka_unit_test(a_reason_is_cut_where_it_does_not_fit),
      cmocka_unit_test(the_clock_is_the_systems_unless_another_is_set),
      cmocka_unit_test(instances_are_created_and_destroyed),
      cmocka_unit_test(a_policy_that_cannot_be_created_is_named_and_earlier_ones_destroyed),
  };
  brim_log_set_level(BRIM_LOG_ERROR);
  return cmocka_run_group_tests_name("policies", tests, NULL, NULL);
}
