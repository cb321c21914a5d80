/* A separate thread for functions of plugins that must not take the process down: the caller waits for the function,
 * and continues without it if it crashes or hangs.
 *
 * All functions run on one thread. Work that the core does for them (brim_guard_back) runs on the caller's thread,
 * which waits, so error texts, the selected device and other thread-local state are the caller's.
 *
 * An abandoned thread stays where it is, with the locks that it holds, until the process ends: by _exit, once
 * everything that must be saved is saved. If it continues, the objects of its call may already be freed: it parks as
 * soon as its function returns or calls the core, before the core touches its arguments; reads until then, and a crash
 * that they may cause, have no effect. A child that a function forks has no caller, and crashes or ends like any
 * process; one that returns from the function ends. Crashes are caught in processes that called brim_crash_watch;
 * elsewhere they end the process. */
#ifndef BRIM_BASE_GUARD_H
#define BRIM_BASE_GUARD_H
#include <signal.h>
#include <stdbool.h>

#include "brim/status.h"

#define BRIM_GUARD_QUESTIONS_MAX 100000 /* questions to the core in one call; more count as an endless loop */

typedef struct brim_guard brim_guard;
typedef brim_status (*brim_guard_work)(void *context);

/* A guarded call: names for messages, and time limits. */
typedef struct brim_guard_call {
  const char *name, *file; /* "policy 'robust'"; file NULL or "": the core's own */
  const char *function;
  double seconds;         /* limit of the thread's processor time; the core's work for it does not count */
  double waiting_seconds; /* limit of the time in which the thread sleeps; while it could run and other threads have
                             the processors, it does not wait */
} brim_guard_call;

/* [init] Starts the thread. ENOMEM_HOST. */
brim_status brim_guard_open(brim_guard **out);
/* [init] Ends it, unless it was abandoned. NULL: does nothing. */
void brim_guard_close(brim_guard *guard);

/* [init] Runs `work` on the thread. Returns its status, with its error text; EPLUGIN if it crashed, called exit() or
 * was abandoned at its time limit: then the thread keeps the memory that `context` points to, and further calls fail.
 */
brim_status brim_guard_run(brim_guard *guard, const brim_guard_call *call, brim_guard_work work, void *context);
/* [any thread] On a guard's thread: the caller runs `work` while the thread waits. Elsewhere `work` runs at once. */
brim_status brim_guard_back(brim_guard_work work, void *context);

/* [any thread] On a guard's thread: runs `work` itself while the caller waits; an abandoned thread parks here before it
 * touches anything. Elsewhere `work` runs at once. `work` must return: the thread cannot be abandoned meanwhile. */
brim_status brim_guard_here(brim_guard_work work, void *context);

bool brim_guard_is_lost(const brim_guard *guard);
/* [any thread] Whether any thread of the process was abandoned. Then the process must end by _exit; it does so by
 * itself some minutes later if its remaining work does not finish. */
bool brim_guard_any_lost(void);
/* [any thread] Cancels the time limit for a process that abandoned a thread: everything that must be saved is saved. */
void brim_guard_cancel_alarm(void);

/* [any thread] For signal handlers: whether this is a guard's thread, in the process that opened it. If so,
 * brim_guard_take_crash records the crash, wakes the caller and does not return. `code`: the place of the crash. Signal
 * 0: the thread called exit(). */
bool brim_guard_is_own(void);
_Noreturn void brim_guard_take_crash(int signal, const siginfo_t *info, const void *code);
#endif
