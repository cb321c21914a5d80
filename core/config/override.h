/* Overrides: words of the command line that change a configuration.
 *
 *     key=value    the key must exist          +key=value   it must not exist yet
 *     ++key=value  either                      ~key         removes it: its default applies again
 *     key+=[x]     appends to a list           ~key=value   the same, if it has that value
 *
 * A word is split at the first '='. A value is a scalar, which is taken literally; [a, b]; {k: v}; or quoted text,
 * which is always a string. `key=` sets the empty string. */
#ifndef BRIM_CONFIG_OVERRIDE_H
#define BRIM_CONFIG_OVERRIDE_H
#include "param/problems.h"

enum brim_override_mode { BRIM_OVERRIDE_SET, BRIM_OVERRIDE_ADD, BRIM_OVERRIDE_FORCE, BRIM_OVERRIDE_REMOVE };
typedef struct brim_override {
  enum brim_override_mode mode;
  bool append;      /* key+= */
  const char *key;  /* dotted, without prefix */
  brim_yaml *value; /* NULL: ~key */
  brim_yaml_origin origin;
} brim_override;

/* Parses a word; `argument`: its number on the command line, 0 if it comes from a policy. False, with a problem added,
 * on failure. Strings live in `arena`. */
bool brim_override_parse(brim_arena *arena, const char *word, int argument, brim_problems *problems,
                         brim_override *out);
/* The length up to the first comma that is outside of brackets and quotes (a quote inside a word is an apostrophe), or
 * of the whole value: one item of a sweep. */
size_t brim_override_item_length(const char *value);
/* Whether the value is range(...) or glob(...). */
bool brim_override_is_sweep_function(const char *value);
#endif
