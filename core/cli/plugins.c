/* brim plugins: lists plugins with their files and parameters, and those that cannot be used, with the reason. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/cli.h"
#include "param/value.h"

#define COLUMNS_MAX 5

/* An option of a group, such as `model=gpt2_tiny`: a file that names a plugin and sets some of its parameters. */
typedef struct preset {
  const char *name, *file; /* name: NULL if the command names no option */
  const brim_yaml *values; /* the file's map */
} preset;

/* The requested plugins. */
typedef struct selection {
  uint32_t kind;  /* 0: all */
  const char *id; /* NULL: all of the kind */
  preset preset;  /* an option of that plugin */
} selection;

static bool selected(const selection *s, const brim_plugin *plugin)
{
  return (s->kind == 0 || s->kind == plugin->kind) && (!s->id || strcmp(s->id, plugin->id) == 0);
}

/* Prints rows of `columns` cells, each column as wide as its widest cell, the last one unpadded. */
static void print_table(const char *const *cell, size_t rows, size_t columns, const char *indent)
{
  size_t width[COLUMNS_MAX] = {0};
  for (size_t i = 0; i < rows * columns; i++) {
    const size_t length = strlen(cell[i]);
    if (length > width[i % columns]) width[i % columns] = length;
  }
  for (size_t i = 0; i < rows * columns; i++) {
    const size_t c = i % columns;
    if (c == 0) fputs(indent, stdout);
    if (c + 1 == columns)
      printf("%s\n", cell[i]);
    else
      printf("%-*s  ", (int)width[c], cell[i]);
  }
}

static const char *file_of(const brim_registry_entry *entry)
{
  return entry->file[0] ? entry->file : "built in";
}

static void print_failures(const brim_registry *registry)
{
  const size_t count = brim_registry_failure_count(registry);
  brim_text out = {0};
  if (count > 0) brim_text_add(&out, "\ncould not be used:\n");
  for (size_t i = 0; i < count; i++) {
    const brim_registry_failure *failure = brim_registry_failure_at(registry, i);
    brim_text_printf(&out, "  %s\n    ", failure->file);
    for (const char *s = failure->reason; *s; s++) brim_text_add_n(&out, *s == '\n' ? "\n    " : s, *s == '\n' ? 5 : 1);
    brim_text_add(&out, "\n");
  }
  brim_cli_print(brim_text_str(&out));
  brim_text_release(&out);
}

static void print_list(const brim_registry *registry, const selection *s)
{
  brim_arena arena = {0};
  const size_t count = brim_registry_count(registry);
  const char **cell = BRIM_ARENA_NEW(&arena, const char *, 4 * (count + 1));
  size_t n = 0;
  for (size_t i = 0; i < count; i++) {
    const brim_registry_entry *entry = brim_registry_at(registry, i);
    if (!selected(s, entry->plugin)) continue;
    cell[n++] = brim_arena_printf(&arena, "%s/%s", brim_kind_name(entry->plugin->kind), entry->plugin->id);
    cell[n++] = brim_registry_version(entry);
    cell[n++] = entry->plugin->help;
    cell[n++] = file_of(entry);
  }
  if (n == 0) puts("no plugins");
  print_table(cell, n / 4, 4, "");
  print_failures(registry);
  brim_arena_release(&arena);
}

static const char *default_text(const brim_param *row)
{
  if (!row->def) return "(required)";
  return row->def[0] ? row->def : "\"\"";
}

static void print_one(const brim_registry_entry *entry)
{
  const brim_plugin *plugin = entry->plugin;
  printf("%s/%s: %s\n", brim_kind_name(plugin->kind), plugin->id, plugin->help);
  printf("  file    %s\n", file_of(entry));
  if (entry->module)
    printf("  module  %s %s, abi %d.%d\n", entry->module->name, entry->module->version, entry->module->abi_major,
           entry->module->abi_minor);
  size_t count = 0;
  while (plugin->params && plugin->params[count].key) count++;
  if (count == 0) {
    puts("  no parameters");
    return;
  }
  brim_arena arena = {0};
  const char **cell = BRIM_ARENA_NEW(&arena, const char *, COLUMNS_MAX *(count + 1));
  size_t n = 0;
  static const char *const head[COLUMNS_MAX] = {"KEY", "TYPE", "DEFAULT", "RANGE", "HELP"};
  for (size_t c = 0; c < COLUMNS_MAX; c++) cell[n++] = head[c];
  for (size_t i = 0; i < count; i++) {
    const brim_param *row = &plugin->params[i];
    cell[n++] = row->key;
    cell[n++] = brim_value_type_name(row->type);
    cell[n++] = default_text(row);
    cell[n++] = row->range ? row->range : "any";
    cell[n++] = row->help;
  }
  putchar('\n');
  print_table(cell, count + 1, COLUMNS_MAX, "  ");
  brim_arena_release(&arena);
}

/* Prints the values that an option sets, before its plugin. */
static void print_preset(const selection *s)
{
  brim_text values = {0};
  const char *kind = brim_kind_name(s->kind);
  printf("%s/%s: an option of the plugin %s/%s\n  file    %s\n", kind, s->preset.name, kind, s->id, s->preset.file);
  brim_yaml_print(s->preset.values, &values, false);
  for (const char *line = brim_text_str(&values); *line; line += strcspn(line, "\n"), line += *line == '\n')
    printf("  %-8s%.*s\n", line == brim_text_str(&values) ? "sets" : "", (int)strcspn(line, "\n"), line);
  putchar('\n');
  brim_text_release(&values);
}

static json_t *json_of(const brim_registry_entry *entry)
{
  const brim_plugin *plugin = entry->plugin;
  json_t *parameters = json_array();
  for (const brim_param *row = plugin->params; row && row->key; row++)
    json_array_append_new(parameters, json_pack("{s:s, s:s, s:s?, s:s?, s:s}", "key", row->key, "type",
                                                brim_value_type_name(row->type), "default", row->def, "range",
                                                row->range, "help", row->help));
  return json_pack("{s:s, s:s, s:s?, s:s, s:s?, s:s, s:o}", "kind", brim_kind_name(plugin->kind), "id", plugin->id,
                   "module", entry->module ? entry->module->name : NULL, "version", brim_registry_version(entry),
                   "file", entry->file[0] ? entry->file : NULL, "help", plugin->help, "parameters", parameters);
}

static brim_status print_json(const brim_registry *registry, const selection *s)
{
  json_t *plugins = json_array(), *failures = json_array();
  for (size_t i = 0; i < brim_registry_count(registry); i++) {
    const brim_registry_entry *entry = brim_registry_at(registry, i);
    if (selected(s, entry->plugin)) json_array_append_new(plugins, json_of(entry));
  }
  for (size_t i = 0; i < brim_registry_failure_count(registry); i++) {
    const brim_registry_failure *failure = brim_registry_failure_at(registry, i);
    json_array_append_new(failures, json_pack("{s:s, s:s}", "file", failure->file, "reason", failure->reason));
  }
  json_t *root = json_pack("{s:o, s:o}", "plugins", plugins, "failures", failures);
  if (s->preset.name)
    json_object_set_new(root, "option", json_pack("{s:s, s:s}", "name", s->preset.name, "file", s->preset.file));
  return brim_cli_print_json(root);
}

/* Reads KIND or KIND/ID. */
static brim_status parse_selection(const char *word, brim_arena *arena, selection *out)
{
  const size_t length = strcspn(word, "/");
  const char *kind = brim_arena_string_n(arena, word, length);
  out->kind = brim_kind_by_name(kind);
  out->id = word[length] == '/' ? word + length + 1 : NULL;
  if (out->kind) return BRIM_OK;
  brim_text known = {0};
#define X(name, value, text) brim_text_add(&known, " " text);
  BRIM_KIND_MAP(X)
#undef X
  const brim_status status = brim_fail(BRIM_ECONFIG, "unknown kind of plugin '%s'\n  kinds:%s", kind, known.s);
  brim_text_release(&known);
  return status;
}

/* If `id` names an option and not a plugin, takes the option's plugin. */
static brim_status find_preset(const brim_cli *cli, selection *s, brim_arena *arena)
{
  brim_cli_search search;
  brim_yaml *root = NULL;
  if (!s->id || !s->id[0] || strchr(s->id, '/') || brim_registry_find(cli->registry, s->kind, s->id)) return BRIM_OK;
  brim_cli_search_path(cli, &search);
  for (size_t i = 0; i < search.count && !s->preset.file; i++) {
    const char *file =
        brim_arena_printf(arena, "%s/%s/%s.yaml", search.folder[i], brim_config_group_of(s->kind), s->id);
    if (access(file, F_OK) == 0) s->preset.file = file;
  }
  if (!s->preset.file) return BRIM_OK;
  BRIM_TRY(brim_yaml_parse_file(arena, s->preset.file, &root));
  const brim_yaml *id = root->kind == BRIM_YAML_MAP ? brim_yaml_get(root, "id") : NULL;
  if (!id || id->kind != BRIM_YAML_SCALAR) return BRIM_OK;
  s->preset.values = root;
  s->preset.name = s->id;
  s->id = id->scalar;
  return BRIM_OK;
}

/* Returns ELOAD with the reason if the plugin's own file cannot be used; ECONFIG with the available plugins if no file
 * has it. */
static brim_status check_exists(const brim_registry *registry, const selection *s)
{
  if (!s->id || brim_registry_find(registry, s->kind, s->id)) return BRIM_OK;
  const char *kind = brim_kind_name(s->kind);
  const brim_registry_failure *failure = brim_registry_failure_of(registry, s->kind, s->id);
  if (failure) return brim_fail(BRIM_ELOAD, "%s/%s: %s %s", kind, s->id, failure->file, failure->reason);
  brim_text known = {0};
  for (size_t i = 0; i < brim_registry_count(registry); i++) {
    const brim_plugin *plugin = brim_registry_at(registry, i)->plugin;
    if (plugin->kind == s->kind) brim_text_printf(&known, " %s", plugin->id);
  }
  const brim_status status = brim_fail(BRIM_ECONFIG, "no plugin '%s' of kind '%s'\n  available:%s", s->id, kind,
                                       known.length ? known.s : " none");
  brim_text_release(&known);
  return status;
}

static brim_status run(const brim_cli *cli, const char *word, bool json, brim_arena *arena)
{
  const brim_registry *registry = cli->registry;
  selection s = {0};
  if (word) BRIM_TRY(parse_selection(word, arena, &s));
  BRIM_TRY(find_preset(cli, &s, arena));
  BRIM_TRY(check_exists(registry, &s));
  if (json) return print_json(registry, &s);
  if (s.preset.name) print_preset(&s);
  if (s.id)
    print_one(brim_registry_find(registry, s.kind, s.id));
  else
    print_list(registry, &s);
  return BRIM_OK;
}

static int run_command(brim_cli *cli, int argc, char **argv)
{
  bool json = false;
  brim_operands operands;
  brim_status status = brim_cli_parse(argc, argv, brim_cli_only_json, &json, &operands);
  if (status == BRIM_OK) status = brim_cli_at_most(&operands, 1, "brim plugins takes one KIND or KIND/ID");
  if (status == BRIM_OK) status = run(cli, operands.count ? operands.word[0] : NULL, json, &operands.arena);
  return brim_cli_end(status, &operands);
}

const brim_command brim_command_plugins = {"plugins", "list plugins and their parameters", run_command,
                                           "usage: brim plugins [KIND[/ID]] [--json]\n"
                                           "\n"
                                           "  brim plugins                 all plugins\n"
                                           "  brim plugins model           plugins of one kind\n"
                                           "  brim plugins dataset/idx     one plugin, with its parameters\n",
                                           brim_cli_only_json};
