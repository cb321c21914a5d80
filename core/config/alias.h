/* Old names of keys and of their values. brim takes what is set by an old name as if the new one had been
 * written, and logs one line that says so. */
#ifndef BRIM_CONFIG_ALIAS_H
#define BRIM_CONFIG_ALIAS_H
#include "param/problems.h"

/* ---- keys ---- */

typedef struct brim_alias {
  const char *old; /* "training.fp16" */
  const char *now; /* "precision" */
  /* What the values become, for a key whose values are others now: "true=fp16|false=fp32". A value without '='
   * ("false") sets nothing. NULL: they stay. */
  const char *values;
} brim_alias;
extern const brim_alias brim_aliases[]; /* ends with old == NULL */

/* NULL if the path is no old name. */
const brim_alias *brim_alias_find(const char *path);
/* The value that the new key takes, with the origin of `value`. False with a problem added if it is none of those
 * that the old key had; *out is NULL if nothing is to be set. */
bool brim_alias_value(const brim_alias *alias, const brim_yaml *value, brim_problems *problems, brim_yaml **out);
/* Rewrites the old names in a tree from the root. `notes` gets a line for each. An old name beside its new one is a
 * problem. */
void brim_alias_rewrite(brim_arena *arena, brim_yaml *root, brim_problems *problems, brim_problems *notes);
/* Adds the line for one. */
void brim_alias_note(const brim_alias *alias, const brim_yaml *value, const brim_yaml *now, brim_problems *notes);

/* ---- values ---- */

/* An old name of an option of a group that kept its own name. */
typedef struct brim_old_value {
  const char *key; /* "method" */
  const char *old; /* "fedavg"; of a method without its family ("baseline.") */
  const char *now; /* "random" */
} brim_old_value;
extern const brim_old_value brim_old_values[]; /* ends with key == NULL */

/* Puts the new name in the place of an old one, and adds a line to `notes`. Every other value stays as it is. */
void brim_old_value_replace(const char *key, brim_yaml *value, brim_problems *notes);
#endif
