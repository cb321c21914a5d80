/* What a person sees while a run goes on: on a terminal one line that is redrawn in place, elsewhere plain
 * lines now and then. Standard error. Never allocates after init. */
#ifndef BRIM_OBSERVE_PROGRESS_H
#define BRIM_OBSERVE_PROGRESS_H
#include <stdbool.h>
#include <stdint.h>

typedef struct brim_progress_state {
  int64_t epoch, epochs;      /* from 1; epochs 0: the run is counted in steps */
  int64_t step, steps;        /* commits so far and in all */
  double loss, accuracy;      /* running, of the window; NAN: none yet */
  double samples_per_second;
  uint64_t used_bytes, planned_bytes; /* memory: device arena in use now at most, and planned */
} brim_progress_state;

typedef struct brim_progress {
  bool terminal, drawn, quiet;
  int columns;
  double start, last_draw;   /* seconds, brim_now() */
  int64_t start_step;
  int64_t line_every;        /* not a terminal: a line every so many steps */
  brim_progress_state last;
} brim_progress;

/* Looks at standard error and at the terminal's width (COLUMNS, TIOCGWINSZ, follows SIGWINCH by asking again).
 * Registers itself with brim_log_set_hook, so that messages do not tear the line. */
void brim_progress_init(brim_progress *p, int64_t start_step, int64_t line_every, bool quiet);
/* [step] At most ten redraws a second. */
void brim_progress_update(brim_progress *p, const brim_progress_state *state);
/* Ends the line; further output starts on a fresh one. */
void brim_progress_finish(brim_progress *p);
#endif
