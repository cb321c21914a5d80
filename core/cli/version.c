/* brim version: what a bug report needs. */
#include <jansson.h>
#include <stdio.h>

#include "base/arena.h"
#include "cli/cli.h"

#ifdef __clang__
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

/* What plugins must be built for: "0.1". */
static void format_abi(char *out, size_t room)
{
  snprintf(out, room, "%d.%d", BRIM_ABI_MAJOR, BRIM_ABI_MINOR);
}

static brim_status print_json(const char *abi)
{
  json_t *root = json_pack("{s:s, s:s, s:s, s:s}", "version", BRIM_VERSION, "abi", abi, "abi_tag", BRIM_ABI_TAG,
                           "compiler", COMPILER);
  const int failed = !root || json_dumpf(root, stdout, JSON_INDENT(2)) != 0 || putchar('\n') == EOF;
  json_decref(root);
  return failed ? brim_fail(BRIM_EIO, "the version could not be written") : BRIM_OK;
}

int brim_command_version(brim_cli *cli, int argc, char **argv)
{
  (void)cli;
  bool json = false;
  const brim_option options[] = {{"--json", BRIM_OPTION_FLAG, &json}};
  brim_arena arena = {0};
  const char **operand = BRIM_ARENA_NEW(&arena, const char *, argc);
  int *number = BRIM_ARENA_NEW(&arena, int, argc);
  size_t count = 0;
  brim_status status = brim_cli_parse(argc, argv, options, 1, operand, number, &count);
  if (status == BRIM_OK && count > 0)
    status = brim_fail(BRIM_ECONFIG, "'%s' is too much: brim version takes no words", operand[0]);
  char abi[16];
  format_abi(abi, sizeof abi);
  if (status == BRIM_OK && json)
    status = print_json(abi);
  else if (status == BRIM_OK)
    printf("brim %s\nplugin abi %s (%s)\ncompiled by %s\n", BRIM_VERSION, abi, BRIM_ABI_TAG, COMPILER);
  brim_arena_release(&arena);
  return status == BRIM_OK ? 0 : brim_cli_fail(status);
}
