/* A run's folder: config.yaml (resolved), overrides.yaml, sources.yaml, plugins.json, plan.json,
 * metrics.jsonl, events.jsonl, summary.json, checkpoints/. The working directory never changes. */
#ifndef BRIM_TRAIN_RUNDIR_H
#define BRIM_TRAIN_RUNDIR_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

/* Writes a whole file aside, syncs it, and renames it into place. EIO with the reason. */
brim_status brim_file_write_atomic(const char *path, const char *text, size_t bytes);
/* Makes a folder and its parents. An existing one is fine. */
brim_status brim_make_folders(const char *path);
/* Makes a new run's folder. `dir` set: that one, which must not hold a run already (ECONFIG says to use
 * --resume or another run.dir). `dir` empty: runs/<name>-YYYYmmdd-HHMMSS, numbered if taken. */
brim_status brim_run_create(const char *dir, const char *name, char *path, size_t room);
/* One process per run folder: a lock (flock on <run>/.lock), released when the process ends. EINVAL if
 * another process holds it. */
brim_status brim_run_lock(const char *path, int *fd);

/* Appending JSON lines without allocating: records are formatted into a fixed buffer and written with
 * one write(). */
typedef struct brim_jsonl {
  int fd;
  int64_t bytes; /* length of the file */
  char path[4096];
  char line[4096];
  size_t length;
  bool overflow;
} brim_jsonl;
/* Opens for appending; cuts the file to `keep_bytes` first (0 for a new run). A file shorter than that:
 * ELOAD. */
brim_status brim_jsonl_open(brim_jsonl *log, const char *path, int64_t keep_bytes);
void brim_jsonl_begin(brim_jsonl *log);
void brim_jsonl_int(brim_jsonl *log, const char *key, int64_t value);
void brim_jsonl_number(brim_jsonl *log, const char *key, double value); /* shortest that reads back; NaN and infinities as null */
void brim_jsonl_string(brim_jsonl *log, const char *key, const char *value); /* escaped */
brim_status brim_jsonl_end(brim_jsonl *log); /* [step] */
void brim_jsonl_close(brim_jsonl *log);
#endif
