/* The cells of an index: equal texts and equal cells are stored only once. See index.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "report/index.h"
#include "report/where.h"

#define STRING_BYTES_MAX                                                                                               \
  ((size_t)1 << 31) /* limit for all texts; further ones are left out, in an index of millions of runs */

/* Makes room for `more` elements. */
static void *grow(void *array, size_t count, size_t more, size_t *room, size_t bytes)
{
  if (count + more <= *room) return array;
  size_t wanted = *room ? *room : 1024;
  while (wanted < count + more) wanted *= 2;
  void *out = brim_xcalloc(wanted, bytes);
  if (count) memcpy(out, array, count * bytes);
  free(array);
  *room = wanted;
  return out;
}
#define GROW(array, count, more, room) ((array) = grow((array), (count), (more), &(room), sizeof *(array)))

void brim_index_clear(brim_index *index)
{
  free(index->string);
  free(index->cell);
  free(index->id);
  free(index->key);
  free(index->run);
  free(index->string_table);
  free(index->cell_table);
  char folder[BRIM_PATH_MAX];
  memcpy(folder, index->folder, sizeof folder);
  *index = (brim_index){0};
  memcpy(index->folder, folder, sizeof folder);
}

void brim_index_release(brim_index *index)
{
  brim_index_clear(index);
}

/* ---- strings ---- */

static size_t hash_text(const char *text)
{
  return (size_t)brim_hash(BRIM_HASH_START, text, strlen(text));
}

static void put_string(brim_index *index, uint32_t at)
{
  const size_t mask = index->string_slots - 1;
  size_t i = hash_text(index->string + at) & mask;
  while (index->string_table[i]) i = (i + 1) & mask;
  index->string_table[i] = at;
}

/* Puts all strings into a table of at least twice their number. */
static void build_string_table(brim_index *index, size_t slots)
{
  free(index->string_table);
  index->string_table = brim_xcalloc(slots, sizeof *index->string_table);
  index->string_slots = slots;
  index->strings = 0;
  for (size_t at = 2; at < index->string_bytes; at += strlen(index->string + at) + 1) {
    if (++index->strings * 2 > slots) {
      build_string_table(index, slots * 2);
      return;
    }
    put_string(index, (uint32_t)at);
  }
}

uint32_t brim_index_intern(brim_index *index, const char *text)
{
  if (!index->string) {
    GROW(index->string, 0, 2, index->string_room);
    index->string_bytes = 2; /* 0: no text, 1: an empty one */
  }
  if (!text[0]) return 1;
  if (!index->string_table) build_string_table(index, 4096);
  const size_t mask = index->string_slots - 1, bytes = strlen(text) + 1;
  for (size_t i = hash_text(text) & mask; index->string_table[i]; i = (i + 1) & mask)
    if (strcmp(index->string + index->string_table[i], text) == 0) return index->string_table[i];
  if (index->string_bytes + bytes > STRING_BYTES_MAX) return 1;
  GROW(index->string, index->string_bytes, bytes, index->string_room);
  const uint32_t at = (uint32_t)index->string_bytes;
  memcpy(index->string + at, text, bytes);
  index->string_bytes += bytes;
  if (++index->strings * 2 > index->string_slots)
    build_string_table(index, index->string_slots * 2);
  else
    put_string(index, at);
  return at;
}

/* ---- cells ---- */

static size_t hash_cell(uint32_t key, uint32_t text)
{
  const uint64_t both = ((uint64_t)key << 32 | text) * 0x9e3779b97f4a7c15u;
  return (size_t)(both ^ both >> 29);
}

static void put_cell(brim_index *index, uint32_t id)
{
  const size_t mask = index->cell_slots - 1;
  size_t i = hash_cell(index->cell[id].key, index->cell[id].text) & mask;
  while (index->cell_table[i]) i = (i + 1) & mask;
  index->cell_table[i] = id + 1;
}

static void build_cell_table(brim_index *index)
{
  size_t slots = 4096;
  while (slots < index->cells * 2 + 2) slots *= 2;
  free(index->cell_table);
  index->cell_table = brim_xcalloc(slots, sizeof *index->cell_table);
  index->cell_slots = slots;
  for (size_t i = 0; i < index->cells; i++)
    if (index->cell[i].text) put_cell(index, (uint32_t)i);
}

static uint32_t add_cell(brim_index *index, brim_index_cell cell)
{
  if (!index->cell_table || (index->cells + 1) * 2 > index->cell_slots) build_cell_table(index);
  GROW(index->cell, index->cells, 1, index->cell_room);
  index->cell[index->cells] = cell;
  if (cell.text) put_cell(index, (uint32_t)index->cells);
  return (uint32_t)index->cells++;
}

/* Fast for the usual case, in which runs of a folder have their keys in the same order. */
static uint32_t add_key(brim_index *index, const char *name)
{
  for (size_t k = 0; k < index->keys; k++) {
    const size_t i = (index->key_hint + k) % index->keys;
    if (strcmp(index->string + index->key[i], name) != 0) continue;
    index->key_hint = (i + 1) % index->keys;
    return index->key[i];
  }
  GROW(index->key, index->keys, 1, index->key_room);
  return index->key[index->keys++] = brim_index_intern(index, name);
}

static void add_id(brim_index *index, uint32_t id)
{
  GROW(index->id, index->ids, 1, index->id_room);
  index->id[index->ids++] = id;
  index->run[index->runs - 1].count++;
}

void brim_index_add_run(brim_index *index, const brim_index_run *run)
{
  GROW(index->run, index->runs, 1, index->run_room);
  index->run[index->runs++] = *run;
}

void brim_index_begin_run(brim_index *index, const char *name)
{
  const brim_index_run run = {.name = brim_index_intern(index, name), .first = (uint32_t)index->ids};
  brim_index_add_run(index, &run);
}

void brim_index_add_text(brim_index *index, const char *key, const char *text)
{
  const uint32_t k = add_key(index, key), t = brim_index_intern(index, text);
  if (!index->cell_table) build_cell_table(index);
  const size_t mask = index->cell_slots - 1;
  for (size_t i = hash_cell(k, t) & mask; index->cell_table[i]; i = (i + 1) & mask) {
    const uint32_t id = index->cell_table[i] - 1;
    if (index->cell[id].key != k || index->cell[id].text != t) continue;
    add_id(index, id);
    return;
  }
  add_id(index, add_cell(index, (brim_index_cell){k, t, brim_where_number(text)}));
}

void brim_index_add_number(brim_index *index, const char *key, double value)
{
  if (isfinite(value)) add_id(index, add_cell(index, (brim_index_cell){add_key(index, key), 0, value}));
}

void brim_index_copy_run(brim_index *index, const brim_index *from, const brim_index_run *run)
{
  brim_index_begin_run(index, brim_index_string(from, run->name));
  for (uint32_t i = 0; i < run->count; i++) {
    const brim_index_cell *cell = &from->cell[from->id[run->first + i]];
    const char *key = brim_index_string(from, cell->key);
    if (cell->text)
      brim_index_add_text(index, key, brim_index_string(from, cell->text));
    else
      brim_index_add_number(index, key, cell->number);
  }
  brim_index_run *to = &index->run[index->runs - 1];
  to->problem = run->problem ? brim_index_intern(index, brim_index_string(from, run->problem)) : 0;
  to->state = run->state;
  memcpy(to->stamp, run->stamp, sizeof to->stamp);
}

/* ---- access ---- */

uint8_t *brim_index_slots(const brim_index *index, const uint32_t *key, size_t keys)
{
  uint8_t *slot = brim_xcalloc(index->cells + 1, 1);
  for (size_t i = 0; i < index->cells; i++) {
    size_t k = 0;
    while (k < keys && key[k] != index->cell[i].key) k++;
    slot[i] = k < keys ? (uint8_t)k : BRIM_INDEX_NO_SLOT;
  }
  return slot;
}

void brim_index_take(const brim_index *index, const brim_index_run *run, const uint8_t *slot,
                     const brim_index_cell **out, size_t keys)
{
  memset(out, 0, keys * sizeof *out);
  for (uint32_t i = 0; i < run->count; i++) {
    const uint32_t id = index->id[run->first + i];
    if (slot[id] != BRIM_INDEX_NO_SLOT) out[slot[id]] = &index->cell[id];
  }
}

const brim_index_cell *brim_index_cell_of(const brim_index *index, const brim_index_run *run, const char *key)
{
  for (uint32_t i = 0; i < run->count; i++) {
    const brim_index_cell *cell = &index->cell[index->id[run->first + i]];
    if (strcmp(index->string + cell->key, key) == 0) return cell;
  }
  return NULL;
}

const char *brim_index_path(brim_arena *arena, const brim_index *index, const brim_index_run *run)
{
  const char *name = brim_index_string(index, run->name);
  if (!index->folder[0]) return brim_arena_string(arena, name);
  return brim_arena_printf(arena, "%s/%s", strcmp(index->folder, "/") == 0 ? "" : index->folder, name);
}

/* ---- keys as users write them ---- */

const char *const brim_index_statuses[] = {"finished",   "interrupted", "failed", "running",
                                           "unfinished", "unreadable",  NULL};

/* clang-format off */
static const brim_index_column columns[] = {
    {"name", "run", "run", BRIM_WHERE_PATHS, false},
    {"status", "status", "status", BRIM_WHERE_NAMES, false},
    {"model", "model", "model", BRIM_WHERE_TEXTS, false},
    {"dataset", "dataset", "dataset", BRIM_WHERE_TEXTS, false},
    {"started", "started", "started", BRIM_WHERE_DATES, false},
    {"seconds", "time", "seconds", BRIM_WHERE_SECONDS, false},
    {"loss", "loss", "loss", BRIM_WHERE_NUMBERS, false},
    {"accuracy", "accuracy", "accuracy", BRIM_WHERE_NUMBERS, false},
    {"perplexity", "perplexity", "perplexity", BRIM_WHERE_NUMBERS, false},
    {"mae", "mae", "mae", BRIM_WHERE_NUMBERS, false},
    {"tag", "tag", "tags", BRIM_WHERE_TEXTS, true},
    {"note", "note", "note", BRIM_WHERE_TEXTS, false},
    {"problem", "problem", "problem", BRIM_WHERE_TEXTS, false},
    {"steps", "steps", "steps", BRIM_WHERE_NUMBERS, false},
    {"epoch", "epoch", "epoch", BRIM_WHERE_NUMBERS, false}};
/* clang-format on */
#define COLUMNS (sizeof columns / sizeof columns[0])
static const char *const splits[] = {"train.", "validation.", "test."};
static const char *const figures[] = {"loss", "accuracy", "perplexity", "mae", "f1", "mape", "rmse", "r2"};

static bool is_figure(const char *name)
{
  for (size_t i = 0; i < sizeof splits / sizeof splits[0]; i++)
    for (size_t k = 0; k < sizeof figures / sizeof figures[0] && brim_starts_with(name, splits[i]); k++)
      if (strcmp(name + strlen(splits[i]), figures[k]) == 0) return true;
  return false;
}

const brim_index_column *brim_index_column_of(const char *name)
{
  for (size_t i = 0; i < COLUMNS; i++)
    if (strcmp(name, columns[i].key) == 0 || strcmp(name, columns[i].title) == 0 ||
        strcmp(name, columns[i].member) == 0)
      return &columns[i];
  return NULL;
}

bool brim_index_is_known(const char *name)
{
  return brim_index_column_of(name) || is_figure(name);
}

enum brim_where_kind brim_index_kind_of(const char *name)
{
  const brim_index_column *column = brim_index_column_of(name);
  return column ? column->kind : is_figure(name) ? BRIM_WHERE_NUMBERS : BRIM_WHERE_MIXED;
}

static size_t find_exact(const brim_index *index, const char *name, uint32_t *out)
{
  for (size_t i = 0; i < index->keys; i++)
    if (strcmp(brim_index_string(index, index->key[i]), name) == 0) {
      *out = index->key[i];
      return 1;
    }
  return 0;
}

size_t brim_index_find_key(const brim_index *index, const char *name, uint32_t *out, size_t room)
{
  char text[256];
  static const char *const forms[] = {"%s", "result.%s", "config.%s", "config.%s.id"};
  if (strlen(name) > 200 || room == 0) return 0;
  const bool is_own = brim_index_is_known(name); /* "loss" is a figure, not the group of the configuration */
  for (size_t i = 0; i < (is_own ? 2 : sizeof forms / sizeof forms[0]); i++) {
    snprintf(text, sizeof text, forms[i], name);
    if (find_exact(index, text, out)) return 1;
    char *dot = i == 1 ? strchr(text + strlen("result."), '.') : NULL; /* test.accuracy is test_accuracy in files */
    if (dot) *dot = '_';
    if (dot && find_exact(index, text, out)) return 1;
  }
  if (is_own) return 0;
  size_t count = 0;
  const int length = snprintf(text, sizeof text, ".%s", name);
  for (size_t i = 0; length > 0 && i < index->keys; i++) {
    if (!brim_ends_with(brim_index_string(index, index->key[i]), text)) continue;
    if (count < room) out[count] = index->key[i];
    count++;
  }
  return count;
}

const char *brim_index_suggest(const brim_index *index, const char *name)
{
  const char *best = NULL;
  int distance = INT32_MAX;
  for (size_t i = 0; i < COLUMNS; i++) brim_suggest(name, columns[i].key, &distance, &best);
  for (size_t i = 0; i < COLUMNS; i++) brim_suggest(name, columns[i].title, &distance, &best);
  for (size_t i = 0; i < index->keys; i++) {
    const char *key = brim_index_string(index, index->key[i]), *dot = strchr(key, '.');
    if (dot) brim_suggest(name, dot + 1, &distance, &best);
  }
  return best;
}
