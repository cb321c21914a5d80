/* Draws the devices, in the largest form for which there is room. See draw.h.
 *
 * Memory is drawn from left to right by owner; a glyph and a colour for each: this user's runs, others' runs, other
 * memory of these processes, other programs, free memory. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "brim/backend.h"
#include "monitor/draw.h"

#define LABEL_LEAST 6
#define LABEL_MOST 16
#define HALF_LEAST 18 /* least width, in columns, of a device if two share a row */
#define FREE_WIDTH 5
#define HOT 85 /* degrees at which GPUs begin to slow down */

enum { MINE, RUNS, LIBRARIES, OTHER, OWNERS };
static const struct owner {
  const char *name;
  enum brim_paint paint;
  uint32_t glyph;
} owners[OWNERS] = {{"mine", BRIM_PAINT_CHOSEN, 0x2588},
                    {"brim", BRIM_PAINT_RUN, 0x2593},
                    {"libraries", BRIM_PAINT_LIBRARY, 0x259a},
                    {"other", BRIM_PAINT_OTHER, 0x2592}};

static uint64_t known(uint64_t bytes)
{
  return bytes == BRIM_BYTES_UNKNOWN ? 0 : bytes;
}

static void bytes_by_owner(const brim_look_device *d, uint64_t out[OWNERS])
{
  out[MINE] = known(d->mine_bytes);
  out[RUNS] = known(d->brim_bytes);
  out[LIBRARIES] = known(d->libraries_bytes);
  out[OTHER] = known(d->other_bytes);
}

static double used_share(const brim_look_device *d)
{
  const uint64_t total = known(d->total_bytes), free = known(d->free_bytes);
  return total > 0 && free <= total ? (double)(total - free) / (double)total : 0;
}

static void draw_memory(brim_cells *cells, int row, int column, int width, const brim_look_device *d)
{
  uint64_t bytes[OWNERS];
  brim_draw_share share[OWNERS];
  bytes_by_owner(d, bytes);
  for (int i = 0; i < OWNERS; i++)
    share[i] = (brim_draw_share){known(d->total_bytes) ? (double)bytes[i] / (double)d->total_bytes : 0, owners[i].paint,
                                 owners[i].glyph};
  brim_draw_bar(cells, row, column, width, share, OWNERS);
}

/* "61.2/80.0 GiB" */
static const char *used_text(char *out, const brim_look_device *d, bool with_unit)
{
  char used[BRIM_DRAW_TEXT], total[BRIM_DRAW_TEXT];
  const uint64_t taken = known(d->total_bytes) > known(d->free_bytes) ? d->total_bytes - known(d->free_bytes) : 0;
  snprintf(out, 3 * BRIM_DRAW_TEXT, "%s/%s%s%s", brim_draw_in_unit(used, taken, d->total_bytes),
           brim_draw_in_unit(total, d->total_bytes, d->total_bytes), with_unit ? " " : "",
           with_unit ? brim_draw_unit(d->total_bytes) : "");
  return out;
}

static const char *label_of(char *out, size_t room, const brim_look *look, const brim_look_device *d)
{
  if (look->hosts > 1 && d->host < look->hosts)
    snprintf(out, room, "%s %s", look->host[d->host].name, d->label);
  else
    snprintf(out, room, "%s", d->label);
  return out;
}

static int label_width(const brim_cells *cells, const brim_look *look)
{
  char text[256];
  int most = LABEL_LEAST;
  for (size_t i = 0; i < look->devices; i++) {
    const int width = brim_cells_width(cells, label_of(text, sizeof text, look, &look->device[i]));
    if (width > most) most = width;
  }
  return most < LABEL_MOST ? most : LABEL_MOST;
}

/* Shortens a name to "H100 80GB HBM3", because the maker is not important here. */
static const char *short_name(const char *name)
{
  static const char maker[] = "NVIDIA ";
  return strncmp(name, maker, sizeof maker - 1) == 0 ? name + sizeof maker - 1 : name;
}

/* Draws load and temperature in the last columns before `end`; returns the column where they begin. */
static int draw_load(brim_cells *cells, int row, int end, const brim_look_device *d, bool with_heat)
{
  char text[BRIM_DRAW_TEXT];
  if (with_heat) {
    const int width = cells->unicode ? 5 : 4;
    snprintf(text, sizeof text, "%.0f%sC", d->celsius, cells->unicode ? "\u00b0" : "");
    if (isfinite(d->celsius))
      brim_cells_put_right(cells, row, end - width, end, d->celsius >= HOT ? BRIM_PAINT_BAD : BRIM_PAINT_PLAIN, text);
    end -= width;
  }
  snprintf(text, sizeof text, "%.0f%%", d->load);
  if (isfinite(d->load)) brim_cells_put_right(cells, row, end - 4, end, BRIM_PAINT_STRONG, text);
  return end - 4;
}

static bool any_heat(const brim_look *look)
{
  for (size_t i = 0; i < look->devices; i++)
    if (isfinite(look->device[i].celsius)) return true;
  return false;
}

/* Draws "32.1 GiB free  41.2 mine  6.1 other": always the free memory, then as many owners as fit. */
static void draw_owners(brim_cells *cells, int row, int column, int end, const brim_look_device *d)
{
  char text[BRIM_DRAW_TEXT];
  uint64_t bytes[OWNERS];
  bytes_by_owner(d, bytes);
  brim_cells_put_right(cells, row, column, column + FREE_WIDTH, BRIM_PAINT_STRONG,
                       brim_draw_in_unit(text, d->free_bytes, d->total_bytes));
  column += FREE_WIDTH;
  if (end - column > 40)
    column = brim_cells_printf(cells, row, column, end, BRIM_PAINT_DIM, " of %s",
                               brim_draw_in_unit(text, d->total_bytes, d->total_bytes));
  column = brim_cells_printf(cells, row, column + 1, end, BRIM_PAINT_DIM, "%s free", brim_draw_unit(d->total_bytes));
  for (int i = 0; i < OWNERS; i++) {
    if (bytes[i] == 0) continue;
    brim_draw_in_unit(text, bytes[i], d->total_bytes);
    if (column + 3 + (int)(strlen(text) + strlen(owners[i].name)) > end) return;
    column = brim_cells_put(cells, row, column + 2, end, owners[i].paint, text);
    column = brim_cells_put(cells, row, column + 1, end, BRIM_PAINT_DIM, owners[i].name);
  }
}

/* ---- the forms ---- */

/* cuda:0  ██████▓▒░░░░  61.2/80.0 GiB  87%  61°C */
static void draw_half(brim_cells *cells, int row, int column, int width, const brim_look *look,
                      const brim_look_device *d, int label, bool heat)
{
  char text[256], used[3 * BRIM_DRAW_TEXT];
  int end = column + width;
  const bool narrow = width < 34;
  brim_cells_put(cells, row, column, column + label, BRIM_PAINT_STRONG, label_of(text, sizeof text, look, d));
  end = draw_load(cells, row, end, d, heat && !narrow) - 1;
  if (!narrow) {
    brim_cells_put_right(cells, row, column + label, end, BRIM_PAINT_PLAIN, used_text(used, d, false));
    end -= 10;
  }
  if (end - column - label - 1 > 3) draw_memory(cells, row, column + label + 1, end - column - label - 1, d);
}

static void draw_line(brim_cells *cells, int row, brim_area area, const brim_look *look, const brim_look_device *d,
                      int label, bool heat)
{
  char text[256];
  int column = area.column, end = area.column + area.columns;
  brim_cells_put(cells, row, column, column + label, BRIM_PAINT_STRONG, label_of(text, sizeof text, look, d));
  column += label + 1;
  end = draw_load(cells, row, end, d, heat) - 1;
  const int bar = area.columns >= 100 ? 30 : area.columns >= 64 ? 20 : 8;
  draw_memory(cells, row, column, bar, d);
  draw_owners(cells, row, column + bar + 2, end, d);
}

static void draw_full(brim_cells *cells, int row, brim_area area, const brim_look *look, const brim_look_device *d,
                      int label)
{
  char text[256], power[2 * BRIM_DRAW_TEXT] = "";
  const int column = area.column + label + 1, end = area.column + area.columns;
  brim_cells_put(cells, row, area.column, area.column + label, BRIM_PAINT_STRONG, label_of(text, sizeof text, look, d));
  if (isfinite(d->watts) && isfinite(d->watts_max))
    snprintf(power, sizeof power, "%.0f of %.0f W", d->watts, d->watts_max);
  else if (isfinite(d->watts))
    snprintf(power, sizeof power, "%.0f W", d->watts);
  int right = draw_load(cells, row, end, d, isfinite(d->celsius)) - 1;
  if (brim_cells_width(cells, power) + 8 < right - column) {
    brim_cells_put_right(cells, row, column, right, BRIM_PAINT_DIM, power);
    right -= brim_cells_width(cells, power) + 1;
  }
  brim_cells_put(cells, row, column, right, BRIM_PAINT_PLAIN, short_name(d->name));
  const int bar = area.columns >= 116 ? 44 : area.columns * 2 / 5 - 4;
  draw_memory(cells, row + 1, column, bar, d);
  draw_owners(cells, row + 1, column + bar + 2, end, d);
}

/* devices 8   memory ▇▇█▂▁▅▇▇   load ▇▇█▁▁▅▇▇ */
static void draw_tiny(brim_cells *cells, brim_area area, const brim_look *look)
{
  const int end = area.column + area.columns, room = (area.columns - 18) / 2;
  const int count = (int)look->devices < room ? (int)look->devices : room;
  int column = brim_cells_printf(cells, area.row, area.column, end, BRIM_PAINT_STRONG, "%zu dev", look->devices);
  for (int what = 0; what < 2; what++) {
    column = brim_cells_put(cells, area.row, column + 1, end, BRIM_PAINT_DIM, what ? "load" : "mem");
    for (int i = 0; i < count; i++) {
      const brim_look_device *d = &look->device[i];
      const double share = what ? (isfinite(d->load) ? d->load / 100 : 0) : used_share(d);
      const int level = (int)lround((share < 0 ? 0 : share > 1 ? 1 : share) * 7);
      brim_cells_glyph(cells, area.row, column + 1 + i, what ? BRIM_PAINT_GOOD : BRIM_PAINT_RUN,
                       0x2581 + (uint32_t)level);
    }
    column += 1 + count;
  }
}

int brim_draw_devices_rows(const brim_look *look, enum brim_devices_form form, int columns)
{
  const int count = (int)look->devices;
  if (count == 0 || form == BRIM_DEVICES_NONE) return 0;
  if (form == BRIM_DEVICES_TINY) return 1;
  if (form == BRIM_DEVICES_HALF) return columns < 2 * HALF_LEAST + 2 ? count : (count + 1) / 2;
  return form == BRIM_DEVICES_LINE ? count : 2 * count;
}

void brim_draw_devices(brim_cells *cells, brim_area area, const brim_look *look, enum brim_devices_form form)
{
  const int label = label_width(cells, look), end = area.row + area.rows;
  const bool heat = any_heat(look);
  if (form == BRIM_DEVICES_TINY) {
    draw_tiny(cells, area, look);
    return;
  }
  const int half = (area.columns - 2) / 2, rows = brim_draw_devices_rows(look, form, area.columns);
  for (size_t i = 0; i < look->devices; i++) {
    const brim_look_device *d = &look->device[i];
    const int row = area.row + (form == BRIM_DEVICES_FULL ? 2 * (int)i : (int)i);
    if (form == BRIM_DEVICES_HALF && rows > 0) {
      const int line = area.row + (int)i % rows, side = (int)i / rows;
      if (line < end) draw_half(cells, line, area.column + side * (half + 2), half, look, d, label, heat);
    } else if (form == BRIM_DEVICES_LINE && row < end) {
      draw_line(cells, row, area, look, d, label, heat);
    } else if (form == BRIM_DEVICES_FULL && row + 1 < end) {
      draw_full(cells, row, area, look, d, label);
    }
  }
}

/* Draws the title, with the meaning of the bars' glyphs. */
void brim_draw_devices_title(brim_cells *cells, brim_area area)
{
  int all = 0;
  brim_cells_put(cells, area.row, area.column, area.column + area.columns, BRIM_PAINT_TITLE, "devices");
  for (int i = 0; i < OWNERS; i++) all += (int)strlen(owners[i].name) + 4;
  all += 6; /* ░ free */
  if (area.columns - 9 < all) return;
  int column = area.column + area.columns - all;
  for (int i = 0; i < OWNERS; i++) {
    brim_cells_glyph(cells, area.row, column, owners[i].paint, owners[i].glyph);
    column = brim_cells_put(cells, area.row, column + 2, column + 16, BRIM_PAINT_DIM, owners[i].name) + 2;
  }
  brim_cells_glyph(cells, area.row, column, BRIM_PAINT_DIM, 0x2591);
  brim_cells_put(cells, area.row, column + 2, column + 8, BRIM_PAINT_DIM, "free");
}
