/* What happened around a run, as a scenario: from its folder, which has what the run's policies were shown. */
#ifndef BRIM_SIMULATE_RECORDING_H
#define BRIM_SIMULATE_RECORDING_H
#include "base/arena.h"
#include "base/text.h"

#define BRIM_RECORD_WORDS_MAX 128

/* [init] The scenario's YAML is added to `out`. `word`: words that name the run's policies and their parameters, up to
 * NULL; room for BRIM_RECORD_WORDS_MAX. They live in `arena`. ELOAD: a file is missing or damaged, or the run's events
 * do not have what its policies were shown. */
brim_status brim_scene_record(brim_arena *arena, const char *run, brim_text *out, const char **word);
#endif
