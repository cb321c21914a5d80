/* Tables for people: rows of cells, each column as wide as its widest cell, numbers to the right. */
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

/* Appends a cell; a row is full after `columns` of them. The text is copied, by brim_text_add_shown: names in it may be
 * anybody's. */
void brim_table_add(brim_table *table, const char *text);
/* A number with so many decimals; "-" for one that is not finite. */
void brim_table_number(brim_table *table, double value, int decimals);
typedef struct brim_table_column {
  size_t width; /* characters of its widest cell */
  bool right;   /* all cells but the heading look like numbers */
  bool empty;   /* there is no text below the heading, but "" or "-" */
} brim_table_column;
/* How a column is to be shown. */
brim_table_column brim_table_measure(const brim_table *table, size_t column);
/* A column is aligned to the right if all its cells but the heading look like numbers; a column without any text below
 * the heading ("" or "-") is left out. */
void brim_table_print(const brim_table *table, brim_text *out);
#endif
