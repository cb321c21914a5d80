/* A separate thread for functions of plugins that must not take the process down: the caller waits for the function,
 * and continues without it if it crashes or hangs.
 *
 * All functions run on one thread. Work that the core does for them (brim_guard_back) runs on the caller's thread,
 * which waits, so error texts, the selected device and other thread-local state are the caller's.
 *
 * An abandoned thread keeps the locks that it holds until the process ends, by _exit, after everything that must be
 * saved is saved. If the thread continues, the objects of its call may already be freed. So it sleeps for good as soon
 * as its function returns or calls the core, before the core touches the arguments of the call. Until then it may read
 * freed memory, and a crash that this causes is ignored. If a function forks, the child has no caller: it crashes or
 * ends like any process, and ends when it returns from the function. Crashes are caught in processes that called
 * brim_crash_watch; elsewhere they end the process. */
#ifndef BRIM_BASE_GUARD_H
#define BRIM_BASE_GUARD_H
#include <signal.h>
#include <stdbool.h>

#include "brim/status.h"

#define BRIM_GUARD_QUESTIONS_MAX                                                                                       \
  100000 /* the most calls of the core in one guarded call; more count as an endless loop */

typedef struct brim_guard brim_guard;
typedef brim_status (*brim_guard_work)(void *context);

/* A guarded call: names for messages, and time limits. */
typedef struct brim_guard_call {
  const char *name, *file; /* the name in messages: "policy 'robust'"; file NULL or "": the core's own */
  const char *function;
  double seconds;         /* limit of the thread's processor time; time in the core's callbacks does not count */
  double waiting_seconds; /* limit of the time in which the thread sleeps; time in which it could run, but other
                             threads have the processors, does not count */
} brim_guard_call;

/* [init] Starts the thread. ENOMEM_HOST. */
brim_status brim_guard_open(brim_guard **out);
/* [init] Ends the thread, unless it was abandoned. NULL: does nothing. */
void brim_guard_close(brim_guard *guard);

/* [init] Runs `work` on the thread. Returns its status, with its error text; EPLUGIN if it crashed, called exit() or
 * was abandoned at its time limit: then the thread keeps the memory that `context` points to, and further calls fail.
 */
brim_status brim_guard_run(brim_guard *guard, const brim_guard_call *call, brim_guard_work work, void *context);
/* [any thread] On a guard's thread: lets the caller run `work` while the thread waits. Elsewhere `work` runs at
 * once. */
brim_status brim_guard_back(brim_guard_work work, void *context);

/* [any thread] On a guard's thread: runs `work` on this thread while the caller waits; an abandoned thread sleeps here
 * for good before it touches anything. Elsewhere `work` runs at once. `work` must return: the thread cannot be
 * abandoned meanwhile. */
brim_status brim_guard_here(brim_guard_work work, void *context);

bool brim_guard_is_lost(const brim_guard *guard);
/* [any thread] Whether any thread of the process was abandoned. Then the process must end by _exit. If its remaining
 * work does not finish, an alarm ends it some minutes later. */
bool brim_guard_any_lost(void);
/* [any thread] Cancels the alarm that ends a process with an abandoned thread: everything that must be saved is
 * saved. */
void brim_guard_cancel_alarm(void);

/* [any thread] For signal handlers: whether this is a guard's thread, in the process that opened it. If so,
 * brim_guard_take_crash records the crash, wakes the caller and does not return. `code`: the place of the crash. Signal
 * 0: the thread called exit(). */
bool brim_guard_is_own(void);
_Noreturn void brim_guard_take_crash(int signal, const siginfo_t *info, const void *code);
#endif
