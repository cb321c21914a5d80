/* The plugins that a composed configuration chooses. */
#ifndef BRIM_CONFIG_FIND_PLUGINS_H
#define BRIM_CONFIG_FIND_PLUGINS_H
#include "config/compose.h"
#include "config/schema.h"

/* Finds the plugins of all groups. Sets `id` in the tree: for a group without a choice to its default, and for a list
 * of options to a list. Adds a problem for each choice that has no plugin, and marks its group in c->group_broken. */
void brim_config_find_plugins(brim_composition *c, brim_schema_plugins *plugins);
/* Whether an optional group, the g-th of brim_config_groups, has no choice. */
bool brim_config_is_empty(const brim_composition *c, const brim_schema_plugins *plugins, int g);
#endif
