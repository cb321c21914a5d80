/* Each job has its own process group, so that a terminal's Ctrl-C reaches only the sweep, which passes it on exactly
 * once: a second signal would end the job without a checkpoint. Ctrl-Z and fg are passed on for the same reason.
 * Signals are blocked while `running` changes, so that a handler never uses a process number that is no longer the
 * job's. */
#include "cli/sweep_job.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>

#include "base/handler_text.h"
#include "base/text.h"
#include "cli/child.h"

static volatile sig_atomic_t stop_signal;
static double stop_time;              /* time of the last signal passed on */
static volatile sig_atomic_t running; /* the job's process; 0: none */

static const int passed_on[] = {SIGINT, SIGTERM, SIGTSTP};
#define PASSED_ON (sizeof passed_on / sizeof passed_on[0])
static struct sigaction old_action[PASSED_ON];

static void on_stop(int number)
{
  const int saved = errno;
  const double now = brim_now();
  const bool again = stop_signal != 0 && now - stop_time < BRIM_SIGNAL_ECHO_SECONDS;
  stop_signal = number;
  if (!again) stop_time = now;
  if (running > 0 && !again) kill(running, number);
  errno = saved;
}

static void on_suspend(int number)
{
  const int saved = errno;
  (void)number;
  if (running > 0) kill(-running, SIGSTOP);
  raise(SIGSTOP);
  if (running > 0) kill(-running, SIGCONT);
  errno = saved;
}

void brim_jobs_begin(void)
{
  stop_signal = 0;
  for (size_t i = 0; i < PASSED_ON; i++) {
    struct sigaction action = {.sa_handler = passed_on[i] == SIGTSTP ? on_suspend : on_stop, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    for (size_t k = 0; k < PASSED_ON; k++) sigaddset(&action.sa_mask, passed_on[k]);
    sigaction(passed_on[i], &action, &old_action[i]);
  }
}

void brim_jobs_end(void)
{
  for (size_t i = 0; i < PASSED_ON; i++) sigaction(passed_on[i], &old_action[i], NULL);
}

int brim_jobs_stop_signal(void)
{
  return stop_signal;
}

/* Runs in the child. */
static void give_signals_back(void *mask)
{
  for (size_t i = 0; i < PASSED_ON; i++) signal(passed_on[i], SIG_DFL);
  sigprocmask(SIG_SETMASK, mask, NULL);
}

/* Waits without reaping, so that the process number belongs to the job as long as a handler may use it. */
static brim_status wait_for_job(pid_t pid, int *status)
{
  sigset_t block, before;
  brim_child_wait(pid);
  sigemptyset(&block);
  for (size_t i = 0; i < PASSED_ON; i++) sigaddset(&block, passed_on[i]);
  sigprocmask(SIG_BLOCK, &block, &before);
  running = 0;
  const brim_status reaped = brim_child_reap(pid, status);
  sigprocmask(SIG_SETMASK, &before, NULL);
  return reaped;
}

brim_status brim_job_run(const char *const *argv, brim_job_end *out)
{
  sigset_t block, before;
  int status = 0;
  const double start = brim_now();
  sigemptyset(&block);
  for (size_t i = 0; i < PASSED_ON; i++) sigaddset(&block, passed_on[i]);
  sigprocmask(SIG_BLOCK, &block, &before);
  const bool stopped = stop_signal != 0;
  /* If the sweep dies, the job gets SIGTERM, and ends with a checkpoint. */
  const pid_t pid = stopped ? -1 : brim_child_start(argv, SIGTERM, give_signals_back, &before);
  const int reason = errno;
  if (pid > 0) running = pid;
  sigprocmask(SIG_SETMASK, &before, NULL);
  if (stopped) return brim_fail(BRIM_EINTERRUPTED, "stopped by a signal");
  if (pid < 0) return brim_fail(BRIM_EIO, "cannot start a job's process: %s", strerror(reason));
  BRIM_TRY(wait_for_job(pid, &status));
  *out = (brim_job_end){.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
                        .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
                        .seconds = brim_now() - start};
  if (out->exit_status == BRIM_CHILD_NOT_STARTED) return brim_fail(BRIM_EIO, "a job's process cannot start brim");
  return BRIM_OK;
}
