/* The child's standard input is a pipe whose other end only this process has: see report/page_follow.h. */
#include "cli/live_page.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/process.h"
#include "base/thread.h"
#include "report/page.h"
#include "store/rundir.h"

#define FIRST_SECONDS                                                                                                  \
  1.0 /* time before the first page; shorter runs write their page at their end, without a child                       \
       */

/* The child; there is only one, because a process trains one run at a time. */
static pid_t child = -1;
static int line = -1;

/* The thread that waits until it is time to start the child. */
static struct waiting {
  char dir[BRIM_PATH_MAX];
  double every_seconds;
  pthread_t thread;
  bool is_begun;
  pthread_mutex_t lock;
  pthread_cond_t change;
  bool ends;
} waiting = {.lock = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER};

/* Called in the thread that has waited. */
static void start_child(void)
{
  char path[BRIM_PATH_MAX], every[32];
  int end[2];
  snprintf(every, sizeof every, "%.6g", waiting.every_seconds);
  const char *const word[] = {"brim", "report", "--every", every,       "--run", "--force",
                              "-o",   path,     "--",      waiting.dir, NULL};
  if (brim_path_join(path, waiting.dir, BRIM_REPORT_NAME) != BRIM_OK) return;
  int failed = pipe2(end, O_CLOEXEC) == 0 ? 0 : errno;
  if (failed == 0) {
    failed = brim_process_start("/proc/self/exe", word, environ, (const int[]){end[0], -1, -1}, &child);
    close(end[0]);
    line = end[1];
  }
  if (failed == 0) return;
  child = -1;
  if (line >= 0) close(line);
  line = -1;
  brim_log(BRIM_LOG_WARN, BRIM_REPORT_NAME " is written only at the end of the run: cannot start a process for it: %s",
           strerror(failed));
}

/* Waits, and starts the child unless the run ends first. */
static void *wait_and_start(void *context)
{
  const double seconds = waiting.every_seconds < FIRST_SECONDS ? waiting.every_seconds : FIRST_SECONDS;
  const struct timespec until = brim_time_in(seconds);
  int reason = 0;
  pthread_mutex_lock(&waiting.lock);
  while (!waiting.ends && reason != ETIMEDOUT)
    reason = pthread_cond_clockwait(&waiting.change, &waiting.lock, CLOCK_MONOTONIC, &until);
  if (!waiting.ends) start_child();
  pthread_mutex_unlock(&waiting.lock);
  return context;
}

void brim_live_page_begin(const char *dir, double every_seconds)
{
  if (waiting.is_begun || strlen(dir) >= sizeof waiting.dir) return;
  snprintf(waiting.dir, sizeof waiting.dir, "%s", dir);
  waiting.every_seconds = every_seconds;
  waiting.ends = false;
  waiting.is_begun = brim_thread_start(&waiting.thread, "brim-page", wait_and_start, NULL) == 0;
}

void brim_live_page_end(void)
{
  if (!waiting.is_begun) return;
  pthread_mutex_lock(&waiting.lock);
  waiting.ends = true;
  pthread_cond_signal(&waiting.change);
  pthread_mutex_unlock(&waiting.lock);
  pthread_join(waiting.thread, NULL);
  waiting.is_begun = false;
  if (child <= 0) return;
  /* SIGPIPE is ignored in runs; if the child is gone, no message is needed */
  if (write(line, "e", 1) != 1) brim_log(BRIM_LOG_DEBUG, "the process that writes the page is gone");
  close(line);
  while (waitpid(child, NULL, 0) < 0 && errno == EINTR) continue;
  child = -1;
  line = -1;
}
