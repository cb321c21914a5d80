#include "simulate/scenario_keys.h"

#include <stdio.h>
#include <string.h>

#include "base/table.h"
#include "param/value.h"

#define SIZES "[0,1125899906842624]" /* BRIM_SCENE_BYTES_MAX */

static const brim_param root_keys[] = {
    BRIM_PARAM(STR, brim_scenario, about, "", NULL, "what it is about, in a line"),
    BRIM_PARAM(STR, brim_scenario, start, "2025-01-06 09:00", NULL, "when it begins, in UTC"),
    BRIM_PARAM(SECONDS, brim_scenario, until, "30d", "(0,31622400]", "the simulation ends then, whoever is at work"),
    BRIM_PARAM(STR, brim_scenario, backend, "cuda", NULL, "what devices are called: cuda:0, cuda:1 and so on"),
    BRIM_PARAM(ENUM, brim_scenario, kind, "gpu", BRIM_SCENE_KINDS, "what they are; share: of a host, with a limit"),
    BRIM_PARAM(I64, brim_scenario, samples, "60000", "[1,1000000000000]", "of the training data"),
    BRIM_PARAM(I64, brim_scenario, grain, "1", "[0,1048576]", "what training.grain=auto comes to"),
    BRIM_PARAM(I64, brim_scenario, norm_group, "0", "[0,1048576]",
               "samples that batch norm keeps together; 0: has none"),
    BRIM_PARAM(SECONDS, brim_scenario, plan_time, "0s", "[0,86400]", "from the choice of the first device to its plan"),
    BRIM_PARAM(SECONDS, brim_scenario, replan_time, "1s", "[0,86400]", "what a run pauses for another plan"),
    BRIM_PARAM(SECONDS, brim_scenario, checkpoint_time, "0s", "[0,86400]", "what a checkpoint takes"),
    BRIM_PARAM(SECONDS, brim_scenario, evaluation_time, "0s", "[0,86400]", "what an evaluation takes"),
    BRIM_PARAMS_END,
};
static const brim_param device_keys[] = {
    BRIM_PARAM(BYTES, brim_scene_device, memory, NULL, SIZES, "it has in all"),
    BRIM_PARAM(BYTES, brim_scene_device, used, "0", SIZES, "others have, all the time"),
    BRIM_PARAM(F64, brim_scene_device, speed, "1", "(0,1000]", "times the model's times go by"),
    BRIM_PARAMS_END,
};
static const brim_param use_keys[] = {
    BRIM_PARAM(SECONDS, brim_scene_use, at, NULL, "[0,inf)", "from when on"),
    BRIM_PARAM(BYTES, brim_scene_use, bytes, NULL, SIZES, "others have, in the place of `used`"),
    BRIM_PARAMS_END,
};
static const brim_param line_keys[] = {
    BRIM_PARAM(SECONDS, brim_scene_line, at, NULL, "[0,inf)", "from when on"),
    BRIM_PARAM(I64, brim_scene_line, waiting, "1", "[0,1000]", "so many wait, and are never served"),
    BRIM_PARAM(BYTES, brim_scene_line, bytes, NULL, SIZES, "the first of them needs"),
    BRIM_PARAMS_END,
};
static const brim_param host_keys[] = {
    BRIM_PARAM(BYTES, brim_scene_host, memory, "64GiB", SIZES, "it has in all"),
    BRIM_PARAM(BYTES, brim_scene_host, used, "8GiB", SIZES, "others have, all the time"),
    BRIM_PARAM(BYTES, brim_scene_host, process, "1GiB", SIZES, "a job has besides its plan"),
    BRIM_PARAM(BYTES, brim_scene_host, garbage, "0", SIZES, "each round leaves behind, until it is cleaned up"),
    BRIM_PARAM(F64, brim_scene_host, light, "0.5", "[0,1]", "share of it that a light cleanup gives back"),
    BRIM_PARAM(F64, brim_scene_host, speed, "0.05", "(0,1000]", "of its processors, as a device's"),
    BRIM_PARAMS_END,
};
static const brim_param model_keys[] = {
    BRIM_PARAM(STR, brim_scene_model, id, "model", NULL, "its name, for policies that change models"),
    BRIM_PARAM(BYTES, brim_scene_model, fixed, "1GiB", SIZES, "parameters, gradients, optimizer state"),
    BRIM_PARAM(BYTES, brim_scene_model, sample, "100MiB", SIZES, "activations of a sample of a micro-batch"),
    BRIM_PARAM(SECONDS, brim_scene_model, sample_time, "1ms", "[1e-6,3600]", "of a sample"),
    BRIM_PARAM(SECONDS, brim_scene_model, micro_batch_time, "0s", "[0,3600]", "besides, of each micro-batch"),
    BRIM_PARAM(SECONDS, brim_scene_model, step_time, "0s", "[0,3600]", "besides, of each step: the update"),
    BRIM_PARAM(F64, brim_scene_model, half_memory, "0", "[0,1]", "share of `sample` in bf16 and fp16; 0: fp32 only"),
    BRIM_PARAM(F64, brim_scene_model, half_time, "1", "(0,10]", "share of `sample_time` in bf16 and fp16"),
    BRIM_PARAMS_END,
};
static const brim_param recompute_keys[] = {
    BRIM_PARAM(F64, brim_scene_recompute, memory, NULL, "[0,1)", "share of `sample` that is left"),
    BRIM_PARAM(F64, brim_scene_recompute, work, NULL, "[0,10]", "share of a step's work that is done again"),
    BRIM_PARAMS_END,
};
static const brim_param peak_keys[] = {
    BRIM_PARAM(I64, brim_scene_peak, micro_batch, NULL, "[1,1048576]", "its samples"),
    BRIM_PARAM(BYTES, brim_scene_peak, bytes, NULL, SIZES, "of the plan, in the place of `fixed` and `sample`"),
    BRIM_PARAM(SECONDS, brim_scene_peak, time, "0s", "[0,86400]", "of a step; 0: as the model's times make it"),
    BRIM_PARAM(ENUM, brim_scene_peak, basis, "timed", "timed|derived|guessed", "how sure policies are told that is"),
    BRIM_PARAMS_END,
};
static const brim_param program_keys[] = {
    BRIM_PARAM(STR, brim_scene_program, name, "a program", NULL, "who it is, for the timeline"),
    BRIM_PARAM(I64, brim_scene_program, device, "0", "[-1,63]", "where; -1: in the host's memory"),
    BRIM_PARAM(BYTES, brim_scene_program, memory, NULL, SIZES, "it takes, or what there is if that is less"),
    BRIM_PARAM(BYTES, brim_scene_program, grows, "0", SIZES, "it takes more, each minute"),
    BRIM_PARAM(SECONDS, brim_scene_program, from, "0s", "[0,inf)", "when it comes"),
    BRIM_PARAM(SECONDS, brim_scene_program, lasts, "0s", "[0,inf)", "how long it stays; 0: to the end"),
    BRIM_PARAM(SECONDS, brim_scene_program, every, "0s", "[0,inf)", "when it comes again, from when it came; 0: never"),
    BRIM_PARAM(F64, brim_scene_program, slows, "1", "[1,1000]", "factor by which steps there take longer meanwhile"),
    BRIM_PARAMS_END,
};
static const brim_param run_keys[] = {
    BRIM_PARAM(STR, brim_scene_run, name, "another run", NULL, "who it is, for the timeline"),
    BRIM_PARAM(I64, brim_scene_run, device, "-1", "[-1,63]", "that it waits for; -1: any"),
    BRIM_PARAM(BYTES, brim_scene_run, memory, NULL, SIZES, "its plan takes"),
    BRIM_PARAM(SECONDS, brim_scene_run, from, "0s", "[0,inf)", "when it stands in line"),
    BRIM_PARAM(SECONDS, brim_scene_run, lasts, NULL, "(0,inf)", "how long it trains, once it is placed"),
    BRIM_PARAM(SECONDS, brim_scene_run, every, "0s", "[0,inf)", "when the next stands in line; 0: never"),
    BRIM_PARAM(F64, brim_scene_run, slows, "1", "[1,1000]",
               "factor by which steps there take longer while it is placed"),
    BRIM_PARAMS_END,
};
static const brim_param failure_keys[] = {
    BRIM_PARAM(I64, brim_scene_failure, step, "0", "[0,1000000000000]", "in which step; 0: when a plan is placed"),
    BRIM_PARAM(I64, brim_scene_failure, times, "1", "[1,1000]", "so often, one attempt after another"),
    BRIM_PARAM(BOOL, brim_scene_failure, loses, "false", NULL, "the parameters are lost: back to the checkpoint"),
    BRIM_PARAM(STR, brim_scene_failure, says, "memory ran out, though the plan had been placed", NULL, "its message"),
    BRIM_PARAMS_END,
};
static const brim_param look_keys[] = {
    BRIM_PARAM(SECONDS, brim_scene_look, at, NULL, "[0,inf)", "when policies were asked between two steps"),
    BRIM_PARAM(I64, brim_scene_look, step, NULL, "[0,1000000000000]", "so many steps were made by then"),
    BRIM_PARAMS_END,
};
static const brim_param pressure_keys[] = {
    BRIM_PARAM(I64, brim_scene_pressure, step, NULL, "[0,1000000000000]", "behind so many steps"),
    BRIM_PARAM(BYTES, brim_scene_pressure, bytes, "0", SIZES, "the plan is to take at most; 0: it stays"),
    BRIM_PARAMS_END,
};
static const brim_param job_keys[] = {
    BRIM_PARAM(STR, brim_scene_job, name, "", NULL, "for the timeline; empty: job 1, job 2 and so on"),
    BRIM_PARAM(SECONDS, brim_scene_job, from, "0s", "[0,inf)", "when it is started"),
    BRIM_PARAMS_END,
};

const brim_scene_section brim_scene_sections[] = {
    {"", root_keys, "", 0},
    {"settings", NULL, "keys of the configuration, as training.steps: 1000; the command line's come after them", 0},
    {"devices", device_keys, "those of the backend; there is at least one", BRIM_SCENE_DEVICES_MAX},
    {"devices.use", use_keys, "how much others have of it, by time", BRIM_SCENE_LIST_MAX},
    {"devices.line", line_keys, "who waits for it, by time: of recorded runs; else say `runs`", BRIM_SCENE_LIST_MAX},
    {"host", host_keys, "the machine's own memory and processors", 0},
    {"host.use", use_keys, "how much others have of it, by time", BRIM_SCENE_LIST_MAX},
    {"model", model_keys, "what plans and steps take", 0},
    {"model.recompute", recompute_keys, "what making activations again saves and costs, level by level",
     BRIM_SCENE_LIST_MAX},
    {"model.peaks", peak_keys, "peaks as they were planned; in between they are interpolated", BRIM_SCENE_LIST_MAX},
    {"small_model", model_keys, "another model that a policy may take", 0},
    {"small_model.recompute", recompute_keys, "as of model", BRIM_SCENE_LIST_MAX},
    {"small_model.peaks", peak_keys, "as of model", BRIM_SCENE_LIST_MAX},
    {"programs", program_keys, "programs that take memory without asking anybody", BRIM_SCENE_LIST_MAX},
    {"runs", run_keys, "other runs, which wait in line", BRIM_SCENE_LIST_MAX},
    {"failures", failure_keys, "memory that runs out though there is room", BRIM_SCENE_LIST_MAX},
    {"looks", look_keys, "when policies are asked between steps: of recorded runs; else every second",
     BRIM_SCENE_LIST_MAX},
    {"pressures", pressure_keys, "memory pressure that was acted on: of recorded runs; else by the host's memory",
     BRIM_SCENE_LIST_MAX},
    {"jobs", job_keys, "runs with the policies that are simulated; one if there is no list", BRIM_SCENE_JOBS_MAX},
    {"jobs.settings", NULL, "keys of the configuration, for this one", 0},
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
