/* The output of `brim --help` and `brim COMMAND --help`: the commands' texts, and the options from the tables with
 * which the commands parse. The manual pages (docs/man/make_pages.c) use the same sources. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "builtin/builtin.h"
#include "cli/cli.h"

const char *brim_cli_format_option(const brim_option **row, brim_text *out)
{
  const brim_option *o = *row;
  while (o->kind == BRIM_OPTION_HIDDEN) o++;
  if (!o->name) return NULL;
  brim_text_add(out, o->name);
  for (; !o->help; o++) brim_text_printf(out, ", %s", o[1].name);
  if (o->takes) brim_text_printf(out, " %s", o->takes);
  *row = o + 1;
  return o->help;
}

/* Prints the options, each as "  -o, --output FILE   where to ...". */
static void print_options(const brim_command *command, FILE *out)
{
  size_t width = 0;
  const char *help;
  brim_text name = {0};
  for (int pass = 0; pass < 2; pass++) {
    const brim_option *row = brim_cli_options(command);
    for (; (help = brim_cli_format_option(&row, &name)); brim_text_clear(&name)) {
      if (pass == 0 && width == 0) fputs("\noptions:\n", out);
      if (name.length > width) width = name.length;
      if (pass == 1) fprintf(out, "  %-*s   %s\n", (int)width, brim_text_str(&name), help);
    }
  }
  brim_text_release(&name);
}

void brim_cli_print_help(const brim_cli *cli, FILE *out)
{
  fputs("brim trains neural networks within a memory budget that is planned exactly before the run.\n"
        "\n"
        "usage: brim [options] COMMAND [...]\n"
        "\n"
        "commands:\n",
        out);
  for (const brim_command *const *c = cli->commands; *c; c++) fprintf(out, "  %-10s %s\n", (*c)->name, (*c)->help);
  print_options(NULL, out);
  fputs("\n"
        "See `brim COMMAND --help` and `man brim` for details. Exit status: 0 done, 2 usage or configuration error,\n"
        "3 a plugin or file could not be loaded, 4 no device or plan fits, 5 training failed, 6 interrupted (can be\n"
        "resumed).\n"
        "For tests, BRIM_FAULT=alloc:17,step:3:lib:conv in the environment makes calls fail (docs/faults.md).\n",
        out);
}

int brim_cli_print_command_help(brim_cli *cli, const brim_command *command)
{
  printf("brim %s: %s\n\n%s", command->name, command->help, command->usage);
  print_options(command, stdout);
  if (!strstr(command->usage, "key=value")) return 0;
  if (command != &brim_command_train) {
    puts("\n`brim train --help` lists the keys, with type, default, range and meaning.");
    return 0;
  }
  brim_text keys = {0};
  if (brim_registry_open(brim_core_plugins, cli->plugin_paths.path, cli->plugin_paths.count, &cli->registry) != BRIM_OK)
    return brim_cli_fail(BRIM_ELOAD);
  brim_config_print_schema(NULL, cli->registry, &keys);
  printf("\nkeys, with type, default, range and meaning:\n\n%s", brim_text_str(&keys));
  brim_text_release(&keys);
  brim_registry_free(cli->registry);
  return 0;
}
