/* Policies, asked by the same host as in a run (memory/policies.h) about worlds that are made up. See check.h. */
#include "cli/check_policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#define WORLDS 200
#define STEPS 120 /* of a run */
#define EVENTS 64 /* about out-of-memory: after so many a run ends whatever the policies say */

static void ignore(void *context, const brim_decision *decision)
{
  (void)context;
  (void)decision;
}

void brim_asked_close(brim_asked *a)
{
  brim_policies_close(a->policies);
  a->policies = NULL;
}

brim_status brim_asked_open(brim_asked *a)
{
  brim_made_world_set(&a->world, 0); /* its clock: policies may look at it when they are made */
  BRIM_TRY(brim_policies_open(a->config, (brim_decisions){0}, &a->policies));
  brim_policies_listen(a->policies, ignore, NULL);
  brim_policies_answer_there(a->policies);
  return BRIM_OK;
}

brim_status brim_asked_configure(brim_check *c, const char *further, brim_asked *a)
{
  char own[BRIM_OPTION_BYTES];
  const char *word[] = {own, further};
  snprintf(own, sizeof own, "policy=[%s]", c->plugin->id);
  return brim_check_config(c, word, further ? 2 : 1, &a->config);
}

brim_asked *brim_asked_new(void)
{
  return brim_xcalloc(1, sizeof(brim_asked)); /* too large for some stacks */
}

void brim_asked_free(brim_asked *a)
{
  brim_asked_close(a);
  brim_config_free(a->config);
  free(a);
}

enum brim_finding brim_check_fail_short(brim_check *c, const char *what)
{
  const char *text = brim_error_text();
  return brim_check_say(c, BRIM_FOUND_FAILED, "%s%s%.*s", what, what[0] ? ": " : "", (int)strcspn(text, "\n"), text);
}

/* What its own words end a run with is not for us to judge, and not nonsense. */
static bool is_refusal(brim_status status)
{
  return status != BRIM_EPLUGIN && strstr(brim_error_text(), "decided by policy");
}

/* ---- one question of each kind ---- */

brim_status brim_asked_ask(brim_asked *a, enum brim_hook hook, int64_t number, brim_answer *out)
{
  const char *who;
  brim_made_world *w = &a->world;
  memset(out, 0, sizeof *out);
  switch (hook) {
  case BRIM_HOOK_DEVICE:
    return brim_policies_choose_device(a->policies, &w->devices, &out->place);
  case BRIM_HOOK_PLAN:
    return brim_policies_choose_plan(a->policies, &w->plan, &out->plan);
  case BRIM_HOOK_OOM: {
    const brim_oom event = brim_made_oom(w, 0, w->batch[0], number);
    return brim_policies_on_oom(a->policies, &event, &out->action);
  }
  case BRIM_HOOK_BOUNDARY: {
    const brim_memory_view view = brim_made_memory(w, number);
    return brim_policies_on_boundary(a->policies, &view, &out->boundary);
  }
  case BRIM_HOOK_STEP:
    BRIM_TRY(brim_policies_on_step(a->policies, brim_made_step(w), &out->step, &who));
    brim_made_follow(w, &out->step);
    return BRIM_OK;
  }
  return BRIM_ENOTSUP;
}

typedef struct tally {
  int decided, left, refused;
  char refusal[256]; /* the first */
} tally;

/* False: it is nonsense, or worse. */
static bool count(tally *t, brim_status status)
{
  if (status == BRIM_OK) {
    t->decided++;
  } else if (status == BRIM_ENOTSUP) {
    t->left++;
  } else if (is_refusal(status)) {
    const char *text = brim_error_text();
    if (t->refused++ == 0) snprintf(t->refusal, sizeof t->refusal, "%.*s", (int)strcspn(text, "\n"), text);
  } else {
    return false;
  }
  return true;
}

static enum brim_finding say_tally(brim_check *c, const tally *t)
{
  brim_check_say(c, BRIM_FOUND_OK, "decided %d of %d times", t->decided, t->decided + t->left + t->refused);
  if (t->refused > 0) brim_text_printf(&c->text, ", and ended the run %d times, first by: %s", t->refused, t->refusal);
  return BRIM_FOUND_OK;
}

static enum brim_finding fail_in_world(brim_check *c, const brim_made_world *w)
{
  brim_text world = {0};
  brim_made_world_tell(w, &world);
  brim_check_fail_short(c, "");
  brim_text_printf(&c->text, "\nin a made-up world of %s", brim_text_str(&world));
  brim_text_release(&world);
  return BRIM_FOUND_FAILED;
}

/* ---- checks of a hook ---- */

/* Of a policy that cannot be made with its defaults "create" says so. */
static brim_status begin(brim_check *c, enum brim_hook hook, brim_asked *a, enum brim_finding *finding)
{
  *finding = BRIM_FOUND_OK;
  if (!brim_policy_has(c->plugin, hook)) {
    brim_check_say(c, BRIM_FOUND_OK, "left to other policies");
    return BRIM_ENOTSUP;
  }
  if (brim_asked_configure(c, NULL, a) == BRIM_OK && brim_asked_open(a) == BRIM_OK) return BRIM_OK;
  *finding = brim_check_say(c, BRIM_FOUND_WARNING, "not tried, as there is no instance");
  return BRIM_ENOTSUP;
}

/* Worlds one after another, each with `times` questions. */
static enum brim_finding check_hook(brim_check *c, enum brim_hook hook, uint64_t worlds, int times)
{
  enum brim_finding finding;
  tally t = {.decided = 0};
  brim_asked *a = brim_asked_new();
  if (begin(c, hook, a, &finding) == BRIM_OK) {
    finding = BRIM_FOUND_OK;
    for (uint64_t i = 0; i < worlds && finding == BRIM_FOUND_OK; i++) {
      brim_made_world_set(&a->world, i);
      for (int k = 0; k < times && finding == BRIM_FOUND_OK; k++) {
        brim_answer out;
        if (!count(&t, brim_asked_ask(a, hook, k, &out))) finding = fail_in_world(c, &a->world);
      }
    }
    if (finding == BRIM_FOUND_OK) say_tally(c, &t);
  }
  brim_asked_free(a);
  return finding;
}

static enum brim_finding check_device(brim_check *c)
{
  return check_hook(c, BRIM_HOOK_DEVICE, WORLDS, 1);
}
static enum brim_finding check_plan(brim_check *c)
{
  return check_hook(c, BRIM_HOOK_PLAN, WORLDS, 1);
}
static enum brim_finding check_boundary(brim_check *c)
{
  return check_hook(c, BRIM_HOOK_BOUNDARY, WORLDS / 10, STEPS / 4);
}
static enum brim_finding check_step(brim_check *c)
{
  return check_hook(c, BRIM_HOOK_STEP, WORLDS / 10, STEPS);
}

/* ---- while nothing changes ---- */

#define STEADY_WORLDS 8
#define STEADY_SECONDS 240
#define RETURNS_MAX 2 /* to the plan before the last one, that are no oscillation yet */

typedef struct taken_plan {
  int64_t micro_batch;
  uint64_t bytes;
} taken_plan;

static bool is_same_plan(taken_plan a, taken_plan b)
{
  return a.micro_batch == b.micro_batch && a.bytes == b.bytes;
}

/* How often it goes back to the plan that it had left in its last change. */
static bool watch_world(brim_asked *a, int *returns)
{
  const char *who;
  brim_made_world *w = &a->world;
  taken_plan before = {0}, now = {w->step.micro_batch, w->step.planned_bytes};
  *returns = 0;
  for (int i = 0; i < STEADY_SECONDS; i++) {
    brim_step_plan out = {0};
    const brim_status status = brim_policies_on_step(a->policies, brim_made_same_step(w), &out, &who);
    if (status != BRIM_OK && status != BRIM_ENOTSUP && !is_refusal(status)) return false;
    if (status == BRIM_OK) brim_made_follow(w, &out);
    const taken_plan next = {w->step.micro_batch, w->step.planned_bytes};
    if (is_same_plan(next, now)) continue;
    *returns += is_same_plan(next, before);
    before = now;
    now = next;
  }
  return true;
}

static enum brim_finding check_settles(brim_check *c)
{
  enum brim_finding finding;
  brim_asked *a = brim_asked_new();
  if (begin(c, BRIM_HOOK_STEP, a, &finding) == BRIM_OK) {
    finding = brim_check_say(c, BRIM_FOUND_OK, "its plan stays where nothing changes");
    for (uint64_t i = 0; i < STEADY_WORLDS && finding == BRIM_FOUND_OK; i++) {
      int returns = 0;
      brim_made_world_set(&a->world, i);
      if (!watch_world(a, &returns)) finding = fail_in_world(c, &a->world);
      if (finding == BRIM_FOUND_OK && returns > RETURNS_MAX)
        finding = brim_check_say(c, BRIM_FOUND_WARNING,
                                 "goes back and forth where nothing changes: %d times in %d s back to the plan that it "
                                 "had just left, and each change costs a pause",
                                 returns, STEADY_SECONDS);
    }
  }
  brim_asked_free(a);
  return finding;
}

/* ---- out of memory, again and again ---- */

typedef struct ordeal {
  char model[BRIM_OPTION_BYTES]; /* that was chosen */
  int32_t device;
  int64_t batch, retries;
  int unchanged; /* answers in a row that were the plan that had just failed */
} ordeal;

/* Another precision or model, which is trained from then on. */
static bool changes_variant(brim_made_world *w, ordeal *o, const brim_plan_choice *plan)
{
  const bool precision = plan->precision != BRIM_AS_IT_IS && plan->precision != w->plan.precision;
  const bool model = plan->model && strcmp(plan->model, w->plan.model) != 0;
  if (precision) w->plan.precision = plan->precision;
  if (!model) return precision;
  snprintf(o->model, sizeof o->model, "%s", plan->model);
  w->plan.model = o->model;
  return true;
}

/* What a run would do next. False: it ends, or waits. */
static bool follow(brim_made_world *w, ordeal *o, const brim_action *action)
{
  if (action->kind == BRIM_ACT_PLAN) {
    const bool changes = changes_variant(w, o, &action->plan) || action->plan.micro_batch != o->batch;
    o->unchanged = changes ? 0 : o->unchanged + 1;
    o->batch = action->plan.micro_batch;
    o->retries++;
    return true;
  }
  if (action->kind != BRIM_ACT_PLACE || action->place.kind != BRIM_PLACE_DEVICE) return false;
  o->unchanged = action->place.device == o->device && w->device[o->device].tried ? o->unchanged + 1 : 0;
  w->device[o->device].tried = 1;
  o->device = action->place.device;
  o->retries = 0;
  return true;
}

/* Nothing ever fits. */
static enum brim_finding suffer(brim_check *c, brim_asked *a, tally *t, int *endless)
{
  ordeal o = {.batch = a->world.batch[0]};
  for (int i = 0; i < EVENTS; i++) {
    brim_action action;
    const brim_oom event = brim_made_oom(&a->world, o.device, o.batch, o.retries);
    const brim_status status = brim_policies_on_oom(a->policies, &event, &action);
    if (!count(t, status)) return fail_in_world(c, &a->world);
    if (status != BRIM_OK || !follow(&a->world, &o, &action)) return BRIM_FOUND_OK;
  }
  ++*endless;
  if (o.unchanged < EVENTS / 2) return BRIM_FOUND_OK;
  brim_check_say(c, BRIM_FOUND_FAILED,
                 "answers with what has just failed, micro-batch %lld, again and again (%d times): it must change "
                 "something, or leave it to others",
                 (long long)o.batch, o.unchanged);
  return BRIM_FOUND_FAILED;
}

static enum brim_finding check_oom(brim_check *c)
{
  enum brim_finding finding;
  tally t = {.decided = 0};
  int endless = 0;
  brim_asked *a = brim_asked_new();
  if (begin(c, BRIM_HOOK_OOM, a, &finding) == BRIM_OK) {
    for (uint64_t i = 0; i < WORLDS && finding == BRIM_FOUND_OK; i++) {
      brim_made_world_set(&a->world, i);
      finding = suffer(c, a, &t, &endless);
    }
    if (finding == BRIM_FOUND_OK) say_tally(c, &t);
    if (finding == BRIM_FOUND_OK && endless > 0) {
      finding = BRIM_FOUND_WARNING;
      brim_text_printf(&c->text,
                       ", but does not come to an end in %d world%s where nothing fits: a run ends after %d "
                       "answers",
                       endless, brim_plural(endless), EVENTS);
    }
  }
  brim_asked_free(a);
  return finding;
}

const brim_check_kind brim_policy_checks[] = {{"create", brim_check_create},
                                              {"choose_device", check_device},
                                              {"choose_plan", check_plan},
                                              {"on_oom", check_oom},
                                              {"on_boundary", check_boundary},
                                              {"on_step", check_step},
                                              {"settles", check_settles},
                                              {"repeats", brim_check_repeats, true},
                                              {"memory", brim_check_leaks, true},
                                              {"parameters", brim_check_parameters, true},
                                              {NULL, NULL}};
