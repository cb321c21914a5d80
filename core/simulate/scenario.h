/* Reads scenarios: YAML descriptions of devices, memory and other programs, in which brim simulates policies
 * (docs/simulate.md). */
#ifndef BRIM_SIMULATE_SCENARIO_H
#define BRIM_SIMULATE_SCENARIO_H
#include "brim/plugin.h"
#include "param/yaml.h"

#define BRIM_SCENE_DEVICES_MAX 64
#define BRIM_SCENE_JOBS_MAX 16
#define BRIM_SCENE_LIST_MAX 4096    /* limit for every other list */
#define BRIM_SCENE_SETTINGS_MAX 256 /* most keys under `settings` of the scenario, and of each job */

/* Seconds: the shortest duration, and the shortest time between repetitions. */
#define BRIM_SCENE_MOMENT 1e-3
/* Maximum number of visits of all programs and runs together, because each visit adds two or three lines to the
 * timeline. */
#define BRIM_SCENE_VISITS_MAX 300000
/* Maximum of each size, 1 PiB, so that the sum over all programs does not overflow. */
#define BRIM_SCENE_BYTES_MAX (UINT64_C(1) << 50)

/* Bytes that other processes use from a time on. */
typedef struct brim_scene_use {
  double at; /* seconds from the beginning of the scenario, like all times */
  uint64_t bytes;
} brim_scene_use;
/* Recorded: the number of runs that wait for a device from a time on, besides `runs`. */
typedef struct brim_scene_line {
  double at;
  int64_t waiting;
  uint64_t bytes; /* bytes that the first of them needs */
} brim_scene_line;
/* Recorded: policies were asked between two steps, after `step` commits. */
typedef struct brim_scene_look {
  double at;
  int64_t step;
} brim_scene_look;
/* Recorded: memory pressure asked for a smaller plan. */
typedef struct brim_scene_pressure {
  int64_t step;   /* committed */
  uint64_t bytes; /* limit for the new plan; 0: none */
} brim_scene_pressure;
typedef struct brim_scene_device {
  uint64_t memory, used;
  double speed; /* 1: the model's times apply */
  brim_scene_use *use;
  brim_scene_line *line;
  size_t use_count, line_count;
} brim_scene_device;
typedef struct brim_scene_host {
  uint64_t memory, used, process, garbage;
  double light, speed;
  brim_scene_use *use;
  size_t use_count;
} brim_scene_host;

/* The memory and time of plans and steps. */
typedef struct brim_scene_recompute {
  /* memory: the fraction of the activations that is left; work: the fraction of a step that is repeated. */
  double memory, work;
} brim_scene_recompute;
typedef struct brim_scene_peak {
  int64_t micro_batch;
  uint64_t bytes;
  double time;   /* seconds of a step; 0: computed from the model's times */
  int32_t basis; /* basis of the time that policies see: enum brim_basis - 1 */
} brim_scene_peak;
typedef struct brim_scene_model {
  const char *id;
  uint64_t fixed, sample;
  double sample_time, micro_batch_time, step_time, half_memory, half_time;
  brim_scene_recompute *recompute; /* sorted by decreasing memory */
  size_t recompute_count;
  brim_scene_peak *peak; /* sorted by micro-batch, ascending; none: computed from `fixed` and `sample` */
  size_t peak_count;
} brim_scene_model;

/* A program that takes memory without joining the queue. */
typedef struct brim_scene_program {
  const char *name;
  int64_t device; /* -1: the host */
  uint64_t memory, grows;
  double from, lasts, every;
  double slows; /* factor by which steps on its device take longer while it uses memory there */
} brim_scene_program;
/* Another user's run, which waits in the queue, trains, and ends. */
typedef struct brim_scene_run {
  const char *name;
  int64_t device; /* -1: any */
  uint64_t memory;
  double from, lasts, every;
  double slows; /* the factor by which it slows steps on its device while it is placed */
} brim_scene_run;
/* A failure of memory although there is room: in a step, or while a plan is placed. */
typedef struct brim_scene_failure {
  int64_t step, times; /* 0: placing */
  bool loses;          /* the run also loses its parameters */
  const char *says;    /* the error's text */
} brim_scene_failure;
typedef struct brim_scene_job {
  const char *name;
  double from;
  const brim_yaml *settings; /* may be NULL */
} brim_scene_job;

/* The kind of the backend's devices. */
enum brim_scene_kind { BRIM_SCENE_GPU, BRIM_SCENE_SHARE, BRIM_SCENE_PROCESSORS };
#define BRIM_SCENE_KINDS "gpu|share|host"

typedef struct brim_scenario {
  brim_arena arena;
  const char *file, *about, *start, *backend;
  double start_seconds; /* since 1970 */
  double until, plan_time, replan_time, checkpoint_time, evaluation_time;
  int64_t samples, grain, norm_group;
  int32_t kind; /* enum brim_scene_kind */
  brim_scene_host host;
  brim_scene_model model, small_model; /* small_model.id NULL: none */
  brim_scene_device *device;
  brim_scene_program *program;
  brim_scene_run *run;
  brim_scene_failure *failure;
  brim_scene_look *look;         /* if empty: policies are asked every second, and steps take the times of the model */
  brim_scene_pressure *pressure; /* if empty: memory pressure follows from the host's memory */
  brim_scene_job *job;           /* at least one */
  size_t device_count, program_count, run_count, failure_count, look_count, pressure_count, job_count;
  const brim_yaml *settings; /* may be NULL */
} brim_scenario;

/* [init] Reads a file. ECONFIG with every mistake and its position; ELOAD if it cannot be read. */
brim_status brim_scenario_read(const char *path, brim_scenario **out);
/* Reads a scenario from text; `file` is used in messages. */
brim_status brim_scenario_parse(const char *text, size_t bytes, const char *file, brim_scenario **out);
void brim_scenario_free(brim_scenario *scenario);
/* Appends settings to `out` as words "key=value"; allocates from `arena`. */
size_t brim_scenario_words(brim_arena *arena, const brim_yaml *settings, const char **out, size_t room);
/* Prints every key with type, default, range and help. */
void brim_scenario_print_keys(brim_text *out);
/* Whether this is a key at the top level, such as "until" or "devices". */
bool brim_scenario_has_key(const char *key);
#endif
