/* The tables of a scenario's keys. Internal to scenario*.c. */
#ifndef BRIM_SIMULATE_SCENARIO_KEYS_H
#define BRIM_SIMULATE_SCENARIO_KEYS_H
#include "simulate/scenario.h"

typedef struct brim_scene_section {
  const char *path;        /* "", "host", "model.recompute" */
  const brim_param *table; /* NULL: any keys */
  const char *help;
  bool is_list; /* of such maps */
} brim_scene_section;
extern const brim_scene_section brim_scene_sections[]; /* ends with path == NULL */
/* Its table. The section must be one of the list. */
const brim_param *brim_scene_table(const char *path);
bool brim_scene_is_list(const char *path); /* likewise */
/* Is it one, below `parent`, "model" of "recompute"? */
bool brim_scene_has_section(const char *parent, const char *key);
#endif
