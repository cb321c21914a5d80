/* Makes a plugin's instance without a configuration, for inspection. */
#ifndef BRIM_PLUGIN_INSTANCE_H
#define BRIM_PLUGIN_INSTANCE_H
#include "brim/plugin.h"
#include "param/yaml.h"

/* Makes an instance with its default parameters, which live in `arena`; the caller destroys it if the plugin has
 * destroy. ECONFIG if a parameter has no default; otherwise the status of create(). */
brim_status brim_instance_default(const brim_plugin *plugin, brim_arena *arena, void **out);
/* Makes an instance with some parameters given as words "key=value". ECONFIG names an invalid word. */
brim_status brim_instance_with(const brim_plugin *plugin, const char *const *word, size_t count, brim_arena *arena,
                               void **out);
#endif
