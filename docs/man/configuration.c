/* brim.yaml(5): every key that a configuration may have, from the schema of the core and of each plugin. */
#include <string.h>

#include "config/alias.h"
#include "config/schema.h"
#include "pages.h"
#include "param/value.h"

static void put_key(FILE *page, const brim_schema_row *row)
{
  const brim_param *param = row->row;
  fputs(".TP\n.B ", page);
  page_text(page, row->path);
  fprintf(page, "\n%s", brim_value_type_name(param->type));
  fputs(!param->def ? ", required" : param->def[0] ? ", default " : ", empty by default", page);
  if (param->def) page_text(page, param->def);
  if (param->range) fputs("; ", page);
  if (param->range) page_text(page, param->range);
  fputs("\n.br\n", page);
  page_text(page, param->help);
  fputs("\n", page);
}

/* Length of "training" in "training.epochs"; 0 for a top-level key. */
static size_t section_of(const char *path)
{
  return strchr(path, '.') ? strcspn(path, ".") : 0;
}

static bool same_section(const char *a, const char *b)
{
  return section_of(a) == section_of(b) && strncmp(a, b, section_of(a)) == 0;
}

/* Sections are in the order of their first keys in the schema. */
static void put_core(FILE *page, brim_arena *arena)
{
  const brim_schema_plugins none = {0};
  brim_schema schema = {0};
  brim_schema_build(&schema, arena, &none);
  fputs(".SH KEYS\n", page);
  for (size_t i = 0; i < schema.count; i++) {
    const char *path = schema.row[i].path;
    size_t first = 0;
    while (!same_section(schema.row[first].path, path)) first++;
    if (first != i) continue;
    if (section_of(path) > 0) fprintf(page, ".SS %.*s\n", (int)section_of(path), path);
    for (size_t k = i; k < schema.count; k++)
      if (same_section(schema.row[k].path, path)) put_key(page, &schema.row[k]);
  }
}

static void put_plugin(FILE *page, brim_arena *arena, int group, const brim_plugin *plugin)
{
  brim_schema_plugins one = {0};
  brim_schema schema = {0};
  if (brim_config_groups[group].list)
    one.listed[one.listed_count++] = plugin;
  else
    one.group[group] = plugin;
  brim_schema_build(&schema, arena, &one);
  fprintf(page, ".SS %s=%s\n", brim_config_groups[group].name, plugin->id);
  page_text(page, plugin->help);
  fputs("\n", page);
  for (size_t i = 0; i < schema.count; i++)
    if (schema.row[i].plugin == plugin) put_key(page, &schema.row[i]);
}

static void put_plugins(FILE *page, brim_arena *arena, const brim_registry *registry)
{
  fputs(".SH PLUGINS\nThe keys of an option have the prefix of its group.\n", page);
  for (int group = 0; brim_config_groups[group].name; group++) {
    if (brim_config_group_is_second(group)) continue;
    for (size_t i = 0; i < brim_registry_count(registry); i++) {
      const brim_plugin *plugin = brim_registry_at(registry, i)->plugin;
      if (plugin->kind == (uint32_t)brim_config_groups[group].kind) put_plugin(page, arena, group, plugin);
    }
  }
}

static void put_old_names(FILE *page)
{
  fputs(".SH OLD NAMES\nbrim still accepts these names, and prints the new one.\n", page);
  for (const brim_alias *a = brim_aliases; a->old; a++) {
    fputs(".TP\n.B ", page);
    page_text(page, a->old);
    fputs("\nnow ", page);
    page_text(page, a->now);
    fputs(a->values ? ": " : "", page);
    for (const char *s = a->values; s && *s; s++) page_text_n(page, *s == '|' ? ", " : s, *s == '|' ? 2 : 1);
    fputs("\n", page);
  }
}

void page_configuration(FILE *page, const brim_registry *registry)
{
  brim_arena arena = {0};
  page_begin(page, "brim.yaml", 5, "configuration of a run of brim");
  fputs(".SH DESCRIPTION\n"
        "The configuration of a run is\n.I config.yaml\nin the first folder that has one: those of\n.BR "
        "\\-\\-config\\-path ,\n"
        "then brim\\(aqs own. Its list\n.B defaults\n"
        "chooses an option of each group, a plugin or a file\n.IR GROUP/OPTION.yaml ;\n"
        "the keys after it set values. The command line has precedence.\n"
        ".PP\n.EX\n"
        "defaults:\n  \\- model: mlp\n  \\- dataset: fashion_mnist\n  \\- optimizer: sgd\n  \\- schedule: cosine\n"
        "  \\- loss: cross_entropy\n  \\- backend: auto\n  \\- _self_\n"
        "training:\n  epochs: 3\noptimizer:\n  lr: 0.05\n"
        ".EE\n.PP\n"
        "A value may refer to others and to the environment: ${model.id}, ${oc.env:DATA,/data}. Bytes and times take\n"
        "units: 4GB, 30s, 5min.\n.B brim config\nshows the configuration of a run,\n.B brim config \\-\\-groups\n"
        "lists groups and options.\n",
        page);
  put_core(page, &arena);
  put_plugins(page, &arena, registry);
  put_old_names(page);
  fputs(".SH SEE ALSO\n.BR brim (1),\n.BR brim\\-config (1)\n", page);
  brim_arena_release(&arena);
}
