/* The command line: one file a command. A command gets its own words (argv[0] is its name), prints results
 * on standard output, messages on standard error, and returns the exit status of the process. */
#ifndef BRIM_CLI_CLI_H
#define BRIM_CLI_CLI_H
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "config/config.h"
#include "plugin/registry.h"

#define BRIM_CLI_PATHS_MAX 32

typedef struct brim_cli {
  const char *plugin_path[BRIM_CLI_PATHS_MAX]; /* --plugin-path, in order */
  size_t plugin_path_count;
  const char *config_path[BRIM_CLI_PATHS_MAX]; /* --config-path, in order */
  size_t config_path_count;
  const char *config_name; /* --config-name; NULL: "config" */
  brim_registry *registry; /* opened before the command runs */
  bool quiet;              /* --quiet: no progress, no information */
  bool verbose;            /* --verbose: more of both */
  bool allow_missing;      /* show "???" for mandatory values without one */
  double start;            /* brim_now() when the program began */
} brim_cli;

typedef struct brim_command {
  const char *name, *help; /* one line */
  int (*run)(brim_cli *cli, int argc, char **argv);
  const char *usage; /* what `brim NAME --help` prints */
} brim_command;

extern const brim_command brim_commands[]; /* ends with name == NULL */

int brim_command_train(brim_cli *cli, int argc, char **argv);
int brim_command_eval(brim_cli *cli, int argc, char **argv);
int brim_command_predict(brim_cli *cli, int argc, char **argv);
int brim_command_export(brim_cli *cli, int argc, char **argv);
int brim_command_generate(brim_cli *cli, int argc, char **argv);
int brim_command_plan(brim_cli *cli, int argc, char **argv);
int brim_command_simulate(brim_cli *cli, int argc, char **argv);
int brim_command_start(brim_cli *cli, int argc, char **argv);
int brim_command_compare(brim_cli *cli, int argc, char **argv);
int brim_command_report(brim_cli *cli, int argc, char **argv);
int brim_command_complete(brim_cli *cli, int argc, char **argv);
int brim_command_config(brim_cli *cli, int argc, char **argv);
int brim_command_new(brim_cli *cli, int argc, char **argv);
int brim_command_check(brim_cli *cli, int argc, char **argv);
int brim_command_plugins(brim_cli *cli, int argc, char **argv);
int brim_command_devices(brim_cli *cli, int argc, char **argv);
int brim_command_ops(brim_cli *cli, int argc, char **argv);
int brim_command_version(brim_cli *cli, int argc, char **argv);

/* Words of a command that are options, taken from a table; what is left are its operands (overrides).
 * `--name value` and `--name=value` are both understood; after `--` everything is an operand. */
enum brim_option_kind {
  BRIM_OPTION_FLAG,
  BRIM_OPTION_STRING,
  BRIM_OPTION_HIDDEN /* a flag that people do not type */
};
typedef struct brim_option {
  const char *name; /* "--json" */
  enum brim_option_kind kind;
  void *value;       /* bool * or const char ** */
  const char *takes; /* "FILE": how the value is called; NULL of a flag */
  const char *help;  /* one line; NULL of another name for the value of the row behind it */
} brim_option;
/* What is left of a command's words when its options are taken. */
typedef struct brim_operands {
  const char **word; /* there is room for one more in front, at word[-1] and number[-1] */
  int *number;       /* of each word, for messages: from 1, the word after the command */
  size_t count;
  brim_arena arena; /* for what the command needs besides */
} brim_operands;
/* What a command begins with; it ends with brim_cli_end, whatever this returns. ECONFIG with did-you-mean for an
 * unknown option. */
brim_status brim_cli_parse(int argc, char **argv, const brim_option *option, size_t option_count, brim_operands *out);
/* ECONFIG for an option where a command should stand; `next`: the word after it, or NULL. */
brim_status brim_cli_unknown_word(const char *word, const char *next);
/* ECONFIG naming the first operand beyond `most`; `what` goes on: "brim version takes no words". */
brim_status brim_cli_at_most(const brim_operands *operands, size_t most, const char *what);
/* Releases the operands, prints the thread's error if there is one, and returns the exit status. */
int brim_cli_end(brim_status status, brim_operands *operands);

typedef struct brim_cli_search {
  const char *folder[BRIM_CLI_PATHS_MAX + BRIM_REGISTRY_CONFIGS_MAX + 1];
  size_t count;
  char installed[4096];
} brim_cli_search;
/* Where configurations are looked for: --config-path, then those that came with plugins (brim_registry_configs), then
 * the installed ones. The result must stay where it is. */
void brim_cli_search_path(const brim_cli *cli, brim_cli_search *out);
/* Composes the configuration from the command line's words. `file`: a resolved configuration instead of the search
 * path, or NULL. */
brim_status brim_cli_config(const brim_cli *cli, const char *file, const char *const *override, const int *number,
                            size_t count, brim_config **out);
/* Takes the global options out of argv, wherever they stand, into `cli`. */
brim_status brim_cli_take_globals(brim_cli *cli, int *argc, char **argv);
#define BRIM_CLI_OPTIONS_MAX 64
/* The rows of a command's options, or of the global ones (NULL), but for hidden ones; at most `room`. Returns how many.
 * Their values are gone, and only tell which rows are names of the same. They are what the command itself gives to
 * brim_cli_parse, which must therefore be the first thing that it does. */
size_t brim_cli_options(const brim_command *command, brim_option *out, size_t room);
/* The first of `count` rows with its other names: "-o, --output FILE". Returns how many rows those are; the last of
 * them has the help. */
size_t brim_cli_format_option(const brim_option *row, size_t count, brim_text *out);
/* Lists options, a line each, those that take a value with '=' behind: of a command, or the global ones (NULL). */
void brim_cli_list_options(const brim_command *command, brim_text *out);
/* What `brim --help` prints, and `brim NAME --help`; that of a command returns its exit status, as a command that takes
 * overrides lists every key. */
void brim_cli_print_help(FILE *out);
int brim_cli_print_command_help(brim_cli *cli, const brim_command *command);
/* The global options in force, as words behind "brim"; `out` has room for BRIM_CLI_GLOBAL_WORDS. Returns how many. */
#define BRIM_CLI_GLOBAL_WORDS (4 * BRIM_CLI_PATHS_MAX + 4)
size_t brim_cli_global_words(const brim_cli *cli, const char **out);
/* Words, up to NULL, on a line that a shell splits into the same words. */
void brim_cli_quote(const char *const *word, brim_text *out);
/* Names of the scenarios that `brim simulate` finds; they live in `arena`. */
void brim_cli_list_scenarios(const brim_cli *cli, brim_arena *arena, const char ***name, size_t *count);
/* While `quiet`, only errors are told; then again what the global options say. */
void brim_cli_hush(const brim_cli *cli, bool quiet);
/* Prints the thread's error and returns the exit status for the code. */
int brim_cli_fail(brim_status status);
/* Prints results for people on standard output. Names in them may be anybody's: see brim_shown_take. */
void brim_cli_print(const char *text);
/* Prints results as JSON, and releases them. NULL (jansson refused a text) is an error. Whether standard output took
 * what was printed is checked once, when the command has returned. */
brim_status brim_cli_print_json(json_t *root);

/* The whole program: what main() calls. */
BRIM_EXPORT int brim_main(int argc, char **argv);
/* [init] May -o name this file, whose content is of that kind ("a report is HTML")? So that no data file is written
 * over by mistake. ECONFIG unless its name ends in `ending` (".html"), or if it is there and `force` is not given. */
brim_status brim_cli_check_output(const char *path, const char *ending, const char *kind, bool force);
/* [init] No file of the user's is replaced unless --force says so: ECONFIG if a regular file is there. */
brim_status brim_cli_check_absent(const char *path, bool force);
#define BRIM_CLI_FORCE_HELP "replace a file that is there"
/* [init] Is there a folder to put what `path` names into? ECONFIG says which one is not there, or is none: before any
 * work is done for nothing. */
brim_status brim_cli_check_folder(const char *path);
#endif
