/* Old names of keys and values. brim treats a setting under an old name as if it had the new one, and logs one line
 * about it. */
#ifndef BRIM_CONFIG_ALIAS_H
#define BRIM_CONFIG_ALIAS_H
#include "param/problems.h"

/* ---- keys ---- */

typedef struct brim_alias {
  const char *old; /* "training.fp16" */
  const char *now; /* "precision" */
  /* The new values, for a key whose values were renamed too: "true=fp16|false=fp32". For a value without '=' ("false")
   * brim sets nothing. NULL: values are unchanged. */
  const char *values;
} brim_alias;
extern const brim_alias brim_aliases[]; /* ends with old == NULL */

/* Returns NULL if the path is not an old name. */
const brim_alias *brim_alias_find(const char *path);
/* Converts a value to one for the new key, with the origin of `value`. False, with a problem added, if the old key had
 * no such value; *out is NULL if nothing is to be set. */
bool brim_alias_value(const brim_alias *alias, const brim_yaml *value, brim_problems *problems, brim_yaml **out);
/* Replaces the old names in a tree, starting at the root. Adds a line to `notes` for each. If a tree has both an old
 * name and its new name, adds a problem. */
void brim_alias_rewrite(brim_arena *arena, brim_yaml *root, brim_problems *problems, brim_problems *notes);
/* Adds the line for one old name. */
void brim_alias_note(const brim_alias *alias, const brim_yaml *value, const brim_yaml *now, brim_problems *notes);

/* ---- values ---- */

/* An old name of a group's option; the group's name is unchanged. */
typedef struct brim_old_value {
  const char *key; /* "method" */
  const char *old; /* "fedavg"; for methods without the family's prefix ("baseline.") */
  const char *now; /* "random" */
} brim_old_value;
extern const brim_old_value brim_old_values[]; /* ends with key == NULL */

/* Replaces an old name by the new one and adds a line to `notes`; leaves other values unchanged. */
void brim_old_value_replace(const char *key, brim_yaml *value, brim_problems *notes);
#endif
