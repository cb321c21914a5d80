/* See checkpoint_ranks.h. */
#include "train/checkpoint_ranks.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "train/file.h"

/* The same status to all. */
static brim_status vote(brim_dist *dist, enum brim_meeting meeting, int64_t step, brim_status own, const char *what)
{
  const brim_ballot ballot = {.meeting = meeting, .status = own, .step = step};
  brim_verdict verdict;
  BRIM_TRY(brim_dist_vote(dist, &ballot, &verdict));
  if (verdict.failed < 0) return BRIM_OK;
  const brim_status status = (brim_status)verdict.status;
  if (own != BRIM_OK) return status;
  return brim_fail(status, "rank %d %s", (int)verdict.failed, what);
}

static brim_status meet(void *context, brim_status own)
{
  const brim_checkpoint_meeting *m = context;
  return vote(m->dist, BRIM_MEET_CHECKPOINT, m->step, own, "could not write its part of a checkpoint");
}

void brim_checkpoint_meet(brim_checkpoint_meeting *out, brim_dist *dist, int64_t step)
{
  const brim_world world = brim_dist_world(dist);
  *out = (brim_checkpoint_meeting){dist, step, {world.rank, world.ranks, out, meet}};
}

/* ---- the folder ---- */

/* Of a name that no other file can have: whoever sees it sees this folder. */
static brim_status make_sign(const char *run_dir, const char *name)
{
  char path[BRIM_PATH_MAX];
  BRIM_TRY(brim_path_join(path, run_dir, name));
  return brim_file_write(path, "", 0);
}

static brim_status look_for_sign(const char *run_dir, const char *name)
{
  char path[BRIM_PATH_MAX];
  BRIM_TRY(brim_path_join(path, run_dir, name));
  if (access(path, R_OK | W_OK) == 0) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG,
                   "the run's folder '%s' of rank 0 is not what this rank sees there: all ranks write checkpoints "
                   "together\nput it on a file system that all hosts share (output_dir), writable on each",
                   run_dir);
}

brim_status brim_checkpoint_check_folder(brim_dist *dist, const char *run_dir)
{
  const bool first = brim_dist_world(dist).rank == 0;
  char name[96] = "", path[BRIM_PATH_MAX];
  if (first) snprintf(name, sizeof name, ".shared-%ld-%.9f", (long)getpid(), brim_now());
  if (!dist) return BRIM_OK;
  BRIM_TRY(brim_dist_share_text(dist, name, sizeof name));
  brim_status status = first ? make_sign(run_dir, name) : BRIM_OK;
  status = vote(dist, BRIM_MEET_START, 0, status, "cannot write into the run's folder");
  if (status != BRIM_OK) return status;
  if (!first) status = look_for_sign(run_dir, name);
  status = vote(dist, BRIM_MEET_START, 0, status,
                "does not see the run's folder of rank 0: put it on a file system "
                "that all hosts share (output_dir)");
  if (first && snprintf(path, sizeof path, "%s/%s", run_dir, name) < (int)sizeof path) brim_file_discard(path);
  return status;
}
