/* A run's cooperation with the other ranks of its job. See run.c. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "base/order.h"
#include "base/process.h"
#include "base/text.h"
#include "train/run_parts.h"

#define SLOW_SHARE 0.1 /* fraction by which a rank must be slower than the median to be named */

bool brim_running_prints(const brim_running *r)
{
  return brim_dist_world(r->options->dist).rank == 0;
}

/* ---- beginning and end ---- */

/* Holds a meeting that belongs to no step. A rank that has only learned of another rank's failure does not report one
 * itself. */
static brim_status meet(brim_dist *d, enum brim_meeting meeting, brim_status status, brim_verdict *verdict)
{
  const bool failed = status != BRIM_OK && status != BRIM_EPEER;
  const brim_ballot own = {.meeting = meeting, .status = failed ? status : BRIM_OK, .is_over = failed};
  BRIM_TRY(brim_dist_vote(d, &own, verdict));
  return status;
}

brim_status brim_running_begin_together(brim_running *r, brim_status status)
{
  brim_verdict verdict;
  if (!r->options->dist || status == BRIM_ECOMM || status == BRIM_EPEER) return status;
  BRIM_TRY(meet(r->options->dist, BRIM_MEET_START, status, &verdict));
  if (verdict.failed < 0) return BRIM_OK;
  return brim_fail(BRIM_EPEER, "rank %d could not begin: %s", (int)verdict.failed, brim_status_text(verdict.status));
}

brim_status brim_running_end_together(brim_running *r, brim_status status)
{
  brim_verdict verdict;
  if (!r->options->dist || status == BRIM_ECOMM) return status;
  const brim_status own = meet(r->options->dist, BRIM_MEET_END, status, &verdict);
  if (verdict.failed < 0 || own == BRIM_ECOMM) return own;
  if (verdict.failed == brim_dist_world(r->options->dist).rank) return own;
  brim_log_mute();
  return verdict.status;
}

/* ---- the folder ---- */

brim_status brim_running_check_folder(brim_running *r)
{
  char name[96] = "", path[BRIM_PATH_MAX];
  const bool first = brim_running_prints(r);
  if (!r->options->dist) return BRIM_OK;
  /* A unique name: a rank that sees the file sees the same folder. */
  if (first) snprintf(name, sizeof name, ".shared-%ld-%.9f", (long)getpid(), brim_now());
  BRIM_TRY(brim_dist_share_text(r->options->dist, name, sizeof name));
  BRIM_TRY(brim_path_join(path, r->dir, name));
  BRIM_TRY(brim_running_begin_together(r, first ? brim_file_write(path, "", 0) : BRIM_OK));
  brim_status status = BRIM_OK;
  if (!first && access(path, R_OK | W_OK) != 0)
    status = brim_fail(
        BRIM_ECONFIG,
        "the run's folder '%s' is not the same on all ranks: this rank does not see the file that rank 0 wrote "
        "there\nput it on a file system that all hosts share and can write to, or train with ranks of one host",
        r->dir);
  status = brim_running_begin_together(r, status);
  if (first) brim_file_discard(path);
  return status;
}

/* ---- between steps ---- */

brim_status brim_running_find_newest(brim_running *r)
{
  bool found = false;
  const brim_status status = brim_checkpoint_find(r->dir, r->checkpoint, sizeof r->checkpoint, &found);
  if (!found) r->checkpoint[0] = '\0';
  return status;
}

brim_status brim_running_find_checkpoint(brim_running *r)
{
  brim_status status = BRIM_OK;
  if (!r->options->dist || brim_trainer_has_values(r->trainer)) return BRIM_OK;
  r->checkpoint[0] = '\0';
  if (brim_running_prints(r)) status = brim_running_find_newest(r);
  brim_verdict verdict; /* not tied to a step, because some ranks may have committed one step more than others */
  BRIM_TRY(meet(r->options->dist, BRIM_MEET_AGAIN, status, &verdict));
  if (verdict.failed >= 0) return brim_fail(BRIM_EPEER, "rank %d has no checkpoint to return to", (int)verdict.failed);
  return brim_dist_share_text(r->options->dist, r->checkpoint, sizeof r->checkpoint);
}

void brim_running_wish(brim_running *r)
{
  const bool is_due = brim_pressure_is_due(r->pressure) || brim_resize_is_due(&r->loop.resize);
  brim_trainer_wish(r->trainer, (*r->stop ? BRIM_WISH_STOP : 0) | (r->acts ? BRIM_WISH_PAUSE : 0) |
                                    (is_due ? BRIM_WISH_LOOK : 0) | r->trace_wish);
}

bool brim_running_is_compared(const brim_running *r, int64_t step)
{
  const int64_t every = r->settings->dist.check_every_steps;
  return r->options->dist && every > 0 && step > 0 && step % every == 0;
}

/* ---- time and memory of ranks ---- */

/* Names the slowest rank if it takes much longer than most ranks. */
static void name_slowest(const brim_running *r, const brim_rank_figures *all, int32_t ranks, double *seconds)
{
  int32_t slowest = 0;
  for (int32_t i = 0; i < ranks; i++) {
    seconds[i] = all[i].busy_seconds;
    if (all[i].busy_seconds > all[slowest].busy_seconds) slowest = i;
  }
  qsort(seconds, (size_t)ranks, sizeof *seconds, brim_by_double);
  const double usual = seconds[(ranks - 1) / 2], most = all[slowest].busy_seconds;
  if (usual > 0 && most > usual * (1 + SLOW_SHARE))
    brim_log(BRIM_LOG_INFO, "step %lld: rank %d is the slowest; its steps take %.0f %% longer than those of most ranks",
             (long long)r->state->step, (int)slowest, 100 * (most / usual - 1));
}

/* Returns the number of samples of a step that this rank computed; in a federation, of the last round's clients that it
 * trained. */
static int64_t step_samples(const brim_running *r)
{
  return brim_setup_is_federated(r->drive->setup) ? brim_trainer_last_round(r->trainer)->own_samples
                                                  : brim_order_share(&r->drive->order, 0).count;
}

brim_status brim_running_report_ranks(void *running)
{
  brim_running *r = running;
  brim_dist *d = r->options->dist;
  const int32_t ranks = brim_dist_world(d).ranks;
  if (!d) return BRIM_OK;
  BRIM_TRY(brim_trainer_meet(r->trainer, BRIM_MEET_CHECK, BRIM_OK)); /* a rank that failed does not reach this point */
  const brim_rank_figures own = {.busy_seconds = r->steps_seconds - r->waited_seconds,
                                 .waiting_seconds = r->waited_seconds,
                                 .device_bytes = brim_trainer_device_bytes(r->trainer),
                                 .resident_bytes = brim_rss_bytes(),
                                 .batch = r->drive->choice.micro_batch,
                                 .step_samples = step_samples(r)};
  r->steps_seconds = r->waited_seconds = 0;
  brim_rank_figures *all = brim_xcalloc((size_t)ranks, sizeof *all);
  double *seconds = brim_xcalloc((size_t)ranks, sizeof *seconds);
  const brim_status status = brim_dist_exchange(d, &own, sizeof own, all);
  for (int32_t i = 0; status == BRIM_OK && i < ranks; i++) brim_report_rank(&r->events, i, &all[i], r->state->step);
  /* Isolated processes are not alike: the server does not train. */
  const bool alike = !brim_setup_is_isolated(r->drive->setup);
  if (status == BRIM_OK && alike && brim_running_prints(r)) name_slowest(r, all, ranks, seconds);
  free(seconds);
  free(all);
  return status;
}
