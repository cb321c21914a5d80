/* Checks of policies. The code that calls policies in a run (memory/policies.h) calls each hook in synthetic worlds,
 * including worlds in which nothing changes or no plan fits. The checks create and destroy a policy repeatedly, ask the
 * same question twice and many times, and set parameters to the ends of their ranges. See check.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/check/check.h"
#include "cli/check/worlds.h"
#include "memory/policy_call.h"

#define WORLDS 200
#define WORLDS_FEW 12 /* number of worlds if each is asked about many times */
#define STEPS 120     /* steps of a run */
#define EVENTS 64     /* number of out-of-memory events after which a run ends, even if policies answer */

/* ---- an instance in a synthetic world ---- */

/* A policy of a configuration; its decisions are not reported. */
typedef struct asked {
  brim_config *config;
  brim_policies *policies; /* NULL: there is no instance */
  brim_made_world world;
} asked;

typedef union answer {
  brim_place place;
  brim_plan_choice plan;
  brim_action action;
  brim_boundary boundary;
  brim_step_plan step;
} answer;

static void ignore(void *context, const brim_decision *decision)
{
  (void)context;
  (void)decision;
}

/* Allocates it, because it is too large for some stacks; freed together with its contents. */
static asked *new_asked(void)
{
  return brim_xcalloc(1, sizeof(asked));
}

static void close_asked(asked *a)
{
  brim_policies_close(a->policies);
  a->policies = NULL;
}

static void free_asked(asked *a)
{
  close_asked(a);
  brim_config_free(a->config);
  free(a);
}

/* Loads the configuration that uses the policy; `further`: one more word, or NULL. */
static brim_status configure(brim_check *c, const char *further, asked *a)
{
  return brim_check_config(c, &(const char *){NULL}, further, &a->config);
}

static brim_status open_asked(asked *a)
{
  brim_made_world_set(&a->world, 0); /* sets the policies' clock, which they may read when they are created */
  BRIM_TRY(brim_policies_open(a->config, (brim_decisions){0}, &a->policies));
  brim_policies_listen(a->policies, ignore, NULL);
  brim_policies_answer_there(a->policies);
  return BRIM_OK;
}

/* Whether the policy ended the run with an error message of its own, which is allowed. */
static bool is_refusal(brim_status status)
{
  return status != BRIM_EPLUGIN && strstr(brim_error_text(), "decided by policy");
}

/* ---- one question of each kind ---- */

/* Asks as a run does; `number` selects the time, for hooks that are called repeatedly. */
static brim_status ask_hook(asked *a, enum brim_hook hook, int64_t number, answer *out)
{
  const char *policy_id;
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
    BRIM_TRY(brim_policies_on_step(a->policies, brim_made_step(w), &out->step, &policy_id));
    brim_made_follow(w, &out->step);
    return BRIM_OK;
  }
  return BRIM_ENOTSUP;
}

typedef struct tally {
  int decided, left, refused;
  char refusal[256]; /* the first one */
} tally;

/* Counts the status of an answer; false if it is invalid or the policy is at fault. */
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
  brim_made_world_print(w, &world);
  brim_check_fail_short(c, "");
  brim_text_printf(&c->text, "\nin a synthetic scenario of %s", brim_text_str(&world));
  brim_text_release(&world);
  return BRIM_FOUND_FAILED;
}

/* ---- checks of a hook ---- */

/* Makes an instance with default parameters; false if that fails, for a reason that "create" has reported. */
static bool open_default(brim_check *c, asked *a, enum brim_finding *finding)
{
  if (configure(c, NULL, a) == BRIM_OK && open_asked(a) == BRIM_OK) return true;
  *finding = brim_check_say(c, BRIM_FOUND_WARNING, "not tried: there is no instance");
  return false;
}

/* Begins the checks of a hook; false if the policy lacks it, or there is no instance. */
static bool begin(brim_check *c, enum brim_hook hook, asked *a, enum brim_finding *finding)
{
  *finding = BRIM_FOUND_OK;
  if (brim_policy_has(c->plugin, hook)) return open_default(c, a, finding);
  brim_check_say(c, BRIM_FOUND_OK, "left to other policies");
  return false;
}

/* Asks `times` questions in each of `worlds` worlds. */
static enum brim_finding check_hook(brim_check *c, enum brim_hook hook, uint64_t worlds, int times)
{
  enum brim_finding finding;
  tally t = {.decided = 0};
  asked *a = new_asked();
  if (begin(c, hook, a, &finding)) {
    for (uint64_t i = 0; i < worlds && finding == BRIM_FOUND_OK; i++) {
      brim_made_world_set(&a->world, i);
      for (int k = 0; k < times && finding == BRIM_FOUND_OK; k++) {
        answer out;
        if (!count(&t, ask_hook(a, hook, k, &out))) finding = fail_in_world(c, &a->world);
      }
    }
    if (finding == BRIM_FOUND_OK) say_tally(c, &t);
  }
  free_asked(a);
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
#define RETURNS_MAX 2 /* number of returns to the plan before the last one that do not count as oscillation */

typedef struct taken_plan {
  int64_t micro_batch;
  uint64_t bytes;
} taken_plan;

static bool same_taken(taken_plan a, taken_plan b)
{
  return a.micro_batch == b.micro_batch && a.bytes == b.bytes;
}

/* Counts how often the policy returns to the plan from which it last changed. */
static bool watch_world(asked *a, int *returns)
{
  const char *policy_id;
  brim_made_world *w = &a->world;
  taken_plan before = {0}, now = {w->step.micro_batch, w->step.planned_bytes};
  *returns = 0;
  for (int i = 0; i < STEADY_SECONDS; i++) {
    brim_step_plan out = {0};
    const brim_status status = brim_policies_on_step(a->policies, brim_made_same_step(w), &out, &policy_id);
    if (status != BRIM_OK && status != BRIM_ENOTSUP && !is_refusal(status)) return false;
    if (status == BRIM_OK) brim_made_follow(w, &out);
    const taken_plan next = {w->step.micro_batch, w->step.planned_bytes};
    if (same_taken(next, now)) continue;
    *returns += same_taken(next, before);
    before = now;
    now = next;
  }
  return true;
}

static enum brim_finding check_settles(brim_check *c)
{
  enum brim_finding finding;
  asked *a = new_asked();
  if (begin(c, BRIM_HOOK_STEP, a, &finding)) {
    finding = brim_check_say(c, BRIM_FOUND_OK, "keeps its plan while nothing changes");
    for (uint64_t i = 0; i < STEADY_WORLDS && finding == BRIM_FOUND_OK; i++) {
      int returns = 0;
      brim_made_world_set(&a->world, i);
      if (!watch_world(a, &returns)) finding = fail_in_world(c, &a->world);
      if (finding == BRIM_FOUND_OK && returns > RETURNS_MAX)
        finding = brim_check_say(c, BRIM_FOUND_WARNING,
                                 "oscillates while nothing changes: %d times in %d s it returned to the plan that it "
                                 "had just left, and each change costs a pause",
                                 returns, STEADY_SECONDS);
    }
  }
  free_asked(a);
  return finding;
}

/* ---- repeated out-of-memory events ---- */

typedef struct oom_trial {
  char model[BRIM_OPTION_BYTES]; /* the chosen model */
  int32_t device;
  int64_t batch, retries;
  int unchanged; /* number of consecutive answers that equal the plan that has just failed */
} oom_trial;

/* Applies a plan's new precision or model, with which training continues; returns whether there was one. */
static bool changes_variant(brim_made_world *w, oom_trial *o, const brim_plan_choice *plan)
{
  const bool precision = plan->precision != BRIM_AS_IT_IS && plan->precision != w->plan.precision;
  const bool model = plan->model && strcmp(plan->model, w->plan.model) != 0;
  if (precision) w->plan.precision = plan->precision;
  if (!model) return precision;
  snprintf(o->model, sizeof o->model, "%s", plan->model);
  w->plan.model = o->model;
  return true;
}

/* Applies an action as a run would. Returns false if the run would end or wait. */
static bool follow(brim_made_world *w, oom_trial *o, const brim_action *action)
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

/* Makes a world in which nothing ever fits. */
static enum brim_finding try_out_of_memory(brim_check *c, asked *a, tally *t, int *endless)
{
  oom_trial o = {.batch = a->world.batch[0]};
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
                 "repeats the answer that has just failed, micro-batch %lld, %d times: it must change "
                 "something or leave the decision to others",
                 (long long)o.batch, o.unchanged);
  return BRIM_FOUND_FAILED;
}

static enum brim_finding check_oom(brim_check *c)
{
  enum brim_finding finding;
  tally t = {.decided = 0};
  int endless = 0;
  asked *a = new_asked();
  if (begin(c, BRIM_HOOK_OOM, a, &finding)) {
    for (uint64_t i = 0; i < WORLDS && finding == BRIM_FOUND_OK; i++) {
      brim_made_world_set(&a->world, i);
      finding = try_out_of_memory(c, a, &t, &endless);
    }
    if (finding == BRIM_FOUND_OK) say_tally(c, &t);
    if (finding == BRIM_FOUND_OK && endless > 0) {
      finding = BRIM_FOUND_WARNING;
      brim_text_printf(&c->text,
                       ", but never gives up in %d world%s where nothing fits: a run ends after %d "
                       "answers",
                       endless, brim_plural(endless), EVENTS);
    }
  }
  free_asked(a);
  return finding;
}

/* ---- the same question twice ---- */

static bool same_plan(const brim_plan_choice *a, const brim_plan_choice *b)
{
  return a->micro_batch == b->micro_batch && a->precision == b->precision && !a->model == !b->model;
}

static bool same_place(const brim_place *a, const brim_place *b)
{
  return a->kind == b->kind && a->device == b->device && a->limit_bytes == b->limit_bytes;
}

static bool same_answer(enum brim_hook hook, const answer *a, const answer *b)
{
  switch (hook) {
  case BRIM_HOOK_DEVICE:
    return same_place(&a->place, &b->place);
  case BRIM_HOOK_PLAN:
    return same_plan(&a->plan, &b->plan);
  case BRIM_HOOK_OOM:
    return a->action.kind == b->action.kind && same_plan(&a->action.plan, &b->action.plan) &&
           same_place(&a->action.place, &b->action.place);
  case BRIM_HOOK_BOUNDARY:
    return a->boundary.cleanup == b->boundary.cleanup;
  case BRIM_HOOK_STEP:
    return a->step.micro_batch == b->step.micro_batch && a->step.within_bytes == b->step.within_bytes &&
           a->step.lanes == b->step.lanes;
  }
  return true;
}

/* Asks one instance all questions, in order, and stores the answers in `out`. */
static brim_status ask_all(asked *a, answer *out, brim_status *status)
{
  BRIM_TRY(open_asked(a));
  for (size_t i = 0; i < WORLDS_FEW; i++) {
    brim_made_world_set(&a->world, i);
    for (int hook = 0; hook <= BRIM_HOOK_STEP; hook++, out++, status++)
      *status = ask_hook(a, (enum brim_hook)hook, 1, out);
  }
  close_asked(a);
  return BRIM_OK;
}

/* A difference is only a warning, because a policy may depend on the time of day. */
static enum brim_finding check_repeats(brim_check *c)
{
  enum { ANSWERS = WORLDS_FEW * (BRIM_HOOK_STEP + 1) };
  enum brim_finding finding = BRIM_FOUND_OK;
  asked *a = new_asked();
  answer *out = brim_xcalloc(2 * (size_t)ANSWERS, sizeof *out);
  brim_status status[2][ANSWERS] = {{BRIM_OK}};
  brim_check_say(c, BRIM_FOUND_OK, "the same answers to the same questions");
  if (configure(c, NULL, a) != BRIM_OK || ask_all(a, out, status[0]) != BRIM_OK ||
      ask_all(a, out + ANSWERS, status[1]) != BRIM_OK)
    finding = brim_check_say(c, BRIM_FOUND_WARNING, "not tried: there is no instance");
  for (int i = 0; i < ANSWERS && finding == BRIM_FOUND_OK; i++) {
    const enum brim_hook hook = (enum brim_hook)(i % (BRIM_HOOK_STEP + 1));
    if (status[0][i] != status[1][i] || !same_answer(hook, &out[i], &out[ANSWERS + i]))
      finding =
          brim_check_say(c, BRIM_FOUND_WARNING,
                         "%s: another instance gives another answer to the same question: runs cannot be repeated",
                         brim_hook_name(hook));
  }
  free(out);
  free_asked(a);
  return finding;
}

/* ---- creating and destroying ---- */

static enum brim_finding check_create(brim_check *c)
{
  enum brim_finding finding = BRIM_FOUND_OK;
  uint64_t before = 0;
  asked *a = new_asked();
  if (configure(c, NULL, a) != BRIM_OK) {
    finding = brim_check_untried(c);
    free_asked(a);
    return finding;
  }
  for (int i = 0; i < BRIM_CHECK_WARM_TIMES + BRIM_CHECK_MANY_TIMES && finding == BRIM_FOUND_OK; i++) {
    if (i == BRIM_CHECK_WARM_TIMES) before = brim_check_allocated();
    if (open_asked(a) != BRIM_OK) finding = brim_check_fail_short(c, "");
    close_asked(a);
    if (finding == BRIM_FOUND_OK && brim_guard_any_lost())
      finding = brim_check_say(c, BRIM_FOUND_FAILED, "destroy crashes or does not return");
  }
  if (finding == BRIM_FOUND_OK) finding = brim_check_created(c, before);
  free_asked(a);
  return finding;
}

/* on_step is called once a second during the whole run, so leaks add up. */
static enum brim_finding check_leaks(brim_check *c)
{
  enum brim_finding finding = BRIM_FOUND_OK;
  uint64_t before = 0;
  asked *a = new_asked();
  if (open_default(c, a, &finding)) {
    brim_made_world_set(&a->world, BRIM_WORLD_EDGES);
    for (int i = 0; i < BRIM_CHECK_WARM_TIMES + BRIM_CHECK_MANY_TIMES; i++) {
      answer out;
      if (i == BRIM_CHECK_WARM_TIMES) before = brim_check_allocated();
      for (int hook = 0; hook <= BRIM_HOOK_STEP; hook++) (void)ask_hook(a, (enum brim_hook)hook, i, &out);
    }
    const uint64_t kept = brim_check_kept(before);
    brim_check_say(c, BRIM_FOUND_OK, "decisions leak no memory");
    if (kept > 0) finding = brim_check_say(c, BRIM_FOUND_WARNING, "decisions leak %" PRIu64 " bytes each time", kept);
  }
  free_asked(a);
  return finding;
}

/* ---- parameters ---- */

/* A value that the policy rejects with a message counts as refused; a crash does not. */
static enum brim_check_trial try_word(brim_check *c, const char *word)
{
  answer out;
  asked *a = new_asked();
  brim_status status = configure(c, word, a);
  if (status == BRIM_OK) status = open_asked(a);
  for (uint64_t i = 0; i < WORLDS_FEW && status != BRIM_EPLUGIN && a->policies; i++) {
    brim_made_world_set(&a->world, i);
    for (int hook = 0; hook <= BRIM_HOOK_STEP && status != BRIM_EPLUGIN; hook++)
      status = ask_hook(a, (enum brim_hook)hook, 1, &out);
  }
  if (status == BRIM_EPLUGIN) brim_check_fail_short(c, word);
  const bool is_made = a->policies != NULL;
  free_asked(a);
  return status == BRIM_EPLUGIN ? BRIM_TRIAL_FAILED : is_made ? BRIM_TRIAL_DONE : BRIM_TRIAL_REFUSED;
}

const brim_check_kind brim_policy_checks[] = {{"create", check_create},
                                              {"choose_device", check_device},
                                              {"choose_plan", check_plan},
                                              {"on_oom", check_oom},
                                              {"on_boundary", check_boundary},
                                              {"on_step", check_step},
                                              {"settles", check_settles},
                                              {"repeats", check_repeats, true},
                                              {"memory", check_leaks, true},
                                              BRIM_CHECK_PARAMETERS(try_word),
                                              {NULL}};
