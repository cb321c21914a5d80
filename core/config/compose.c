/* Walks defaults lists and merges files. Repeats the walk until it ends with the choices with which it started, because
 * an option chosen late in the order replaces an earlier one and has its own defaults list. */
#include "config/compose.h"

#include <string.h>

#include "base/file.h"
#include "base/install.h"
#include "config/alias.h"
#include "config/family.h"
#include "config/interpolate.h"

#define WALKS_MAX 16

static void merge_file(brim_composition *c, brim_yaml *node, const char *path, const char *group, brim_yaml *into);

/* ---- choices ---- */

static brim_chosen *add_chosen(brim_composition *c, const char *group)
{
  brim_chosen *chosen = BRIM_ARENA_NEW(c->arena, brim_chosen, 1);
  chosen->group = brim_arena_string(c->arena, group);
  BRIM_ARENA_GROW(c->arena, c->chosen, c->chosen_count, c->chosen_room);
  c->chosen[c->chosen_count++] = chosen;
  return chosen;
}

void brim_compose_choose(brim_composition *c, const brim_override *override)
{
  brim_chosen *chosen = brim_compose_chosen(c, override->key);
  if (!chosen) chosen = add_chosen(c, override->key);
  if (override->append) {
    const char *names = brim_compose_option_text(c, override->key, override->value);
    const bool both = chosen->appended && chosen->appended[0] && names[0];
    if (both) names = brim_arena_printf(c->arena, "%s,%s", chosen->appended, names);
    if (both || names[0] || !chosen->appended) chosen->appended = names;
    chosen->appended_origin = override->origin;
    return;
  }
  const bool none = override->mode == BRIM_OVERRIDE_REMOVE || brim_yaml_is_null(override->value);
  chosen->option = none ? NULL : brim_compose_option_text(c, override->key, override->value);
  chosen->origin = override->origin;
  chosen->forced = override;
  chosen->appended = NULL;
}

/* ---- merging ---- */

static const char *kind_name(const brim_yaml *node)
{
  return node->kind == BRIM_YAML_MAP ? "map" : node->kind == BRIM_YAML_LIST ? "list" : "scalar";
}

/* Merges `from` into `into`: maps key by key; other values are replaced. Children are copied. `top`: the keys are at
 * the root. */
static void merge_map(brim_composition *c, brim_yaml *into, const brim_yaml *from, const char *path, bool top)
{
  for (size_t i = 0; i < from->count; i++) {
    const char *key = from->key[i];
    const brim_yaml *child = from->item[i];
    const char *full = path[0] ? brim_arena_printf(c->arena, "%s.%s", path, key) : key;
    brim_yaml *old = brim_yaml_get(into, key);
    const brim_yaml_origin at = brim_yaml_key_origin(child);
    if (strchr(key, '.')) {
      brim_problem_at(&c->problems, &at, "the key '%s' has a dot: in a file, write one key below the other", full);
    } else if (child->kind == BRIM_YAML_MAP && (!old || old->kind == BRIM_YAML_MAP || brim_yaml_is_null(old))) {
      if (!old || old->kind != BRIM_YAML_MAP) {
        old = brim_yaml_map(c->arena, child->origin);
        old->key_line = child->key_line;
        old->key_column = child->key_column;
        brim_yaml_set(c->arena, into, key, old);
      }
      merge_map(c, old, child, full, false);
    } else if (top && child->kind != BRIM_YAML_MAP && !brim_yaml_is_null(child) && brim_compose_is_group(c, key)) {
      brim_problem_at(&c->problems, &child->origin, "'%s' is a group: a %s cannot replace it", key, kind_name(child));
      brim_problem_hint(&c->problems, "choose an option in the defaults list: - %s: OPTION", key);
    } else if (old && old->kind == BRIM_YAML_MAP && !brim_yaml_is_null(child)) {
      brim_problem_at(&c->problems, &child->origin, "'%s' is a map: a %s cannot replace it", full, kind_name(child));
    } else if (old && child->kind == BRIM_YAML_MAP) {
      brim_problem_at(&c->problems, &at, "'%s' is a value: a map cannot replace it", full);
    } else if (!old || old->kind != BRIM_YAML_MAP) {
      brim_yaml_set(c->arena, into, key, brim_yaml_clone(c->arena, child));
    }
  }
}

/* The same for keys of the root, whose old names are replaced. */
static void merge_root(brim_composition *c, const brim_yaml *from)
{
  brim_yaml *now = brim_yaml_clone(c->arena, from);
  brim_alias_rewrite(c->arena, now, &c->problems, &c->notes);
  merge_map(c, c->root, now, "", true);
}

/* ---- options ---- */

/* Whether a key of a group stays when another option is chosen. Keys that the core reads and keys that the user added
 * stay, except a dataset's means and deviations, which belong to its samples. */
static bool outlasts_option(const char *group, const char *key)
{
  if (key[0] == '+' || !brim_compose_group_kind(group)) return true;
  if (strcmp(group, "dataset") == 0 && (strcmp(key, "mean") == 0 || strcmp(key, "std") == 0)) return false;
  return brim_setting_find(group, key, strlen(key)) != NULL;
}

/* Removes the keys of an old option from its group, except those that outlast it. */
static void keep_core_keys(brim_yaml *node, const char *group)
{
  for (size_t i = node->count; i-- > 0;)
    if (!outlasts_option(group, node->key[i])) brim_yaml_remove(node, node->key[i]);
}

/* ---- values that belong to an option ---- */

static const char *without_suffix(const brim_composition *c, const char *option)
{
  const size_t length = strlen(option), suffix = strlen(".yaml");
  return brim_ends_with(option, ".yaml") ? brim_arena_string_n(c->arena, option, length - suffix) : option;
}

/* Whether `said`, a name in a file, is the chosen option. */
static bool is_chosen(brim_composition *c, const brim_chosen *chosen, const char *said)
{
  const char *is = chosen->resolved ? chosen->resolved : chosen->option;
  if (strcmp(said, chosen->option) == 0) return true;
  if (strstr(said, "${")) {
    const brim_problems before = c->problems; /* a name that cannot be resolved does not matter here */
    const char *now = brim_interpolate_option(c, said, chosen->met_origin);
    c->problems = before;
    if (now) said = now;
  }
  return strcmp(without_suffix(c, said), without_suffix(c, is)) == 0;
}

/* The plugin that a group's map names; NULL: none. */
static const char *own_id(const brim_yaml *map)
{
  const brim_yaml *id = brim_yaml_get(map, "id");
  return id && id->kind == BRIM_YAML_SCALAR && !brim_yaml_is_null(id) ? id->scalar : NULL;
}

static bool is_installed(const char *path)
{
  char folder[BRIM_PATH_MAX];
  return brim_install_dir(folder, sizeof folder, BRIM_INSTALL_CONFIGS) && brim_starts_with(path, folder);
}

/* Whether a left-out value needs a message: defaults in brim's own configuration files do not, nor does a choice that
 * brim makes itself, such as the backend of `brim export`. */
static void note_left_out(brim_composition *c, const brim_chosen *chosen, const char *said, const char *key,
                          const brim_yaml *value)
{
  if (is_installed(value->origin.file) || (chosen->forced && chosen->forced->origin.line == 0)) return;
  BRIM_ARENA_GROW(c->arena, c->left_out, c->left_out_count, c->left_out_room);
  c->left_out[c->left_out_count++] =
      (brim_left_out){brim_arena_printf(c->arena, "%s.%s", chosen->group, key),
                      brim_arena_printf(c->arena, "'%s.%s' of %s has no effect: it belongs to %s=%s", chosen->group,
                                        key, value->origin.file, chosen->group, said)};
}

void brim_compose_note_left_out(brim_composition *c)
{
  for (size_t i = 0; i < c->left_out_count; i++)
    if (!brim_yaml_get_path(c->root, c->left_out[i].path)) brim_problem(&c->notes, BRIM_OK, "%s", c->left_out[i].note);
}

/* Removes keys that `content` sets too. */
static void remove_said(brim_yaml *map, const brim_yaml *content)
{
  for (size_t i = map->count; i-- > 0;) {
    const brim_yaml *other = brim_yaml_get(content, map->key[i]);
    if (other && other->kind == BRIM_YAML_MAP && map->item[i]->kind == BRIM_YAML_MAP)
      remove_said(map->item[i], other);
    else if (other)
      brim_yaml_remove(map, map->key[i]);
  }
}

/* Whether the chosen plugin has a parameter of that name. */
static bool has_parameter(const brim_composition *c, const brim_chosen *chosen, const char *key)
{
  const char *id = chosen->content ? own_id(chosen->content) : NULL;
  const uint32_t kind = brim_compose_group_kind(chosen->group);
  const brim_registry_entry *entry = id ? brim_registry_find(c->registry, kind, id) : NULL;
  for (const brim_param *row = entry ? entry->plugin->params : NULL; row && row->key; row++)
    if (strcmp(row->key, key) == 0) return true;
  return false;
}

/* If another option than `said` is chosen for a group, removes the values that belong to `said` from a file's `map`.
 * Values for backend=auto apply to any backend that has the key. */
static void leave_to_choice(brim_composition *c, const brim_chosen *chosen, const char *said, brim_yaml *map)
{
  const bool any = brim_compose_group_kind(chosen->group) == BRIM_BACKEND && strcmp(said, "auto") == 0;
  for (size_t i = map->count; i-- > 0;) {
    const char *key = map->key[i];
    if (outlasts_option(chosen->group, key) || (any && has_parameter(c, chosen, key))) continue;
    note_left_out(c, chosen, said, key, map->item[i]);
    brim_yaml_remove(map, key);
  }
  if (chosen->content) remove_said(map, chosen->content);
}

/* Removes a file's values for options that were not chosen. They belong to the option that the defaults lists have
 * named last. */
static void leave_to_choices(brim_composition *c, brim_yaml *body)
{
  for (size_t i = 0; i < body->count; i++) {
    const brim_chosen *chosen = brim_compose_chosen(c, body->key[i]);
    brim_yaml *map = body->item[i];
    if (!chosen || !chosen->option || map->kind != BRIM_YAML_MAP || brim_compose_is_list(chosen->group)) continue;
    const char *said = own_id(map);
    if (!said) said = chosen->met;
    if (said && said[0] && !is_chosen(c, chosen, said)) leave_to_choice(c, chosen, said, map);
  }
}

/* Fills `content` with an option: its file, or the plugin with its defaults. False, with a problem added, if there is
 * no such option, or it cannot be read. `included`: another option of the group includes this one, and may set the
 * id. */
static bool read_option(brim_composition *c, const char *group, const char *option, brim_yaml_origin origin,
                        bool included, brim_yaml *content)
{
  const size_t problems = c->problems.count;
  const uint32_t kind = brim_compose_group_kind(group);
  const char *path = brim_compose_option_file(c, group, option);
  if (!path && kind == BRIM_BACKEND && strcmp(option, "auto") == 0) {
    option = brim_compose_auto_backend(c);
    path = brim_compose_option_file(c, group, option);
  }
  if (path) {
    brim_yaml *node = brim_compose_source(c, path);
    if (!node) return false;
    merge_file(c, node, path, group, content);
    if (!brim_family_read(c, group, content)) return false;
    if (!kind || brim_yaml_get(content, "id")) return true;
  }
  if (kind && brim_registry_find(c->registry, kind, option)) {
    brim_yaml *rest = brim_yaml_clone(c->arena, content);
    content->count = 0; /* the id comes first */
    brim_yaml_set(c->arena, content, "id", brim_yaml_scalar(c->arena, option, origin));
    for (size_t i = 0; i < rest->count; i++) brim_yaml_set(c->arena, content, rest->key[i], rest->item[i]);
    return true;
  }
  if (!path || brim_registry_failure_of(c->registry, kind, option)) {
    brim_compose_no_option(c, group, option, &origin);
    return false;
  }
  if (included) return true;
  if (c->problems.count == problems) /* otherwise a problem that was added already explains the failure */
    brim_problem(&c->problems, BRIM_ECONFIG, "%s does not name its plugin\n  write: id: PLUGIN", path);
  return false;
}

/* Replaces the interpolations in a choice; NULL, with a problem added, on failure. `before`: the result in the previous
 * walk. */
static const char *resolve(brim_composition *c, const char *text, brim_yaml_origin origin, const char **before)
{
  const char *now = brim_interpolate_option(c, text, origin);
  if (!now) return NULL;
  c->unsettled = c->unsettled || strcmp(now, *before ? *before : text) != 0;
  *before = now;
  return now;
}

/* Fills `content` with the chosen option. */
static bool read_chosen(brim_composition *c, brim_chosen *chosen, brim_yaml *content)
{
  const char *option = resolve(c, chosen->option, chosen->origin, &chosen->resolved);
  return option && read_option(c, chosen->group, option, chosen->origin, false, content);
}

/* Adds options to a list: their ids, and each option's values below its id. False if an option cannot be read. */
static bool add_options(brim_composition *c, const char *group, const char *names, brim_yaml_origin origin,
                        brim_yaml *content)
{
  brim_yaml *ids = brim_yaml_get(content, "id");
  for (const char *s = names; *s; s += strcspn(s, ","), s += *s == ',') {
    const char *name = brim_arena_string_n(c->arena, s, strcspn(s, ","));
    brim_yaml *one = brim_yaml_map(c->arena, origin);
    if (!read_option(c, group, name, origin, false, one)) return false;
    brim_yaml *id = brim_yaml_get(one, "id");
    brim_yaml_remove(one, "id");
    brim_yaml_append(c->arena, ids, id);
    if (one->count > 0 && id->kind == BRIM_YAML_SCALAR) brim_yaml_set(c->arena, content, id->scalar, one);
  }
  return true;
}

/* Adds the list for a group without a choice: the one that a file sets for the group, or else the group's default. */
static void add_unchosen(const brim_composition *c, const char *group, brim_yaml *ids)
{
  const brim_yaml *id = brim_yaml_get(brim_yaml_get(c->root, group), "id");
  const char *fallback = brim_compose_fallback(c, group);
  if (id && !brim_yaml_is_null(id)) {
    const bool one = id->kind != BRIM_YAML_LIST;
    for (size_t i = 0; i < (one ? 1 : id->count); i++)
      brim_yaml_append(c->arena, ids, brim_yaml_clone(c->arena, one ? id : id->item[i]));
  } else if (fallback) {
    brim_yaml_append(c->arena, ids, brim_yaml_scalar(c->arena, fallback, (brim_yaml_origin){.file = "default"}));
  }
}

/* Fills `content` with everything chosen for, and appended to, a group that is a list. */
static bool read_list(brim_composition *c, brim_chosen *chosen, brim_yaml *content)
{
  const brim_yaml_origin origin = chosen->option ? chosen->origin : chosen->appended_origin;
  brim_yaml *ids = brim_yaml_list(c->arena, origin);
  brim_yaml_set(c->arena, content, "id", ids);
  if (chosen->option) {
    const char *names = resolve(c, chosen->option, origin, &chosen->resolved);
    if (!names || !add_options(c, chosen->group, names, origin, content)) return false;
  } else {
    add_unchosen(c, chosen->group, ids);
  }
  if (!chosen->appended) return true;
  const char *names = resolve(c, chosen->appended, chosen->appended_origin, &chosen->appended_resolved);
  return names && add_options(c, chosen->group, names, chosen->appended_origin, content);
}

/* Stores the name under which a dataset was chosen, if it differs from the plugin's. */
static void set_option(const brim_composition *c, const brim_chosen *chosen, brim_yaml *content)
{
  const char *id = own_id(content), *option = without_suffix(c, chosen->resolved);
  brim_yaml_remove(content, "option");
  if (id && strcmp(id, option) != 0)
    brim_yaml_set(c->arena, content, "option", brim_yaml_scalar(c->arena, option, chosen->origin));
}

static bool place_content(brim_composition *c, brim_chosen *chosen, bool anew)
{
  const char *group = chosen->group;
  if (strcmp(group, "experiment") == 0) return read_chosen(c, chosen, c->root);
  brim_yaml *content = brim_yaml_map(c->arena, chosen->origin);
  const bool list = brim_compose_is_list(group);
  if (!(list ? read_list : read_chosen)(c, chosen, content)) return false;
  brim_yaml *node = brim_yaml_get(c->root, group);
  if (node && node->kind == BRIM_YAML_MAP && anew && !list) keep_core_keys(node, group);
  if (brim_compose_group_kind(group) == BRIM_DATASET) set_option(c, chosen, content);
  chosen->content = content;
  brim_yaml *wrapped = brim_yaml_map(c->arena, content->origin);
  brim_yaml_set(c->arena, wrapped, group, content);
  merge_root(c, wrapped);
  return true;
}

/* Merges the chosen option of a group into the tree. `anew`: the values that files have set for the group's plugin so
 * far belong to another option. */
static void place_option(brim_composition *c, brim_chosen *chosen, bool anew)
{
  chosen->placed = true;
  if (chosen->option || chosen->appended) chosen->broken = !place_content(c, chosen, anew);
}

/* ---- defaults lists ---- */

/* Merges an entry `group: option`; `override group: option`, which means the same; or `optional group: option`, which
 * is skipped if there is no such option. */
static void merge_choice(brim_composition *c, const char *group, const char *option, brim_yaml_origin origin)
{
  const bool optional = brim_starts_with(group, "optional ");
  if (optional) group += strlen("optional ");
  if (brim_starts_with(group, "override ")) group += strlen("override ");
  group += group[0] == '/';
  if (!brim_compose_is_group(c, group)) {
    brim_problem_at(&c->problems, &origin, "no group '%s'", group);
    brim_problem_hint(&c->problems, "a group is a folder on the search path, or one of: model dataset optimizer "
                                    "schedule loss backend comm augmentation policy");
    return;
  }
  brim_chosen *chosen = brim_compose_chosen(c, group);
  if (optional && !brim_compose_has_options(c, group, option)) return;
  if (!chosen) {
    chosen = add_chosen(c, group);
    chosen->option = option;
    chosen->origin = origin;
  }
  chosen->met = option ? option : "";
  chosen->met_origin = origin;
  if (!chosen->placed) place_option(c, chosen, option && chosen->option && !is_chosen(c, chosen, option));
}

static void merge_entry_file(brim_composition *c, const brim_yaml *entry, const char *group, brim_yaml *into)
{
  const char *name = entry->scalar, *slash = strchr(name, '/');
  if (!group && slash && brim_compose_is_group(c, brim_arena_string_n(c->arena, name, (size_t)(slash - name)))) {
    merge_choice(c, brim_arena_string_n(c->arena, name, (size_t)(slash - name)), slash + 1, entry->origin);
    return;
  }
  if (group) {
    read_option(c, group, name, entry->origin, true, into);
    return;
  }
  const char *path = brim_compose_option_file(c, "", name);
  if (!path) {
    brim_problem_at(&c->problems, &entry->origin, "no file '%s.yaml' on the search path", name);
    return;
  }
  brim_yaml *node = brim_compose_source(c, path);
  if (node) merge_file(c, node, path, NULL, into);
}

static void merge_body(brim_composition *c, const brim_yaml *node, const char *group, brim_yaml *into)
{
  brim_yaml *body = brim_yaml_clone(c->arena, node);
  brim_yaml_remove(body, "defaults");
  if (group && strcmp(group, "experiment") != 0) {
    merge_map(c, into, body, group, false);
  } else {
    leave_to_choices(c, body);
    merge_root(c, body);
  }
}

static const char *option_of_entry(const brim_composition *c, const brim_yaml *entry)
{
  const char *space = strrchr(entry->key[0], ' '), *group = space ? space + 1 : entry->key[0];
  return brim_compose_option_text(c, group[0] == '/' ? group + 1 : group, entry->item[0]);
}

static void merge_entry(brim_composition *c, const brim_yaml *node, const brim_yaml *entry, const char *group,
                        brim_yaml *into, bool *self)
{
  if (entry->kind == BRIM_YAML_SCALAR && strcmp(entry->scalar, "_self_") == 0) {
    if (*self) brim_problem_at(&c->problems, &entry->origin, "'_self_' appears twice in a defaults list");
    if (!*self) merge_body(c, node, group, into);
    *self = true;
  } else if (entry->kind == BRIM_YAML_SCALAR && !brim_yaml_is_null(entry)) {
    if (strstr(entry->scalar, "${"))
      brim_problem_at(&c->problems, &entry->origin,
                      "'%s': the name of a file must not contain an interpolation; the option of a group may",
                      entry->scalar);
    else
      merge_entry_file(c, entry, group, into);
  } else if (entry->kind == BRIM_YAML_MAP && entry->count == 1 && option_of_entry(c, entry)) {
    const brim_yaml *option = entry->item[0];
    const bool none = brim_yaml_is_null(option) || brim_yaml_is_missing(option);
    merge_choice(c, entry->key[0], none ? NULL : option_of_entry(c, entry), option->origin);
  } else {
    brim_problem_at(&c->problems, &entry->origin,
                    "an entry of a defaults list is 'group: option', '_self_', or the name of a file");
  }
}

static bool is_open(brim_composition *c, const char *path)
{
  brim_text circle = {0};
  bool found = false;
  for (size_t i = 0; i < c->open_count; i++) {
    found = found || strcmp(c->open[i], path) == 0;
    if (found) brim_text_printf(&circle, "%s -> ", c->open[i]);
  }
  if (found)
    brim_problem(&c->problems, BRIM_ECONFIG, "defaults lists form a cycle: %s%s", brim_text_str(&circle), path);
  else if (c->open_count == sizeof c->open / sizeof c->open[0])
    brim_problem(&c->problems, BRIM_ECONFIG, "defaults lists nest deeper than %zu files at %s", c->open_count, path);
  brim_text_release(&circle);
  return found || c->open_count == sizeof c->open / sizeof c->open[0];
}

/* Merges a file and its defaults list. `group`: the file is an option of this group, and `into` is the option's map
 * (the tree's root for an experiment). */
static void merge_file(brim_composition *c, brim_yaml *node, const char *path, const char *group, brim_yaml *into)
{
  if (is_open(c, path)) return;
  c->open[c->open_count++] = path;
  const brim_yaml *defaults = brim_yaml_get(node, "defaults");
  bool self = false;
  if (defaults && defaults->kind == BRIM_YAML_LIST) {
    for (size_t i = 0; i < defaults->count; i++) merge_entry(c, node, defaults->item[i], group, into, &self);
  } else if (defaults && !brim_yaml_is_null(defaults)) {
    brim_problem_at(&c->problems, &defaults->origin, "'defaults' must be a list");
  }
  if (!self) merge_body(c, node, group, into);
  c->open_count--;
}

/* ---- composition ---- */

/* Uses the choices of this walk for the next one. True if they differ. */
static bool take_choices(brim_composition *c)
{
  bool changed = false;
  for (size_t i = 0; i < c->chosen_count; i++) {
    brim_chosen *chosen = c->chosen[i];
    if (chosen->forced || !chosen->met) continue;
    changed = changed || strcmp(chosen->option ? chosen->option : "", chosen->met) != 0;
    chosen->option = chosen->met[0] ? chosen->met : NULL;
    chosen->origin = chosen->met_origin;
  }
  return changed;
}

/* Checks a choice of the command line that contradicts the defaults lists. */
static void check_forced(brim_composition *c, const brim_chosen *chosen, const brim_override *forced)
{
  const brim_yaml *node = brim_yaml_get(c->root, chosen->group);
  const bool there = (chosen->met && chosen->met[0]) || (!chosen->placed && brim_yaml_get(node, "id"));
  if (forced->mode == BRIM_OVERRIDE_ADD && there)
    brim_problem_at(&c->problems, &forced->origin, "'%s' is chosen already: to choose another, write %s=%s",
                    chosen->group, chosen->group, chosen->option ? chosen->option : "OPTION");
  else if (forced->mode == BRIM_OVERRIDE_REMOVE && !(chosen->met && chosen->met[0]))
    brim_problem_at(&c->problems, &forced->origin, "no defaults list names the group '%s'", chosen->group);
  else if (forced->mode == BRIM_OVERRIDE_REMOVE && forced->value &&
           strcmp(brim_compose_option_text(c, chosen->group, forced->value), chosen->met) != 0)
    brim_problem_at(&c->problems, &forced->origin, "the option of group '%s' is '%s', not '%s'", chosen->group,
                    chosen->met, brim_compose_option_text(c, chosen->group, forced->value));
}

/* Merges choices of the command line for groups that no defaults list names, and names that the command line appends to
 * others. */
static void place_rest(brim_composition *c)
{
  for (size_t i = 0; i < c->chosen_count; i++) {
    brim_chosen *chosen = c->chosen[i];
    if (chosen->forced) check_forced(c, chosen, chosen->forced);
    if ((chosen->forced || chosen->appended) && !chosen->placed) place_option(c, chosen, true);
  }
}

static bool walk(brim_composition *c, brim_yaml *node, const char *path)
{
  c->previous = c->root;
  c->root = brim_yaml_map(c->arena, node->origin);
  c->unsettled = false;
  c->left_out_count = 0;
  for (size_t i = 0; i < c->chosen_count; i++) {
    c->chosen[i]->placed = c->chosen[i]->broken = false;
    c->chosen[i]->met = NULL;
    c->chosen[i]->content = NULL;
  }
  merge_file(c, node, path, NULL, c->root);
  place_rest(c);
  return take_choices(c) || c->unsettled;
}

static const char *root_path(brim_composition *c)
{
  if (c->request->file) return c->request->file;
  const char *name = c->request->name ? c->request->name : "config";
  const char *path = brim_compose_option_file(c, "", name);
  if (path) return path;
  brim_problem(&c->problems, BRIM_ECONFIG, "no configuration '%s'", name);
  brim_compose_hint_available(c, ".", name);
  return NULL;
}

void brim_compose(brim_composition *c)
{
  const brim_problems before = c->problems, notes = c->notes;
  const char *path = root_path(c);
  brim_yaml *node = path ? brim_compose_source(c, path) : NULL;
  c->broken = !node;
  if (!node) {
    c->root = brim_yaml_map(c->arena, (brim_yaml_origin){0});
    return;
  }
  bool changed = true;
  for (int i = 0; changed && i < WALKS_MAX; i++) {
    c->problems = before; /* each walk reports its problems again, because choices may have replaced options */
    c->notes = notes;
    changed = walk(c, node, path);
  }
  if (changed)
    brim_problem(&c->problems, BRIM_ECONFIG,
                 "the defaults lists of %s and of the files that it includes keep changing each other's options", path);
}
