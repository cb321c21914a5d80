/* Collects the rows of all tables, and suggests keys for unknown ones. */
#include "config/schema.h"

#include <limits.h>
#include <string.h>

#include "base/text.h"

static void add_row(brim_schema *schema, brim_arena *arena, const char *section, brim_schema_row row)
{
  BRIM_ARENA_GROW(arena, schema->row, schema->count, schema->room);
  row.path = section[0] ? brim_arena_printf(arena, "%s.%s", section, row.row->key) : row.row->key;
  row.hash = brim_hash(BRIM_HASH_START, row.path, strlen(row.path));
  schema->row[schema->count++] = row;
}

static void add_section(brim_schema *schema, brim_arena *arena, const brim_section *section)
{
  for (const brim_setting *p = section->table; p->param.key; p++)
    add_row(schema, arena, section->path, (brim_schema_row){.row = &p->param, .section = section, .edit = p->edit});
}

/* Returns whether a key of a backend or dataset may be edited when a run is resumed; plugins' tables do not say
 * that. */
static enum brim_edit edit_of(const char *section, const char *key)
{
  static const char *const free_keys[][2] = {{"dataset", "path"},
                                             {"backend", "devices"},
                                             {"backend", "threads"},
                                             {"backend", "debug_launches"},
                                             {"backend", "memory_mb"}};
  for (size_t i = 0; i < sizeof free_keys / sizeof free_keys[0]; i++)
    if (strcmp(free_keys[i][0], section) == 0 && strcmp(free_keys[i][1], key) == 0) return BRIM_EDIT_FREE;
  return BRIM_EDIT_REFUSED;
}

const brim_schema_row *brim_schema_find(const brim_schema *schema, const char *path)
{
  const uint64_t hash = brim_hash(BRIM_HASH_START, path, strlen(path));
  for (size_t i = 0; i < schema->count; i++)
    if (schema->row[i].hash == hash && strcmp(schema->row[i].path, path) == 0) return &schema->row[i];
  return NULL;
}

bool brim_schema_holds_path(const brim_schema_row *row, const brim_yaml *node)
{
  if (!node || node->kind != BRIM_YAML_SCALAR) return false;
  return row->row->type == BRIM_PATH ||
         (strcmp(row->path, "model.weights_map") == 0 && brim_ends_with(node->scalar, ".yaml"));
}

static void add_plugin(brim_schema *schema, brim_arena *arena, const char *section, const brim_plugin *plugin)
{
  for (const brim_param *p = plugin ? plugin->params : NULL; p && p->key; p++)
    add_row(schema, arena, section, (brim_schema_row){.row = p, .plugin = plugin, .edit = edit_of(section, p->key)});
}

void brim_schema_build(brim_schema *schema, brim_arena *arena, const brim_schema_plugins *plugins)
{
  const brim_section *s;
  for (s = brim_settings_sections; s->path; s++)
    if (s->path[0] == '\0') add_section(schema, arena, s);
  for (int g = 0; brim_config_groups[g].name; g++) {
    const char *name = brim_config_groups[g].name;
    add_plugin(schema, arena, name, plugins->group[g]);
    for (size_t i = 0; brim_config_groups[g].list && i < plugins->listed_count; i++)
      if (plugins->listed[i]->kind == brim_config_groups[g].kind)
        add_plugin(schema, arena, brim_arena_printf(arena, "%s.%s", name, plugins->listed[i]->id), plugins->listed[i]);
    for (s = brim_settings_sections; s->path; s++)
      if (strcmp(s->path, name) == 0) add_section(schema, arena, s);
  }
  for (s = brim_settings_sections; s->path; s++)
    if (s->path[0] && !brim_group_find(s->path, strlen(s->path))) add_section(schema, arena, s);
}

brim_schema_plugins brim_schema_plugins_of(const brim_config *config)
{
  brim_schema_plugins out = {0};
  for (size_t i = 0; i < config->choice_count; i++) {
    const brim_plugin *plugin = config->choice[i].plugin;
    if (plugin && (plugin->kind == BRIM_POLICY || plugin->kind == BRIM_AUGMENT))
      out.listed[out.listed_count++] = plugin;
    const brim_group *group = brim_group_find(config->choice[i].group, strlen(config->choice[i].group));
    if (group) out.group[group - brim_config_groups] = plugin;
  }
  return out;
}

bool brim_schema_is_section(const brim_schema *schema, const char *path)
{
  const size_t length = strlen(path);
  if (brim_group_find(path, length)) return true;
  for (size_t i = 0; i < schema->count; i++)
    if (strncmp(schema->row[i].path, path, length) == 0 && schema->row[i].path[length] == '.') return true;
  return false;
}

/* ---- lists of groups, options and keys ---- */

static bool is_listed(const char *const *name, size_t count, const char *key)
{
  for (size_t i = 0; i < count; i++)
    if (strcmp(name[i], key) == 0) return true;
  return false;
}

/* Returns the length of the longest section that contains the path: "policy.robust" of "policy.robust.allow". */
static size_t section_length(const brim_schema *schema, const char *path, brim_arena *arena)
{
  size_t best = 0;
  for (size_t i = 0; path[i]; i++)
    if (path[i] == '.' && brim_schema_is_section(schema, brim_arena_string_n(arena, path, i))) best = i;
  return best;
}

void brim_schema_hint_keys(const brim_schema *schema, const char *path, brim_problems *problems)
{
  brim_arena *arena = problems->arena;
  const size_t length = section_length(schema, path, arena);
  const char **name = BRIM_ARENA_NEW(arena, const char *, schema->count + BRIM_GROUPS_MAX), *plugin = NULL;
  size_t count = 0;
  for (size_t i = 0; i < schema->count; i++) {
    const brim_schema_row *row = &schema->row[i];
    if (strncmp(row->path, path, length) != 0 || (length && row->path[length] != '.')) continue;
    const char *key = row->path + length + (length > 0);
    if (length == 0) key = brim_arena_string_n(arena, key, strcspn(key, "."));
    if (row->plugin && length) plugin = row->plugin->id;
    if (!is_listed(name, count, key)) name[count++] = key;
  }
  if (count == 0) return;
  for (const brim_group *g = brim_config_groups; length == 0 && g->name; g++)
    if (!is_listed(name, count, g->name)) name[count++] = g->name;
  const int group = (int)strcspn(path, ".");
  brim_problem_hint_names(problems,
                          length == 0 ? "top-level keys:"
                          : plugin    ? brim_arena_printf(arena, "%.*s '%s' has:", group, path, plugin)
                                      : brim_arena_printf(arena, "%.*s has:", (int)length, path),
                          name, count, NULL);
}

/* ---- did you mean ---- */

/* Whether `shorter` consists of the first letters of the words in `name` ("lr" of "learning_rate"). */
static bool are_initials(const char *shorter, const char *name)
{
  bool start = true;
  if (!strchr(name, '_')) return false;
  for (; *name; name++) {
    if (start && *shorter++ != *name) return false;
    start = *name == '_';
  }
  return *shorter == '\0';
}

/* Returns the distance of a known key from the written one: 0 is closest; INT_MAX: not related. */
static int distance(const char *written, const char *known)
{
  const char *a = brim_yaml_leaf(written), *b = brim_yaml_leaf(known);
  const size_t n = (size_t)(a - written), m = (size_t)(b - known);
  const bool siblings = n == m && strncmp(written, known, n) == 0;
  const size_t length = strlen(a);
  const int near = brim_typo_distance(a, b);
  if (near != INT_MAX && (siblings || near == 0 || a == written)) return siblings ? near : near + 3;
  if (are_initials(a, b) || are_initials(b, a)) return siblings ? 2 : 5;
  if (siblings && length >= 3 && strlen(b) >= 3 && (brim_starts_with(a, b) || brim_starts_with(b, a))) return 4;
  if (siblings && length < 4) return INT_MAX; /* too short for that many typing errors */
  const int whole = brim_edit_distance(written, known);
  return whole <= 1 + (int)strlen(written) / 6 ? whole + 1 : INT_MAX;
}

static void take_nearer(const char *path, const char *name, int *least, const char **best)
{
  const int d = brim_typo_distance(path, name);
  if (d >= *least) return;
  *least = d;
  *best = name;
}

const char *brim_schema_suggest(const brim_schema *schema, const char *path)
{
  const char *best = NULL;
  int least = INT_MAX;
  for (size_t i = 0; i < schema->count; i++) {
    const int d = distance(path, schema->row[i].path);
    if (d >= least) continue;
    least = d;
    best = schema->row[i].path;
  }
  if (strchr(path, '.')) return best;
  for (const brim_group *g = brim_config_groups; g->name; g++) take_nearer(path, g->name, &least, &best);
  for (const brim_section *s = brim_settings_sections; s->path; s++) take_nearer(path, s->path, &least, &best);
  return best;
}
