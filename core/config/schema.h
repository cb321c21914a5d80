/* The schema: every key that a configuration may have, with its dotted path, from the core's sections and the tables of
 * the chosen plugins. */
#ifndef BRIM_CONFIG_SCHEMA_H
#define BRIM_CONFIG_SCHEMA_H
#include "config/config.h"
#include "param/problems.h"

#define BRIM_GROUPS_MAX 16
#define BRIM_POLICIES_MAX 8                                  /* in one list */
#define BRIM_LISTED_MAX (BRIM_CHOICES_MAX - BRIM_GROUPS_MAX) /* in all lists */

/* The plugins whose parameter tables are part of the schema. */
typedef struct brim_schema_plugins {
  const brim_plugin *group[BRIM_GROUPS_MAX]; /* by index in brim_config_groups; NULL: unknown, or the group is a list */
  const brim_plugin *listed[BRIM_LISTED_MAX]; /* plugins of all lists, one list after another */
  size_t listed_count;
} brim_schema_plugins;

typedef struct brim_schema_row {
  const char *path; /* "model.width" */
  uint64_t hash;    /* of the path */
  const brim_param *row;
  const brim_plugin *plugin;   /* the plugin that owns the key; NULL: the core */
  const brim_section *section; /* for a key of the core; else NULL */
  enum brim_edit edit;         /* whether the key may be edited when a run is resumed */
} brim_schema_row;

typedef struct brim_schema {
  brim_schema_row *row; /* in the order in which a configuration is printed */
  size_t count, room;
} brim_schema;

void brim_schema_build(brim_schema *schema, brim_arena *arena, const brim_schema_plugins *plugins);
/* The plugins that a configuration chooses. */
brim_schema_plugins brim_schema_plugins_of(const brim_config *config);
/* The first row of this path; NULL if there is none. */
const brim_schema_row *brim_schema_find(const brim_schema *schema, const char *path);
/* Whether the value is a path; a map of weights may contain one. */
bool brim_schema_holds_path(const brim_schema_row *row, const brim_yaml *node);
/* Whether the key is a group or contains keys. */
bool brim_schema_is_section(const brim_schema *schema, const char *path);
/* Adds a line with all keys beside that of `path` to the last problem: "training has: epochs steps ...". */
void brim_schema_hint_keys(const brim_schema *schema, const char *path, brim_problems *problems);
/* The key that was probably meant; NULL if none is close. */
const char *brim_schema_suggest(const brim_schema *schema, const char *path);
#endif
