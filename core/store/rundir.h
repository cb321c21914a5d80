/* A run's folder: config.yaml (resolved), overrides.yaml, sources.yaml, plugins.json, plan.json,
 * metrics.jsonl, events.jsonl, summary.json, checkpoints/. The working directory never changes. */
#ifndef BRIM_STORE_RUNDIR_H
#define BRIM_STORE_RUNDIR_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "brim/status.h"
#include "store/jsonl.h" /* what a run appends to */

/* Writes a whole file aside (".<name>.tmp" beside it), syncs it, and renames it into place: at `path` are the
 * old bytes or the new ones, never a part. One writer at a time. EIO with the reason. */
brim_status brim_file_write_atomic(const char *path, const char *text, size_t bytes);
/* Its two halves, for files that are written otherwise. The name aside, and the folder; both hold BRIM_PATH_MAX bytes.
 */
brim_status brim_path_aside(const char *path, char *folder, char *aside);
/* Renames what is whole and synced into place; on failure it is removed. */
brim_status brim_file_publish(const char *aside, const char *path, const char *folder);
/* Makes the folder <before>YYYYmmdd-HHMMSS, numbered if taken ("-2"), whose parent is there, and writes its path. */
brim_status brim_make_stamped_folder(const char *before, char *path, size_t room);
/* ECONFIG if it is the working folder, or one above it: a run needs a folder of its own. */
brim_status brim_run_check_dir(const char *dir);
/* Makes a new run's folder. `dir` set: that one, which must not hold a run already (ECONFIG says to use
 * --resume or another run.dir), nor other files of the names that a run writes. `dir` empty:
 * runs/<name>-YYYYmmdd-HHMMSS, numbered if taken ("-2"). `name` is a single part of a path (else ECONFIG). */
brim_status brim_run_create(const char *dir, const char *name, char *path, size_t room);
#define BRIM_RUN_LOCK_NAME ".lock"
/* One process per run folder: a lock (flock on <run>/.lock), released when the process ends or closes
 * *fd. EINVAL, with its process number, if another process holds it, or if there is no such folder. Only the
 * holder may write below `path`. */
brim_status brim_run_lock(const char *path, int *fd);
#endif
