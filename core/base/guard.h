/* A thread of their own for functions of plugins that must not take the process down: whoever calls one waits for it,
 * and goes on without it if it crashes or does not come back.
 *
 * The functions see one thread, and what the core does for them (brim_guard_back) is done on the caller's, which waits:
 * so error texts, the device that is selected and whatever else belongs to a thread are the caller's there.
 *
 * A thread that was given up stays where it is, with the locks that it holds, until the process ends: by _exit, after
 * what must be saved was saved. If it goes on by itself, what its call was about may be freed: it stops for good where
 * it comes back or asks the core anything, before the core touches what it was given; what it reads by itself until
 * then, and the crash that may be of it, changes nothing. A child that a function forks has no caller, and crashes or
 * ends as any process; one that returns from the function ends. Crashes are caught where brim_crash_watch was called;
 * elsewhere they end the process.
 */
#ifndef BRIM_BASE_GUARD_H
#define BRIM_BASE_GUARD_H
#include <signal.h>
#include <stdbool.h>

#include "brim/status.h"

#define BRIM_GUARD_QUESTIONS_MAX 100000 /* to the core in one call: more is a loop */

typedef struct brim_guard brim_guard;
typedef brim_status (*brim_guard_work)(void *context);

/* What is called, for messages. */
typedef struct brim_guard_call {
  const char *who, *file; /* "policy 'robust'"; file NULL or "": the core's own */
  const char *function;
  double seconds;         /* of its thread's processor time; what the core does for it does not count */
  double waiting_seconds; /* without it: the thread sleeps, or its machine does */
} brim_guard_call;

/* [init] Starts the thread. ENOMEM_HOST. */
brim_status brim_guard_open(brim_guard **out);
/* [init] Ends it, unless it was given up. NULL: nothing to do. */
void brim_guard_close(brim_guard *guard);

/* [init] Runs `work` on the thread. Its status, with its error text; EPLUGIN if it has crashed, has called exit(), or
 * was given up after its time: what `context` points to is then the thread's for ever, and no other call is made. */
brim_status brim_guard_run(brim_guard *guard, const brim_guard_call *call, brim_guard_work work, void *context);
/* [any thread] On a guard's thread: has its caller do `work`, and waits. Elsewhere it is done at once. */
brim_status brim_guard_back(brim_guard_work work, void *context);

/* [any thread] On a guard's thread: does `work` itself, while its caller waits; a thread that was given up stays here
 * before it touches anything. Elsewhere it is done at once. `work` must come back: meanwhile nobody is given up. */
brim_status brim_guard_here(brim_guard_work work, void *context);

bool brim_guard_is_lost(const brim_guard *guard);
/* [any thread] Was any thread of the process given up? Then it must end by _exit; and it does, some minutes later, if
 * what it does until then does not come to an end. */
bool brim_guard_any_lost(void);
/* [any thread] What was to be saved is, and the process goes on with something else, for as long as that takes. */
void brim_guard_go_on(void);

/* [any thread] Of a signal's handler: is this a guard's thread, in the process that opened it? Then the other notes the
 * crash, wakes the caller and does not return. `code`: where it happened. Signal 0: the thread has called exit(). */
bool brim_guard_is_own(void);
_Noreturn void brim_guard_take_crash(int signal, const siginfo_t *info, const void *code);
#endif
