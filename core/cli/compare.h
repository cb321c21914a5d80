/* brim compare: what several runs were, and how they went. */
#ifndef BRIM_CLI_COMPARE_H
#define BRIM_CLI_COMPARE_H
#include "config/yaml.h"
#include "observe/metrics.h"
#include "train/summary.h"

#define BRIM_COMPARE_RUNS_MAX 10000

typedef struct brim_compared {
  const char *dir;
  const char *name;        /* the shortest end of the path that tells it from the others */
  const brim_yaml *config; /* resolved */
  brim_summary summary;    /* a run without one: what its records say */
  brim_metrics metrics;
} brim_compared;

typedef struct brim_comparison {
  brim_arena arena;
  brim_compared *run;
  size_t count, room;
  const char **key; /* configuration keys whose values differ, dotted, in the configuration's order */
  size_t key_count;
} brim_comparison;

/* Adds a run, or the runs of a sweep's folder. ELOAD if it is neither. */
brim_status brim_compare_add(brim_comparison *c, const char *dir);
/* After the last run: names and differing keys. */
void brim_compare_finish(brim_comparison *c);
void brim_compare_release(brim_comparison *c);
/* A key's value as text; "-" if the run has no such key. Lives in the comparison's arena. */
const char *brim_compare_value(brim_comparison *c, const brim_compared *run, const char *key);
#endif
