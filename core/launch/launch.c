/* The launcher's loop: waits for ranks' messages, signals and ends of processes, and acts on them. See launch.h.
 *
 * A rank is lost if its line closes without BYE; the kernel closes lines however a process ends. Only the rank's parent
 * learns how it ended: this process, or mpirun, whose exit status shows it. So the message waits for that. Orphans of
 * mpirun become children of this process (PR_SET_CHILD_SUBREAPER), which ends them. */
#include "launch/launch.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/handler_text.h"
#include "base/log.h"
#include "base/text.h"
#include "launch/launch_start.h"
#include "store/checkpoint.h"
#include "store/rundir.h"

#define LOST_SECONDS 2   /* time to find out how a lost rank ended */
#define END_SECONDS 2    /* time for processes to end when the job is over; the same again for mpirun */
#define MPIRUN_SECONDS 5 /* time for mpirun to end after all ranks have sent BYE */
#define SAID_BYTES 3000  /* bytes kept from the end of mpirun's output */
#define CALM_MS 1000     /* longest wait between two checks of the clock */
#define BUSY_MS 50

typedef struct launcher {
  const brim_rank_launch *launch;
  brim_seats seats;
  pid_t mpirun; /* 0: none, or it has ended: */
  int mpirun_status;
  int signals, listener, output; /* file descriptors; -1: none */
  char said[2 * SAID_BYTES];     /* mpirun's output */
  size_t said_bytes;
  int stop_signal, stops; /* the last signal, and the number of signals so far */
  double stop_at;
  int32_t passed_to; /* number of ranks that had the stop signal when it was last passed on */
  int32_t lost;      /* the rank whose loss ends the job; -1: none */
  double begun_at, lost_at, ending_at;
  bool is_ending, has_failed; /* the job is being ended; the thread's error text has the reason */
  bool is_stopped;            /* a signal ended the job before all ranks had started */
  bool is_done;               /* no process is left */
} launcher;

/* ---- signals ---- */

typedef struct signals {
  sigset_t before;
  struct sigaction action[3];
} signals;
/* These signals are handled even if they were ignored before. */
static const int watched[] = {SIGCHLD, SIGINT, SIGTERM};

static void watch_signals(launcher *l, signals *s)
{
  const struct sigaction plain = {.sa_handler = SIG_DFL};
  sigset_t set;
  sigemptyset(&set);
  for (size_t i = 0; i < sizeof watched / sizeof watched[0]; i++) {
    sigaddset(&set, watched[i]);
    sigaction(watched[i], &plain, &s->action[i]);
  }
  sigaddset(&set, SIGHUP);
  sigaddset(&set, SIGTSTP);
  sigprocmask(SIG_BLOCK, &set, &s->before);
  l->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Stops this process; the ranks' time limits are paused too. */
static void suspend(launcher *l)
{
  const double start = brim_now();
  brim_seats_kill(&l->seats, SIGSTOP, -1);
  raise(SIGSTOP);
  brim_seats_kill(&l->seats, SIGCONT, -1);
  l->seats.since += brim_now() - start;
  l->seats.left_at += brim_now() - start;
  l->begun_at += brim_now() - start;
}

static void end_job(launcher *l, int32_t but)
{
  if (!l->is_ending) l->ending_at = brim_now();
  l->is_ending = true;
  brim_seats_kill(&l->seats, SIGKILL, but);
}

/* Passes the first signal to the ranks, which write a checkpoint; the second one ends them. */
static void stop(launcher *l, int number)
{
  const bool is_echo = l->stops > 0 && brim_now() - l->stop_at < BRIM_SIGNAL_ECHO_SECONDS;
  l->stop_signal = number;
  if (is_echo) return;
  l->stop_at = brim_now();
  if (++l->stops == 1) return;
  const char *folder = l->seats.folder[0] ? l->seats.folder : l->launch->folder;
  if (folder[0] && brim_checkpoint_exists(folder))
    brim_log(BRIM_LOG_INFO, "ended at once: the steps after the last checkpoint are lost\nresume with: %s %s",
             brim_run_resume_words(folder), BRIM_QUOTED(folder));
  else
    brim_log(BRIM_LOG_INFO, "ended at once: there is no checkpoint yet, so all steps are lost");
  end_job(l, -1);
}

/* Passes the stop signal to the ranks, including those that connect later. */
static void pass_on(launcher *l)
{
  const int32_t came = brim_seats_came(&l->seats);
  if (l->stops == 0 || l->passed_to == came || l->is_ending) return;
  for (int32_t r = 0; r < l->seats.count; r++) {
    brim_seat *seat = &l->seats.seat[r];
    if (!seat->came || seat->has_stop) continue;
    seat->has_stop = true;
    if (seat->fd >= 0 && !seat->left) kill(seat->pid, l->stop_signal);
  }
  l->passed_to = came;
}

static void reap(launcher *l)
{
  int status;
  pid_t pid;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
    if (pid == l->mpirun) {
      l->mpirun = 0;
      l->mpirun_status = status;
    }
    for (int32_t r = 0; r < l->seats.count; r++) {
      brim_seat *seat = &l->seats.seat[r];
      if (!seat->is_child || seat->pid != pid) continue;
      seat->is_over = true;
      seat->wait_status = status;
    }
  }
  l->is_done = pid < 0 && errno == ECHILD;
}

static void read_signals(launcher *l)
{
  struct signalfd_siginfo info;
  while (read(l->signals, &info, sizeof info) == (ssize_t)sizeof info) {
    if (info.ssi_signo == SIGTSTP)
      suspend(l);
    else if (info.ssi_signo != SIGCHLD)
      stop(l, (int)info.ssi_signo);
  }
  reap(l);
}

/* ---- deciding ---- */

BRIM_PRINTF(2, 3)
static void fail(launcher *l, const char *format, ...)
{
  char text[1024];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  brim_fail(BRIM_ECOMM, "%s", text);
  l->has_failed = true;
  end_job(l, -1);
}

/* Names the ranks that have not sent HELLO. */
static void fail_absent(launcher *l)
{
  brim_text names = {0};
  for (int32_t r = 0; r < l->seats.count; r++)
    if (!l->seats.seat[r].came) brim_text_printf(&names, "%s%d", names.length ? ", " : "", (int)r);
  fail(l, "of %d ranks, some did not start within dist.timeout_seconds=%g, so the job was ended: %s",
       (int)l->seats.count, l->launch->end_seconds, brim_text_str(&names));
  brim_text_release(&names);
}

static void check_lost(launcher *l, int32_t rank)
{
  const bool is_known = l->launch->mpirun[0] ? l->mpirun == 0 : l->seats.seat[rank].is_over;
  if (l->lost < 0) l->lost_at = brim_now();
  if (l->lost < 0) l->lost = rank;
  if (is_known || brim_now() - l->lost_at > LOST_SECONDS) end_job(l, -1);
}

static void check_job(launcher *l)
{
  const brim_seats *s = &l->seats;
  const double now = brim_now();
  const int32_t lost = brim_seats_lost(s), left = brim_seats_left(s);
  char names[256];
  const bool all_came = brim_seats_came(s) == s->count;
  if (l->is_ending) return;
  if (l->stops > 0 && !all_came) l->is_stopped = true; /* a rank that has not started would never get the message */
  if (lost >= 0)
    check_lost(l, lost);
  else if (s->ended_by >= 0)
    end_job(l, s->ended_by);
  else if (l->launch->mpirun[0] && l->mpirun == 0)
    end_job(l, -1);
  else if (l->is_stopped)
    end_job(l, -1);
  else if (!all_came && now - l->begun_at > l->launch->end_seconds)
    fail_absent(l);
  else if (left == s->count && now - s->left_at > MPIRUN_SECONDS && l->mpirun > 0)
    end_job(l, -1); /* the job is done */
  else if (left > 0 && s->waiting > 0)
    end_job(l, -1); /* a rank that has left does not come back, and has printed the reason */
  else if (brim_seats_late(s, now, names, sizeof names))
    fail(l, "%s did not answer while the others waited %.3g seconds (dist.timeout_seconds), so the job was ended",
         names, s->patience);
  else if (left > 0 && now - s->left_at > l->launch->end_seconds)
    fail(l, "%d of %d ranks did not end within dist.timeout_seconds=%g after the first, so they were killed",
         (int)(s->count - left), (int)s->count, l->launch->end_seconds);
}

/* Kills processes that do not end when the job is over. */
static void kill_late(launcher *l)
{
  const double since = brim_now() - l->ending_at;
  if (!l->is_ending) return;
  if (since > END_SECONDS) brim_seats_kill(&l->seats, SIGKILL, -1);
  if (l->mpirun > 0 && since > END_SECONDS) kill(l->mpirun, since > 2 * END_SECONDS ? SIGKILL : SIGTERM);
  if (l->mpirun == 0 && l->launch->mpirun[0]) brim_launch_kill_children();
}

/* ---- mpirun's output ---- */

static void read_output(launcher *l)
{
  if (l->said_bytes > SAID_BYTES) {
    memmove(l->said, l->said + l->said_bytes - SAID_BYTES, SAID_BYTES);
    l->said_bytes = SAID_BYTES;
  }
  const ssize_t n = read(l->output, l->said + l->said_bytes, sizeof l->said - 1 - l->said_bytes);
  if (n > 0) {
    l->said_bytes += (size_t)n;
  } else if (n == 0 || errno != EINTR) {
    close(l->output);
    l->output = -1;
  }
  l->said[l->said_bytes] = '\0';
}

static void add_said(const launcher *l)
{
  size_t length = l->said_bytes;
  while (length > 0 && l->said[length - 1] == '\n') length--;
  if (length > 0) brim_fail_add(BRIM_ECOMM, "mpirun says: %.*s", (int)length, l->said);
}

/* ---- the loop ---- */

static void wait_for_all(launcher *l)
{
  while (!l->is_done) {
    struct pollfd more[] = {{.fd = l->signals, .events = POLLIN},
                            {.fd = l->listener, .events = POLLIN},
                            {.fd = l->output, .events = POLLIN}};
    const bool calm = !l->is_ending && l->lost < 0 && l->seats.waiting == 0;
    brim_seats_serve(&l->seats, more, sizeof more / sizeof more[0], calm ? CALM_MS : BUSY_MS);
    if (more[1].revents) brim_seats_admit(&l->seats, l->listener);
    if (more[2].revents) read_output(l);
    read_signals(l);
    pass_on(l);
    check_job(l);
    kill_late(l);
  }
  if (l->output >= 0) read_output(l);
}

static brim_status start(launcher *l, const char *const *word, const sigset_t *mask)
{
  if (l->signals < 0) return brim_fail(BRIM_EIO, "cannot watch signals: %s", strerror(errno));
  fflush(NULL); /* without this, every process would write the buffered output */
  if (!l->launch->mpirun[0]) return brim_launch_ranks(l->launch, word, mask, &l->seats);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  l->listener = brim_launch_listen();
  return l->listener < 0 ? BRIM_EIO : brim_launch_mpirun(l->launch, word, mask, &l->mpirun, &l->output);
}

/* ---- the end ---- */

/* Returns the signal that killed a rank; 0: none, or unknown. mpirun reports signals in the same way as a shell. */
static int signal_of(const launcher *l, int32_t rank)
{
  const int status = l->launch->mpirun[0] ? l->mpirun_status : l->seats.seat[rank].wait_status;
  if (!l->launch->mpirun[0]) return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  return WIFEXITED(status) && WEXITSTATUS(status) > 128 ? WEXITSTATUS(status) - 128 : 0;
}

static brim_status report_lost(const launcher *l, int32_t rank)
{
  const bool by_mpirun = l->launch->mpirun[0] != '\0';
  const brim_seat *seat = &l->seats.seat[rank];
  const int number = signal_of(l, rank), status = by_mpirun ? l->mpirun_status : seat->wait_status;
  if (number > 0)
    brim_fail(BRIM_ECOMM, "rank %d (process %d) was killed by signal %d (%s), so the job was ended", (int)rank,
              (int)seat->pid, number, strsignal(number));
  else
    brim_fail(BRIM_ECOMM,
              "rank %d (process %d) ended with exit status %d without giving a reason, so the job was ended", (int)rank,
              (int)seat->pid, WEXITSTATUS(status));
  if (number == 0) add_said(l);
  return BRIM_ECOMM;
}

/* Returns the exit status of the ranks that failed. Ranks that were only informed of a failure exit with 5, so 5 counts
 * only if there is no other status. */
static int common_status(const launcher *l)
{
  int status = 0;
  for (int32_t r = 0; r < l->seats.count; r++) {
    const int own = l->seats.seat[r].exit_status;
    if (own != 0 && (status == 0 || status == brim_status_exit(BRIM_EPEER))) status = own;
  }
  return status;
}

static brim_status sum_up(const launcher *l, int *exit_status)
{
  const brim_seats *s = &l->seats;
  if (l->has_failed) return BRIM_ECOMM;
  if (l->lost >= 0) return report_lost(l, l->lost);
  *exit_status = s->ended_by >= 0 ? s->end_status : common_status(l);
  if (*exit_status != 0) return BRIM_OK;
  for (int32_t r = 0; r < s->count; r++) /* a rank can also fail after it said goodbye */
    if (s->seat[r].is_over && s->seat[r].wait_status != 0) return report_lost(l, r);
  if (brim_seats_left(s) == s->count && l->mpirun_status != 0)
    brim_log(BRIM_LOG_WARN, "mpirun did not end by itself after the job was done");
  if (brim_seats_left(s) == s->count) return BRIM_OK;
  if (WIFSIGNALED(l->mpirun_status))
    brim_fail(BRIM_ECOMM, "mpirun was killed by signal %d (%s), so the job was ended", WTERMSIG(l->mpirun_status),
              strsignal(WTERMSIG(l->mpirun_status)));
  else
    brim_fail(BRIM_ECOMM, "%s ended with exit status %d when %d of %d ranks had started and %d had ended",
              l->launch->mpirun[0] ? "mpirun" : "a rank", WEXITSTATUS(l->mpirun_status), (int)brim_seats_came(s),
              (int)s->count, (int)brim_seats_left(s));
  add_said(l);
  return BRIM_ECOMM;
}

/* Whether the launcher ends by the signal, as a run of one process does: after the second signal, or after the first if
 * the ranks had not started. */
static bool ends_by_signal(const launcher *l)
{
  return l->is_stopped || l->stops > 1 || (l->stops == 1 && l->lost >= 0 && signal_of(l, l->lost) == l->stop_signal);
}

brim_status brim_launch_run(brim_rank_launch *launch, const char *const *word, int *exit_status)
{
  launcher l = {.launch = launch, .signals = -1, .listener = -1, .output = -1, .lost = -1};
  signals before;
  *exit_status = 0;
  brim_seats_open(&l.seats, launch->ranks);
  watch_signals(&l, &before);
  l.begun_at = brim_now();
  brim_status status = start(&l, word, &before.before);
  if (status != BRIM_OK) end_job(&l, -1);
  l.has_failed = status != BRIM_OK;
  wait_for_all(&l);
  if (l.said_bytes > 0) brim_log(BRIM_LOG_DEBUG, "mpirun says: %s", l.said);
  if (l.seats.folder[0]) snprintf(launch->folder, sizeof launch->folder, "%s", l.seats.folder);
  const brim_status failed = sum_up(&l, exit_status);
  if (status == BRIM_OK) status = failed;
  const int number = ends_by_signal(&l) ? l.stop_signal : 0;
  if (l.signals >= 0) close(l.signals);
  sigprocmask(SIG_SETMASK, &before.before, NULL);
  for (size_t i = 0; i < sizeof watched / sizeof watched[0]; i++) sigaction(watched[i], &before.action[i], NULL);
  if (l.listener >= 0) close(l.listener);
  if (l.output >= 0) close(l.output);
  unsetenv(BRIM_LINE_ADDRESS);
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  brim_seats_close(&l.seats);
  if (number > 0) signal(number, SIG_DFL);
  if (number > 0) raise(number);
  return status;
}
