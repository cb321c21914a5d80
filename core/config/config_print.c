/* Prints a configuration: its values and their origins, the groups and their options, and all keys. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "config/alias.h"
#include "config/compose.h"
#include "config/interpolate.h"
#include "config/schema.h"
#include "param/value.h"

enum { CELLS = 5 };           /* key, type, default, range, help */
enum { CELL_WIDTH_MAX = 32 }; /* longer cells reach into the next column instead of widening their own */

void brim_config_print(const brim_config *config, brim_text *out, bool origins)
{
  brim_arena arena = {0};
  brim_yaml *root = brim_yaml_clone(&arena, config->root);
  brim_interpolation_escape_all(&arena, root);
  brim_yaml_print(root, out, origins);
  brim_arena_release(&arena);
}

/* ---- groups ---- */

/* Lists the folders on the search path, sorted, without those of the core's groups. */
static size_t other_groups(const brim_composition *c, const char ***out)
{
  brim_yaml *found = brim_yaml_map(c->arena, (brim_yaml_origin){0});
  for (size_t i = 0; i < c->request->search_count; i++) {
    DIR *dir = opendir(c->request->search[i]);
    for (const struct dirent *entry; dir && (entry = readdir(dir));)
      if (entry->d_name[0] != '.' && !brim_compose_group_kind(entry->d_name) && brim_compose_is_group(c, entry->d_name))
        brim_yaml_set(c->arena, found, entry->d_name, found);
    if (dir) closedir(dir);
  }
  for (size_t i = 1; i < found->count; i++) /* insertion sort: there are few */
    for (size_t k = i; k > 0 && strcmp(found->key[k - 1], found->key[k]) > 0; k--) {
      const char *swap = found->key[k];
      found->key[k] = found->key[k - 1];
      found->key[k - 1] = swap;
    }
  *out = found->key;
  return found->count;
}

static void print_group(const brim_composition *c, const char *group, brim_text *out)
{
  const char **option = NULL;
  const size_t count = brim_compose_options(c, group, &option);
  const uint32_t kind = brim_compose_group_kind(group);
  brim_text_printf(out, "%s\n", group);
  size_t width = 0;
  for (size_t i = 0; i < count; i++) width = strlen(option[i]) > width ? strlen(option[i]) : width;
  for (size_t i = 0; i < count; i++) {
    const char *file = brim_compose_option_file(c, group, option[i]);
    const brim_registry_entry *entry = kind && !file ? brim_registry_find(c->registry, kind, option[i]) : NULL;
    brim_text_printf(out, "  %-*s  %s\n", (int)width, option[i],
                     file    ? file
                     : entry ? entry->plugin->help
                             : "chosen by brim: a GPU if there is one, else cpu, else reference");
  }
  if (count == 0) brim_text_add(out, "  none\n");
}

brim_status brim_config_print_groups(const brim_config_request *request, const brim_registry *registry, brim_text *out)
{
  brim_arena arena = {0};
  const brim_composition c = {.arena = &arena, .request = request, .registry = registry};
  for (const brim_group *g = brim_config_groups; g->name; g++) print_group(&c, g->name, out);
  const char **name = NULL;
  const size_t count = other_groups(&c, &name);
  for (size_t i = 0; i < count; i++) print_group(&c, name[i], out);
  brim_arena_release(&arena);
  return BRIM_OK;
}

/* ---- schema ---- */

/* Prints rows of the schema as a table; `only`: rows of one plugin, or of the core if it is NULL; `all`: every row. */
static void print_rows(const brim_schema *schema, const brim_plugin *only, bool all, brim_text *out)
{
  size_t width[CELLS] = {0};
  for (int pass = 0; pass < 2; pass++) {
    for (size_t i = 0; i < schema->count; i++) {
      const brim_schema_row *row = &schema->row[i];
      if (!all && row->plugin != only) continue;
      const char *def = row->row->def;
      const char *type = brim_value_type_name(row->row->type);
      const char *cell[CELLS] = {row->path, type,
                                 !def     ? "required"
                                 : def[0] ? def
                                          : "''",
                                 row->row->range ? row->row->range : "", row->row->help};
      for (int k = 0; k < CELLS; k++) {
        const size_t length = strlen(cell[k]);
        if (pass == 0 && length > width[k] && (k == 0 || length <= CELL_WIDTH_MAX)) width[k] = length;
        if (pass == 1) brim_text_printf(out, "%s%-*s", k ? "  " : "", k + 1 < CELLS ? (int)width[k] : 0, cell[k]);
      }
      if (pass == 1) brim_text_add(out, "\n");
    }
  }
}

/* Prints "training.fp16    old name of precision: true=fp16, false=fp32". */
static void print_old_names(brim_text *out)
{
  size_t width = 0;
  for (const brim_alias *a = brim_aliases; a->old; a++) width = strlen(a->old) > width ? strlen(a->old) : width;
  brim_text_add(out, "\nold names, which are still accepted:\n");
  for (const brim_alias *a = brim_aliases; a->old; a++) {
    brim_text_printf(out, "%-*s  now %s%s", (int)width, a->old, a->now, a->values ? ": " : "");
    for (const char *s = a->values; s && *s; s++) brim_text_add_n(out, *s == '|' ? ", " : s, *s == '|' ? 2 : 1);
    brim_text_add(out, "\n");
  }
}

static void print_every_plugin(brim_arena *arena, const brim_registry *registry, brim_text *out)
{
  const size_t count = brim_registry_count(registry);
  for (size_t i = 0; i < count; i++) {
    const brim_plugin *plugin = brim_registry_at(registry, i)->plugin;
    for (int g = 0; brim_config_groups[g].name; g++) {
      if (brim_config_groups[g].kind != plugin->kind || brim_config_group_is_second(g)) continue;
      brim_schema_plugins one = {0};
      brim_schema schema = {0};
      if (brim_config_groups[g].list)
        one.listed[one.listed_count++] = plugin;
      else
        one.group[g] = plugin;
      brim_schema_build(&schema, arena, &one);
      brim_text_printf(out, "\n%s=%s: %s\n", brim_config_groups[g].name, plugin->id, plugin->help);
      print_rows(&schema, plugin, false, out);
    }
  }
}

void brim_config_print_schema(const brim_config *config, const brim_registry *registry, brim_text *out)
{
  brim_arena arena = {0};
  brim_schema schema = {0};
  const brim_schema_plugins chosen = config ? brim_schema_plugins_of(config) : (brim_schema_plugins){0};
  brim_schema_build(&schema, &arena, &chosen);
  print_rows(&schema, NULL, config != NULL, out);
  if (!config) print_old_names(out);
  if (!config) print_every_plugin(&arena, registry, out);
  brim_arena_release(&arena);
}
