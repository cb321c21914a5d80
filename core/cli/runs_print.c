/* Prints chosen runs: a table, CSV or JSON. See runs.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/log.h"
#include "base/utf8.h"
#include "cli/runs.h"

/* Whether the values of a key are texts even if they look like numbers. */
static bool is_text_key(const char *key)
{
  const enum brim_where_kind kind = brim_index_kind_of(key);
  return kind != BRIM_WHERE_MIXED && kind != BRIM_WHERE_NUMBERS && kind != BRIM_WHERE_SECONDS;
}

/* The heading of a column; `exact`: the column has exact numbers, for programs, and times in seconds. */
static const char *heading(const char *key, bool exact)
{
  const brim_index_column *column = brim_index_column_of(key);
  return !column || (exact && column->kind == BRIM_WHERE_SECONDS) ? key : column->title;
}

/* ---- the table ---- */

/* Joins the lines of an error or a note. */
static const char *one_line(brim_arena *arena, const char *text)
{
  const char *out = "";
  if (!strchr(text, '\n')) return text;
  for (const char *s = text + strspn(text, "\n "); *s; s += strspn(s, "\n ")) {
    const size_t length = strcspn(s, "\n");
    out = brim_arena_printf(arena, "%s%s%.*s", out, out[0] ? "; " : "", (int)length, s);
    s += length;
  }
  return out;
}

const char *brim_runs_cell(brim_arena *arena, const brim_index *index, const brim_index_cell *cell)
{
  if (!cell) return "-";
  if (cell->text) return one_line(arena, brim_index_string(index, cell->text));
  char shown[BRIM_WHERE_SHOWN_BYTES];
  return brim_arena_string(arena, brim_where_show(BRIM_WHERE_NUMBERS, cell->number, shown));
}

static const char *cell_for(const brim_runs *runs, const brim_runs_row *row, size_t column)
{
  const enum brim_where_kind kind = brim_index_kind_of(runs->key[column]);
  const brim_where_value value = brim_runs_value(runs, row, column);
  char shown[BRIM_WHERE_SHOWN_BYTES];
  if (!value.has) return "-";
  if (!value.text) return brim_arena_string(runs->arena, brim_where_show(kind, value.number, shown));
  if (kind == BRIM_WHERE_PATHS) return value.text;
  if (kind == BRIM_WHERE_DATES && !runs->options->columns)
    return brim_arena_printf(runs->arena, "%.16s", value.text); /* without seconds */
  return one_line(runs->arena, value.text);
}

static void fill_table(const brim_runs *runs, size_t columns, brim_table *table)
{
  *table = (brim_table){.arena = runs->arena, .columns = columns};
  for (size_t c = 0; c < columns; c++) brim_table_add(table, heading(runs->key[c], false));
  for (size_t i = 0; i < runs->rows; i++)
    for (size_t c = 0; c < columns; c++) brim_table_add(table, cell_for(runs, &runs->row[i], c));
}

/* Drops the last of the default columns that do not fit the terminal. */
static size_t columns_that_fit(const brim_runs *runs, const brim_table *table)
{
  struct winsize size = {0};
  if (runs->options->columns || !isatty(STDOUT_FILENO)) return table->columns;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return table->columns;
  size_t width = 0, fit = 0;
  for (size_t c = 0; c < table->columns; c++) {
    const brim_table_column column = brim_table_measure(table, c);
    if (!column.empty) width += column.width + (width ? 2 : 0);
    if (width <= size.ws_col) fit = c + 1;
  }
  return fit > 2 ? fit : 2;
}

void brim_runs_print_table(const brim_runs *runs)
{
  brim_table table;
  brim_text out = {0};
  fill_table(runs, runs->columns, &table);
  const size_t fit = columns_that_fit(runs, &table);
  if (fit < runs->columns) fill_table(runs, fit, &table);
  if (runs->rows > 0)
    brim_table_print(&table, &out);
  else if (runs->total == 0)
    brim_text_add(&out, "no runs here\n");
  else
    brim_text_printf(&out, "no run matches; there are %zu\n", runs->total);
  brim_cli_print(brim_text_str(&out));
  brim_text_release(&out);
  fflush(stdout); /* the message below goes to standard error, and must come after the table */
  if (runs->rows > 0 && runs->rows < runs->total) brim_log(BRIM_LOG_INFO, "%zu of %zu runs", runs->rows, runs->total);
}

/* ---- CSV ---- */

static void print_csv(const brim_runs *runs)
{
  brim_text out = {0};
  for (size_t c = 0; c < runs->columns; c++) {
    brim_text_add(&out, c ? "," : "");
    brim_text_add_csv(&out, heading(runs->key[c], true));
  }
  brim_text_add(&out, "\n");
  for (size_t i = 0; i < runs->rows; i++) {
    const brim_runs_row *row = &runs->row[i];
    for (size_t c = 0; c < runs->columns; c++) {
      const brim_where_value value = brim_runs_value(runs, row, c);
      brim_text_add(&out, c ? "," : "");
      if (value.text)
        brim_text_add_csv(&out, value.text);
      else if (value.has)
        brim_text_add(&out, brim_format_number((char[BRIM_NUMBER_BYTES]){0}, value.number, false));
    }
    brim_text_add(&out, "\n");
  }
  brim_cli_print(brim_text_str(&out));
  brim_text_release(&out);
}

/* ---- JSON ---- */

/* Adds a text in quotes. Escapes control characters, including C1, DEL and format characters, because the text may be
 * printed on a terminal. */
static void add_quoted(brim_text *out, const char *text)
{
  const char *end = text + strlen(text);
  brim_text_add(out, "\"");
  for (const char *s = text; s < end;) {
    size_t length;
    const char *start = s;
    const int32_t code = brim_utf8_next(&s, end);
    s = start;
    const char *shown = brim_utf8_take(&s, end, &length);
    if (brim_is_control(code) && code > 0xffff) /* JSON writes such a character as a pair of surrogates */
      brim_text_printf(out, "\\u%04x\\u%04x", 0xd7c0u + ((unsigned)code >> 10), 0xdc00u + ((unsigned)code & 0x3ff));
    else if (brim_is_control(code))
      brim_text_printf(out, "\\u%04x", (unsigned)code);
    else if (code == '"' || code == '\\')
      brim_text_printf(out, "\\%c", (char)code);
    else
      brim_text_add_n(out, shown, length);
  }
  brim_text_add(out, "\"");
}

/* Adds a value with the type that its text has. */
static void add_value(brim_text *out, const char *key, const brim_index *index, const brim_index_cell *cell)
{
  const char *text = cell && cell->text ? brim_index_string(index, cell->text) : NULL;
  if (!cell)
    brim_text_add(out, "null");
  else if (!text || (isfinite(cell->number) && !strchr(text, '%') && !is_text_key(key)))
    brim_text_add(out, brim_format_number((char[BRIM_NUMBER_BYTES]){0}, cell->number, false));
  else if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
    brim_text_add(out, text);
  else
    add_quoted(out, text);
}

static void add_tags(brim_text *out, const char *list)
{
  brim_arena arena = {0};
  brim_text_add(out, "[");
  for (const char *s = list; *s;) {
    const size_t length = strcspn(s, ",");
    brim_text_add(out, s > list ? ", " : "");
    add_quoted(out, brim_arena_string_n(&arena, s, length));
    s += length + (s[length] == ',');
  }
  brim_text_add(out, "]");
  brim_arena_release(&arena);
}

static void add_pair(brim_text *out, const char *key, const brim_index *index, const brim_index_cell *cell)
{
  const brim_index_column *column = brim_index_column_of(key);
  brim_text_add(out, ", ");
  add_quoted(out, column ? column->member : key);
  brim_text_add(out, ": ");
  if (column && column->is_list)
    add_tags(out, cell && cell->text ? brim_index_string(index, cell->text) : "");
  else
    add_value(out, key, index, cell);
}

/* Adds all cells whose keys begin with the prefix, as one object; without a prefix, those whose keys have no dot. */
static void add_cells(brim_text *out, const brim_runs_row *row, const char *prefix)
{
  bool first = true;
  for (uint32_t i = 0; i < row->run->count; i++) {
    const brim_index_cell *cell = &row->index->cell[row->index->id[row->run->first + i]];
    const char *key = brim_index_string(row->index, cell->key);
    if (!brim_starts_with(key, prefix)) continue;
    brim_text_add(out, first ? "" : ", ");
    first = false;
    add_quoted(out, key + strlen(prefix));
    brim_text_add(out, ": ");
    add_value(out, key, row->index, cell);
  }
}

static void add_whole(brim_text *out, const brim_runs_row *row)
{
  static const char *const keys[] = {"status", "model", "dataset", "started", "tag", "note", "problem"};
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
    add_pair(out, keys[i], row->index, brim_index_cell_of(row->index, row->run, keys[i]));
  brim_text_add(out, ", \"results\": {");
  add_cells(out, row, "result.");
  brim_text_add(out, "}, \"config\": {");
  add_cells(out, row, "config.");
  brim_text_add(out, "}");
}

static void print_json(const brim_runs *runs)
{
  brim_text out = {0};
  fputs("{\"runs\": [", stdout);
  for (size_t i = 0; i < runs->rows; i++) {
    const brim_runs_row *row = &runs->row[i];
    brim_text_clear(&out);
    brim_text_add(&out, i ? ",\n  {\"run\": " : "\n  {\"run\": ");
    add_quoted(&out, row->path);
    for (size_t c = 0; c < runs->columns && runs->options->columns; c++)
      if (strcmp(runs->key[c], "name") != 0) add_pair(&out, runs->key[c], row->index, row->cell[c]);
    if (!runs->options->columns) add_whole(&out, row);
    brim_text_add(&out, "}");
    fputs(brim_text_str(&out), stdout);
  }
  fputs(runs->rows ? "\n]}\n" : "]}\n", stdout);
  brim_text_release(&out);
}

/* ---- all of it ---- */

void brim_runs_warn(const brim_runs *runs)
{
  size_t count = 0;
  for (size_t i = 0; i < runs->indexes; i++)
    for (size_t k = 0; k < runs->index[i].runs; k++) {
      const uint32_t problem = runs->index[i].run[k].problem;
      if (problem && count++ < BRIM_RUNS_PROBLEMS_SAID)
        brim_log(BRIM_LOG_WARN, "%s", brim_index_string(&runs->index[i], problem));
    }
  if (count > BRIM_RUNS_PROBLEMS_SAID)
    brim_log(BRIM_LOG_WARN, "%zu more runs have problems: brim runs --where problem --columns name,problem",
             count - BRIM_RUNS_PROBLEMS_SAID);
}

brim_status brim_runs_print(const brim_runs *runs)
{
  if (runs->options->json)
    print_json(runs);
  else if (runs->options->csv)
    print_csv(runs);
  else
    brim_runs_print_table(runs);
  brim_runs_warn(runs);
  return BRIM_OK;
}
