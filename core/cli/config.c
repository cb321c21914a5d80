/* brim config: what a run would be configured with, from where, and what there is to choose from. */
#include <stdio.h>

#include "cli/cli.h"

typedef struct config_options {
  bool origins, groups, schema;
} config_options;

static brim_status print_groups(const brim_cli *cli, brim_text *out)
{
  brim_cli_search search;
  brim_cli_search_path(cli, &search);
  const brim_config_request request = {.search = search.folder, .search_count = search.count, .name = cli->config_name};
  return brim_config_print_groups(&request, cli->registry, out);
}

static brim_status print_config(brim_cli *cli, const config_options *options, const brim_operands *operands,
                                brim_text *out)
{
  if (options->groups) return print_groups(cli, out);
  if (options->schema && operands->count == 0) { /* of everything there is; with overrides, of what they choose */
    brim_config_print_schema(NULL, cli->registry, out);
    return BRIM_OK;
  }
  brim_config *config = NULL;
  cli->allow_missing = true; /* to show what is missing is what one looks for */
  BRIM_TRY(brim_cli_config(cli, NULL, operands->word, operands->number, operands->count, &config));
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
  const brim_option option[] = {
      {"--origins", BRIM_OPTION_FLAG, &options.origins, NULL, "with where each value comes from"},
      {"--groups", BRIM_OPTION_FLAG, &options.groups, NULL, "the groups and their options"},
      {"--schema", BRIM_OPTION_FLAG, &options.schema, NULL, "every key with type, default, range and help"}};
  brim_operands operands;
  brim_text out = {0};
  brim_status status = brim_cli_parse(argc, argv, option, sizeof option / sizeof option[0], &operands);
  if (status == BRIM_OK && options.origins + options.groups + options.schema > 1)
    status = brim_fail(BRIM_ECONFIG, "--origins, --groups and --schema are printed one at a time");
  if (status == BRIM_OK && options.groups) status = brim_cli_at_most(&operands, 0, "--groups takes no overrides");
  if (status == BRIM_OK) status = print_config(cli, &options, &operands, &out);
  if (status == BRIM_OK) fputs(brim_text_str(&out), stdout);
  brim_text_release(&out);
  return brim_cli_end(status, &operands);
}
