/* Makes a scenario from the folder of a run, which records the data that the run's policies were shown. */
#ifndef BRIM_SIMULATE_RECORDING_H
#define BRIM_SIMULATE_RECORDING_H
#include "base/arena.h"
#include "base/text.h"

#define BRIM_RECORD_WORDS_MAX 128

/* [init] Appends the scenario's YAML to `out`. `word`: words that set the run's policies and their parameters,
 * terminated by NULL, with room for BRIM_RECORD_WORDS_MAX, allocated from `arena`. ELOAD: a file is missing or
 * damaged, or the run's events do not record the input of its policies. */
brim_status brim_scene_record(brim_arena *arena, const char *run, brim_text *out, const char **word);
#endif
