/* Parses the words of a command line: options, from a table, and operands. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "builtin/builtin.h"
#include "cli/cli.h"
#include "config/alias.h"

static const brim_option globals[] = {
    {"--plugin-path", BRIM_OPTION_PATHS, offsetof(brim_cli, plugin_paths), "DIR|FILE",
     "search for plugins there first; may be repeated; see also BRIM_PLUGIN_PATH"},
    {"--config-path", BRIM_OPTION_PATHS, offsetof(brim_cli, config_paths), "DIR",
     "search for configurations there first; may be repeated"},
    {"--config-name", BRIM_CLI_STRING(brim_cli, config_name), "NAME",
     "name of the root configuration (default: config)"},
    {"--verbose", BRIM_CLI_FLAG(brim_cli, verbose), NULL, "print more progress and information"},
    {"--quiet", BRIM_CLI_FLAG(brim_cli, quiet), NULL, "print only warnings and errors"},
    {NULL}};
const brim_option brim_cli_only_json[] = {{"--json", BRIM_OPTION_FLAG, 0, NULL, "print JSON"}, {NULL}};

const brim_option *brim_cli_options(const brim_command *command)
{
  return command ? command->options : globals;
}

/* Returns the name of an option without dashes, which users often mistype. */
static const char *bare(const char *word)
{
  return word + strspn(word, "-");
}

/* Hydra's options, and brim's options for the same purpose. */
static const struct {
  const char *option, *here;
} hydra_options[] = {
    {"--config-dir", "--config-path DIR"},  {"-cd", "--config-path DIR"},    {"-cp", "--config-path DIR"},
    {"-cn", "--config-name NAME"},          {"--cfg", "brim config"},        {"-c", "brim config"},
    {"--info", "brim config --origins"},    {"-i", "brim config --origins"}, {"--resolve", "brim config"},
    {"--shell-completion", "brim complete"}};

/* Compares names without differences in spelling. */
static bool is_same_name(const char *a, const char *b)
{
  return brim_typo_distance(a, b) == 0;
}

/* Returns the key that equals or ends in a name, "optimizer.lr" for "lr"; or NULL. Knows only keys that do not depend
 * on files. */
static const char *key_of(const char *name, char *out, size_t room)
{
  if (strchr(name, '.')) {
    snprintf(out, room, "%s", name);
    return out;
  }
  for (const brim_group *g = brim_config_groups; g->name; g++)
    if (is_same_name(name, g->name)) return g->name;
  for (const brim_section *s = brim_settings_sections; s->path; s++)
    for (const brim_setting *row = s->table; row->param.key; row++) {
      if (!is_same_name(name, row->param.key)) continue;
      snprintf(out, room, "%s%s%s", s->path, s->path[0] ? "." : "", row->param.key);
      return out;
    }
  for (size_t i = 0; brim_core_plugins[i]; i++)
    for (const brim_param *row = brim_core_plugins[i]->params; row && row->key; row++) {
      if (!is_same_name(name, row->key)) continue;
      snprintf(out, room, "%s.%s", brim_kind_name(brim_core_plugins[i]->kind), row->key);
      return out;
    }
  return NULL;
}

/* Suggests a replacement for an unknown option: one of Hydra's, or a key written with dashes. `next`: the word after
 * it; NULL: none. */
static bool hint_other_option(brim_status status, const char *word, const char *next)
{
  char name[64], path[128];
  const size_t length = strcspn(word, "=");
  for (size_t i = 0; i < sizeof hydra_options / sizeof hydra_options[0]; i++)
    if (strlen(hydra_options[i].option) == length && strncmp(hydra_options[i].option, word, length) == 0) {
      brim_fail_add(status, "in brim this is: %s", hydra_options[i].here);
      return true;
    }
  snprintf(name, sizeof name, "%.*s", (int)strcspn(bare(word), "="), bare(word));
  const char *key = strncmp(word, "--", 2) == 0 ? key_of(name, path, sizeof path) : NULL;
  if (!key) return false;
  const char *value = word[length] == '='                            ? word + length + 1
                      : next && next[0] != '-' && !strchr(next, '=') ? next
                                                                     : "VALUE";
  brim_fail_add(status, "a key is written without dashes: %s=%s", key, value);
  return true;
}

brim_status brim_cli_unknown_word(const char *word, const char *next)
{
  const brim_status status = brim_fail(BRIM_ECONFIG, "unknown option '%s'", word);
  (void)hint_other_option(status, word, next);
  return status;
}

static brim_status unknown_option(const char *word, const char *next, const brim_option *options)
{
  const char *best = NULL, *meant = NULL;
  char name[64]; /* longer than any option */
  int distance = INT_MAX;
  snprintf(name, sizeof name, "%.*s", (int)strcspn(bare(word), "="), bare(word));
  for (const brim_option *o = options; o->name; o++) {
    if (o->kind != BRIM_OPTION_HIDDEN) brim_suggest(name, bare(o->name), &distance, &best);
    if (best == bare(o->name)) meant = o->name;
  }
  const brim_status status = brim_fail(BRIM_ECONFIG, "unknown option '%s'", word);
  if (distance > 0 && hint_other_option(status, word, next)) return status;
  return meant ? brim_fail_add(status, "did you mean '%s'?", meant) : status;
}

/* Returns the value of option `o` in word `i`: after '=', or in the next word. */
static brim_status take_value(int argc, char **argv, int *i, const brim_option *o, void *values)
{
  const char *equals = strchr(argv[*i], '=');
  void *value = (char *)values + o->offset;
  if (!o->takes) {
    if (equals) return brim_fail(BRIM_ECONFIG, "option '%s' takes no value", o->name);
    *(bool *)value = true;
    return BRIM_OK;
  }
  if (!equals && *i + 1 >= argc) return brim_fail(BRIM_ECONFIG, "option '%s' needs a value", o->name);
  const char *text = equals ? equals + 1 : argv[++*i];
  if (o->kind == BRIM_OPTION_STRING) {
    *(const char **)value = text;
    return BRIM_OK;
  }
  brim_cli_paths *paths = value;
  if (paths->count == BRIM_CLI_PATHS_MAX)
    return brim_fail(BRIM_ECONFIG, "%s given more than %d times", o->name, BRIM_CLI_PATHS_MAX);
  paths->path[paths->count++] = text;
  return BRIM_OK;
}

static const brim_option *find_option(const char *word, const brim_option *options)
{
  const size_t length = strcspn(word, "=");
  for (const brim_option *o = options; o->name; o++)
    if (strncmp(o->name, word, length) == 0 && o->name[length] == '\0') return o;
  return NULL;
}

/* Collects the operands among the words in out->word, which has room for all. */
static brim_status parse(int argc, char **argv, const brim_option *options, void *values, brim_operands *out)
{
  bool only_operands = false;
  for (int i = 1; i < argc; i++) {
    if (!only_operands && strcmp(argv[i], "--") == 0) {
      only_operands = true;
      continue;
    }
    if (only_operands || argv[i][0] != '-') {
      out->word[out->count] = argv[i];
      out->number[out->count++] = i;
      continue;
    }
    const brim_option *o = find_option(argv[i], options);
    if (!o) return unknown_option(argv[i], argv[i + 1], options);
    BRIM_TRY(take_value(argc, argv, &i, o, values));
  }
  return BRIM_OK;
}

brim_status brim_cli_parse(int argc, char **argv, const brim_option *options, void *values, brim_operands *out)
{
  *out = (brim_operands){0};
  out->word = BRIM_ARENA_NEW(&out->arena, const char *, argc + 1) + 1;
  out->number = BRIM_ARENA_NEW(&out->arena, int, argc + 1) + 1;
  return parse(argc, argv, options, values, out);
}

brim_status brim_cli_at_most(const brim_operands *operands, size_t most, const char *what)
{
  if (operands->count <= most) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG, "unexpected '%s': %s", operands->word[most], what);
}

int brim_cli_end(brim_status status, brim_operands *operands)
{
  brim_arena_release(&operands->arena);
  return status == BRIM_OK ? 0 : brim_cli_fail(status);
}

brim_status brim_cli_take_globals(brim_cli *cli, int *argc, char **argv)
{
  int kept = 1;
  for (int i = 1; i < *argc; i++) {
    const brim_option *o = NULL;
    if (strcmp(argv[i], "--") == 0) {
      while (i < *argc) argv[kept++] = argv[i++];
      break;
    }
    if (argv[i][0] == '-') o = find_option(argv[i], globals);
    if (o)
      BRIM_TRY(take_value(*argc, argv, &i, o, cli));
    else
      argv[kept++] = argv[i];
  }
  *argc = kept;
  brim_cli_hush(cli, false);
  return BRIM_OK;
}

size_t brim_cli_global_words(const brim_cli *cli, const char **out)
{
  size_t n = 0;
  for (size_t i = 0; i < cli->plugin_paths.count; i++) {
    out[n++] = "--plugin-path";
    out[n++] = cli->plugin_paths.path[i];
  }
  for (size_t i = 0; i < cli->config_paths.count; i++) {
    out[n++] = "--config-path";
    out[n++] = cli->config_paths.path[i];
  }
  if (cli->config_name) {
    out[n++] = "--config-name";
    out[n++] = cli->config_name;
  }
  if (cli->quiet) out[n++] = "--quiet";
  if (cli->verbose) out[n++] = "--verbose";
  return n;
}

/* ---- keys with dashes ---- */

/* Whether the word is a key or a group of the core, or an old name of one. */
static bool is_top_key(const char *name)
{
  if (brim_alias_find(name)) return true;
  for (const brim_group *g = brim_config_groups; g->name; g++)
    if (strcmp(name, g->name) == 0) return true;
  for (const brim_section *s = brim_settings_sections; s->path; s++) {
    if (strcmp(name, s->path) == 0) return true;
    for (const brim_setting *row = s->path[0] ? NULL : s->table; row && row->param.key; row++)
      if (strcmp(name, row->param.key) == 0) return true;
  }
  return false;
}

/* Whether the word is the value of the option before it, and not an option or an override. */
static bool is_value(const char *word)
{
  char *end;
  if (!word[0]) return false;
  (void)strtod(word, &end);
  return *end == '\0' || (word[0] != '-' && !strchr(word, '='));
}

void brim_cli_take_dashes(int argc, char **argv, const brim_option *options, char *filler, brim_arena *arena)
{
  for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
    const char *value = strchr(argv[i], '=');
    if (strncmp(argv[i], "--", 2) != 0 || find_option(argv[i], options)) continue;
    char *key = brim_arena_string_n(arena, bare(argv[i]), strcspn(bare(argv[i]), "="));
    for (char *c = key; *c; c++)
      if (*c == '-') *c = '_';
    const bool takes_next = !value && i + 1 < argc && is_value(argv[i + 1]);
    if (!is_top_key(key) || (!value && !takes_next)) continue;
    char *word = brim_arena_printf(arena, "%s=%s", key, value ? value + 1 : argv[i + 1]);
    brim_log(BRIM_LOG_INFO, "%s%s%s is taken as %s: keys have no dashes", argv[i], takes_next ? " " : "",
             takes_next ? argv[i + 1] : "", word);
    argv[i] = word;
    if (takes_next) argv[++i] = filler;
  }
}

void brim_cli_quote(const char *const *word, brim_text *out)
{
  for (size_t i = 0; word[i]; i++) {
    if (i > 0) brim_text_add(out, " ");
    brim_text_add_quoted(out, word[i]);
  }
}

brim_status brim_cli_whole_number(const char *option, const char *text, int64_t least, int64_t most, int64_t *out)
{
  char *end = NULL;
  if (!text) return BRIM_OK;
  errno = 0;
  const long long value = strtoll(text, &end, 10);
  if (end == text || *end || errno || value < least || value > most)
    return brim_fail(BRIM_ECONFIG, "%s must be a whole number in [%" PRId64 ",%" PRId64 "], got '%s'", option, least,
                     most, text);
  *out = value;
  return BRIM_OK;
}
