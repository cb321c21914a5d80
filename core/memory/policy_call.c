#include "memory/policy_call.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "base/alloc.h"
#include "base/error.h"
#include "memory/policies.h"

#define SHOWN_BYTES 16384 /* bytes of a query's devices, micro-batches, demands and names, with each at its maximum */

/* A call, shared by both threads. */
typedef struct call {
  const brim_plugin *plugin;
  const void *params;
  void *self;
  enum brim_hook hook;
  union {
    brim_device_query device;
    brim_plan_query plan;
    brim_oom oom;
    brim_memory_view memory;
    brim_step_view step;
  } query;
  _Alignas(max_align_t) char shown[SHOWN_BYTES]; /* the data that the query's pointers lead to */
  size_t shown_bytes;
  union {
    brim_place place;
    brim_plan_choice plan;
    brim_action action;
    brim_boundary boundary;
    brim_step_plan step;
  } out;
  char model[BRIM_OPTION_BYTES];
  const char *reason;          /* the reason in `out`, which is reported */
  const brim_plan_query *plan; /* the caller's query, which answers the policy's callbacks */
  const brim_step_view *step;
  brim_policy_host host;
  bool is_direct; /* the policy's questions are answered on the policies' thread */
} call;

struct brim_policy_caller {
  brim_guard *guard;
  bool is_direct;
  call call;
};

/* ---- hooks ---- */

/* The hook's function in a policy's table, and the sizes of its query and its answer. */
static const struct {
  const char *name;
  size_t offset, query_bytes, out_bytes;
} hooks[] = {
#define HOOK(function) #function, offsetof(brim_policy_ops, function)
    [BRIM_HOOK_DEVICE] = {HOOK(choose_device), sizeof(brim_device_query), sizeof(brim_place)},
    [BRIM_HOOK_PLAN] = {HOOK(choose_plan), sizeof(brim_plan_query), sizeof(brim_plan_choice)},
    [BRIM_HOOK_OOM] = {HOOK(on_oom), sizeof(brim_oom), sizeof(brim_action)},
    [BRIM_HOOK_BOUNDARY] = {HOOK(on_boundary), sizeof(brim_memory_view), sizeof(brim_boundary)},
    [BRIM_HOOK_STEP] = {HOOK(on_step), sizeof(brim_step_view), sizeof(brim_step_plan)},
#undef HOOK
};

const char *brim_hook_name(enum brim_hook hook)
{
  return hooks[hook].name;
}

bool brim_policy_has(const brim_plugin *policy, enum brim_hook hook)
{
  const brim_policy_ops *ops = policy->ops;
  void (*function)(void);
  if (ops->size < hooks[hook].offset + sizeof function) return false;
  memcpy(&function, (const char *)ops + hooks[hook].offset, sizeof function);
  return function != NULL;
}

/* ---- questions of a policy: numbers pass through memory of our own, as its pointers may be invalid ---- */

static brim_status back(const call *c, brim_guard_work work, void *context)
{
  return c->is_direct ? brim_guard_here(work, context) : brim_guard_back(work, context);
}

static brim_status check_place(const void *out, const char *what)
{
  return out ? BRIM_OK : brim_fail(BRIM_EINVAL, "%s was called with a NULL pointer for its answer", what);
}

typedef struct ask_peak {
  const call *c;
  int64_t micro_batch;
  uint64_t within, bytes;
} ask_peak;

static brim_status answer_peak(void *context)
{
  ask_peak *a = context;
  return a->c->plan->peak(a->c->plan, a->micro_batch, &a->bytes);
}
static brim_status peak(const brim_plan_query *q, int64_t micro_batch, uint64_t *bytes)
{
  ask_peak a = {.c = ((const brim_policy_host *)q->host)->self, .micro_batch = micro_batch};
  BRIM_TRY(check_place(bytes, "peak"));
  BRIM_TRY(back(a.c, answer_peak, &a));
  *bytes = a.bytes;
  return BRIM_OK;
}

typedef struct ask_peak_of {
  const call *c;
  brim_step_plan plan;
  uint64_t bytes;
} ask_peak_of;

static brim_status answer_peak_of(void *context)
{
  ask_peak_of *a = context;
  return a->c->step->peak_of(a->c->step, &a->plan, &a->bytes);
}
static brim_status peak_of(const brim_step_view *view, const brim_step_plan *plan, uint64_t *bytes)
{
  ask_peak_of a = {.c = view->host};
  BRIM_TRY(check_place(plan, "peak_of"));
  BRIM_TRY(check_place(bytes, "peak_of"));
  a.plan = *plan;
  BRIM_TRY(back(a.c, answer_peak_of, &a));
  *bytes = a.bytes;
  return BRIM_OK;
}

static brim_status answer_peak_within(void *context)
{
  ask_peak *a = context;
  return a->c->step->peak_within(a->c->step, a->micro_batch, a->within, &a->bytes);
}
static brim_status peak_within(const brim_step_view *view, int64_t micro_batch, uint64_t within, uint64_t *bytes)
{
  ask_peak a = {.c = view->host, .micro_batch = micro_batch, .within = within};
  BRIM_TRY(check_place(bytes, "peak_within"));
  BRIM_TRY(back(a.c, answer_peak_within, &a));
  *bytes = a.bytes;
  return BRIM_OK;
}

typedef struct ask_figures {
  const brim_plan_query *query;
  int64_t micro_batch;
  int32_t precision;
  brim_plan_figures *out; /* the result of brim_plan_figures_of */
} ask_figures;

static brim_status answer_figures(void *context)
{
  const ask_figures *a = context;
  const brim_policy_host *host = a->query->host;
  return host->figures(a->query, a->micro_batch, a->precision, a->out);
}
static brim_status figures(const brim_plan_query *q, int64_t micro_batch, int32_t precision, brim_plan_figures *out)
{
  const call *c = ((const brim_policy_host *)q->host)->self;
  ask_figures a = {c->plan, micro_batch, precision, out};
  return back(c, answer_figures, &a);
}

typedef struct ask_look {
  const brim_step_view *view;
  brim_device_view device;
  uint64_t room;
} ask_look;

static brim_status answer_look(void *context)
{
  ask_look *a = context;
  return a->view->look(a->view, &a->device, &a->room);
}
static brim_status look_at_device(const brim_step_view *view, brim_device_view *device, uint64_t *room)
{
  const call *c = view->host;
  ask_look a = {.view = c->step};
  BRIM_TRY(check_place(device && room ? device : NULL, "look"));
  BRIM_TRY(back(c, answer_look, &a));
  *device = a.device;
  *room = a.room;
  return BRIM_OK;
}

typedef struct ask_users {
  const brim_step_view *view;
  int32_t device;
  size_t count;
  brim_device_use use[BRIM_DEVICE_USES_MAX];
} ask_users;

static brim_status answer_users(void *context)
{
  ask_users *a = context;
  return a->view->users(a->view, a->device, a->use, BRIM_DEVICE_USES_MAX, &a->count);
}
static brim_status users(const brim_step_view *view, int32_t device, brim_device_use *out, size_t room, size_t *count)
{
  const call *c = view->host;
  ask_users a = {.view = c->step, .device = device};
  BRIM_TRY(check_place(count && (out || room == 0) ? count : NULL, "users"));
  BRIM_TRY(back(c, answer_users, &a));
  memcpy(out, a.use, (a.count < room ? a.count : room) * sizeof *out);
  *count = a.count;
  return BRIM_OK;
}

/* ---- its query: all copied, as a policy that was abandoned may read it when the caller's data are gone ---- */

static const void *show(call *c, const void *data, size_t bytes)
{
  char *copy = c->shown + c->shown_bytes;
  if (!data) return NULL;
  c->shown_bytes += brim_round_up(bytes, _Alignof(max_align_t));
  assert(c->shown_bytes <= sizeof c->shown);
  return memcpy(copy, data, bytes);
}

/* Cuts a text that is longer than any name of a device or model. */
static const char *show_text(call *c, const char *text)
{
  char name[256];
  if (!text) return NULL;
  snprintf(name, sizeof name, "%s", text);
  return show(c, name, strlen(name) + 1);
}

static const brim_demands *show_demands(call *c, const brim_demands *own)
{
  if (!own) return NULL;
  brim_demands demands = *own;
  demands.device = show_text(c, own->device);
  return show(c, &demands, sizeof demands);
}

static void take_device_query(call *c, brim_device_query *query)
{
  query->demands = show_demands(c, query->demands);
  query->device = show(c, query->device, query->count * sizeof *query->device);
}

static void take_plan_query(call *c, brim_plan_query *query, const brim_plan_query *own)
{
  c->plan = own;
  c->host = (brim_policy_host){figures, c};
  query->demands = show_demands(c, own->demands);
  query->device = show(c, own->device, sizeof *own->device);
  query->micro_batch = show(c, own->micro_batch, own->micro_batch_count * sizeof *own->micro_batch);
  query->model = show_text(c, own->model);
  query->peak = peak;
  query->host = &c->host;
}

static void take_step_view(call *c, brim_step_view *view, const brim_step_view *own)
{
  c->step = own;
  view->demands = show_demands(c, own->demands);
  view->choice = show(c, own->choice, own->choice_count * sizeof *own->choice);
  view->look = look_at_device;
  view->peak_within = peak_within;
  view->users = users;
  view->peak_of = peak_of;
  view->host = c;
}

static void take_query(call *c, const void *query)
{
  const brim_oom *event = query;
  memcpy(&c->query, query, hooks[c->hook].query_bytes);
  if (c->hook == BRIM_HOOK_DEVICE) take_device_query(c, &c->query.device);
  if (c->hook == BRIM_HOOK_PLAN) take_plan_query(c, &c->query.plan, query);
  if (c->hook == BRIM_HOOK_OOM) take_plan_query(c, &c->query.oom.plan, &event->plan);
  if (c->hook == BRIM_HOOK_OOM) take_device_query(c, &c->query.oom.devices);
  if (c->hook == BRIM_HOOK_STEP) take_step_view(c, &c->query.step, query);
}

/* ---- its answers ---- */

/* Copies the model's name on the policies' thread, where an invalid pointer crashes under the guard. */
static void take_model(call *c, brim_plan_choice *plan)
{
  if (!plan->model) return;
  snprintf(c->model, sizeof c->model, "%.*s", (int)sizeof c->model - 1, plan->model);
  plan->model = c->model;
}

static brim_status ask_hook(void *context)
{
  call *c = context;
  const brim_policy_ops *ops = c->plugin->ops;
  brim_action *action = &c->out.action;
  brim_status status = BRIM_ENOTSUP;
  switch (c->hook) {
  case BRIM_HOOK_DEVICE:
    status = ops->choose_device(c->self, &c->query.device, &c->out.place);
    c->reason = c->out.place.reason;
    break;
  case BRIM_HOOK_PLAN:
    status = ops->choose_plan(c->self, &c->query.plan, &c->out.plan);
    c->reason = c->out.plan.reason;
    if (status == BRIM_OK) take_model(c, &c->out.plan);
    break;
  case BRIM_HOOK_OOM:
    status = ops->on_oom(c->self, &c->query.oom, action);
    c->reason = action->kind == BRIM_ACT_PLAN    ? action->plan.reason
                : action->kind == BRIM_ACT_PLACE ? action->place.reason
                                                 : action->reason;
    if (status == BRIM_OK && action->kind == BRIM_ACT_PLAN) take_model(c, &action->plan);
    break;
  case BRIM_HOOK_BOUNDARY:
    status = ops->on_boundary(c->self, &c->query.memory, &c->out.boundary);
    c->reason = c->out.boundary.reason;
    break;
  case BRIM_HOOK_STEP:
    status = ops->on_step(c->self, &c->query.step, &c->out.step);
    c->reason = c->out.step.reason;
    break;
  }
  return status;
}

/* ---- calling ---- */

static brim_status run(brim_policy_caller *caller, const brim_config_choice *policy, const char *function,
                       brim_guard_work work)
{
  const brim_plugin_call about = {policy, function, work == ask_hook};
  return brim_plugin_run(caller->guard, &about, work, &caller->call);
}

void brim_policy_caller_answer_there(brim_policy_caller *caller)
{
  caller->is_direct = true;
}

brim_status brim_policy_ask(brim_policy_caller *caller, const brim_config_choice *policy, void *self,
                            enum brim_hook hook, const void *query, void *out)
{
  call *c = &caller->call;
  memset(out, 0, hooks[hook].out_bytes);
  if (!brim_policy_has(policy->plugin, hook)) return BRIM_ENOTSUP;
  if (brim_guard_is_lost(caller->guard)) return brim_fail(BRIM_EPLUGIN, "no policy can be asked any more");
  memset(c, 0, sizeof *c);
  c->plugin = policy->plugin;
  c->self = self;
  c->hook = hook;
  c->is_direct = caller->is_direct;
  take_query(c, query);
  BRIM_TRY(run(caller, policy, hooks[hook].name, ask_hook));
  if (!memchr(c->reason, '\0', BRIM_REASON_BYTES))
    return brim_fail(BRIM_EPLUGIN,
                     "%s returned an unterminated reason from %s: it must end with a NUL within its %d bytes\nwrite it "
                     "with brim_reason()",
                     policy->group, hooks[hook].name, BRIM_REASON_BYTES);
  memcpy(out, &c->out, hooks[hook].out_bytes);
  return BRIM_OK;
}

static brim_status create(void *context)
{
  call *c = context;
  return c->plugin->create(c->params, &c->self);
}

brim_status brim_policy_create(brim_policy_caller *caller, const brim_config_choice *policy, void **self)
{
  *self = policy->params;
  if (!policy->plugin->create) return BRIM_OK;
  caller->call = (call){.plugin = policy->plugin, .params = policy->params, .self = policy->params};
  BRIM_TRY(run(caller, policy, "create", create));
  *self = caller->call.self;
  return BRIM_OK;
}

static brim_status destroy(void *context)
{
  const call *c = context;
  c->plugin->destroy(c->self);
  return BRIM_OK;
}

/* Preserves the thread's error text, which the caller may still have to print. */
void brim_policy_destroy(brim_policy_caller *caller, const brim_config_choice *policy, void *self)
{
  brim_error before;
  if (!policy->plugin->destroy || brim_guard_is_lost(caller->guard)) return;
  caller->call = (call){.plugin = policy->plugin, .self = self};
  brim_error_take(&before);
  if (run(caller, policy, "destroy", destroy) != BRIM_OK) brim_log(BRIM_LOG_WARN, "%s", brim_error_text());
  brim_error_put(&before);
}

/* ---- beginning and end ---- */

brim_status brim_policy_caller_open(brim_policy_caller **out)
{
  brim_policy_caller *caller = brim_xcalloc(1, sizeof *caller);
  const brim_status status = brim_guard_open(&caller->guard);
  if (status != BRIM_OK)
    free(caller);
  else
    *out = caller;
  return status;
}

void brim_policy_caller_close(brim_policy_caller *caller)
{
  if (!caller || brim_guard_is_lost(caller->guard)) return; /* an abandoned thread still uses it */
  brim_guard_close(caller->guard);
  if (!brim_guard_any_lost()) free(caller);
}
