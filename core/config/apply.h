/* Overrides applied to a composed tree, left to right. */
#ifndef BRIM_CONFIG_APPLY_H
#define BRIM_CONFIG_APPLY_H
#include "config/compose.h"
#include "config/schema.h"
#include "param/value.h"

/* Does this override choose the option of a group, rather than set a value? */
bool brim_override_is_choice(const brim_composition *c, const brim_override *override);
/* Applies one that is not a choice. Keys of broken groups are let through; problems are added. */
void brim_override_apply(brim_composition *c, const brim_schema *schema, const brim_override *override);
#endif
