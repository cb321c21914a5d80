#include "config/family.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/gguf.h"
#include "base/text.h"
#include "config/interpolate.h"

typedef struct family {
  brim_composition *c;
  const brim_yaml *config;  /* config.json */
  const brim_yaml *part[2]; /* the rules for all families, and the rules for this family */
  const char *type;         /* the model's type: the family's name */
  brim_yaml *content;       /* gets the values */
} family;

/* ---- the folder ---- */

/* Returns the value of a key on the command line, or in a file as the previous walk left it; NULL: none. */
static const char *early_value(brim_composition *c, const char *key)
{
  const brim_yaml *node = c->previous ? brim_yaml_get_path(c->previous, key) : NULL;
  for (size_t i = 0; i < c->override_count; i++)
    if (strcmp(c->override[i].key, key) == 0) node = c->override[i].value;
  if (!node || node->kind != BRIM_YAML_SCALAR || brim_yaml_is_null(node) || !node->scalar[0]) return NULL;
  return brim_interpolate_option(c, node->scalar, node->origin);
}

/* Returns the path of config.json; NULL, with a problem added, if the user has not set the folder. */
static const char *config_path(brim_composition *c, const char *group, const char *key)
{
  const size_t problems = c->problems.count;
  const char *folder = early_value(c, key);
  struct stat info;
  if (!folder) {
    if (c->problems.count > problems) return NULL;
    c->unsettled = c->unsettled || !c->previous; /* a file that comes after this option may set it: see the next walk */
    brim_problem(&c->problems, BRIM_ECONFIG, "%s=hf reads the network from the folder in %s, which is not set", group,
                 key);
    brim_problem_hint(&c->problems, "set %s to a folder with config.json, as Hugging Face has it, or to a GGUF file",
                      key);
    return NULL;
  }
  if (brim_is_gguf(folder)) return folder;
  const char *path = brim_arena_printf(c->arena, "%s/config.json", folder);
  if (stat(path, &info) == 0) return path;
  if (stat(folder, &info) != 0) {
    brim_problem(&c->problems, BRIM_ELOAD, "cannot open the folder '%s' of %s: %s", folder, key, strerror(errno));
    brim_problem_hint(&c->problems, "brim downloads nothing: docs/guide/models.md says how to fetch a model");
    return NULL;
  }
  brim_problem(&c->problems, BRIM_ELOAD, "no config.json in '%s', so %s=hf does not know the network", folder, group);
  brim_problem_hint(&c->problems, "set %s to a folder as Hugging Face has it, or choose a model by its name", key);
  return NULL;
}

/* ---- the file of a family ---- */

/* Sections of a family's file: a map, a list of texts, or a text. */
static const struct {
  const char *name;
  enum brim_yaml_kind kind;
} sections[] = {{"model", BRIM_YAML_MAP},     {"keys", BRIM_YAML_MAP},      {"only", BRIM_YAML_MAP},
                {"values", BRIM_YAML_MAP},    {"switches", BRIM_YAML_MAP},  {"required", BRIM_YAML_LIST},
                {"nullable", BRIM_YAML_LIST}, {"harmless", BRIM_YAML_LIST}, {"inside", BRIM_YAML_SCALAR}};

static bool is_list_of_texts(const brim_yaml *node)
{
  bool good = node->kind == BRIM_YAML_LIST;
  for (size_t i = 0; good && i < node->count; i++) good = node->item[i]->kind == BRIM_YAML_SCALAR;
  return good;
}

/* In `keys` each value is a name or a list of names; `only` and `switches` are lists; `values` is a map. */
static bool is_section(const char *name, enum brim_yaml_kind kind, const brim_yaml *node)
{
  if (kind == BRIM_YAML_LIST) return is_list_of_texts(node);
  if (kind == BRIM_YAML_SCALAR) return node->kind == BRIM_YAML_SCALAR;
  bool good = node->kind == BRIM_YAML_MAP;
  for (size_t i = 0; good && i < node->count; i++) {
    const brim_yaml *value = node->item[i];
    if (strcmp(name, "keys") == 0) good = value->kind == BRIM_YAML_SCALAR || is_list_of_texts(value);
    if (strcmp(name, "only") == 0 || strcmp(name, "switches") == 0) good = is_list_of_texts(value);
    if (strcmp(name, "values") == 0) good = value->kind == BRIM_YAML_MAP;
  }
  return good;
}

static bool check_file(brim_composition *c, const brim_yaml *file)
{
  static const char *const forms[] = {
      [BRIM_YAML_SCALAR] = "name", [BRIM_YAML_LIST] = "list of names", [BRIM_YAML_MAP] = "map"};
  const size_t problems = c->problems.count, count = sizeof sections / sizeof sections[0];
  for (size_t i = 0; i < file->count; i++) {
    size_t s = 0;
    while (s < count && strcmp(sections[s].name, file->key[i]) != 0) s++;
    const brim_yaml_origin at = brim_yaml_key_origin(file->item[i]);
    if (s == count)
      brim_problem_at(&c->problems, &at, "a family's file has no section '%s'", file->key[i]);
    else if (!is_section(sections[s].name, sections[s].kind, file->item[i]))
      brim_problem_at(&c->problems, &at, "the section '%s' of a family's file must be a %s%s", sections[s].name,
                      forms[sections[s].kind],
                      sections[s].kind == BRIM_YAML_MAP ? ": see configs/family/common.yaml" : "");
  }
  return c->problems.count == problems;
}

/* Finds the files of the family that config.json names. */
static bool find_family(family *f, const char *path)
{
  brim_composition *c = f->c;
  const brim_yaml *type = brim_yaml_get(f->config, "model_type");
  if (!type || type->kind != BRIM_YAML_SCALAR) {
    brim_problem(&c->problems, BRIM_ELOAD, "%s does not name its model_type", path);
    return false;
  }
  f->type = type->scalar;
  const char *common = brim_compose_option_file(c, "family", "common");
  const char *own = strpbrk(f->type, "./") ? NULL : brim_compose_option_file(c, "family", f->type);
  if (!own || !common || strcmp(f->type, "common") == 0) {
    brim_problem_at(&c->problems, &type->origin, "brim does not know models of the type '%s'", f->type);
    const char **option, *list = "";
    const size_t count = brim_compose_options(c, "family", &option);
    for (size_t i = 0; i < count; i++)
      if (strcmp(option[i], "common") != 0) list = brim_arena_printf(c->arena, "%s %s", list, option[i]);
    brim_problem_hint(&c->problems, "it knows:%s", list);
    return false;
  }
  f->part[0] = brim_compose_source(c, common);
  f->part[1] = brim_compose_source(c, own);
  return f->part[0] && f->part[1] && check_file(c, f->part[0]) && check_file(c, f->part[1]);
}

/* Whether a section of one of the family's files has this text; if the section is a map, *value is the value. */
static bool has(const family *f, const char *section, const char *key, const brim_yaml **value)
{
  bool found = false;
  for (int i = 0; i < 2; i++) {
    const brim_yaml *node = brim_yaml_get(f->part[i], section);
    for (size_t k = 0; node && k < node->count; k++) {
      const bool same = strcmp(node->kind == BRIM_YAML_MAP ? node->key[k] : node->item[k]->scalar, key) == 0;
      if (same && value) *value = node->item[k];
      found = found || same;
    }
  }
  return found;
}

/* ---- config.json ---- */

static bool is_true(const brim_yaml *value)
{
  return value && value->kind == BRIM_YAML_SCALAR && !value->quoted && strcmp(value->scalar, "true") == 0;
}

/* Whether the key counts only with a switch that config.json does not turn on. */
static bool is_off(const family *f, const char *key)
{
  const brim_yaml *switches = brim_yaml_get(f->part[1], "switches");
  for (size_t i = 0; switches && i < switches->count; i++)
    for (size_t k = 0; k < switches->item[i]->count; k++)
      if (strcmp(switches->item[i]->item[k]->scalar, key) == 0)
        return !is_true(brim_yaml_get(f->config, switches->key[i]));
  return false;
}

static bool is_one_of(const brim_yaml *allowed, const brim_yaml *value)
{
  if (value->kind == BRIM_YAML_LIST) { /* all of them must be */
    for (size_t i = 0; i < value->count; i++)
      if (!is_one_of(allowed, value->item[i])) return false;
    return true;
  }
  for (size_t i = 0; i < allowed->count && value->kind == BRIM_YAML_SCALAR; i++) {
    const brim_yaml *item = allowed->item[i];
    if (strcmp(item->scalar, value->scalar) == 0 || (brim_yaml_is_null(item) && brim_yaml_is_null(value))) return true;
  }
  return false;
}

static void check_allowed(const family *f, const char *key, const brim_yaml *value, const brim_yaml *allowed)
{
  if (is_one_of(allowed, value)) return;
  const char *list = "";
  for (size_t i = 0; i < allowed->count; i++)
    list = brim_arena_printf(f->c->arena, "%s%s%s", list, i ? " or " : "", allowed->item[i]->scalar);
  brim_problem_at(&f->c->problems, &value->origin, "brim cannot build a %s model with %s: %s; it must be %s", f->type,
                  key, value->kind == BRIM_YAML_SCALAR ? value->scalar : "{...}", list);
}

static bool has_inner_keys(const family *f, const char *path)
{
  const char *prefix = brim_arena_printf(f->c->arena, "%s.", path);
  static const char *const maps[] = {"keys", "only"};
  for (int i = 0; i < 2; i++)
    for (int m = 0; m < 2; m++) {
      const brim_yaml *node = brim_yaml_get(f->part[i], maps[m]);
      for (size_t k = 0; node && k < node->count; k++)
        if (brim_starts_with(node->key[k], prefix)) return true;
    }
  return false;
}

/* Checks that brim knows all keys of a map in config.json, and their values; `prefix`: the map's path and a dot. */
static void check_keys(const family *f, const brim_yaml *map, const char *prefix)
{
  brim_problems *problems = &f->c->problems;
  for (size_t i = 0; i < map->count; i++) {
    const char *key = brim_arena_printf(f->c->arena, "%s%s", prefix, map->key[i]);
    const brim_yaml *value = map->item[i], *allowed = NULL;
    const brim_yaml_origin at = brim_yaml_key_origin(value);
    if (has(f, "harmless", key, NULL) || (brim_yaml_is_null(value) && has(f, "nullable", key, NULL))) continue;
    if (is_off(f, key)) continue;
    if (has_inner_keys(f, key)) {
      if (value->kind == BRIM_YAML_MAP)
        check_keys(f, value, brim_arena_printf(f->c->arena, "%s.", key));
      else
        brim_problem_at(problems, &at, "'%s' must be a map", key);
    } else if (has(f, "only", key, &allowed)) {
      check_allowed(f, key, value, allowed);
    } else if (has(f, "switches", key, NULL)) {
      if (!is_true(value) && (value->kind != BRIM_YAML_SCALAR || strcmp(value->scalar, "false") != 0))
        brim_problem_at(problems, &value->origin, "'%s' must be true or false", key);
    } else if (!has(f, "keys", key, NULL)) {
      brim_problem_at(problems, &at, "brim does not know the key '%s' of a %s model", key, f->type);
      brim_problem_hint(problems,
                        "it may mean another network; if transformers ignores it, list it as harmless in a copy of "
                        "configs/family/%s.yaml in your own configs/family",
                        f->type);
    } else if (brim_yaml_is_null(value)) {
      brim_problem_at(problems, &at, "'%s' must not be null", key);
    }
  }
}

/* Whether the family's file sets the key of the model that takes this key's value. */
static bool has_default(const family *f, const char *key)
{
  const brim_yaml *to = NULL;
  return has(f, "keys", key, &to) && to->kind == BRIM_YAML_SCALAR &&
         brim_yaml_get(brim_yaml_get(f->part[1], "model"), to->scalar);
}

static void check_required(const family *f, const char *path)
{
  for (int i = 0; i < 2; i++) {
    const brim_yaml *list = brim_yaml_get(f->part[i], "required");
    for (size_t k = 0; list && k < list->count; k++)
      if (!brim_yaml_get(f->config, list->item[k]->scalar) && !has_default(f, list->item[k]->scalar) &&
          !is_off(f, list->item[k]->scalar))
        brim_problem(&f->c->problems, BRIM_ELOAD, "%s has no '%s'", path, list->item[k]->scalar);
  }
  const brim_yaml *old = brim_yaml_get(f->config, "rope_scaling"), *now = brim_yaml_get(f->config, "rope_parameters");
  if (old && now && !brim_yaml_is_null(old) && !brim_yaml_is_null(now))
    brim_problem_at(&f->c->problems, &old->origin,
                    "config.json has rope_scaling and rope_parameters: remove one of them");
}

/* Returns a copy of a value, or of each value of a list, translated if the family's file defines another text for
 * it. */
static brim_yaml *translated(const family *f, const char *key, const brim_yaml *value)
{
  brim_yaml *copy = brim_yaml_clone(f->c->arena, value);
  const brim_yaml *table = NULL;
  brim_interpolation_escape_all(f->c->arena, copy); /* values of config.json are data */
  if (!has(f, "values", key, &table)) return copy;
  for (size_t i = 0; i < (copy->kind == BRIM_YAML_LIST ? copy->count : 1); i++) {
    brim_yaml *node = copy->kind == BRIM_YAML_LIST ? copy->item[i] : copy;
    const char *text = brim_yaml_is_null(node) ? "null" : node->kind == BRIM_YAML_SCALAR ? node->scalar : "";
    const brim_yaml *other = brim_yaml_get(table, text);
    if (!other || other->kind != BRIM_YAML_SCALAR) continue;
    node->scalar = other->scalar;
    node->quoted = other->quoted;
  }
  return copy;
}

/* Sets keys of the model to a value; for null, to the model's own default. */
static void set(const family *f, const brim_yaml *to, const brim_yaml *value)
{
  const size_t count = to->kind == BRIM_YAML_LIST ? to->count : 1;
  for (size_t i = 0; i < count; i++) {
    const char *key = (to->kind == BRIM_YAML_LIST ? to->item[i] : to)->scalar;
    brim_yaml_remove(f->content, key);
    if (!brim_yaml_is_null(value)) brim_yaml_set(f->c->arena, f->content, key, brim_yaml_clone(f->c->arena, value));
  }
}

/* Takes the values for the keys of a family's file, in its order. If two keys set the same value, the second counts. */
static void take(const family *f, const brim_yaml *part)
{
  const brim_yaml *keys = brim_yaml_get(part, "keys");
  for (size_t k = 0; keys && k < keys->count; k++) {
    const brim_yaml *value = brim_yaml_get_path(f->config, keys->key[k]);
    if (value && !is_off(f, keys->key[k])) set(f, keys->item[k], translated(f, keys->key[k], value));
  }
}

/* Continues in the map of config.json that describes the network, if config.json has a separate map for it; false on
 * error. Keys outside that map count only if the family's own file has them. */
static bool go_inside(family *f, const char *path)
{
  const brim_yaml *inside = brim_yaml_get(f->part[1], "inside");
  if (!inside) return true;
  const size_t problems = f->c->problems.count;
  const brim_yaml *config = brim_yaml_get(f->config, inside->scalar);
  if (!config || config->kind != BRIM_YAML_MAP) {
    brim_problem(&f->c->problems, BRIM_ELOAD, "%s has no map '%s'", path, inside->scalar);
    return false;
  }
  check_keys(f, f->config, "");
  if (f->c->problems.count == problems) take(f, f->part[1]);
  f->config = config;
  return find_family(f, path) && f->c->problems.count == problems;
}

bool brim_family_read(brim_composition *c, const char *group, brim_yaml *content)
{
  const brim_yaml *key = brim_yaml_get(content, BRIM_FAMILY_KEY);
  if (!key) return true;
  const size_t problems = c->problems.count;
  const char *path = key->kind == BRIM_YAML_SCALAR ? config_path(c, group, key->scalar) : NULL;
  if (key->kind != BRIM_YAML_SCALAR)
    brim_problem_at(&c->problems, &key->origin, "'%s' must be the name of a key", BRIM_FAMILY_KEY);
  brim_yaml_remove(content, BRIM_FAMILY_KEY);
  family f = {.c = c, .config = path ? brim_compose_source(c, path) : NULL, .content = content};
  if (!f.config || !find_family(&f, path) || !go_inside(&f, path)) return false;
  const brim_yaml *values = brim_yaml_get(f.part[1], "model");
  for (size_t i = 0; values && i < values->count; i++)
    if (!brim_yaml_get(content, values->key[i]))
      brim_yaml_set(c->arena, content, values->key[i], brim_yaml_clone(c->arena, values->item[i]));
  check_keys(&f, f.config, "");
  check_required(&f, path);
  for (int i = 0; i < 2 && c->problems.count == problems; i++) take(&f, f.part[i]);
  return c->problems.count == problems;
}
