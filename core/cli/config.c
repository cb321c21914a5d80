/* brim config: shows a run's configuration and the origin of its values, and the available choices. */
#include <stdio.h>

#include "cli/cli.h"

typedef struct config_options {
  bool origins, groups, schema;
} config_options;

static brim_status print_config(brim_cli *cli, const config_options *options, const brim_operands *operands,
                                brim_text *out)
{
  if (options->groups) {
    brim_cli_search search;
    brim_cli_search_path(cli, &search);
    const brim_config_request request = {
        .search = search.folder, .search_count = search.count, .name = cli->config_name};
    return brim_config_print_groups(&request, cli->registry, out);
  }
  /* Without overrides, all keys; otherwise those of the chosen options. */
  if (options->schema && operands->count == 0) {
    brim_config_print_schema(NULL, cli->registry, out);
    return BRIM_OK;
  }
  brim_config *config = NULL;
  cli->allow_missing = true; /* the command exists to show missing values */
  BRIM_TRY(brim_cli_config(cli, NULL, operands->word, operands->number, operands->count, &config));
  if (options->schema)
    brim_config_print_schema(config, cli->registry, out);
  else
    brim_config_print(config, out, options->origins);
  brim_config_free(config);
  return BRIM_OK;
}

static const brim_option options[] = {
    {"--origins", BRIM_CLI_FLAG(config_options, origins), NULL, "show where each value comes from"},
    {"--groups", BRIM_CLI_FLAG(config_options, groups), NULL, "list the groups and their options"},
    {"--schema", BRIM_CLI_FLAG(config_options, schema), NULL, "list every key with type, default, range and meaning"},
    {NULL}};

static int run_command(brim_cli *cli, int argc, char **argv)
{
  config_options o = {0};
  brim_operands operands;
  brim_text out = {0};
  brim_status status = brim_cli_parse(argc, argv, options, &o, &operands);
  if (status == BRIM_OK && o.origins + o.groups + o.schema > 1)
    status = brim_fail(BRIM_ECONFIG, "--origins, --groups and --schema exclude each other: give one of them");
  if (status == BRIM_OK && o.groups)
    status = brim_cli_at_most(&operands, 0, "--groups takes no overrides: leave them out");
  if (status == BRIM_OK) status = print_config(cli, &o, &operands, &out);
  if (status == BRIM_OK) fputs(brim_text_str(&out), stdout);
  brim_text_release(&out);
  return brim_cli_end(status, &operands);
}

const brim_command brim_command_config = {
    "config", "show the configuration of a run", run_command,
    "usage: brim config [group=option | key=value]... [--origins | --groups | --schema]\n"
    "\n"
    "  brim config                                  the values of a run, as a configuration in YAML\n"
    "  brim config model=mlp 'run.name=x-${seed}'   with changes, and ${...} replaced\n"
    "  brim --config-path my config --origins       from your own folder, with the origin of each value\n"
    "\n"
    "??? marks a required value that is not set.\n",
    options};
