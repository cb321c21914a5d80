#include "memory/policies.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/utf8.h"
#include "memory/policy_call.h"

typedef struct brim_kept_decision {
  struct brim_kept_decision *next;
  brim_decision decision;
} kept_decision;

struct brim_policies {
  const brim_config_choice *choice[BRIM_CHOICES_MAX];
  void *self[BRIM_CHOICES_MAX];
  size_t count;
  brim_policy_caller *caller; /* NULL: there are no policies */
  const char *decider;
  brim_decision_fn listen;
  void *context;
  brim_decisions kept;
};

/* Removes an incomplete character from the end. */
static void cut_at_character(char *text, size_t length)
{
  const char *end = text + length, *s = end - 1;
  while (s > text && end - s < 4 && ((unsigned char)*s & 0xc0) == 0x80) s--;
  char *last = text + (s - text);
  if (brim_utf8_next(&s, end) < 0) *last = '\0';
}

void brim_reason(char *reason, const char *format, ...)
{
  va_list list;
  va_start(list, format);
  const int length = vsnprintf(reason, BRIM_REASON_BYTES, format, list);
  va_end(list);
  if (length >= BRIM_REASON_BYTES) cut_at_character(reason, BRIM_REASON_BYTES - 1);
}

/* The caller of policies sets it and the policies read it; only one of the two runs at a time. */
static const double *simulated_clock;

void brim_policy_clock_follow(const double *seconds)
{
  simulated_clock = seconds;
}

double brim_policy_clock(void)
{
  return simulated_clock ? *simulated_clock : brim_wall_now();
}

/* Checks that policies that limit memory come before those that decide. */
static brim_status check_order(const brim_policies *p)
{
  for (size_t i = 1; i < p->count; i++) {
    const brim_policy_ops *ops = p->choice[i]->plugin->ops;
    if (ops->size < offsetof(brim_policy_ops, limits) + sizeof ops->limits || !ops->limits) continue;
    for (size_t k = 0; k < i; k++)
      if (brim_policy_has(p->choice[k]->plugin, BRIM_HOOK_DEVICE))
        return brim_fail(BRIM_ECONFIG,
                         "policy '%s' limits a run's memory, but '%s' is listed before it and would decide "
                         "first\nwrite policy=[%s,%s]",
                         p->choice[i]->plugin->id, p->choice[k]->plugin->id, p->choice[i]->plugin->id,
                         p->choice[k]->plugin->id);
  }
  return BRIM_OK;
}

brim_status brim_policies_open(const brim_config *config, brim_decisions before, brim_policies **out)
{
  brim_policies *p = brim_xcalloc(1, sizeof *p);
  brim_status status = BRIM_OK;
  p->kept = before;
  for (size_t i = 0; i < config->choice_count && status == BRIM_OK; i++) {
    const brim_config_choice *choice = &config->choice[i];
    if (choice->plugin->kind != BRIM_POLICY) continue;
    void *self = NULL;
    if (!p->caller) status = brim_policy_caller_open(&p->caller);
    if (status == BRIM_OK) status = brim_policy_create(p->caller, choice, &self);
    if (status != BRIM_OK) {
      brim_fail_add(status, "while creating policy '%s'", choice->plugin->id);
      break;
    }
    p->choice[p->count] = choice;
    p->self[p->count++] = self;
  }
  if (status == BRIM_OK) status = check_order(p);
  if (status != BRIM_OK) {
    brim_policies_close(p);
    return status;
  }
  *out = p;
  return BRIM_OK;
}

void brim_policies_close(brim_policies *p)
{
  if (!p) return;
  for (size_t i = 0; i < p->count; i++) brim_policy_destroy(p->caller, p->choice[i], p->self[i]);
  brim_policy_caller_close(p->caller);
  brim_arena_release(&p->kept.arena);
  free(p);
}

void brim_policies_answer_there(brim_policies *p)
{
  if (p->caller) brim_policy_caller_answer_there(p->caller);
}

brim_decisions brim_policies_take_decisions(brim_policies *p)
{
  const brim_decisions taken = p->kept;
  p->kept = (brim_decisions){0};
  return taken;
}

/* ---- reporting ---- */

void brim_policies_listen(brim_policies *p, brim_decision_fn listen, void *context)
{
  p->listen = listen;
  p->context = context;
  brim_decisions all = brim_policies_take_decisions(p);
  for (const kept_decision *kept = all.first; kept; kept = kept->next) listen(context, &kept->decision);
  brim_arena_release(&all.arena);
}

/* Passes the decision to the listener; if there is no listener yet, keeps the decision. */
static void pass_on(brim_policies *p, const brim_decision *d)
{
  if (p->listen) {
    p->listen(p->context, d);
    return;
  }
  brim_decisions *all = &p->kept;
  kept_decision *kept = BRIM_ARENA_NEW(&all->arena, kept_decision, 1);
  kept->decision = (brim_decision){.policy = brim_arena_string(&all->arena, d->policy),
                                   .choice = brim_arena_string(&all->arena, d->choice),
                                   .reason = brim_arena_string(&all->arena, d->reason),
                                   .action = d->action ? brim_arena_string(&all->arena, d->action) : NULL};
  if (d->sight) {
    brim_sight *sight = brim_arena_copy(&all->arena, d->sight, sizeof *d->sight);
    sight->device = brim_arena_string(&all->arena, sight->device);
    if (sight->detail) sight->detail = brim_arena_string(&all->arena, sight->detail);
    kept->decision.sight = sight;
  }
  if (all->last)
    all->last->next = kept;
  else
    all->first = kept;
  all->last = kept;
}

static void report(brim_policies *p, enum brim_level level, const brim_decision *d)
{
  p->decider = d->policy;
  brim_log(level, "%s: %s%s%s", d->policy, d->choice, d->reason[0] ? ": " : "", d->reason);
  pass_on(p, d);
}

static void report_decision(brim_policies *p, enum brim_level level, const char *decider, const char *choice,
                            const char *reason)
{
  report(p, level, &(brim_decision){.policy = decider, .choice = choice, .reason = reason});
}

void brim_policies_show(brim_policies *p, const brim_sight *sight)
{
  const brim_decision d = {.policy = "", .choice = "", .reason = "", .sight = sight};
  pass_on(p, &d);
}

const char *brim_policies_decider(const brim_policies *p)
{
  return p->decider;
}

void brim_policies_report(brim_policies *p, const char *decider, const char *choice, const char *reason)
{
  report_decision(p, BRIM_LOG_INFO, decider, choice, reason);
}

void brim_policies_report_recovery(brim_policies *p, const char *action, const char *choice, const char *reason)
{
  report(p, BRIM_LOG_INFO,
         &(brim_decision){.policy = "recovery", .choice = choice, .reason = reason, .action = action});
}

/* ---- asking ---- */

/* Asks the policies in order until one decides: *decider is then its choice (with the name (*decider)->group,
 * "policy.robust"), and `out` its decision. */
static brim_status ask_policy(const brim_policies *p, enum brim_hook hook, const void *query, void *out,
                              const brim_config_choice **decider)
{
  for (size_t i = 0; i < p->count; i++) {
    *decider = p->choice[i];
    const brim_status status = brim_policy_ask(p->caller, *decider, p->self[i], hook, query, out);
    if (status == BRIM_ENOTSUP) continue;
    if (status != BRIM_OK && status != BRIM_EPLUGIN)
      return brim_fail_add(status, "decided by policy '%s'", (*decider)->plugin->id);
    return status;
  }
  return BRIM_ENOTSUP;
}

/* Whether any policy has the hook. */
static bool any_has(const brim_policies *p, enum brim_hook hook)
{
  for (size_t i = 0; i < p->count; i++)
    if (brim_policy_has(p->choice[i]->plugin, hook)) return true;
  return false;
}

/* ---- devices ---- */

static brim_status take_place(brim_policies *p, const brim_config_choice *decider, const brim_device_query *q,
                              const brim_place *place)
{
  char bytes[32];
  brim_text text = {0};
  if (place->kind < BRIM_PLACE_DEVICE || place->kind > BRIM_PLACE_HOST)
    return brim_fail(BRIM_ECONFIG, "%s returned an unknown place kind %d", decider->group, place->kind);
  if (place->kind == BRIM_PLACE_DEVICE && (place->device < 0 || (size_t)place->device >= q->count))
    return brim_fail(BRIM_ECONFIG, "%s chose device %d of %zu", decider->group, place->device, q->count);
  if (place->kind == BRIM_PLACE_DEVICE)
    brim_text_add(&text, q->device[place->device].name);
  else
    brim_text_add(&text, place->kind == BRIM_PLACE_WAIT ? "waits for any device" : "the host's processors");
  if (place->limit_bytes > 0)
    brim_text_printf(&text, ", at most %s", brim_format_bytes(bytes, sizeof bytes, place->limit_bytes));
  report_decision(p, BRIM_LOG_INFO, decider->group, brim_text_str(&text), place->reason);
  brim_text_release(&text);
  return BRIM_OK;
}

brim_status brim_policies_choose_device(brim_policies *p, const brim_device_query *query, brim_place *out)
{
  const brim_config_choice *decider;
  BRIM_TRY(ask_policy(p, BRIM_HOOK_DEVICE, query, out, &decider));
  return take_place(p, decider, query, out);
}

/* ---- plans ---- */

static bool is_listed(const brim_plan_query *q, int64_t micro_batch)
{
  for (size_t i = 0; i < q->micro_batch_count; i++)
    if (q->micro_batch[i] == micro_batch) return true;
  return false;
}

brim_status brim_plan_figures_of(const brim_plan_query *q, int64_t micro_batch, int32_t precision,
                                 brim_plan_figures *out)
{
  const brim_policy_host *host = q->host;
  brim_plan_figures all = {.size = out->size};
  const uint32_t bytes = out->size < sizeof all ? out->size : (uint32_t)sizeof all;
  const bool found = is_listed(q, micro_batch);
  if (!found || precision <= BRIM_AS_IT_IS || precision > BRIM_TAKE_FP16 || !(q->precisions >> precision & 1))
    return brim_fail(BRIM_EINVAL, "figures of micro-batch %lld in precision %d were requested: %s",
                     (long long)micro_batch, precision,
                     found ? "the backend has no such precision" : "the micro-batch is not in the list");
  BRIM_TRY(host->figures(q, micro_batch, precision, &all));
  memcpy(out, &all, bytes);
  return BRIM_OK;
}

static brim_status take_plan(brim_policies *p, const brim_config_choice *decider, const brim_plan_query *q,
                             const brim_plan_choice *plan)
{
  if (!is_listed(q, plan->micro_batch))
    return brim_fail(
        BRIM_ECONFIG,
        "%s chose the micro-batch %lld, which is not allowed: micro-batches divide the effective batch %lld, range "
        "from %lld down to %lld, and respect training.grain, training.norm_group and min_batch_size",
        decider->group, (long long)plan->micro_batch, (long long)q->effective_batch, (long long)q->micro_batch[0],
        (long long)q->micro_batch[q->micro_batch_count - 1]);
  const bool known = plan->precision >= BRIM_AS_IT_IS && plan->precision <= BRIM_TAKE_FP16;
  if (!known || (plan->precision != BRIM_AS_IT_IS && !(q->precisions >> plan->precision & 1)))
    return brim_fail(BRIM_ECONFIG, "%s chose a precision that the backend does not have: %s", decider->group,
                     known ? brim_precision_names[plan->precision - 1] : "unknown");
  if (!q->may_change_variant && (plan->precision != BRIM_AS_IT_IS || plan->model))
    return brim_fail(BRIM_ECONFIG, "%s chose another precision or model, which is possible only before the first step",
                     decider->group);
  brim_text text = {0};
  brim_text_printf(&text, "micro-batch %lld x %lld", (long long)plan->micro_batch,
                   (long long)((q->effective_batch + plan->micro_batch - 1) / plan->micro_batch));
  if (plan->precision != BRIM_AS_IT_IS)
    brim_text_printf(&text, ", precision %s", brim_precision_names[plan->precision - 1]);
  if (plan->model) brim_text_printf(&text, ", model %s", plan->model);
  report_decision(p, BRIM_LOG_INFO, decider->group, brim_text_str(&text), plan->reason);
  brim_text_release(&text);
  return BRIM_OK;
}

brim_status brim_policies_choose_plan(brim_policies *p, const brim_plan_query *query, brim_plan_choice *out)
{
  const brim_config_choice *decider;
  BRIM_TRY(ask_policy(p, BRIM_HOOK_PLAN, query, out, &decider));
  return take_plan(p, decider, query, out);
}

/* ---- out of memory ---- */

brim_status brim_policies_on_oom(brim_policies *p, const brim_oom *event, brim_action *out)
{
  const brim_config_choice *decider;
  BRIM_TRY(ask_policy(p, BRIM_HOOK_OOM, event, out, &decider));
  if (out->kind == BRIM_ACT_PLAN) return take_plan(p, decider, &event->plan, &out->plan);
  if (out->kind == BRIM_ACT_PLACE && event->devices.demands->stays)
    return brim_fail(BRIM_ECONFIG, "%s chose another device, but the run has a memory limit on %s and must stay there",
                     decider->group, event->devices.demands->device);
  if (out->kind == BRIM_ACT_PLACE) return take_place(p, decider, &event->devices, &out->place);
  if (out->kind != BRIM_ACT_GIVE_UP)
    return brim_fail(BRIM_ECONFIG, "%s returned an unknown action kind %d", decider->group, out->kind);
  report_decision(p, BRIM_LOG_INFO, decider->group, "gives up", out->reason);
  return BRIM_OK;
}

/* ---- boundaries ---- */

bool brim_policies_watch(const brim_policies *p)
{
  return any_has(p, BRIM_HOOK_BOUNDARY);
}

brim_status brim_policies_on_boundary(brim_policies *p, const brim_memory_view *memory, brim_boundary *out)
{
  static const char *const names[] = {"no cleanup", "light cleanup", "heavy cleanup"};
  const brim_config_choice *decider;
  BRIM_TRY(ask_policy(p, BRIM_HOOK_BOUNDARY, memory, out, &decider));
  if (out->cleanup < BRIM_CLEAN_NONE || out->cleanup > BRIM_CLEAN_HEAVY)
    return brim_fail(BRIM_ECONFIG, "%s returned an unknown cleanup kind %d", decider->group, out->cleanup);
  report_decision(p, out->warn ? BRIM_LOG_WARN : BRIM_LOG_INFO, decider->group, names[out->cleanup], out->reason);
  return BRIM_OK;
}

/* ---- steps ---- */

bool brim_policies_follow(const brim_policies *p)
{
  return any_has(p, BRIM_HOOK_STEP);
}

brim_status brim_policies_on_step(brim_policies *p, const brim_step_view *view, brim_step_plan *out,
                                  const char **decider)
{
  const brim_config_choice *choice;
  BRIM_TRY(ask_policy(p, BRIM_HOOK_STEP, view, out, &choice));
  *decider = choice->group;
  bool found = out->micro_batch == 0;
  for (size_t i = 0; i < view->choice_count; i++) found = found || view->choice[i] == out->micro_batch;
  if (out->lanes < 0 || out->lanes > view->lanes_max)
    return brim_fail(BRIM_ECONFIG, "%s chose %d clients at a time after step %lld, where at most %d are allowed",
                     *decider, (int)out->lanes, (long long)view->step, (int)view->lanes_max);
  if (found) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG,
                   "%s chose the micro-batch %lld after step %lld, which is not one of the allowed micro-batches",
                   *decider, (long long)out->micro_batch, (long long)view->step);
}
