/* Applies overrides to the tree.
 *
 * Keys must be in the schema. A key that the user adds with '+' is stored with its '+' ("+note"), so that it differs
 * from a typing error even when the resolved configuration is read again. Keys below it are not checked. */
#include "config/apply.h"

#include <stdlib.h>
#include <string.h>

#include "config/alias.h"

typedef struct target {
  brim_composition *c;
  const brim_schema *schema;
  const brim_override *override;
} target;

static void apply_value(const target *t, const char *path, const brim_yaml *value);

bool brim_override_is_choice(const brim_composition *c, const brim_override *override)
{
  if (!brim_compose_is_group(c, override->key)) return false;
  if (override->append && !brim_compose_is_list(override->key)) return false;
  return !override->value || brim_compose_option_text(c, override->key, override->value);
}

/* ---- walking by path ---- */

/* Returns the child with that name, or the one that the user added under it with '+'. */
static brim_yaml *child_of(const brim_composition *c, const brim_yaml *node, const char *name)
{
  brim_yaml *child = brim_yaml_get(node, name);
  return child ? child : brim_yaml_get(node, brim_arena_printf(c->arena, "+%s", name));
}

/* Splits the first name off a path. */
static const char *next_name(const brim_composition *c, const char **path)
{
  const size_t length = strcspn(*path, ".");
  const char *name = brim_arena_string_n(c->arena, *path, length);
  *path += length + ((*path)[length] == '.');
  return name;
}

static brim_yaml *find_node(const brim_composition *c, const char *path)
{
  brim_yaml *node = c->root;
  while (node && *path) node = child_of(c, node, next_name(c, &path));
  return node;
}

/* Sets the value of `key` in a map. Maps are merged; a scalar cannot replace a map, nor a map a value. */
static void set_value(const target *t, brim_yaml *map, const char *key, const char *path, brim_yaml *value)
{
  brim_yaml *old = brim_yaml_get(map, key);
  const bool declared = brim_schema_find(t->schema, path) != NULL; /* then its type is checked */
  const bool kept = !declared && old && !brim_yaml_is_null(old) && !brim_yaml_is_missing(old);
  const bool was_map = old && old->kind == BRIM_YAML_MAP, is_map = value->kind == BRIM_YAML_MAP;
  if (was_map && is_map) {
    for (size_t i = 0; i < value->count; i++)
      set_value(t, old, value->key[i], brim_arena_printf(t->c->arena, "%s.%s", path, value->key[i]), value->item[i]);
  } else if (kept && was_map) {
    brim_problem_at(&t->c->problems, &t->override->origin, "'%s' is a map: a %s cannot replace it", path,
                    value->kind == BRIM_YAML_LIST ? "list" : "scalar");
    brim_problem_hint(&t->c->problems, "write %s.KEY=VALUE, or remove it first: ~%s", path, path);
  } else if (kept && is_map) {
    brim_problem_at(&t->c->problems, &t->override->origin, "'%s' is a value: a map cannot replace it", path);
    brim_problem_hint(&t->c->problems, "remove it first: ~%s", path);
  } else {
    brim_yaml_set(t->c->arena, map, key, value);
  }
}

/* Sets a value, and makes maps for the names before. If a name is neither in the tree nor in the schema, the user adds
 * it. */
static void store(const target *t, const char *path, brim_yaml *value)
{
  const brim_composition *c = t->c;
  brim_yaml *node = c->root;
  const char *rest = path, *full = "";
  bool free_below = false;
  for (;;) {
    const char *name = next_name(c, &rest);
    full = full[0] ? brim_arena_printf(c->arena, "%s.%s", full, name) : name;
    const char *added = brim_arena_printf(c->arena, "+%s", name);
    const bool known = free_below || brim_schema_find(t->schema, full) || brim_schema_is_section(t->schema, full);
    const char *key = known ? name : added;
    free_below = free_below || !known;
    if (*rest == '\0') {
      set_value(t, node, key, full, value);
      return;
    }
    brim_yaml *child = brim_yaml_get(node, key);
    if (child && free_below && child->kind != BRIM_YAML_MAP && !brim_yaml_is_null(child)) {
      brim_problem_at(&t->c->problems, &value->origin, "'%s' has a value already, and holds no keys", full);
      return;
    }
    if (!child || child->kind != BRIM_YAML_MAP) {
      child = brim_yaml_map(c->arena, value->origin);
      brim_yaml_set(c->arena, node, key, child);
    }
    node = child;
  }
}

static void discard(const brim_composition *c, const char *path)
{
  const char *dot = strrchr(path, '.');
  const char *name = brim_yaml_leaf(path);
  brim_yaml *parent = dot ? find_node(c, brim_arena_string_n(c->arena, path, (size_t)(dot - path))) : c->root;
  if (!parent || parent->kind != BRIM_YAML_MAP) return;
  if (!brim_yaml_remove(parent, name)) brim_yaml_remove(parent, brim_arena_printf(c->arena, "+%s", name));
}

/* ---- problems ---- */

/* Returns the length of "model" in "model.width"; for a group that is a list, of "policy.capped". */
static size_t plugin_length(const target *t, const char *path)
{
  const size_t length = strcspn(path, ".");
  const bool is_list = path[length] && brim_compose_is_list(brim_arena_string_n(t->c->arena, path, length));
  return is_list ? length + 1 + strcspn(path + length + 1, ".") : length;
}

/* Adds a hint for a key of a plugin that the list lacks, or that does not exist. */
static bool hint_unlisted(const target *t, const char *path)
{
  const size_t length = strcspn(path, "."), end = length + (path[length] == '.');
  const char *group = brim_arena_string_n(t->c->arena, path, length);
  const char *id = brim_arena_string_n(t->c->arena, path + end, strcspn(path + end, "."));
  if (!brim_compose_is_list(group)) return false;
  if (brim_schema_is_section(t->schema, brim_arena_string_n(t->c->arena, path, plugin_length(t, path)))) return false;
  if (brim_registry_find(t->c->registry, brim_compose_group_kind(group), id))
    brim_problem_hint(&t->c->problems, "'%s' is not in the list of '%s': add it with %s+=%s", id, group, group, id);
  else if (path[end + strlen(id)] == '.')
    brim_compose_hint_available(t->c, group, id);
  else
    return false;
  return true;
}

/* Adds a hint for a key that only another command uses. */
static bool hint_command(const target *t, const char *path)
{
  if (strcmp(path, "scenario") != 0) return false;
  brim_problem_hint(&t->c->problems, "to try policies in a scenario: brim simulate %s",
                    BRIM_QUOTED(t->override->origin.text));
  return true;
}

/* Whether the path is in a section of the core, where an added key would have no effect. Groups, which have plugins'
 * parameters, are not. */
static bool is_closed(const char *path)
{
  const size_t length = strcspn(path, ".");
  if (brim_group_find(path, length)) return false;
  for (const brim_section *s = path[length] ? brim_settings_sections : NULL; s && s->path; s++)
    if (length > 0 && strlen(s->path) == length && strncmp(path, s->path, length) == 0) return true;
  return false;
}

static void unknown_key(const target *t, const char *path)
{
  const brim_override *o = t->override;
  const char *meant = brim_schema_suggest(t->schema, path);
  brim_problem_at(&t->c->problems, &o->origin, "unknown key '%s'", path);
  if (hint_unlisted(t, path) || hint_command(t, path)) return;
  const bool whole = strcmp(path, o->key) == 0; /* or a key inside {...} */
  const char *add = brim_arena_printf(t->c->arena, whole ? "+%s" : "+%s=VALUE", whole ? o->origin.text : path);
  if (o->mode != BRIM_OVERRIDE_SET || o->append) {
    if (meant) brim_problem_hint(&t->c->problems, "did you mean '%s'?", meant);
  } else if (meant && is_closed(path)) {
    brim_problem_hint(&t->c->problems, "did you mean '%s'?", meant);
  } else if (is_closed(path)) { /* its keys are listed below */
  } else if (meant) {
    brim_problem_hint(&t->c->problems, "did you mean '%s'? to add a new key, write %s", meant, BRIM_QUOTED(add));
  } else {
    brim_problem_hint(&t->c->problems, "to add a new key, write %s", BRIM_QUOTED(add));
  }
  brim_schema_hint_keys(t->schema, meant && strchr(meant, '.') ? meant : path, &t->c->problems);
}

/* Whether the path is "model.id", an item of a group that is a list ("policy.id.0"), or the name of a dataset's
 * option. */
static bool is_group_id(const char *path)
{
  const char *dot = strchr(path, '.');
  if (strcmp(path, "dataset.option") == 0) return true;
  if (!dot || (strcmp(dot + 1, "id") != 0 && !brim_starts_with(dot + 1, "id."))) return false;
  return brim_group_find(path, (size_t)(dot - path)) != NULL;
}

/* ---- lists ---- */

/* Returns the list under a key, to be changed: from the tree, or else the default. A scalar becomes a list of one
 * item. */
static brim_yaml *list_now(const target *t, const char *path)
{
  brim_arena *arena = t->c->arena;
  const brim_yaml *now = find_node(t->c, path);
  const brim_schema_row *row = brim_schema_find(t->schema, path);
  if (!now && row) now = brim_value_default(row->row, arena);
  if (now && now->kind == BRIM_YAML_LIST) return brim_yaml_clone(arena, now);
  brim_yaml *list = brim_yaml_list(arena, t->override->origin);
  if (now && now->kind == BRIM_YAML_SCALAR && !brim_yaml_is_null(now))
    brim_yaml_append(arena, list, brim_yaml_clone(arena, now));
  return list;
}

static bool is_list(const target *t, const char *path)
{
  const brim_schema_row *row = brim_schema_find(t->schema, path);
  const brim_yaml *now = find_node(t->c, path);
  return row ? row->row->type == BRIM_LIST || row->row->type == BRIM_SET || row->row->type == BRIM_NAMES
             : now && now->kind == BRIM_YAML_LIST;
}

/* Rejects a plugin's id, because plugins are chosen through their group. */
static void refuse_id(const target *t, const char *path, const brim_yaml *value)
{
  const int length = (int)strcspn(path, ".");
  brim_problem_at(&t->c->problems, &t->override->origin,
                  "'%s' cannot be set directly: to choose a plugin, write %.*s=%s", path, length, path,
                  value->kind == BRIM_YAML_SCALAR && value->scalar[0] ? value->scalar : "OPTION");
}

/* Rejects a value for a group that is a list if it is neither a name nor a list of names. A map sets keys, unless it is
 * appended. */
static bool refuse_choice(const target *t, const char *path, const brim_yaml *value)
{
  brim_problems *problems = &t->c->problems;
  const brim_yaml_origin *origin = &t->override->origin;
  size_t i = 0;
  if (!brim_compose_is_list(path) || (value->kind == BRIM_YAML_MAP && !t->override->append)) return false;
  while (value->kind == BRIM_YAML_LIST && i < value->count && value->item[i]->kind == BRIM_YAML_SCALAR) i++;
  if (value->kind == BRIM_YAML_LIST)
    brim_problem_at(problems, origin, "'%s' must be a list of names, but item %zu is a %s", path, i,
                    value->item[i]->kind == BRIM_YAML_MAP ? "map" : "list");
  else
    brim_problem_at(problems, origin, "'%s' must be a name or a list of names, got a map", path);
  return true;
}

static void append_items(const target *t)
{
  const brim_override *o = t->override;
  const bool known = brim_schema_find(t->schema, o->key) || find_node(t->c, o->key);
  if (refuse_choice(t, o->key, o->value)) return;
  if (is_group_id(o->key)) {
    refuse_id(t, o->key, o->value);
    return;
  }
  if (!known) {
    unknown_key(t, o->key);
    return;
  }
  if (!is_list(t, o->key)) {
    brim_problem_at(&t->c->problems, &o->origin, "'%s' is not a list: += appends to lists", o->key);
    return;
  }
  brim_yaml *list = list_now(t, o->key);
  list->origin = o->origin;
  const bool one = o->value->kind != BRIM_YAML_LIST;
  for (size_t i = 0; i < (one ? 1 : o->value->count); i++)
    brim_yaml_append(t->c->arena, list, brim_yaml_clone(t->c->arena, one ? o->value : o->value->item[i]));
  store(t, o->key, list);
}

/* True if the path is an item of a list, "list.0"; then it was set, or a problem added. */
static bool set_item(const target *t, const char *path, const brim_yaml *value)
{
  const char *dot = strrchr(path, '.');
  if (!dot || dot[1] == '\0' || strspn(dot + 1, "0123456789") != strlen(dot + 1)) return false;
  const char *list_path = brim_arena_string_n(t->c->arena, path, (size_t)(dot - path));
  if (!is_list(t, list_path)) return false;
  brim_yaml *list = list_now(t, list_path);
  const unsigned long long i = strtoull(dot + 1, NULL, 10);
  if (i < list->count && t->override->mode == BRIM_OVERRIDE_ADD) {
    brim_problem_at(&t->c->problems, &t->override->origin, "'%s' exists already: to change it, write %s", path,
                    t->override->origin.text + 1);
    return true;
  }
  if (i >= list->count) {
    brim_problem_at(&t->c->problems, &t->override->origin, "'%s' does not exist: the list has %zu item%s", path,
                    list->count, brim_plural((int64_t)list->count));
    brim_problem_hint(&t->c->problems, "items count from 0, as in %s.0=VALUE; to append one, write %s+=[VALUE]",
                      list_path, list_path);
    return true;
  }
  list->item[i] = brim_yaml_clone(t->c->arena, value);
  list->origin = t->override->origin;
  store(t, list_path, list);
  return true;
}

/* ---- one override ---- */

static void apply_section(const target *t, const char *path, const brim_yaml *value)
{
  if (refuse_choice(t, path, value)) return;
  if (value->kind != BRIM_YAML_MAP) {
    brim_problem_at(&t->c->problems, &t->override->origin, "'%s' holds keys and is not a value itself", path);
    brim_problem_hint(&t->c->problems,
                      brim_compose_group_kind(path) ? "write %s=OPTION, or %s.KEY=VALUE"
                                                    : "write %s.KEY=VALUE, or %s={KEY: VALUE}",
                      path, path);
    return;
  }
  for (size_t i = 0; i < value->count; i++)
    apply_value(t, brim_arena_printf(t->c->arena, "%s.%s", path, value->key[i]), value->item[i]);
}

static void apply_old_name(const target *t, const brim_alias *alias, const brim_yaml *value)
{
  brim_yaml *now = NULL;
  if (!brim_alias_value(alias, value, &t->c->problems, &now)) return;
  brim_alias_note(alias, value, now, &t->c->notes);
  if (now) apply_value(t, alias->now, now);
}

static void apply_value(const target *t, const char *path, const brim_yaml *value)
{
  const brim_override *o = t->override;
  brim_problems *problems = &t->c->problems;
  if (is_group_id(path)) {
    refuse_id(t, path, value);
    return;
  }
  const brim_alias *alias = o->mode == BRIM_OVERRIDE_ADD ? NULL : brim_alias_find(path);
  if (alias) {
    apply_old_name(t, alias, value);
    return;
  }
  if (set_item(t, path, value)) return;
  const bool section = brim_schema_is_section(t->schema, path);
  const bool declared = brim_schema_find(t->schema, path) || brim_alias_find(path);
  const bool there = declared || section || find_node(t->c, path);
  if (!there && o->mode != BRIM_OVERRIDE_SET && is_closed(path)) {
    unknown_key(t, path);
  } else if (there && o->mode == BRIM_OVERRIDE_ADD && !section) {
    brim_problem_at(problems, &o->origin, "'%s' exists already: to change it, write %s", path, o->origin.text + 1);
  } else if (!there && o->mode == BRIM_OVERRIDE_SET) {
    unknown_key(t, path);
  } else if (section) {
    apply_section(t, path, value);
  } else {
    store(t, path, brim_yaml_clone(t->c->arena, value));
  }
}

/* Returns the text of a value for comparison: a scalar's own; anything else as printed, such as "[1, 2]". */
static const char *text_of(const target *t, const brim_yaml *node)
{
  if (node->kind == BRIM_YAML_SCALAR) return node->scalar;
  brim_text text = {0};
  brim_yaml_print(node, &text, false);
  const char *out = brim_arena_string_n(t->c->arena, text.s, text.length - 1); /* without the last newline */
  brim_text_release(&text);
  return out;
}

static bool is_one_line(const brim_yaml *node, const char *text)
{
  return node && node->kind != BRIM_YAML_MAP && !strchr(text, '\n');
}

static void apply_removal(const target *t)
{
  const brim_override *o = t->override;
  const brim_yaml *now = find_node(t->c, o->key);
  const brim_schema_row *row = brim_schema_find(t->schema, o->key);
  if (is_group_id(o->key)) {
    brim_problem_at(&t->c->problems, &o->origin, "'%s' cannot be removed: a group needs a plugin", o->key);
  } else if (!now && !row && !brim_schema_is_section(t->schema, o->key)) {
    unknown_key(t, o->key);
  } else if (o->value) {
    const brim_yaml *value = now ? now : row ? brim_value_default(row->row, t->c->arena) : NULL;
    const char *is = value ? text_of(t, value) : "missing", *written = text_of(t, o->value);
    if (value && strcmp(is, written) == 0)
      discard(t->c, o->key);
    else if (is_one_line(value, is) && is_one_line(o->value, written))
      brim_problem_at(&t->c->problems, &o->origin, "'%s' is not removed: its value is %s, not %s", o->key, is, written);
    else
      brim_problem_at(&t->c->problems, &o->origin, "'%s' is not removed: its value differs", o->key);
  } else {
    discard(t->c, o->key);
  }
}

void brim_override_apply(brim_composition *c, const brim_schema *schema, const brim_override *override)
{
  brim_override now = *override;
  const brim_alias *alias = override->mode == BRIM_OVERRIDE_REMOVE ? brim_alias_find(override->key) : NULL;
  if (alias) now.key = alias->now;
  if (alias && now.value && !brim_alias_value(alias, override->value, &c->problems, &now.value)) return;
  const target t = {c, schema, &now};
  if (brim_compose_is_broken(c, override->key)) return;
  if (override->mode == BRIM_OVERRIDE_REMOVE)
    apply_removal(&t);
  else if (override->append)
    append_items(&t);
  else
    apply_value(&t, override->key, override->value);
}
