/* Signals that end a run. The first one asks it to end after the step, with a checkpoint, and prints an answer at
 * once; the second one ends the process and says which steps are lost. One run per process at a time. */
#ifndef BRIM_TRAIN_STOP_H
#define BRIM_TRAIN_STOP_H
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* The messages after the first signal, by the run's activity. */
#define BRIM_STOP_BEGINNING "ending before the first step"
#define BRIM_STOP_STEPS "finishing the step, then a checkpoint"
#define BRIM_STOP_EVALUATION "stopping the evaluation, then a checkpoint"
#define BRIM_STOP_ENDING "training has ended, writing the results"

/* [init] Catches SIGINT, SIGTERM, SIGXCPU (which never ends the process), and, unless it is ignored, SIGHUP.
 * `speaks`: this process answers them, and no other rank does. Returns the variable that will hold the first signal's
 * number; 0: none yet. */
const volatile sig_atomic_t *brim_stop_watch(bool speaks);
/* [init] The run's folder, for the command that resumes it. */
void brim_stop_set_folder(const char *name);
/* [step] Sets the message for the run's current activity: one of the texts above, or another literal. */
void brim_stop_doing(const char *what);
/* [step] Sets the steps of the newest checkpoint (-1: none yet) and of the last commit. */
void brim_stop_at(int64_t checkpoint_step, int64_t step);
#endif
