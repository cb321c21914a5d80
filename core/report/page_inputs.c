/* Shows the inputs of the run, folded: words of the command line, plugins, the configuration. */
#include "report/page_parts.h"

static void add_text(brim_text *out, const char *heading, const char *text)
{
  if (!text || !text[0]) return;
  brim_page_begin_folded(out, heading);
  brim_text_add(out, "<pre>");
  brim_page_text(out, text);
  brim_text_add(out, "</pre>\n");
  brim_page_end_folded(out);
}

static void add_plugins(const brim_page_run *page, brim_text *out)
{
  static const char *const head[] = {"group", "plugin", "version", "hash", ""};
  brim_table table = {.arena = &page->all->arena, .columns = sizeof head / sizeof head[0]};
  const char *group;
  json_t *plugin;
  for (size_t i = 0; i < table.columns; i++) brim_table_add(&table, head[i]);
  json_object_foreach(page->plugins, group, plugin)
  {
    brim_table_add(&table, group);
    brim_table_add(&table, brim_json_string(plugin, "id"));
    brim_table_add(&table, brim_json_string(plugin, "version"));
    brim_table_add(&table, brim_json_string(plugin, "hash"));
    brim_table_add(&table, brim_json_string(plugin, "help"));
  }
  if (json_object_size(page->plugins) == 0) return;
  brim_page_begin_folded(out, "Plugins");
  brim_page_table(out, &table);
  brim_page_end_folded(out);
}

void brim_page_inputs(const brim_page_run *page, brim_text *out)
{
  brim_page_begin(out, "Configuration");
  add_text(out, "Overrides", page->overrides);
  add_text(out, "Resolved configuration", page->config);
  add_plugins(page, out);
  brim_page_end(out);
}
