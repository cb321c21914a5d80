/* Plugins for tests: loaded from the build tree, with parameters from their defaults and a line of YAML. */
#ifndef TESTS_CONFORMANCE_LOAD_H
#define TESTS_CONFORMANCE_LOAD_H
#include "base/arena.h"
#include "brim/brim.h"

/* Sanitizers check memory, not numbers: a fraction of the cases is enough. */
#ifdef __SANITIZE_ADDRESS__
#define BENCH_SHARE 4
#else
#define BENCH_SHARE 1
#endif

typedef struct loaded {
  const brim_plugin *plugin;
  void *self; /* the instance, or the parameters if the plugin has no instances */
  brim_arena arena;
} loaded;

/* Loads lib/brim/plugins/<folder>/<id>.so. `settings`: a YAML map such as "{width: 2}", or NULL. Returns false if the
 * file does not exist; any other error fails the test. */
bool load_plugin(loaded *out, const char *folder, const char *id, const char *settings);
/* Does the same in a folder of the build; "" is the build itself. */
bool load_plugin_from(loaded *out, const char *root, const char *folder, const char *id, const char *settings);
/* Fills the parameters of a plugin of the core. */
void load_core_plugin(loaded *out, const brim_plugin *plugin, const char *settings);
void unload_plugin(loaded *plugin);
#endif
