/* Which plugins there are: the core's own and those of shared objects.
 *
 * Folders are searched in order: --plugin-path, BRIM_PLUGIN_PATH (colon-separated), the installation's.
 * A shared object that cannot be used is remembered with its reason and shown by `brim plugins`; it is
 * an error only when something of it is asked for, or when it was named by file. Two plugins of one kind
 * and id: the first found wins, with a warning. */
#ifndef BRIM_PLUGIN_REGISTRY_H
#define BRIM_PLUGIN_REGISTRY_H
#include "brim/plugin.h"

typedef struct brim_registry brim_registry;

typedef struct brim_registry_entry {
  const brim_plugin *plugin;
  const brim_module *module; /* NULL: the core's own */
  const char *file;          /* "" for the core's own */
} brim_registry_entry;

typedef struct brim_registry_failure {
  const char *file, *reason; /* reason: one or more lines */
} brim_registry_failure;

brim_registry *brim_registry_create(void); /* holds the core's own plugins */
void brim_registry_free(brim_registry *registry);
/* Loads one file. ELOAD with the reason. */
brim_status brim_registry_load(brim_registry *registry, const char *file);
/* Loads every *.so in a folder and its sub-folders (sorted by name); failures are remembered. A folder
 * that is not there: ELOAD. */
brim_status brim_registry_scan(brim_registry *registry, const char *folder);

const brim_registry_entry *brim_registry_find(const brim_registry *registry, enum brim_kind kind, const char *id);
size_t brim_registry_count(const brim_registry *registry);
const brim_registry_entry *brim_registry_at(const brim_registry *registry, size_t i); /* sorted by kind, id */
size_t brim_registry_failure_count(const brim_registry *registry);
const brim_registry_failure *brim_registry_failure_at(const brim_registry *registry, size_t i);
const char *brim_kind_name(uint32_t kind); /* "model"; NULL if unknown */

/* The core's own plugins (optimizers, schedules, losses), NULL-terminated. */
extern const brim_plugin *const brim_core_plugins[];
#endif
