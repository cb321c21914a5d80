/* Scenarios: worlds of memory that policies are simulated in, written down in YAML (docs/simulate.md). */
#ifndef BRIM_SIMULATE_SCENARIO_H
#define BRIM_SIMULATE_SCENARIO_H
#include "brim/plugin.h"
#include "param/yaml.h"

#define BRIM_SCENE_DEVICES_MAX 64
#define BRIM_SCENE_JOBS_MAX 16
#define BRIM_SCENE_LIST_MAX 4096    /* of every other list */
#define BRIM_SCENE_SETTINGS_MAX 256 /* keys of the scenario's, and of a job's */

/* Seconds: the least that something lasts, or takes to come again. */
#define BRIM_SCENE_MOMENT 1e-3
/* Of all programs and runs together, so often they come; each time is two or three lines of the timeline. */
#define BRIM_SCENE_VISITS_MAX 300000
/* Of each size, 1 PiB: the sum over as many programs as there may be is one still. */
#define BRIM_SCENE_BYTES_MAX (UINT64_C(1) << 50)

/* So much is in use by others from a moment on. */
typedef struct brim_scene_use {
  double at; /* seconds from the beginning, as all times */
  uint64_t bytes;
} brim_scene_use;
/* So many wait for a device from a moment on, besides `runs`: what a run saw that was recorded. */
typedef struct brim_scene_line {
  double at;
  int64_t waiting;
  uint64_t bytes; /* that the first of them needs */
} brim_scene_line;
/* In a run that was recorded policies were asked between two steps, when so many were committed. */
typedef struct brim_scene_look {
  double at;
  int64_t step;
} brim_scene_look;
/* In a run that was recorded memory pressure asked for a smaller plan. */
typedef struct brim_scene_pressure {
  int64_t step;   /* committed */
  uint64_t bytes; /* that the plan was to take at most; 0: it was to stay */
} brim_scene_pressure;
typedef struct brim_scene_device {
  uint64_t memory, used;
  double speed; /* 1: as the model's times are */
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

/* What a plan takes, and a step. */
typedef struct brim_scene_recompute {
  double memory, work; /* of the activations, that is left; of a step, that is done again */
} brim_scene_recompute;
typedef struct brim_scene_peak {
  int64_t micro_batch;
  uint64_t bytes;
  double time;   /* of a step; 0: as the model's times make it */
  int32_t basis; /* of that, as policies are told: enum brim_basis - 1 */
} brim_scene_peak;
typedef struct brim_scene_model {
  const char *id;
  uint64_t fixed, sample;
  double sample_time, micro_batch_time, step_time, half_memory, half_time;
  brim_scene_recompute *recompute; /* of less and less memory */
  size_t recompute_count;
  brim_scene_peak *peak; /* of larger and larger micro-batches; none: by `fixed` and `sample` */
  size_t peak_count;
} brim_scene_model;

/* A program that takes memory without asking anybody. */
typedef struct brim_scene_program {
  const char *name;
  int64_t device; /* -1: the host */
  uint64_t memory, grows;
  double from, lasts, every;
  double slows; /* times that steps on its device take as long while it is there */
} brim_scene_program;
/* A run of somebody else, which waits in line, trains, and goes. */
typedef struct brim_scene_run {
  const char *name;
  int64_t device; /* -1: any */
  uint64_t memory;
  double from, lasts, every;
  double slows; /* likewise, while it is placed */
} brim_scene_run;
/* Memory that runs out though there is room: of a step, or of placing a plan. */
typedef struct brim_scene_failure {
  int64_t step, times; /* 0: placing */
  bool loses;          /* the parameters too */
  const char *says;    /* the error's text */
} brim_scene_failure;
typedef struct brim_scene_job {
  const char *name;
  double from;
  const brim_yaml *settings; /* NULL: none */
} brim_scene_job;

/* What the backend's devices are. */
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
  brim_scene_model model, small_model; /* small_model.id NULL: there is none */
  brim_scene_device *device;
  brim_scene_program *program;
  brim_scene_run *run;
  brim_scene_failure *failure;
  brim_scene_look *look;         /* none: policies are asked every second, and steps take what the model's times say */
  brim_scene_pressure *pressure; /* none: it is judged by the host's memory */
  brim_scene_job *job;           /* at least one */
  size_t device_count, program_count, run_count, failure_count, look_count, pressure_count, job_count;
  const brim_yaml *settings; /* NULL: none */
} brim_scenario;

/* [init] Reads a file. ECONFIG with everything that is wrong, each with its position; ELOAD if it cannot be read. */
brim_status brim_scenario_read(const char *path, brim_scenario **out);
/* The same from text; `file` is for messages. */
brim_status brim_scenario_parse(const char *text, size_t bytes, const char *file, brim_scenario **out);
void brim_scenario_free(brim_scenario *scenario);
/* Words of settings, "key=value" each, appended to `out`; everything lives in `arena`. */
size_t brim_scenario_words(brim_arena *arena, const brim_yaml *settings, const char **out, size_t room);
/* Every key with type, default, range and meaning. */
void brim_scenario_print_keys(brim_text *out);
/* At the top of one: "until", "devices". */
bool brim_scenario_has_key(const char *key);
#endif
