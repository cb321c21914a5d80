/* The table of commands, and the program's start and end. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crash.h"
#include "base/fault.h"
#include "base/guard.h"
#include "base/log.h"
#include "builtin/builtin.h"
#include "cli/cli.h"
#include "memory/live.h"

#define LARGE_BLOCK_BYTES (128 * 1024)

const brim_command *const brim_commands[] = {
    &brim_command_train,  &brim_command_federate, &brim_command_start,    &brim_command_eval,     &brim_command_predict,
    &brim_command_export, &brim_command_generate, &brim_command_plan,     &brim_command_simulate, &brim_command_compare,
    &brim_command_report, &brim_command_runs,     &brim_command_trace,    &brim_command_config,   &brim_command_plugins,
    &brim_command_new,    &brim_command_check,    &brim_command_data,     &brim_command_devices,  &brim_command_monitor,
    &brim_command_doctor, &brim_command_ops,      &brim_command_complete, &brim_command_version,  NULL};

static brim_status check_config_path(const brim_cli *cli)
{
  for (size_t i = 0; i < cli->config_paths.count; i++) {
    const char *path = cli->config_paths.path[i];
    DIR *folder = opendir(path);
    if (!folder) return brim_fail(BRIM_ELOAD, "cannot look for configurations in '%s': %s", path, strerror(errno));
    closedir(folder);
  }
  return BRIM_OK;
}

/* Returns the command for a word that other programs use as a command, or for an override without a command. */
static const char *other_command(const char *word)
{
  static const struct {
    const char *name, *here;
  } others[] = {{"sweep", "brim train -m KEY=A,B"},
                {"multirun", "brim train -m KEY=A,B"},
                {"resume", "brim train --resume RUN"},
                {"evaluate", "brim eval RUN"},
                {"test", "brim eval RUN"},
                {"infer", "brim predict RUN FILE..."},
                {"run", "brim train"},
                {"fit", "brim train"}};
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
    if (brim_typo_distance(word, others[i].name) == 0) return others[i].here;
  return NULL;
}

static int unknown_command(const char *word, const char *next)
{
  const char *best = NULL, *other = other_command(word);
  int distance = INT_MAX;
  if (word[0] == '-')
    return brim_cli_fail(
        brim_fail_add(brim_cli_unknown_word(word, next), "`brim --help` lists the commands and options"));
  for (const brim_command *const *c = brim_commands; *c; c++) brim_suggest(word, (*c)->name, &distance, &best);
  brim_fail(BRIM_ECONFIG, "unknown command '%s'", word);
  if (other)
    brim_fail_add(BRIM_ECONFIG, "in brim this is: %s", other);
  else if (strchr(word, '='))
    brim_fail_add(BRIM_ECONFIG, "an override goes after a command: brim train %s", BRIM_QUOTED(word));
  else if (best)
    brim_fail_add(BRIM_ECONFIG, "did you mean 'brim %s'?", best);
  return brim_cli_fail(brim_fail_add(BRIM_ECONFIG, "`brim --help` lists the commands"));
}

static bool asks_for_help(int argc, char **argv)
{
  for (int i = 1; i < argc; i++)
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
  return false;
}

static int run_command(brim_cli *cli, int argc, char **argv)
{
  for (const brim_command *const *c = brim_commands; *c; c++) {
    if (strcmp(argv[0], (*c)->name) != 0) continue;
    if (asks_for_help(argc, argv)) return brim_cli_print_command_help(cli, *c);
    brim_status status = check_config_path(cli);
    if (status == BRIM_OK)
      status = brim_registry_open(brim_core_plugins, cli->plugin_paths.path, cli->plugin_paths.count, &cli->registry);
    if (status != BRIM_OK) return brim_cli_fail(status);
    if ((*c)->is_live) brim_live_command((*c)->name);
    const int result = (*c)->run(cli, argc, argv);
    brim_live_end();
    brim_registry_free(cli->registry);
    return result;
  }
  return unknown_command(argv[0], argv[1]);
}

/* Opens closed standard streams: otherwise a file of the run would get the descriptor, and messages would be written
 * into it. */
static void open_standard_streams(void)
{
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0) return;
}

static int run_program(brim_cli *cli, int argc, char **argv)
{
  brim_status status = brim_fault_open(getenv(BRIM_FAULT_ENVIRONMENT), getenv(BRIM_FAULT_REPORT_ENVIRONMENT));
  if (status == BRIM_OK) status = brim_cli_take_globals(cli, &argc, argv);
  if (status != BRIM_OK) return brim_cli_fail(status);
  if (argc < 2) {
    brim_cli_print_help(cli, stderr);
    return brim_status_exit(BRIM_ECONFIG);
  }
  if (argc > 2 && strcmp(argv[1], "help") == 0 && argv[2][0] != '-') { /* brim help COMMAND */
    argv[1] = argv[2];
    argv[2] = (char *)"--help";
  } else if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
    brim_cli_print_help(cli, stdout);
    return 0;
  }
  if (strcmp(argv[1], "--version") == 0) argv[1] = (char *)"version";
  return run_command(cli, argc - 1, argv + 1);
}

/* Returns large blocks to the system when they are freed. By default glibc caches blocks up to the size of the largest
 * one freed so far (at most 64 MiB), so the memory of the process would depend on the order of its earlier work. */
static void give_back_large_blocks(void)
{
#ifdef M_MMAP_THRESHOLD
  mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES);
#endif
}

static int check_output(int result, bool is_written, const char *why)
{
  if (result != 0 || is_written) return result;
  return brim_cli_fail(brim_fail(BRIM_EIO, "cannot write to standard output%s%s", why[0] ? ": " : "", why));
}

/* The reason why standard output lacks something: errno of the last write, or "" if an earlier write had failed. */
static const char *write_reason(void)
{
  return errno ? strerror(errno) : "";
}

/* Ends the process without exit() if a thread was abandoned, because that thread may hold any lock that exit()
 * needs. */
static void leave_lost_threads(int result)
{
  if (!brim_guard_any_lost()) return;
  const bool is_free = ftrylockfile(stdout) == 0;
  errno = 0;
  const bool is_written = is_free && fflush_unlocked(stdout) == 0 && !ferror_unlocked(stdout);
  const char *why = is_free ? write_reason() : "an abandoned thread holds it";
  if (ftrylockfile(stderr) == 0) result = check_output(result, is_written, why);
  _exit(result != 0 || is_written ? result : brim_status_exit(BRIM_EIO));
}

int brim_main(int argc, char **argv)
{
  brim_cli cli = {.commands = brim_commands, .start = brim_now()};
  brim_crash_watch();
  brim_log_read_environment();
  give_back_large_blocks();
  open_standard_streams();
  signal(SIGXFSZ, SIG_IGN); /* so that a file-size limit makes write() fail instead of ending the process */
  const int result = run_program(&cli, argc, argv);
  brim_fault_close();
  leave_lost_threads(result);
  brim_crash_allow_exit();
  if (result != 0) return result;
  errno = 0;
  const bool is_written = fflush(stdout) == 0 && !ferror(stdout);
  return check_output(result, is_written, write_reason());
}
