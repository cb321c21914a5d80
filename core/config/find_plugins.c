/* See find_plugins.h. */
#include "config/find_plugins.h"

#include <string.h>

#include "config/interpolate.h"

static const brim_yaml_origin default_origin = {.file = "default"};

/* Whether a group has no choice: its id is missing or null. */
static bool is_unset(const brim_yaml *id)
{
  return !id || brim_yaml_is_null(id) || brim_yaml_is_missing(id);
}

/* Sets the key `id` of a group's map in the tree, and adds the map if it is missing. Returns `id`. */
static brim_yaml *set_id(const brim_composition *c, const brim_group *group, brim_yaml *id)
{
  brim_yaml *node = brim_yaml_get(c->root, group->name);
  if (!node || node->kind != BRIM_YAML_MAP) {
    node = brim_yaml_map(c->arena, default_origin);
    brim_yaml_set(c->arena, c->root, group->name, node);
  }
  brim_yaml_set(c->arena, node, "id", id);
  return id;
}

/* Returns the id of a group's choice. If the user chose nothing, sets the id to the group's fallback; NULL if the group
 * has no fallback. */
static brim_yaml *id_of(const brim_composition *c, const brim_group *group)
{
  brim_yaml *node = brim_yaml_get(c->root, group->name);
  brim_yaml *id = node ? brim_yaml_get(node, "id") : NULL;
  if (!group->fallback || !is_unset(id)) return id;
  return set_id(c, group, brim_yaml_scalar(c->arena, group->fallback, default_origin));
}

/* Whether the model wraps another; `model` is the first of the groups. */
static bool has_wrapper(const brim_schema_plugins *p)
{
  return brim_is_wrapper(p->group[0]);
}

static void refuse_no_backbone(brim_composition *c, const char *model)
{
  brim_problem(&c->problems, BRIM_ECONFIG, "model=%s wraps another model, and none is chosen: write backbone=OPTION",
               model);
  brim_compose_hint_available(c, "backbone", NULL);
}

/* Rejects a backbone on the command line for a model that does not wrap another. */
static void refuse_backbone(brim_composition *c, const char *model, const brim_yaml *id)
{
  brim_problem_at(&c->problems, &id->origin, "backbone=%s has no effect: model=%s does not wrap another model",
                  id->scalar, model);
  brim_problem_hint(&c->problems,
                    "to train on its frozen features or adapt it: model=linear_probe or model=lora; to train it "
                    "whole: model=%s, and no backbone",
                    id->scalar);
}

static bool is_backbone(const brim_group *group)
{
  return group->is_optional && group->kind == BRIM_MODEL;
}

/* Returns the backbone's plugin; NULL, without a problem, if none is needed. */
static const brim_plugin *check_backbone(brim_composition *c, const brim_schema_plugins *p, const brim_yaml *id,
                                         const brim_plugin *plugin)
{
  if (!has_wrapper(p) && id->origin.text && p->group[0]) refuse_backbone(c, p->group[0]->id, id);
  if (plugin && brim_is_wrapper(plugin)) {
    brim_problem_at(&c->problems, &id->origin, "backbone=%s: this model itself wraps another one", plugin->id);
    return NULL;
  }
  return plugin;
}

/* Returns the plugin that a group's node names; NULL, with a problem added, on failure. */
static const brim_plugin *find_plugin(brim_composition *c, const brim_schema_plugins *p, const brim_group *group)
{
  brim_yaml *id = id_of(c, group);
  if (is_unset(id)) {
    if (is_backbone(group) && has_wrapper(p)) refuse_no_backbone(c, p->group[0]->id);
    if (group->is_optional) return NULL;
    const brim_chosen *chosen = brim_compose_chosen(c, group->name);
    const brim_yaml_origin *origin = id ? &id->origin : chosen && chosen->met ? &chosen->met_origin : NULL;
    brim_problem_at(&c->problems, origin, "no option is chosen for group '%s': write %s=OPTION", group->name,
                    group->name);
    brim_compose_hint_available(c, group->name, NULL);
    return NULL;
  }
  if (id->kind != BRIM_YAML_SCALAR) {
    brim_problem_at(&c->problems, &id->origin, "'%s.id' must be the name of a plugin", group->name);
    return NULL;
  }
  if (!brim_interpolate_early(c, brim_arena_printf(c->arena, "%s.id", group->name), id)) return NULL;
  if (group->kind == BRIM_BACKEND && strcmp(id->scalar, "auto") == 0) id->scalar = brim_compose_auto_backend(c);
  const brim_registry_entry *entry = brim_registry_find(c->registry, group->kind, id->scalar);
  if (!entry) brim_compose_no_plugin(c, group->name, id->scalar, &id->origin);
  const brim_plugin *plugin = entry ? entry->plugin : NULL;
  return is_backbone(group) ? check_backbone(c, p, id, plugin) : plugin;
}

/* Returns the ids of a list's choices. If the user chose nothing, sets them to the list's default; NULL if the user
 * wrote something else than a list or a name. */
static brim_yaml *list_of_ids(const brim_composition *c, const brim_group *group)
{
  brim_arena *arena = c->arena;
  brim_yaml *node = brim_yaml_get(c->root, group->name);
  brim_yaml *id = node ? brim_yaml_get(node, "id") : NULL;
  if (id && id->kind == BRIM_YAML_LIST) return id;
  brim_yaml *list = brim_yaml_list(arena, id ? id->origin : default_origin);
  const bool chosen = !is_unset(id);
  if (chosen && id->kind != BRIM_YAML_SCALAR) return NULL;
  if (chosen)
    brim_yaml_append(arena, list, id);
  else if (brim_compose_fallback(c, group->name))
    brim_yaml_append(arena, list, brim_yaml_scalar(arena, group->list, default_origin));
  return set_id(c, group, list);
}

/* Adds the plugin of one of the ids. False, with a problem added, on failure. */
static bool add_to_list(brim_composition *c, brim_schema_plugins *p, const brim_group *group, brim_yaml *id)
{
  if (id->kind != BRIM_YAML_SCALAR) {
    brim_problem_at(&c->problems, &id->origin, "'%s.id' must be a list of names of plugins", group->name);
    return false;
  }
  if (!brim_interpolate_early(c, brim_arena_printf(c->arena, "%s.id", group->name), id)) return false;
  const brim_registry_entry *entry = brim_registry_find(c->registry, group->kind, id->scalar);
  if (!entry) {
    const bool typed = id->origin.text && !brim_compose_option_file(c, group->name, id->scalar);
    (typed ? brim_compose_no_option : brim_compose_no_plugin)(c, group->name, id->scalar, &id->origin);
    return false;
  }
  size_t count = 0;
  for (size_t i = 0; i < p->listed_count; i++) {
    count += p->listed[i]->kind == group->kind;
    if (p->listed[i] != entry->plugin) continue;
    brim_problem_at(&c->problems, &id->origin, "'%s' appears twice in the list of '%s'", id->scalar, group->name);
    return false;
  }
  if (count == BRIM_POLICIES_MAX) {
    brim_problem_at(&c->problems, &id->origin, "more than %d options of '%s'", BRIM_POLICIES_MAX, group->name);
    return false;
  }
  p->listed[p->listed_count++] = entry->plugin;
  return true;
}

static bool find_list(brim_composition *c, brim_schema_plugins *p, const brim_group *group)
{
  if (group->is_optional && is_unset(id_of(c, group))) return true;
  const brim_yaml *ids = list_of_ids(c, group);
  bool good = ids != NULL;
  if (!ids) {
    const brim_yaml *id = brim_yaml_get(brim_yaml_get(c->root, group->name), "id");
    brim_problem_at(&c->problems, &id->origin, "'%s.id' must be a list of names of plugins", group->name);
  }
  for (size_t i = 0; ids && i < ids->count; i++) good = add_to_list(c, p, group, ids->item[i]) && good;
  return good;
}

void brim_config_find_plugins(brim_composition *c, brim_schema_plugins *p)
{
  for (int g = 0; brim_config_groups[g].name; g++) {
    const brim_group *group = &brim_config_groups[g];
    const brim_chosen *chosen = brim_compose_chosen(c, group->name);
    const bool readable = !chosen || !chosen->broken;
    if (readable && !group->list) p->group[g] = find_plugin(c, p, group);
    const bool found = p->group[g] || (group->is_optional && readable && is_unset(id_of(c, group)));
    c->group_broken[g] = group->list ? !readable || !find_list(c, p, group) : !found;
  }
}

bool brim_config_is_empty(const brim_composition *c, const brim_schema_plugins *p, int g)
{
  const brim_group *group = &brim_config_groups[g];
  return group->is_optional && (group->list ? is_unset(id_of(c, group)) : !p->group[g]);
}
