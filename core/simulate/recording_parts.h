/* The data about its environment in a run's folder. Internal to recording*.c. */
#ifndef BRIM_SIMULATE_RECORDING_PARTS_H
#define BRIM_SIMULATE_RECORDING_PARTS_H
#include <jansson.h>
#include <stdbool.h>

#include "param/yaml.h"
#include "simulate/recording.h"
#include "simulate/scenario.h"

#define BRIM_RECORD_CHANGES_MAX 800 /* most changes in the use of devices and host by other processes, in total */
#define BRIM_RECORD_PLANS_MAX 256
#define BRIM_RECORD_FAILURES_MAX 64
#define BRIM_RECORD_LOOKS_MAX 100
#define BRIM_RECORD_PRESSURES_MAX 50
/* A recording must stay within the limits of the YAML reader: a map of three keys is 7 nodes, one of four keys 9. */
_Static_assert(7 * BRIM_RECORD_CHANGES_MAX + 9 * BRIM_RECORD_PLANS_MAX + 9 * BRIM_RECORD_FAILURES_MAX +
                       5 * (BRIM_RECORD_LOOKS_MAX + BRIM_RECORD_PRESSURES_MAX) + 7 * BRIM_SCENE_DEVICES_MAX + 100 <
                   BRIM_YAML_NODES_MAX,
               "a recorded scenario has more nodes than the YAML reader allows");

/* A recorded value over time. Each entry gives a time, in seconds since the first look, rounded to a millisecond, and
 * the value from then on. In `use`, `waiting` is unused. */
typedef struct brim_record_series {
  brim_scene_line *change;
  size_t count;
} brim_record_series;
typedef struct brim_record_device {
  char name[64];
  uint64_t total;
  bool is_shared, on_host;
  brim_record_series use, line;
} brim_record_device;
typedef struct brim_recording {
  brim_arena *arena;
  const char *run;
  json_t *event; /* an array */
  double start;  /* since 1970; 0: unknown */
  double plan_time, replan_time;
  brim_record_device device[BRIM_SCENE_DEVICES_MAX];
  brim_scene_peak plan[BRIM_RECORD_PLANS_MAX];
  brim_scene_failure failure[BRIM_RECORD_FAILURES_MAX]; /* `says` points into the events */
  brim_scene_look look[BRIM_RECORD_LOOKS_MAX];          /* at: seconds since 1970 */
  brim_scene_pressure pressure[BRIM_RECORD_PRESSURES_MAX];
  size_t devices, plans, failures, looks, pressures, changes;
  uint64_t host_total, process;
  brim_record_series host;
  int64_t grain, norm_group, samples, steps;
  const char *cut[8]; /* names of lists that were too long, for a message; ended by NULL */
  bool is_mixed;      /* devices of another backend were left out, with a message */
} brim_recording;

/* Prints the scenario as YAML; `config`: the run's configuration. */
void brim_recording_print(const brim_recording *recording, const brim_yaml *config, brim_text *out);
#endif
