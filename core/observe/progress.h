/* The display of a run's progress on standard error: on a terminal one line that is redrawn in place, elsewhere a plain
 * line from time to time. Does not allocate after init. */
#ifndef BRIM_OBSERVE_PROGRESS_H
#define BRIM_OBSERVE_PROGRESS_H
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BRIM_PROGRESS_LINE_BYTES 1024 /* the longest line, with colours and NUL */

typedef struct brim_progress_state {
  int64_t epoch, epochs;     /* epoch: from 1; epochs 0: the run counts only steps */
  int64_t step, steps;       /* commits so far, and in total */
  bool by_rounds;            /* the steps are rounds of a federation */
  double loss, accuracy;     /* running means of the window; accuracy in [0, 1]; NAN: none yet */
  double mae;                /* mean absolute error, shown instead of the accuracy; NAN: none */
  double epsilon;            /* privacy budget spent so far; 0: not shown */
  double samples_per_second; /* 0 or NAN: none yet */
  int64_t tokens_each;       /* tokens in a sample, if the rate is in tokens; 0: the rate is in samples */
  uint64_t used_bytes,
      planned_bytes; /* the most bytes of the arena in use so far, and its planned bytes; 0: not shown */
} brim_progress_state;

typedef struct brim_progress {
  bool terminal, drawn, quiet;
  bool color, unicode;
  int columns;
  double start, last_draw;        /* seconds, brim_now(); start: the time when step `start_step` was done */
  int64_t start_step, first_step; /* first_step: the value passed to init */
  int64_t line_every;             /* not on a terminal: steps between lines; 0: no lines */
  int64_t last_line;              /* step of the last line */
  brim_progress_state last;
  pthread_mutex_t lock; /* loader threads that print messages redraw the line too */
} brim_progress;

/* Inspects standard error and the terminal's width (COLUMNS, TIOCGWINSZ; again after SIGWINCH). Registers itself with
 * brim_log_set_hook, so that messages do not break the line; `p` must not move until brim_progress_finish. */
void brim_progress_init(brim_progress *p, int64_t start_step, int64_t line_every, bool quiet);
/* [step] Redraws at most ten times a second. */
void brim_progress_update(brim_progress *p, const brim_progress_state *state);
/* Estimates the seconds for `left` steps if `done` steps, with everything between them, took `seconds`; NAN: not known.
 * Every "time left" that brim shows comes from this function. */
double brim_progress_seconds(double seconds, double done, double left);
/* Estimates the seconds until the last step, from the average since the first; NAN: not known yet. */
double brim_progress_left(const brim_progress *p, double now);
/* Ends the line; later output starts on a new line. */
void brim_progress_finish(brim_progress *p);
/* Formats the line for p->last at time `now`, without newline; on a terminal at most p->columns - 1 characters wide,
 * which may omit the less important parts. `out` has room for BRIM_PROGRESS_LINE_BYTES. Returns its length in bytes. */
size_t brim_progress_format(const brim_progress *p, double now, char *out);
#endif
