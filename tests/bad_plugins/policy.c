/* A policy that misbehaves as $BRIM_BAD says: "on_step:loop:2" loops when on_step is called after step 2 or later.
 * Without the variable, it decides nothing. The bad dataset and the bad model use the same syntax. */
#include <sys/wait.h>
#include <unistd.h>

#include "bad.h"

/* Reports that it has run. It stands for the exit handler of a library that is unloaded afterwards. */
static void on_exit_called(void)
{
  fputs("a handler of exit() has run\n", stderr);
}

static brim_status create(const void *params, void **self)
{
  (void)params;
  if (bad_is("on_boundary", "exit")) atexit(on_exit_called);
  *self = calloc(1, 16);
  return bad_in("create", 0);
}

static void destroy(void *self)
{
  (void)bad_in("destroy", 0);
  free(self);
}

static void endless(char *reason)
{
  memset(reason, 'x', BRIM_REASON_BYTES);
}

static brim_status choose_device(void *self, const brim_device_query *q, brim_place *out)
{
  (void)self;
  out->kind = BRIM_PLACE_DEVICE;
  if (bad_is("choose_device", "kind")) out->kind = 77;
  if (bad_is("choose_device", "device")) out->device = (int32_t)q->count;
  if (bad_is("choose_device", "negative")) out->device = -1;
  if (bad_is("choose_device", "tiny")) out->limit_bytes = 1;
  if (bad_is("choose_device", "reason")) endless(out->reason);
  return bad_names("choose_device") ? bad_in("choose_device", 0) : BRIM_ENOTSUP;
}

/* Makes a chosen plan wrong in the way that $BRIM_BAD names. */
static void spoil(const char *hook, const brim_plan_query *q, brim_plan_choice *plan)
{
  plan->micro_batch = q->micro_batch[q->micro_batch_count - 1];
  if (bad_is(hook, "zero")) plan->micro_batch = 0;
  if (bad_is(hook, "odd")) plan->micro_batch = q->effective_batch + 1;
  if (bad_is(hook, "precision")) plan->precision = 9;
  if (bad_is(hook, "model")) plan->model = "no_such_model";
  if (bad_is(hook, "wild")) plan->model = (const char *)16;
  if (bad_is(hook, "reason")) endless(plan->reason);
  if (bad_is(hook, "latin")) brim_reason(plan->reason, "caf\xe9");
}

/* Starts a child and waits for its end; abstains from the decision. */
static brim_status fork_child(brim_plan_choice *out)
{
  int status = 0;
  const pid_t child = fork();
  if (child < 0) return brim_fail(BRIM_EDEVICE, "no child could be made");
  if (child == 0 && bad_is("choose_plan", "child_exits")) exit(0);
  if (child == 0 && bad_is("choose_plan", "child_crashes")) *bad_pointer = 1;
  if (child == 0) return BRIM_OK;
  waitpid(child, &status, 0);
  memset(out, 0, sizeof *out);
  return BRIM_ENOTSUP;
}

static brim_status choose_plan(void *self, const brim_plan_query *q, brim_plan_choice *out)
{
  uint64_t bytes;
  (void)self;
  if (!bad_names("choose_plan")) return BRIM_ENOTSUP;
  spoil("choose_plan", q, out);
  if (bad_is("choose_plan", "null")) return q->peak(q, q->micro_batch[0], NULL);
  if (bad_is("choose_plan", "foreign")) return q->peak(q, 12345, &bytes);
  if (bad_is("choose_plan", "child_exits") || bad_is("choose_plan", "child_crashes") ||
      bad_is("choose_plan", "child_returns"))
    return fork_child(out);
  while (bad_is("choose_plan", "asks")) (void)q->peak(q, q->micro_batch[0], &bytes);
  return bad_in("choose_plan", 0);
}

static brim_status on_oom(void *self, const brim_oom *event, brim_action *out)
{
  (void)self;
  if (!bad_names("on_oom")) return BRIM_ENOTSUP;
  out->kind = bad_is("on_oom", "kind") ? 77 : BRIM_ACT_PLAN;
  spoil("on_oom", &event->plan, &out->plan);
  if (bad_is("on_oom", "again")) out->plan.micro_batch = event->micro_batch;
  return bad_in("on_oom", 0);
}

static brim_status on_boundary(void *self, const brim_memory_view *memory, brim_boundary *out)
{
  (void)self;
  if (!bad_names("on_boundary") || memory->step < bad_from()) return BRIM_ENOTSUP;
  if (bad_is("on_boundary", "kind")) out->cleanup = 77;
  if (bad_is("on_boundary", "reason")) endless(out->reason);
  return bad_in("on_boundary", memory->step);
}

/* A valid decision: it changes the plan only after half a minute has passed on both clocks. */
static brim_status step_rarely(const brim_step_view *view, brim_step_plan *out)
{
  static double looked, clock;
  const double passed = view->seconds - looked, by_clock = brim_policy_clock() - clock;
  if (passed >= 0 && (passed < 30 || by_clock < 30)) return BRIM_ENOTSUP;
  looked = view->seconds;
  clock = brim_policy_clock();
  out->micro_batch = view->choice[view->micro_batch == view->choice[0] ? view->choice_count - 1 : 0];
  brim_reason(out->reason, "to and fro");
  return BRIM_OK;
}

/* A valid decision: it reports its view once, five steps after the first call. */
static brim_status report_view(const brim_step_view *view, brim_step_plan *out)
{
  static double first = -1;
  static int64_t first_step;
  size_t users = 0;
  if (first < 0) {
    first = view->seconds;
    first_step = view->step;
  }
  if (view->step < first_step + 5) return BRIM_ENOTSUP;
  BRIM_TRY(view->users(view, 0, NULL, 0, &users));
  brim_reason(out->reason, "step %.9f, with all else %.9f, users %zu", view->step_seconds,
              (view->seconds - first) / (double)(view->step - first_step), users);
  first = view->seconds;
  first_step = view->step;
  return BRIM_OK;
}

static brim_status on_step(void *self, const brim_step_view *view, brim_step_plan *out)
{
  (void)self;
  if (!bad_names("on_step") || view->step < bad_from()) return BRIM_ENOTSUP;
  if (bad_is("on_step", "rarely")) return step_rarely(view, out);
  if (bad_is("on_step", "view")) return report_view(view, out);
  if (bad_is("on_step", "odd")) out->micro_batch = 12345;
  if (bad_is("on_step", "lanes")) {
    out->micro_batch = view->micro_batch;
    out->lanes = view->lanes_max + 1;
  }
  if (bad_is("on_step", "reason")) endless(out->reason);
  return bad_in("on_step", view->step);
}

static const brim_policy_ops ops = {.size = sizeof ops,
                                    .choose_device = choose_device,
                                    .choose_plan = choose_plan,
                                    .on_oom = on_oom,
                                    .on_boundary = on_boundary,
                                    .on_step = on_step};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_POLICY,
                                   .id = "bad",
                                   .help = "behaves as badly as a test says",
                                   .create = create,
                                   .destroy = destroy,
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("bad-policy", "1.0", plugins)
