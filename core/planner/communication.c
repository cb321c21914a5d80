#include "planner/communication.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "exec/predict.h"
#include "planner/figures.h"

#define ROUNDS 4        /* the first is not timed */
#define SECONDS_MAX 0.5 /* limit for all rounds of one size */
#define NAME_BYTES 160

static const struct {
  uint32_t kind;
  const char *name;
} kinds[] = {{BRIM_ALL_REDUCE, "all_reduce"}, {BRIM_REDUCE_SCATTER, "reduce_scatter"}, {BRIM_ALL_GATHER, "all_gather"}};
#define KINDS (sizeof kinds / sizeof kinds[0])

static const uint64_t sizes[] = {UINT64_C(1) << 10, UINT64_C(1) << 16, UINT64_C(1) << 20,
                                 UINT64_C(1) << 24}; /* bytes */
#define SIZES (sizeof sizes / sizeof sizes[0])

static const char *communicator_of(const brim_planner *p)
{
  const char *id = brim_config_choice_of(p->setup->config, "comm")->plugin->id;
  return strcmp(id, brim_comm_auto.id) != 0 ? id : p->device_info.on_host ? "mpi" : "nccl";
}

static bool name_of(const brim_planner *p, uint32_t kind, char *out)
{
  const int local = p->setup->world.local_ranks > 0 ? (int)p->setup->world.local_ranks : 1;
  for (size_t i = 0; i < KINDS; i++) {
    if (kinds[i].kind != kind) continue;
    snprintf(out, NAME_BYTES, "%s %s %d ranks %d hosts", kinds[i].name, communicator_of(p), (int)p->setup->world.ranks,
             ((int)p->setup->world.ranks + local - 1) / local);
    return true;
  }
  return false;
}

/* ---- timing ---- */

enum want { CANNOT = -1, HAS_ALL, LACKS };

/* The number of kinds of collectives that steps have. */
static size_t kinds_of(const brim_planner *p)
{
  return p->setup->settings->dist.shard == BRIM_SHARD_NONE ? 1 : KINDS;
}

static enum want want_of(brim_planner *p)
{
  char name[NAME_BYTES];
  if (!p->device_info.on_host || !brim_setup_may_time(p->setup)) return CANNOT;
  for (size_t i = 0; i < kinds_of(p) && p->profile; i++)
    if (name_of(p, kinds[i].kind, name) && brim_profile_lacks(p->profile, name, (int64_t)sizes[0])) return LACKS;
  return HAS_ALL;
}

/* Decides whether to time collectives. All ranks make the same decision. */
static brim_status agree(brim_planner *p, bool *times)
{
  const int32_t own = want_of(p);
  int32_t *all = brim_xcalloc((size_t)p->setup->world.ranks, sizeof *all);
  const brim_status status = brim_dist_exchange(p->setup->options.dist, &own, sizeof own, all);
  bool can = true, lacks = false;
  for (int32_t r = 0; r < p->setup->world.ranks; r++) {
    can = can && all[r] != CANNOT;
    lacks = lacks || all[r] == LACKS;
  }
  free(all);
  *times = can && lacks;
  return status;
}

/* The maximum over the times of all ranks, the same on each. */
static brim_status find_longest(brim_planner *p, double *seconds)
{
  double *all = brim_xcalloc((size_t)p->setup->world.ranks, sizeof *all);
  const brim_status status = brim_dist_exchange(p->setup->options.dist, seconds, sizeof *seconds, all);
  for (int32_t r = 0; r < p->setup->world.ranks; r++)
    if (all[r] > *seconds) *seconds = all[r];
  free(all);
  return status;
}

/* Returns the minimum of several rounds, because a late rank makes the others wait. */
static brim_status time_one(brim_planner *p, uint32_t kind, void *buffer, uint64_t bytes, double *seconds)
{
  const uint32_t real = p->setup->backend_ops->real;
  const uint64_t ranks = (uint64_t)p->setup->world.ranks, count = bytes / brim_dtype_bytes(real) / ranks * ranks;
  const brim_collective what = {.kind = kind, .dtype = real, .buffer = buffer, .count = count};
  *seconds = 0;
  for (int i = 0; i < ROUNDS; i++) {
    uint64_t ticket;
    const double start = brim_now();
    BRIM_TRY(brim_dist_start(p->setup->options.dist, &what, NULL, &ticket));
    BRIM_TRY(brim_dist_finish(p->setup->options.dist, ticket));
    const double took = brim_now() - start;
    if (i == 1 || (i > 1 && took < *seconds)) *seconds = took;
  }
  return find_longest(p, seconds);
}

static brim_status time_kind(brim_planner *p, uint32_t kind, void *buffer)
{
  char name[NAME_BYTES];
  double seconds = 0;
  (void)name_of(p, kind, name);
  for (size_t i = 0; i < SIZES; i++) {
    const double foreseen = i > 1 ? ROUNDS * seconds * (double)sizes[i] / (double)sizes[i - 1] : 0;
    if (foreseen > SECONDS_MAX) break;
    BRIM_TRY(time_one(p, kind, buffer, sizes[i], &seconds));
    if (p->profile) brim_profile_add(p->profile, name, (int64_t)sizes[i], seconds, 0);
  }
  return BRIM_OK;
}

brim_status brim_communication_time(brim_planner *p)
{
  bool times;
  if (p->setup->world.ranks == 1 || !p->setup->options.dist || brim_setup_is_isolated(p->setup)) return BRIM_OK;
  BRIM_TRY(agree(p, &times));
  if (!times) return BRIM_OK;
  void *buffer = brim_xcalloc(1, sizes[SIZES - 1]);
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < kinds_of(p) && status == BRIM_OK; i++) status = time_kind(p, kinds[i].kind, buffer);
  free(buffer);
  if (status == BRIM_OK) brim_planner_save_profile(p);
  return status;
}

/* ---- predicting ---- */

/* Returns 0 for a collective that was never timed, because any other number would be a guess about the network. */
static double seconds_of(brim_planner *p, uint32_t kind, uint64_t bytes)
{
  char name[NAME_BYTES];
  const brim_profile_entry *below = NULL, *above = NULL;
  brim_prediction t = {0};
  if (!name_of(p, kind, name)) return 0;
  brim_profile_neighbours(p->profile, name, (int64_t)bytes, &below, &above);
  if (!below && !above && !brim_profile_find(p->profile, name, (int64_t)bytes)) return 0;
  brim_predict_other(p->profile, name, (int64_t)bytes, 0, 1, &t);
  return t.seconds;
}

double brim_communication_predict(brim_planner *p, const brim_plan *plan, double micros)
{
  double seconds = 0;
  const uint64_t element = brim_dtype_bytes(plan->request.backend->real);
  if (p->setup->world.ranks == 1 || !p->profile) return 0;
  for (size_t i = 0; i < plan->bucket_count; i++)
    seconds += seconds_of(p, plan->bucket[i].kind, plan->bucket[i].count * element);
  for (size_t i = 0; i < plan->program_count; i++) {
    const brim_program *program = &plan->program[i];
    const bool trains = program->kind == BRIM_PROGRAM_TRAIN;
    if (program->kind == BRIM_PROGRAM_EVALUATE || (trains && program->info.batch != plan->program[0].info.batch))
      continue;
    for (size_t k = 0; k < program->collective_count; k++)
      seconds += (trains ? micros : 1) *
                 seconds_of(p, program->collective[k].kind,
                            program->collective[k].count * brim_dtype_bytes(program->collective[k].dtype));
  }
  return seconds;
}
