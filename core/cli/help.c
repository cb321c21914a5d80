/* What `brim --help` and `brim COMMAND --help` print: the commands' texts, and the options from the tables that the
 * commands parse by. The manual pages (docs/man/make_pages.c) are made of the same. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "builtin/builtin.h"
#include "cli/cli.h"

size_t brim_cli_format_option(const brim_option *row, size_t count, brim_text *out)
{
  size_t rows = 1;
  brim_text_add(out, row->name);
  for (; rows < count && !row[rows - 1].help && row[rows].value == row->value; rows++)
    brim_text_printf(out, ", %s", row[rows].name);
  if (row->takes) brim_text_printf(out, " %s", row->takes);
  return rows;
}

/* "  -o, --output FILE   where to ..." */
static void print_options(const brim_command *command, FILE *out)
{
  brim_option row[BRIM_CLI_OPTIONS_MAX];
  const size_t count = brim_cli_options(command, row, BRIM_CLI_OPTIONS_MAX);
  size_t width = 0;
  if (count > 0) fputs("\noptions:\n", out);
  for (int pass = 0; pass < 2; pass++) {
    for (size_t i = 0; i < count;) {
      brim_text name = {0};
      i += brim_cli_format_option(&row[i], count - i, &name);
      if (name.length > width) width = name.length;
      if (pass == 1)
        fprintf(out, "  %-*s   %s\n", (int)width, brim_text_str(&name), row[i - 1].help ? row[i - 1].help : "");
      brim_text_release(&name);
    }
  }
}

void brim_cli_print_help(FILE *out)
{
  fputs("brim trains neural networks with memory that is known before the run.\n"
        "\n"
        "usage: brim [options] COMMAND [...]\n"
        "\n"
        "commands:\n",
        out);
  for (const brim_command *c = brim_commands; c->name; c++) fprintf(out, "  %-10s %s\n", c->name, c->help);
  print_options(NULL, out);
  fputs("\n"
        "`brim COMMAND --help` says more, and so does `man brim`. Exit status: 0 done, 2 usage or configuration, 3 a\n"
        "plugin or file could not be loaded, 4 no device or plan fits, 5 training failed, 6 interrupted (can be\n"
        "resumed).\n"
        "For tests, BRIM_FAULT=alloc:17,step:3:lib:conv in the environment has calls fail (docs/faults.md).\n",
        out);
}

int brim_cli_print_command_help(brim_cli *cli, const brim_command *command)
{
  printf("brim %s: %s\n\n%s", command->name, command->help, command->usage);
  print_options(command, stdout);
  if (!strstr(command->usage, "key=value")) return 0;
  if (command->run != brim_command_train) {
    puts("\n`brim train --help` lists the keys, with type, default, range and meaning.");
    return 0;
  }
  brim_text keys = {0};
  if (brim_registry_open(brim_core_plugins, cli->plugin_path, cli->plugin_path_count, &cli->registry) != BRIM_OK)
    return brim_cli_fail(BRIM_ELOAD);
  brim_config_print_schema(NULL, cli->registry, &keys);
  printf("\nkeys, with type, default, range and meaning:\n\n%s", brim_text_str(&keys));
  brim_text_release(&keys);
  brim_registry_free(cli->registry);
  return 0;
}
