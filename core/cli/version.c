/* brim version: prints the details that a bug report needs. */
#include <stdio.h>

#include "cli/cli.h"

#ifdef __clang__
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

/* Formats the ABI for which plugins must be built: "0.1". */
static void format_abi(char *out, size_t room)
{
  snprintf(out, room, "%d.%d", BRIM_ABI_MAJOR, BRIM_ABI_MINOR);
}

static int run_command(brim_cli *cli, int argc, char **argv)
{
  (void)cli;
  bool json = false;
  char abi[16];
  brim_operands operands;
  brim_status status = brim_cli_parse(argc, argv, brim_cli_only_json, &json, &operands);
  if (status == BRIM_OK) status = brim_cli_at_most(&operands, 0, "brim version takes no arguments");
  format_abi(abi, sizeof abi);
  if (status == BRIM_OK && json)
    status = brim_cli_print_json(json_pack("{s:s, s:s, s:s, s:s}", "version", BRIM_VERSION, "abi", abi, "abi_tag",
                                           BRIM_ABI_TAG, "compiler", COMPILER));
  else if (status == BRIM_OK)
    printf("brim %s\nplugin abi %s (%s)\ncompiled by %s\n", BRIM_VERSION, abi, BRIM_ABI_TAG, COMPILER);
  return brim_cli_end(status, &operands);
}

const brim_command brim_command_version = {"version", "show the version", run_command,
                                           "usage: brim version [--json]\n"
                                           "\n"
                                           "  brim version           the version, the plugin ABI and the compiler\n"
                                           "  brim version --json    the same, as JSON\n",
                                           brim_cli_only_json};
