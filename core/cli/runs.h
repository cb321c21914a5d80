/* The parts of `brim runs`: choosing runs (runs_select.c), printing them (runs_print.c), one run and differences
 * (runs_show.c), tags and notes (runs_tag.c), the trash and disk space (runs_trash.c). */
#ifndef BRIM_CLI_RUNS_H
#define BRIM_CLI_RUNS_H
#include "base/table.h"
#include "cli/cli.h"
#include "report/index.h"
#include "report/where.h"

#define BRIM_RUNS_KEYS_MAX 96 /* columns, the filter's keys and the sort key */
#define BRIM_RUNS_FOLDERS_MAX 256
#define BRIM_RUNS_PROBLEMS_SAID 20

typedef struct brim_runs_options {
  const char *where, *sort, *columns, *limit;
  bool json, csv, remove, yes, no_cache;
} brim_runs_options;

typedef struct brim_runs_row {
  const brim_index *index;
  const brim_index_run *run;
  const char *path;             /* the path as the user would write it: the value of the key name */
  const brim_index_cell **cell; /* one for each key; NULL: the run has none */
} brim_runs_row;

typedef struct brim_runs {
  const brim_runs_options *options;
  brim_arena *arena;
  brim_index *index;
  size_t indexes, index_room;
  /* Keys as the user wrote them, except that titles of columns are replaced by keys. */
  const char *key[BRIM_RUNS_KEYS_MAX];
  size_t keys, columns; /* the first `columns` keys are the columns */
  size_t sort;          /* a key */
  bool descends;
  brim_where filter;
  size_t filter_key[BRIM_WHERE_KEYS_MAX];
  brim_runs_row *row;
  size_t rows, total;
} brim_runs;

/* ---- runs_select.c ---- */

/* Finds the runs that the operands and --where select, sorts them and limits their number. An operand is a run or a
 * folder of runs; the default are the folders runs and multirun. `default_columns`: for a list without --columns. */
brim_status brim_runs_select(brim_runs *runs, const char *const *operand, size_t operands, const char *default_columns);
/* The two halves of brim_runs_select: the first reads --where, --sort and --columns, the second selects from the runs
 * in `runs->index`. */
brim_status brim_runs_take_options(brim_runs *runs, const char *default_columns);
brim_status brim_runs_choose(brim_runs *runs);
/* The value of a run for key number `key` of `runs`, which lists show, and filters and orders compare. */
brim_where_value brim_runs_value(const brim_runs *runs, const brim_runs_row *row, size_t key);
/* The folder of a run as an operand names it: the path, or a name below runs. */
const char *brim_runs_path(brim_arena *arena, const char *operand);
/* Returns ELOAD, suggesting a similar name, if an operand does not exist or is a file. */
brim_status brim_runs_check_operand(brim_arena *arena, const char *operand);
/* Lists the paths of the runs on which a command works: its operands or, with --where, the runs selected from them.
 * ECONFIG if they name no run. */
brim_status brim_runs_list(brim_runs *runs, const char *const *operand, size_t operands, const char *verb,
                           const char ***path, size_t *count);
/* Lists those default folders that exist. ELOAD if none does. */
brim_status brim_runs_default_folders(const char **folder, size_t *count);
void brim_runs_release(brim_runs *runs);

/* ---- runs_print.c ---- */

brim_status brim_runs_print(const brim_runs *runs);
void brim_runs_print_table(const brim_runs *runs);
/* A cell for people to read: few digits; "-" for NULL. `arena` owns it. */
const char *brim_runs_cell(brim_arena *arena, const brim_index *index, const brim_index_cell *cell);
/* Prints the reading errors as warnings. */
void brim_runs_warn(const brim_runs *runs);

/* ---- the other commands; `operand` does not include the command's own word ---- */

typedef brim_status brim_runs_verb(brim_runs *runs, const char *const *operand, size_t operands);
brim_runs_verb brim_runs_show, brim_runs_diff, brim_runs_tag, brim_runs_note, brim_runs_delete, brim_runs_restore,
    brim_runs_empty, brim_runs_prune;
#endif
