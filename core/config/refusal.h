/* Keys of a configuration that cannot be combined with another setting, as tables. Internal to core/config. */
#ifndef BRIM_CONFIG_REFUSAL_H
#define BRIM_CONFIG_REFUSAL_H
#include "config/compose.h"

typedef struct brim_refusal {
  const char *path; /* the key's path: "training.steps" */
  bool is_refused;
  const char *why, *instead; /* the reason, and the setting that the user should choose */
} brim_refusal;

/* Adds a problem, with the key's origin, for each key of the rows [count] that is set; `with`: the other setting. */
void brim_refuse(brim_composition *composition, const brim_config *config, const brim_refusal *row, size_t count,
                 const char *with);
/* The origin of a key's value; NULL if the configuration lacks the key. */
const brim_yaml_origin *brim_origin_of(const brim_config *config, const char *path);
#endif
