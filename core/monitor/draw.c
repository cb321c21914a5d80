/* Divides the rows among the parts of the picture. See draw.h.
 *
 * If there is little room, runs come before devices, and devices before the queue. The first row always names the host,
 * and the last row the keys. */
#include "monitor/draw.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "brim/backend.h"

#define HOSTS_SHOWN 4
#define QUEUE_SHOWN 8
#define PANEL_COLUMNS 150 /* width from which the chosen run is shown beside the list */
#define PANEL_ROWS 24
#define WIDE 100         /* columns from which the head shows everything */
#define COMMAND_LEAST 24 /* fewest free columns in which a part of a command is shown */
#define DOUBLE_RUNS 8    /* most runs that have two rows each */
#define PREVIEW_ROWS 11  /* fewest free rows in which the chosen run is shown below the list */

typedef struct frame {
  brim_cells *cells;
  const brim_look *look;
  brim_view *view; /* NULL: for a file */
  brim_area area;
  size_t *list, count, position;
} frame;

/* ---- the head ---- */

/* Formats "11 active, 5 waiting, 2 ended"; the last part only if there is room, or nothing else. */
static const char *summary_of(char *out, size_t room, const brim_look *look, size_t host, bool is_wide)
{
  size_t live = 0, waiting = 0, ended = 0, length;
  for (size_t i = 0; i < look->runs; i++) {
    if (look->run[i].host != host) continue;
    if (!brim_look_is_live(look->run[i].state))
      ended++;
    else if (look->run[i].state == BRIM_LOOK_WAITING)
      waiting++;
    else
      live++;
  }
  snprintf(out, room, live || waiting ? "%zu active" : "no runs", live);
  length = strlen(out);
  if (waiting) snprintf(out + length, room - length, ", %zu waiting", waiting);
  length = strlen(out);
  if (ended && (is_wide || live + waiting == 0)) snprintf(out + length, room - length, ", %zu ended", ended);
  return out;
}

static void draw_host(const frame *f, int row, size_t index)
{
  const brim_look_host *h = &f->look->host[index];
  const int end = f->area.column + f->area.columns;
  char text[160], used[BRIM_DRAW_TEXT], total[BRIM_DRAW_TEXT];
  int right = end;
  int column =
      brim_cells_put(f->cells, row, f->area.column, f->area.column + f->area.columns / 3, BRIM_PAINT_STRONG, h->name);
  column = brim_cells_put(f->cells, row, column + 1, end, BRIM_PAINT_PLAIN, brim_draw_clock(text, h->time, true)) + 3;
  if (h->failure[0]) {
    brim_cells_put(f->cells, row, column, end, BRIM_PAINT_BAD, h->failure);
    return;
  }
  brim_cells_put_right(f->cells, row, column, right, BRIM_PAINT_STRONG,
                       summary_of(text, sizeof text, f->look, index, f->area.columns >= WIDE));
  right -= brim_cells_width(f->cells, text) + 2;
  if (isfinite(h->load)) {
    snprintf(text, sizeof text, "load %.1f%s%.0f", h->load, isfinite(h->processors) ? " of " : "", h->processors);
    if (!isfinite(h->processors)) snprintf(text, sizeof text, "load %.1f", h->load);
    if (column + brim_cells_width(f->cells, text) <= right)
      column = brim_cells_put(f->cells, row, column, right, BRIM_PAINT_PLAIN, text) + 3;
  }
  if (h->ram_total_bytes == BRIM_BYTES_UNKNOWN) return;
  snprintf(text, sizeof text, "RAM %s of %s %s", brim_draw_in_unit(used, h->ram_used_bytes, h->ram_total_bytes),
           brim_draw_in_unit(total, h->ram_total_bytes, h->ram_total_bytes), brim_draw_unit(h->ram_total_bytes));
  if (column + brim_cells_width(f->cells, text) <= right)
    brim_cells_put(f->cells, row, column, right, BRIM_PAINT_PLAIN, text);
}

/* ---- the foot ---- */

typedef struct key_name {
  const char *key, *what;
  int need; /* 1: shown before those with higher numbers */
} key_name;

static const key_name list_keys[] = {{"q", "quit", 1},  {"enter", "detail", 2}, {"/", "filter", 4},
                                     {"m", "mine", 6},  {"s", "sort", 5},       {"i", "interrupt", 3},
                                     {"p", "pause", 7}, {"?", "help", 1},       {NULL}};
static const key_name detail_keys[] = {
    {"q", "back", 1}, {"up", "", 2}, {"down", "other run", 2}, {"i", "interrupt", 3}, {"p", "pause", 4},
    {"?", "help", 1}, {NULL}};
static const key_name help_keys[] = {{"q", "back", 1}, {NULL}};
static const key_name *const keys_of[] = {list_keys, detail_keys, help_keys}; /* by enum brim_view_mode */

static int keys_width(const key_name *keys, int most)
{
  int width = -2;
  for (const key_name *k = keys; k->key; k++)
    if (k->need <= most) width += (int)(strlen(k->key) + strlen(k->what)) + (k->what[0] ? 3 : 1);
  return width;
}

/* Drops the least important keys until the rest fits. */
static void draw_keys(const frame *f, int row)
{
  const key_name *keys = keys_of[f->view->mode];
  const int end = f->area.column + f->area.columns;
  int most = 7, column = f->area.column;
  while (most > 1 && keys_width(keys, most) > f->area.columns) most--;
  for (const key_name *k = keys; k->key; k++) {
    if (k->need > most) continue;
    column = brim_cells_put(f->cells, row, column, end, BRIM_PAINT_KEY, k->key) + 1;
    if (k->what[0]) column = brim_cells_put(f->cells, row, column, end, BRIM_PAINT_DIM, k->what) + 2;
  }
}

/* Always shows the possible answers. If there is no room, cuts the name and leaves out the consequences of a yes. */
static void draw_question(const frame *f, int row)
{
  static const char effect[] = "it writes a checkpoint and ends";
  const int answers = 14, end = f->area.column + f->area.columns; /* "? y yes  n no" and a space */
  char pid[BRIM_DRAW_TEXT];
  snprintf(pid, sizeof pid, " (pid %" PRId64 ")", f->view->asked.pid);
  int column = brim_cells_put(f->cells, row, f->area.column, end, BRIM_PAINT_WARN, "interrupt ");
  const int most = end - answers - brim_cells_width(f->cells, pid);
  column = brim_cells_put(f->cells, row, column, most, BRIM_PAINT_WARN, f->view->asked_name);
  column = brim_cells_printf(f->cells, row, column, end, BRIM_PAINT_WARN, "%s?", pid);
  column = brim_cells_put(f->cells, row, column + 1, end, BRIM_PAINT_KEY, "y");
  column = brim_cells_put(f->cells, row, column + 1, end, BRIM_PAINT_PLAIN, "yes");
  column = brim_cells_put(f->cells, row, column + 2, end, BRIM_PAINT_KEY, "n");
  column = brim_cells_put(f->cells, row, column + 1, end, BRIM_PAINT_PLAIN, "no") + 2;
  if (column + brim_cells_width(f->cells, effect) <= end)
    brim_cells_put(f->cells, row, column, end, BRIM_PAINT_DIM, effect);
}

/* Draws the last row: a question, a message, or the keys. */
static void draw_foot(const frame *f, int row)
{
  const brim_view *v = f->view;
  const int end = f->area.column + f->area.columns;
  int column = f->area.column;
  if (v->question == BRIM_VIEW_ASK_INTERRUPT) {
    draw_question(f, row);
  } else if (v->question == BRIM_VIEW_ASK_FILTER) {
    column = brim_cells_put(f->cells, row, column, end, BRIM_PAINT_KEY, "/");
    column = brim_cells_put(f->cells, row, column, end - 1, BRIM_PAINT_STRONG, v->filter);
    brim_cells_reverse(f->cells, row, column, column + 1); /* a cursor */
    brim_cells_put(f->cells, row, column + 3, end, BRIM_PAINT_DIM, "enter keeps it, escape does not");
  } else if (v->message[0]) {
    brim_cells_put(f->cells, row, column, end, BRIM_PAINT_WARN, v->message);
  } else {
    draw_keys(f, row);
  }
}

/* ---- advice and problems ---- */

static int advice_rows(const frame *f)
{
  return (int)f->look->advices + (f->look->problems > 0);
}

static void draw_advice(const frame *f, brim_area area)
{
  const int end = area.column + area.columns;
  int row = area.row, last = area.row + area.rows;
  if (f->look->problems > 0 && row < last) last--;
  for (size_t i = 0; i < f->look->advices && row < last; i++) {
    const brim_look_advice *a = &f->look->advice[i];
    int column = area.column;
    brim_cells_printf(f->cells, row, column, end, BRIM_PAINT_KEY, "%zu", i + 1);
    column = brim_cells_put(f->cells, row, column + 2, end, BRIM_PAINT_PLAIN, a->text) + 2;
    if (column + COMMAND_LEAST < end) brim_cells_put(f->cells, row, column, end, BRIM_PAINT_DIM, a->command);
    row++;
  }
  if (f->look->problems > 0 && area.rows > 0) {
    const int column = brim_cells_put(f->cells, last, area.column, end, BRIM_PAINT_WARN, "! ");
    if (f->look->problems > 1)
      brim_cells_printf(f->cells, last, column, end, BRIM_PAINT_PLAIN, "(1 of %zu) %s", f->look->problems,
                        f->look->problem[0]);
    else
      brim_cells_put(f->cells, last, column, end, BRIM_PAINT_PLAIN, f->look->problem[0]);
  }
}

/* Returns the number of rows that a text takes if it is wrapped at the edge. */
static int wrapped_rows(const brim_cells *cells, const char *text)
{
  const int width = brim_cells_width(cells, text);
  return 1 + (width > 0 ? (width - 1) / cells->columns : 0);
}

/* Writes a text over several rows, beginning in the first column, so that users can copy it. */
static void put_wrapped(brim_cells *cells, int row, int last, enum brim_paint paint, const char *text)
{
  const char *stop = text + strlen(text);
  char one[8];
  for (int column = 0; text < stop && row < last;) {
    size_t bytes;
    const char *from = brim_utf8_take(&text, stop, &bytes);
    snprintf(one, sizeof one, "%.*s", (int)bytes, from);
    const int width = brim_cells_width(cells, one);
    if (column + width > cells->columns) {
      column = 0;
      row++;
    }
    if (row < last) column = brim_cells_put(cells, row, column, cells->columns, paint, one);
  }
}

/* Draws the advice that the user has requested, above the last row, with its whole command. */
static void draw_chosen_advice(brim_cells *cells, const brim_look *look, const brim_view *view)
{
  if (view->advice == 0 || view->advice > look->advices) return;
  const brim_look_advice *a = &look->advice[view->advice - 1];
  const int foot = cells->rows - 1, wish = 1 + wrapped_rows(cells, a->text) + wrapped_rows(cells, a->command);
  const int first = foot - wish > 1 ? foot - wish : 1;
  for (int row = first; row < foot; row++)
    brim_cells_fill(cells, row, 0, cells->columns, BRIM_PAINT_PLAIN, row == first ? 0x2500 : ' ');
  brim_cells_printf(cells, first, 2, cells->columns, BRIM_PAINT_TITLE, " advice %zu ", view->advice);
  put_wrapped(cells, first + 1, foot, BRIM_PAINT_PLAIN, a->text);
  put_wrapped(cells, first + 1 + wrapped_rows(cells, a->text), foot, BRIM_PAINT_STRONG, a->command);
}

/* ---- the runs ---- */

/* Draws the title "runs 1-9 of 20   filter "vit"   mine   by rate   paused". */
static void draw_runs_title(const frame *f, brim_area area, int shown)
{
  const int end = area.column + area.columns;
  const brim_view *v = f->view;
  int column = brim_cells_put(f->cells, area.row, area.column, end, BRIM_PAINT_TITLE, "runs");
  if (!v) return;
  const bool is_part = f->count > (size_t)shown;
  if (is_part)
    column = brim_cells_printf(f->cells, area.row, column + 1, end, BRIM_PAINT_DIM, "%zu-%zu of %zu", v->top + 1,
                               v->top + (size_t)shown, f->count);
  else if (f->count < f->look->runs)
    column =
        brim_cells_printf(f->cells, area.row, column + 1, end, BRIM_PAINT_DIM, "%zu of %zu", f->count, f->look->runs);
  if (v->filter[0])
    column = brim_cells_printf(f->cells, area.row, column + 2, end, BRIM_PAINT_KEY, "with \"%s\"", v->filter);
  if (v->only_mine) column = brim_cells_put(f->cells, area.row, column + 2, end, BRIM_PAINT_KEY, "only mine");
  if (v->sort != BRIM_SORT_LOOK)
    column =
        brim_cells_printf(f->cells, area.row, column + 2, end, BRIM_PAINT_KEY, "by %s", brim_view_sort_names[v->sort]);
  if (v->is_paused) brim_cells_put(f->cells, area.row, column + 2, end, BRIM_PAINT_WARN, "PAUSED");
}

/* Explains why the list is empty. */
static void draw_no_runs(const frame *f, brim_area area)
{
  const int end = area.column + area.columns;
  const bool is_filtered = f->look->runs > 0;
  brim_cells_put(f->cells, area.row, area.column + 2, end, BRIM_PAINT_PLAIN,
                 is_filtered ? "no run matches" : "no brim run on this machine");
  if (area.rows > 1)
    brim_cells_put(f->cells, area.row + 1, area.column + 2, end, BRIM_PAINT_DIM,
                   is_filtered ? "escape shows all; m shows other users' runs" : "start one: brim train");
}

static void draw_runs(const frame *f, brim_area area, bool names)
{
  const int rows = area.rows - 1 - names; /* without the titles */
  const int each = f->count > 0 && f->count <= DOUBLE_RUNS && 2 * (int)f->count <= rows ? 2 : 1;
  const size_t page = rows / each > 0 ? (size_t)(rows / each) : 1;
  brim_view none = {0}, *v = f->view ? f->view : &none;
  if (v->top + page > f->count) v->top = f->count > page ? f->count - page : 0;
  if (f->position < v->top) v->top = f->position;
  if (f->position >= v->top + page) v->top = f->position - page + 1;
  v->page = page;
  draw_runs_title(f, area, (int)(page < f->count ? page : f->count));
  const brim_area rest = {area.row + 1, area.column, area.rows - 1, area.columns};
  if (f->count == 0)
    draw_no_runs(f, rest);
  else
    brim_draw_runs(f->cells, rest, f->look, v, f->list, f->count, each, names);
}

/* ---- the division of the rows ---- */

typedef struct rows {
  int head, devices, queue, runs, preview, advice;
  bool devices_title, names, gaps; /* names: of the columns */
  enum brim_devices_form form;
} rows;

static int at_most(int a, int b)
{
  return a < b ? a : b;
}

static rows divide(const frame *f, int all)
{
  const brim_look *look = f->look;
  rows r = {.head = at_most((int)look->hosts, HOSTS_SHOWN)};
  int left = all - r.head;
  r.names = all >= 16;
  r.devices_title = all >= 16 && look->devices > 0;
  r.queue = !f->view ? (int)look->tickets
                     : at_most((int)look->tickets, all >= 40   ? QUEUE_SHOWN
                                                   : all >= 18 ? 4
                                                   : all >= 10 ? 2
                                                   : all >= 8  ? 1
                                                               : 0);
  r.advice = !f->view ? 0 : at_most(advice_rows(f), all >= 18 ? 5 : all >= 14 ? 2 : all >= 10 ? 1 : 0);
  left -= r.queue + r.advice + r.devices_title + 1 + r.names;
  const int wish = f->count > 0 ? (int)f->count : 2;
  const int least = at_most(wish, left * 45 / 100 > 3 ? left * 45 / 100 : 3);
  for (int form = BRIM_DEVICES_FORMS - 1; form > BRIM_DEVICES_NONE; form--) {
    const int need = brim_draw_devices_rows(look, (enum brim_devices_form)form, f->area.columns);
    if (need > left - least && form > BRIM_DEVICES_TINY) continue;
    r.form = (enum brim_devices_form)form;
    r.devices = need;
    break;
  }
  left -= r.devices;
  const int doubled = f->count > 0 && f->count <= DOUBLE_RUNS ? 2 * wish : wish;
  const int parts = 1 + (r.devices > 0) + (r.queue > 0) + (r.advice > 0);
  if (!f->view) left = doubled + parts;
  r.gaps = left >= wish + parts;
  if (r.gaps) left -= parts;
  if (f->view && f->count > 0 && f->cells->columns < PANEL_COLUMNS && left - doubled >= PREVIEW_ROWS)
    r.preview = left - doubled - 2;
  if (r.preview > 0) left = doubled;
  r.runs = 1 + r.names + left;
  return r;
}

static void draw_list(const frame *f, brim_area area)
{
  const rows r = divide(f, area.rows);
  int row = area.row;
  for (int i = 0; i < r.head; i++) draw_host(f, row++, (size_t)i);
  row += r.gaps;
  if (r.devices > 0) {
    if (r.devices_title) brim_draw_devices_title(f->cells, (brim_area){row++, area.column, 1, area.columns});
    brim_draw_devices(f->cells, (brim_area){row, area.column, r.devices, area.columns}, f->look, r.form);
    row += r.devices + r.gaps;
  }
  if (r.queue > 0) {
    brim_draw_queue(f->cells, (brim_area){row, area.column, r.queue, area.columns}, f->look);
    row += r.queue + r.gaps;
  }
  draw_runs(f, (brim_area){row, area.column, r.runs, area.columns}, r.names);
  row += r.runs + (r.gaps && r.advice > 0);
  if (r.preview > 0)
    brim_draw_detail(f->cells, (brim_area){row + 1, area.column, r.preview, area.columns}, f->look,
                     f->list[f->position], false);
  if (r.preview > 0) row += r.preview + 2;
  if (r.advice > 0) draw_advice(f, (brim_area){row, area.column, r.advice, area.columns});
}

/* ---- help ---- */

static const char *const help[][2] = {
    {"up down j k", "move; page up, page down, home, end"},
    {"enter", "the chosen run: curves, memory by class, events"},
    {"/", "show only runs with this text in name, model, user, state, device"},
    {"m", "show only my runs"},
    {"s", "sort by start, name, state, time left, rate, loss, memory"},
    {"i", "interrupt the chosen run, after a confirmation"},
    {"1 2 3", "show the whole command of an advice line, to copy it"},
    {"p", "pause: the picture stays as it is"},
    {"r", "take a new snapshot now"},
    {"q escape", "back, or quit"},
    {"", ""},
    {"~08:46", "an expected time, computed from the time left of earlier runs"},
    {"t/s", "tokens a second; /s: samples a second"},
    {"load", "percent of the time in which the device worked"},
    {"libraries", "memory that brim's processes take besides their plans"},
};

static void draw_help(const frame *f, brim_area area)
{
  const int end = area.column + area.columns, indent = area.columns >= 60 ? 14 : 12;
  brim_cells_put(f->cells, area.row, area.column, end, BRIM_PAINT_TITLE, "brim monitor: keys and words");
  for (size_t i = 0; i < sizeof help / sizeof help[0]; i++) {
    const int row = area.row + 1 + (area.rows > 18) + (int)i;
    if (row >= area.row + area.rows) return;
    brim_cells_put(f->cells, row, area.column, area.column + indent, BRIM_PAINT_KEY, help[i][0]);
    brim_cells_put(f->cells, row, area.column + indent, end, BRIM_PAINT_PLAIN, help[i][1]);
  }
}

/* ---- all ---- */

static bool index_of_chosen(const frame *f, size_t *out)
{
  for (size_t i = 0; f->view->has_chosen && i < f->look->runs; i++)
    if (brim_view_is(&f->view->chosen, &f->look->run[i])) {
      *out = i;
      return true;
    }
  return false;
}

void brim_picture_draw(const brim_look *look, brim_view *view, brim_cells *cells)
{
  frame f = {cells, look, view, {0, 0, cells->rows, cells->columns}, NULL, 0, 0};
  size_t chosen = 0;
  if (cells->columns < BRIM_DRAW_COLUMNS_MIN || cells->rows < BRIM_DRAW_ROWS_MIN) {
    brim_cells_put(cells, 0, 0, cells->columns, BRIM_PAINT_WARN, "too small");
    brim_cells_printf(cells, 1, 0, cells->columns, BRIM_PAINT_PLAIN, "needs %dx%d", BRIM_DRAW_COLUMNS_MIN,
                      BRIM_DRAW_ROWS_MIN);
    brim_cells_put(cells, 2, 0, cells->columns, BRIM_PAINT_DIM, "q quits");
    return;
  }
  f.list = brim_xcalloc(look->runs + 1, sizeof *f.list);
  f.count = brim_view_list(view, look, f.list);
  if (view->mode != BRIM_VIEW_DETAIL || !index_of_chosen(&f, &chosen))
    f.position = brim_view_position(view, look, f.list, f.count);
  const brim_area body = {0, 0, cells->rows - 1, cells->columns};
  const bool has_chosen = index_of_chosen(&f, &chosen);
  if (view->mode == BRIM_VIEW_HELP) {
    draw_help(&f, body);
  } else if (view->mode == BRIM_VIEW_DETAIL && has_chosen) {
    draw_host(&f, 0, look->run[chosen].host < look->hosts ? look->run[chosen].host : 0);
    brim_draw_detail(cells, (brim_area){1 + (body.rows > 16), 0, body.rows - 1 - (body.rows > 16), body.columns}, look,
                     chosen, false);
  } else if (cells->columns >= PANEL_COLUMNS && cells->rows >= PANEL_ROWS && has_chosen) {
    const int panel = cells->columns * 2 / 5;
    f.area.columns = cells->columns - panel - 1;
    draw_list(&f, (brim_area){0, 0, body.rows, f.area.columns});
    brim_draw_detail(cells, (brim_area){0, f.area.columns + 1, body.rows, panel}, look, chosen, true);
    f.area.columns = cells->columns;
  } else {
    draw_list(&f, body);
  }
  draw_chosen_advice(cells, look, view);
  draw_foot(&f, cells->rows - 1);
  free(f.list);
}

/* Adds the lines that a picture would cut: whole commands of the advice, all reading errors, and why hosts are
 * missing. */
static void add_lines(const brim_look *look, brim_text *out)
{
  const char *gap = "\n";
  for (size_t i = 0; i < look->advices; i++, gap = "")
    brim_text_printf(out, "%s%zu %s\n  %s\n", gap, i + 1, look->advice[i].text, look->advice[i].command);
  gap = "\n";
  for (size_t i = 0; i < look->problems; i++, gap = "") brim_text_printf(out, "%s! %s\n", gap, look->problem[i]);
  for (size_t i = 0; i < look->hosts; i++)
    if (look->host[i].failure[0]) {
      brim_text_printf(out, "%s! %s: %s\n", gap, look->host[i].name, look->host[i].failure);
      gap = "";
    }
}

void brim_picture_text(const brim_look *look, int columns, bool unicode, bool color, brim_text *out)
{
  brim_cells cells;
  const int devices = brim_draw_devices_rows(look, BRIM_DEVICES_FULL, columns);
  const int parts = 16; /* heads, titles and free rows */
  brim_cells_init(&cells, columns < BRIM_DRAW_COLUMNS_MIN ? BRIM_DRAW_COLUMNS_MIN : columns,
                  devices + (int)look->tickets + 2 * (int)look->runs + (int)look->hosts + parts, unicode);
  frame f = {&cells, look, NULL, {0, 0, cells.rows, cells.columns}, NULL, 0, 0};
  f.list = brim_xcalloc(look->runs + 1, sizeof *f.list);
  f.count = brim_view_list(&(brim_view){0}, look, f.list);
  draw_list(&f, f.area);
  brim_cells_text(&cells, color, out);
  while (out->length > 1 && out->s[out->length - 2] == '\n') out->s[--out->length] = '\0'; /* rows without text */
  add_lines(look, out);
  free(f.list);
  brim_cells_release(&cells);
}
