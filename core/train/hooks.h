/* Hooks: shell commands that a run starts when something has happened (hooks.on_start, on_evaluation, on_checkpoint,
 * on_oom, on_end). A separate thread runs them one after another, so the steps never wait. A command gets BRIM_*
 * variables, and figures as JSON on its standard input; its output goes to hooks.log in the run's folder. brim ends a
 * command after 60 seconds. If a command fails, brim warns and the run continues. */
#ifndef BRIM_TRAIN_HOOKS_H
#define BRIM_TRAIN_HOOKS_H
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/part.h"
#include "config/settings.h"

#define BRIM_HOOKS_LOG_NAME "hooks.log"
#define BRIM_HOOK_FAILED "hook_failed" /* name of the event that records a hook's first failure */

enum brim_run_hook {
  BRIM_HOOK_START,
  BRIM_HOOK_EVALUATION,
  BRIM_HOOK_CHECKPOINT,
  BRIM_HOOK_OOM,
  BRIM_HOOK_END,
  BRIM_HOOK_COUNT
};

/* The data that a command gets. Numbers that are not known are NAN. */
typedef struct brim_hook_facts {
  const char *status; /* a string literal: "running", "finished", "interrupted", "failed" */
  const char *split;  /* the split of an evaluation, a string literal; else "" */
  int64_t step, steps;
  double epoch;
  double loss[BRIM_PART_COUNT], accuracy[BRIM_PART_COUNT], mae[BRIM_PART_COUNT];
  char detail[1024]; /* the reason why memory ran out, or the error of a run that failed */
} brim_hook_facts;

typedef struct brim_hooks brim_hooks;

/* [init] Returns NULL if no hook is set, or, with a warning, if the thread cannot be started. Copies the texts. */
brim_hooks *brim_hooks_open(const brim_hooks_settings *settings, const char *run, const char *model,
                            const char *dataset);
/* The first failure of a hook. */
typedef struct brim_hook_failure {
  int64_t step;     /* step of the facts that the command got */
  char detail[256]; /* "hooks.on_end: exit status 3 after 0.01 s; its output is in hooks.log" */
} brim_hook_failure;

/* [step] Queues a hook; allocates nothing. If the same hook is still queued, only the newer one runs. NULL hooks: does
 * nothing. */
void brim_hooks_post(brim_hooks *hooks, enum brim_run_hook hook, const brim_hook_facts *facts);
/* [step] Takes the next failure that was not taken yet; false if there is none. */
bool brim_hooks_take_failure(brim_hooks *hooks, brim_hook_failure *out);
/* Runs the queued hooks, ends the thread and frees everything. Each hook has its 60 seconds, but a hook that was ended
 * for that before is not started again, except on_end. A signal that sets *stop ends the wait. Writes the failures that
 * were not taken yet to `out`, which has room for BRIM_HOOK_COUNT, and returns their number. */
size_t brim_hooks_close(brim_hooks *hooks, const volatile sig_atomic_t *stop, brim_hook_failure *out);
#endif
