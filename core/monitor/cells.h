/* A grid of character cells, on which the layout of `brim monitor` draws without knowledge of any terminal. brim does
 * not trust text: characters without a width, including control characters, are never stored in a cell. */
#ifndef BRIM_MONITOR_CELLS_H
#define BRIM_MONITOR_CELLS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

/* The meaning of a cell. brim_paints gives each meaning its look; no meaning is shown by colour alone. */
enum brim_paint {
  BRIM_PAINT_PLAIN,
  BRIM_PAINT_DIM,     /* units, labels, frames */
  BRIM_PAINT_STRONG,  /* important names and figures */
  BRIM_PAINT_TITLE,   /* title of a section */
  BRIM_PAINT_RUN,     /* memory and progress of a brim run */
  BRIM_PAINT_CHOSEN,  /* memory of the run that the user chose */
  BRIM_PAINT_LIBRARY, /* memory of libraries and of the driver */
  BRIM_PAINT_OTHER,   /* memory of other programs */
  BRIM_PAINT_GOOD,
  BRIM_PAINT_WARN,
  BRIM_PAINT_BAD,
  BRIM_PAINT_KEY, /* a key to press */
  BRIM_PAINT_COUNT
};

typedef struct brim_paint_look {
  int16_t color;     /* one of 256 colours, chosen to be legible on white and on black; -1: the terminal's default */
  int16_t few_color; /* one of the first 8 colours */
  bool bold, dim;
} brim_paint_look;
extern const brim_paint_look brim_paints[BRIM_PAINT_COUNT];

typedef struct brim_cell {
  uint32_t glyph; /* a code point of width 1 or 2; 0: the right half of the cell to the left */
  uint8_t paint;  /* enum brim_paint */
  bool reversed;  /* the chosen row */
} brim_cell;

#define BRIM_CELLS_COLUMNS_MAX 512
#define BRIM_CELLS_ROWS_MAX 4096

typedef struct brim_cells {
  brim_cell *cell; /* row by row */
  int columns, rows;
  bool unicode; /* false: stores only ASCII */
} brim_cells;

/* A part of the grid. Writers clip at its edges, so no text can leave it. */
typedef struct brim_area {
  int row, column, rows, columns;
} brim_area;

/* Makes a grid of spaces; sizes beyond the maxima are cut. */
void brim_cells_init(brim_cells *cells, int columns, int rows, bool unicode);
void brim_cells_release(brim_cells *cells);

/* Writes text at a place in [column, end) of a row and returns the column after it. Text that does not fit ends in an
 * ellipsis. */
int brim_cells_put(brim_cells *cells, int row, int column, int end, enum brim_paint paint, const char *text);
int brim_cells_printf(brim_cells *cells, int row, int column, int end, enum brim_paint paint, const char *format, ...)
    BRIM_PRINTF(6, 7);
/* Writes the text right-aligned in [column, end). */
void brim_cells_put_right(brim_cells *cells, int row, int column, int end, enum brim_paint paint, const char *text);
/* Stores one of brim's own glyphs, which have ASCII forms (cells.c). */
void brim_cells_glyph(brim_cells *cells, int row, int column, enum brim_paint paint, uint32_t glyph);
void brim_cells_fill(brim_cells *cells, int row, int column, int end, enum brim_paint paint, uint32_t glyph);
/* Reverses the cells of a row: the mark of the chosen line, which needs no colour. */
void brim_cells_reverse(brim_cells *cells, int row, int column, int end);
/* The number of columns that a text takes. */
int brim_cells_width(const brim_cells *cells, const char *text);

/* Appends the rows without trailing spaces; with `color`, paints are escape sequences. */
void brim_cells_text(const brim_cells *cells, bool color, brim_text *out);
#endif
