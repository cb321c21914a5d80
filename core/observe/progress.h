/* What a person sees while a run goes on: on a terminal one line that is redrawn in place, elsewhere plain
 * lines now and then. Standard error. Never allocates after init. */
#ifndef BRIM_OBSERVE_PROGRESS_H
#define BRIM_OBSERVE_PROGRESS_H
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BRIM_PROGRESS_LINE_BYTES 1024 /* the longest line, with colours and NUL */

typedef struct brim_progress_state {
  int64_t epoch, epochs;              /* from 1; epochs 0: the run is counted in steps */
  int64_t step, steps;                /* commits so far and in all */
  bool by_rounds;                     /* they are rounds of a federation */
  double loss, accuracy;              /* running, of the window; accuracy in [0, 1]; NAN: none yet */
  double mae;                         /* mean absolute error, in the accuracy's place; NAN: none */
  double samples_per_second;          /* 0 or NAN: none yet */
  int64_t tokens_each;                /* in a sample: then the rate is of tokens; 0: it is of samples */
  uint64_t used_bytes, planned_bytes; /* memory: device arena in use now at most, and planned; 0: not shown */
} brim_progress_state;

typedef struct brim_progress {
  bool terminal, drawn, quiet;
  bool color, unicode;
  int columns;
  double start, last_draw;        /* seconds, brim_now(); start: when step `start_step` was done */
  int64_t start_step, first_step; /* first_step: the run's, from init */
  int64_t line_every;             /* not a terminal: a line every so many steps; 0: none */
  int64_t last_line;              /* the step of the last of them */
  brim_progress_state last;
  pthread_mutex_t lock; /* messages of loader threads redraw the line too */
} brim_progress;

/* Looks at standard error and at the terminal's width (COLUMNS, TIOCGWINSZ, follows SIGWINCH by asking again).
 * Registers itself with brim_log_set_hook, so that messages do not tear the line; `p` must stay where it is until
 * brim_progress_finish. */
void brim_progress_init(brim_progress *p, int64_t start_step, int64_t line_every, bool quiet);
/* [step] At most ten redraws a second. */
void brim_progress_update(brim_progress *p, const brim_progress_state *state);
/* Ends the line; further output starts on a fresh one. */
void brim_progress_finish(brim_progress *p);
/* The line for p->last at time `now`, without newline, at most p->columns - 1 characters wide on a terminal: what is
 * less important is left out. `out` holds BRIM_PROGRESS_LINE_BYTES. Returns its length in bytes. */
size_t brim_progress_format(const brim_progress *p, double now, char *out);
#endif
