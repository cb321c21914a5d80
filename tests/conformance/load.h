/* Plugins for tests: loaded from the build tree, with parameters from their defaults and a line of YAML. */
#ifndef TESTS_CONFORMANCE_LOAD_H
#define TESTS_CONFORMANCE_LOAD_H
#include "base/arena.h"
#include "brim/brim.h"

typedef struct loaded {
  const brim_plugin *plugin;
  void *self; /* the instance, or the parameters where the plugin makes none */
  brim_arena arena;
} loaded;

/* Loads lib/brim/plugins/<folder>/<id>.so. `settings`: a YAML map such as "{width: 2}", or NULL. False if there is no
 * such file; anything else that goes wrong fails the test. */
bool load_plugin(loaded *out, const char *folder, const char *id, const char *settings);
/* The same from a folder of the build, "" for the build itself. */
bool load_plugin_from(loaded *out, const char *root, const char *folder, const char *id, const char *settings);
/* The same for one of the core's own: its parameters. */
void load_core_plugin(loaded *out, const brim_plugin *plugin, const char *settings);
void unload_plugin(loaded *plugin);
#endif
