#include "base/guard.h"

#include <math.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/crash.h"
#include "base/error.h"
#include "base/process.h"
#include "base/text.h"
#include "base/thread.h"

/* Longest time between two looks at the clocks; if the process was stopped, a look counts at most twice this time. */
#define SLICE_SECONDS 0.05
#define IDLE_SECONDS 0.001 /* waits count when they add up to this time */
/* Polls before a thread sleeps, some tens of us, because a handover is faster than waking a thread. */
#define SPINS 5000
#define JOIN_SECONDS 1
/* Time to save the run after a thread was abandoned, perhaps while it held a lock of malloc. */
#define LAST_SECONDS 600

/* Whose turn it is. In state RUNS both threads may change the turn, and the later one sees the other's change. INSIDE:
 * the guarded thread is in the core and will return. */
enum turn { RUNS, INSIDE, ASKS, DONE, CRASHED, LOST };

struct brim_guard {
  pthread_t thread;
  clockid_t clock;    /* clock of the thread's processor time */
  atomic_int tid;     /* the thread's number; 0: the thread has not begun */
  pid_t process;      /* the process of the guard; a child forked by a plugin has no caller */
  sem_t call, answer; /* the caller waits for `answer`, the thread for `call` */
  atomic_int turn;
  bool quits;
  int spins;
  brim_guard_work work, back; /* the function to call; the function that the thread asks the caller to run */
  void *context, *back_context;
  brim_status status, back_status;
  brim_error error; /* in transit between the threads */
  double queued;    /* queued_seconds() when a slice last read it */
  int signal;       /* signal of a crash; 0: exit() was called */
  const void *address, *code;
};

static _Thread_local brim_guard *own; /* the guard of this thread; NULL: none */
static atomic_bool any_lost;

/* ---- the thread ---- */

/* Waits until the process ends. Async-signal-safe. */
_Noreturn static void park(void)
{
  for (;;) pause();
}

static void wait_for(sem_t *semaphore, int spins)
{
  for (int i = 0; i < spins; i++)
    if (sem_trywait(semaphore) == 0) return;
  while (sem_wait(semaphore) != 0) continue;
}

static void change_turn(brim_guard *g, int from, int to)
{
  if (!atomic_compare_exchange_strong(&g->turn, &from, to)) park();
}

/* Gives the turn to the caller; a thread that has been abandoned parks here. Async-signal-safe. */
static void give_turn(brim_guard *g, int turn)
{
  change_turn(g, RUNS, turn);
  sem_post(&g->answer);
}

/* Returns the guard of this thread; NULL in other threads, and in a forked child. Async-signal-safe. */
static brim_guard *own_here(void)
{
  return own && own->process == getpid() ? own : NULL;
}

bool brim_guard_is_own(void)
{
  return own_here() != NULL;
}

_Noreturn void brim_guard_take_crash(int signal, const siginfo_t *info, const void *code)
{
  brim_guard *g = own;
  g->signal = signal;
  g->address = info ? info->si_addr : NULL;
  g->code = code;
  if (atomic_load(&g->turn) == INSIDE) change_turn(g, INSIDE, RUNS);
  give_turn(g, CRASHED);
  park();
}

static void *serve(void *context)
{
  brim_guard *g = own = context;
  g->process = getpid();
  atomic_store(&g->tid, (int)gettid());
  for (;;) {
    wait_for(&g->call, g->spins);
    if (g->quits) break;
    brim_error_clear();
    g->status = g->work(g->context);
    /* A child process that the function forked can return from it and get here. */
    if (!own_here()) _exit(brim_status_exit(BRIM_EPLUGIN));
    if (g->status != BRIM_OK) brim_error_take(&g->error);
    give_turn(g, DONE);
  }
  return NULL; /* leave `own` set, because destructors that plugins registered for the thread's end still run */
}

brim_status brim_guard_back(brim_guard_work work, void *context)
{
  brim_guard *g = own_here();
  if (!g) return work(context);
  g->back = work;
  g->back_context = context;
  give_turn(g, ASKS);
  wait_for(&g->call, g->spins);
  if (g->back_status != BRIM_OK) brim_error_put(&g->error);
  return g->back_status;
}

brim_status brim_guard_here(brim_guard_work work, void *context)
{
  brim_guard *g = own_here();
  if (!g) return work(context);
  change_turn(g, RUNS, INSIDE);
  const brim_status status = work(context);
  change_turn(g, INSIDE, RUNS);
  return status;
}

/* ---- the caller ---- */

/* The remaining time of a call. */
typedef struct time_left {
  double computing, waiting;
  double idle; /* short waits that `waiting` does not contain yet */
} time_left;

static double processor_seconds(const brim_guard *g)
{
  struct timespec now = {0};
  clock_gettime(g->clock, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Returns the seconds in which the guarded thread or the caller was ready to run while other threads had the
 * processors. The caller counts too, because it must wake up to see the answer. The time since each last ran is not
 * included. */
static double queued_seconds(const brim_guard *g)
{
  const int tid = atomic_load(&g->tid);
  return (tid == 0 ? 0 : brim_thread_queued_seconds(tid)) + brim_thread_queued_seconds(gettid());
}

static bool can_run(const brim_guard *g)
{
  const int tid = atomic_load(&g->tid);
  return tid == 0 || brim_thread_can_run(tid);
}

static bool wait_for_slice(brim_guard *g)
{
  const struct timespec until = brim_time_in(SLICE_SECONDS);
  return sem_clockwait(&g->answer, CLOCK_MONOTONIC, &until) == 0;
}

/* Counts a slice against the limits. If it took longer than two slices, the rest does not count, because the process
 * was stopped. Time in which other threads had the processors does not count either; on a busy machine it may be ten
 * times the processor time. The rest is waiting time. Short waits are added up, so that most slices read no file. */
static void count_slice(brim_guard *g, time_left *left, double real, double computed, bool is_answered)
{
  left->computing -= computed;
  left->idle += fmax(0, fmin(real, 2 * SLICE_SECONDS) - computed);
  if (left->idle < IDLE_SECONDS) return;
  const double idle = left->idle;
  left->idle = 0;
  if (!is_answered && can_run(g)) return;
  const double queued = queued_seconds(g);
  left->waiting -= fmax(0, idle - fmax(0, queued - g->queued));
  g->queued = queued;
}

/* Waits for the answer in slices. Returns false when a limit is reached. */
static bool wait_for_answer(brim_guard *g, time_left *left)
{
  for (int i = 0; i < g->spins; i++)
    if (sem_trywait(&g->answer) == 0) return true;
  while (left->computing > 0 && left->waiting > 0) {
    const double start = brim_now(), before = processor_seconds(g);
    const bool is_answered = wait_for_slice(g);
    const double computed = fmax(0, processor_seconds(g) - before); /* 0: the thread has ended */
    count_slice(g, left, brim_now() - start, computed, is_answered);
    if (is_answered) return true;
  }
  return false;
}

/* Records that a thread was abandoned, and limits the remaining life of the process, because saving may need a lock
 * that the thread never releases. */
static void lose(void)
{
  atomic_store(&any_lost, true);
  brim_crash_end_in(LAST_SECONDS);
}

void brim_guard_cancel_alarm(void)
{
  if (brim_guard_any_lost()) brim_crash_end_in(0);
}

static brim_status fail_lost(const brim_guard_call *call, const char *what)
{
  const brim_status status = brim_fail(BRIM_EPLUGIN, "%s %s", call->name, what);
  if (call->file && call->file[0])
    brim_fail_add(status, "plugin %s\n`brim check %s` calls its functions one by one", call->file,
                  BRIM_QUOTED(call->file));
  return status;
}

static brim_status fail_crashed(const brim_guard *g, const brim_guard_call *call)
{
  char what[256], place[160];
  lose();
  if (g->signal == 0) {
    snprintf(what, sizeof what, "called exit() in %s; plugins must not", call->function);
    return fail_lost(call, what);
  }
  int length = snprintf(what, sizeof what, "crashed in %s: %s", call->function, brim_crash_name(g->signal));
  if (brim_crash_has_address(g->signal))
    length += snprintf(what + length, sizeof what - (size_t)length, " at address 0x%llx",
                       (unsigned long long)(uintptr_t)g->address);
  if (brim_crash_place(g->code, place, sizeof place))
    snprintf(what + length, sizeof what - (size_t)length, ", in %s", place);
  return fail_lost(call, what);
}

static brim_status fail_late(const brim_guard_call *call, const time_left *left)
{
  char what[200];
  lose();
  if (left->computing <= 0)
    snprintf(what, sizeof what, "did not return from %s and was abandoned after %g s of processor time", call->function,
             call->seconds);
  else
    snprintf(what, sizeof what,
             "did not return from %s: it waited (for a lock, a file, a clock?) and was abandoned after %g s",
             call->function, call->waiting_seconds);
  return fail_lost(call, what);
}

/* Takes the turn from the thread. True: the thread has just handed it over; false: the thread is abandoned. */
static bool take_turn(brim_guard *g)
{
  const struct timespec ms = {0, 1000000};
  int expected = RUNS;
  while (!atomic_compare_exchange_strong(&g->turn, &expected, LOST) && expected == INSIDE) {
    nanosleep(&ms, NULL);
    expected = RUNS;
  }
  if (expected == RUNS) return false;
  while (sem_wait(&g->answer) != 0) continue;
  return true;
}

static void answer(brim_guard *g)
{
  g->back_status = g->back(g->back_context);
  if (g->back_status != BRIM_OK) brim_error_take(&g->error);
}

brim_status brim_guard_run(brim_guard *g, const brim_guard_call *call, brim_guard_work work, void *context)
{
  time_left left = {call->seconds, call->waiting_seconds, 0};
  if (brim_guard_is_lost(g))
    return brim_fail(BRIM_EPLUGIN, "%s was abandoned earlier and cannot be called", call->name);
  g->work = work;
  g->context = context;
  for (int questions = 0;; questions++) {
    atomic_store(&g->turn, RUNS);
    sem_post(&g->call);
    if (!wait_for_answer(g, &left) && !take_turn(g)) return fail_late(call, &left);
    switch (atomic_load(&g->turn)) {
    case DONE:
      if (g->status != BRIM_OK) brim_error_put(&g->error);
      return g->status;
    case CRASHED:
      return fail_crashed(g, call);
    default:
      if (questions == BRIM_GUARD_QUESTIONS_MAX) {
        atomic_store(&g->turn, LOST); /* the thread waits for an answer that will not come */
        char what[160];
        lose();
        snprintf(what, sizeof what, "asked the core %d questions in one %s and was abandoned", BRIM_GUARD_QUESTIONS_MAX,
                 call->function);
        return fail_lost(call, what);
      }
      answer(g);
    }
  }
}

/* ---- beginning and end ---- */

brim_status brim_guard_open(brim_guard **out)
{
  brim_guard *g = brim_xcalloc(1, sizeof *g);
  g->spins = brim_host_threads() > 1 ? SPINS : 0;
  atomic_store(&g->turn, DONE);
  sem_init(&g->call, 0, 0);
  sem_init(&g->answer, 0, 0);
  const int failed = brim_thread_start(&g->thread, "brim-policies", serve, g);
  if (failed) {
    free(g);
    return brim_fail(BRIM_ENOMEM_HOST, "cannot start the thread that policies run on: %s", strerror(failed));
  }
  pthread_getcpuclockid(g->thread, &g->clock);
  *out = g;
  return BRIM_OK;
}

/* Waits with a limit, because a destructor that a plugin registered for the thread's end may hang too. */
void brim_guard_close(brim_guard *g)
{
  struct timespec until;
  if (!g || brim_guard_is_lost(g)) return;
  g->quits = true;
  sem_post(&g->call);
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += JOIN_SECONDS;
  if (pthread_timedjoin_np(g->thread, NULL, &until) != 0) {
    lose();
    return;
  }
  sem_destroy(&g->call);
  sem_destroy(&g->answer);
  free(g);
}

bool brim_guard_is_lost(const brim_guard *g)
{
  const int turn = atomic_load(&g->turn);
  return turn == CRASHED || turn == LOST;
}

bool brim_guard_any_lost(void)
{
  return atomic_load(&any_lost);
}
