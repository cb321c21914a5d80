/* Finds the folders of runs below a folder: runs/NAME, multirun/DATE/NUMBER, and deeper ones. */
#ifndef BRIM_REPORT_FIND_H
#define BRIM_REPORT_FIND_H
#include <stddef.h>

#include "base/arena.h"
#include "brim/status.h"

#define BRIM_FIND_DEPTH_MAX 4 /* folders between the one searched and a run */

typedef struct brim_found {
  const char *name; /* the path below the folder searched */
  int error;        /* errno of a folder that cannot be searched; 0: a run */
} brim_found;

typedef struct brim_found_list {
  brim_found *item; /* by name; numbers by value */
  size_t count, room;
} brim_found_list;

/* The order of names: by bytes, but numbers by their value, so that job 10 of a sweep follows job 9. */
int brim_find_order(const char *a, const char *b);
/* Lists the runs below `folder`, in `arena`. Skips links, and names that begin with a dot; does not look into runs.
 * ELOAD: the folder cannot be read. */
brim_status brim_find_runs(brim_arena *arena, const char *folder, brim_found_list *out);
#endif
