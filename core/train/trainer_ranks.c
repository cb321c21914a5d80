/* A trainer's cooperation with the other ranks of its job. See trainer.h. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/tracing.h"
#include "train/trainer_parts.h"

static const char *vote_name(enum brim_meeting meeting)
{
  static const char *const names[] = {
      [BRIM_MEET_START] = "vote: start",           [BRIM_MEET_READY] = "vote: ready for the sums",
      [BRIM_MEET_COMMIT] = "vote: commit",         [BRIM_MEET_EVALUATED] = "vote: evaluated",
      [BRIM_MEET_CHECKPOINT] = "vote: checkpoint", [BRIM_MEET_CHECK] = "vote: check",
      [BRIM_MEET_AGAIN] = "vote: repeat",          [BRIM_MEET_END] = "vote: end",
      [BRIM_MEET_ROLL] = "vote: roll call"};
  return names[meeting];
}

brim_status brim_trainer_meet_for(brim_trainer *t, enum brim_meeting meeting, int64_t step, brim_status status,
                                  double *sum)
{
  if (status == BRIM_ECOMM) return status; /* the other ranks cannot be reached */
  brim_ballot own = {.meeting = meeting,
                     .status = status,
                     .step = step,
                     .wishes = t->wishes,
                     .is_torn = t->torn,
                     .is_over = status != BRIM_OK && !brim_status_is_want(status)};
  if (sum) memcpy(own.sum, sum, sizeof own.sum);
  const double start = brim_now();
  t->is_reported = true;
  const int64_t began = t->drive->setup->options.dist ? brim_tracing_begin(vote_name(meeting)) : 0;
  const brim_status met = brim_dist_vote(t->drive->setup->options.dist, &own, &t->verdict);
  brim_tracing_end(began, BRIM_TRACING_PHASE, vote_name(meeting), 0);
  t->waited += brim_now() - start;
  if (t->verdict.is_torn) {
    t->torn = true;
    if (t->is_kept) brim_snapshot_release(&t->kept);
    t->is_kept = false;
  }
  BRIM_TRY(met);
  if (sum) memcpy(sum, t->verdict.sum, sizeof t->verdict.sum);
  t->is_reported = t->verdict.failed >= 0;
  if (!t->is_reported) return BRIM_OK;
  return brim_fail(BRIM_EPEER, "rank %d has failed: %s", (int)t->verdict.failed, brim_status_text(t->verdict.status));
}

brim_status brim_trainer_meet(brim_trainer *t, enum brim_meeting meeting, brim_status status)
{
  return brim_trainer_meet_for(t, meeting, t->state.step, status, NULL);
}

void brim_trainer_clear_failure(brim_trainer *t)
{
  t->is_reported = false;
}
bool brim_trainer_has_reported(const brim_trainer *t)
{
  return t->is_reported;
}
const brim_verdict *brim_trainer_verdict(const brim_trainer *t)
{
  return &t->verdict;
}
void brim_trainer_wish(brim_trainer *t, uint32_t wishes)
{
  t->wishes = wishes;
}
double brim_trainer_waited(const brim_trainer *t)
{
  return t->waited;
}
double brim_trainer_loader_waited(const brim_trainer *t)
{
  return t->loader_waited;
}

brim_status brim_trainer_report_once(brim_trainer *t, brim_status status, bool has_found)
{
  const brim_world *w = &t->drive->setup->world;
  const char own = has_found;
  int32_t speaker = 0;
  if (!t->drive->setup->options.dist) return status;
  char *all = brim_xcalloc((size_t)w->ranks, 1);
  const brim_status met = brim_dist_exchange(t->drive->setup->options.dist, &own, 1, all);
  while (speaker < w->ranks && !all[speaker]) speaker++;
  free(all);
  if (met != BRIM_OK || w->rank == speaker % w->ranks) return met == BRIM_OK ? status : met;
  return brim_fail(BRIM_EPEER, "see the message of rank %d", (int)(speaker % w->ranks));
}

brim_status brim_trainer_broadcast(brim_trainer *t)
{
  return t->drive->setup->options.dist ? brim_exec_broadcast(t->exec) : BRIM_OK;
}

/* ---- comparing parameters ---- */

/* FNV-1a over words instead of bytes, for speed. `bytes` is a multiple of 4. */
static uint64_t hash_words(const void *data, uint64_t bytes)
{
  const uint8_t *at = data;
  uint64_t hash = BRIM_HASH_START;
  for (uint64_t i = 0; i < bytes; i += sizeof(uint32_t)) {
    uint32_t word;
    memcpy(&word, at + i, sizeof word);
    hash = (hash ^ word) * 0x100000001b3u;
  }
  return hash;
}

/* Writes one hash per parameter; 0 for frozen ones, which do not change. `room`: memory as large as the largest
 * parameter. */
static brim_status hash_parameters(brim_trainer *t, void *room, uint64_t *hash)
{
  const brim_program *p = &t->plan->program[0];
  for (size_t i = 0; i < p->graph->parameter_count; i++) {
    const brim_tensor *value = p->graph->parameter[i].value;
    hash[i] = 0;
    if (p->graph->parameter[i].is_frozen) continue;
    BRIM_TRY(brim_exec_read(t->exec, p, value, room));
    hash[i] = hash_words(room, value->bytes);
  }
  return BRIM_OK;
}

#define HASHES (BRIM_EXCHANGE_BYTES / sizeof(uint64_t)) /* in one exchange */

static brim_status compare(brim_trainer *t, void *room, uint64_t *own, uint64_t *all)
{
  const brim_graph *g = t->plan->program[0].graph;
  BRIM_TRY(brim_trainer_meet(t, BRIM_MEET_CHECK, hash_parameters(t, room, own)));
  for (size_t from = 0; from < g->parameter_count; from += HASHES) {
    const size_t rest = g->parameter_count - from, count = rest < HASHES ? rest : HASHES;
    BRIM_TRY(brim_dist_exchange(t->drive->setup->options.dist, own + from, (uint32_t)(count * sizeof *own), all));
    for (size_t i = 0; i < count; i++)
      for (int32_t r = 1; r < t->drive->setup->world.ranks; r++)
        if (all[(size_t)r * count + i] != all[i])
          return brim_fail(BRIM_EINTERNAL,
                           "after step %lld rank %d has other values of '%s' than rank 0\nearlier checkpoints are "
                           "kept; check the memory of that rank's machine and device",
                           (long long)t->state.step, (int)r, g->parameter[from + i].value->name);
  }
  return BRIM_OK;
}

brim_status brim_trainer_compare(brim_trainer *t)
{
  const brim_graph *g = t->plan->program[0].graph;
  uint64_t most = 0;
  if (!t->drive->setup->options.dist) return BRIM_OK;
  for (size_t i = 0; i < g->parameter_count; i++)
    if (g->parameter[i].value->bytes > most) most = g->parameter[i].value->bytes;
  void *room = brim_try_malloc(most);
  uint64_t *own = brim_try_calloc(g->parameter_count + 1, sizeof *own);
  uint64_t *all = brim_try_calloc((size_t)t->drive->setup->world.ranks * HASHES, sizeof *all);
  brim_status status =
      room && own && all ? BRIM_OK : brim_fail(BRIM_ENOMEM_HOST, "no host memory to compare parameters");
  status = status == BRIM_OK ? compare(t, room, own, all) : brim_trainer_meet(t, BRIM_MEET_CHECK, status);
  free(room);
  free(own);
  free(all);
  return status;
}
