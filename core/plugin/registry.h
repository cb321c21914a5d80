/* The available plugins: those of the program and those of shared objects.
 *
 * Sources are searched in order: --plugin-path (folders or files), BRIM_PLUGIN_PATH (folders, colon-separated), the
 * installation's lib/brim/plugins. A folder in the layout of an installation, such as the build folder of a project
 * with plugins, is searched in its lib/brim/plugins, and its share/brim/configs adds configurations. If two plugins
 * have the same kind and id, the first source wins, with a warning; within a source the file KIND/ID.so wins, then the
 * others sorted by name.
 *
 * At first brim only lists a folder, because loading takes time (the cpu backend loads oneDNN). A lookup of KIND/ID
 * loads the file of that name; operations that need all plugins (enumeration, an id without a file of its name) load
 * the rest. Lookups are const, because they change only which plugins are loaded, never which exist. Not thread-safe:
 * for the main thread only.
 *
 * If a shared object cannot be used, the registry keeps the reason for `brim plugins`. It is an error only if a plugin
 * of that file is requested, or if the user named the file. */
#ifndef BRIM_PLUGIN_REGISTRY_H
#define BRIM_PLUGIN_REGISTRY_H
#include "brim/plugin.h"
#include "plugin/kind.h"

typedef struct brim_registry brim_registry;

#define BRIM_REGISTRY_CONFIGS_MAX 64 /* folders of configurations that come with plugins */

typedef struct brim_registry_entry {
  const brim_plugin *plugin;
  const brim_module *module; /* NULL: the core's own */
  const char *file;          /* "" for the core's own */
} brim_registry_entry;

typedef struct brim_registry_failure {
  const char *file, *reason; /* reason: one or more lines */
} brim_registry_failure;

/* Makes a registry. `own`: plugins that need no file, NULL-terminated; they come before all others. */
brim_registry *brim_registry_create(const brim_plugin *const *own);
void brim_registry_free(brim_registry *registry);

/* Opens the registry of a command: `own`, then `paths` (folders or files, as --plugin-path gives them),
 * BRIM_PLUGIN_PATH and the installation. ELOAD if one of `paths` does not exist or is a file that cannot be used; a
 * missing folder in BRIM_PLUGIN_PATH is a warning. On failure *out is NULL. */
brim_status brim_registry_open(const brim_plugin *const *own, const char *const *paths, size_t count,
                               brim_registry **out);
/* Adds one file, loaded at once. ELOAD with the reason. */
brim_status brim_registry_load(brim_registry *registry, const char *file);
/* Adds a folder: every *.so in it and its sub-folders (four deep, without hidden ones). ELOAD if the folder does not
 * exist. */
brim_status brim_registry_scan(brim_registry *registry, const char *folder);

/* Returns the i-th folder of configurations that belongs to a folder of plugins, in the order of the folders; the
 * installation's own is not among them. NULL: there are no more. */
const char *brim_registry_configs(const brim_registry *registry, size_t i);

/* The module's version; for the core's own plugins, brim's. */
const char *brim_registry_version(const brim_registry_entry *entry);
/* Finds a plugin; NULL if no plugin has this kind and id. Entries live until brim_registry_free. */
const brim_registry_entry *brim_registry_find(const brim_registry *registry, enum brim_kind kind, const char *id);
/* Why the file KIND/ID.so, which find would use, cannot be used; NULL if there is no such file, or it can be used. */
const brim_registry_failure *brim_registry_failure_of(const brim_registry *registry, enum brim_kind kind,
                                                      const char *id);
/* The id of the i-th file KIND/ID.so, by its path: nothing is loaded, and an id may appear twice. NULL: there are no
 * more. */
const char *brim_registry_home(const brim_registry *registry, enum brim_kind kind, size_t i);
/* From now on this registry is for plugins of one kind: the functions below ignore files KIND/ID.so of other kinds. */
void brim_registry_narrow(brim_registry *registry, enum brim_kind kind);
/* Enumerate all plugins; these load everything. */
size_t brim_registry_count(const brim_registry *registry);
const brim_registry_entry *brim_registry_at(const brim_registry *registry, size_t i); /* sorted by kind, id */
size_t brim_registry_failure_count(const brim_registry *registry);
const brim_registry_failure *brim_registry_failure_at(const brim_registry *registry, size_t i);
#endif
