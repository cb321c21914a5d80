/* See table.h. Widths are counted in characters, not bytes. */
#include "base/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GAP 2 /* spaces between columns */

void brim_table_add(brim_table *table, const char *text)
{
  brim_text shown = {0};
  BRIM_ARENA_GROW(table->arena, table->cell, table->count, table->room);
  brim_text_add_shown(&shown, text, "");
  table->cell[table->count++] = brim_arena_string(table->arena, brim_text_str(&shown));
  brim_text_release(&shown);
}

void brim_table_number(brim_table *table, double value, int decimals)
{
  brim_table_add(table, isfinite(value) ? brim_arena_printf(table->arena, "%.*f", decimals, value) : "-");
}

/* Counts characters of UTF-8 text: bytes that are not continuation bytes. */
static size_t width_of(const char *s)
{
  size_t width = 0;
  for (; *s; s++) width += ((unsigned char)*s & 0xC0) != 0x80;
  return width;
}

static bool is_absent(const char *s)
{
  return s[0] == '\0' || strcmp(s, "-") == 0;
}

/* Whether the text starts with a number: 0.1, 92.5 %, 0:12, and ?0.1 for a guessed one. */
static bool is_number(const char *s)
{
  char *end = NULL;
  if (*s == '?') s++;
  strtod(s, &end);
  return end != s;
}

brim_table_column brim_table_measure(const brim_table *table, size_t column)
{
  brim_table_column out = {width_of(table->cell[column]), true, true};
  for (size_t i = column + table->columns; i < table->count; i += table->columns) {
    const size_t width = width_of(table->cell[i]);
    if (width > out.width) out.width = width;
    if (is_absent(table->cell[i])) continue;
    out.empty = false;
    out.right = out.right && is_number(table->cell[i]);
  }
  return out;
}

static void pad(brim_text *out, size_t count)
{
  while (count-- > 0) brim_text_add(out, " ");
}

void brim_table_print(const brim_table *table, brim_text *out)
{
  brim_table_column *columns = brim_xcalloc(table->columns, sizeof *columns);
  for (size_t c = 0; c < table->columns && c < table->count; c++) columns[c] = brim_table_measure(table, c);
  for (size_t i = 0; i < table->count; i += table->columns) {
    size_t owed = 0; /* spaces that are written only if a cell follows */
    for (size_t c = 0; c < table->columns && i + c < table->count; c++) {
      if (columns[c].empty) continue;
      const size_t rest = columns[c].width - width_of(table->cell[i + c]);
      pad(out, owed + (columns[c].right ? rest : 0));
      brim_text_add(out, table->cell[i + c]);
      owed = GAP + (columns[c].right ? 0 : rest);
    }
    brim_text_add(out, "\n");
  }
  free(columns);
}
