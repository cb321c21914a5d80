/* An index of the runs in a folder: configurations, results, tags and notes, read from the runs' folders. A
 * cache in the user's cache folder (index_cache.c) is optional and may be deleted at any time.
 *
 * A run is a list of cells, each a key with a text or a number:
 *     config.optimizer.lr, config.model.id    every value of its configuration
 *     result.test_accuracy, result.steps      every number and text of its summary, or of its newest records
 *     name, status, model, dataset, started, seconds, loss, accuracy, perplexity, mae, tag, note, problem */
#ifndef BRIM_REPORT_INDEX_H
#define BRIM_REPORT_INDEX_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "report/where.h"

typedef struct brim_index_cell {
  uint32_t key, text; /* offsets into the index's strings; text 0: the cell has only a number */
  double number;      /* NAN: the text is not a number */
} brim_index_cell;

/* A file as it was when brim read it: if its size, change time or inode differs, it must be read again. All 0: there
 * was no such file. */
typedef struct brim_index_stamp {
  int64_t bytes, changed;
  uint64_t inode;
} brim_index_stamp;
enum { BRIM_INDEX_CONFIG, BRIM_INDEX_SUMMARY, BRIM_INDEX_NOTES, BRIM_INDEX_METRICS, BRIM_INDEX_FILES };

enum brim_index_state {
  BRIM_INDEX_ENDED,
  BRIM_INDEX_FINISHED,
  BRIM_INDEX_OPEN
}; /* OPEN: a process is writing the run */
typedef struct brim_index_run {
  uint32_t name;           /* offset of the path below the index's folder */
  uint32_t problem;        /* offset of the text of a reading error; 0: no error */
  uint32_t first, count;   /* cells, in brim_index.id */
  uint32_t state, padding; /* enum brim_index_state */
  brim_index_stamp stamp[BRIM_INDEX_FILES];
} brim_index_run;

typedef struct brim_index {
  char folder[BRIM_PATH_MAX]; /* as the user wrote it; "": the working folder */
  char *string;               /* all texts, each with a NUL; the first two are empty */
  brim_index_cell *cell;
  uint32_t *id, *key; /* cells of runs; the strings that are keys, each once */
  brim_index_run *run;
  size_t string_bytes, cells, ids, keys, runs;
  size_t string_room, cell_room, id_room, key_room, run_room;
  uint32_t *string_table, *cell_table; /* hash tables over strings and over cells with a text; NULL: not built yet */
  size_t string_slots, cell_slots, strings;
  size_t key_hint; /* index at which the next key probably is */
} brim_index;

/* Indexes all runs below `folder`; `uses_cache`: reads and writes the cache. ELOAD: no such folder. A run that cannot
 * be read is in the index, with status "unreadable" and a problem. */
brim_status brim_index_open(brim_index *index, const char *folder, bool uses_cache);
/* Indexes one run. ELOAD: the folder is not a run's, or cannot be read. */
brim_status brim_index_open_run(brim_index *index, const char *dir);
/* Adds a run in the folder `dir` under another name, the path under which it will be listed. */
void brim_index_add_renamed(brim_index *index, const char *name, const char *dir);
void brim_index_release(brim_index *index);
/* Finds the keys that a user may mean by `name`: exact, a result (test.accuracy), a configuration key, a group (model),
 * or the end of a key (lr). Writes at most `room` and returns the number: 0: none, 2 or more: ambiguous. */
size_t brim_index_find_key(const brim_index *index, const char *name, uint32_t *out, size_t room);
/* A key that every index has, even if no run has a value for it yet: the names of its column, and the kind of its
 * values, which determines how they are read and printed. */
typedef struct brim_index_column {
  const char *key;
  const char *title;  /* heading of the column in a table */
  const char *member; /* member of a run's object in JSON */
  enum brim_where_kind kind;
  bool is_list; /* the values are lists, separated by commas */
} brim_index_column;
/* The column that a user means by its key, its title or its member; NULL: none. */
const brim_index_column *brim_index_column_of(const char *name);
/* The kind of a key's values; MIXED for keys that brim does not know. */
enum brim_where_kind brim_index_kind_of(const char *name);
/* Whether every index has this key: those of the columns, and the figures of splits, such as test.accuracy. */
bool brim_index_is_known(const char *name);
/* All values of the key status, and NULL. */
extern const char *const brim_index_statuses[];
/* Returns the known name that is closest to an unknown one, or NULL. */
const char *brim_index_suggest(const brim_index *index, const char *name);
/* For reading many runs: slot[cell] is the index in `key` of the cell's key, or BRIM_INDEX_NO_SLOT. The caller frees
 * it. */
#define BRIM_INDEX_NO_SLOT 255
uint8_t *brim_index_slots(const brim_index *index, const uint32_t *key, size_t keys);
/* Writes the run's cell for each key, or NULL. */
void brim_index_take(const brim_index *index, const brim_index_run *run, const uint8_t *slot,
                     const brim_index_cell **out, size_t keys);
/* Returns the run's cell for a key such as "status"; NULL: none. */
const brim_index_cell *brim_index_cell_of(const brim_index *index, const brim_index_run *run, const char *key);
static inline const char *brim_index_string(const brim_index *index, uint32_t at)
{
  return index->string + at;
}
/* A run's path, as the user would write it; belongs to `arena`. */
const char *brim_index_path(brim_arena *arena, const brim_index *index, const brim_index_run *run);

/* ---- index_cells.c, for index.c and index_cache.c ---- */

void brim_index_clear(brim_index *index);
uint32_t brim_index_intern(brim_index *index, const char *text);
void brim_index_begin_run(brim_index *index, const char *name);
void brim_index_add_run(brim_index *index, const brim_index_run *run); /* for a run whose cells the index already has */
/* Add a cell to the newest run. A text that is a number is stored as a number too. */
void brim_index_add_text(brim_index *index, const char *key, const char *text);
void brim_index_add_number(brim_index *index, const char *key, double value);
/* Adds a run of another index. */
void brim_index_copy_run(brim_index *index, const brim_index *from, const brim_index_run *run);

/* ---- index_cache.c ---- */

/* Loads the folder's cache. The index is empty if there is none, or if it is damaged or of another version. */
void brim_index_load(brim_index *index, const char *folder);
/* Replaces the cache; ignores failures. */
void brim_index_save(brim_index *index, const char *folder);
#endif
