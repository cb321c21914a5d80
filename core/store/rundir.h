/* A run's folder: config.yaml (resolved), overrides.yaml, sources.yaml, plugins.json, plan.json,
 * metrics.jsonl, events.jsonl, summary.json, checkpoints/. The working directory never changes. */
#ifndef BRIM_STORE_RUNDIR_H
#define BRIM_STORE_RUNDIR_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "brim/status.h"
#include "store/jsonl.h" /* the log type of a run */

/* Writes a whole file aside (".<name>.tmp" in the same folder), syncs it, and renames it into place: `path` has the
 * old bytes or the new ones, never a part. One writer at a time. EIO with the reason. */
brim_status brim_file_write_atomic(const char *path, const char *text, size_t bytes);
/* The same without syncing the folder, for several files: brim_folder_sync() follows before their names must last. */
brim_status brim_file_replace(const char *path, const char *text, size_t bytes);
/* Its two halves, for files that are written in another way. The temporary name and the folder hold BRIM_PATH_MAX
 * bytes each. */
brim_status brim_path_aside(const char *path, char *folder, char *aside);
/* Renames a complete, synced file into place; removes it on failure. */
brim_status brim_file_publish(const char *aside, const char *path, const char *folder);
/* Writes the local time as "20261127-101500". */
#define BRIM_STAMP_BYTES 32
brim_status brim_format_stamp(char *out);
/* Makes the folder <before>YYYYmmdd-HHMMSS, numbered if taken ("-2"), and writes its path. The parent must exist. */
brim_status brim_make_stamped_folder(const char *before, char *path, size_t room);
/* ECONFIG if `dir` is the working folder or one above it: a run needs its own folder. */
brim_status brim_run_check_dir(const char *dir);
/* Makes a new run's folder. `dir` set: that one, which must not hold a run already (ECONFIG says to use --resume or
 * another run.dir) nor other files with names that a run writes. `dir` empty: runs/<name>-YYYYmmdd-HHMMSS, numbered
 * if taken ("-2"). `name` must be a single path component (else ECONFIG). */
brim_status brim_run_create(const char *dir, const char *name, char *path, size_t room);
/* [any] "brim train --resume", or "brim federate --resume" for the folder of a federation: the words before the
 * folder's name in the command that resumes the run. */
const char *brim_run_resume_words(const char *path);
#define BRIM_RUN_PARTITION_NAME "partition.json" /* in the folder of a federation: setup/partition_record.h */
#define BRIM_RUN_LOCK_NAME ".lock"
/* Locks a run's folder (flock on <run>/.lock); the lock is released when the process ends or closes *fd. EINVAL if
 * another process, which the text names, holds it, or if there is no such folder. Only the holder may write below
 * `path`. */
brim_status brim_run_lock(const char *path, int *fd);
/* Whether a process holds that lock. Takes a shared lock for an instant, which brim_run_lock waits out. */
bool brim_run_is_open(const char *path);
#endif
