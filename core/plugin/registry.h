/* Which plugins there are: those that come with the program and those of shared objects.
 *
 * Sources are searched in order: --plugin-path (folders or files), BRIM_PLUGIN_PATH (folders, colon-separated),
 * the installation's lib/brim/plugins. A folder that is laid out as an installation, as the build folder of a project
 * with plugins is, stands for its lib/brim/plugins, and its share/brim/configs are configurations. Two plugins of one
 * kind and id: the first source wins, with a warning; within a source the file KIND/ID.so does, then the others sorted
 * by name.
 *
 * A folder is only listed at first, since loading costs time (the cpu backend brings oneDNN along). Looking for
 * KIND/ID loads the file of that name; whatever needs all plugins (enumerating, an id that no file is named after)
 * loads the rest. So lookups are const: they never change which plugins there are, only what of them is in memory.
 * Not thread-safe: the main thread's.
 *
 * A shared object that cannot be used is remembered with its reason and shown by `brim plugins`; it is an error
 * only when something of it is asked for, or when it was named by file. */
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

/* `own`: plugins that need no file, NULL-terminated; they come before all others. */
brim_registry *brim_registry_create(const brim_plugin *const *own);
void brim_registry_free(brim_registry *registry);

/* What a command starts with: `own`, then `paths` (folders or files, as --plugin-path gives them), BRIM_PLUGIN_PATH and
 * the installation. ELOAD if one of `paths` is not there or is a file that cannot be used; a missing folder in
 * BRIM_PLUGIN_PATH is a warning. On failure *out is NULL. */
brim_status brim_registry_open(const brim_plugin *const *own, const char *const *paths, size_t count,
                               brim_registry **out);
/* Adds one file, loaded at once. ELOAD with the reason. */
brim_status brim_registry_load(brim_registry *registry, const char *file);
/* Adds a folder: every *.so in it and its sub-folders (four deep, none whose name starts with a dot). A folder
 * that is not there: ELOAD. */
brim_status brim_registry_scan(brim_registry *registry, const char *folder);

/* The i-th folder of configurations that came with the plugins' folders, in their order; NULL: there are no more. The
 * installation's own is none of them. */
const char *brim_registry_configs(const brim_registry *registry, size_t i);

/* The module's version; of the core's own plugins, brim's. */
const char *brim_registry_version(const brim_registry_entry *entry);
/* NULL if there is none. Entries live until brim_registry_free. */
const brim_registry_entry *brim_registry_find(const brim_registry *registry, enum brim_kind kind, const char *id);
/* Why the file KIND/ID.so, which find would have taken, cannot be used; NULL if there is no such file, or if it can. */
const brim_registry_failure *brim_registry_failure_of(const brim_registry *registry, enum brim_kind kind,
                                                      const char *id);
/* The id of the i-th file KIND/ID.so, by its path: nothing is loaded, and an id may come twice. NULL: there are no
 * more.
 */
const char *brim_registry_home(const brim_registry *registry, enum brim_kind kind, size_t i);
/* All of them; these load everything. */
size_t brim_registry_count(const brim_registry *registry);
const brim_registry_entry *brim_registry_at(const brim_registry *registry, size_t i); /* sorted by kind, id */
size_t brim_registry_failure_count(const brim_registry *registry);
const brim_registry_failure *brim_registry_failure_at(const brim_registry *registry, size_t i);
#endif
