/* Groups of which several options are chosen: what the list holds, and what is appended to it. */
#include <string.h>

#include "config/compose.h"
#include "config/interpolate.h"

/* Replaces the interpolations of a choice; NULL, with a problem added, if that cannot be. `before`: what came of it in
 * the walk before. */
static const char *resolve(brim_composition *c, const char *text, brim_yaml_origin origin, const char **before)
{
  const char *now = brim_interpolate_option(c, text, origin);
  if (!now) return NULL;
  c->unsettled = c->unsettled || strcmp(now, *before ? *before : text) != 0;
  *before = now;
  return now;
}

/* Adds options to a list: their ids, and what each says below its id. False if one of them cannot be read. */
static bool add_options(brim_composition *c, const char *group, const char *names, brim_yaml_origin origin,
                        brim_yaml *content)
{
  brim_yaml *ids = brim_yaml_get(content, "id");
  for (const char *s = names; *s; s += strcspn(s, ","), s += *s == ',') {
    const char *name = brim_arena_string_n(c->arena, s, strcspn(s, ","));
    brim_yaml *one = brim_yaml_map(c->arena, origin);
    if (!brim_compose_read_option(c, group, name, origin, false, one)) return false;
    brim_yaml *id = brim_yaml_get(one, "id");
    brim_yaml_remove(one, "id");
    brim_yaml_append(c->arena, ids, id);
    if (one->count > 0 && id->kind == BRIM_YAML_SCALAR) brim_yaml_set(c->arena, content, id->scalar, one);
  }
  return true;
}

/* What the list is where nobody chooses: what a file says itself about the group, else the group's own. */
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

bool brim_compose_read_list(brim_composition *c, brim_chosen *chosen, brim_yaml *content)
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
