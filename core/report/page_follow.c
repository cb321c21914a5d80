/* See page_follow.h. A separate process does this, so that a run never waits for its page. */
#include "report/page_follow.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "report/page.h"
#include "store/rundir.h"

#define SHARE 0.005      /* most processor time for pages */
#define LOOK_SECONDS 1.0 /* time between two checks whether the run has ended */
#define KILLED_SECONDS 2 /* wait before the last page of a run that was killed */
#define LINE_ENDS 1      /* the run has announced its end */
#define LINE_BROKEN 2    /* the run's process is gone */

/* Replaces the page by renaming. The temporary name contains this process's number, because the next process of a run
 * may already be writing its own page. The page is not synced, because a lost page can be made again. */
static brim_status replace(const char *path, const brim_text *page)
{
  char aside[BRIM_PATH_MAX];
  const int length = snprintf(aside, sizeof aside, "%s.%ld.tmp", path, (long)getpid());
  if (length < 0 || (size_t)length >= sizeof aside) return brim_fail(BRIM_EINVAL, "path '%.200s...' is too long", path);
  unlink(aside);
  const int fd = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd < 0) return brim_fail(BRIM_EIO, "cannot create '%s': %s", aside, strerror(errno));
  brim_status status = brim_file_write_all(fd, aside, brim_text_str(page), page->length);
  if (close(fd) != 0 && status == BRIM_OK)
    status = brim_fail(BRIM_EIO, "cannot write '%s': %s", aside, strerror(errno));
  if (status == BRIM_OK && rename(aside, path) != 0)
    status = brim_fail(BRIM_EIO, "cannot replace '%s': %s", path, strerror(errno));
  if (status != BRIM_OK) unlink(aside);
  return status;
}

static brim_status write_page(const char *dir, const char *path, double every_seconds)
{
  brim_comparison c = {0};
  brim_text text = {0};
  const brim_page_live live = {.every_seconds = every_seconds, .written = brim_wall_now()};
  brim_status status = brim_compare_add(&c, dir);
  if (status == BRIM_OK) {
    brim_compare_finish(&c);
    brim_page_print(&c, &live, &text);
    status = replace(path, &text);
  }
  brim_text_release(&text);
  brim_compare_release(&c);
  return status;
}

static double processor_seconds(void)
{
  struct timespec used;
  return clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) == 0 ? (double)used.tv_sec + 1e-9 * (double)used.tv_nsec : 0;
}

/* Waits for the run's end, at most until `until`. Returns LINE_ENDS, LINE_BROKEN, or 0 at that time. */
static int await(const char *dir, int line, double until)
{
  for (double left; (left = until - brim_now()) > 0;) {
    struct pollfd wait = {.fd = line, .events = POLLIN};
    const double seconds = line < 0 && left > LOOK_SECONDS ? LOOK_SECONDS : left;
    const int found = poll(&wait, 1, (int)(1e3 * seconds) + 1); /* a negative descriptor only waits */
    char byte;
    if (found > 0) return read(line, &byte, 1) == 1 ? LINE_ENDS : LINE_BROKEN;
    if (line < 0 && !brim_run_is_open(dir)) return LINE_BROKEN;
  }
  return 0;
}

brim_status brim_page_follow(const char *dir, const char *path, double every_seconds, int line)
{
  double pause = every_seconds;
  int end = 0;
  while (end == 0) {
    const double start = brim_now(), before = processor_seconds();
    const brim_status status = write_page(dir, path, pause);
    if (line < 0 && !brim_run_is_open(dir)) return status; /* the run is not in progress, so one page is enough */
    const double needed = (processor_seconds() - before) / SHARE;
    pause = needed > every_seconds ? needed : every_seconds;
    end = await(dir, line, start + pause);
  }
  if (end == LINE_ENDS) return BRIM_OK;
  if (line >= 0) { /* the user may delete the folder of a killed run, or resume it, at once */
    sleep(KILLED_SECONDS);
    if (!brim_is_folder(dir) || brim_run_is_open(dir)) return BRIM_OK;
  }
  return write_page(dir, path, pause);
}
