/* See cells.h. */
#include "monitor/cells.h"

#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "base/alloc.h"
#include "base/utf8.h"

#define TEXT_BYTES 512 /* longest formatted text */
#define ELLIPSIS 0x2026
#define REPLACEMENT '?'

/* Each of these colours has a contrast of at least 3.5 to 1 with white and with black; tests/unit/test_cells.c computes
 * it. */
const brim_paint_look brim_paints[BRIM_PAINT_COUNT] = {
    [BRIM_PAINT_PLAIN] = {-1, -1},
    [BRIM_PAINT_DIM] = {243, -1, .dim = true},
    [BRIM_PAINT_STRONG] = {-1, -1, .bold = true},
    [BRIM_PAINT_TITLE] = {30, 6, .bold = true},
    [BRIM_PAINT_RUN] = {30, 6},
    [BRIM_PAINT_CHOSEN] = {133, 5, .bold = true},
    [BRIM_PAINT_LIBRARY] = {33, 4},
    [BRIM_PAINT_OTHER] = {130, 3},
    [BRIM_PAINT_GOOD] = {28, 2},
    [BRIM_PAINT_WARN] = {130, 3, .bold = true},
    [BRIM_PAINT_BAD] = {160, 1, .bold = true},
    [BRIM_PAINT_KEY] = {30, 6, .bold = true},
};

/* brim's own glyphs, with replacements for terminals without UTF-8. */
static const struct {
  uint32_t glyph;
  char ascii;
} plain_form[] = {
    {0x2588, '#'}, {0x2593, '%'}, {0x2592, '+'},   {0x259a, ':'}, {0x2591, '.'}, {0x2501, '='}, {0x2578, '>'},
    {0x2500, '-'}, {0x2502, '|'}, {0x250c, '+'},   {0x2514, '+'}, {0x2510, '+'}, {0x2518, '+'}, {0x251c, '+'},
    {0x2524, '+'}, {0x25b8, '>'}, {0x2581, '_'},   {0x2582, '.'}, {0x2583, ','}, {0x2584, '-'}, {0x2585, '~'},
    {0x2586, '+'}, {0x2587, '='}, {ELLIPSIS, '~'}, {0x00b0, ' '}, {0x00b7, '.'}, {0x25b2, '^'}, {0x25bc, 'v'},
};

static uint32_t ascii_of(uint32_t glyph)
{
  for (size_t i = 0; i < sizeof plain_form / sizeof plain_form[0]; i++)
    if (plain_form[i].glyph == glyph) return (uint32_t)plain_form[i].ascii;
  return glyph < 0x80 ? glyph : REPLACEMENT;
}

/* Returns a character's width. brim never calls setlocale, so without this locale, which is part of the C library,
 * wcwidth() knows only ASCII. The result is 0 for combining and formatting characters, such as those that reverse the
 * direction of text, and -1 for control characters. */
static int width_of(int32_t c)
{
  static locale_t utf8;
  static bool tried;
  if (c < 0x80) return c >= 0x20 && c < 0x7f ? 1 : -1;
  if (!tried) utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
  tried = true;
  if (!utf8) return -1;
  const locale_t before = uselocale(utf8);
  const int width = wcwidth((wchar_t)c);
  uselocale(before);
  return width;
}

void brim_cells_init(brim_cells *cells, int columns, int rows, bool unicode)
{
  columns = columns < 1 ? 1 : columns > BRIM_CELLS_COLUMNS_MAX ? BRIM_CELLS_COLUMNS_MAX : columns;
  rows = rows < 1 ? 1 : rows > BRIM_CELLS_ROWS_MAX ? BRIM_CELLS_ROWS_MAX : rows;
  *cells = (brim_cells){.columns = columns, .rows = rows, .unicode = unicode};
  cells->cell = brim_xcalloc((size_t)columns * (size_t)rows, sizeof *cells->cell);
  for (int i = 0; i < columns * rows; i++) cells->cell[i].glyph = ' ';
}

void brim_cells_release(brim_cells *cells)
{
  free(cells->cell);
  *cells = (brim_cells){0};
}

static brim_cell *cell_at(brim_cells *cells, int row, int column)
{
  if (row < 0 || row >= cells->rows || column < 0 || column >= cells->columns) return NULL;
  return &cells->cell[row * cells->columns + column];
}

static void store(brim_cells *cells, int row, int column, enum brim_paint paint, uint32_t glyph)
{
  brim_cell *cell = cell_at(cells, row, column);
  if (!cell) return;
  *cell = (brim_cell){.glyph = glyph, .paint = (uint8_t)paint};
}

/* Returns the next character of the text that can be shown, and its width; 0 at the end. */
static uint32_t next_shown(const brim_cells *cells, const char **s, const char *end, int *width)
{
  while (*s < end) {
    const int32_t c = brim_utf8_next(s, end);
    if (c < 0) ++*s;
    *width = c < 0 ? 1 : width_of(c);
    if (c >= 0 && *width == 0) continue;
    if (*width < 0 || c < 0) {
      *width = 1;
      return REPLACEMENT;
    }
    if (!cells->unicode && c >= 0x80) {
      *width = 1;
      return ascii_of((uint32_t)c);
    }
    return (uint32_t)c;
  }
  *width = 0;
  return 0;
}

int brim_cells_width(const brim_cells *cells, const char *text)
{
  const char *end = text + strlen(text);
  int all = 0, width;
  while (next_shown(cells, &text, end, &width)) all += width;
  return all;
}

int brim_cells_put(brim_cells *cells, int row, int column, int end, enum brim_paint paint, const char *text)
{
  const char *stop = text + strlen(text);
  int width;
  if (end > cells->columns) end = cells->columns;
  if (column >= end) return column;
  const bool cut = brim_cells_width(cells, text) > end - column;
  if (cut) end--;
  for (uint32_t c = next_shown(cells, &text, stop, &width); c && column + width <= end;
       c = next_shown(cells, &text, stop, &width)) {
    store(cells, row, column, paint, c);
    if (width == 2) store(cells, row, column + 1, paint, 0);
    column += width;
  }
  if (cut) store(cells, row, column++, paint, cells->unicode ? ELLIPSIS : ascii_of(ELLIPSIS));
  return column;
}

int brim_cells_printf(brim_cells *cells, int row, int column, int end, enum brim_paint paint, const char *format, ...)
{
  char text[TEXT_BYTES];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  return brim_cells_put(cells, row, column, end, paint, text);
}

void brim_cells_put_right(brim_cells *cells, int row, int column, int end, enum brim_paint paint, const char *text)
{
  const int width = brim_cells_width(cells, text);
  if (end - width > column) column = end - width;
  brim_cells_put(cells, row, column, end, paint, text);
}

void brim_cells_glyph(brim_cells *cells, int row, int column, enum brim_paint paint, uint32_t glyph)
{
  store(cells, row, column, paint, cells->unicode ? glyph : ascii_of(glyph));
}

void brim_cells_fill(brim_cells *cells, int row, int column, int end, enum brim_paint paint, uint32_t glyph)
{
  for (int i = column; i < end; i++) brim_cells_glyph(cells, row, i, paint, glyph);
}

void brim_cells_reverse(brim_cells *cells, int row, int column, int end)
{
  for (int i = column; i < end; i++) {
    brim_cell *cell = cell_at(cells, row, i);
    if (!cell) continue;
    cell->reversed = true; /* without its own colour, because reversed colours side by side are hard to read */
    cell->paint = brim_paints[cell->paint].bold ? BRIM_PAINT_STRONG : BRIM_PAINT_PLAIN;
  }
}

/* ---- as text ---- */

static void add_glyph(brim_text *out, uint32_t c)
{
  char bytes[4];
  brim_text_add_n(out, bytes, brim_utf8_put(c, bytes));
}

/* Uses only the 8 colours that every terminal has, as its user has set them. */
static void add_paint(brim_text *out, enum brim_paint paint)
{
  const brim_paint_look *look = &brim_paints[paint];
  brim_text_add(out, "\033[0");
  if (look->bold) brim_text_add(out, ";1");
  if (look->dim) brim_text_add(out, ";2");
  if (look->few_color >= 0) brim_text_printf(out, ";3%d", look->few_color);
  brim_text_add(out, "m");
}

void brim_cells_text(const brim_cells *cells, bool color, brim_text *out)
{
  for (int row = 0; row < cells->rows; row++) {
    const brim_cell *cell = &cells->cell[row * cells->columns];
    int last = cells->columns, paint = BRIM_PAINT_PLAIN;
    while (last > 0 && cell[last - 1].glyph == ' ') last--;
    for (int i = 0; i < last; i++) {
      if (color && cell[i].paint != paint) add_paint(out, cell[i].paint);
      paint = cell[i].paint;
      if (cell[i].glyph) add_glyph(out, cell[i].glyph);
    }
    if (color && paint != BRIM_PAINT_PLAIN) brim_text_add(out, "\033[0m");
    brim_text_add(out, "\n");
  }
}
