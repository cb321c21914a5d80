/* brim complete: lists the continuations of a command line. Shells call it on each press of TAB, and get commands,
 * options, groups, their options, keys, and values from the tables that the program itself uses. It reports no errors,
 * and leaves out anything unknown. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "builtin/builtin.h"
#include "cli/cli.h"
#include "config/apply.h"
#include "config/compose.h"
#include "config/schema.h"

#define WORDS_MAX 512

typedef struct completion {
  brim_arena arena;
  brim_cli cli; /* has the global options of the line */
  const brim_command *command;
  char *word[WORDS_MAX + 1]; /* the words after the command, without the last one */
  int count;
  const char *last; /* the word that is being typed */
  const char *lead; /* the part of the last word before the text to complete */
  brim_text out;
} completion;

/* Prints lead + candidate + tail if it continues the typed text. */
static void offer(completion *c, const char *candidate, const char *tail)
{
  const char *full = brim_arena_printf(&c->arena, "%s%s%s", c->lead, candidate, tail);
  if (brim_starts_with(full, c->last)) brim_text_printf(&c->out, "%s\n", full);
}

/* ---- words ---- */

/* Splits a word off the line as a shell does; false at the line's end. An unfinished word at the end counts. */
static bool next_word(completion *c, const char **line, char **out)
{
  brim_text text = {0};
  char quote = '\0';
  const char *s = *line + strspn(*line, " \t\n");
  if (*s == '\0') return false;
  for (; *s && (quote || !strchr(" \t\n", *s)); s++) {
    if (quote && *s == quote) {
      quote = '\0';
    } else if (!quote && (*s == '\'' || *s == '"')) {
      quote = *s;
    } else if (*s == '\\' && quote != '\'' && s[1]) {
      brim_text_add_n(&text, ++s, 1);
    } else {
      brim_text_add_n(&text, s, 1);
    }
  }
  *out = brim_arena_string(&c->arena, brim_text_str(&text));
  *line = s;
  brim_text_release(&text);
  return true;
}

/* Splits the line into the words before the last one, which is empty if the line ends with a space. */
static bool split_line(completion *c, const char *line)
{
  char *word = NULL;
  c->last = "";
  while (next_word(c, &line, &word)) {
    if (c->count == WORDS_MAX) return false;
    if (*line)
      c->word[c->count++] = word;
    else
      c->last = word;
  }
  return c->count > 0;
}

/* ---- options ---- */

static void offer_options(completion *c, const brim_command *command)
{
  for (const brim_option *o = brim_cli_options(command); o->name; o++)
    if (o->kind != BRIM_OPTION_HIDDEN) offer(c, o->name, "");
}

/* Whether the word is an option whose value is the next word. */
static bool takes_value(const brim_command *command, const char *word)
{
  for (const brim_option *o = command->options; o->name; o++)
    if (strcmp(word, o->name) == 0) return o->takes;
  return false;
}

static void offer_plugins(completion *c)
{
  const size_t count = brim_registry_count(c->cli.registry);
  for (size_t i = 0; i < count; i++) {
    const brim_plugin *plugin = brim_registry_at(c->cli.registry, i)->plugin;
    const char *kind = brim_kind_name(plugin->kind);
    offer(c, brim_arena_printf(&c->arena, "%s/%s", kind, plugin->id), "");
  }
}

static void offer_kinds(completion *c)
{
  const char **kind = NULL;
  const size_t count = brim_cli_new_kinds(&c->arena, &kind);
  for (size_t i = 0; i < count; i++) offer(c, kind[i], "");
}

/* ---- overrides ---- */

/* Returns the word with only the first of a sweep's values, which suffices to find the keys. */
static const char *without_sweep(completion *c, const char *word)
{
  const size_t key = strcspn(word, "=");
  if (!word[key]) return word;
  const size_t first = brim_override_item_length(word + key + 1);
  return brim_arena_string_n(&c->arena, word, key + 1 + first);
}

/* Composes the files and the choices that are on the line so far. */
static void compose(completion *c, brim_composition *composition)
{
  for (int i = 0; i < c->count; i++) {
    if (c->word[i][0] == '-') continue;
    brim_override *o = BRIM_ARENA_NEW(&c->arena, brim_override, 1);
    if (brim_override_parse(&c->arena, without_sweep(c, c->word[i]), i + 1, &composition->problems, o) &&
        brim_override_is_choice(composition, o))
      brim_compose_choose(composition, o);
  }
  brim_compose(composition);
}

static void add_list(const brim_composition *composition, const brim_group *group, const brim_yaml *ids,
                     brim_schema_plugins *plugins)
{
  for (size_t i = 0; ids && i < ids->count && plugins->listed_count < BRIM_LISTED_MAX; i++) {
    const brim_yaml *id = ids->item[i];
    const brim_registry_entry *entry =
        id->kind == BRIM_YAML_SCALAR ? brim_registry_find(composition->registry, group->kind, id->scalar) : NULL;
    if (entry) plugins->listed[plugins->listed_count++] = entry->plugin;
  }
}

static void build_schema(brim_composition *composition, brim_schema *schema)
{
  brim_schema_plugins plugins = {0};
  for (int g = 0; brim_config_groups[g].name; g++) {
    const brim_yaml *node = brim_yaml_get(composition->root, brim_config_groups[g].name);
    const brim_yaml *id = node && node->kind == BRIM_YAML_MAP ? brim_yaml_get(node, "id") : NULL;
    if (brim_config_groups[g].list) add_list(composition, &brim_config_groups[g], id, &plugins);
    if (!id || id->kind != BRIM_YAML_SCALAR) continue;
    const bool any = brim_config_groups[g].kind == BRIM_BACKEND && strcmp(id->scalar, "auto") == 0;
    const char *name = any ? brim_compose_auto_backend(composition) : id->scalar;
    const brim_registry_entry *entry = brim_registry_find(composition->registry, brim_config_groups[g].kind, name);
    plugins.group[g] = entry ? entry->plugin : NULL;
  }
  brim_schema_build(schema, composition->arena, &plugins);
}

static void offer_keys(completion *c, const brim_schema *schema, const char *tail)
{
  for (const brim_group *g = brim_config_groups; g->name; g++) offer(c, g->name, tail);
  for (size_t i = 0; i < schema->count; i++)
    if (brim_schema_find(schema, schema->row[i].path) == &schema->row[i]) offer(c, schema->row[i].path, tail);
}

static void offer_values(completion *c, const brim_composition *composition, const brim_schema *schema, const char *key)
{
  const brim_schema_row *row = brim_schema_find(schema, key);
  if (brim_compose_is_group(composition, key)) {
    const char **option = NULL;
    const size_t count = brim_compose_options(composition, key, &option);
    for (size_t i = 0; i < count; i++) offer(c, option[i], "");
  } else if (row && row->row->type == BRIM_BOOL) {
    offer(c, "true", "");
    offer(c, "false", "");
  } else if (row && (row->row->type == BRIM_ENUM || row->row->type == BRIM_SET)) {
    if (row->row->type == BRIM_SET) offer(c, "all", "");
    if (row->row->type == BRIM_SET) offer(c, "none", "");
    for (const char *s = row->row->range; s && *s;) {
      const size_t length = strcspn(s, "|");
      offer(c, brim_arena_string_n(&c->arena, s, length), "");
      s += length + (s[length] == '|');
    }
  }
}

static bool is_multirun(const completion *c)
{
  if (strstr(c->command->usage, "scenario=NAME")) return true; /* simulations sweep by themselves */
  for (int i = 0; i < c->count; i++)
    if (strcmp(c->word[i], "-m") == 0 || strcmp(c->word[i], "--multirun") == 0) return true;
  return false;
}

static void offer_overrides(completion *c)
{
  brim_cli_search search;
  brim_cli_search_path(&c->cli, &search);
  const brim_config_request request = {
      .search = search.folder, .search_count = search.count, .name = c->cli.config_name};
  brim_composition composition = {.arena = &c->arena, .request = &request, .registry = c->cli.registry};
  brim_schema schema = {0};
  composition.problems.arena = &c->arena;
  compose(c, &composition);
  build_schema(&composition, &schema);
  const size_t sign = strspn(c->last, "+~");
  const size_t key = strcspn(c->last + sign, "=");
  const char *value = c->last + sign + key + 1;
  if (!c->last[sign + key]) {
    c->lead = brim_arena_string_n(&c->arena, c->last, sign);
    offer_keys(c, &schema, c->last[0] == '~' ? "" : "=");
    return;
  }
  const char *item = value;
  while (is_multirun(c) && item[brim_override_item_length(item)]) item += brim_override_item_length(item) + 1;
  c->lead = brim_arena_string_n(&c->arena, c->last, (size_t)(item - c->last));
  offer_values(c, &composition, &schema, brim_arena_string_n(&c->arena, c->last + sign, key));
}

/* ---- the command ---- */

static const brim_command *find_command(const completion *c, const char *name)
{
  for (const brim_command *const *command = c->cli.commands; *command; command++)
    if (strcmp((*command)->name, name) == 0) return *command;
  return NULL;
}

/* Whether the word being typed is a run's folder, which the shell completes. */
static bool is_run(completion *c)
{
  const char *first = brim_arena_printf(&c->arena, "brim %s RUN", c->command->name);
  bool operands = false;
  for (int i = 0; i < c->count; i++) operands = operands || c->word[i][0] != '-';
  return strstr(c->command->usage, first) && !operands;
}

/* Offers scenarios, "scenario=all_busy", for a command that simulates; several are separated by commas. */
static void offer_scenarios(completion *c)
{
  const char **name = NULL;
  size_t count = 0;
  if (!strstr(c->command->usage, "scenario=NAME")) return;
  const char *comma = brim_starts_with(c->last, "scenario=") ? strrchr(c->last, ',') : NULL;
  c->lead = comma ? brim_arena_string_n(&c->arena, c->last, (size_t)(comma + 1 - c->last)) : "scenario=";
  if (!brim_starts_with(c->last, "scenario=")) {
    c->lead = "";
    offer(c, "scenario", "=");
    return;
  }
  brim_cli_list_scenarios(&c->cli, &c->arena, &name, &count);
  for (size_t i = 0; i < count; i++) offer(c, name[i], "");
}

static void offer_words(completion *c)
{
  if (c->count > 0 && takes_value(c->command, c->word[c->count - 1]))
    return; /* a file or a folder, which the shell completes */
  if (c->last[0] == '-') {
    offer_options(c, c->command);
    offer_options(c, NULL);
    offer(c, "--help", "");
  } else if (is_run(c)) {
    return;
  } else if (strstr(c->command->usage, "key=value")) {
    offer_scenarios(c);
    if (!brim_starts_with(c->last, "scenario=")) offer_overrides(c);
  } else if (strstr(c->command->usage, "KIND[/ID]")) {
    offer_plugins(c);
  } else if (c->command == &brim_command_new && c->count == 0) {
    offer_kinds(c);
  } else if (c->command == &brim_command_runs && c->count == 0) {
    for (size_t i = 0; brim_cli_runs_verb(i); i++) offer(c, brim_cli_runs_verb(i), "");
  }
}

static void complete_line(completion *c, const char *line)
{
  if (!split_line(c, line)) return;
  brim_log_set_level(BRIM_LOG_ERROR);
  if (brim_cli_take_globals(&c->cli, &c->count, c->word) != BRIM_OK)
    return; /* the value of a global option is being typed */
  brim_log_set_level(BRIM_LOG_ERROR);
  if (c->count < 2 && c->last[0] == '-') {
    offer_options(c, NULL);
    offer(c, "--help", "");
    offer(c, "--version", "");
    return;
  }
  if (c->count < 2) {
    for (const brim_command *const *command = c->cli.commands; *command; command++) offer(c, (*command)->name, "");
    return;
  }
  c->command = find_command(c, c->word[1]);
  if (!c->command || brim_registry_open(brim_core_plugins, c->cli.plugin_paths.path, c->cli.plugin_paths.count,
                                        &c->cli.registry) != BRIM_OK)
    return;
  c->count -= 2;
  memmove(c->word, c->word + 2, sizeof(char *) * (size_t)c->count);
  offer_words(c);
  brim_registry_free(c->cli.registry);
}

static const brim_option options[] = {{NULL}};

static int run_command(brim_cli *cli, int argc, char **argv)
{
  completion c = {.lead = "", .cli.commands = cli->commands};
  brim_operands operands;
  brim_status status = brim_cli_parse(argc, argv, options, NULL, &operands);
  if (status == BRIM_OK && operands.count != 1)
    status = brim_fail(BRIM_ECONFIG, "brim complete takes one argument: brim complete -- LINE");
  if (status == BRIM_OK) complete_line(&c, operands.word[0]);
  fputs(brim_text_str(&c.out), stdout);
  brim_text_release(&c.out);
  brim_arena_release(&c.arena);
  return brim_cli_end(status, &operands);
}

const brim_command brim_command_complete = {
    "complete", "list completions of a command line, for shells", run_command,
    "usage: brim complete -- LINE\n"
    "\n"
    "  brim complete -- 'brim train mod'       groups and keys that begin with mod\n"
    "  brim complete -- 'brim train model='    the options of a group\n"
    "\n"
    "LINE is the command line up to the cursor. The completions of bash, zsh and fish call this.\n",
    options};
