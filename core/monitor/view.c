/* See view.h. */
#include "monitor/view.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/text.h"
#include "base/utf8.h"
#include "brim/backend.h"

const char *const brim_view_sort_names[BRIM_SORT_COUNT] = {
    [BRIM_SORT_LOOK] = "start", [BRIM_SORT_NAME] = "name", [BRIM_SORT_STATE] = "state",  [BRIM_SORT_LEFT] = "time left",
    [BRIM_SORT_RATE] = "rate",  [BRIM_SORT_LOSS] = "loss", [BRIM_SORT_MEMORY] = "memory"};

/* ---- the list ---- */

static brim_view_run identify(const brim_look_run *run)
{
  return (brim_view_run){run->host, run->pid, isfinite(run->started) ? run->started : 0,
                         brim_hash(BRIM_HASH_START, run->folder, strlen(run->folder))};
}

bool brim_view_is(const brim_view_run *id, const brim_look_run *run)
{
  const brim_view_run other = identify(run);
  if (id->host != other.host) return false;
  if (run->folder[0] && id->folder == other.folder && run->ranks <= 1)
    return true; /* true even if its process has ended */
  return id->pid == other.pid && id->started >= other.started && id->started <= other.started;
}

static bool matches(const brim_view *view, const brim_look *look, const brim_look_run *run)
{
  const char *const texts[] = {run->name,        run->model,
                               run->dataset,     run->user,
                               run->device_text, brim_look_state_names[run->state],
                               run->command,     run->host < look->hosts ? look->host[run->host].name : ""};
  if (view->only_mine && !run->is_mine) return false;
  if (!view->filter[0]) return true;
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
    if (strcasestr(texts[i], view->filter)) return true;
  return false;
}

/* Returns the figure by which runs are sorted; unknown ones come last. */
static double figure_of(const brim_look_run *run, enum brim_view_sort sort)
{
  const double unknown = -INFINITY;
  switch (sort) {
  case BRIM_SORT_STATE:
    return -(double)run->state;
  case BRIM_SORT_LEFT: /* the next to end first */
    return isfinite(run->seconds_left) && brim_look_is_live(run->state) ? -run->seconds_left : unknown;
  case BRIM_SORT_RATE:
    return isfinite(run->rate) ? run->rate : unknown;
  case BRIM_SORT_LOSS: /* the lowest first */
    return isfinite(run->loss) ? -run->loss : unknown;
  case BRIM_SORT_MEMORY:
    return run->device_bytes == BRIM_BYTES_UNKNOWN ? unknown : (double)run->device_bytes;
  default:
    return 0;
  }
}

typedef struct sorting {
  const brim_look_run *run;
  enum brim_view_sort sort;
} sorting;

static int compare_runs(const void *a, const void *b, void *context)
{
  const sorting *s = context;
  const size_t left = *(const size_t *)a, right = *(const size_t *)b;
  const brim_look_run *l = &s->run[left], *r = &s->run[right];
  const double fl = figure_of(l, s->sort), fr = figure_of(r, s->sort);
  const int names = s->sort == BRIM_SORT_NAME ? strcasecmp(l->name, r->name) : 0;
  if (names != 0) return names;
  if (fl < fr || fl > fr) return fl > fr ? -1 : 1;
  return left < right ? -1 : left > right;
}

size_t brim_view_list(const brim_view *view, const brim_look *look, size_t *list)
{
  size_t count = 0;
  for (size_t i = 0; i < look->runs; i++)
    if (matches(view, look, &look->run[i])) list[count++] = i;
  if (view->sort != BRIM_SORT_LOOK) qsort_r(list, count, sizeof *list, compare_runs, &(sorting){look->run, view->sort});
  return count;
}

size_t brim_view_position(brim_view *view, const brim_look *look, const size_t *list, size_t count)
{
  for (size_t i = 0; view->has_chosen && i < count; i++)
    if (brim_view_is(&view->chosen, &look->run[list[i]])) return i;
  view->has_chosen = count > 0;
  if (count > 0) view->chosen = identify(&look->run[list[0]]);
  return 0;
}

/* ---- keys ---- */

static void say(brim_view *view, const char *text)
{
  snprintf(view->message, sizeof view->message, "%s", text);
}

/* Moves the choice by `by` runs, but not beyond the list. */
static void move_choice(brim_view *view, const brim_look *look, long by)
{
  size_t *list = brim_xcalloc(look->runs + 1, sizeof *list);
  const size_t count = brim_view_list(view, look, list);
  if (count > 0) {
    const long last = (long)count - 1, at = (long)brim_view_position(view, look, list, count);
    const long to = by > last - at ? last : by < -at ? 0 : at + by;
    view->chosen = identify(&look->run[list[to]]);
  }
  free(list);
}

/* The chosen run, or NULL. */
static const brim_look_run *chosen_run(const brim_view *view, const brim_look *look)
{
  for (size_t i = 0; view->has_chosen && i < look->runs; i++)
    if (brim_view_is(&view->chosen, &look->run[i])) return &look->run[i];
  return NULL;
}

/* Asks for confirmation to interrupt the chosen run, or says why it cannot be interrupted. */
static void ask_interrupt(brim_view *view, const brim_look *look)
{
  const brim_look_run *run = chosen_run(view, look);
  const char *why = !run                             ? "no run is chosen"
                    : view->is_fixed                 ? "this is a recorded snapshot: its runs cannot be interrupted"
                    : !brim_look_is_live(run->state) ? "this run has ended"
                    : !run->is_mine || run->pid <= 0 ? "only your own runs on this host can be interrupted"
                                                     : NULL;
  if (why) {
    say(view, why);
    return;
  }
  view->question = BRIM_VIEW_ASK_INTERRUPT;
  view->asked = identify(run);
  snprintf(view->asked_name, sizeof view->asked_name, "%s", run->name);
}

/* Handles a key while the user types a filter; the list is updated after each key. */
static void type_filter(brim_view *view, int key)
{
  const size_t length = strlen(view->filter);
  if (key == BRIM_KEY_ENTER || key == '\r') {
    view->question = BRIM_VIEW_NO_QUESTION;
  } else if (key == BRIM_KEY_ESCAPE) {
    view->question = BRIM_VIEW_NO_QUESTION;
    snprintf(view->filter, sizeof view->filter, "%s", view->typed);
  } else if (key == BRIM_KEY_ERASE || key == '\b') {
    size_t cut = length;
    while (cut > 0 && ((unsigned char)view->filter[cut - 1] & 0xc0) == 0x80) cut--;
    view->filter[cut > 0 ? cut - 1 : 0] = '\0';
  } else if (key == 21) { /* Ctrl-U */
    view->filter[0] = '\0';
  } else if (key >= ' ' && key < 0x110000 && key != 0x7f) {
    char text[5];
    const size_t bytes = brim_utf8_put((uint32_t)key, text);
    text[bytes] = '\0';
    if (length + bytes < sizeof view->filter) memcpy(view->filter + length, text, bytes + 1);
  }
}

static enum brim_view_action answer_interrupt(brim_view *view, int key)
{
  view->question = BRIM_VIEW_NO_QUESTION;
  if (key == 'y' || key == 'Y') return BRIM_VIEW_INTERRUPT;
  say(view, "not interrupted");
  return BRIM_VIEW_NOTHING;
}

static bool move_key(brim_view *view, const brim_look *look, int key)
{
  const long page = view->page > 1 ? (long)view->page - 1 : 1;
  const struct {
    int key, other;
    long by;
  } moves[] = {{BRIM_KEY_UP, 'k', -1},         {BRIM_KEY_DOWN, 'j', 1},
               {BRIM_KEY_PAGE_UP, 2, -page},   {BRIM_KEY_PAGE_DOWN, 6, page}, /* Ctrl-B, Ctrl-F */
               {BRIM_KEY_HOME, 'g', -1000000}, {BRIM_KEY_END, 'G', 1000000}};
  for (size_t i = 0; i < sizeof moves / sizeof moves[0]; i++) {
    if (key != moves[i].key && key != moves[i].other) continue;
    move_choice(view, look, moves[i].by);
    return true;
  }
  return false;
}

/* Closes the help, or else the details of a run; false: only the list is shown. */
static bool go_back(brim_view *view)
{
  if (view->mode == BRIM_VIEW_HELP)
    view->mode = view->before;
  else if (view->mode == BRIM_VIEW_DETAIL)
    view->mode = BRIM_VIEW_LIST;
  else
    return false;
  return true;
}

static void show_advice(brim_view *view, const brim_look *look, size_t number)
{
  if (number > look->advices)
    say(view, "there is no advice with this number");
  else
    view->advice = view->advice == number ? 0 : number;
}

enum brim_view_action brim_view_key(brim_view *view, const brim_look *look, int key)
{
  if (key == BRIM_KEY_NONE || key == BRIM_KEY_RESIZE || key == BRIM_KEY_OTHER) return BRIM_VIEW_NOTHING;
  view->message[0] = '\0';
  if (view->question == BRIM_VIEW_ASK_INTERRUPT) return answer_interrupt(view, key);
  if (view->question == BRIM_VIEW_ASK_FILTER) {
    type_filter(view, key);
    return BRIM_VIEW_NOTHING;
  }
  if (move_key(view, look, key)) return BRIM_VIEW_NOTHING;
  switch (key) {
  case 'q':
  case BRIM_KEY_LEFT:
    return go_back(view) || key != 'q' ? BRIM_VIEW_NOTHING : BRIM_VIEW_QUIT;
  case 'Q':
    return BRIM_VIEW_QUIT;
  case BRIM_KEY_ESCAPE:
    if (!go_back(view)) view->filter[0] = '\0';
    view->advice = 0;
    return BRIM_VIEW_NOTHING;
  case BRIM_KEY_ENTER:
  case '\r':
  case BRIM_KEY_RIGHT:
    if (view->mode == BRIM_VIEW_HELP || !chosen_run(view, look)) return BRIM_VIEW_NOTHING;
    view->mode = key != BRIM_KEY_RIGHT && view->mode == BRIM_VIEW_DETAIL ? BRIM_VIEW_LIST : BRIM_VIEW_DETAIL;
    return BRIM_VIEW_NOTHING;
  case '/':
    view->question = BRIM_VIEW_ASK_FILTER;
    view->mode = BRIM_VIEW_LIST;
    snprintf(view->typed, sizeof view->typed, "%s", view->filter);
    view->filter[0] = '\0';
    return BRIM_VIEW_NOTHING;
  case 'm':
    view->only_mine = !view->only_mine;
    return BRIM_VIEW_NOTHING;
  case 's':
    view->sort = (enum brim_view_sort)((view->sort + 1) % BRIM_SORT_COUNT);
    return BRIM_VIEW_NOTHING;
  case 'p':
  case ' ':
    view->is_paused = !view->is_paused;
    return view->is_paused ? BRIM_VIEW_NOTHING : BRIM_VIEW_LOOK;
  case 'r':
    return BRIM_VIEW_LOOK;
  case 'i':
    ask_interrupt(view, look);
    return BRIM_VIEW_NOTHING;
  case '?':
  case 'h':
    if (view->mode != BRIM_VIEW_HELP) view->before = view->mode;
    view->mode = view->mode == BRIM_VIEW_HELP ? view->before : BRIM_VIEW_HELP;
    return BRIM_VIEW_NOTHING;
  case '1':
  case '2':
  case '3':
    show_advice(view, look, (size_t)(key - '0'));
    return BRIM_VIEW_NOTHING;
  default:
    return BRIM_VIEW_NOTHING;
  }
}
