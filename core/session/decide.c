/* Queries to the policies, made of a session. See decide.h. */
#include "session/decide.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "base/text.h"
#include "brim/host.h"
#include "memory/choose.h"
#include "planner/cuts.h"
#include "planner/figures.h"
#include "planner/footprint.h"
#include "planner/room.h"
#include "session/sights.h"
#include "store/record.h"

#define DEVICES_MAX BRIM_CLAIM_DEVICES_MAX /* that policies are shown */
#define CHANGES_MAX 4                      /* configurations that policies may ask for, one after another */
#define DECISIONS_MAX 64 /* about out-of-memory, before a first step, and then until what failed is done */

/* ---- views ---- */

typedef struct views {
  brim_device_view device[DEVICES_MAX];
  brim_device_query query;
  brim_arena arena;
} views;

/* Runs in line that would take a device. */
static int32_t count_waiting(const brim_ticket *ticket, size_t count, uint64_t key)
{
  int32_t waiting = 0;
  for (size_t i = 0; i < count; i++) waiting += ticket[i].device < 0 && brim_ticket_accepts(&ticket[i], key);
  return waiting;
}

uint64_t brim_decide_device_key(const brim_session *s)
{
  const int devices = s->setup->backend_ops->device_count(s->setup->backend);
  return brim_device_key(brim_setup_backend_id(s->setup), s->planner.device, devices, &s->planner.device_info);
}

static void view_device(const brim_session *s, int device, const brim_device_info *info, brim_device_view *out)
{
  *out = (brim_device_view){.total_bytes = info->total_bytes,
                            .free_bytes = info->free_bytes,
                            .is_shared = brim_device_is_shared(info),
                            .on_host = info->on_host,
                            .tried = device < DEVICES_MAX ? (int32_t)(s->tried >> device & 1) : 0};
  snprintf(out->name, sizeof out->name, "%s:%d", brim_setup_backend_id(s->setup), device);
}

void brim_decide_view_device(const brim_session *s, brim_device_view *out)
{
  view_device(s, s->planner.device, &s->planner.device_info, out);
}

static brim_status look_at_devices(brim_session *s, const char *question, views *v)
{
  const brim_backend_ops *ops = s->setup->backend_ops;
  brim_ticket *ticket = NULL;
  size_t tickets = 0;
  bool listed = false;
  int count = ops->device_count(s->setup->backend);
  if (count < 1)
    return brim_fail(BRIM_ENODEVICE, "backend '%s' has no device on this host", brim_setup_backend_id(s->setup));
  if (count > DEVICES_MAX) count = DEVICES_MAX;
  for (int i = 0; i < count; i++) {
    brim_device_info info = {0};
    brim_device_view *d = &v->device[i];
    BRIM_TRY(ops->describe(s->setup->backend, i, &info));
    view_device(s, i, &info, d);
    if (d->is_shared && !listed) BRIM_TRY(s->env->tickets(s->env->self, &v->arena, &ticket, &tickets));
    listed = listed || d->is_shared;
    d->waiting = count_waiting(ticket, tickets, brim_device_key(brim_setup_backend_id(s->setup), i, count, &info));
    if (question) brim_session_show_device(s, question, d, 0, 0);
  }
  v->query = (brim_device_query){sizeof v->query, &s->demands, v->device, (size_t)count};
  return BRIM_OK;
}

/* ---- another configuration ---- */

BRIM_PRINTF(2, 3)
static void ask_again(brim_session *s, const char *format, ...)
{
  va_list list;
  char text[256];
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  s->again.word[s->again.count++] = brim_arena_string(&s->arena, text);
}

/* A limit on the host's own device is the user's (backend.memory_mb): the way to its processors does not get around it.
 */
static bool is_limited_host(const brim_session *s)
{
  return s->planner.device_info.on_host && s->planner.device_info.limited;
}

static brim_status refuse_host(brim_status status)
{
  return brim_fail_add(status, "the host's processors cannot help: this device is on the host already, and "
                               "backend.memory_mb limits it");
}

static brim_status go_to_host(brim_session *s)
{
  if (is_limited_host(s))
    return refuse_host(brim_fail(BRIM_ENODEVICE, "no device has room, and a policy asks for the host's processors"));
  if (s->setup->options.resume)
    return brim_fail(BRIM_ENODEVICE, "the run was begun on backend '%s': it cannot go on with the host's processors",
                     brim_setup_backend_id(s->setup));
  if (s->running && s->setup->backend_ops->real != BRIM_DTYPE_F32)
    return brim_fail(BRIM_ENODEVICE,
                     "a run that has begun in double precision cannot go on with the host's processors");
  if (s->changes >= CHANGES_MAX)
    return brim_fail(BRIM_ECONFIG, "policies have asked for %d other configurations, one after another", s->changes);
  ask_again(s, "backend=cpu");
  ask_again(s, "device=cpu");
  return brim_fail(BRIM_ENODEVICE, "the host's processors are asked for");
}

/* ---- devices ---- */

/* What the session wants from now on. */
static brim_status take_place(brim_session *s, const views *v, const brim_place *place)
{
  if (place->kind == BRIM_PLACE_HOST) return go_to_host(s);
  s->planner.waits = s->planner.waits || place->kind == BRIM_PLACE_WAIT;
  s->planner.limit_bytes = place->limit_bytes;
  snprintf(s->wanted, sizeof s->wanted, "%s",
           place->kind == BRIM_PLACE_DEVICE ? v->device[place->device].name : s->asked_device);
  if (place->kind != BRIM_PLACE_DEVICE || place->limit_bytes == 0) return BRIM_OK;
  s->demands.device = s->wanted;
  s->demands.stays = 1;
  return BRIM_OK;
}

/* The device that $GPU_DEVICE_ID names is the user's, for policies too; "cpu" is the name of the first. */
static brim_status name_device(brim_session *s, const views *v)
{
  const brim_device_wish wish = {s->demands.device, s->setup->settings->auto_device, 0};
  int named;
  BRIM_TRY(brim_device_named(brim_setup_backend_id(s->setup), s->setup->backend_ops, s->setup->backend, &wish, &named));
  if (named >= 0 && (size_t)named < v->query.count)
    s->demands.device = brim_arena_string(&s->arena, v->device[named].name);
  return BRIM_OK;
}

brim_status brim_decide_device(brim_session *s)
{
  views v = {.arena = {0}};
  brim_place place;
  brim_status status = look_at_devices(s, "device", &v);
  if (status == BRIM_OK) status = name_device(s, &v);
  if (status == BRIM_OK) {
    status = brim_policies_choose_device(s->policies, &v.query, &place);
    if (status == BRIM_ENOTSUP)
      status = BRIM_OK;
    else if (status == BRIM_OK)
      status = take_place(s, &v, &place);
  }
  brim_arena_release(&v.arena);
  return status;
}

/* What the policies would say if the user named this device. */
static brim_device_limit limit_on(const brim_session *s, views *v, int device)
{
  brim_demands demands = s->demands;
  brim_place place;
  demands.device = v->device[device].name;
  v->query.demands = &demands;
  const brim_status status = brim_policies_choose_device(s->policies, &v->query, &place);
  v->query.demands = &s->demands;
  if (status == BRIM_ENOTSUP) return (brim_device_limit){true, 0};
  const bool there =
      status == BRIM_OK && place.kind != BRIM_PLACE_HOST && (place.kind != BRIM_PLACE_DEVICE || place.device == device);
  return (brim_device_limit){there, there ? place.limit_bytes : 0};
}

brim_status brim_decide_limits(brim_session *s, brim_device_limit *out, int count)
{
  views v = {.arena = {0}};
  const brim_status status = look_at_devices(s, NULL, &v);
  for (int i = 0; i < count && status == BRIM_OK; i++) {
    out[i] = (brim_device_limit){true, s->planner.limit_bytes};
    if (i != s->planner.device && (size_t)i < v.query.count) out[i] = limit_on(s, &v, i);
  }
  brim_arena_release(&v.arena);
  return status;
}

/* ---- plans ---- */

/* Of the plan of a micro-batch of the list. */
static brim_status peak_of(brim_session *s, int64_t micro_batch, uint64_t *bytes)
{
  const brim_choice c = brim_choice_cut(&s->choice, micro_batch);
  for (size_t i = 0; i < s->planner.micro_batch_count; i++)
    if (s->planner.micro_batch[i] == micro_batch) return brim_planner_peak(&s->planner, &c, bytes);
  return brim_fail(BRIM_EINVAL, "the peak of the micro-batch %lld was asked for, which is not in the list",
                   (long long)micro_batch);
}

static brim_session *session_of(const brim_plan_query *q)
{
  const brim_policy_host *host = q->host;
  return host->session;
}

/* ENOTSUP would leave it to the next policy. */
static brim_status as_answer(brim_status status)
{
  return status == BRIM_ENOTSUP ? BRIM_ECONFIG : status;
}

static brim_status answer_peak(const brim_plan_query *q, int64_t micro_batch, uint64_t *bytes)
{
  brim_session *s = session_of(q);
  BRIM_TRY(as_answer(peak_of(s, micro_batch, bytes)));
  brim_session_show_plan(s, "plan", micro_batch, *bytes);
  return BRIM_OK;
}

static brim_status answer_figures(const brim_plan_query *q, int64_t micro_batch, int32_t precision,
                                  brim_plan_figures *out)
{
  brim_session *s = session_of(q);
  brim_figures f;
  brim_choice v = brim_choice_cut(&s->choice, micro_batch);
  v.precision = precision - 1;
  BRIM_TRY(as_answer(brim_planner_figures(&s->planner, &v, &f)));
  *out = (brim_plan_figures){.size = sizeof *out,
                             .basis = f.basis,
                             .peak_bytes = f.peak_bytes,
                             .step_seconds = f.step_seconds,
                             .recompute_share = f.recompute_share,
                             .rounds = brim_setup_rounds(s->setup, micro_batch)};
  if (v.precision == s->choice.precision) brim_session_show_figures(s, "plan", micro_batch, out);
  return BRIM_OK;
}

static bool chooses_precision(const brim_session *s)
{
  return s->setup->settings->precision == BRIM_PRECISION_AUTO;
}

/* The user's micro-batch, or all that the rank has of a step; 0: auto. */
static int64_t set_batch(const brim_session *s)
{
  const int64_t set = s->setup->settings->training.batch_size, share = brim_setup_share(s->setup);
  if (set <= 0) return 0;
  return share > 0 && set > share ? share : set;
}

static brim_plan_query query_of(brim_session *s, const views *v)
{
  const int64_t share = brim_setup_share(s->setup);
  const bool may_change = !s->setup->options.resume && !s->running && s->changes < CHANGES_MAX;
  uint64_t all = 0;
  for (size_t i = 0; i < v->query.count; i++) all += v->device[i].total_bytes;
  s->host = (brim_policy_host){answer_figures, s};
  return (brim_plan_query){.size = sizeof(brim_plan_query),
                           .demands = &s->demands,
                           .device = &v->device[s->planner.device < DEVICES_MAX ? s->planner.device : 0],
                           .room_bytes = brim_planner_room(&s->planner, false),
                           .later_bytes = brim_planner_room(&s->planner, true),
                           .all_bytes = all,
                           .effective_batch = share > 0 ? share : s->choice.micro_batch,
                           .batch_size = set_batch(s),
                           .micro_batch = s->planner.micro_batch,
                           .micro_batch_count = s->planner.micro_batch_count,
                           .may_change_variant = may_change,
                           .precisions = brim_setup_precisions(s->setup) << 1,
                           .precision = chooses_precision(s) && may_change ? BRIM_AS_IT_IS : s->choice.precision + 1,
                           .model = brim_config_choice_of(s->setup->config, "model")->plugin->id,
                           .peak = answer_peak,
                           .host = &s->host};
}

/* What precision=auto comes to where no policy chooses. */
static int32_t settle_precision(brim_session *s)
{
  brim_policies_tell(s->policies, "precision=auto", "precision fp32", "as no policy chooses another");
  return s->choice.precision + 1;
}

/* Takes a choice; what needs another configuration is in s->again. */
static void take_plan(brim_session *s, const brim_plan_query *q, const brim_plan_choice *plan)
{
  int32_t precision = plan->precision;
  if (chooses_precision(s) && precision == BRIM_AS_IT_IS) precision = settle_precision(s);
  if (precision != BRIM_AS_IT_IS && precision != q->precision)
    ask_again(s, "precision=%s", brim_precision_names[precision - 1]);
  if (plan->model && strcmp(plan->model, q->model) != 0) ask_again(s, "model=%s", plan->model);
  if (s->again.count == 0) brim_session_cut(s, plan->micro_batch);
  if (s->again.count > 0 && !plan->model && chooses_precision(s)) s->decided_batch = plan->micro_batch;
}

/* The micro-batch that a run began with, for bits that depend on it: of its plan.json, or as the ranks have agreed. 0:
 * not known, or there were more ranks. */
static int64_t read_kept_batch(const brim_session *s)
{
  char path[4200];
  if (s->setup->world.ranks > 1) return s->setup->deal.batch ? s->setup->deal.batch[s->setup->world.rank] : 0;
  snprintf(path, sizeof path, "%s/plan.json", s->setup->options.resume);
  json_t *plan = brim_json_load(path, 0, NULL);
  const int64_t batch = json_integer_value(json_object_get(plan, "batch_size"));
  const bool is_alone = !json_object_get(plan, "ranks");
  json_decref(plan);
  return is_alone ? batch : 0;
}

/* Is it one of the list, and is there room for it? */
static bool fits(brim_session *s, int64_t batch)
{
  uint64_t peak = 0;
  return peak_of(s, batch, &peak) == BRIM_OK && peak <= brim_planner_room(&s->planner, true);
}

static brim_status choose_plan(brim_session *s, views *v)
{
  brim_plan_choice plan;
  const int64_t set = set_batch(s);
  const int64_t kept = s->setup->options.resume && !s->asked ? read_kept_batch(s) : 0;
  const int64_t decided = s->decided_batch > 0 ? s->decided_batch : kept;
  s->decided_batch = 0;
  if (decided > 0 && fits(s, decided)) {
    brim_session_cut(s, decided);
    return BRIM_OK;
  }
  const brim_plan_query q = query_of(s, v);
  const brim_status status = brim_policies_choose_plan(s->policies, &q, &plan);
  if (status == BRIM_OK) {
    take_plan(s, &q, &plan);
    return BRIM_OK;
  }
  if (status != BRIM_ENOTSUP) return status;
  if (set > 0) {
    plan = (brim_plan_choice){.micro_batch = set};
    take_plan(s, &q, &plan);
    return BRIM_OK;
  }
  return brim_fail(BRIM_ECONFIG, "training.batch_size=auto, and none of the policies chooses a micro-batch\n"
                                 "add one that does: policy+=auto_plan");
}

static brim_status decide_plan(brim_session *s)
{
  views v = {.arena = {0}};
  if (brim_planner_list_cuts(&s->planner) == 0)
    return brim_fail(BRIM_ECONFIG, "no micro-batch of up to %lld samples divides training.effective_batch_size %lld",
                     (long long)BRIM_MICRO_BATCH_MAX, (long long)s->setup->settings->training.effective_batch_size);
  brim_session_show_run(s);
  brim_status status = look_at_devices(s, "plan", &v);
  if (status == BRIM_OK) status = choose_plan(s, &v);
  brim_arena_release(&v.arena);
  return status;
}

/* Before something is chosen by the room that there is: what the process takes besides the arena, by the smallest
 * micro-batch, as loaders of larger ones take more. */
static brim_status foresee(brim_session *s)
{
  brim_planner *planner = &s->planner;
  const bool is_chosen = set_batch(s) == 0 || s->choice.recompute == BRIM_RECOMPUTE_AUTO;
  const size_t count = !is_chosen || planner->model || s->running ? 0 : brim_planner_list_cuts(planner);
  brim_plan *plan = NULL;
  if (count == 0) return BRIM_OK;
  const brim_choice c = brim_choice_cut(&s->choice, planner->micro_batch[count - 1]);
  BRIM_TRY(brim_planner_plan(planner, &c, true, &plan));
  const brim_status status = brim_planner_foresee(planner, plan, c.micro_batch);
  brim_plan_free(plan);
  return status;
}

brim_status brim_session_settle(brim_session **session)
{
  for (;;) {
    BRIM_TRY(foresee(*session));
    BRIM_TRY(decide_plan(*session));
    if (!brim_session_asks(*session)) return BRIM_OK;
    BRIM_TRY(brim_session_remake(session));
  }
}

/* ---- out of memory ---- */

/* To the device of the decision, and a plan for it. */
static brim_status move(brim_session *s, views *v, const brim_place *place)
{
  int device;
  if (s->planner.device < DEVICES_MAX) s->tried |= UINT64_C(1) << s->planner.device;
  BRIM_TRY(take_place(s, v, place));
  device = place->kind == BRIM_PLACE_DEVICE ? place->device : s->planner.device;
  BRIM_TRY(brim_session_move(s, device));
  s->retries = 0;
  return choose_plan(s, v);
}

static brim_status act(brim_session *s, views *v, const brim_oom *event, const brim_action *action)
{
  if (action->kind == BRIM_ACT_PLACE) return move(s, v, &action->place);
  s->retries += event->needed_bytes <= event->room_bytes; /* else no memory was asked for */
  take_plan(s, &event->plan, &action->plan);
  return s->again.count > 0 ? BRIM_ENODEVICE : BRIM_OK;
}

bool brim_decide_is_want(const brim_session *s, brim_status status)
{
  return status == BRIM_ENOMEM_DEVICE || status == BRIM_EBUDGET || (status == BRIM_ENODEVICE && !s->planner.waits);
}

/* The event, and the policies' answer to it: ENOTSUP if no policy decides, the decision is to give up, or *refused. */
static brim_status ask(brim_session *s, views *v, uint64_t needed, bool *refused)
{
  brim_action action;
  BRIM_TRY(brim_planner_look(&s->planner));
  BRIM_TRY(look_at_devices(s, "oom", v));
  brim_session_show_plan(s, "oom", s->choice.micro_batch, needed);
  if (++s->asked > DECISIONS_MAX) return BRIM_ENOTSUP;
  const brim_oom event = {.size = sizeof event,
                          .micro_batch = s->choice.micro_batch,
                          .needed_bytes = needed,
                          .room_bytes = brim_planner_room(&s->planner, true),
                          .retries = s->retries,
                          .plan = query_of(s, v),
                          .devices = v->query,
                          .device = s->planner.device};
  BRIM_TRY(brim_policies_on_oom(s->policies, &event, &action));
  *refused = action.kind == BRIM_ACT_PLACE && action.place.kind == BRIM_PLACE_HOST && is_limited_host(s);
  if (action.kind == BRIM_ACT_GIVE_UP || *refused) return BRIM_ENOTSUP;
  return act(s, v, &event, &action);
}

brim_status brim_decide_after_oom(brim_session *s, brim_status failure, uint64_t needed)
{
  views v = {.arena = {0}};
  char text[4096];
  snprintf(text, sizeof text, "%s", brim_error_text());
  if (brim_planner_list_cuts(&s->planner) == 0) return failure;
  bool refused = false;
  const brim_status status = ask(s, &v, needed, &refused);
  brim_arena_release(&v.arena);
  if (status != BRIM_ENOTSUP) return status;
  (void)brim_fail(failure, "%s", text);
  return refused ? refuse_host(failure) : failure;
}

/* ---- boundaries ---- */

static brim_memory_view view_of(brim_session *s, int64_t step, int64_t round, bool is_end, uint64_t planned)
{
  uint64_t process = 0;
  const brim_host_memory host = s->env->host(s->env->self, &process);
  return (brim_memory_view){.size = sizeof(brim_memory_view),
                            .step = step,
                            .round = round,
                            .is_end = is_end,
                            .host_total_bytes = host.total_bytes,
                            .host_available_bytes = host.available_bytes,
                            .process_bytes = process,
                            .device_total_bytes = s->planner.device_info.total_bytes,
                            .device_free_bytes = s->planner.device_info.free_bytes,
                            .device_planned_bytes = planned};
}

/* What the policies say; ENOTSUP: nothing. Nothing is looked at, and nothing allocated, if none of them would. */
static brim_status ask_at_boundary(brim_session *s, int64_t step, int64_t round, bool is_end, uint64_t planned,
                                   brim_boundary *out)
{
  if (!brim_policies_watch(s->policies)) return BRIM_ENOTSUP;
  BRIM_TRY(brim_planner_look(&s->planner));
  const brim_memory_view view = view_of(s, step, round, is_end, planned);
  brim_device_view device;
  brim_decide_view_device(s, &device);
  brim_session_show_device(s, "round", &device, planned, 0);
  brim_session_show_host(s, "round", &view);
  return brim_policies_on_boundary(s->policies, &view, out);
}

brim_status brim_decide_at_boundary(brim_session *s, int64_t step, int64_t round, bool is_end, uint64_t planned,
                                    enum brim_cleanup *out)
{
  brim_boundary boundary;
  const int64_t every = s->setup->settings->training.clear_cache_every_n_rounds;
  *out = BRIM_CLEAN_NONE;
  const brim_status status = ask_at_boundary(s, step, round, is_end, planned, &boundary);
  if (status == BRIM_OK) *out = (enum brim_cleanup)boundary.cleanup;
  if (status != BRIM_ENOTSUP) return status;
  if (every == 0 || is_end || round % every != 0) return BRIM_OK;
  *out = BRIM_CLEAN_LIGHT;
  brim_policies_tell(s->policies, "training.clear_cache_every_n_rounds", "light cleanup", "");
  return BRIM_OK;
}
