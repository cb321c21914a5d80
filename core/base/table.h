/* Text tables: rows of cells, each column as wide as its widest cell, numbers aligned to the right. */
#ifndef BRIM_BASE_TABLE_H
#define BRIM_BASE_TABLE_H
#include "base/arena.h"
#include "base/text.h"

typedef struct brim_table {
  brim_arena *arena;
  size_t columns;
  const char **cell; /* row by row; the first row is the heading */
  size_t count, room;
} brim_table;

/* Appends a cell; `columns` cells make a row. The text is copied by brim_text_add_shown, as names in it may come from
 * other users. */
void brim_table_add(brim_table *table, const char *text);
/* Appends a number with this many decimals; "-" if it is not finite. */
void brim_table_number(brim_table *table, double value, int decimals);
typedef struct brim_table_column {
  size_t width; /* characters of its widest cell */
  bool right;   /* all cells but the heading look like numbers */
  bool empty;   /* all cells below the heading are "" or "-" */
} brim_table_column;
/* Measures a column for printing. */
brim_table_column brim_table_measure(const brim_table *table, size_t column);
/* Right-aligns a column whose cells, apart from the heading, all look like numbers, and omits a column whose cells are
 * all "" or "-". */
void brim_table_print(const brim_table *table, brim_text *out);
#endif
