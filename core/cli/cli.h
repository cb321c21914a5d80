/* The command line. Each command has a file, which ends with the command's row of brim_commands. A command gets its own
 * words (argv[0] is its name), prints results on standard output and messages on standard error, and returns the exit
 * status of the process. */
#ifndef BRIM_CLI_CLI_H
#define BRIM_CLI_CLI_H
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "config/config.h"
#include "plugin/registry.h"

#define BRIM_CLI_PATHS_MAX 32

typedef struct brim_cli_paths {
  const char *path[BRIM_CLI_PATHS_MAX];
  size_t count;
} brim_cli_paths;

typedef struct brim_command brim_command;
typedef struct brim_cli {
  const brim_command *const *commands;       /* brim_commands */
  brim_cli_paths plugin_paths, config_paths; /* --plugin-path, --config-path, in order */
  const char *config_name;                   /* --config-name; NULL: "config" */
  brim_registry *registry;                   /* opened before the command runs */
  bool quiet;                                /* --quiet: no progress, no information */
  bool verbose;                              /* --verbose: more of both */
  bool allow_missing;                        /* show "???" for mandatory values that are missing */
  double start;                              /* brim_now() when the program began */
} brim_cli;

/* A row of a command's table of options, which ends with name NULL. The value is stored at `offset` in the struct that
 * the command passes to brim_cli_parse. */
enum brim_option_kind {
  BRIM_OPTION_FLAG,   /* bool */
  BRIM_OPTION_HIDDEN, /* bool: a flag for internal use, without help */
  BRIM_OPTION_STRING, /* const char * */
  BRIM_OPTION_PATHS   /* brim_cli_paths: may repeat */
};
typedef struct brim_option {
  const char *name; /* "--json" */
  enum brim_option_kind kind;
  size_t offset;
  const char *takes; /* "FILE": what the option's value is; NULL for a flag */
  const char *help;  /* one line; NULL: the next row is another name of the same option, and has the help */
} brim_option;
/* Kind and offset of a row: {"--json", BRIM_CLI_FLAG(wishes, json), NULL, "print JSON, for programs"}. */
#define BRIM_CLI_FLAG(values, field) BRIM_OPTION_FLAG, _Generic(((values *)0)->field, bool : offsetof(values, field))
#define BRIM_CLI_STRING(values, field)                                                                                 \
  BRIM_OPTION_STRING, _Generic(((values *)0)->field, const char * : offsetof(values, field))
#define BRIM_CLI_FORCE_HELP "overwrite an existing file"
extern const brim_option brim_cli_only_json[]; /* for commands whose only option is --json; a bool stores it */

struct brim_command {
  const char *name, *help; /* one line */
  int (*run)(brim_cli *cli, int argc, char **argv);
  const char *usage; /* the text of `brim NAME --help` */
  const brim_option *options;
  bool is_live; /* plans for a device or uses one, and publishes its state for other programs: see memory/live.h */
};
extern const brim_command *const brim_commands[]; /* ends with NULL */
extern const brim_command brim_command_federate, brim_command_train, brim_command_start, brim_command_eval,
    brim_command_predict, brim_command_export, brim_command_generate, brim_command_plan, brim_command_simulate,
    brim_command_compare, brim_command_report, brim_command_config, brim_command_plugins, brim_command_new,
    brim_command_check, brim_command_data, brim_command_devices, brim_command_monitor, brim_command_doctor,
    brim_command_ops, brim_command_complete, brim_command_version, brim_command_trace, brim_command_runs;

/* A command's words except its options. */
typedef struct brim_operands {
  const char **word; /* the array has room for one more word, at word[-1] and number[-1] */
  int *number;       /* position of each word, for messages; the word after the command is 1 */
  size_t count;
  brim_arena arena; /* memory for other needs of the command */
} brim_operands;
/* Moves the options from a command's words into `values`; the remaining words are its operands (overrides). Accepts
 * `--name value` and `--name=value`; after `--` every word is an operand. Every command calls this first, and
 * brim_cli_end last, whatever this returns. ECONFIG with a suggestion for an unknown option. */
brim_status brim_cli_parse(int argc, char **argv, const brim_option *options, void *values, brim_operands *out);
/* Reads an option's text as a whole number in [least, most]; a NULL text leaves *out unchanged. ECONFIG with the
 * option's name. */
brim_status brim_cli_whole_number(const char *option, const char *text, int64_t least, int64_t most, int64_t *out);
/* Call before brim_cli_parse: turns keys that were written as options, `--total-clients 100` or `--total-clients=100`,
 * into overrides, with a message for each. `filler`, a flag of `options`, replaces a value that was a separate word.
 * `arena` owns new words. */
void brim_cli_take_dashes(int argc, char **argv, const brim_option *options, char *filler, brim_arena *arena);
/* Returns ECONFIG for an option where a command is expected; `next`: the word after it, or NULL. */
brim_status brim_cli_unknown_word(const char *word, const char *next);
/* Returns ECONFIG naming the first operand after `most`; `what` completes the message: "brim version takes no
 * arguments". */
brim_status brim_cli_at_most(const brim_operands *operands, size_t most, const char *what);
/* Releases the operands, prints the thread's error if there is one, and returns the exit status. */
int brim_cli_end(brim_status status, brim_operands *operands);

typedef struct brim_cli_search {
  const char *folder[BRIM_CLI_PATHS_MAX + BRIM_REGISTRY_CONFIGS_MAX + 1];
  size_t count;
  char installed[4096];
} brim_cli_search;
/* The search path of configurations: --config-path, then the folders that come with plugins (brim_registry_configs),
 * then the installed ones. The result must not be moved. */
void brim_cli_search_path(const brim_cli *cli, brim_cli_search *out);
/* Composes the configuration from the command line's words. `file`: a resolved configuration to use instead of the
 * search path, or NULL. */
brim_status brim_cli_config(const brim_cli *cli, const char *file, const char *const *override, const int *number,
                            size_t count, brim_config **out);
/* Moves the global options, at any position, from argv into `cli`. */
brim_status brim_cli_take_globals(brim_cli *cli, int *argc, char **argv);
/* The options of a command, or (NULL) the global ones. */
const brim_option *brim_cli_options(const brim_command *command);
/* Appends the option at *row with all its names, "-o, --output FILE", and advances *row past them. Returns its help, or
 * NULL at the end of the table. Skips hidden options. */
const char *brim_cli_format_option(const brim_option **row, brim_text *out);
/* Prints the text of `brim --help`, or of `brim NAME --help`; the latter returns an exit status, because for a command
 * that takes overrides it lists every key and may fail. */
void brim_cli_print_help(const brim_cli *cli, FILE *out);
int brim_cli_print_command_help(brim_cli *cli, const brim_command *command);
/* Writes the global options in force to `out` as words that follow "brim"; `out` has room for BRIM_CLI_GLOBAL_WORDS.
 * Returns their number. */
#define BRIM_CLI_GLOBAL_WORDS (4 * BRIM_CLI_PATHS_MAX + 4)
size_t brim_cli_global_words(const brim_cli *cli, const char **out);
/* Quotes words, up to NULL, into a line that a shell splits into the same words. */
void brim_cli_quote(const char *const *word, brim_text *out);
/* Lists the names of the scenarios that `brim simulate` finds; `arena` owns them. */
void brim_cli_list_scenarios(const brim_cli *cli, brim_arena *arena, const char ***name, size_t *count);
/* [init] Lists the kinds of plugins that have a template, sorted; `arena` owns the list. Returns their number; 0: the
 * installation has no templates. */
size_t brim_cli_new_kinds(brim_arena *arena, const char ***out);
/* `quiet`: prints only errors; otherwise restores the level of the global options. */
void brim_cli_hush(const brim_cli *cli, bool quiet);
/* Prints the thread's error and returns the exit status for the code. */
int brim_cli_fail(brim_status status);
/* Prints results as text on standard output. They may contain names from other users, so brim_shown_take makes them
 * safe. */
void brim_cli_print(const char *text);
/* Prints results as JSON, and releases them. NULL (jansson rejected a text) is an error. Errors of standard output are
 * checked only once, when the command has returned. */
brim_status brim_cli_print_json(json_t *root);

/* The first words that `brim runs` accepts; NULL after the last. */
const char *brim_cli_runs_verb(size_t i);

/* The whole program; main() calls it. */
BRIM_EXPORT int brim_main(int argc, char **argv);
/* [init] Reads a text of at most 64 MiB from a file or a pipe. ELOAD. */
brim_status brim_cli_read_text(const char *path, brim_text *out);
/* [init] Checks the file that -o names, so that users do not overwrite a data file by mistake; `kind` describes the
 * content ("a report is HTML"). ECONFIG if its name does not end in `ending` (".html"), or if it exists and `force` is
 * not set. */
brim_status brim_cli_check_output(const char *path, const char *ending, const char *kind, bool force);
/* [init] Returns ECONFIG if a regular file exists at `path`, because only --force replaces a user's file. */
brim_status brim_cli_check_absent(const char *path, bool force);
/* [init] Returns ECONFIG if the folder of `path` does not exist or is not a folder; call it before any work starts. */
brim_status brim_cli_check_folder(const char *path);
/* Writes a federation's partition to a file with brim_partition_write, and prints the numbers of clients and
 * samples. */
brim_status brim_cli_export_partition(const brim_config *config, const char *path);
#endif
