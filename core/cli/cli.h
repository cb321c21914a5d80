/* The command line: one file a command, which ends in the command's row of brim_commands. A command gets its own words
 * (argv[0] is its name), prints results on standard output and messages on standard error, and returns the exit status
 * of the process. */
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
  bool allow_missing;                        /* show "???" for mandatory values without one */
  double start;                              /* brim_now() when the program began */
} brim_cli;

/* A row of a command's table of options, which ends with name NULL. Its value lies at `offset` in the struct that the
 * command gives to brim_cli_parse. */
enum brim_option_kind {
  BRIM_OPTION_FLAG,   /* bool */
  BRIM_OPTION_HIDDEN, /* bool: a flag that people do not type */
  BRIM_OPTION_STRING, /* const char * */
  BRIM_OPTION_PATHS   /* brim_cli_paths: it may repeat */
};
typedef struct brim_option {
  const char *name; /* "--json" */
  enum brim_option_kind kind;
  size_t offset;
  const char *takes; /* "FILE": how the value is called; NULL of a flag */
  const char *help;  /* one line; NULL: the row after this one has the same value under another name, and the help */
} brim_option;
/* Kind and offset of a row: {"--json", BRIM_CLI_FLAG(wishes, json), NULL, "print JSON, for programs"}. */
#define BRIM_CLI_FLAG(values, field) BRIM_OPTION_FLAG, _Generic(((values *)0)->field, bool : offsetof(values, field))
#define BRIM_CLI_STRING(values, field)                                                                                 \
  BRIM_OPTION_STRING, _Generic(((values *)0)->field, const char * : offsetof(values, field))
#define BRIM_CLI_FORCE_HELP "overwrite an existing file"
extern const brim_option brim_cli_only_json[]; /* for commands whose only option is --json; its value is a bool */

struct brim_command {
  const char *name, *help; /* one line */
  int (*run)(brim_cli *cli, int argc, char **argv);
  const char *usage; /* what `brim NAME --help` prints */
  const brim_option *options;
};
extern const brim_command *const brim_commands[]; /* ends with NULL */
extern const brim_command brim_command_federate, brim_command_train, brim_command_start, brim_command_eval,
    brim_command_predict, brim_command_export, brim_command_generate, brim_command_plan, brim_command_simulate,
    brim_command_compare, brim_command_report, brim_command_config, brim_command_plugins, brim_command_new,
    brim_command_check, brim_command_devices, brim_command_ops, brim_command_complete, brim_command_version;

/* What is left of a command's words when its options are taken. */
typedef struct brim_operands {
  const char **word; /* there is room for one more in front, at word[-1] and number[-1] */
  int *number;       /* of each word, for messages: from 1, the word after the command */
  size_t count;
  brim_arena arena; /* for what the command needs besides */
} brim_operands;
/* Takes the options out of a command's words, into `values`; what is left are its operands (overrides). `--name value`
 * and `--name=value` are both understood; after `--` everything is an operand. What a command begins with; it ends with
 * brim_cli_end, whatever this returns. ECONFIG with did-you-mean for an unknown option. */
brim_status brim_cli_parse(int argc, char **argv, const brim_option *options, void *values, brim_operands *out);
/* Before brim_cli_parse: keys that are written as options, `--total-clients 100` or `--total-clients=100`, become
 * overrides, with a line each. `filler`, a flag of `options`, takes the place of a value that was a word of its own.
 * What is made lives in `arena`. */
void brim_cli_take_dashes(int argc, char **argv, const brim_option *options, char *filler, brim_arena *arena);
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
/* A command's options, or the global ones (NULL). */
const brim_option *brim_cli_options(const brim_command *command);
/* Adds the option at *row with its other names, "-o, --output FILE", and moves *row past them. Returns its help, or
 * NULL at the end of the table. Leaves out hidden options. */
const char *brim_cli_format_option(const brim_option **row, brim_text *out);
/* What `brim --help` prints, and `brim NAME --help`; that of a command returns its exit status, as a command that takes
 * overrides lists every key. */
void brim_cli_print_help(const brim_cli *cli, FILE *out);
int brim_cli_print_command_help(brim_cli *cli, const brim_command *command);
/* The global options in force, as words behind "brim"; `out` has room for BRIM_CLI_GLOBAL_WORDS. Returns how many. */
#define BRIM_CLI_GLOBAL_WORDS (4 * BRIM_CLI_PATHS_MAX + 4)
size_t brim_cli_global_words(const brim_cli *cli, const char **out);
/* Words, up to NULL, on a line that a shell splits into the same words. */
void brim_cli_quote(const char *const *word, brim_text *out);
/* Names of the scenarios that `brim simulate` finds; they live in `arena`. */
void brim_cli_list_scenarios(const brim_cli *cli, brim_arena *arena, const char ***name, size_t *count);
/* [init] The kinds of plugins that there are templates for, sorted, in the arena; returns how many. 0: the installation
 * has no templates. */
size_t brim_cli_new_kinds(brim_arena *arena, const char ***out);
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
/* [init] Is there a folder to put what `path` names into? ECONFIG says which one is not there, or is none: before any
 * work is done for nothing. */
brim_status brim_cli_check_folder(const char *path);
/* Writes a federation's partition into a file, as brim_partition_write does, and prints how many clients and samples it
 * has. */
brim_status brim_cli_export_partition(const brim_config *config, const char *path);
#endif
