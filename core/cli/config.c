/* brim config: what a run would be configured with, from where, and what there is to choose from. */
#include <stdio.h>

#include "base/install.h"
#include "cli/cli.h"

typedef struct config_options {
  bool origins, groups, schema;
} config_options;

static brim_status write_out(const brim_text *text)
{
  const bool failed = fputs(brim_text_str(text), stdout) < 0 || fflush(stdout) != 0;
  return failed ? brim_fail(BRIM_EIO, "the configuration could not be written to standard output") : BRIM_OK;
}

static brim_status print_groups(const brim_cli *cli, brim_text *out)
{
  const char *search[sizeof cli->config_path / sizeof cli->config_path[0] + 1];
  char installed[4096];
  size_t count = 0;
  for (; count < cli->config_path_count; count++) search[count] = cli->config_path[count];
  if (brim_install_dir(installed, sizeof installed, BRIM_INSTALL_CONFIGS)) search[count++] = installed;
  const brim_config_request request = {.search = search, .search_count = count, .name = cli->config_name};
  return brim_config_print_groups(&request, cli->registry, out);
}

static brim_status print_config(brim_cli *cli, const config_options *options, const char *const *operand,
                                const int *number, size_t count, brim_text *out)
{
  if (options->groups) return print_groups(cli, out);
  if (options->schema && count == 0) { /* of everything there is; with overrides, of what they choose */
    brim_config_print_schema(NULL, cli->registry, out);
    return BRIM_OK;
  }
  brim_config *config = NULL;
  cli->allow_missing = true; /* to show what is missing is what one looks for */
  BRIM_TRY(brim_cli_config(cli, NULL, operand, number, count, &config));
  if (options->schema)
    brim_config_print_schema(config, cli->registry, out);
  else
    brim_config_print(config, out, options->origins);
  brim_config_free(config);
  return BRIM_OK;
}

int brim_command_config(brim_cli *cli, int argc, char **argv)
{
  config_options options = {0};
  const brim_option option[] = {{"--origins", BRIM_OPTION_FLAG, &options.origins},
                                {"--groups", BRIM_OPTION_FLAG, &options.groups},
                                {"--schema", BRIM_OPTION_FLAG, &options.schema}};
  brim_arena arena = {0};
  const char **operand = BRIM_ARENA_NEW(&arena, const char *, argc);
  int *number = BRIM_ARENA_NEW(&arena, int, argc);
  size_t count = 0;
  brim_text out = {0};
  brim_status status = brim_cli_parse(argc, argv, option, sizeof option / sizeof option[0], operand, number, &count);
  if (status == BRIM_OK && options.origins + options.groups + options.schema > 1)
    status = brim_fail(BRIM_ECONFIG, "--origins, --groups and --schema are printed one at a time");
  if (status == BRIM_OK && options.groups && count > 0)
    status = brim_fail(BRIM_ECONFIG, "'%s' is too much: --groups takes no overrides", operand[0]);
  if (status == BRIM_OK) status = print_config(cli, &options, operand, number, count, &out);
  if (status == BRIM_OK) status = write_out(&out);
  brim_text_release(&out);
  brim_arena_release(&arena);
  return status == BRIM_OK ? 0 : brim_cli_fail(status);
}
