/* Signals that end a run. After the first signal, the run ends when its step is done, with a checkpoint; brim confirms
 * the signal at once. The second signal ends the process, and brim prints the steps that are lost. One run per process
 * at a time. */
#ifndef BRIM_TRAIN_STOP_H
#define BRIM_TRAIN_STOP_H
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* The confirmations of the first signal, by the run's activity. */
#define BRIM_STOP_BEGINNING "ending before the first step"
#define BRIM_STOP_STEPS "finishing the step, then a checkpoint"
#define BRIM_STOP_EVALUATION "stopping the evaluation, then a checkpoint"
#define BRIM_STOP_ENDING "training has ended, writing the results"

/* [init] Catches SIGINT, SIGTERM, SIGXCPU (which never ends the process), and, unless the process ignores it, SIGHUP.
 * `speaks`: this process confirms signals; no other rank does. Returns the variable that will hold the first signal's
 * number; 0: none yet. */
const volatile sig_atomic_t *brim_stop_watch(bool speaks);
/* [init] Sets the run's folder, for the printed command that resumes the run. */
void brim_stop_set_folder(const char *name);
/* [step] Sets the confirmation for the run's current activity: one of the texts above, or another string literal. */
void brim_stop_doing(const char *what);
/* [step] Sets the steps of the newest checkpoint (-1: none yet) and of the last commit. */
void brim_stop_at(int64_t checkpoint_step, int64_t step);
#endif
