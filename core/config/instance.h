/* A plugin's instance without a configuration: to look at what there is. */
#ifndef BRIM_CONFIG_INSTANCE_H
#define BRIM_CONFIG_INSTANCE_H
#include "brim/plugin.h"
#include "config/yaml.h"

/* Makes one of the defaults of its parameters, which live in `arena`; the caller destroys it if the plugin has destroy.
 * ECONFIG if a parameter has no default, or what create() said. */
brim_status brim_instance_default(const brim_plugin *plugin, brim_arena *arena, void **out);
#endif
