/* Draws the queue for devices. See draw.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "monitor/draw.h"

/* "1st", "2nd", "11th" */
static const char *ordinal(char *out, size_t number)
{
  const size_t last = number % 10, two = number % 100;
  const bool is_teen = two >= 11 && two <= 13;
  snprintf(out, BRIM_DRAW_TEXT, "%zu%s", number,
           is_teen     ? "th"
           : last == 1 ? "st"
           : last == 2 ? "nd"
           : last == 3 ? "rd"
                       : "th");
  return out;
}

const char *brim_draw_place(char *out, size_t room, const brim_look *look, size_t run)
{
  char place[BRIM_DRAW_TEXT], bytes[BRIM_DRAW_TEXT], starts[BRIM_DRAW_TEXT];
  snprintf(out, room, "waits for a device");
  for (size_t i = 0; i < look->tickets; i++) {
    const brim_look_ticket *t = &look->ticket[i];
    if (t->run != run || t->place == 0) continue;
    brim_draw_clock(starts, t->starts, false);
    snprintf(out, room, "%s in line for %s%s%s", ordinal(place, t->place), brim_draw_bytes(bytes, t->need_bytes),
             starts[0] ? ", starts ~" : "", starts);
    break;
  }
  return out;
}

static const char *name_of(char *out, size_t room, const brim_look *look, const brim_look_ticket *t)
{
  if (t->run < look->runs && look->run[t->run].name[0])
    snprintf(out, room, "%s", look->run[t->run].name);
  else
    snprintf(out, room, "%s %lld", t->process, (long long)t->pid);
  return out;
}

/* Formats "any cuda", "cuda:1", or with several hosts "lab7 any cuda". */
static const char *wish_of(char *out, size_t room, const brim_look *look, const brim_look_ticket *t)
{
  const bool is_any = strcmp(t->wish, "any") == 0, several = look->hosts > 1 && t->host < look->hosts;
  snprintf(out, room, "%s%s%s%s", several ? look->host[t->host].name : "on", " ", is_any ? "any " : "",
           is_any ? t->backend : t->wish);
  return out;
}

/* Draws "2  vit-b  ~08:46", if there is no width for more. */
static void draw_short(brim_cells *cells, int row, int column, int end, const brim_look *look,
                       const brim_look_ticket *t)
{
  char text[BRIM_DRAW_TEXT], name[128], starts[BRIM_DRAW_TEXT + 2];
  if (brim_draw_clock(text, t->starts, false)[0]) {
    snprintf(starts, sizeof starts, "~%s", text);
    brim_cells_put_right(cells, row, end - 6, end, BRIM_PAINT_WARN, starts);
  }
  brim_cells_put_right(cells, row, end - 17, end - 7, BRIM_PAINT_PLAIN, brim_draw_bytes(text, t->need_bytes));
  brim_cells_put(cells, row, column, end - 17, BRIM_PAINT_STRONG, name_of(name, sizeof name, look, t));
}

/* Draws "2  vit-b   22.4 GiB  on any cuda  waits 12:31  starts ~08:46  ann". */
static void draw_ticket(brim_cells *cells, int row, brim_area area, const brim_look *look, const brim_look_ticket *t)
{
  char text[BRIM_DRAW_TEXT], name[128], wish[128];
  const int end = area.column + area.columns, at = area.column + (t->place < 100 ? 3 : 4);
  const double now = t->host < look->hosts ? look->host[t->host].time : NAN;
  if (t->place > 0) brim_cells_printf(cells, row, area.column, at, BRIM_PAINT_STRONG, "%zu", t->place);
  if (area.columns < 64) {
    draw_short(cells, row, at, end, look, t);
    return;
  }
  brim_cells_put(cells, row, at, at + 14, BRIM_PAINT_STRONG, name_of(name, sizeof name, look, t));
  brim_cells_put_right(cells, row, at + 14, at + 24, BRIM_PAINT_PLAIN, brim_draw_bytes(text, t->need_bytes));
  brim_cells_put(cells, row, at + 25, at + 39, BRIM_PAINT_PLAIN, wish_of(wish, sizeof wish, look, t));
  if (t->place == 0)
    brim_cells_put(cells, row, at + 40, end, BRIM_PAINT_GOOD, "places its plan");
  else if (brim_draw_seconds(text, now - t->since)[0])
    brim_cells_printf(cells, row, at + 40, at + 53, BRIM_PAINT_DIM, "waits %s", text);
  if (t->place > 0 && brim_draw_clock(text, t->starts, false)[0])
    brim_cells_printf(cells, row, at + 54, end, BRIM_PAINT_WARN, "starts ~%s", text);
  if (t->user[0] && at + 74 <= end)
    brim_cells_put(cells, row, at + 70, end, t->is_mine ? BRIM_PAINT_CHOSEN : BRIM_PAINT_DIM,
                   t->is_mine ? "mine" : t->user);
}

void brim_draw_queue(brim_cells *cells, brim_area area, const brim_look *look)
{
  static const char title[] = "queue ";
  const int indent = (int)sizeof title - 1;
  const brim_area rest = {area.row, area.column + indent, area.rows, area.columns - indent};
  brim_cells_put(cells, area.row, area.column, area.column + area.columns, BRIM_PAINT_TITLE, title);
  for (int i = 0; i < area.rows && (size_t)i < look->tickets; i++) {
    const size_t hidden = look->tickets - (size_t)i;
    if (i > 0 && i + 1 == area.rows && hidden > 1) {
      brim_cells_printf(cells, area.row + i, rest.column, area.column + area.columns, BRIM_PAINT_DIM, "and %zu more",
                        hidden);
      return;
    }
    draw_ticket(cells, area.row + i, rest, look, &look->ticket[i]);
  }
}
