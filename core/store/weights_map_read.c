/* Reads name maps and finds their files. See weights_map.h. */
#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "param/problems.h"
#include "store/weights_map.h"

#define FOLDER "weights"
#define SUFFIX ".yaml"
#define PATTERN_BYTES_MAX 200

/* ---- one map ---- */

typedef struct reader {
  brim_arena *arena;
  brim_problems problems;
} reader;

static void check_keys(reader *r, const brim_yaml *map, const char *const *known)
{
  for (size_t i = 0; i < map->count; i++) {
    const char *best = NULL;
    int distance = INT_MAX;
    size_t k = 0;
    while (known[k] && strcmp(known[k], map->key[i]) != 0) brim_suggest(map->key[i], known[k++], &distance, &best);
    if (known[k]) continue;
    const brim_yaml_origin origin = brim_yaml_key_origin(map->item[i]);
    brim_problem_at(&r->problems, &origin, "unknown key '%s' in a map of weights", map->key[i]);
    if (best) brim_problem_hint(&r->problems, "did you mean '%s'?", best);
  }
}

/* Returns the text of a key; NULL if it is missing, or, with a problem added, if it is not a text. */
static const char *text_of(reader *r, const brim_yaml *map, const char *key)
{
  const brim_yaml *node = brim_yaml_get(map, key);
  if (!node) return NULL;
  if (node->kind == BRIM_YAML_SCALAR && node->scalar[0] && !brim_yaml_is_null(node)) return node->scalar;
  brim_problem_at(&r->problems, &node->origin, "'%s' must be a string", key);
  return NULL;
}

static bool flag_of(reader *r, const brim_yaml *map, const char *key)
{
  const brim_yaml *node = brim_yaml_get(map, key);
  if (!node) return false;
  const bool yes = node->kind == BRIM_YAML_SCALAR && !node->quoted && strcmp(node->scalar, "true") == 0;
  const bool no = node->kind == BRIM_YAML_SCALAR && !node->quoted && strcmp(node->scalar, "false") == 0;
  if (!yes && !no) brim_problem_at(&r->problems, &node->origin, "'%s' must be true or false", key);
  return yes;
}

static double number_of(reader *r, const brim_yaml *map, const char *key)
{
  const brim_yaml *node = brim_yaml_get(map, key);
  char *end;
  if (!node) return 0;
  const double value = node->kind == BRIM_YAML_SCALAR ? strtod(node->scalar, &end) : 0;
  if (node->kind == BRIM_YAML_SCALAR && node->scalar[0] && !*end && isfinite(value)) return value;
  brim_problem_at(&r->problems, &node->origin, "'%s' must be a number", key);
  return 0;
}

/* Writes the wildcards of a pattern, one after another: "*" or "**", each followed by a space. */
static void list_wildcards(const char *pattern, brim_text *out)
{
  while (*(pattern += strcspn(pattern, "*"))) {
    const size_t length = strspn(pattern, "*");
    brim_text_add_n(out, pattern, length);
    brim_text_add(out, " ");
    pattern += length;
  }
}

static bool check_pattern(reader *r, const brim_yaml *at, const char *pattern)
{
  size_t wildcards = 0;
  bool adjacent = false;
  for (const char *s = pattern; *(s += strcspn(s, "*")); wildcards++) {
    const size_t length = strspn(s, "*");
    adjacent = adjacent || length > 2;
    s += length;
  }
  if (strlen(pattern) > PATTERN_BYTES_MAX)
    brim_problem_at(&r->problems, &at->origin, "a pattern has at most %d characters", PATTERN_BYTES_MAX);
  else if (adjacent)
    brim_problem_at(&r->problems, &at->origin, "adjacent wildcards in '%s': write * or **", pattern);
  else if (wildcards > BRIM_WEIGHTS_WILDCARDS_MAX)
    brim_problem_at(&r->problems, &at->origin, "'%s' has more than %d wildcards", pattern, BRIM_WEIGHTS_WILDCARDS_MAX);
  else
    return true;
  return false;
}

/* Checks that the pattern on the other side has the same wildcards in the same order. */
static void check_partner(reader *r, const brim_yaml *map, const char *key, const char *from, const char *partner)
{
  brim_text a = {0}, b = {0};
  const brim_yaml *at = brim_yaml_get(map, key);
  if (!from || !partner || !check_pattern(r, at, partner)) return;
  list_wildcards(from, &a);
  list_wildcards(partner, &b);
  if (strcmp(brim_text_str(&a), brim_text_str(&b)) != 0)
    brim_problem_at(&r->problems, &at->origin, "'%s' must have the wildcards of '%s', in the same order", partner,
                    from);
  brim_text_release(&a);
  brim_text_release(&b);
}

static void read_rule(reader *r, const brim_yaml *node, brim_weights_rule *out)
{
  static const char *const keys[] = {"from", "to", "same_as", "drop", "transpose", "optional", "heads", "add", NULL};
  if (node->kind != BRIM_YAML_MAP) {
    brim_problem_at(&r->problems, &node->origin, "a rule must be a map: {from: PATTERN, to: PATTERN}");
    return;
  }
  check_keys(r, node, keys);
  *out = (brim_weights_rule){text_of(r, node, "from"),  text_of(r, node, "to"),        text_of(r, node, "same_as"),
                             flag_of(r, node, "drop"),  flag_of(r, node, "transpose"), flag_of(r, node, "optional"),
                             text_of(r, node, "heads"), number_of(r, node, "add")};
  if (!out->from && !brim_yaml_get(node, "from"))
    brim_problem_at(&r->problems, &node->origin, "the rule has no 'from'");
  if (out->from) check_pattern(r, brim_yaml_get(node, "from"), out->from);
  if ((out->to != NULL) + (out->same_as != NULL) + out->drop != 1)
    brim_problem_at(&r->problems, &node->origin, "a rule needs exactly one of 'to', 'same_as' and 'drop: true'");
  if (!out->to && (out->transpose || out->optional || out->heads || out->add != 0))
    brim_problem_at(&r->problems, &node->origin, "'transpose', 'optional', 'heads' and 'add' require 'to'");
  if (out->transpose && (out->heads || out->add != 0))
    brim_problem_at(&r->problems, &node->origin, "'transpose' excludes 'heads' and 'add'");
  check_partner(r, node, "to", out->from, out->to);
  check_partner(r, node, "same_as", out->from, out->same_as);
}

/* Reads a list of patterns: recognise, gguf. */
static void read_patterns(reader *r, const brim_yaml *map, const char *key, const char ***out, size_t *count)
{
  const brim_yaml *node = brim_yaml_get(map, key);
  if (!node) return;
  if (node->kind != BRIM_YAML_LIST) {
    brim_problem_at(&r->problems, &node->origin, "'%s' must be a list of patterns", key);
    return;
  }
  *out = BRIM_ARENA_NEW(r->arena, const char *, node->count + 1);
  for (size_t i = 0; i < node->count; i++) {
    const brim_yaml *item = node->item[i];
    if (item->kind != BRIM_YAML_SCALAR)
      brim_problem_at(&r->problems, &item->origin, "a pattern must be a string");
    else if (check_pattern(r, item, item->scalar))
      (*out)[(*count)++] = item->scalar;
  }
}

static void read_rules(reader *r, const brim_yaml *node, brim_weights_map *out)
{
  if (node->kind != BRIM_YAML_LIST) {
    brim_problem_at(&r->problems, &node->origin, "'rules' must be a list");
    return;
  }
  if (node->count > BRIM_WEIGHTS_RULES_MAX) {
    brim_problem_at(&r->problems, &node->origin, "a map has at most %d rules", BRIM_WEIGHTS_RULES_MAX);
    return;
  }
  brim_weights_rule *rule = BRIM_ARENA_NEW(r->arena, brim_weights_rule, node->count + 1);
  for (size_t i = 0; i < node->count; i++) read_rule(r, node->item[i], &rule[i]);
  out->rule = rule;
  out->rule_count = node->count;
}

static void read_config(reader *r, const brim_yaml *node, brim_weights_map *out)
{
  bool flat = node->kind == BRIM_YAML_MAP;
  for (size_t i = 0; flat && i < node->count; i++) {
    const brim_yaml *value = node->item[i];
    flat = value->kind != BRIM_YAML_MAP;
    for (size_t k = 0; flat && value->kind == BRIM_YAML_LIST && k < value->count; k++)
      flat = value->item[k]->kind == BRIM_YAML_SCALAR;
  }
  if (flat)
    out->config = node;
  else
    brim_problem_at(&r->problems, &node->origin, "'config' must be a map of values, and of lists of values");
}

static void read_map(reader *r, const brim_yaml *root, brim_weights_map *out)
{
  static const char *const keys[] = {"about", "layout", "recognise", "gguf", "config", "rules", NULL};
  if (root->kind != BRIM_YAML_MAP) {
    brim_problem_at(&r->problems, &root->origin,
                    "a map of weights has the keys about, layout, recognise, config and rules");
    return;
  }
  check_keys(r, root, keys);
  out->about = text_of(r, root, "about");
  out->layout = text_of(r, root, "layout");
  const brim_yaml *rules = brim_yaml_get(root, "rules");
  const brim_yaml *config = brim_yaml_get(root, "config");
  if (config) read_config(r, config, out);
  read_patterns(r, root, "recognise", &out->recognise, &out->recognise_count);
  read_patterns(r, root, "gguf", &out->gguf, &out->gguf_count);
  if (rules)
    read_rules(r, rules, out);
  else
    brim_problem_at(&r->problems, &root->origin, "the map has no 'rules'; if it needs none, write rules: []");
}

static brim_status finish_map(brim_arena *arena, const brim_yaml *root, const char *name, brim_weights_map *out)
{
  reader r = {.arena = arena, .problems = {.arena = arena}};
  *out = (brim_weights_map){.name = brim_arena_string(arena, name)};
  read_map(&r, root, out);
  if (!out->about) out->about = "";
  return brim_problems_status(&r.problems);
}

brim_status brim_weights_map_parse(brim_arena *arena, const char *text, size_t bytes, const char *file,
                                   const char *name, brim_weights_map *out)
{
  brim_yaml *root = NULL;
  BRIM_TRY(brim_yaml_parse(arena, text, bytes, file, &root));
  return finish_map(arena, root, name, out);
}

/* ---- finding maps ---- */

/* Lists the names of maps, sorted; a name that several folders have is listed several times. */
static size_t list_names(brim_arena *arena, const brim_weights_search *search, const char ***out)
{
  brim_yaml *found = brim_yaml_list(arena, (brim_yaml_origin){0});
  for (size_t i = 0; i < search->count; i++) {
    DIR *dir = opendir(brim_arena_printf(arena, "%s/" FOLDER, search->folder[i]));
    for (const struct dirent *entry; dir && (entry = readdir(dir));) {
      const size_t length = strlen(entry->d_name);
      if (entry->d_name[0] == '.' || length <= strlen(SUFFIX) || !brim_ends_with(entry->d_name, SUFFIX)) continue;
      const char *name = brim_arena_string_n(arena, entry->d_name, length - strlen(SUFFIX));
      brim_yaml_append(arena, found, brim_yaml_scalar(arena, name, (brim_yaml_origin){0}));
    }
    if (dir) closedir(dir);
  }
  *out = BRIM_ARENA_NEW(arena, const char *, found->count + 1);
  for (size_t i = 0; i < found->count; i++) (*out)[i] = found->item[i]->scalar;
  if (found->count > 1) qsort(*out, found->count, sizeof **out, brim_compare_strings);
  return found->count;
}

/* Returns the path of the map's file; NULL if no folder has it. */
static const char *file_of(brim_arena *arena, const brim_weights_search *search, const char *name)
{
  for (size_t i = 0; i < search->count && !strchr(name, '/'); i++) {
    const char *path = brim_arena_printf(arena, "%s/" FOLDER "/%s" SUFFIX, search->folder[i], name);
    if (access(path, F_OK) == 0) return path;
  }
  return NULL;
}

brim_status brim_weights_map_read(brim_arena *arena, const brim_weights_search *search, const char *name,
                                  brim_weights_map *out)
{
  const char *path = brim_ends_with(name, SUFFIX) ? name : file_of(arena, search, name);
  if (path) {
    brim_yaml *root = NULL;
    BRIM_TRY(brim_yaml_parse_file(arena, path, &root));
    return finish_map(arena, root, name, out);
  }
  const char **known;
  const size_t count = list_names(arena, search, &known);
  brim_text text = {0};
  for (size_t i = 0; i < count; i++)
    if (i == 0 || strcmp(known[i - 1], known[i]) != 0) brim_text_printf(&text, " %s", known[i]);
  const brim_status status =
      brim_fail(BRIM_ECONFIG, "no map of weights '%s'\navailable:%s; or the path of a file that ends in " SUFFIX, name,
                brim_text_str(&text));
  brim_text_release(&text);
  return status;
}

brim_status brim_weights_maps_read(brim_arena *arena, const brim_weights_search *search, brim_weights_map **out,
                                   size_t *count)
{
  const char **name;
  const size_t names = list_names(arena, search, &name);
  *out = BRIM_ARENA_NEW(arena, brim_weights_map, names + 1);
  *count = 0;
  for (size_t i = 0; i < names; i++) {
    if (i > 0 && strcmp(name[i - 1], name[i]) == 0) continue;
    BRIM_TRY(brim_weights_map_read(arena, search, name[i], &(*out)[*count]));
    (*count)++;
  }
  return BRIM_OK;
}
