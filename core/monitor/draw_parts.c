/* Draws bars and curves, and formats numbers. See draw.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "brim/backend.h" /* BRIM_BYTES_UNKNOWN */
#include "monitor/draw.h"

#define TIME_MAX 4e9   /* maximum plausible seconds since 1970 */
#define LEFT_MAX 3.2e8 /* ten years; longer times are not shown */
#define DAY 86400.0

/* ---- numbers ---- */

const char *brim_draw_bytes(char *out, uint64_t bytes)
{
  if (bytes == BRIM_BYTES_UNKNOWN)
    snprintf(out, BRIM_DRAW_TEXT, "?");
  else
    brim_format_bytes(out, BRIM_DRAW_TEXT, bytes);
  return out;
}

static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};

static size_t unit_of(uint64_t of, double *scale)
{
  size_t u = 0;
  *scale = 1024;
  while (u + 1 < sizeof units / sizeof units[0] && (double)of >= 1000 * *scale) {
    *scale *= 1024;
    u++;
  }
  return u;
}

const char *brim_draw_unit(uint64_t of)
{
  double scale;
  return units[unit_of(of == BRIM_BYTES_UNKNOWN ? 0 : of, &scale)];
}

const char *brim_draw_in_unit(char *out, uint64_t bytes, uint64_t of)
{
  double scale;
  unit_of(of == BRIM_BYTES_UNKNOWN ? bytes : of, &scale);
  const double value = (double)bytes / scale;
  if (bytes == BRIM_BYTES_UNKNOWN)
    snprintf(out, BRIM_DRAW_TEXT, "?");
  else
    snprintf(out, BRIM_DRAW_TEXT, value < 99.95 ? "%.1f" : value < 1e5 ? "%.0f" : "%.0e", value);
  return out;
}

const char *brim_draw_rate(char *out, double rate, bool counts_tokens)
{
  const char *unit = counts_tokens ? "t/s" : "/s";
  if (!(rate > 0) || isinf(rate))
    out[0] = '\0';
  else if (rate < 9.95)
    snprintf(out, BRIM_DRAW_TEXT, "%.1f%s", rate, unit);
  else if (rate < 999.5)
    snprintf(out, BRIM_DRAW_TEXT, "%.0f%s", rate, unit);
  else if (rate < 99950)
    snprintf(out, BRIM_DRAW_TEXT, "%.1fk%s", rate / 1e3, unit);
  else if (rate < 999500)
    snprintf(out, BRIM_DRAW_TEXT, "%.0fk%s", rate / 1e3, unit);
  else
    snprintf(out, BRIM_DRAW_TEXT, rate < 9.995e8 ? "%.1fM%s" : "%.3gM%s", rate / 1e6, unit);
  return out;
}

const char *brim_draw_seconds(char *out, double seconds)
{
  out[0] = '\0';
  if (!(seconds >= 0 && seconds < LEFT_MAX)) return out;
  if (seconds < DAY)
    brim_format_seconds(out, BRIM_DRAW_TEXT, seconds);
  else if (seconds < 100 * DAY)
    snprintf(out, BRIM_DRAW_TEXT, "%.0fd %02.0fh", floor(seconds / DAY), floor(fmod(seconds, DAY) / 3600));
  else
    snprintf(out, BRIM_DRAW_TEXT, "%.0fd", floor(seconds / DAY));
  return out;
}

const char *brim_draw_clock(char *out, double time_of, bool with_seconds)
{
  struct tm local;
  const time_t at = time_of > 0 && time_of < TIME_MAX ? (time_t)time_of : 0;
  out[0] = '\0';
  if (at > 0 && localtime_r(&at, &local)) strftime(out, BRIM_DRAW_TEXT, with_seconds ? "%H:%M:%S" : "%H:%M", &local);
  return out;
}

/* Uses fewer digits until the number fits: 0.4802, 1.2e+09. */
const char *brim_draw_number(char *out, double value, int most)
{
  out[0] = '\0';
  if (!isfinite(value)) return out;
  const bool is_plain = fabs(value) < 1e5 && (value == 0 || fabs(value) >= 1e-3);
  for (int digits = 4; digits >= 0; digits--) {
    snprintf(out, BRIM_DRAW_TEXT, is_plain ? "%.*f" : "%.*e", digits, value);
    if ((int)strlen(out) <= most) break;
  }
  return out;
}

/* ---- bars ---- */

void brim_draw_bar(brim_cells *cells, int row, int column, int width, const brim_draw_share *share, size_t count)
{
  int at = 0;
  double sum = 0;
  for (size_t i = 0; i < count; i++) {
    if (!(share[i].share > 0)) continue;
    sum += share[i].share;
    int end = (int)lround((sum > 1 ? 1 : sum) * width);
    if (end <= at) end = at + 1;
    if (end > width) end = width;
    brim_cells_fill(cells, row, column + at, column + end, share[i].paint, share[i].glyph);
    at = end;
  }
  brim_cells_fill(cells, row, column + at, column + width, BRIM_PAINT_DIM, 0x2591);
}

/* The smallest step is half a cell; a thin line shows the rest. */
void brim_draw_progress(brim_cells *cells, int row, int column, int width, enum brim_paint paint, double share)
{
  const int halves = (int)((share < 0 ? 0 : share > 1 ? 1 : share) * width * 2);
  brim_cells_fill(cells, row, column, column + halves / 2, paint, 0x2501);
  brim_cells_fill(cells, row, column + halves / 2, column + width, BRIM_PAINT_DIM, 0x2500);
  if (halves % 2) brim_cells_glyph(cells, row, column + halves / 2, paint, 0x2578);
}

/* ---- curves ---- */

typedef struct extent {
  double least, most;
} extent;

static bool extent_of(const float *value, size_t count, extent *out)
{
  *out = (extent){INFINITY, -INFINITY};
  for (size_t i = 0; i < count; i++) {
    if (!isfinite(value[i])) continue;
    out->least = fmin(out->least, (double)value[i]);
    out->most = fmax(out->most, (double)value[i]);
  }
  return out->most >= out->least;
}

/* Returns the place of a value in [0, 1]; the middle for an empty extent. */
static double share_in(extent e, double value)
{
  return e.most > e.least ? (value - e.least) / (e.most - e.least) : 0.5;
}

const brim_look_curve *brim_draw_find_curve(const brim_look_run *run, const char *word)
{
  for (size_t i = 0; i < run->curves; i++)
    if (run->curve[i].count > 0 && strstr(run->curve[i].name, word)) return &run->curve[i];
  return NULL;
}

/* Returns the mean of the curve's finite values in column `at` of `width`; NAN if it has none there. */
static double mean_in(const brim_look_curve *curve, int at, int width)
{
  const size_t from = curve->count * (size_t)at / (size_t)width;
  size_t to = curve->count * (size_t)(at + 1) / (size_t)width, finite = 0;
  double sum = 0;
  if (to <= from) to = from + 1;
  for (size_t i = from; i < to && i < curve->count; i++) {
    if (!isfinite(curve->value[i])) continue;
    sum += (double)curve->value[i];
    finite++;
  }
  return finite ? sum / (double)finite : NAN;
}

void brim_draw_spark(brim_cells *cells, int row, int column, int width, enum brim_paint paint,
                     const brim_look_curve *curve)
{
  extent e;
  if (!curve || curve->count < 2 || width < 1 || !extent_of(curve->value, curve->count, &e)) return;
  for (int i = 0; i < width; i++) {
    const double mean = mean_in(curve, i, width);
    if (!isfinite(mean)) continue;
    const int level = (int)lround(share_in(e, mean) * 7);
    brim_cells_glyph(cells, row, column + i, paint, 0x2581 + (uint32_t)(level < 0 ? 0 : level > 7 ? 7 : level));
  }
}

/* ---- the curve with axes ---- */

#define LABEL 7 /* columns of a number beside the axis */

/* The bit of a dot in a Braille glyph, by row and column of its 4 by 2 dots. */
static const uint8_t braille_bit[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};

typedef struct plot {
  brim_cells *cells;
  brim_area area; /* the cells that hold the dots */
  enum brim_paint paint;
  int dots_wide, dots_high;
} plot;

static void set_dot(const plot *p, int x, int y)
{
  if (x < 0 || x >= p->dots_wide || y < 0 || y >= p->dots_high) return;
  const int wide = p->cells->unicode ? 2 : 1, high = p->cells->unicode ? 4 : 1;
  const int row = p->area.row + y / high, column = p->area.column + x / wide;
  if (row >= p->cells->rows || column >= p->cells->columns) return;
  if (!p->cells->unicode) {
    brim_cells_glyph(p->cells, row, column, p->paint, '*');
    return;
  }
  const uint32_t before = p->cells->cell[row * p->cells->columns + column].glyph;
  const uint32_t bits = before >= 0x2800 && before < 0x2900 ? before : 0x2800;
  brim_cells_glyph(p->cells, row, column, p->paint, bits | braille_bit[y % 4][x % 2]);
}

/* Draws a line between two dots, with a dot for each step along its longer side. */
static void set_line(const plot *p, int x0, int y0, int x1, int y1)
{
  const int dx = x1 - x0, dy = y1 - y0;
  const int steps = (dx < 0 ? -dx : dx) > (dy < 0 ? -dy : dy) ? (dx < 0 ? -dx : dx) : (dy < 0 ? -dy : dy);
  for (int i = 0; i <= steps; i++)
    set_dot(p, x0 + (steps ? (int)lround((double)dx * i / steps) : 0),
            y0 + (steps ? (int)lround((double)dy * i / steps) : 0));
}

static void plot_points(const plot *p, const brim_look_curve *curve, extent x, extent y)
{
  int last_x = -1, last_y = -1;
  for (size_t i = 0; i < curve->count; i++) {
    if (!isfinite(curve->step[i]) || !isfinite(curve->value[i])) {
      last_x = -1; /* a gap */
      continue;
    }
    const int at_x = (int)lround(share_in(x, (double)curve->step[i]) * (p->dots_wide - 1));
    const int at_y = (int)lround((1 - share_in(y, (double)curve->value[i])) * (p->dots_high - 1));
    if (last_x >= 0)
      set_line(p, last_x, last_y, at_x, at_y);
    else
      set_dot(p, at_x, at_y);
    last_x = at_x;
    last_y = at_y;
  }
}

static double last_value(const brim_look_curve *curve)
{
  for (size_t i = curve->count; i > 0; i--)
    if (isfinite(curve->value[i - 1])) return (double)curve->value[i - 1];
  return NAN;
}

static void draw_axes(brim_cells *cells, brim_area area, extent x, extent y)
{
  char text[BRIM_DRAW_TEXT];
  const int axis = area.column + LABEL, bottom = area.row + area.rows - 1, end = area.column + area.columns;
  for (int row = area.row + 1; row < bottom; row++) brim_cells_glyph(cells, row, axis, BRIM_PAINT_DIM, 0x2502);
  brim_cells_put_right(cells, area.row + 1, area.column, axis - 1, BRIM_PAINT_DIM,
                       brim_draw_number(text, y.most, LABEL - 1));
  if (bottom - 1 > area.row + 1 && y.most > y.least)
    brim_cells_put_right(cells, bottom - 1, area.column, axis - 1, BRIM_PAINT_DIM,
                         brim_draw_number(text, y.least, LABEL - 1));
  brim_cells_glyph(cells, bottom, axis, BRIM_PAINT_DIM, 0x2514);
  brim_cells_fill(cells, bottom, axis + 1, end, BRIM_PAINT_DIM, 0x2500);
  snprintf(text, sizeof text, " %.0f ", x.least);
  brim_cells_put(cells, bottom, axis + 2, end, BRIM_PAINT_DIM, text);
  snprintf(text, sizeof text, " step %.0f", x.most);
  if (x.most > x.least) brim_cells_put_right(cells, bottom, axis + 8, end, BRIM_PAINT_DIM, text);
}

/* The area has a row for the title, then the dots, and the axis with its numbers. */
void brim_draw_curve(brim_cells *cells, brim_area area, enum brim_paint paint, const brim_look_curve *curve)
{
  char text[BRIM_DRAW_TEXT];
  extent x, y;
  if (area.rows < 3 || area.columns < LABEL + 6) return;
  const int end = area.column + area.columns;
  const int at = brim_cells_put(cells, area.row, area.column, end, BRIM_PAINT_TITLE, curve->name);
  if (!extent_of(curve->step, curve->count, &x) || !extent_of(curve->value, curve->count, &y)) {
    brim_cells_put(cells, area.row + 1, area.column, end, BRIM_PAINT_DIM, "no values yet");
    return;
  }
  brim_cells_put(cells, area.row, at + 1, end, BRIM_PAINT_STRONG, brim_draw_number(text, last_value(curve), 9));
  draw_axes(cells, area, x, y);
  plot p = {cells, {area.row + 1, area.column + LABEL + 1, area.rows - 2, area.columns - LABEL - 1}, paint, 0, 0};
  p.dots_wide = p.area.columns * (cells->unicode ? 2 : 1);
  p.dots_high = p.area.rows * (cells->unicode ? 4 : 1);
  plot_points(&p, curve, x, y);
}
