/* Signals that end a run. The first asks it to end after the step, with a checkpoint, and is answered at once; the
 * second ends the process and says what is lost. One run of a process at a time. */
#ifndef BRIM_TRAIN_STOP_H
#define BRIM_TRAIN_STOP_H
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* What the first signal is answered with, while the run is at it. */
#define BRIM_STOP_BEGINNING "ending before the first step"
#define BRIM_STOP_STEPS "finishing the step, then a checkpoint"
#define BRIM_STOP_EVALUATION "leaving the evaluation, then a checkpoint"
#define BRIM_STOP_ENDING "the steps are done, the results are being written"

/* [init] Catches SIGINT, SIGTERM, SIGXCPU, which never ends the process, and, unless it is ignored, SIGHUP. `speaks`:
 * this process answers them, and no other rank does. Returns where the first signal's number will be; 0: none yet. */
const volatile sig_atomic_t *brim_stop_watch(bool speaks);
/* [init] The run's folder, for the command that resumes it. */
void brim_stop_set_folder(const char *name);
/* [step] One of the texts above, or another literal. */
void brim_stop_doing(const char *what);
/* [step] The newest checkpoint's step (-1: no checkpoint yet), and that of the last commit. */
void brim_stop_at(int64_t checkpoint_step, int64_t step);
#endif
