/* Hooks: shell commands that a run starts when something has happened (hooks.on_start, on_evaluation, on_checkpoint,
 * on_oom, on_end). A thread of its own runs them one after another, so the steps never wait. A command gets BRIM_*
 * variables, and figures as JSON on its standard input; its output goes to hooks.log in the run's folder. After 60
 * seconds it is ended. A failure of a command is a warning, and the run continues. */
#ifndef BRIM_TRAIN_HOOKS_H
#define BRIM_TRAIN_HOOKS_H
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/settings.h"

#define BRIM_HOOKS_LOG_NAME "hooks.log"
#define BRIM_HOOK_FAILED "hook_failed" /* the event of a hook's first failure */
#define BRIM_HOOK_PARTS 3              /* training, validation and test data, by enum brim_part */

enum brim_run_hook {
  BRIM_HOOK_START,
  BRIM_HOOK_EVALUATION,
  BRIM_HOOK_CHECKPOINT,
  BRIM_HOOK_OOM,
  BRIM_HOOK_END,
  BRIM_HOOK_COUNT
};

/* The data that a command gets. Unknown numbers are NAN. */
typedef struct brim_hook_facts {
  const char *status; /* a literal: "running", "finished", "interrupted", "failed" */
  const char *split;  /* of an evaluation, a literal; else "" */
  int64_t step, steps;
  double epoch;
  double loss[BRIM_HOOK_PARTS], accuracy[BRIM_HOOK_PARTS], mae[BRIM_HOOK_PARTS];
  char detail[1024]; /* the reason of an out-of-memory, or the error of a run that failed */
} brim_hook_facts;

typedef struct brim_hooks brim_hooks;

/* [init] NULL if no hook is set, or, with a warning, if the thread cannot be started. Texts are copied. */
brim_hooks *brim_hooks_open(const brim_hooks_settings *settings, const char *run, const char *model,
                            const char *dataset);
/* The first failure of a hook. */
typedef struct brim_hook_failure {
  int64_t step;     /* of the facts that the command had */
  char detail[256]; /* "hooks.on_end: exit status 3 after 0.01 s; its output is in hooks.log" */
} brim_hook_failure;

/* [step] Starts a hook soon; allocates nothing. If the same hook still waits for its turn, only the newer one runs.
 * NULL hooks: nothing happens. */
void brim_hooks_post(brim_hooks *hooks, enum brim_run_hook hook, const brim_hook_facts *facts);
/* [step] Takes a failure that was not taken yet; false if no failure is left. */
bool brim_hooks_take_failure(brim_hooks *hooks, brim_hook_failure *out);
/* Runs the hooks that wait, ends the thread and frees everything. Each hook has its 60 seconds, but one that has used
 * them up before is not started again, except on_end. `stop`: a signal that arrives there ends the waiting. Writes the
 * failures that were not taken yet to `out`, which has room for BRIM_HOOK_COUNT, and returns their number. */
size_t brim_hooks_close(brim_hooks *hooks, const volatile sig_atomic_t *stop, brim_hook_failure *out);
#endif
