/* Draws the picture of `brim monitor`: a pure function of a look, a view and a size. draw.c divides the rows; each part
 * has a file. None of these files depends on a terminal, and none changes the look. */
#ifndef BRIM_MONITOR_DRAW_H
#define BRIM_MONITOR_DRAW_H
#include "monitor/cells.h"
#include "monitor/look.h"
#include "monitor/view.h"

/* The smallest grid for a picture. */
#define BRIM_DRAW_COLUMNS_MIN 40
#define BRIM_DRAW_ROWS_MIN 8

/* Draws the list of runs with devices, queue and advice, or the chosen run, or the help, depending on the view. Scrolls
 * the view so that the chosen run is visible. */
void brim_picture_draw(const brim_look *look, brim_view *view, brim_cells *cells);
/* Adds the same picture to `out`, for a file or a pipe: without keys and with a row for everything, followed by the
 * advice with its commands, and all problems. These lines contain untrusted texts from the look: print the result with
 * brim_cli_print. */
void brim_picture_text(const brim_look *look, int columns, bool unicode, bool color, brim_text *out);

/* ---- draw_parts.c: small pieces; functions that make a text write it to `out` and return it ---- */

#define BRIM_DRAW_TEXT 32                                               /* bytes that suffice for any of these texts */
const char *brim_draw_bytes(char *out, uint64_t bytes);                 /* "44.6 MiB"; "?" if unknown */
const char *brim_draw_in_unit(char *out, uint64_t bytes, uint64_t of);  /* "44.6", in the unit of `of` */
const char *brim_draw_unit(uint64_t of);                                /* "MiB" */
const char *brim_draw_rate(char *out, double rate, bool counts_tokens); /* "1.3k/s"; "" if unknown */
const char *brim_draw_seconds(char *out, double seconds);               /* "0:12", "1:02:03", "3d 04h"; "" if unknown */
const char *brim_draw_clock(char *out, double time, bool with_seconds); /* "08:44" */
const char *brim_draw_number(char *out, double value,
                             int most); /* at most `most` characters; "" for a number that is not finite */

/* Parts of a bar, from left to right; the rest is free. */
typedef struct brim_draw_share {
  double share;
  enum brim_paint paint;
  uint32_t glyph;
} brim_draw_share;
/* Every part above zero gets at least one cell, as long as there are enough cells. */
void brim_draw_bar(brim_cells *cells, int row, int column, int width, const brim_draw_share *share, size_t count);
void brim_draw_progress(brim_cells *cells, int row, int column, int width, enum brim_paint paint, double share);
/* Draws a curve in one row of block glyphs, scaled from its lowest to its highest value. */
void brim_draw_spark(brim_cells *cells, int row, int column, int width, enum brim_paint paint,
                     const brim_look_curve *curve);
/* Draws a curve with its title and axes: dots of Braille glyphs, two by four in a cell; '*' without UTF-8. */
void brim_draw_curve(brim_cells *cells, brim_area area, enum brim_paint paint, const brim_look_curve *curve);
/* Returns the curve with this word in its name, or NULL. */
const brim_look_curve *brim_draw_find_curve(const brim_look_run *run, const char *word);

/* ---- draw_devices.c ---- */

enum brim_devices_form {
  BRIM_DEVICES_NONE,
  BRIM_DEVICES_TINY, /* one row: a glyph for each device's memory, and one for its load */
  BRIM_DEVICES_HALF, /* two in a row */
  BRIM_DEVICES_LINE, /* a row each */
  BRIM_DEVICES_FULL, /* two rows each */
  BRIM_DEVICES_FORMS
};
int brim_draw_devices_rows(const brim_look *look, enum brim_devices_form form, int columns);
void brim_draw_devices(brim_cells *cells, brim_area area, const brim_look *look, enum brim_devices_form form);
void brim_draw_devices_title(brim_cells *cells, brim_area area);

/* Draws the runs with `each` lines per run (1 or 2), after a title if `title`. */

/* The number of rows for the runs, with `each` lines per run (1 or 2), and a title if `title`. */
void brim_draw_runs(brim_cells *cells, brim_area area, const brim_look *look, const brim_view *view, const size_t *list,
                    size_t count, int each, bool title);
/* The word for a run's state, or for being stopped or stalled, which are not states. */
const char *brim_draw_state(const brim_look_run *run);
enum brim_paint brim_draw_state_paint(const brim_look_run *run);
const char *brim_draw_silence(char *out, const brim_look_run *run); /* "no step for 40 s"; "" */

/* ---- draw_queue.c ---- */

void brim_draw_queue(brim_cells *cells, brim_area area, const brim_look *look);
/* The place of a run in the queue: "2nd in line for 22.4 GiB, starts ~08:46". */
const char *brim_draw_place(char *out, size_t room, const brim_look *look, size_t run);

/* ---- draw_detail.c ---- */

void brim_draw_detail(brim_cells *cells, brim_area area, const brim_look *look, size_t index, bool boxed);
#endif
