/* Keys that are declared, but whose behaviour is not in this build.
 *
 * A configuration that sets one of them to its default means what this build does anyway, and is accepted; any other
 * value is refused, with its position. Such a key is in the resolved configuration only if somebody wrote it.
 * When its behaviour arrives, a row moves to the table of who reads it. */
#ifndef BRIM_CONFIG_LATER_H
#define BRIM_CONFIG_LATER_H
#include "brim/plugin.h"
#include "param/yaml.h"

typedef struct brim_later_key {
  const char *section; /* "" for top-level keys, "training", ... */
  brim_param param;    /* type, default, range, help; it has no field */
} brim_later_key;
extern const brim_later_key brim_later_keys[]; /* ends with section == NULL */

/* Checks the value against the type and range of the row (ECONFIG, `problem` as brim_value_parse makes it), and then
 * for neutrality: ENOTSUP if it is another. `node` holds no interpolation. */
brim_status brim_later_check(const brim_later_key *key, const brim_yaml *node, brim_arena *arena, brim_text *problem);
#endif
