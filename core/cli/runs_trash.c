/* brim runs delete, restore, empty and prune: deletes and restores runs. See runs.h. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/runs.h"
#include "graph/plan_json.h"
#include "report/find.h"
#include "store/checkpoint.h"
#include "store/rundir.h"
#include "store/trash.h"

/* A run in a trash, and the folder from which it came. */
typedef struct trashed {
  const char *folder;
  brim_trashed run;
} trashed;

typedef struct trash {
  trashed *item;
  size_t count, room;
} trash;

/* ---- finding ---- */

static brim_status add_trash(brim_runs *runs, const char *folder, trash *out)
{
  brim_trashed *item;
  size_t count;
  BRIM_TRY(brim_trash_list(runs->arena, folder, &item, &count));
  for (size_t i = 0; i < count; i++) {
    BRIM_ARENA_GROW(runs->arena, out->item, out->count, out->room);
    out->item[out->count++] = (trashed){folder, item[i]};
  }
  return BRIM_OK;
}

/* Finds the trash of a folder and of the folders below it, down to those that contain runs. If one cannot be read,
 * continues with the others. */
static void find_trash(brim_runs *runs, const char *folder, int depth, trash *out)
{
  const char **name;
  size_t count;
  struct stat info;
  if (add_trash(runs, folder, out) != BRIM_OK) brim_log(BRIM_LOG_WARN, "%s", brim_error_text());
  if (depth == BRIM_FIND_DEPTH_MAX || !brim_folder_names(runs->arena, folder, &name, &count)) return;
  for (size_t i = 0; i < count; i++) {
    const char *below = brim_arena_printf(runs->arena, "%s/%s", folder, name[i]);
    if (lstat(below, &info) != 0 || !S_ISDIR(info.st_mode) || brim_is_run(AT_FDCWD, below, 0)) continue;
    if (access(below, R_OK | X_OK) == 0) find_trash(runs, below, depth + 1, out);
  }
}

/* Without folders: uses the working folder's trash, and those below runs and multirun. */
static brim_status find_all_trash(brim_runs *runs, const char *const *folder, size_t folders, trash *out)
{
  const char *own[BRIM_RUNS_FOLDERS_MAX];
  if (folders == 0) {
    BRIM_TRY(add_trash(runs, ".", out));
    const brim_status status = brim_runs_default_folders(own, &folders);
    if (status != BRIM_OK && out->count == 0) return status;
    folder = own;
  }
  for (size_t i = 0; i < folders; i++) {
    if (access(folder[i], R_OK | X_OK) != 0)
      return brim_fail(BRIM_ELOAD, "cannot read the folder '%s': %s", folder[i], strerror(errno));
    if (!brim_is_folder(folder[i])) return brim_fail(BRIM_ELOAD, "'%s' is not a folder", folder[i]);
    find_trash(runs, folder[i], 0, out);
  }
  return BRIM_OK;
}

/* Returns the path at which the run was, as the user would write it. */
static const char *path_before(brim_arena *arena, const trashed *t)
{
  if (strcmp(t->folder, ".") == 0) return t->run.name;
  const size_t length = strlen(t->folder);
  return brim_arena_printf(arena, "%s%s%s", t->folder, t->folder[length - 1] == '/' ? "" : "/", t->run.name);
}

static const char *path_in_trash(brim_arena *arena, const trashed *t)
{
  return brim_arena_printf(arena, "%s/%s/%s/%s", t->folder, BRIM_TRASH_NAME, t->run.when, t->run.name);
}

static void print_trash(brim_runs *runs, const trash *all)
{
  char bytes[32];
  brim_text out = {0};
  brim_table table = {.arena = runs->arena, .columns = 3};
  brim_table_add(&table, "deleted run");
  brim_table_add(&table, "when");
  brim_table_add(&table, "size");
  for (size_t i = 0; i < all->count; i++) {
    const trashed *t = &all->item[i];
    brim_table_add(&table, path_before(runs->arena, t));
    brim_table_add(&table, t->run.when);
    brim_table_add(&table, brim_format_bytes(bytes, sizeof bytes, brim_disk_bytes(path_in_trash(runs->arena, t))));
  }
  if (all->count > 0)
    brim_table_print(&table, &out);
  else
    brim_text_add(&out, "the trash is empty\n");
  brim_cli_print(brim_text_str(&out));
  brim_text_release(&out);
}

/* Asks on a terminal before anything is deleted that the user has not named; elsewhere --yes is needed. The caller has
 * printed the list. `what`: "3 runs"; `verb`, `tail`: "Move" "to the trash". */
static brim_status confirm(const brim_runs *runs, const char *verb, const char *what, const char *tail)
{
  char answer[16] = "";
  if (runs->options->yes) return BRIM_OK;
  if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
    return brim_fail(BRIM_ECONFIG, "nothing was deleted: to %c%s %s%s without a question, add --yes",
                     (char)tolower((unsigned char)verb[0]), verb + 1, what, tail);
  fflush(stdout);
  fprintf(stderr, "%s %s%s? [y/N] ", verb, what, tail);
  if (!fgets(answer, sizeof answer, stdin) || (answer[0] != 'y' && answer[0] != 'Y'))
    return brim_fail(BRIM_ECONFIG, "nothing was deleted");
  return BRIM_OK;
}

static const char *count_runs(brim_arena *arena, size_t count)
{
  return brim_arena_printf(arena, "%zu run%s", count, brim_plural((int64_t)count));
}

/* ---- delete and restore ---- */

/* Rejects a run's folder that contains folders of other runs, which would move with it. */
static brim_status check_below(brim_runs *runs, const char *path)
{
  brim_found_list below;
  if (!brim_is_run(AT_FDCWD, path, 0) || brim_find_runs(runs->arena, path, &below) != BRIM_OK)
    return BRIM_OK; /* brim_trash_run reports it */
  for (size_t i = 0; i < below.count; i++) {
    const char *run = brim_arena_printf(runs->arena, "%s/%s", path, below.item[i].name);
    if (!below.item[i].error && brim_run_is_open(run))
      return brim_fail(BRIM_EINVAL, "'%s' is running, and would move with '%s'\nstop it first", run, path);
  }
  return BRIM_OK;
}

static brim_status delete_run(brim_runs *runs, const char *path)
{
  BRIM_TRY(check_below(runs, path));
  BRIM_TRY(brim_trash_run(path));
  brim_say("deleted '%s'; to restore it: brim runs restore %s", path, BRIM_QUOTED(path));
  return BRIM_OK;
}

/* If a run cannot be deleted, continues with the others. Shows runs that a filter has selected first. */
brim_status brim_runs_delete(brim_runs *runs, const char *const *operand, size_t operands)
{
  const char **path;
  size_t count, done = 0;
  brim_status status = BRIM_OK;
  BRIM_TRY(brim_runs_list(runs, operand, operands, "delete", &path, &count));
  if (runs->options->where && count > 0 && !runs->options->yes) {
    brim_runs_print_table(runs);
    BRIM_TRY(confirm(runs, "Move", count_runs(runs->arena, count), " to the trash"));
  }
  for (size_t i = 0; i < count; i++) {
    const brim_status one = delete_run(runs, path[i]);
    done += one == BRIM_OK;
    if (one == BRIM_OK) continue;
    status = one;
    if (count > 1) brim_log(BRIM_LOG_WARN, "%s", brim_error_text());
  }
  if (status == BRIM_OK || count == 1) return status;
  return brim_fail(status, "%zu of %zu runs were not deleted", count - done, count);
}

static brim_status restore(brim_runs *runs, const trashed *t)
{
  BRIM_TRY(brim_trash_restore(t->folder, &t->run));
  brim_say("restored '%s'", path_before(runs->arena, t));
  return BRIM_OK;
}

/* Returns the item that was deleted last among those whose paths end in `path`; NULL: none. ECONFIG: they are in
 * several folders. */
static brim_status find_deleted(brim_runs *runs, const trash *all, const char *path, const trashed **out)
{
  *out = NULL;
  for (size_t i = all->count; i-- > 0;) {
    const char *before = path_before(runs->arena, &all->item[i]);
    const size_t length = strlen(path), whole = strlen(before);
    if (!brim_ends_with(before, path) || (length < whole && before[whole - length - 1] != '/')) continue;
    if (*out && strcmp(before, path_before(runs->arena, *out)) != 0)
      return brim_fail(BRIM_ECONFIG, "'%s' may be '%s' or '%s': write more of it", path, before,
                       path_before(runs->arena, *out));
    if (!*out) *out = &all->item[i];
  }
  return BRIM_OK;
}

/* Restores the run that was deleted last under this path; lists the deleted runs of a folder. */
static brim_status restore_named(brim_runs *runs, const char *path)
{
  size_t end = strlen(path);
  while (end > 1 && path[end - 1] == '/') end--;
  path = brim_arena_string_n(runs->arena, path, end);
  const char *slash = strrchr(path, '/');
  const char *folder = !slash ? "." : brim_arena_string_n(runs->arena, path, slash > path ? (size_t)(slash - path) : 1);
  const trashed *found = NULL;
  trash beside = {0}, all = {0};
  if (brim_is_folder(folder)) BRIM_TRY(add_trash(runs, folder, &beside));
  BRIM_TRY(find_deleted(runs, &beside, path, &found));
  if (found) return restore(runs, found);
  if (find_all_trash(runs, NULL, 0, &all) == BRIM_OK) BRIM_TRY(find_deleted(runs, &all, path, &found));
  if (found) return restore(runs, found);
  if (!brim_is_folder(path) || brim_is_run(AT_FDCWD, path, 0))
    return brim_fail(BRIM_ELOAD, "there is no deleted run '%s' in '%s/%s'\n`brim runs restore` lists the deleted runs",
                     slash ? slash + 1 : path, folder, BRIM_TRASH_NAME);
  all = (trash){0};
  BRIM_TRY(find_all_trash(runs, &path, 1, &all));
  print_trash(runs, &all);
  return BRIM_OK;
}

/* Restores the deleted runs that match --where. If several have the same name, only the newest is restored. */
static brim_status restore_where(brim_runs *runs, const char *const *folder, size_t folders)
{
  trash all = {0};
  size_t done = 0;
  brim_status status = BRIM_OK;
  BRIM_TRY(brim_runs_take_options(runs, "name"));
  BRIM_TRY(find_all_trash(runs, folder, folders, &all));
  BRIM_ARENA_GROW(runs->arena, runs->index, runs->indexes, runs->index_room);
  brim_index *index = &runs->index[runs->indexes++];
  *index = (brim_index){0};
  for (size_t i = 0; i < all.count; i++)
    brim_index_add_renamed(index, path_before(runs->arena, &all.item[i]), path_in_trash(runs->arena, &all.item[i]));
  BRIM_TRY(brim_runs_choose(runs));
  bool *chosen = BRIM_ARENA_NEW(runs->arena, bool, all.count + 1);
  for (size_t i = 0; i < runs->rows; i++) chosen[runs->row[i].run - index->run] = true;
  for (size_t i = all.count; i-- > 0;) {
    const brim_status one = chosen[i] ? restore(runs, &all.item[i]) : BRIM_OK;
    done += chosen[i] && one == BRIM_OK;
    if (one == BRIM_OK) continue;
    status = one;
    brim_log(BRIM_LOG_WARN, "%s", brim_error_text());
  }
  if (runs->rows == 0) brim_say("no deleted run matches --where '%s'; there are %zu", runs->options->where, all.count);
  if (status == BRIM_OK) return BRIM_OK;
  return brim_fail(status, "%zu of %zu runs were not restored", runs->rows - done, runs->rows);
}

brim_status brim_runs_restore(brim_runs *runs, const char *const *operand, size_t operands)
{
  trash all = {0};
  if (runs->options->where) return restore_where(runs, operand, operands);
  if (operands == 0) {
    BRIM_TRY(find_all_trash(runs, NULL, 0, &all));
    print_trash(runs, &all);
  }
  for (size_t i = 0; i < operands; i++) BRIM_TRY(restore_named(runs, operand[i]));
  return BRIM_OK;
}

/* ---- for good ---- */

brim_status brim_runs_empty(brim_runs *runs, const char *const *operand, size_t operands)
{
  trash all = {0};
  uint64_t bytes = 0;
  char size[32];
  BRIM_TRY(find_all_trash(runs, operand, operands, &all));
  print_trash(runs, &all);
  if (all.count == 0) return BRIM_OK;
  for (size_t i = 0; i < all.count; i++) bytes += brim_disk_bytes(path_in_trash(runs->arena, &all.item[i]));
  brim_format_bytes(size, sizeof size, bytes);
  BRIM_TRY(confirm(runs, "Delete", brim_arena_printf(runs->arena, "%s (%s)", count_runs(runs->arena, all.count), size),
                   " for good"));
  for (size_t i = 0; i < all.count; i++) BRIM_TRY(brim_trash_delete(all.item[i].folder, &all.item[i].run));
  brim_say("%zu run%s deleted for good: %s", all.count, brim_plural((int64_t)all.count), size);
  return BRIM_OK;
}

/* Deletes the spare checkpoints of a run, unless a process has the run. `whole`: see brim_checkpoint_prune. */
static brim_status prune_run(const char *run, int64_t whole, size_t *count, uint64_t *bytes)
{
  int lock;
  BRIM_TRY(brim_run_lock(run, &lock));
  const brim_status status = brim_checkpoint_prune(run, true, &whole, count, bytes);
  close(lock);
  return status;
}

static bool is_running(const brim_runs_row *row)
{
  return row->run->state == BRIM_INDEX_OPEN;
}

brim_status brim_runs_prune(brim_runs *runs, const char *const *operand, size_t operands)
{
  uint64_t bytes = 0, freed = 0;
  size_t count = 0, deleted = 0, of_runs = 0;
  char size[32];
  BRIM_TRY(brim_runs_select(runs, operand, operands, "name"));
  brim_runs_warn(runs);
  int64_t *whole = BRIM_ARENA_NEW(runs->arena, int64_t, runs->rows);
  brim_table table = {.arena = runs->arena, .columns = 3};
  brim_table_add(&table, "run");
  brim_table_add(&table, "checkpoints to delete");
  brim_table_add(&table, "size");
  for (size_t i = 0; i < runs->rows; i++) {
    const size_t before = count;
    const uint64_t bytes_before = bytes;
    if (!is_running(&runs->row[i]))
      BRIM_TRY(brim_checkpoint_prune(runs->row[i].path, false, &whole[i], &count, &bytes));
    if (count == before) continue;
    of_runs++;
    brim_table_add(&table, runs->row[i].path);
    brim_table_add(&table, brim_arena_printf(runs->arena, "%zu", count - before));
    brim_table_add(&table, brim_format_bytes(size, sizeof size, bytes - bytes_before));
  }
  if (count == 0) {
    brim_say("nothing to prune: no run has checkpoints besides those that it needs");
    return BRIM_OK;
  }
  brim_text shown = {0};
  brim_table_print(&table, &shown);
  brim_cli_print(brim_text_str(&shown));
  brim_text_release(&shown);
  BRIM_TRY(confirm(runs, "Delete",
                   brim_arena_printf(runs->arena, "%zu checkpoint%s of %s (%s)", count, brim_plural((int64_t)count),
                                     count_runs(runs->arena, of_runs), brim_format_bytes(size, sizeof size, bytes)),
                   " for good"));
  for (size_t i = 0; i < runs->rows; i++)
    if (whole[i] > 0 && prune_run(runs->row[i].path, whole[i], &deleted, &freed) != BRIM_OK)
      brim_log(BRIM_LOG_WARN, "%s", brim_error_text());
  brim_say("%zu checkpoint%s deleted: %s", deleted, brim_plural((int64_t)deleted),
           brim_format_bytes(size, sizeof size, freed));
  return BRIM_OK;
}
