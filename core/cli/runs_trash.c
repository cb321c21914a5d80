/* brim runs delete, restore, empty and prune. See runs.h. */
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

/* A run in a trash, and the folder that it came from. */
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

/* The trash of a folder and of the folders below, down to those that hold runs. */
static brim_status find_trash(brim_runs *runs, const char *folder, int depth, trash *out)
{
  const char **name;
  size_t count;
  struct stat info;
  BRIM_TRY(add_trash(runs, folder, out));
  if (depth == BRIM_FIND_DEPTH_MAX || !brim_folder_names(runs->arena, folder, &name, &count)) return BRIM_OK;
  for (size_t i = 0; i < count; i++) {
    const char *below = brim_arena_printf(runs->arena, "%s/%s", folder, name[i]);
    if (lstat(below, &info) != 0 || !S_ISDIR(info.st_mode) || brim_find_is_run(AT_FDCWD, below)) continue;
    if (access(below, R_OK | X_OK) == 0) BRIM_TRY(find_trash(runs, below, depth + 1, out));
  }
  return BRIM_OK;
}

static brim_status find_all_trash(brim_runs *runs, const char *const *folder, size_t folders, trash *out)
{
  const char *own[BRIM_RUNS_FOLDERS_MAX];
  if (folders == 0) {
    BRIM_TRY(brim_runs_default_folders(own, &folders));
    folder = own;
  }
  for (size_t i = 0; i < folders; i++) {
    if (!brim_is_folder(folder[i])) return brim_fail(BRIM_ELOAD, "there is no folder '%s'", folder[i]);
    BRIM_TRY(find_trash(runs, folder[i], 0, out));
  }
  return BRIM_OK;
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
    brim_table_add(&table, brim_arena_printf(runs->arena, "%s/%s", t->folder, t->run.name));
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

/* Asks on a terminal; elsewhere --yes is needed. `what` completes "delete ... for good". */
static brim_status confirm(const brim_runs *runs, const char *what)
{
  char answer[16] = "";
  if (runs->options->yes) return BRIM_OK;
  if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
    return brim_fail(BRIM_ECONFIG, "%s would be deleted for good: add --yes", what);
  fprintf(stderr, "Delete %s for good? [y/N] ", what);
  if (!fgets(answer, sizeof answer, stdin) || (answer[0] != 'y' && answer[0] != 'Y'))
    return brim_fail(BRIM_ECONFIG, "nothing was deleted");
  return BRIM_OK;
}

/* ---- delete and restore ---- */

/* A run that cannot be deleted does not keep the others. */
brim_status brim_runs_delete(brim_runs *runs, const char *const *operand, size_t operands)
{
  const char **path;
  size_t count, done = 0;
  brim_status status = BRIM_OK;
  BRIM_TRY(brim_runs_list(runs, operand, operands, "delete", &path, &count));
  for (size_t i = 0; i < count; i++) {
    const brim_status one = brim_trash_run(path[i]);
    if (one == BRIM_OK) {
      done++;
      brim_say("deleted '%s'; to restore it: brim runs restore %s", path[i], path[i]);
      continue;
    }
    status = one;
    if (count > 1) brim_log(BRIM_LOG_WARN, "%s", brim_error_text());
  }
  if (status == BRIM_OK || count == 1) return status;
  return brim_fail(status, "%zu of %zu runs were not deleted", count - done, count);
}

/* Restores the run that was deleted last under this path. */
static brim_status restore(brim_runs *runs, const char *path)
{
  size_t end = strlen(path);
  while (end > 1 && path[end - 1] == '/') end--;
  size_t start = end;
  while (start > 0 && path[start - 1] != '/') start--;
  const char *name = brim_arena_string_n(runs->arena, path + start, end - start);
  const char *folder = start == 0 ? "." : brim_arena_string_n(runs->arena, path, start > 1 ? start - 1 : 1);
  trash all = {0};
  if (start == 0 && brim_is_folder("runs")) folder = "runs"; /* a bare name, as other commands take it */
  BRIM_TRY(add_trash(runs, folder, &all));
  for (size_t i = all.count; i-- > 0;)
    if (strcmp(all.item[i].run.name, name) == 0) {
      BRIM_TRY(brim_trash_restore(folder, &all.item[i].run));
      brim_say("restored '%s/%s'", folder, name);
      return BRIM_OK;
    }
  return brim_fail(BRIM_ELOAD, "there is no deleted run '%s' in '%s/%s'\n`brim runs restore` lists the deleted runs",
                   name, folder, BRIM_TRASH_NAME);
}

brim_status brim_runs_restore(brim_runs *runs, const char *const *operand, size_t operands)
{
  trash all = {0};
  if (operands == 0) {
    BRIM_TRY(find_all_trash(runs, NULL, 0, &all));
    print_trash(runs, &all);
  }
  for (size_t i = 0; i < operands; i++) BRIM_TRY(restore(runs, operand[i]));
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
  BRIM_TRY(confirm(runs,
                   brim_arena_printf(runs->arena, "%zu run%s (%s)", all.count, brim_plural((int64_t)all.count), size)));
  for (size_t i = 0; i < all.count; i++) BRIM_TRY(brim_trash_delete(all.item[i].folder, &all.item[i].run));
  brim_say("%zu run%s deleted for good: %s", all.count, brim_plural((int64_t)all.count), size);
  return BRIM_OK;
}

/* Deletes the spare checkpoints of a run, unless a process has the run. */
static brim_status prune_run(const char *run, size_t *count, uint64_t *bytes)
{
  int lock;
  BRIM_TRY(brim_run_lock(run, &lock));
  const brim_status status = brim_checkpoint_prune(run, true, count, bytes);
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
  for (size_t i = 0; i < runs->rows; i++) {
    const size_t before = count;
    if (!is_running(&runs->row[i]))
      BRIM_TRY(brim_checkpoint_prune(brim_index_path(runs->arena, runs->row[i].index, runs->row[i].run), false, &count,
                                     &bytes));
    of_runs += count > before;
  }
  if (count == 0) {
    brim_say("nothing to prune: each run has only the checkpoints that `best` and `last` point to");
    return BRIM_OK;
  }
  BRIM_TRY(confirm(runs, brim_arena_printf(runs->arena, "%zu checkpoint%s of %zu run%s (%s)", count,
                                           brim_plural((int64_t)count), of_runs, brim_plural((int64_t)of_runs),
                                           brim_format_bytes(size, sizeof size, bytes))));
  for (size_t i = 0; i < runs->rows; i++)
    if (!is_running(&runs->row[i]) &&
        prune_run(brim_index_path(runs->arena, runs->row[i].index, runs->row[i].run), &deleted, &freed) != BRIM_OK)
      brim_log(BRIM_LOG_WARN, "%s", brim_error_text());
  brim_say("%zu checkpoint%s deleted: %s", deleted, brim_plural((int64_t)deleted),
           brim_format_bytes(size, sizeof size, freed));
  return BRIM_OK;
}
