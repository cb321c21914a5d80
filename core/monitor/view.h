/* The user's choices in `brim monitor`, and the effect of each key. These functions have no side effects and need no
 * terminal. */
#ifndef BRIM_MONITOR_VIEW_H
#define BRIM_MONITOR_VIEW_H
#include "monitor/look.h"
#include "monitor/terminal.h"

#define BRIM_VIEW_TEXT 64 /* bytes of a filter */

enum brim_view_mode { BRIM_VIEW_LIST, BRIM_VIEW_DETAIL, BRIM_VIEW_HELP };
enum brim_view_question { BRIM_VIEW_NO_QUESTION, BRIM_VIEW_ASK_FILTER, BRIM_VIEW_ASK_INTERRUPT };
enum brim_view_sort {
  BRIM_SORT_LOOK, /* in the order of the look: by start */
  BRIM_SORT_NAME,
  BRIM_SORT_STATE,
  BRIM_SORT_LEFT,
  BRIM_SORT_RATE,
  BRIM_SORT_LOSS,
  BRIM_SORT_MEMORY,
  BRIM_SORT_COUNT
};
extern const char *const brim_view_sort_names[BRIM_SORT_COUNT];

/* Identifies a run across looks, by its process or its folder. */
typedef struct brim_view_run {
  size_t host;
  int64_t pid;
  double started;
  uint64_t folder; /* hash of its path */
} brim_view_run;

/* All zero: shows all runs, by start. */
typedef struct brim_view {
  enum brim_view_mode mode, before; /* before: the mode to return to from the help */
  enum brim_view_question question;
  enum brim_view_sort sort;
  bool only_mine, is_paused, is_fixed; /* is_fixed: a recorded look, whose processes must not be signalled */
  bool has_chosen;                     /* whether `chosen` is set */
  brim_view_run chosen;
  size_t top, page; /* index of the first run on the screen, and number of runs there; set by brim_picture_draw */
  size_t advice;    /* number, from 1, of the advice whose command is shown; 0: none */
  char filter[BRIM_VIEW_TEXT]; /* text that a run must contain to be shown */
  char typed[BRIM_VIEW_TEXT];  /* the filter from before the user typed, restored by Escape */
  brim_view_run asked;         /* the run to interrupt, as it was when brim asked the question */
  char asked_name[BRIM_VIEW_TEXT];
  char message[256]; /* message that is shown until the next key */
} brim_view;

/* What the caller must do after a key. */
enum brim_view_action {
  BRIM_VIEW_NOTHING, /* draw again */
  BRIM_VIEW_LOOK,    /* look again now */
  BRIM_VIEW_QUIT,
  BRIM_VIEW_INTERRUPT, /* interrupt view->asked: the user has said yes */
};
enum brim_view_action brim_view_key(brim_view *view, const brim_look *look, int key);

/* The indices of the runs to show, sorted; `list` has room for look->runs. Returns their number. */
size_t brim_view_list(const brim_view *view, const brim_look *look, size_t *list);
/* The position of the chosen run in the list; if that run is gone, chooses the first run. */
size_t brim_view_position(brim_view *view, const brim_look *look, const size_t *list, size_t count);
bool brim_view_is(const brim_view_run *id, const brim_look_run *run);
#endif
