/* The words of a command line: options, taken by table, and operands. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "cli/cli.h"

/* Set while a command runs only for the sake of its options. */
typedef struct option_listing {
  brim_option *row;
  size_t count, room;
} option_listing;
static option_listing *listing;

static brim_status list_options(const brim_option *option, size_t count)
{
  for (size_t i = 0; i < count && listing->count < listing->room; i++)
    if (option[i].kind != BRIM_OPTION_HIDDEN) listing->row[listing->count++] = option[i];
  return brim_fail(BRIM_EINTERRUPTED, "only the options were asked for");
}

size_t brim_cli_options(const brim_command *command, brim_option *out, size_t room)
{
  brim_cli cli = {0};
  char *argv[] = {(char *)(command ? command->name : "brim"), NULL};
  int argc = 1;
  option_listing all = {out, 0, room};
  listing = &all;
  if (command)
    command->run(&cli, argc, argv);
  else
    brim_cli_take_globals(&cli, &argc, argv);
  listing = NULL;
  return all.count;
}

void brim_cli_list_options(const brim_command *command, brim_text *out)
{
  brim_option row[BRIM_CLI_OPTIONS_MAX];
  const size_t count = brim_cli_options(command, row, BRIM_CLI_OPTIONS_MAX);
  for (size_t i = 0; i < count; i++)
    brim_text_printf(out, "%s%s\n", row[i].name, row[i].kind == BRIM_OPTION_STRING ? "=" : "");
}

int brim_cli_fail(brim_status status)
{
  if (listing) return brim_status_exit(status);
  if (status == BRIM_EINTERRUPTED)
    brim_log(BRIM_LOG_WARN, "%s", brim_error_text());
  else
    brim_log_error();
  return brim_status_exit(status);
}

/* The name of an option without dashes, which people mistype too. */
static const char *bare(const char *word)
{
  return word + strspn(word, "-");
}

/* Options of Hydra's, and what they are here. */
static const struct {
  const char *option, *here;
} hydra_options[] = {
    {"--config-dir", "--config-path DIR"},  {"-cd", "--config-path DIR"},    {"-cp", "--config-path DIR"},
    {"-cn", "--config-name NAME"},          {"--cfg", "brim config"},        {"-c", "brim config"},
    {"--info", "brim config --origins"},    {"-i", "brim config --origins"}, {"--resolve", "brim config"},
    {"--shell-completion", "brim complete"}};

/* A name without what people write differently. */
static bool is_same_name(const char *a, const char *b)
{
  return brim_typo_distance(a, b) == 0;
}

/* The key that a name is or ends, "optimizer.lr" for "lr"; or NULL. Knows only the keys that need no files. */
static const char *key_of(const char *name, char *out, size_t room)
{
  if (strchr(name, '.')) {
    snprintf(out, room, "%s", name);
    return out;
  }
  for (const brim_group *g = brim_config_groups; g->name; g++)
    if (is_same_name(name, g->name)) return g->name;
  for (const brim_section *s = brim_settings_sections; s->path; s++)
    for (const brim_param *row = s->table; row->key; row++) {
      if (!is_same_name(name, row->key)) continue;
      snprintf(out, room, "%s%s%s", s->path, s->path[0] ? "." : "", row->key);
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

/* What was meant by an option that there is not: one of Hydra's, or a key that was written with dashes. `next`: the
 * word after it; NULL: none. */
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

static brim_status unknown_option(const char *word, const char *next, const brim_option *option, size_t count)
{
  const char *best = NULL, *meant = NULL;
  char name[64]; /* longer than any option, and so enough to compare */
  int distance = INT_MAX;
  snprintf(name, sizeof name, "%.*s", (int)strcspn(bare(word), "="), bare(word));
  for (size_t i = 0; i < count; i++) {
    if (option[i].kind != BRIM_OPTION_HIDDEN) brim_suggest(name, bare(option[i].name), &distance, &best);
    if (best == bare(option[i].name)) meant = option[i].name;
  }
  const brim_status status = brim_fail(BRIM_ECONFIG, "unknown option '%s'", word);
  if (distance > 0 && hint_other_option(status, word, next)) return status;
  return meant ? brim_fail_add(status, "did you mean '%s'?", meant) : status;
}

/* The value of option `o` in word `i`: behind '=', or the next word. */
static brim_status take_value(int argc, char **argv, int *i, const brim_option *o)
{
  const char *equals = strchr(argv[*i], '=');
  if (o->kind != BRIM_OPTION_STRING) {
    if (equals) return brim_fail(BRIM_ECONFIG, "option '%s' takes no value", o->name);
    *(bool *)o->value = true;
    return BRIM_OK;
  }
  if (!equals && *i + 1 >= argc) return brim_fail(BRIM_ECONFIG, "option '%s' needs a value", o->name);
  *(const char **)o->value = equals ? equals + 1 : argv[++*i];
  return BRIM_OK;
}

static const brim_option *find_option(const char *word, const brim_option *option, size_t count)
{
  const size_t length = strcspn(word, "=");
  for (size_t i = 0; i < count; i++)
    if (strncmp(option[i].name, word, length) == 0 && option[i].name[length] == '\0') return &option[i];
  return NULL;
}

/* The operands among the words, in out->word, which has room. */
static brim_status parse(int argc, char **argv, const brim_option *option, size_t option_count, brim_operands *out)
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
    const brim_option *o = find_option(argv[i], option, option_count);
    if (!o) return unknown_option(argv[i], argv[i + 1], option, option_count);
    BRIM_TRY(take_value(argc, argv, &i, o));
  }
  return BRIM_OK;
}

brim_status brim_cli_parse(int argc, char **argv, const brim_option *option, size_t option_count, brim_operands *out)
{
  *out = (brim_operands){0};
  if (listing) return list_options(option, option_count);
  out->word = BRIM_ARENA_NEW(&out->arena, const char *, argc + 1) + 1;
  out->number = BRIM_ARENA_NEW(&out->arena, int, argc + 1) + 1;
  return parse(argc, argv, option, option_count, out);
}

brim_status brim_cli_at_most(const brim_operands *operands, size_t most, const char *what)
{
  if (operands->count <= most) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG, "'%s' is too much: %s", operands->word[most], what);
}

int brim_cli_end(brim_status status, brim_operands *operands)
{
  brim_arena_release(&operands->arena);
  return status == BRIM_OK ? 0 : brim_cli_fail(status);
}

/* One more value of an option that may repeat. */
static brim_status add_path(const char **path, size_t *count, const brim_option *o)
{
  if (*count == BRIM_CLI_PATHS_MAX)
    return brim_fail(BRIM_ECONFIG, "%s given more than %d times", o->name, BRIM_CLI_PATHS_MAX);
  path[(*count)++] = *(const char **)o->value;
  return BRIM_OK;
}

brim_status brim_cli_take_globals(brim_cli *cli, int *argc, char **argv)
{
  const char *plugin_path = NULL, *config_path = NULL, *config_name = NULL;
  bool verbose = false, quiet = false;
  const brim_option option[] = {
      {"--plugin-path", BRIM_OPTION_STRING, &plugin_path, "DIR|FILE",
       "look for plugins there first (may repeat; also BRIM_PLUGIN_PATH)"},
      {"--config-path", BRIM_OPTION_STRING, &config_path, "DIR", "look for configurations there first (may repeat)"},
      {"--config-name", BRIM_OPTION_STRING, &config_name, "NAME", "the root configuration (default: config)"},
      {"--verbose", BRIM_OPTION_FLAG, &verbose, NULL, "more of progress and information"},
      {"--quiet", BRIM_OPTION_FLAG, &quiet, NULL, "only warnings and errors"}};
  int kept = 1;
  if (listing) return list_options(option, sizeof option / sizeof option[0]);
  for (int i = 1; i < *argc; i++) {
    const brim_option *o = NULL;
    if (strcmp(argv[i], "--") == 0) {
      while (i < *argc) argv[kept++] = argv[i++];
      break;
    }
    if (argv[i][0] == '-') o = find_option(argv[i], option, sizeof option / sizeof option[0]);
    if (!o) {
      argv[kept++] = argv[i];
      continue;
    }
    BRIM_TRY(take_value(*argc, argv, &i, o));
    if (o->value == (void *)&plugin_path) BRIM_TRY(add_path(cli->plugin_path, &cli->plugin_path_count, o));
    if (o->value == (void *)&config_path) BRIM_TRY(add_path(cli->config_path, &cli->config_path_count, o));
  }
  *argc = kept;
  cli->config_name = config_name;
  cli->quiet = quiet;
  cli->verbose = verbose;
  brim_cli_hush(cli, false);
  return BRIM_OK;
}

size_t brim_cli_global_words(const brim_cli *cli, const char **out)
{
  size_t n = 0;
  for (size_t i = 0; i < cli->plugin_path_count; i++) {
    out[n++] = "--plugin-path";
    out[n++] = cli->plugin_path[i];
  }
  for (size_t i = 0; i < cli->config_path_count; i++) {
    out[n++] = "--config-path";
    out[n++] = cli->config_path[i];
  }
  if (cli->config_name) {
    out[n++] = "--config-name";
    out[n++] = cli->config_name;
  }
  if (cli->quiet) out[n++] = "--quiet";
  if (cli->verbose) out[n++] = "--verbose";
  return n;
}

static void quote_word(const char *word, brim_text *out)
{
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%";
  if (word[0] && strspn(word, plain) == strlen(word)) {
    brim_text_add(out, word);
    return;
  }
  brim_text_add(out, "'");
  for (; *word; word++) brim_text_add_n(out, *word == '\'' ? "'\\''" : word, *word == '\'' ? 4 : 1);
  brim_text_add(out, "'");
}

void brim_cli_quote(const char *const *word, brim_text *out)
{
  for (size_t i = 0; word[i]; i++) {
    if (i > 0) brim_text_add(out, " ");
    quote_word(word[i], out);
  }
}
