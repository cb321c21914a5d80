/* Draws a run in full: its figures, curves, memory by class and newest events. See draw.h. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "brim/backend.h"
#include "monitor/draw.h"

#define GAP 2              /* columns between two parts side by side */
#define SIDE_BY_SIDE 64    /* columns from which curves are side by side */
#define TWO_HALVES 130     /* columns from which curves are beside memory and events */
#define CURVE_ROWS_LEAST 5 /* fewest rows of a curve if several are one above the other */
#define CURVE_ROWS_MOST 16
#define EVENT_KIND 11 /* columns */

/* ---- figures ---- */

/* Adds "label value" after the column and returns the column after it; begins a new row if the row is full. */
static void add_fact(brim_cells *cells, brim_area *at, int *column, const char *label, const char *value)
{
  const int width = brim_cells_width(cells, label) + 1 + brim_cells_width(cells, value);
  if (!value[0] || at->rows < 1) return;
  if (*column > at->column && *column + width > at->column + at->columns) {
    at->row++;
    at->rows--;
    *column = at->column;
    if (at->rows < 1) return;
  }
  const int end = at->column + at->columns;
  if (label[0]) *column = brim_cells_put(cells, at->row, *column, end, BRIM_PAINT_DIM, label) + 1;
  *column = brim_cells_put(cells, at->row, *column, end, BRIM_PAINT_PLAIN, value) + GAP + 1;
}

static const char *count_text(char *out, int64_t count)
{
  out[0] = '\0';
  if (count > 0) snprintf(out, BRIM_DRAW_TEXT, "%" PRId64, count);
  return out;
}

static const char *milliseconds(char *out, double seconds)
{
  out[0] = '\0';
  if (seconds > 0 && seconds < 1e5) snprintf(out, BRIM_DRAW_TEXT, seconds < 10 ? "%.1f ms" : "%.0f ms", 1e3 * seconds);
  return out;
}

static void draw_facts(brim_cells *cells, brim_area *at, int column, const brim_look_run *run)
{
  char text[3 * BRIM_DRAW_TEXT], one[BRIM_DRAW_TEXT], two[BRIM_DRAW_TEXT];
  add_fact(cells, at, &column, "started", brim_draw_clock(text, run->started, false));
  if (run->queue_seconds >= 0.5) add_fact(cells, at, &column, "waited", brim_draw_seconds(text, run->queue_seconds));
  if (run->micro_batch > 0 && run->batch > 0) {
    snprintf(text, sizeof text, "%" PRId64 " of %" PRId64, run->micro_batch, run->batch);
    add_fact(cells, at, &column, "micro-batch", text);
  }
  if (milliseconds(one, run->step_seconds)[0]) {
    const bool known = milliseconds(two, run->predicted_step_seconds)[0] != '\0';
    snprintf(text, sizeof text, "%s%s%s%s", one, known ? " (predicted " : "", known ? two : "", known ? ")" : "");
    add_fact(cells, at, &column, "step", text);
  }
  if (isfinite(run->loader_share) && run->loader_share >= 0.005) {
    snprintf(text, sizeof text, "%.0f%%", 100 * run->loader_share);
    add_fact(cells, at, &column, "waits for samples", text);
  }
  if (run->ranks > 1) {
    snprintf(text, sizeof text, "%" PRId64 " of %" PRId64, run->rank, run->ranks);
    add_fact(cells, at, &column, "rank", text);
  }
  add_fact(cells, at, &column, "decisions", count_text(text, run->decisions));
  add_fact(cells, at, &column, "recoveries", count_text(text, run->retries));
}

/* Draws "cnn-lr3  training  cnn on fashion_mnist                       ann  7630  cuda:0". */
static void draw_head(brim_cells *cells, int row, brim_area area, const brim_look *look, const brim_look_run *run)
{
  char text[256];
  int column = area.column, end = area.column + area.columns;
  const char *device = run->device < look->devices ? look->device[run->device].label : run->device_text;
  const char *host = look->hosts > 1 && run->host < look->hosts ? look->host[run->host].name : "";
  snprintf(text, sizeof text, "%s%s%s%s%s", host, host[0] ? " " : "", device, device[0] ? "  " : "",
           run->is_mine ? "mine" : run->user);
  if (run->pid > 0) snprintf(text + strlen(text), sizeof text - strlen(text), " %" PRId64, run->pid);
  const int width = brim_cells_width(cells, text);
  if (width + 24 < area.columns) {
    brim_cells_put_right(cells, row, column, end, BRIM_PAINT_DIM, text);
    end -= width + GAP;
  }
  column = brim_cells_put(cells, row, column, end - 14, BRIM_PAINT_STRONG, run->name) + GAP;
  column = brim_cells_put(cells, row, column, end, brim_draw_state_paint(run), brim_draw_state(run)) + GAP;
  if (run->model[0]) {
    snprintf(text, sizeof text, "%s%s%s", run->model, run->dataset[0] ? " on " : "", run->dataset);
    brim_cells_put(cells, row, column, end, BRIM_PAINT_PLAIN, text);
  }
}

/* Draws "━━━━━━━━╸────  93%  step 205/220  epoch 5/5  loss 0.48  1.3k/s  left 0:01". */
static int draw_way(brim_cells *cells, brim_area *at, const brim_look *look, size_t index)
{
  const brim_look_run *run = &look->run[index];
  char text[160], one[BRIM_DRAW_TEXT], two[BRIM_DRAW_TEXT];
  int column = at->column;
  if (run->state == BRIM_LOOK_WAITING) {
    brim_cells_put(cells, at->row++, column, column + at->columns, BRIM_PAINT_WARN,
                   brim_draw_place(text, sizeof text, look, index));
    at->rows--;
    return column;
  }
  if (run->steps > 0) {
    const int width = at->columns / 5;
    const double share = (double)run->step / (double)run->steps;
    brim_draw_progress(cells, at->row, column, width, BRIM_PAINT_RUN, share);
    column += width + GAP;
    snprintf(text, sizeof text, "%" PRId64 "/%" PRId64, run->step, run->steps);
  } else {
    count_text(text, run->step);
  }
  add_fact(cells, at, &column, run->is_federated ? "round" : "step", text);
  if (brim_draw_silence(one, run)[0]) {
    add_fact(cells, at, &column, "", one);
  } else if (brim_look_is_live(run->state)) {
    add_fact(cells, at, &column, "", brim_draw_rate(one, run->rate, run->counts_tokens));
    add_fact(cells, at, &column, "left", brim_draw_seconds(one, run->seconds_left));
  }
  if (run->epochs > 0) {
    snprintf(text, sizeof text, "%s/%s", brim_draw_number(one, run->epoch, 1), brim_draw_number(two, run->epochs, 1));
    add_fact(cells, at, &column, "epoch", text);
  }
  add_fact(cells, at, &column, "loss", brim_draw_number(one, run->loss, 7));
  if (isfinite(run->score) && strcmp(run->score_name, "accuracy") == 0)
    snprintf(text, sizeof text, "%.1f%%", 100 * run->score);
  else
    brim_draw_number(text, run->score, 7);
  add_fact(cells, at, &column, run->score_name, text);
  return column;
}

/* ---- memory ---- */

static int memory_columns(const brim_area *area)
{
  return area->columns >= SIDE_BY_SIDE ? 2 : 1;
}

static int memory_rows(const brim_look_run *run, const brim_area *area)
{
  const int beside = memory_columns(area);
  return run->classes == 0 ? 0 : 1 + ((int)run->classes + beside - 1) / beside;
}

static void draw_class(brim_cells *cells, int row, int column, int width, const brim_look_class *c, uint64_t most)
{
  char text[BRIM_DRAW_TEXT];
  const int name = 13, bytes = 10, bar = width - name - bytes - 1;
  brim_cells_put(cells, row, column, column + name - 1, BRIM_PAINT_PLAIN, c->name);
  brim_cells_put_right(cells, row, column + name, column + name + bytes - 1, BRIM_PAINT_PLAIN,
                       brim_draw_bytes(text, c->bytes));
  if (bar < 3 || most == 0 || c->bytes == BRIM_BYTES_UNKNOWN) return;
  const int full = (int)lround((double)c->bytes / (double)most * bar);
  brim_cells_fill(cells, row, column + name + bytes, column + name + bytes + (full ? full : c->bytes > 0),
                  BRIM_PAINT_CHOSEN, 0x2588);
}

static void draw_memory(brim_cells *cells, brim_area area, const brim_look_run *run)
{
  char text[BRIM_DRAW_TEXT];
  const int beside = memory_columns(&area), rows = memory_rows(run, &area) - 1;
  const int width = (area.columns - (beside - 1) * GAP) / beside;
  uint64_t most = 0;
  for (size_t i = 0; i < run->classes; i++)
    if (run->memory[i].bytes != BRIM_BYTES_UNKNOWN && run->memory[i].bytes > most) most = run->memory[i].bytes;
  int column = brim_cells_put(cells, area.row, area.column, area.column + area.columns, BRIM_PAINT_TITLE, "memory");
  column = brim_cells_put(cells, area.row, column + 1, area.column + area.columns, BRIM_PAINT_STRONG,
                          brim_draw_bytes(text, run->device_bytes));
  if (run->libraries_bytes > 0 && run->libraries_bytes != BRIM_BYTES_UNKNOWN)
    brim_cells_printf(cells, area.row, column + GAP, area.column + area.columns, BRIM_PAINT_DIM, "and %s of libraries",
                      brim_draw_bytes(text, run->libraries_bytes));
  for (size_t i = 0; i < run->classes; i++) {
    const int row = 1 + (int)i % rows, side = (int)i / rows;
    if (row < area.rows)
      draw_class(cells, area.row + row, area.column + side * (width + GAP), width, &run->memory[i], most);
  }
}

/* ---- events ---- */

static void draw_events(brim_cells *cells, brim_area area, const brim_look_run *run)
{
  char text[BRIM_DRAW_TEXT];
  const int end = area.column + area.columns;
  const size_t room = area.rows > 1 ? (size_t)area.rows - 1 : 0;
  brim_cells_put(cells, area.row, area.column, end, BRIM_PAINT_TITLE, "events");
  if (run->events == 0) brim_cells_put(cells, area.row + 1, area.column, end, BRIM_PAINT_DIM, "none");
  const size_t first = run->events > room ? run->events - room : 0;
  for (size_t i = first; i < run->events; i++) {
    const brim_look_event *e = &run->event[i];
    const int row = area.row + 1 + (int)(i - first);
    int column = area.column;
    brim_cells_put(cells, row, column, end, BRIM_PAINT_DIM, brim_draw_clock(text, e->time, true));
    column += 9;
    if (area.columns >= 50) {
      snprintf(text, sizeof text, "%" PRId64, e->step);
      brim_cells_put_right(cells, row, column, column + 7, BRIM_PAINT_DIM, text);
      column += 8;
    }
    brim_cells_put(cells, row, column, column + EVENT_KIND, BRIM_PAINT_STRONG, e->kind);
    brim_cells_put(cells, row, column + EVENT_KIND + 1, end, BRIM_PAINT_PLAIN, e->text);
  }
}

/* ---- curves ---- */

static size_t shown_curves(const brim_look_run *run)
{
  size_t count = 0;
  for (size_t i = 0; i < run->curves; i++) count += run->curve[i].count > 1;
  return count;
}

static const char *why_no_curves(const brim_look_run *run)
{
  if (run->state == BRIM_LOOK_WAITING || run->state == BRIM_LOOK_PLANNING) return "it has not begun to train";
  if (run->folder[0]) return "no curve yet";
  return run->is_mine ? "its folder is not known: no curves, no events" : "only its user sees its curves and events";
}

static void draw_curves(brim_cells *cells, brim_area area, const brim_look_run *run)
{
  const size_t all = shown_curves(run);
  const int beside = all > 1 && area.columns >= SIDE_BY_SIDE ? 2 : 1;
  int rows = (int)(all + (size_t)beside - 1) / beside;
  while (rows > 1 && area.rows / rows < CURVE_ROWS_LEAST) rows--;
  if (all == 0 || area.rows < 3) {
    if (all == 0 && area.rows > 0)
      brim_cells_put(cells, area.row, area.column, area.column + area.columns, BRIM_PAINT_DIM, why_no_curves(run));
    return;
  }
  const int width = (area.columns - (beside - 1) * GAP) / beside;
  int height = area.rows / rows;
  if (height > CURVE_ROWS_MOST) height = CURVE_ROWS_MOST;
  int number = 0;
  for (size_t i = 0; i < run->curves; i++) {
    if (run->curve[i].count < 2) continue;
    if (number >= rows * beside) return;
    const brim_area one = {area.row + number / beside * height, area.column + number % beside * (width + GAP), height,
                           width};
    brim_draw_curve(cells, one, strstr(run->curve[i].name, "train") ? BRIM_PAINT_RUN : BRIM_PAINT_CHOSEN,
                    &run->curve[i]);
    number++;
  }
}

/* ---- the whole ---- */

static brim_area part_of(brim_area from, int row, int rows)
{
  return (brim_area){from.row + row, from.column, rows, from.columns};
}

/* Draws memory and events in the lower rows of the area; returns the number of rows left above them. */
static int draw_below(brim_cells *cells, brim_area area, const brim_look_run *run, int least_above)
{
  const int memory = memory_rows(run, &area);
  int left = area.rows, events = (int)run->events + 1;
  const bool is_roomy = area.rows > 24; /* one free row between memory and events */
  const bool with_memory = memory > 0 && left - least_above >= memory + 1;
  if (with_memory) left -= memory + is_roomy;
  const int share = (left - least_above) > area.rows / 3 ? area.rows / 3 : left - least_above;
  if (events > share) events = share;
  if (events >= 2 && run->folder[0]) {
    left -= events;
    draw_events(cells, part_of(area, area.rows - events, events), run);
    if (is_roomy) left--;
  }
  if (with_memory) draw_memory(cells, part_of(area, left + is_roomy, memory), run);
  return left < area.rows && !is_roomy ? left - 1 : left; /* a free row before them */
}

/* Memory, then events. */
static void draw_stack(brim_cells *cells, brim_area area, const brim_look_run *run)
{
  const int memory = memory_rows(run, &area);
  if (memory > 0 && area.rows >= memory) {
    draw_memory(cells, part_of(area, 0, memory), run);
    area = part_of(area, memory + 1, area.rows - memory - 1);
  }
  if (area.rows > 1 && run->folder[0]) draw_events(cells, area, run);
}

void brim_draw_detail(brim_cells *cells, brim_area area, const brim_look *look, size_t index, bool boxed)
{
  const brim_look_run *run = &look->run[index];
  if (boxed) {
    for (int i = 0; i < area.rows; i++) brim_cells_glyph(cells, area.row + i, area.column, BRIM_PAINT_DIM, 0x2502);
    area.column += 2;
    area.columns -= 2;
  }
  draw_head(cells, area.row, area, look, run);
  brim_area at = part_of(area, 1, area.rows - 1);
  if (at.rows > 0) {
    const int column = draw_way(cells, &at, look, index);
    if (at.rows > 5) draw_facts(cells, &at, column, run);
    at.row++;
    at.rows--;
  }
  if (at.rows > 24 && run->folder[0]) {
    brim_cells_put(cells, at.row, at.column, at.column + at.columns, BRIM_PAINT_DIM, run->folder);
    at.row++;
    at.rows--;
  }
  if (at.rows > 8) { /* a free row */
    at.row++;
    at.rows--;
  }
  if (area.columns >= TWO_HALVES) {
    const int width = (at.columns - GAP) / 2;
    draw_curves(cells, (brim_area){at.row, at.column, at.rows, width}, run);
    draw_stack(cells, (brim_area){at.row, at.column + width + GAP, at.rows, width}, run);
  } else if (shown_curves(run) == 0) {
    draw_curves(cells, at, run); /* says why there is none */
    draw_stack(cells, part_of(at, 2, at.rows - 2), run);
  } else {
    const int least = at.rows < 12 ? at.rows : at.rows * 45 / 100; /* if there is little room, curves get all of it */
    const int above = draw_below(cells, at, run, least);
    draw_curves(cells, part_of(at, 0, above), run);
  }
}
