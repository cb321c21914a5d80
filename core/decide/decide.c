#include "decide/decide.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "brim/host.h"
#include "memory/choose.h"
#include "planner/figures.h"
#include "planner/footprint.h"
#include "planner/room.h"
#include "planner/taken.h"
#include "store/record.h"

#define DEVICES_MAX BRIM_CLAIM_DEVICES_MAX /* shown to policies */
#define CHANGES_MAX 4                      /* limit for configurations that policies may request in succession */
/* Limit for decisions about out-of-memory events, until the first step or the failed step succeeds. */
#define DECISIONS_MAX 64

/* ---- views ---- */

typedef struct views {
  brim_device_view device[DEVICES_MAX];
  brim_device_query query;
} views;

/* The number of waiting runs that would use a device. */
static int32_t count_waiting(const brim_ticket *ticket, size_t count, uint64_t key)
{
  int32_t waiting = 0;
  for (size_t i = 0; i < count; i++) waiting += ticket[i].device < 0 && brim_ticket_accepts(&ticket[i], key);
  return waiting;
}

static brim_status look_at_devices(const brim_dialogue *d, const char *question, views *v)
{
  const brim_setup *setup = d->planner->setup;
  const char *backend = brim_setup_backend_id(setup);
  brim_arena arena = {0};
  brim_ticket *ticket = NULL;
  brim_status status = BRIM_OK;
  size_t tickets = 0;
  bool listed = false;
  int count = setup->backend_ops->device_count(setup->backend);
  if (count < 1) return brim_fail(BRIM_ENODEVICE, "backend '%s' has no device on this host", backend);
  if (count > DEVICES_MAX) count = DEVICES_MAX;
  for (int i = 0; i < count && status == BRIM_OK; i++) {
    brim_device_info info = {0};
    brim_device_view *view = &v->device[i];
    status = setup->backend_ops->describe(setup->backend, i, &info);
    brim_dialogue_view(d, i, &info, view);
    if (view->is_shared && !listed && status == BRIM_OK)
      status = d->env->tickets(d->env->self, &arena, &ticket, &tickets);
    listed = listed || view->is_shared;
    view->waiting = count_waiting(ticket, tickets, brim_device_key(backend, i, count, &info));
    if (question && status == BRIM_OK) brim_dialogue_show_device(d, question, view, 0, 0);
  }
  v->query = (brim_device_query){sizeof v->query, &d->demands, v->device, (size_t)count};
  brim_arena_release(&arena);
  return status;
}

/* ---- another configuration ---- */

BRIM_PRINTF(2, 3)
static void ask_again(brim_dialogue *d, const char *format, ...)
{
  va_list list;
  char text[256];
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  d->again.word[d->again.count++] = brim_arena_string(&d->arena, text);
}

/* Whether the run's device is the host with a limit of the user (backend.memory_mb), which a move to the host's
 * processors must not circumvent. */
static bool is_limited_host(const brim_dialogue *d)
{
  return d->planner->device_info.on_host && d->planner->device_info.limited;
}

static brim_status refuse_host(brim_status status)
{
  return brim_fail_add(status, "the host's processors cannot help: this device is on the host already, and "
                               "backend.memory_mb limits it");
}

static brim_status go_to_host(brim_dialogue *d)
{
  if (is_limited_host(d))
    return refuse_host(brim_fail(BRIM_ENODEVICE, "no device has room, and a policy asks for the host's processors"));
  if (d->planner->setup->options.resume)
    return brim_fail(BRIM_ENODEVICE, "the run started on backend '%s': it cannot continue on the host's processors",
                     brim_setup_backend_id(d->planner->setup));
  if (d->has_begun && d->planner->setup->backend_ops->real != BRIM_DTYPE_F32)
    return brim_fail(BRIM_ENODEVICE, "a run that started in double precision cannot continue on the host's processors");
  if (d->changes >= CHANGES_MAX)
    return brim_fail(BRIM_ECONFIG, "policies have asked for %d other configurations, one after another", d->changes);
  ask_again(d, "backend=cpu");
  ask_again(d, "device=cpu");
  return brim_fail(BRIM_ENODEVICE, "a policy asked for the host's processors");
}

/* ---- devices ---- */

/* Carries out the decision: the run requests this device from now on. */
static brim_status take_place(brim_dialogue *d, const views *v, const brim_place *place)
{
  if (place->kind == BRIM_PLACE_HOST) return go_to_host(d);
  d->planner->waits = d->planner->waits || place->kind == BRIM_PLACE_WAIT;
  d->planner->limit_bytes = place->limit_bytes;
  snprintf(d->wanted, sizeof d->wanted, "%s",
           place->kind == BRIM_PLACE_DEVICE ? v->device[place->device].name : d->asked_device);
  if (place->kind != BRIM_PLACE_DEVICE || place->limit_bytes == 0) return BRIM_OK;
  d->demands.device = d->wanted;
  d->demands.stays = 1;
  return BRIM_OK;
}

/* $GPU_DEVICE_ID also applies to policies' decisions; "cpu" names the first device. */
static brim_status name_device(brim_dialogue *d, const views *v)
{
  const brim_device_wish wish = {d->demands.device, d->planner->setup->settings->auto_device, 0};
  int named;
  BRIM_TRY(brim_device_named(brim_setup_backend_id(d->planner->setup), d->planner->setup->backend_ops,
                             d->planner->setup->backend, &wish, &named));
  if (named >= 0 && (size_t)named < v->query.count)
    d->demands.device = brim_arena_string(&d->arena, v->device[named].name);
  return BRIM_OK;
}

/* If ranks of a host may use any device, each takes one, in turn. */
static const char *device_of_rank(brim_dialogue *d)
{
  const brim_setup *setup = d->planner->setup;
  const char *device = setup->settings->device, *environment = getenv("GPU_DEVICE_ID"),
             *own = getenv(BRIM_SHARE_DEVICE);
  const int count = setup->backend_ops->device_count(setup->backend);
  if (setup->world.local_ranks < 2 || count < 2 || strcmp(device, "auto") != 0 || (environment && environment[0]))
    return device;
  if (brim_setup_is_isolated(setup) && own && own[0]) return brim_arena_string(&d->arena, own);
  return brim_arena_printf(&d->arena, "%s:%d", brim_setup_backend_id(setup), (int)setup->world.local_rank % count);
}

/* A device on the host with a limit of the user needs at most that limit free, unless the command line sets
 * min_gpu_memory_mb, because a preset's value is meant for GPUs. */
static brim_status read_least(const brim_setup *setup, uint64_t *bytes)
{
  brim_device_info first = {0};
  const brim_yaml *node = brim_yaml_get_path(setup->config->root, "min_gpu_memory_mb");
  const bool is_typed = node && node->origin.text;
  *bytes = setup->settings->min_gpu_memory_mb << 20;
  if (*bytes == 0 || is_typed || setup->backend_ops->device_count(setup->backend) < 1) return BRIM_OK;
  BRIM_TRY(setup->backend_ops->describe(setup->backend, 0, &first));
  if (first.on_host && first.limited && first.total_bytes < *bytes) *bytes = first.total_bytes;
  return BRIM_OK;
}

brim_status brim_decide_device(brim_dialogue *d)
{
  brim_planner *p = d->planner;
  const brim_setup *setup = p->setup;
  const brim_settings *set = setup->settings;
  views v;
  brim_place place;
  uint64_t least;
  BRIM_TRY(read_least(setup, &least));
  d->asked_device = device_of_rank(d);
  d->demands = (brim_demands){.device = d->asked_device,
                              .wait = set->wait_for_gpu,
                              .min_device_bytes = least,
                              .min_batch_size = set->min_batch_size,
                              .max_retries = set->max_retries};
  p->waits = set->wait_for_gpu;
  snprintf(d->wanted, sizeof d->wanted, "%s", d->asked_device);
  brim_status status = look_at_devices(d, "device", &v);
  if (status == BRIM_OK) status = name_device(d, &v);
  const brim_status asked =
      status == BRIM_OK ? brim_policies_choose_device(d->policies, &v.query, &place) : BRIM_ENOTSUP;
  if (asked != BRIM_ENOTSUP) status = asked == BRIM_OK ? take_place(d, &v, &place) : asked;
  BRIM_TRY(status);
  brim_device_wish wish = brim_dialogue_wish(d);
  if (p->waits) wish.min_bytes = 0;
  return brim_device_choose(brim_setup_backend_id(setup), setup->backend_ops, setup->backend, &wish, &p->device,
                            &p->device_info);
}

/* Returns the limit that the policies would set if the user named this device. */
static brim_device_limit limit_on(const brim_dialogue *d, views *v, int device)
{
  brim_demands demands = d->demands;
  brim_place place;
  demands.device = v->device[device].name;
  v->query.demands = &demands;
  const brim_status status = brim_policies_choose_device(d->policies, &v->query, &place);
  v->query.demands = &d->demands;
  if (status == BRIM_ENOTSUP) return (brim_device_limit){true, 0};
  const bool there =
      status == BRIM_OK && place.kind != BRIM_PLACE_HOST && (place.kind != BRIM_PLACE_DEVICE || place.device == device);
  return (brim_device_limit){there, there ? place.limit_bytes : 0};
}

brim_status brim_decide_limits(brim_dialogue *d, brim_device_limit *out, int count)
{
  views v;
  const brim_status status = look_at_devices(d, NULL, &v);
  for (int i = 0; i < count && status == BRIM_OK; i++) {
    out[i] = (brim_device_limit){true, d->planner->limit_bytes};
    if (i != d->planner->device && (size_t)i < v.query.count) out[i] = limit_on(d, &v, i);
  }
  return status;
}

/* ---- plans ---- */

/* Returns the peak of the plan of a micro-batch in the list. */
static brim_status peak_of(brim_dialogue *d, int64_t micro_batch, uint64_t *bytes)
{
  const brim_choice c = brim_choice_cut(&d->choice, micro_batch);
  for (size_t i = 0; i < d->planner->micro_batch_count; i++)
    if (d->planner->micro_batch[i] == micro_batch) return brim_planner_peak(d->planner, &c, bytes);
  return brim_fail(BRIM_EINVAL, "policy asks for the peak of micro-batch %lld, which is not in the list",
                   (long long)micro_batch);
}

static brim_dialogue *dialogue_of(const brim_plan_query *q)
{
  const brim_policy_host *host = q->host;
  return host->self;
}

/* Converts ENOTSUP, which would pass the question to the next policy. */
static brim_status as_answer(brim_status status)
{
  return status == BRIM_ENOTSUP ? BRIM_ECONFIG : status;
}

static brim_status answer_peak(const brim_plan_query *q, int64_t micro_batch, uint64_t *bytes)
{
  brim_dialogue *d = dialogue_of(q);
  BRIM_TRY(as_answer(peak_of(d, micro_batch, bytes)));
  brim_dialogue_show_plan(d, "plan", micro_batch, *bytes);
  return BRIM_OK;
}

static brim_status answer_figures(const brim_plan_query *q, int64_t micro_batch, int32_t precision,
                                  brim_plan_figures *out)
{
  brim_dialogue *d = dialogue_of(q);
  brim_figures f;
  brim_choice v = brim_choice_cut(&d->choice, micro_batch);
  v.precision = precision - 1;
  BRIM_TRY(as_answer(brim_planner_figures(d->planner, &v, &f)));
  *out = (brim_plan_figures){.size = sizeof *out,
                             .basis = f.basis,
                             .peak_bytes = f.peak_bytes,
                             .step_seconds = f.step_seconds,
                             .recompute_share = f.recompute_share,
                             .rounds = brim_setup_rounds(d->planner->setup, micro_batch)};
  if (v.precision == d->choice.precision) brim_dialogue_show_figures(d, "plan", micro_batch, out);
  return BRIM_OK;
}

static bool chooses_precision(const brim_dialogue *d)
{
  return d->planner->setup->settings->precision == BRIM_PRECISION_POLICY;
}

/* Returns the user's micro-batch, or the rank's whole share of a step; 0: auto. */
static int64_t set_batch(const brim_dialogue *d)
{
  const int64_t set = d->planner->setup->settings->training.batch_size, share = brim_setup_share(d->planner->setup);
  if (set <= 0) return 0;
  return share > 0 && set > share ? share : set;
}

static brim_plan_query query_of(brim_dialogue *d, const views *v)
{
  const int64_t share = brim_setup_share(d->planner->setup);
  const bool may_change = !d->planner->setup->options.resume && !d->has_begun && d->changes < CHANGES_MAX;
  uint64_t all = 0;
  for (size_t i = 0; i < v->query.count; i++) all += v->device[i].total_bytes;
  d->host = (brim_policy_host){answer_figures, d};
  return (brim_plan_query){.size = sizeof(brim_plan_query),
                           .demands = &d->demands,
                           .device = &v->device[d->planner->device < DEVICES_MAX ? d->planner->device : 0],
                           .room_bytes = brim_planner_room(d->planner, false),
                           .later_bytes = brim_planner_room(d->planner, true),
                           .all_bytes = all,
                           .effective_batch = share > 0 ? share : d->choice.micro_batch,
                           .batch_size = set_batch(d),
                           .micro_batch = d->planner->micro_batch,
                           .micro_batch_count = d->planner->micro_batch_count,
                           .may_change_variant = may_change,
                           .precisions = brim_setup_precisions(d->planner->setup) << 1,
                           .precision = chooses_precision(d) && may_change ? BRIM_AS_IT_IS : d->choice.precision + 1,
                           .model = brim_config_choice_of(d->planner->setup->config, "model")->plugin->id,
                           .peak = answer_peak,
                           .host = &d->host};
}

static void cut(brim_dialogue *d, int64_t batch)
{
  d->choice.micro_batch = brim_setup_limit_batch(d->planner->setup, batch);
}

/* Adopts the chosen plan; if it needs another configuration, sets d->again. */
static void take_plan(brim_dialogue *d, const brim_plan_query *q, const brim_plan_choice *plan)
{
  int32_t precision = plan->precision;
  if (chooses_precision(d) && precision == BRIM_AS_IT_IS) {
    brim_policies_report(d->policies, "precision=policy", "precision fp32", "as no policy chooses another");
    precision = d->choice.precision + 1;
  }
  if (precision != BRIM_AS_IT_IS && precision != q->precision)
    ask_again(d, "precision=%s", brim_precision_names[precision - 1]);
  if (plan->model && strcmp(plan->model, q->model) != 0) ask_again(d, "model=%s", plan->model);
  if (d->again.count == 0) cut(d, plan->micro_batch);
  if (d->again.count > 0 && !plan->model && chooses_precision(d)) d->decided_batch = plan->micro_batch;
}

/* Returns the micro-batch with which a run began, on which its bits may depend: from its plan.json, or from the ranks'
 * agreement. 0: unknown, or there were several ranks. */
static int64_t read_kept_batch(const brim_setup *setup)
{
  char path[4200];
  if (setup->world.ranks > 1) return setup->distribution.batch ? setup->distribution.batch[setup->world.rank] : 0;
  snprintf(path, sizeof path, "%s/plan.json", setup->options.resume);
  json_t *plan = brim_json_load(path, 0, NULL);
  const int64_t batch = json_integer_value(json_object_get(plan, "batch_size"));
  const bool is_alone = !json_object_get(plan, "ranks");
  json_decref(plan);
  return is_alone ? batch : 0;
}

static brim_status choose_plan(brim_dialogue *d, views *v)
{
  const brim_setup *setup = d->planner->setup;
  const int64_t kept = setup->options.resume && !d->asked ? read_kept_batch(setup) : 0;
  const int64_t decided = d->decided_batch > 0 ? d->decided_batch : kept;
  uint64_t peak = 0;
  d->decided_batch = 0;
  if (decided > 0 && peak_of(d, decided, &peak) == BRIM_OK && peak <= brim_planner_room(d->planner, true)) {
    cut(d, decided);
    return BRIM_OK;
  }
  brim_plan_choice plan;
  const brim_plan_query q = query_of(d, v);
  const brim_status status = brim_policies_choose_plan(d->policies, &q, &plan);
  if (status == BRIM_ENOTSUP && q.batch_size > 0)
    plan = (brim_plan_choice){.micro_batch = q.batch_size};
  else if (status == BRIM_ENOTSUP)
    return brim_fail(BRIM_ECONFIG, "training.batch_size=auto, and none of the policies chooses a micro-batch\n"
                                   "add one that does: policy+=auto_plan");
  else
    BRIM_TRY(status);
  take_plan(d, &q, &plan);
  return BRIM_OK;
}

brim_status brim_decide_plan(brim_dialogue *d, brim_choice *choice)
{
  views v;
  d->choice = *choice;
  if (brim_planner_list_cuts(d->planner) == 0)
    return brim_fail(BRIM_ECONFIG, "no micro-batch of up to %lld samples divides training.effective_batch_size %lld",
                     (long long)BRIM_MICRO_BATCH_MAX,
                     (long long)d->planner->setup->settings->training.effective_batch_size);
  brim_dialogue_show_run(d);
  brim_status status = look_at_devices(d, "plan", &v);
  if (status == BRIM_OK) status = choose_plan(d, &v);
  *choice = d->choice;
  return status;
}

bool brim_decide_is_open(const brim_dialogue *d, const brim_choice *choice)
{
  return set_batch(d) == 0 || choice->recompute == BRIM_RECOMPUTE_AUTO;
}

/* ---- out of memory ---- */

/* Applies the decision: a device and a plan for it, or another plan on this device. */
static brim_status act(brim_dialogue *d, views *v, const brim_oom *event, const brim_action *action)
{
  brim_planner *p = d->planner;
  if (action->kind != BRIM_ACT_PLACE) {
    /* A plan larger than the room was not placed, so it does not count as a retry. */
    d->retries += event->needed_bytes <= event->room_bytes;
    take_plan(d, &event->plan, &action->plan);
    return d->again.count > 0 ? BRIM_ENODEVICE : BRIM_OK;
  }
  if (p->device < DEVICES_MAX) d->tried |= UINT64_C(1) << p->device;
  BRIM_TRY(take_place(d, v, &action->place));
  BRIM_TRY(brim_planner_select(p, action->place.kind == BRIM_PLACE_DEVICE ? action->place.device : p->device));
  BRIM_TRY(brim_taken_learn(p));
  d->retries = 0;
  return choose_plan(d, v);
}

bool brim_decide_is_want(const brim_dialogue *d, brim_status status)
{
  return status == BRIM_ENOMEM_DEVICE || status == BRIM_EBUDGET || (status == BRIM_ENODEVICE && !d->planner->waits);
}

/* Shows the event to the policies and gets their answer: ENOTSUP if no policy decides, if the decision is to give up,
 * or, with *refused, if it must not be carried out. */
static brim_status ask_after_oom(brim_dialogue *d, views *v, uint64_t needed, bool *refused)
{
  brim_action action;
  BRIM_TRY(brim_planner_look(d->planner));
  BRIM_TRY(look_at_devices(d, "oom", v));
  brim_dialogue_show_plan(d, "oom", d->choice.micro_batch, needed);
  if (++d->asked > DECISIONS_MAX) return BRIM_ENOTSUP;
  const brim_oom event = {.size = sizeof event,
                          .micro_batch = d->choice.micro_batch,
                          .needed_bytes = needed,
                          .room_bytes = brim_planner_room(d->planner, true),
                          .retries = d->retries,
                          .plan = query_of(d, v),
                          .devices = v->query,
                          .device = d->planner->device};
  BRIM_TRY(brim_policies_on_oom(d->policies, &event, &action));
  *refused = action.kind == BRIM_ACT_PLACE && action.place.kind == BRIM_PLACE_HOST && is_limited_host(d);
  if (action.kind == BRIM_ACT_GIVE_UP || *refused) return BRIM_ENOTSUP;
  return act(d, v, &event, &action);
}

brim_status brim_decide_after_oom(brim_dialogue *d, brim_choice *choice, brim_status failure, uint64_t needed)
{
  views v;
  brim_error error;
  brim_error_take(&error);
  if (brim_planner_list_cuts(d->planner) == 0) return failure;
  bool refused = false;
  d->choice = *choice;
  const brim_status status = ask_after_oom(d, &v, needed, &refused);
  *choice = d->choice;
  if (status != BRIM_ENOTSUP) return status;
  brim_error_put(&error);
  return refused ? refuse_host(failure) : failure;
}

/* ---- boundaries ---- */

/* Returns the policies' answer; ENOTSUP: none. Examines and allocates nothing if no policy would answer. */
static brim_status ask_at_boundary(brim_dialogue *d, int64_t step, int64_t round, bool is_end, uint64_t planned,
                                   brim_boundary *out)
{
  const brim_device_info *info = &d->planner->device_info;
  uint64_t process = 0;
  brim_device_view device;
  if (!brim_policies_watch(d->policies)) return BRIM_ENOTSUP;
  BRIM_TRY(brim_planner_look(d->planner));
  const brim_host_memory host = d->env->host(d->env->self, &process);
  const brim_memory_view view = {.size = sizeof view,
                                 .step = step,
                                 .round = round,
                                 .is_end = is_end,
                                 .host_total_bytes = host.total_bytes,
                                 .host_available_bytes = host.available_bytes,
                                 .process_bytes = process,
                                 .device_total_bytes = info->total_bytes,
                                 .device_free_bytes = info->free_bytes,
                                 .device_planned_bytes = planned};
  brim_dialogue_view(d, d->planner->device, info, &device);
  brim_dialogue_show_device(d, "round", &device, planned, 0);
  brim_dialogue_show_host(d, "round", &view);
  return brim_policies_on_boundary(d->policies, &view, out);
}

brim_status brim_decide_at_boundary(brim_dialogue *d, int64_t step, int64_t round, bool is_end, uint64_t planned,
                                    enum brim_cleanup *out)
{
  brim_boundary boundary;
  const int64_t every = d->planner->setup->settings->training.clear_cache_every_n_rounds;
  *out = BRIM_CLEAN_NONE;
  const brim_status status = ask_at_boundary(d, step, round, is_end, planned, &boundary);
  if (status == BRIM_OK) *out = (enum brim_cleanup)boundary.cleanup;
  if (status != BRIM_ENOTSUP) return status;
  if (every == 0 || is_end || round % every != 0) return BRIM_OK;
  *out = BRIM_CLEAN_LIGHT;
  brim_policies_report(d->policies, "training.clear_cache_every_n_rounds", "light cleanup", "");
  return BRIM_OK;
}
