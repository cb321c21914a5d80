/* See taken.h. */
#include "planner/taken.h"

#include <stdio.h>
#include <string.h>

#include "exec/exec.h"
#include "memory/claims.h"
#include "planner/communication.h"
#include "planner/figures.h"
#include "planner/headroom.h"

#define CONTEXT "context"
#define NODE "node"
#define NAME_ROOM 160

/* ---- names in the profile ---- */

/* Writes the name of a measurement in the profile: "libraries gpt2 bf16". */
static const char *name_of(const brim_planner *p, const char *class_, int32_t precision, char out[NAME_ROOM])
{
  snprintf(out, NAME_ROOM, "%s %.100s %s", class_, brim_config_choice_of(p->setup->config, "model")->plugin->id,
           brim_precision_names[precision]);
  return out;
}

static const char *name_of_ranks(int32_t ranks, char out[NAME_ROOM])
{
  snprintf(out, NAME_ROOM, "ranks %d", (int)ranks);
  return out;
}

static uint64_t known(uint64_t bytes)
{
  return bytes == BRIM_BYTES_UNKNOWN ? 0 : bytes;
}

static uint64_t less(uint64_t bytes, uint64_t by)
{
  return bytes > by ? bytes - by : 0;
}

/* ---- measurements ---- */

/* Predicts the growth of the process from the measurement for its own model, or else from that of the model that grew
 * most. */
static void find_growth(brim_planner *p)
{
  char name[NAME_ROOM];
  const uint64_t own = brim_profile_bytes(p->profile, name_of(p, "grown", brim_setup_precision(p->setup), name));
  p->growth_bytes = known(own == BRIM_BYTES_UNKNOWN ? brim_profile_most_bytes(p->profile, "grown ") : own);
  p->lane_taken_bytes = known(brim_profile_bytes(p->profile, name_of(p, "lane", brim_setup_precision(p->setup), name)));
  p->ranks_bytes =
      p->setup->world.ranks > 1 ? known(brim_profile_bytes(p->profile, name_of_ranks(p->setup->world.ranks, name))) : 0;
}

brim_status brim_taken_learn(brim_planner *p)
{
  if (!brim_headroom_grows(p)) return BRIM_OK;
  BRIM_TRY(brim_planner_open_profile(p));
  find_growth(p);
  return BRIM_OK;
}

static void keep_most(brim_profile *profile, const char *name, uint64_t bytes)
{
  const uint64_t was = brim_profile_bytes(profile, name);
  if (was == BRIM_BYTES_UNKNOWN || bytes > was) brim_profile_add_bytes(profile, name, bytes);
}

/* For libraries, keeps the maximum, because a plan with few operations loads less of them. */
void brim_taken_keep(brim_planner *p, int32_t precision)
{
  char name[NAME_ROOM];
  brim_device_takes takes = {0};
  brim_device_info now;
  const brim_setup *s = p->setup;
  if (!brim_headroom_grows(p) || !p->profile || s->backend_ops->describe(s->backend, p->device, &now) != BRIM_OK)
    return;
  p->device_info.taken_bytes = now.taken_bytes;
  s->backend_ops->takes(s->backend, &takes);
  if (takes.context_bytes != BRIM_BYTES_UNKNOWN) brim_profile_add_bytes(p->profile, CONTEXT, takes.context_bytes);
  if (takes.program_nodes > 0)
    brim_profile_add_bytes(p->profile, NODE, (takes.programs_bytes + takes.program_nodes - 1) / takes.program_nodes);
  keep_most(p->profile, name_of(p, "libraries", precision, name), takes.libraries_bytes);
  keep_most(p->profile, name_of(p, "grown", precision, name), takes.grown_bytes);
  if (takes.lanes > 0)
    keep_most(p->profile, name_of(p, "lane", precision, name), (takes.lanes_bytes + takes.lanes - 1) / takes.lanes);
  brim_planner_save_profile(p);
}

/* ---- measuring with the smallest plan ---- */

static brim_status run_once(brim_planner *p, const brim_plan *plan, int32_t precision)
{
  brim_exec *exec = NULL;
  BRIM_TRY(brim_exec_open(plan, p->device, &exec));
  brim_taken_keep(p, precision);
  brim_exec_close(exec);
  return brim_planner_look(p);
}

brim_status brim_taken_measure(brim_planner *p, const brim_choice *choice)
{
  char name[NAME_ROOM];
  brim_plan *plan = NULL;
  if (!brim_headroom_grows(p) || !p->profile || !brim_setup_may_time(p->setup)) return BRIM_OK;
  if (brim_profile_bytes(p->profile, name_of(p, "grown", choice->precision, name)) != BRIM_BYTES_UNKNOWN)
    return BRIM_OK;
  const size_t count = brim_planner_list_cuts(p);
  if (count == 0) return BRIM_OK;
  const brim_choice least = brim_choice_cut(choice, p->micro_batch[count - 1]);
  BRIM_TRY(brim_planner_plan(p, &least, true, &plan));
  brim_claim *claim = NULL;
  brim_status status = brim_planner_claim_own(p, plan->peak_bytes, &claim);
  if (status == BRIM_OK) status = run_once(p, plan, choice->precision);
  brim_claim_release(claim);
  brim_plan_free(plan);
  find_growth(p);
  if (status != BRIM_ENOMEM_DEVICE && status != BRIM_ENODEVICE) return status;
  brim_log(BRIM_LOG_DEBUG, "cannot measure the memory of libraries: %s", brim_error_text());
  return BRIM_OK;
}

/* ---- ranks ---- */

brim_status brim_taken_connect(brim_planner *p)
{
  char name[NAME_ROOM];
  const brim_backend_ops *ops = p->setup->backend_ops;
  brim_dist *dist = p->setup->options.dist;
  const bool counts = dist && brim_headroom_grows(p) && brim_planner_look(p) == BRIM_OK;
  const uint64_t before = p->device_info.free_bytes;
  BRIM_TRY(brim_dist_connect(dist, ops, p->setup->backend, p->device));
  if (!counts || brim_planner_look(p) != BRIM_OK || p->device_info.free_bytes >= before) return BRIM_OK;
  p->comm_bytes = before - p->device_info.free_bytes;
  if (!p->profile) return BRIM_OK;
  brim_profile_add_bytes(p->profile, name_of_ranks(p->setup->world.ranks, name), p->comm_bytes);
  brim_planner_save_profile(p);
  return BRIM_OK;
}

/* ---- predicting ---- */

static uint64_t count_nodes(const brim_plan *plan)
{
  uint64_t count = 0;
  for (size_t i = 0; i < plan->program_count; i++) count += plan->program[i].graph->node_count;
  return count + (plan->lane_count > 0 && plan->request.lanes == 1 ? count_nodes(plan->lane[0]) : 0);
}

static uint64_t total_of(const brim_taken *t)
{
  return known(t->context_bytes) + known(t->libraries_bytes) + known(t->programs_bytes) + known(t->comm_bytes) +
         known(t->lanes_bytes) + t->arena_bytes;
}

/* Returns the larger of this process's current libraries and the profile's. */
static uint64_t predict_libraries(const brim_planner *p, const brim_device_takes *takes)
{
  char name[NAME_ROOM];
  const uint64_t was = brim_profile_bytes(p->profile, name_of(p, "libraries", brim_setup_precision(p->setup), name));
  if (was == BRIM_BYTES_UNKNOWN && takes->program_nodes == 0) return was;
  return known(was) > takes->libraries_bytes ? was : takes->libraries_bytes;
}

static uint64_t predict_ranks(const brim_planner *p)
{
  char name[NAME_ROOM];
  if (p->setup->world.ranks < 2) return 0;
  return p->comm_bytes > 0 ? p->comm_bytes : brim_profile_bytes(p->profile, name_of_ranks(p->setup->world.ranks, name));
}

/* If there are several lanes, each has handles and recorded programs of its own. */
static uint64_t predict_lanes(const brim_planner *p, const brim_plan *plan)
{
  if (plan->lane_count == 0 || plan->request.lanes < 2) return 0;
  return p->lane_taken_bytes > 0 ? (uint64_t)plan->request.lanes * p->lane_taken_bytes : BRIM_BYTES_UNKNOWN;
}

void brim_taken_predict(const brim_planner *p, const brim_plan *plan, brim_taken *out)
{
  brim_device_takes takes = {0};
  p->setup->backend_ops->takes(p->setup->backend, &takes);
  const uint64_t node = brim_profile_bytes(p->profile, NODE), context = brim_profile_bytes(p->profile, CONTEXT);
  *out = (brim_taken){.context_bytes = takes.context_bytes != BRIM_BYTES_UNKNOWN ? takes.context_bytes : context,
                      .libraries_bytes = predict_libraries(p, &takes),
                      .node_bytes = node,
                      .programs_bytes = node == BRIM_BYTES_UNKNOWN ? node : node * count_nodes(plan),
                      .comm_bytes = predict_ranks(p),
                      .lanes_bytes = predict_lanes(p, plan),
                      .arena_bytes = plan->peak_bytes};
  const uint64_t later =
      less(known(out->libraries_bytes) + known(out->programs_bytes), takes.libraries_bytes + takes.programs_bytes) +
      less(known(out->comm_bytes), p->comm_bytes) + less(known(out->lanes_bytes), takes.lanes_bytes);
  out->headroom_bytes = less(brim_planner_headroom(p, &p->device_info), later);
  out->total_bytes = total_of(out);
}

void brim_taken_of_profile(const brim_profile *profile, brim_taken *out)
{
  const uint64_t growth = known(brim_profile_most_bytes(profile, "grown "));
  *out = (brim_taken){.context_bytes = brim_profile_bytes(profile, CONTEXT),
                      .libraries_bytes = brim_profile_most_bytes(profile, "libraries "),
                      .node_bytes = brim_profile_bytes(profile, NODE),
                      .programs_bytes = BRIM_BYTES_UNKNOWN,
                      .comm_bytes = brim_profile_most_bytes(profile, "ranks "),
                      .headroom_bytes = growth > BRIM_HEADROOM_LEAST_BYTES ? growth : BRIM_HEADROOM_LEAST_BYTES};
  out->total_bytes = total_of(out);
}

/* ---- reports ---- */

static const char *format(uint64_t bytes, char out[32])
{
  return bytes == BRIM_BYTES_UNKNOWN ? "not measured yet" : brim_format_bytes(out, 32, bytes);
}

void brim_taken_print(const brim_taken *t, brim_text *out)
{
  char a[32];
  brim_text_printf(out, "  %-12s %16s   driver\n", "context", format(t->context_bytes, a));
  brim_text_printf(out, "  %-12s %16s   code and tables of libraries and kernels\n", "libraries",
                   format(t->libraries_bytes, a));
  brim_text_printf(out, "  %-12s %16s   recorded programs\n", "graphs", format(t->programs_bytes, a));
  if (t->comm_bytes > 0)
    brim_text_printf(out, "  %-12s %16s   connections of the ranks\n", "ranks", format(t->comm_bytes, a));
  if (t->lanes_bytes > 0)
    brim_text_printf(out, "  %-12s %16s   handles and recorded programs of parallel clients\n", "lanes",
                     format(t->lanes_bytes, a));
  brim_text_printf(out, "  %-12s %16s   the plan, exactly\n", "arena", format(t->arena_bytes, a));
  brim_text_printf(out, "  %-12s %16s   left free (memory.headroom_mb)\n", "headroom", format(t->headroom_bytes, a));
}

static json_t *json_of(uint64_t bytes)
{
  return bytes == BRIM_BYTES_UNKNOWN ? json_null() : json_integer((json_int_t)bytes);
}

json_t *brim_taken_json(const brim_taken *t)
{
  return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "context_bytes", json_of(t->context_bytes),
                   "libraries_bytes", json_of(t->libraries_bytes), "node_bytes", json_of(t->node_bytes),
                   "programs_bytes", json_of(t->programs_bytes), "ranks_bytes", json_of(t->comm_bytes), "lanes_bytes",
                   json_of(t->lanes_bytes), "arena_bytes", json_of(t->arena_bytes), "headroom_bytes",
                   json_of(t->headroom_bytes), "total_bytes", json_of(t->total_bytes));
}
