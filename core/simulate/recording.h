/* Makes a scenario from a run's folder, which records the data that the run's policies saw. */
#ifndef BRIM_SIMULATE_RECORDING_H
#define BRIM_SIMULATE_RECORDING_H
#include "base/arena.h"
#include "base/text.h"

#define BRIM_RECORD_WORDS_MAX 128

/* [init] Appends the scenario's YAML to `out`. `word`: has room for BRIM_RECORD_WORDS_MAX words; gets those that set
 * the run's policies and their parameters, ended by NULL, in `arena`. ELOAD: a file is missing or damaged, or the run's
 * events do not record the input of its policies. */
brim_status brim_scene_record(brim_arena *arena, const char *run, brim_text *out, const char **word);
#endif
