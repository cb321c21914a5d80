/* For tests of datasets: loads a plugin from the build tree and fills its parameters with its table's defaults, except
 * for the given ones. */
#ifndef TESTS_DATASET_PLUGIN_H
#define TESTS_DATASET_PLUGIN_H
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "brim/brim.h"

typedef struct dataset_param {
  const char *key;
  const char *text; /* a string, a number, true, an enum's name, or a special word that its range accepts */
  brim_list list;
  brim_names names;
} dataset_param;

typedef struct dataset {
  const brim_plugin *plugin;
  const brim_dataset_ops *ops;
  void *params, *self;
} dataset;

/* Returns the index of a name in a list such as "ring|tree". */
static inline int32_t dataset_name(const char *names, const char *text)
{
  int32_t i = 0;
  for (const size_t n = strlen(text); strncmp(names, text, n) != 0 || (names[n] && names[n] != '|'); i++) {
    names = strchr(names, '|');
    if (!names++) abort();
  }
  return i;
}

static inline void dataset_fill(const brim_param *row, const dataset_param *given, void *params)
{
  void *field = (char *)params + row->offset;
  const char *text = given && given->text ? given->text : row->def;
  if (row->type == BRIM_STR || row->type == BRIM_PATH)
    memcpy(field, &text, sizeof text);
  else if (row->type == BRIM_I64)
    *(int64_t *)field = text[0] >= 'a' ? -1 : strtoll(text, NULL, 10);
  else if (row->type == BRIM_F64)
    *(double *)field = strtod(text, NULL);
  else if (row->type == BRIM_LIST && given)
    *(brim_list *)field = given->list;
  else if (row->type == BRIM_NAMES && given)
    *(brim_names *)field = given->names;
  else if (row->type == BRIM_BOOL)
    *(bool *)field = strcmp(text, "true") == 0;
  else if (row->type == BRIM_ENUM)
    *(int32_t *)field = dataset_name(row->range, text);
}

/* `given` ends with a NULL key. */
static inline dataset dataset_create(const char *id, const dataset_param *given)
{
  char path[4096];
  snprintf(path, sizeof path, "%s/lib/brim/plugins/dataset/%s.so", BRIM_BUILD_DIR, id);
  dataset d = {0};
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    abort();
  }
  brim_module_entry_fn entry;
  void *symbol = dlsym(library, "brim_module_entry");
  memcpy(&entry, &symbol, sizeof entry);
  d.plugin = entry()->plugins[0];
  d.ops = d.plugin->ops;
  d.params = calloc(1, d.plugin->params_size);
  for (const brim_param *row = d.plugin->params; row->key; row++) {
    const dataset_param *match = given;
    while (match->key && strcmp(match->key, row->key) != 0) match++;
    dataset_fill(row, match->key ? match : NULL, d.params);
  }
  d.self = d.params;
  if (d.plugin->create && d.plugin->create(d.params, &d.self) != BRIM_OK) abort();
  return d;
}

static inline void dataset_destroy(dataset *d)
{
  if (d->plugin->destroy) d->plugin->destroy(d->self);
  free(d->params);
}
#endif
