/* A run's folder: config.yaml (resolved), overrides.yaml, sources.yaml, plugins.json, plan.json,
 * metrics.jsonl, events.jsonl, summary.json, checkpoints/. The working directory never changes. */
#ifndef BRIM_STORE_RUNDIR_H
#define BRIM_STORE_RUNDIR_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "brim/status.h"
#include "store/jsonl.h" /* brim_jsonl, the type of a run's logs */

/* Writes a whole file under a temporary name (".<name>.tmp" in the same folder), syncs it, and renames it to `path`,
 * which therefore has the old bytes or the new ones, never a part. One writer at a time. EIO with the reason. */
brim_status brim_file_write_atomic(const char *path, const char *text, size_t bytes);
/* Writes a file in this way without syncing the folder, for several files. Call brim_folder_sync() afterwards so that
 * their names survive a power failure. */
brim_status brim_file_replace(const char *path, const char *text, size_t bytes);
/* The two halves of brim_file_replace, for files that are written in another way. `folder` and `aside` (the temporary
 * name) have room for BRIM_PATH_MAX bytes. */
brim_status brim_path_aside(const char *path, char *folder, char *aside);
/* Renames a complete, synced file to `path`; removes it on failure. */
brim_status brim_file_publish(const char *aside, const char *path, const char *folder);
/* Writes the local time as "20261127-101500". */
#define BRIM_STAMP_BYTES 32
brim_status brim_format_stamp(char *out);
/* Makes the folder <before>YYYYmmdd-HHMMSS and writes its path; adds a number ("-2") if the name is taken. The parent
 * must exist. */
brim_status brim_make_stamped_folder(const char *before, char *path, size_t room);
/* Whether `folder`, relative to the descriptor `parent` (or AT_FDCWD), is a run's: it has a config.yaml and another
 * file that only runs write. `flags`: AT_SYMLINK_NOFOLLOW if these files must not be links, or 0. False, with errno, if
 * the folder cannot be searched (EACCES); else errno is ENOENT. */
bool brim_is_run(int parent, const char *folder, int flags);
/* Whether this is the name of such a file. */
bool brim_is_run_mark(const char *name);
/* ECONFIG if `dir` is the working folder or a parent of it: a run needs a folder of its own. */
brim_status brim_run_check_dir(const char *dir);
/* Makes a new run's folder. If `dir` is not empty it is the folder; it must not contain a run (ECONFIG says to use
 * --resume or another run.dir) nor files with names that a run writes. Otherwise the folder is
 * runs/<name>-YYYYmmdd-HHMMSS, with a number ("-2") if that is taken. `name` must be a single path component (else
 * ECONFIG). */
brim_status brim_run_create(const char *dir, const char *name, char *path, size_t room);
/* [any] "brim train --resume", or "brim federate --resume" for the folder of a federation: the words before the
 * folder's name in the command that resumes the run. */
const char *brim_run_resume_words(const char *path);
#define BRIM_RUN_PARTITION_NAME "partition.json" /* in the folder of a federation: setup/partition_record.h */
#define BRIM_RUN_LOCK_NAME ".lock"
/* Locks a run's folder (flock on <run>/.lock); the lock is released when the process ends or closes *fd. EINVAL if
 * another process, which the text names, holds the lock, or if there is no such folder. Only the holder may write below
 * `path`. */
brim_status brim_run_lock(const char *path, int *fd);
/* For an open lock file: brim_run_lock_take locks it, and waits for a moment if brim_run_is_open has it; returns false
 * with errno, EWOULDBLOCK if another process has it. The next function returns the process that the file names; 0:
 * none. */
bool brim_run_lock_take(int fd);
long brim_run_lock_holder(int fd);
/* Whether a process holds that lock. Takes a shared lock for an instant; brim_run_lock waits until it is released. */
bool brim_run_is_open(const char *path);
#endif
