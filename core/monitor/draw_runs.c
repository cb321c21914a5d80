/* Draws the runs: a table whose columns depend on the width, with one or two rows for each run. See draw.h. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "brim/backend.h"
#include "monitor/draw.h"

#define MARK 2 /* columns before the table, for the mark of the chosen run */
#define GAP 1
#define WIDE 64 /* width from which states have their full names */
#define STATE_SHORT 5
#define ROOMY 100 /* width from which names are whole before further columns are added */
#define NAME_MOST 28

enum column_id {
  HOST,
  NAME,
  STATE,
  BAR,
  SHARE,
  STEP,
  LOSS,
  SCORE,
  SPARK,
  RATE,
  LEFT,
  MEMORY,
  DEVICE,
  MODEL,
  USER,
  PID,
  COLUMNS
};

typedef struct column_form {
  const char *title;
  int least, most; /* widths */
  bool right;
} column_form;

static const column_form columns[COLUMNS] = {[HOST] = {"host", 8, 12, false},     [NAME] = {"run", 8, NAME_MOST, false},
                                             [STATE] = {"state", 5, 11, false},   [BAR] = {"progress", 8, 24, false},
                                             [SHARE] = {"", 4, 4, true},          [STEP] = {"step", 13, 15, true},
                                             [LOSS] = {"loss", 6, 6, true},       [SCORE] = {"score", 6, 6, true},
                                             [SPARK] = {"", 8, 16, false},        [RATE] = {"rate", 7, 8, true},
                                             [LEFT] = {"left", 7, 7, true},       [MEMORY] = {"memory", 9, 9, true},
                                             [DEVICE] = {"device", 6, 12, false}, [MODEL] = {"model", 10, 24, false},
                                             [USER] = {"user", 6, 10, false},     [PID] = {"pid", 7, 7, true}};

/* The columns that are dropped last come first. */
static const enum column_id by_need[] = {NAME,   STATE, LEFT,   SHARE, BAR,   RATE, LOSS, SPARK,
                                         DEVICE, USER,  MEMORY, SCORE, MODEL, STEP, PID};
/* Columns that take spare width, in this order. */
static const enum column_id by_greed[] = {NAME, DEVICE, BAR, SPARK, MODEL, RATE, STEP, USER, HOST};

/* ---- texts ---- */

static const struct {
  const char *brief;
  enum brim_paint paint;
} states[BRIM_LOOK_STATES] = {
    [BRIM_LOOK_PLANNING] = {"plan", BRIM_PAINT_TITLE},  [BRIM_LOOK_WAITING] = {"wait", BRIM_PAINT_WARN},
    [BRIM_LOOK_TRAINING] = {"train", BRIM_PAINT_GOOD},  [BRIM_LOOK_EVALUATING] = {"eval", BRIM_PAINT_GOOD},
    [BRIM_LOOK_CHECKPOINT] = {"save", BRIM_PAINT_GOOD}, [BRIM_LOOK_RECOVERING] = {"recov", BRIM_PAINT_BAD},
    [BRIM_LOOK_STOPPING] = {"stop", BRIM_PAINT_WARN},   [BRIM_LOOK_WORKING] = {"work", BRIM_PAINT_GOOD},
    [BRIM_LOOK_FINISHED] = {"done", BRIM_PAINT_DIM},    [BRIM_LOOK_INTERRUPTED] = {"intr", BRIM_PAINT_WARN},
    [BRIM_LOOK_FAILED] = {"FAIL", BRIM_PAINT_BAD},      [BRIM_LOOK_KILLED] = {"KILL", BRIM_PAINT_BAD},
};

static bool is_silent(const brim_look_run *run)
{
  return run->is_stopped || run->silent_seconds > 0;
}

enum brim_paint brim_draw_state_paint(const brim_look_run *run)
{
  return is_silent(run) ? BRIM_PAINT_BAD : states[run->state].paint;
}

const char *brim_draw_state(const brim_look_run *run)
{
  return run->is_stopped ? "stopped" : is_silent(run) ? "stalled" : brim_look_state_names[run->state];
}

const char *brim_draw_silence(char *out, const brim_look_run *run)
{
  char time[BRIM_DRAW_TEXT];
  out[0] = '\0';
  if (run->silent_seconds > 0 && run->silent_seconds < 100)
    snprintf(out, BRIM_DRAW_TEXT, "no step for %.0f s", run->silent_seconds);
  else if (run->silent_seconds > 0 && brim_draw_seconds(time, run->silent_seconds)[0])
    snprintf(out, BRIM_DRAW_TEXT, "no step for %.16s", time);
  return out;
}

static double share_of(const brim_look_run *run)
{
  return run->steps > 0 ? (double)run->step / (double)run->steps : NAN;
}

/* Formats the time since a run ended: "12s ago", "2h ago". */
static const char *ago_text(char *out, double seconds)
{
  out[0] = '\0';
  if (!(seconds >= 0 && seconds < 1e9)) return out;
  if (seconds < 60)
    snprintf(out, BRIM_DRAW_TEXT, "%.0fs ago", floor(seconds));
  else if (seconds < 3600)
    snprintf(out, BRIM_DRAW_TEXT, "%.0fm ago", floor(seconds / 60));
  else if (seconds < 100 * 3600)
    snprintf(out, BRIM_DRAW_TEXT, "%.0fh ago", floor(seconds / 3600));
  else
    snprintf(out, BRIM_DRAW_TEXT, "%.0fd ago", fmin(floor(seconds / 86400), 999));
  return out;
}

static const char *score_text(char *out, const brim_look_run *run)
{
  out[0] = '\0';
  if (!isfinite(run->score)) return out;
  if (strcmp(run->score_name, "accuracy") == 0)
    snprintf(out, BRIM_DRAW_TEXT, "%.1f%%", 100 * run->score);
  else
    brim_draw_number(out, run->score, 6);
  return out;
}

static const char *step_text(char *out, const brim_look_run *run)
{
  if (run->steps > 0)
    snprintf(out, BRIM_DRAW_TEXT, "%" PRId64 "/%" PRId64, run->step, run->steps);
  else if (run->step > 0)
    snprintf(out, BRIM_DRAW_TEXT, "%" PRId64, run->step);
  else
    out[0] = '\0';
  return out;
}

/* Returns the text of a column that consists of text. */
static const char *cell_text(char *out, enum column_id id, const brim_look *look, const brim_look_run *run, int width)
{
  const double now = run->host < look->hosts ? look->host[run->host].time : NAN, share = share_of(run);
  const bool is_live = brim_look_is_live(run->state);
  out[0] = '\0';
  switch (id) {
  case HOST:
    return run->host < look->hosts ? look->host[run->host].name : "";
  case NAME:
    return run->name;
  case STATE:
    return width > STATE_SHORT ? brim_draw_state(run) : is_silent(run) ? "STALL" : states[run->state].brief;
  case SHARE:
    if (isfinite(share)) snprintf(out, BRIM_DRAW_TEXT, "%.0f%%", 100 * fmax(0, fmin(share, 1)));
    return out;
  case STEP:
    return step_text(out, run);
  case LOSS:
    return brim_draw_number(out, run->loss, 6);
  case SCORE:
    return score_text(out, run);
  case RATE:
    return is_live ? brim_draw_rate(out, run->rate, run->counts_tokens) : "";
  case LEFT:
    return is_live ? brim_draw_seconds(out, run->seconds_left) : ago_text(out, now - run->changed);
  case MEMORY:
    return run->device_bytes > 0 && run->device_bytes != BRIM_BYTES_UNKNOWN ? brim_draw_bytes(out, run->device_bytes)
                                                                            : "";
  case DEVICE:
    return run->device < look->devices ? look->device[run->device].label : run->device_text;
  case MODEL:
    return run->model;
  case USER:
    return run->is_mine ? "mine" : run->user;
  case PID:
    if (run->pid > 0) snprintf(out, BRIM_DRAW_TEXT, "%" PRId64, run->pid);
    return out;
  default:
    return out;
  }
}

static enum brim_paint cell_paint(enum column_id id, const brim_look_run *run)
{
  if (id == STATE) return brim_draw_state_paint(run);
  if (id == NAME && brim_look_is_live(run->state)) return BRIM_PAINT_STRONG;
  if (id == USER && run->is_mine) return BRIM_PAINT_CHOSEN;
  return id == NAME || id == SHARE || id == LOSS || id == LEFT ? BRIM_PAINT_PLAIN : BRIM_PAINT_DIM;
}

/* ---- the widths ---- */

typedef struct widths {
  int of[COLUMNS]; /* 0: the column is left out */
} widths;

static int longest_of(const brim_cells *cells, const brim_look *look, enum column_id id)
{
  char text[BRIM_DRAW_TEXT];
  int most = 0;
  for (size_t i = 0; i < look->runs; i++) {
    const int width = brim_cells_width(cells, cell_text(text, id, look, &look->run[i], 99));
    if (width > most) most = width;
  }
  return most;
}

static int most_of(const brim_cells *cells, const brim_look *look, enum column_id id)
{
  const int most = columns[id].most;
  if (id == BAR || id == SPARK) return most;
  const int longest = longest_of(cells, look, id);
  return longest < most ? longest : most;
}

static widths choose_widths(const brim_cells *cells, const brim_look *look, int room)
{
  widths w = {{0}};
  int left = room - MARK;
  if (look->hosts > 1) {
    w.of[HOST] = columns[HOST].least;
    left -= w.of[HOST] + GAP;
  }
  for (size_t i = 0; i < sizeof by_need / sizeof by_need[0]; i++) {
    const enum column_id id = by_need[i];
    int least = id == STATE && room >= WIDE ? columns[id].most : columns[id].least;
    /* The column is empty for all runs, or needs less width. */
    if (id == DEVICE || id == MODEL || id == PID || id == USER) {
      const int longest = longest_of(cells, look, id);
      if (longest == 0) continue;
      const int titled = (int)strlen(columns[id].title);
      if (longest < least) least = longest < titled ? titled : longest;
    }
    if (id == NAME && room >= ROOMY) least = most_of(cells, look, id) > least ? most_of(cells, look, id) : least;
    if (left < least + GAP) continue;
    w.of[id] = least;
    left -= least + GAP;
  }
  left += GAP; /* the last column has no gap after it */
  for (size_t i = 0; i < sizeof by_greed / sizeof by_greed[0] && left > 0; i++) {
    const enum column_id id = by_greed[i];
    const int wish = most_of(cells, look, id) - w.of[id], more = wish < left ? wish : left;
    if (w.of[id] == 0 || more <= 0) continue;
    w.of[id] += more;
    left -= more;
  }
  return w;
}

/* ---- drawing ---- */

/* Columns BAR to LEFT are empty before a run has begun, and RATE and LEFT have no meaning while it makes no step, so a
 * sentence takes their place. Returns the first of these columns; COLUMNS: there is no sentence. */
static enum column_id sentence_from(const brim_look_run *run)
{
  if (run->state == BRIM_LOOK_WAITING || run->state == BRIM_LOOK_PLANNING) return BAR;
  if (run->state == BRIM_LOOK_WORKING && run->steps <= 0) return BAR;
  return is_silent(run) && brim_look_is_live(run->state) ? SPARK : COLUMNS;
}

static const char *sentence_of(char *out, size_t room, const brim_look *look, size_t index)
{
  const brim_look_run *run = &look->run[index];
  if (run->state == BRIM_LOOK_WAITING) return brim_draw_place(out, room, look, index);
  if (is_silent(run)) return brim_draw_silence(out, run);
  snprintf(out, room, "%s%s", run->state == BRIM_LOOK_WORKING ? "brim " : "makes its plan",
           run->state == BRIM_LOOK_WORKING ? run->command : "");
  return out;
}

static void draw_row(brim_cells *cells, int row, brim_area area, const brim_look *look, size_t index, const widths *w)
{
  const brim_look_run *run = &look->run[index];
  char text[160];
  const enum column_id sentence = sentence_from(run);
  int column = area.column + MARK, sentence_at = -1, sentence_end = -1;
  for (int id = 0; id < COLUMNS; id++) {
    const int width = w->of[id];
    if (width == 0) continue;
    if (id >= (int)sentence && id <= LEFT) {
      if (sentence_at < 0) sentence_at = column;
      sentence_end = column + width;
    } else if (id == BAR) {
      const double share = share_of(run);
      if (isfinite(share))
        brim_draw_progress(cells, row, column, width, brim_look_is_live(run->state) ? BRIM_PAINT_RUN : BRIM_PAINT_DIM,
                           share);
    } else if (id == SPARK) {
      brim_draw_spark(cells, row, column, width, BRIM_PAINT_RUN, brim_draw_find_curve(run, "loss"));
    } else {
      const char *shown = cell_text(text, (enum column_id)id, look, run, width);
      const enum brim_paint paint = cell_paint((enum column_id)id, run);
      if (columns[id].right)
        brim_cells_put_right(cells, row, column, column + width, paint, shown);
      else
        brim_cells_put(cells, row, column, column + width, paint, shown);
    }
    column += width + GAP;
  }
  if (sentence_at >= 0)
    brim_cells_put(cells, row, sentence_at, sentence_end, is_silent(run) ? BRIM_PAINT_BAD : BRIM_PAINT_PLAIN,
                   sentence_of(text, sizeof text, look, index));
}

/* Draws the second row of a run: figures for which the table has no column. */
static void draw_more(brim_cells *cells, int row, brim_area area, const brim_look *look, const brim_look_run *run,
                      const widths *w)
{
  char text[BRIM_DRAW_TEXT], other[BRIM_DRAW_TEXT];
  const int end = area.column + area.columns;
  int column = area.column + MARK + 2;
  if (w->of[MODEL] == 0 && run->model[0]) {
    column = brim_cells_put(cells, row, column, end, BRIM_PAINT_DIM, run->model);
    if (run->dataset[0]) column = brim_cells_printf(cells, row, column, end, BRIM_PAINT_DIM, " on %s", run->dataset);
    column += 2;
  }
  if (w->of[STEP] == 0 && step_text(text, run)[0])
    column = brim_cells_printf(cells, row, column, end, BRIM_PAINT_DIM, "%s %s", run->is_federated ? "round" : "step",
                               text) +
             2;
  if (w->of[SCORE] == 0 && score_text(text, run)[0])
    column = brim_cells_printf(cells, row, column, end, BRIM_PAINT_DIM, "%s %s", run->score_name, text) + 2;
  if (w->of[MEMORY] == 0 && cell_text(text, MEMORY, look, run, 99)[0])
    column = brim_cells_printf(cells, row, column, end, BRIM_PAINT_DIM, "%s", text) + 2;
  if (w->of[USER] == 0 || (w->of[PID] == 0 && run->pid > 0))
    brim_cells_printf(cells, row, column, end, BRIM_PAINT_DIM, "%s%s%s", w->of[USER] ? "pid" : run->user,
                      w->of[PID] ? "" : " ", w->of[PID] ? "" : cell_text(other, PID, look, run, 99));
}

static void draw_titles(brim_cells *cells, int row, brim_area area, const widths *w)
{
  int column = area.column + MARK;
  for (int id = 0; id < COLUMNS; id++) {
    const int width = w->of[id];
    if (width == 0) continue;
    if (columns[id].right)
      brim_cells_put_right(cells, row, column, column + width, BRIM_PAINT_DIM, columns[id].title);
    else
      brim_cells_put(cells, row, column, column + width, BRIM_PAINT_DIM, columns[id].title);
    column += width + GAP;
  }
}

void brim_draw_runs(brim_cells *cells, brim_area area, const brim_look *look, const brim_view *view, const size_t *list,
                    size_t count, int each, bool title)
{
  const widths w = choose_widths(cells, look, area.columns);
  int row = area.row;
  const int end = area.row + area.rows;
  if (title && row < end) draw_titles(cells, row++, area, &w);
  for (size_t i = view->top; i < count && row + each <= end; i++) {
    const brim_look_run *run = &look->run[list[i]];
    const bool is_chosen = view->has_chosen && brim_view_is(&view->chosen, run);
    draw_row(cells, row, area, look, list[i], &w);
    if (each > 1) draw_more(cells, row + 1, area, look, run, &w);
    if (is_chosen) {
      brim_cells_glyph(cells, row, area.column, BRIM_PAINT_KEY, 0x25b8);
      brim_cells_reverse(cells, row, area.column, area.column + area.columns);
    }
    row += each;
  }
}
