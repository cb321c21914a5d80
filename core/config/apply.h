/* Overrides applied to a composed tree, left to right. */
#ifndef BRIM_CONFIG_APPLY_H
#define BRIM_CONFIG_APPLY_H
#include "config/compose.h"
#include "config/schema.h"
#include "param/value.h"

/* Whether the override chooses an option of a group instead of setting a value. */
bool brim_override_is_choice(const brim_composition *c, const brim_override *override);
/* Applies an override that is not a choice. Ignores keys of broken groups; adds problems. */
void brim_override_apply(brim_composition *c, const brim_schema *schema, const brim_override *override);
#endif
