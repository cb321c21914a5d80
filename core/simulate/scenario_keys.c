#include "simulate/scenario_keys.h"

#include <stdio.h>
#include <string.h>

#include "base/table.h"
#include "param/value.h"

#define SIZES "[0,1125899906842624]" /* BRIM_SCENE_BYTES_MAX */

static const brim_param root_keys[] = {
    BRIM_PARAM(STR, brim_scenario, about, "", NULL, "a line that describes the scenario"),
    BRIM_PARAM(STR, brim_scenario, start, "2025-01-06 09:00", NULL, "start of the simulation, in UTC"),
    BRIM_PARAM(SECONDS, brim_scenario, until, "30d", "(0,31622400]",
               "time at which the simulation ends, also if runs are in progress"),
    BRIM_PARAM(STR, brim_scenario, backend, "cuda", NULL, "prefix of the devices' names: cuda:0, cuda:1 and so on"),
    BRIM_PARAM(ENUM, brim_scenario, kind, "gpu", BRIM_SCENE_KINDS,
               "kind of the devices; share: shares of a host, with a limit"),
    BRIM_PARAM(I64, brim_scenario, samples, "60000", "[1,1000000000000]", "samples in the training data"),
    BRIM_PARAM(I64, brim_scenario, grain, "1", "[0,1048576]", "value of training.grain=-1 (the backend's choice)"),
    BRIM_PARAM(I64, brim_scenario, norm_group, "0", "[0,1048576]",
               "training.norm_group; 0: the model has no batch norm"),
    BRIM_PARAM(SECONDS, brim_scenario, plan_time, "0s", "[0,86400]",
               "time from the choice of the first device to its plan"),
    BRIM_PARAM(SECONDS, brim_scenario, replan_time, "1s", "[0,86400]", "pause of a run that changes its plan"),
    BRIM_PARAM(SECONDS, brim_scenario, checkpoint_time, "0s", "[0,86400]", "duration of a checkpoint"),
    BRIM_PARAM(SECONDS, brim_scenario, evaluation_time, "0s", "[0,86400]", "duration of an evaluation"),
    BRIM_PARAMS_END,
};
static const brim_param device_keys[] = {
    BRIM_PARAM(BYTES, brim_scene_device, memory, NULL, SIZES, "total memory"),
    BRIM_PARAM(BYTES, brim_scene_device, used, "0", SIZES, "memory used by other processes, constantly"),
    BRIM_PARAM(F64, brim_scene_device, speed, "1", "(0,1000]", "speed relative to the model's times"),
    BRIM_PARAMS_END,
};
static const brim_param use_keys[] = {
    BRIM_PARAM(SECONDS, brim_scene_use, at, NULL, "[0,inf)", "start time of this entry"),
    BRIM_PARAM(BYTES, brim_scene_use, bytes, NULL, SIZES, "memory used by other processes, instead of `used`"),
    BRIM_PARAMS_END,
};
static const brim_param line_keys[] = {
    BRIM_PARAM(SECONDS, brim_scene_line, at, NULL, "[0,inf)", "start time of this entry"),
    BRIM_PARAM(I64, brim_scene_line, waiting, "1", "[0,1000]", "number of waiting runs; they are never placed"),
    BRIM_PARAM(BYTES, brim_scene_line, bytes, NULL, SIZES, "memory that the first of them needs"),
    BRIM_PARAMS_END,
};
static const brim_param host_keys[] = {
    BRIM_PARAM(BYTES, brim_scene_host, memory, "64GiB", SIZES, "total memory"),
    BRIM_PARAM(BYTES, brim_scene_host, used, "8GiB", SIZES, "memory used by other processes, constantly"),
    BRIM_PARAM(BYTES, brim_scene_host, process, "1GiB", SIZES, "memory of a job besides its plan"),
    BRIM_PARAM(BYTES, brim_scene_host, garbage, "0", SIZES, "memory that each round leaves allocated until a cleanup"),
    BRIM_PARAM(F64, brim_scene_host, light, "0.5", "[0,1]", "share of the garbage that a light cleanup frees"),
    BRIM_PARAM(F64, brim_scene_host, speed, "0.05", "(0,1000]", "speed of the processors, as for devices"),
    BRIM_PARAMS_END,
};
static const brim_param model_keys[] = {
    BRIM_PARAM(STR, brim_scene_model, id, "model", NULL, "name of the model, for policies that change models"),
    BRIM_PARAM(BYTES, brim_scene_model, fixed, "1GiB", SIZES, "memory of parameters, gradients and optimizer states"),
    BRIM_PARAM(BYTES, brim_scene_model, sample, "100MiB", SIZES, "memory of activations per sample of a micro-batch"),
    BRIM_PARAM(SECONDS, brim_scene_model, sample_time, "1ms", "[1e-6,3600]", "time per sample"),
    BRIM_PARAM(SECONDS, brim_scene_model, micro_batch_time, "0s", "[0,3600]", "additional time per micro-batch"),
    BRIM_PARAM(SECONDS, brim_scene_model, step_time, "0s", "[0,3600]", "additional time per step, for the update"),
    BRIM_PARAM(F64, brim_scene_model, half_memory, "0", "[0,1]",
               "`sample` in bf16 and fp16, as a share of that in fp32; 0: fp32 only"),
    BRIM_PARAM(F64, brim_scene_model, half_time, "1", "(0,10]",
               "`sample_time` in bf16 and fp16, as a share of that in fp32"),
    BRIM_PARAMS_END,
};
static const brim_param recompute_keys[] = {
    BRIM_PARAM(F64, brim_scene_recompute, memory, NULL, "[0,1)", "share of `sample` that remains"),
    BRIM_PARAM(F64, brim_scene_recompute, work, NULL, "[0,10]", "share of a step's work that is repeated"),
    BRIM_PARAMS_END,
};
static const brim_param peak_keys[] = {
    BRIM_PARAM(I64, brim_scene_peak, micro_batch, NULL, "[1,1048576]", "samples in the micro-batch"),
    BRIM_PARAM(BYTES, brim_scene_peak, bytes, NULL, SIZES, "peak of the plan, instead of `fixed` and `sample`"),
    BRIM_PARAM(SECONDS, brim_scene_peak, time, "0s", "[0,86400]", "time of a step; 0: from the model's times"),
    BRIM_PARAM(ENUM, brim_scene_peak, basis, "timed", "timed|derived|guessed", "basis of the time that policies get"),
    BRIM_PARAMS_END,
};
static const brim_param program_keys[] = {
    BRIM_PARAM(STR, brim_scene_program, name, "a program", NULL, "name in the timeline"),
    BRIM_PARAM(I64, brim_scene_program, device, "0", "[-1,63]", "device that it uses; -1: host memory"),
    BRIM_PARAM(BYTES, brim_scene_program, memory, NULL, SIZES,
               "memory that it takes, or all free memory if that is less"),
    BRIM_PARAM(BYTES, brim_scene_program, grows, "0", SIZES, "additional memory per minute"),
    BRIM_PARAM(SECONDS, brim_scene_program, from, "0s", "[0,inf)", "time at which it starts"),
    BRIM_PARAM(SECONDS, brim_scene_program, lasts, "0s", "[0,inf)", "duration; 0: until the end"),
    BRIM_PARAM(SECONDS, brim_scene_program, every, "0s", "[0,inf)", "interval after which it starts again; 0: never"),
    BRIM_PARAM(F64, brim_scene_program, slows, "1", "[1,1000]", "factor by which it slows steps on this device"),
    BRIM_PARAMS_END,
};
static const brim_param run_keys[] = {
    BRIM_PARAM(STR, brim_scene_run, name, "another run", NULL, "name in the timeline"),
    BRIM_PARAM(I64, brim_scene_run, device, "-1", "[-1,63]", "device that it waits for; -1: any"),
    BRIM_PARAM(BYTES, brim_scene_run, memory, NULL, SIZES, "memory of its plan"),
    BRIM_PARAM(SECONDS, brim_scene_run, from, "0s", "[0,inf)", "time at which it queues"),
    BRIM_PARAM(SECONDS, brim_scene_run, lasts, NULL, "(0,inf)", "duration of its training after it is placed"),
    BRIM_PARAM(SECONDS, brim_scene_run, every, "0s", "[0,inf)",
               "interval after which the next such run queues; 0: never"),
    BRIM_PARAM(F64, brim_scene_run, slows, "1", "[1,1000]",
               "factor by which it slows steps on its device while it is placed"),
    BRIM_PARAMS_END,
};
static const brim_param failure_keys[] = {
    BRIM_PARAM(I64, brim_scene_failure, step, "0", "[0,1000000000000]", "step that fails; 0: the placing of a plan"),
    BRIM_PARAM(I64, brim_scene_failure, times, "1", "[1,1000]", "number of attempts in a row that fail"),
    BRIM_PARAM(BOOL, brim_scene_failure, loses, "false", NULL,
               "true: the parameters are lost, so the run returns to the checkpoint"),
    BRIM_PARAM(STR, brim_scene_failure, says, "memory ran out, though the plan had been placed", NULL,
               "message of the failure"),
    BRIM_PARAMS_END,
};
static const brim_param look_keys[] = {
    BRIM_PARAM(SECONDS, brim_scene_look, at, NULL, "[0,inf)", "time at which policies were called between two steps"),
    BRIM_PARAM(I64, brim_scene_look, step, NULL, "[0,1000000000000]", "number of steps completed by then"),
    BRIM_PARAMS_END,
};
static const brim_param pressure_keys[] = {
    BRIM_PARAM(I64, brim_scene_pressure, step, NULL, "[0,1000000000000]", "number of steps after which it happens"),
    BRIM_PARAM(BYTES, brim_scene_pressure, bytes, "0", SIZES, "most memory of the plan; 0: the plan does not change"),
    BRIM_PARAMS_END,
};
static const brim_param job_keys[] = {
    BRIM_PARAM(STR, brim_scene_job, name, "", NULL, "name in the timeline; empty: job 1, job 2 and so on"),
    BRIM_PARAM(SECONDS, brim_scene_job, from, "0s", "[0,inf)", "start time of the job"),
    BRIM_PARAMS_END,
};

const brim_scene_section brim_scene_sections[] = {
    {"", root_keys, "", 0},
    {"settings", NULL, "keys of the configuration, such as training.steps: 1000; the command line overrides them", 0},
    {"devices", device_keys, "devices of the backend, at least one", BRIM_SCENE_DEVICES_MAX},
    {"devices.use", use_keys, "memory used by other processes over time", BRIM_SCENE_LIST_MAX},
    {"devices.line", line_keys, "runs that wait for the device over time, in recorded scenarios; otherwise use `runs`",
     BRIM_SCENE_LIST_MAX},
    {"host", host_keys, "the host's memory and processors", 0},
    {"host.use", use_keys, "memory used by other processes over time", BRIM_SCENE_LIST_MAX},
    {"model", model_keys, "memory and time of plans and steps", 0},
    {"model.recompute", recompute_keys, "savings and costs of recompute, level by level", BRIM_SCENE_LIST_MAX},
    {"model.peaks", peak_keys, "planned peaks; others are interpolated", BRIM_SCENE_LIST_MAX},
    {"small_model", model_keys, "another model that a policy may choose", 0},
    {"small_model.recompute", recompute_keys, "as for model", BRIM_SCENE_LIST_MAX},
    {"small_model.peaks", peak_keys, "as for model", BRIM_SCENE_LIST_MAX},
    {"programs", program_keys, "programs that use memory without queuing", BRIM_SCENE_LIST_MAX},
    {"runs", run_keys, "other runs, which queue for devices", BRIM_SCENE_LIST_MAX},
    {"failures", failure_keys, "failures for lack of memory although there is room", BRIM_SCENE_LIST_MAX},
    {"looks", look_keys,
     "times at which policies are called between steps, in recorded scenarios; otherwise every second",
     BRIM_SCENE_LIST_MAX},
    {"pressures", pressure_keys,
     "memory pressure to which the run reacted, in recorded scenarios; otherwise from the host's memory",
     BRIM_SCENE_LIST_MAX},
    {"jobs", job_keys, "runs with the simulated policies; one run if the list is missing", BRIM_SCENE_JOBS_MAX},
    {"jobs.settings", NULL, "keys of the configuration for this job", 0},
    {NULL, NULL, NULL, 0},
};

const brim_scene_section *brim_scene_find(const char *path)
{
  for (const brim_scene_section *s = brim_scene_sections; s->path; s++)
    if (strcmp(s->path, path) == 0) return s;
  return NULL;
}

bool brim_scene_is_key(const brim_scene_section *section, const char *key)
{
  char path[BRIM_YAML_KEY_BYTES_MAX + 64];
  for (const brim_param *row = section->table; row->key; row++)
    if (strcmp(row->key, key) == 0) return true;
  snprintf(path, sizeof path, "%s%s%s", section->path, section->path[0] ? "." : "", key);
  return key[0] && brim_scene_find(path) != NULL;
}

bool brim_scenario_has_key(const char *key)
{
  return brim_scene_is_key(&brim_scene_sections[0], key);
}

void brim_scenario_print_keys(brim_text *out)
{
  static const char *const head[] = {"KEY", "TYPE", "DEFAULT", "RANGE", "MEANING"};
  brim_arena arena = {0};
  brim_table table = {.arena = &arena, .columns = 5};
  for (size_t i = 0; i < 5; i++) brim_table_add(&table, head[i]);
  for (const brim_scene_section *s = brim_scene_sections; s->path; s++) {
    const char *path = brim_arena_printf(&arena, "%s%s", s->path, s->items_max ? "[]" : "");
    if (path[0]) {
      brim_table_add(&table, path);
      brim_table_add(&table, s->items_max ? "list" : "map");
      for (size_t i = 2; i < 4; i++) brim_table_add(&table, "-");
      brim_table_add(&table, s->help);
    }
    for (const brim_param *row = s->table; row && row->key; row++) {
      brim_table_add(&table, brim_arena_printf(&arena, "%s%s%s", path, path[0] ? "." : "", row->key));
      brim_table_add(&table, brim_value_type_name(row->type));
      brim_table_add(&table, !row->def ? "required" : row->def[0] ? row->def : "''");
      brim_table_add(&table, row->range ? row->range : "-");
      brim_table_add(&table, row->help);
    }
  }
  brim_table_print(&table, out);
  brim_arena_release(&arena);
}
