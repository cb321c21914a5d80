/* The names of the kinds of plugins, from the one list in brim/plugin.h. */
#include "plugin/kind.h"

#include <stddef.h>
#include <string.h>

static const struct {
  uint32_t kind;
  const char *name;
} kind_names[] = {
#define X(name, value, text) {value, text},
    BRIM_KIND_MAP(X)
#undef X
};
#define KIND_COUNT (sizeof kind_names / sizeof kind_names[0])

const char *brim_kind_name(uint32_t kind)
{
  for (size_t i = 0; i < KIND_COUNT; i++)
    if (kind_names[i].kind == kind) return kind_names[i].name;
  return NULL;
}

uint32_t brim_kind_by_name(const char *name)
{
  for (size_t i = 0; i < KIND_COUNT; i++)
    if (strcmp(kind_names[i].name, name) == 0) return kind_names[i].kind;
  return 0;
}

bool brim_is_plugin_id(const char *id)
{
  const size_t length = strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789_");
  return length > 0 && length <= BRIM_PLUGIN_ID_MAX && id[length] == '\0';
}
