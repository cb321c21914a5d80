/* The schema: every key that a configuration may have, from the core's sections and the tables of the chosen
 * plugins, with its dotted path. */
#ifndef BRIM_CONFIG_SCHEMA_H
#define BRIM_CONFIG_SCHEMA_H
#include "config/config.h"
#include "param/problems.h"

#define BRIM_GROUPS_MAX 12
#define BRIM_POLICIES_MAX 8                                  /* in a list */
#define BRIM_LISTED_MAX (BRIM_CHOICES_MAX - BRIM_GROUPS_MAX) /* in all lists */

/* The plugins whose tables a configuration has. */
typedef struct brim_schema_plugins {
  const brim_plugin *group[BRIM_GROUPS_MAX];  /* for each of brim_config_groups; NULL: not known, or a list's */
  const brim_plugin *listed[BRIM_LISTED_MAX]; /* of all lists, one list after the other */
  size_t listed_count;
} brim_schema_plugins;

typedef struct brim_schema_row {
  const char *path; /* "model.width" */
  const brim_param *row;
  const brim_plugin *plugin;   /* whose; NULL: the core's */
  const brim_section *section; /* of a row of the core's; else NULL */
  enum brim_edit edit;         /* in a run that is resumed */
} brim_schema_row;

typedef struct brim_schema {
  brim_schema_row *row; /* in the order in which a configuration is printed */
  size_t count, room;
} brim_schema;

void brim_schema_build(brim_schema *schema, brim_arena *arena, const brim_schema_plugins *plugins);
/* Those of a configuration's choices. */
brim_schema_plugins brim_schema_plugins_of(const brim_config *config);
/* The first row of this path; NULL if there is none. */
const brim_schema_row *brim_schema_find(const brim_schema *schema, const char *path);
/* Is the value a path? A map of weights may be one. */
bool brim_schema_holds_path(const brim_schema_row *row, const brim_yaml *node);
/* Is it a group, or does it hold keys? */
bool brim_schema_is_section(const brim_schema *schema, const char *path);
/* A line with all keys beside that of `path`, to the last problem: "training has: epochs steps ...". */
void brim_schema_hint_keys(const brim_schema *schema, const char *path, brim_problems *problems);
/* The key that was probably meant; NULL if none is near. */
const char *brim_schema_suggest(const brim_schema *schema, const char *path);
#endif
