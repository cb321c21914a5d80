/* Adds what transformers assumes for keys that a config.json lacks. See family.h. */
#include <string.h>
#include <unistd.h>

#include "config/family.h"

enum { OWN, COMMON, PARTS };

static brim_status read_part(brim_arena *arena, const char *const *folder, size_t folders, const char *name,
                             brim_yaml **out)
{
  for (size_t i = 0; i < folders; i++) {
    const char *path = brim_arena_printf(arena, "%s/family/%s.yaml", folder[i], name);
    if (access(path, F_OK) == 0) return brim_yaml_parse_file(arena, path, out);
  }
  return BRIM_OK;
}

/* Returns a section of a part, if the part has it and it is a map. */
static const brim_yaml *section_of(const brim_yaml *part, const char *name)
{
  const brim_yaml *section = part ? brim_yaml_get(part, name) : NULL;
  return section && section->kind == BRIM_YAML_MAP ? section : NULL;
}

/* Whether a value of the section `keys` is a model's key, or a list with it. */
static bool names(const brim_yaml *to, const char *key)
{
  bool found = to->kind == BRIM_YAML_SCALAR && strcmp(to->scalar, key) == 0;
  for (size_t i = 0; to->kind == BRIM_YAML_LIST && i < to->count; i++) found = found || names(to->item[i], key);
  return found;
}

/* Returns the first key of config.json that sets a key of the model, or NULL if no key does or config.json has one of
 * them. */
static const char *find_missing(brim_yaml *const part[PARTS], const brim_yaml *config, const char *key)
{
  const char *first = NULL;
  for (int p = 0; p < PARTS; p++) {
    const brim_yaml *keys = section_of(part[p], "keys");
    for (size_t i = 0; keys && i < keys->count; i++) {
      if (!names(keys->item[i], key)) continue;
      if (brim_yaml_get_path(config, keys->key[i])) return NULL;
      if (!first && !strchr(keys->key[i], '.')) first = keys->key[i];
    }
  }
  return first;
}

brim_status brim_family_complete(brim_arena *arena, const char *const *folder, size_t folders, brim_yaml *config)
{
  const brim_yaml *type = brim_yaml_get(config, "model_type");
  brim_yaml *part[PARTS] = {NULL};
  if (!type || type->kind != BRIM_YAML_SCALAR || strpbrk(type->scalar, "./")) return BRIM_OK;
  BRIM_TRY(read_part(arena, folder, folders, type->scalar, &part[OWN]));
  BRIM_TRY(read_part(arena, folder, folders, "common", &part[COMMON]));
  const brim_yaml *model = section_of(part[OWN], "model");
  for (size_t i = 0; model && i < model->count; i++) {
    const char *key = find_missing(part, config, model->key[i]);
    if (key) brim_yaml_set(arena, config, key, brim_yaml_clone(arena, model->item[i]));
  }
  return BRIM_OK;
}
