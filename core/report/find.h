/* Finds the folders of runs below a folder: runs/NAME, multirun/DATE/NUMBER, and folders further down. */
#ifndef BRIM_REPORT_FIND_H
#define BRIM_REPORT_FIND_H
#include <stddef.h>

#include "base/arena.h"
#include "brim/status.h"

#define BRIM_FIND_DEPTH_MAX 4 /* most folders between the searched folder and a run */

typedef struct brim_found {
  const char *name; /* path below the searched folder */
  int error;        /* errno if the folder cannot be searched; 0: a run */
} brim_found;

typedef struct brim_found_list {
  brim_found *item; /* sorted by name, numbers by their value */
  size_t count, room;
} brim_found_list;

/* Compares names: by bytes, but numbers by their value, so that job 10 of a sweep follows job 9. */
int brim_find_order(const char *a, const char *b);
/* Lists the runs below `folder`, in `arena`. Skips links, names that begin with a dot, and folders inside runs. ELOAD:
 * the folder cannot be read. */
brim_status brim_find_runs(brim_arena *arena, const char *folder, brim_found_list *out);
#endif
