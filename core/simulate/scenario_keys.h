/* The tables of a scenario's keys. Internal to scenario*.c. */
#ifndef BRIM_SIMULATE_SCENARIO_KEYS_H
#define BRIM_SIMULATE_SCENARIO_KEYS_H
#include "simulate/scenario.h"

typedef struct brim_scene_section {
  const char *path;        /* "", "host", "model.recompute" */
  const brim_param *table; /* NULL: any keys */
  const char *help;
  size_t items_max; /* 0: a single map; else the maximum length of a list of maps */
} brim_scene_section;
extern const brim_scene_section brim_scene_sections[];       /* ends with path == NULL */
const brim_scene_section *brim_scene_find(const char *path); /* may return NULL */
/* Whether this is a key of the section's maps, or the name of a subsection, such as "recompute" of "model". */
bool brim_scene_is_key(const brim_scene_section *section, const char *key);
#endif
