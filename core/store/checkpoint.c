/* Writes, publishes, thins out and finds checkpoint folders.
 *
 * The following order of steps makes a kill at any instruction harmless:
 *   1. The run's records (*.jsonl) are synced: state.json counts them.
 *   2. ".step-N.tmp" is filled, each file synced, then the folder.
 *   3. The new links are made as ".last.tmp" and ".best.tmp", so that a full disk causes an error before anything
 * changes.
 *   4. ".step-N.tmp" becomes "step-N". If step-N exists (a run resumed from an older one writes it again), it is first
 *      moved to ".step-N.old"; the next sweep repairs a kill between the two renames.
 *   5. The folder is synced. From here on the checkpoint is valid; before, every failure is undone.
 *   6. The links are renamed into place, and old checkpoints moved to ".step-M.del" and deleted. A failure here only
 * causes a warning: the next write or search repeats the step. Names with a leading dot are never checkpoints. */
#include "store/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/order.h"
#include "base/text.h"
#include "store/checkpoint_attempt.h"
#include "store/checkpoint_choose.h"
#include "store/checkpoint_state.h"
#include "store/trash.h"

#define STEP_PREFIX "step-"
#define NAME_BYTES 48

/* ---- names ---- */

static void step_name(char *out, const char *before, int64_t step, const char *after)
{
  snprintf(out, NAME_BYTES, "%s" STEP_PREFIX "%08" PRId64 "%s", before, step, after);
}

/* Returns the step of "<before>step-N<after>", or -1 for any other name. */
static int64_t name_step(const char *name, const char *before, const char *after)
{
  char same[NAME_BYTES];
  const size_t skip = strlen(before) + strlen(STEP_PREFIX);
  if (strlen(name) <= skip) return -1;
  errno = 0;
  const int64_t step = strtoll(name + skip, NULL, 10);
  if (errno != 0 || step < 0) return -1;
  step_name(same, before, step, after);
  return strcmp(name, same) == 0 ? step : -1;
}

/* Writes the path "<folder>/<before>step-N<after>". */
static brim_status step_path(char *out, const char *folder, const char *before, int64_t step, const char *after)
{
  char name[NAME_BYTES];
  step_name(name, before, step, after);
  return brim_path_join(out, folder, name);
}

/* ---- the folder's contents ---- */

typedef struct steps {
  int64_t *item; /* ascending */
  size_t count, room;
} steps;

static brim_status list_steps(const char *folder, steps *out)
{
  DIR *dir = opendir(folder);
  *out = (steps){0};
  if (!dir) {
    if (errno == ENOENT) return BRIM_OK;
    return brim_fail(BRIM_ELOAD, "cannot read folder '%s': %s", folder, strerror(errno));
  }
  for (const struct dirent *entry; (entry = readdir(dir));) {
    const int64_t step = name_step(entry->d_name, "", "");
    if (step < 0) continue;
    BRIM_GROW(out->item, out->count, out->room);
    out->item[out->count++] = step;
  }
  closedir(dir);
  if (out->count > 1) qsort(out->item, out->count, sizeof *out->item, brim_by_int64);
  return BRIM_OK;
}

/* Removes one leftover of a killed attempt. Ignores failures. */
static void sweep_entry(const char *folder, const char *name)
{
  char path[BRIM_PATH_MAX], whole[BRIM_PATH_MAX];
  if (brim_path_join(path, folder, name) != BRIM_OK) return;
  const int64_t moved = name_step(name, ".", ".old");
  bool done = true;
  if (moved >= 0 && step_path(whole, folder, "", moved, "") == BRIM_OK && !brim_is_folder(whole))
    done = rename(path, whole) == 0;
  else if (moved >= 0 || name_step(name, ".", ".tmp") >= 0 || name_step(name, ".", ".del") >= 0)
    done = brim_folder_remove(path);
  else if (strcmp(name, ".last.tmp") == 0 || strcmp(name, ".best.tmp") == 0)
    done = unlink(path) == 0;
  if (!done) brim_log(BRIM_LOG_DEBUG, "cannot remove leftover '%s': %s", path, strerror(errno));
}

static void sweep(const char *folder)
{
  DIR *dir = opendir(folder);
  if (!dir) return;
  for (const struct dirent *entry; (entry = readdir(dir));)
    if (entry->d_name[0] == '.') sweep_entry(folder, entry->d_name);
  closedir(dir);
}

/* ---- the links `last` and `best` ---- */

static int64_t link_step(const char *folder, const char *name)
{
  char path[BRIM_PATH_MAX], target[NAME_BYTES];
  if (brim_path_join(path, folder, name) != BRIM_OK) return -1;
  const ssize_t length = readlink(path, target, sizeof target - 1);
  if (length <= 0) return -1;
  target[length] = '\0';
  return name_step(target, "", "");
}

static bool step_exists(const char *folder, int64_t step)
{
  char path[BRIM_PATH_MAX];
  return step >= 0 && step_path(path, folder, "", step, "") == BRIM_OK && brim_is_folder(path);
}

/* Decides which links must change for the newest checkpoint `step` and the best one (-1: none). */
static void links_choose(const char *folder, int64_t step, int64_t best, brim_link_change change[BRIM_LINKS])
{
  const bool has_best = best == step || step_exists(folder, best);
  change[BRIM_LINK_LAST] = (brim_link_change){"last", ".last.tmp", link_step(folder, "last") == step ? -1 : step};
  change[BRIM_LINK_BEST] =
      (brim_link_change){"best", ".best.tmp", !has_best || link_step(folder, "best") == best ? -1 : best};
}

static brim_status links_prepare(const char *folder, const brim_link_change *change)
{
  char path[BRIM_PATH_MAX], target[NAME_BYTES];
  for (int i = 0; i < BRIM_LINKS; i++) {
    if (change[i].step < 0) continue;
    step_name(target, "", change[i].step, "");
    BRIM_TRY(brim_path_join(path, folder, change[i].aside));
    if (symlink(target, path) != 0) return brim_fail(BRIM_EIO, "cannot make link '%s': %s", path, strerror(errno));
  }
  return BRIM_OK;
}

/* Replaces all links that can be replaced. Returns the last error, for example if a folder has the name of a link. */
static brim_status links_commit(const char *folder, const brim_link_change *change)
{
  char path[BRIM_PATH_MAX], aside[BRIM_PATH_MAX];
  brim_status status = BRIM_OK;
  for (int i = 0; i < BRIM_LINKS; i++) {
    if (change[i].step < 0) continue;
    BRIM_TRY(brim_path_join(path, folder, change[i].name));
    BRIM_TRY(brim_path_join(aside, folder, change[i].aside));
    if (rename(aside, path) == 0) continue;
    status = brim_fail(BRIM_EIO, "cannot replace link '%s': %s", path, strerror(errno));
    unlink(aside);
  }
  return status;
}

/* ---- writing ---- */

brim_status brim_checkpoint_path(const char *run_dir, int64_t step, char out[BRIM_PATH_MAX])
{
  char folder[BRIM_PATH_MAX];
  BRIM_TRY(brim_path_join(folder, run_dir, BRIM_CHECKPOINTS_NAME));
  return step_path(out, folder, "", step, "");
}

brim_status brim_checkpoint_aside(const char *run_dir, int64_t step, char out[BRIM_PATH_MAX])
{
  char folder[BRIM_PATH_MAX];
  BRIM_TRY(brim_path_join(folder, run_dir, BRIM_CHECKPOINTS_NAME));
  return step_path(out, folder, ".", step, ".tmp");
}

brim_status brim_checkpoint_begin(brim_checkpoint_attempt *a, const char *run_dir, int64_t step, int64_t best)
{
  BRIM_TRY(brim_path_join(a->folder, run_dir, BRIM_CHECKPOINTS_NAME));
  BRIM_TRY(step_path(a->aside, a->folder, ".", step, ".tmp"));
  BRIM_TRY(step_path(a->whole, a->folder, "", step, ""));
  BRIM_TRY(step_path(a->old, a->folder, ".", step, ".old"));
  a->made_folder = mkdir(a->folder, 0777) == 0;
  if (!a->made_folder && errno != EEXIST)
    return brim_fail(BRIM_EIO, "cannot make folder '%s': %s", a->folder, strerror(errno));
  if (a->made_folder) BRIM_TRY(brim_folder_sync(run_dir));
  sweep(a->folder);
  a->made_aside = mkdir(a->aside, 0777) == 0;
  if (!a->made_aside) return brim_fail(BRIM_EIO, "cannot make folder '%s': %s", a->aside, strerror(errno));
  links_choose(a->folder, step, best, a->change);
  return BRIM_OK;
}

brim_status brim_checkpoint_publish(brim_checkpoint_attempt *a)
{
  BRIM_TRY(links_prepare(a->folder, a->change));
  if (brim_is_folder(a->whole)) {
    a->moved_old = rename(a->whole, a->old) == 0;
    if (!a->moved_old) return brim_fail(BRIM_EIO, "cannot move '%s' away: %s", a->whole, strerror(errno));
  }
  a->published = rename(a->aside, a->whole) == 0;
  if (!a->published) return brim_fail(BRIM_EIO, "cannot rename '%s' to '%s': %s", a->aside, a->whole, strerror(errno));
  return brim_folder_sync(a->folder);
}

void brim_checkpoint_abandon(brim_checkpoint_attempt *a)
{
  bool done = !a->published || rename(a->whole, a->aside) == 0;
  if (a->moved_old) done = rename(a->old, a->whole) == 0 && done;
  char path[BRIM_PATH_MAX];
  for (int i = 0; i < BRIM_LINKS; i++)
    if (a->change[i].step >= 0 && snprintf(path, sizeof path, "%s/%s", a->folder, a->change[i].aside) < BRIM_PATH_MAX)
      unlink(path);
  if (a->made_aside) done = brim_folder_remove(a->aside) && done;
  if (a->made_folder) done = rmdir(a->folder) == 0 && done;
  if (!done) brim_log(BRIM_LOG_DEBUG, "leftovers in '%s': %s", a->folder, strerror(errno));
}

/* If another process is reading the checkpoint, leaves it for a later call. */
static brim_status delete_step(const char *folder, int64_t step)
{
  char path[BRIM_PATH_MAX], aside[BRIM_PATH_MAX];
  BRIM_TRY(step_path(path, folder, "", step, ""));
  BRIM_TRY(step_path(aside, folder, ".", step, ".del"));
  const int lock = brim_checkpoint_lock_to_delete(path);
  if (lock == BRIM_CHECKPOINT_HELD) return BRIM_OK;
  const bool done = rename(path, aside) == 0 && brim_folder_remove(aside);
  const int reason = errno;
  if (lock >= 0) close(lock);
  return done ? BRIM_OK : brim_fail(BRIM_EIO, "cannot delete '%s': %s", path, strerror(reason));
}

/* Deletes old checkpoints up to `step`, except the last `keep` ones and the best. Newer checkpoints are damaged ones
 * from before the run was resumed; they stay for the user until this run writes them again. */
static brim_status thin_out(const char *folder, int64_t step, int64_t best, int64_t keep)
{
  steps all;
  brim_status status = list_steps(folder, &all);
  const int64_t linked = link_step(folder, "best");
  int64_t seen = 0;
  for (size_t i = all.count; i-- > 0 && status == BRIM_OK;) {
    if (all.item[i] > step || seen++ == 0 || seen <= keep) continue;
    if (all.item[i] == best || all.item[i] == linked) continue;
    status = delete_step(folder, all.item[i]);
  }
  free(all.item);
  return status;
}

/* Logs a failure as a warning, because the checkpoint is already written. */
static void warn_after(const brim_train_state *state, brim_status status)
{
  if (status != BRIM_OK)
    brim_log(BRIM_LOG_WARN, "the checkpoint of step %" PRId64 " is written, but %s", state->step, brim_error_text());
}

void brim_checkpoint_conclude(brim_checkpoint_attempt *a, const brim_train_state *state, int64_t keep)
{
  warn_after(state, links_commit(a->folder, a->change));
  warn_after(state, thin_out(a->folder, state->step, state->best_step, keep));
  if (a->moved_old && !brim_folder_remove(a->old))
    warn_after(state, brim_fail(BRIM_EIO, "cannot delete '%s': %s", a->old, strerror(errno)));
}

static void drop_cached(const char *folder, int64_t step)
{
  char path[BRIM_PATH_MAX], part[BRIM_PATH_MAX];
  if (step_path(path, folder, "", step, "") != BRIM_OK) return;
  for (int i = 0; i < BRIM_CHECKPOINT_PARTS; i++)
    if (brim_path_join(part, path, brim_checkpoint_part_name[i]) == BRIM_OK) brim_file_drop_cached(part);
}

void brim_checkpoint_drop_cached(const char *run_dir)
{
  char folder[BRIM_PATH_MAX];
  steps all = {0};
  if (brim_path_join(folder, run_dir, BRIM_CHECKPOINTS_NAME) != BRIM_OK || list_steps(folder, &all) != BRIM_OK) return;
  for (size_t i = 0; i < all.count; i++) drop_cached(folder, all.item[i]);
  free(all.item);
}

/* ---- finding ---- */

/* Checks every byte: state.json against its checksum, and the files against state.json. That reads them once, as a
 * resume does anyway. */
static brim_status check_whole(const char *path, int64_t step, brim_train_state *state)
{
  brim_file_digest digest[BRIM_CHECKPOINT_PARTS];
  BRIM_TRY(brim_checkpoint_state_read(path, state, digest));
  if (state->step != step)
    return brim_fail(BRIM_ELOAD, "'%s' is damaged: its state belongs to step %" PRId64, path, state->step);
  for (int i = 0; i < BRIM_CHECKPOINT_PARTS; i++) BRIM_TRY(brim_checkpoint_part_check(path, i, &digest[i]));
  return BRIM_OK;
}

/* Repairs the links after a kill between publishing and linking. Links only serve users, so it is not an error if the
 * folder cannot be written. */
static void mend_links(const char *folder, int64_t step, int64_t best)
{
  brim_link_change change[BRIM_LINKS];
  links_choose(folder, step, best, change);
  if (links_prepare(folder, change) != BRIM_OK || links_commit(folder, change) != BRIM_OK)
    brim_log(BRIM_LOG_DEBUG, "links in '%s': %s", folder, brim_error_text());
}

static brim_status find_whole(const char *folder, const steps *all, char *path, size_t room, bool *found)
{
  char candidate[BRIM_PATH_MAX];
  brim_train_state state;
  for (size_t i = all->count; i-- > 0;) {
    BRIM_TRY(step_path(candidate, folder, "", all->item[i], ""));
    if (check_whole(candidate, all->item[i], &state) != BRIM_OK) {
      brim_log(BRIM_LOG_WARN, "skipping a checkpoint: %s", brim_error_text());
      continue;
    }
    const int length = snprintf(path, room, "%s", candidate);
    if (length < 0 || (size_t)length >= room)
      return brim_fail(BRIM_EINVAL, "path '%.200s...' is longer than %zu bytes", candidate, room);
    mend_links(folder, state.step, state.best_step);
    *found = true;
    return BRIM_OK;
  }
  if (all->count == 0) return BRIM_OK;
  return brim_fail_add(brim_fail(BRIM_ELOAD, "all %zu checkpoints in '%s' are damaged", all->count, folder),
                       "restore an undamaged copy, or start a new run: brim train --from <run>");
}

brim_status brim_checkpoint_find(const char *run_dir, char *path, size_t room, bool *found)
{
  char folder[BRIM_PATH_MAX];
  steps all;
  *found = false;
  BRIM_TRY(brim_path_join(folder, run_dir, BRIM_CHECKPOINTS_NAME));
  sweep(folder);
  BRIM_TRY(list_steps(folder, &all));
  const brim_status status = find_whole(folder, &all, path, room, found);
  free(all.item);
  return status;
}

/* Returns the step of the newest undamaged checkpoint, which makes older ones spare. Returns 0 if there is none, or,
 * without reading, if there is nothing to delete. Warns about newer ones, which are damaged and stay too. */
static int64_t newest_whole(const char *folder, const steps *all, int64_t best, int64_t last)
{
  char path[BRIM_PATH_MAX];
  brim_train_state state;
  size_t spare = 0;
  while (spare < all->count && (all->item[spare] == best || all->item[spare] == last)) spare++;
  for (size_t i = all->count; i-- > spare + 1;) {
    if (step_path(path, folder, "", all->item[i], "") == BRIM_OK && check_whole(path, all->item[i], &state) == BRIM_OK)
      return all->item[i];
    brim_log(BRIM_LOG_WARN, "older checkpoints are kept: %s", brim_error_text());
  }
  return 0;
}

/* Whether the step is still in the list, because a process may have trained since it was found. */
static bool has_step(const steps *all, int64_t step)
{
  for (size_t i = 0; i < all->count; i++)
    if (all->item[i] == step) return true;
  return false;
}

brim_status brim_checkpoint_prune(const char *run_dir, bool deletes, int64_t *whole, size_t *count, uint64_t *bytes)
{
  char folder[BRIM_PATH_MAX], path[BRIM_PATH_MAX];
  struct stat info;
  steps all;
  BRIM_TRY(brim_path_join(folder, run_dir, BRIM_CHECKPOINTS_NAME));
  if (lstat(folder, &info) == 0 && S_ISLNK(info.st_mode))
    return brim_fail(BRIM_ECONFIG,
                     "'%s' is a link, perhaps to another run's checkpoints: brim deletes no files through it", folder);
  brim_status status = list_steps(folder, &all);
  const int64_t best = link_step(folder, "best"), last = link_step(folder, "last");
  if (!deletes) *whole = newest_whole(folder, &all, best, last);
  const bool is_there = has_step(&all, *whole);
  for (size_t i = 0; i < all.count && is_there && all.item[i] < *whole && status == BRIM_OK; i++) {
    if (all.item[i] == best || all.item[i] == last) continue;
    status = step_path(path, folder, "", all.item[i], "");
    if (status == BRIM_OK) *bytes += brim_disk_bytes(path);
    *count += 1;
    if (status == BRIM_OK && deletes) status = delete_step(folder, all.item[i]);
  }
  free(all.item);
  return status;
}

bool brim_checkpoint_exists(const char *run_dir)
{
  char folder[BRIM_PATH_MAX];
  steps all = {0};
  const bool exists = brim_path_join(folder, run_dir, BRIM_CHECKPOINTS_NAME) == BRIM_OK &&
                      list_steps(folder, &all) == BRIM_OK && all.count > 0;
  free(all.item);
  return exists;
}
