/* See joining.h. A signal that arrives while a rank leaves has no effect. */
#include "dist/joining.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/crash.h"
#include "base/log.h"
#include "base/text.h"
#include "base/thread.h"
#include "dist/line.h"
#include "dist/started.h"

#define LOOK_SECONDS 0.1
#define ASLEEP_SECONDS 0.5 /* a longer pause between checks of the clock means that this process was stopped */
#define LEAVE_SECONDS 15   /* limit for ending after the work is done */
#define TURN_SECONDS 0.25  /* time between the messages of two ranks, because the first one may end all ranks */
#define TURNS 8            /* ranks that take turns; there may be thousands of ranks */
/* A rank with a launcher waits this much longer, because the launcher can name the missing ranks, which a rank cannot,
 * and may be slow on a busy host. */
#define LAUNCHER_SECONDS 5

static const int watched[] = {SIGINT, SIGTERM, SIGHUP};

_Noreturn static void end_job(const brim_joining *j, int exit_status)
{
  brim_line_end(exit_status);
  brim_crash_allow_exit();
  j->ops->end_all(j->self, exit_status);
  _exit(exit_status);
}

/* Ends the process by a signal, because there is nothing to lose yet. If there is a launcher, it sees how the process
 * ended; if not, this ends the whole job. */
_Noreturn static void end_by(const brim_joining *j, int number)
{
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  if (brim_line_is_open()) {
    signal(number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    raise(number);
  }
  end_job(j, 128 + number);
}

_Noreturn static void end_late(const brim_joining *j)
{
  brim_log_set_rank(j->rank);
  brim_fail(BRIM_ECOMM,
            "the %d ranks did not connect within dist.timeout_seconds=%g\n"
            "one of them has stopped, or a host cannot be reached: see the logs of their hosts, and `mpirun hostname`",
            (int)j->ranks, j->seconds);
  if (brim_line_may_print()) brim_log_error();
  end_job(j, brim_status_exit(BRIM_ECOMM));
}

/* Ends a process whose communicator hangs, after all messages are printed and the results are written. */
_Noreturn static void leave_late(const brim_joining *j)
{
  brim_log(BRIM_LOG_WARN, "the communicator did not end within %g seconds; the job is done", j->seconds);
  brim_line_leave(j->exit_status);
  fflush(stdout);
  _exit(j->exit_status);
}

/* Must not read the environment, because MPI changes it while it starts, and getenv() crashes if setenv() runs at the
 * same time. */
static void *watch(void *context)
{
  const brim_joining *j = context;
  const double turn = TURN_SECONDS * (j->rank < TURNS ? j->rank : TURNS);
  const double more = turn + (brim_line_is_open() ? LAUNCHER_SECONDS : 0);
  const double seconds = j->seconds + (j->exit_status >= 0 ? 0 : more);
  struct pollfd ready[] = {{.fd = j->done, .events = POLLIN}, {.fd = j->signals, .events = POLLIN}};
  struct signalfd_siginfo info;
  double waited = 0, last = brim_now();
  while (waited < seconds) {
    (void)poll(ready, 2, (int)(1e3 * LOOK_SECONDS));
    if (ready[0].revents) return NULL;
    const bool has_signal = ready[1].revents && read(j->signals, &info, sizeof info) == (ssize_t)sizeof info;
    if (has_signal && j->exit_status < 0) end_by(j, (int)info.ssi_signo);
    const double now = brim_now();
    if (now - last < ASLEEP_SECONDS) waited += now - last;
    last = now;
  }
  if (j->exit_status >= 0) leave_late(j);
  end_late(j);
}

static brim_status begin(brim_joining *j)
{
  sigset_t set;
  sigemptyset(&set);
  for (size_t i = 0; i < sizeof watched / sizeof watched[0]; i++) sigaddset(&set, watched[i]);
  j->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  j->done = eventfd(0, EFD_CLOEXEC);
  j->rank = brim_dist_started_rank();
  j->ranks = brim_dist_started();
  pthread_sigmask(SIG_BLOCK, &set, &j->before); /* blocked on this thread and on the other, which reads them */
  const bool has_files = j->signals >= 0 && j->done >= 0;
  const int code = has_files ? brim_thread_start(&j->thread, "brim-joining", watch, j) : errno;
  j->is_watching = code == 0;
  if (code == 0) return BRIM_OK;
  brim_joining_end(j);
  return brim_fail(BRIM_EIO, "cannot start the thread that watches the joining of ranks: %s", strerror(code));
}

brim_status brim_joining_begin(brim_joining *j, const brim_comm_ops *ops, void *self, double seconds)
{
  *j = (brim_joining){.ops = ops, .self = self, .seconds = seconds, .exit_status = -1};
  return begin(j);
}

brim_status brim_joining_leave(brim_joining *j, int exit_status)
{
  *j = (brim_joining){.seconds = LEAVE_SECONDS, .exit_status = exit_status};
  return begin(j);
}

void brim_joining_end(brim_joining *j)
{
  if (j->is_watching && eventfd_write(j->done, 1) == 0) pthread_join(j->thread, NULL);
  if (j->signals >= 0) close(j->signals);
  if (j->done >= 0) close(j->done);
  pthread_sigmask(SIG_SETMASK, &j->before, NULL);
}
