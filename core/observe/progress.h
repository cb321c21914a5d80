/* The display of a run's progress on standard error: on a terminal one line, redrawn in place, elsewhere a plain line
 * now and then. Never allocates after init. */
#ifndef BRIM_OBSERVE_PROGRESS_H
#define BRIM_OBSERVE_PROGRESS_H
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BRIM_PROGRESS_LINE_BYTES 1024 /* the longest line, with colours and NUL */

typedef struct brim_progress_state {
  int64_t epoch, epochs;              /* from 1; epochs 0: the run is counted in steps */
  int64_t step, steps;                /* commits so far, and in all */
  bool by_rounds;                     /* the steps are rounds of a federation */
  double loss, accuracy;              /* running values of the window; accuracy in [0, 1]; NAN: none yet */
  double mae;                         /* mean absolute error, shown instead of the accuracy; NAN: none */
  double epsilon;                     /* of privacy, spent so far; 0: not shown */
  double samples_per_second;          /* 0 or NAN: none yet */
  int64_t tokens_each;                /* tokens in a sample: then the rate is in tokens; 0: in samples */
  uint64_t used_bytes, planned_bytes; /* most device memory of the arena in use, and planned; 0: not shown */
} brim_progress_state;

typedef struct brim_progress {
  bool terminal, drawn, quiet;
  bool color, unicode;
  int columns;
  double start, last_draw;        /* seconds, brim_now(); start: when step `start_step` was done */
  int64_t start_step, first_step; /* first_step: the run's, from init */
  int64_t line_every;             /* not on a terminal: steps between lines; 0: no lines */
  int64_t last_line;              /* step of the last line */
  brim_progress_state last;
  pthread_mutex_t lock; /* messages of loader threads redraw the line too */
} brim_progress;

/* Inspects standard error and the terminal's width (COLUMNS, TIOCGWINSZ; asks again after SIGWINCH). Registers itself
 * with brim_log_set_hook, so that messages do not break the line; `p` must not move until brim_progress_finish. */
void brim_progress_init(brim_progress *p, int64_t start_step, int64_t line_every, bool quiet);
/* [step] Redraws at most ten times a second. */
void brim_progress_update(brim_progress *p, const brim_progress_state *state);
/* Seconds for `left` steps if `done` steps, with all that happens between them, took `seconds`; NAN: not known. Every
 * "time left" comes from here. */
double brim_progress_seconds(double seconds, double done, double left);
/* Seconds until the last step, from the average since the first one; NAN: not known yet. */
double brim_progress_left(const brim_progress *p, double now);
/* Ends the line; further output starts on a fresh one. */
void brim_progress_finish(brim_progress *p);
/* Formats the line for p->last at time `now`, without newline; on a terminal at most p->columns - 1 characters wide,
 * without the less important parts if necessary. `out` holds BRIM_PROGRESS_LINE_BYTES. Returns its length in bytes. */
size_t brim_progress_format(const brim_progress *p, double now, char *out);
#endif
