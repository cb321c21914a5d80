#include "decide/step_question.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "planner/room.h"

/* ---- queries of a policy ---- */

static brim_step_question *question_of(const brim_step_view *view)
{
  return view->host;
}

uint64_t brim_step_plan_room(const brim_step_question *q)
{
  const brim_planner *p = q->dialogue->planner;
  return brim_planner_room_on(p, &p->device_info, p->limit_bytes, p->device_info.free_bytes + q->own_bytes);
}

/* The device as last examined. */
static void view_device(const brim_step_question *q, const brim_step_view *view, brim_device_view *out)
{
  const brim_planner *p = q->dialogue->planner;
  brim_dialogue_view(q->dialogue, p->device, &p->device_info, out);
  out->waiting = view->waiting;
}

static void show(brim_step_question *q, const brim_device_view *d, uint64_t waiting_bytes)
{
  q->shown_free = d->free_bytes;
  q->shown_own = q->own_bytes;
  brim_dialogue_show_device(q->dialogue, "step", d, q->own_bytes, waiting_bytes);
}

/* On a shared device some value changes between any two looks, so brim records only changes of more than a hundredth of
 * the total. */
static bool has_changed(const brim_step_question *q, const brim_device_view *d)
{
  const uint64_t now = d->free_bytes, then = q->shown_free;
  return q->own_bytes != q->shown_own || (now > then ? now - then : then - now) > d->total_bytes / 100;
}

/* Records values on which a policy bases a decision, even if they have hardly changed. */
static void show_decided(brim_step_question *q, const brim_step_view *view)
{
  brim_device_view device;
  view_device(q, view, &device);
  if (device.free_bytes != q->shown_free) show(q, &device, view->waiting_bytes);
}

static brim_status look_at_device(const brim_step_view *view, brim_device_view *device, uint64_t *room)
{
  brim_step_question *q = question_of(view);
  BRIM_TRY(brim_planner_look(q->dialogue->planner));
  view_device(q, view, device);
  *room = brim_step_plan_room(q);
  if (has_changed(q, device)) show(q, device, view->waiting_bytes);
  return BRIM_OK;
}

/* Returns the dialogue's choice with the micro-batch and the lanes of an answer. */
static brim_choice cut(const brim_dialogue *d, const brim_step_plan *plan)
{
  brim_choice c = brim_choice_cut(&d->choice, plan->micro_batch);
  if (plan->lanes > 0) c.lanes = plan->lanes;
  return c;
}

static brim_status peak_with(const brim_dialogue *d, const brim_step_plan *plan, int32_t recompute, uint64_t budget,
                             uint64_t *peak)
{
  brim_choice c = cut(d, plan);
  c.recompute = recompute;
  c.within_bytes = brim_planner_within(d->planner, budget);
  return brim_planner_peak(d->planner, &c, peak);
}

/* Computes the peak of a plan with memory.recompute as configured: auto stays within `bytes`, or, if that is 0, within
 * all available memory; other settings ignore `bytes`. */
static brim_status plain_peak(brim_step_question *q, const brim_step_plan *plan, uint64_t bytes, uint64_t *peak)
{
  const int64_t batch = plan->micro_batch;
  const brim_dialogue *d = q->dialogue;
  const brim_planner *p = d->planner;
  const int32_t kind = p->setup->settings->memory.recompute;
  size_t i = 0;
  while (i < p->micro_batch_count && p->micro_batch[i] != batch) i++;
  if (i == p->micro_batch_count)
    return brim_fail(BRIM_EINVAL, "policy asks for the peak of micro-batch %lld, which is not in the list",
                     (long long)batch);
  if (kind == BRIM_RECOMPUTE_AUTO) return peak_with(d, plan, kind, bytes > 0 ? bytes : brim_step_plan_room(q), peak);
  BRIM_TRY(peak_with(d, plan, kind, 0, peak));
  if (plan->lanes > 0) return BRIM_OK; /* recordings have no lanes */
  if (q->shown_peak[i] != *peak) brim_dialogue_show_plan(d, "step", batch, *peak);
  q->shown_peak[i] = *peak;
  return BRIM_OK;
}

static bool needs_more_recompute(const brim_setup *setup, uint64_t peak, uint64_t bytes)
{
  return bytes > 0 && peak > bytes && setup->settings->memory.recompute != BRIM_RECOMPUTE_AUTO &&
         brim_setup_may_recompute(setup);
}

static brim_status peak_of(const brim_step_view *view, const brim_step_plan *plan, uint64_t *peak)
{
  brim_step_question *q = question_of(view);
  const int32_t lanes_max = brim_planner_lanes(q->dialogue->planner);
  if (plan->lanes < 0 || plan->lanes > lanes_max)
    return brim_fail(BRIM_EINVAL, "policy asks for the peak of %d clients at a time, where at most %d are allowed",
                     (int)plan->lanes, (int)lanes_max);
  brim_status status = plain_peak(q, plan, plan->within_bytes, peak);
  if (status == BRIM_OK && needs_more_recompute(q->dialogue->planner->setup, *peak, plan->within_bytes))
    status = peak_with(q->dialogue, plan, BRIM_RECOMPUTE_AUTO, plan->within_bytes, peak);
  return status == BRIM_ENOTSUP ? BRIM_ECONFIG : status; /* ENOTSUP would pass the question to the next policy */
}

static brim_status peak_within(const brim_step_view *view, int64_t batch, uint64_t bytes, uint64_t *peak)
{
  return peak_of(view, &(brim_step_plan){.micro_batch = batch, .within_bytes = bytes}, peak);
}

static brim_status users(const brim_step_view *view, int32_t device, brim_device_use *out, size_t room, size_t *count)
{
  const brim_setup *setup = question_of(view)->dialogue->planner->setup;
  const brim_backend_ops *ops = setup->backend_ops;
  brim_device_user user[BRIM_DEVICE_USES_MAX];
  *count = 0;
  if (device < 0 || device >= ops->device_count(setup->backend))
    return brim_fail(BRIM_ECONFIG, "there is no device %d to ask about", (int)device);
  if (!BRIM_HAS(brim_backend_ops, ops, users)) return BRIM_OK;
  BRIM_TRY(ops->users(setup->backend, device, user, BRIM_DEVICE_USES_MAX, count));
  for (size_t i = 0; i < *count && i < room && i < BRIM_DEVICE_USES_MAX; i++) {
    out[i] = (brim_device_use){.pid = user[i].pid, .bytes = user[i].bytes, .is_own = user[i].pid == (int64_t)getpid()};
    snprintf(out[i].name, sizeof out[i].name, "%s", user[i].name);
  }
  if (*count > BRIM_DEVICE_USES_MAX) *count = BRIM_DEVICE_USES_MAX;
  return BRIM_OK;
}

/* ---- asking ---- */

/* If the queue cannot be read, the run continues, because it does not need the queue. */
static void look_at_queue(brim_step_question *q, brim_step_view *view)
{
  size_t waiting;
  uint64_t bytes;
  const brim_dialogue *d = q->dialogue;
  const brim_planner *p = d->planner;
  const int devices = p->setup->backend_ops->device_count(p->setup->backend);
  if (!brim_device_is_shared(&p->device_info)) return;
  const uint64_t key = brim_device_key(brim_setup_backend_id(p->setup), p->device, devices, &p->device_info);
  if (d->env->waiting(d->env->self, key, &waiting, &bytes) == BRIM_OK) {
    view->waiting = (int32_t)waiting;
    view->waiting_bytes = bytes;
    return;
  }
  if (!q->is_warned)
    brim_log(BRIM_LOG_WARN, "cannot find out whether other runs wait for memory: %s", brim_error_text());
  q->is_warned = true;
}

/* Records the runs that begin or stop waiting; does not examine the device. */
static void show_line(brim_step_question *q, const brim_step_view *view)
{
  brim_device_view device;
  if (view->waiting_bytes == q->shown_waiting && view->waiting == q->shown_runs) return;
  q->shown_waiting = view->waiting_bytes;
  q->shown_runs = view->waiting;
  view_device(q, view, &device);
  brim_dialogue_show_device(q->dialogue, "line", &device, q->own_bytes, view->waiting_bytes);
}

brim_status brim_step_plan_ask(brim_step_question *q, int64_t step, double seconds, brim_step_plan *out,
                               const char **policy)
{
  brim_dialogue *d = q->dialogue;
  const brim_setup *setup = d->planner->setup;
  const size_t choices = brim_planner_list_cuts(d->planner);
  const int64_t share = brim_setup_share(setup), batch = d->choice.micro_batch;
  if (choices == 0) return BRIM_ENOTSUP;
  brim_step_view view = {.size = sizeof view,
                         .step = step,
                         .seconds = seconds,
                         .demands = &d->demands,
                         .planned_bytes = q->own_bytes,
                         .micro_batch = batch,
                         .effective_batch = share > 0 ? share : batch,
                         .grain = setup->grain,
                         .choice = d->planner->micro_batch,
                         .choice_count = choices,
                         .look = look_at_device,
                         .peak_within = peak_within,
                         .host = q,
                         .step_seconds = q->step_seconds,
                         .users = users,
                         .lanes = d->choice.lanes,
                         .lanes_max = brim_planner_lanes(d->planner),
                         .peak_of = peak_of};
  look_at_queue(q, &view);
  show_line(q, &view);
  const brim_status status = brim_policies_on_step(d->policies, &view, out, policy);
  if (status == BRIM_OK && q->shown_own > 0) show_decided(q, &view);
  return status;
}

/* ---- answers ---- */

/* Converts the answer to a choice. */
static brim_status find_choice(brim_step_question *q, const brim_step_plan *plan, brim_choice *out)
{
  uint64_t peak;
  const brim_dialogue *d = q->dialogue;
  const brim_setup *setup = d->planner->setup;
  const int32_t kind = setup->settings->memory.recompute;
  bool within = kind == BRIM_RECOMPUTE_AUTO && plan->within_bytes > 0;
  if (!within) {
    BRIM_TRY(plain_peak(q, plan, 0, &peak));
    within = needs_more_recompute(setup, peak, plan->within_bytes);
  }
  *out = cut(d, plan);
  out->recompute = within ? BRIM_RECOMPUTE_AUTO : kind;
  out->within_bytes = within ? brim_planner_within(d->planner, plan->within_bytes) : 0;
  return BRIM_OK;
}

brim_status brim_step_plan_choice(brim_step_question *q, const brim_step_plan *answer, brim_choice *choice,
                                  uint64_t *peak)
{
  const brim_step_view view = {.host = q};
  BRIM_TRY(find_choice(q, answer, choice));
  return peak_of(&view, answer, peak);
}

void brim_step_plan_log(const brim_step_question *q, const char *policy, const brim_choice *to, uint64_t after,
                        const char *reason)
{
  char choice[64], text[BRIM_REASON_BYTES + 128], bytes[32], change[96];
  const bool less = after < q->own_bytes;
  brim_format_bytes(bytes, sizeof bytes, less ? q->own_bytes - after : after - q->own_bytes);
  snprintf(choice, sizeof choice, "%s %s", bytes, less ? "given back" : "taken again");
  brim_choice_print_change(&q->dialogue->choice, to, change, sizeof change);
  snprintf(text, sizeof text, "%s%s, %s", change, to->within_bytes > 0 ? " with recompute" : "", reason);
  brim_policies_report(q->dialogue->policies, policy, choice, text);
}
