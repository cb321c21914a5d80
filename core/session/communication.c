#include "session/communication.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "exec/predict.h"
#include "session/figures.h"

#define ROUNDS 4        /* of which the first is not timed */
#define SECONDS_MAX 0.5 /* for the rounds of one size */
#define NAME_BYTES 160

static const struct {
  uint32_t kind;
  const char *name;
} kinds[] = {{BRIM_ALL_REDUCE, "all_reduce"}, {BRIM_REDUCE_SCATTER, "reduce_scatter"}, {BRIM_ALL_GATHER, "all_gather"}};
#define KINDS (sizeof kinds / sizeof kinds[0])

static const uint64_t sizes[] = {UINT64_C(1) << 10, UINT64_C(1) << 16, UINT64_C(1) << 20,
                                 UINT64_C(1) << 24}; /* bytes */
#define SIZES (sizeof sizes / sizeof sizes[0])

static const char *communicator_of(const brim_session *s)
{
  const char *id = brim_config_choice_of(s->config, "comm")->plugin->id;
  return strcmp(id, brim_comm_auto.id) != 0 ? id : s->device_info.on_host ? "mpi" : "nccl";
}

static bool name_of(const brim_session *s, uint32_t kind, char *out)
{
  const int local = s->world.local_ranks > 0 ? (int)s->world.local_ranks : 1;
  for (size_t i = 0; i < KINDS; i++) {
    if (kinds[i].kind != kind) continue;
    snprintf(out, NAME_BYTES, "%s %s %d ranks %d hosts", kinds[i].name, communicator_of(s), (int)s->world.ranks,
             ((int)s->world.ranks + local - 1) / local);
    return true;
  }
  return false;
}

/* ---- timing ---- */

enum want { CANNOT = -1, HAS_ALL, LACKS };

/* How many of the kinds steps have. */
static size_t kinds_of(const brim_session *s)
{
  return s->settings->dist.shard == BRIM_SHARD_NONE ? 1 : KINDS;
}

static enum want want_of(brim_session *s)
{
  char name[NAME_BYTES];
  if (!s->device_info.on_host || !brim_session_may_time(s)) return CANNOT;
  for (size_t i = 0; i < kinds_of(s) && s->profile; i++)
    if (name_of(s, kinds[i].kind, name) && brim_profile_lacks(s->profile, name, (int64_t)sizes[0])) return LACKS;
  return HAS_ALL;
}

/* All ranks come to the same answer. */
static brim_status agree(brim_session *s, bool *times)
{
  const int32_t own = want_of(s);
  int32_t *all = brim_xcalloc((size_t)s->world.ranks, sizeof *all);
  const brim_status status = brim_dist_exchange(s->options.dist, &own, sizeof own, all);
  bool can = true, lacks = false;
  for (int32_t r = 0; r < s->world.ranks; r++) {
    can = can && all[r] != CANNOT;
    lacks = lacks || all[r] == LACKS;
  }
  free(all);
  *times = can && lacks;
  return status;
}

/* The longest of all ranks' times, everywhere the same. */
static brim_status find_longest(brim_session *s, double *seconds)
{
  double *all = brim_xcalloc((size_t)s->world.ranks, sizeof *all);
  const brim_status status = brim_dist_exchange(s->options.dist, seconds, sizeof *seconds, all);
  for (int32_t r = 0; r < s->world.ranks; r++)
    if (all[r] > *seconds) *seconds = all[r];
  free(all);
  return status;
}

/* The least of some rounds: a rank that comes late makes the others wait. */
static brim_status time_one(brim_session *s, uint32_t kind, void *buffer, uint64_t bytes, double *seconds)
{
  const uint32_t real = s->backend_ops->real;
  const uint64_t ranks = (uint64_t)s->world.ranks, count = bytes / brim_dtype_bytes(real) / ranks * ranks;
  const brim_collective what = {.kind = kind, .dtype = real, .buffer = buffer, .count = count};
  *seconds = 0;
  for (int i = 0; i < ROUNDS; i++) {
    uint64_t ticket;
    const double start = brim_now();
    BRIM_TRY(brim_dist_start(s->options.dist, &what, NULL, &ticket));
    BRIM_TRY(brim_dist_finish(s->options.dist, ticket));
    const double took = brim_now() - start;
    if (i == 1 || (i > 1 && took < *seconds)) *seconds = took;
  }
  return find_longest(s, seconds);
}

static brim_status time_kind(brim_session *s, uint32_t kind, void *buffer)
{
  char name[NAME_BYTES];
  double seconds = 0;
  (void)name_of(s, kind, name);
  for (size_t i = 0; i < SIZES; i++) {
    const double foreseen = i > 1 ? ROUNDS * seconds * (double)sizes[i] / (double)sizes[i - 1] : 0;
    if (foreseen > SECONDS_MAX) break;
    BRIM_TRY(time_one(s, kind, buffer, sizes[i], &seconds));
    if (s->profile) brim_profile_add(s->profile, name, (int64_t)sizes[i], seconds, 0);
  }
  return BRIM_OK;
}

brim_status brim_communication_time(brim_session *s)
{
  bool times;
  if (s->world.ranks == 1 || !s->options.dist) return BRIM_OK;
  BRIM_TRY(agree(s, &times));
  if (!times) return BRIM_OK;
  void *buffer = brim_xcalloc(1, sizes[SIZES - 1]);
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < kinds_of(s) && status == BRIM_OK; i++) status = time_kind(s, kinds[i].kind, buffer);
  free(buffer);
  if (status == BRIM_OK) brim_session_save_profile(s);
  return status;
}

/* ---- predicting ---- */

/* One that was never timed adds nothing, as it would be a guess about a network. */
static double seconds_of(brim_session *s, uint32_t kind, uint64_t bytes)
{
  char name[NAME_BYTES];
  const brim_profile_entry *below = NULL, *above = NULL;
  brim_prediction p = {0};
  if (!name_of(s, kind, name)) return 0;
  brim_profile_neighbours(s->profile, name, (int64_t)bytes, &below, &above);
  if (!below && !above && !brim_profile_find(s->profile, name, (int64_t)bytes)) return 0;
  brim_predict_other(s->profile, name, (int64_t)bytes, 0, 1, &p);
  return p.seconds;
}

double brim_communication_predict(brim_session *s, const brim_plan *plan, double micros)
{
  double seconds = 0;
  const uint64_t element = brim_dtype_bytes(plan->request.backend->real);
  if (s->world.ranks == 1 || !s->profile) return 0;
  for (size_t i = 0; i < plan->bucket_count; i++)
    seconds += seconds_of(s, plan->bucket[i].kind, plan->bucket[i].count * element);
  for (size_t i = 0; i < plan->program_count; i++) {
    const brim_program *p = &plan->program[i];
    const bool trains = p->kind == BRIM_PROGRAM_TRAIN;
    if (p->kind == BRIM_PROGRAM_EVALUATE || (trains && p->info.batch != plan->program[0].info.batch)) continue;
    for (size_t k = 0; k < p->collective_count; k++)
      seconds += (trains ? micros : 1) * seconds_of(s, p->collective[k].kind,
                                                    p->collective[k].count * brim_dtype_bytes(p->collective[k].dtype));
  }
  return seconds;
}
