/* Rewrites the page of a run in progress. */
#ifndef BRIM_REPORT_PAGE_FOLLOW_H
#define BRIM_REPORT_PAGE_FOLLOW_H
#include "brim/status.h"

/* Bounds of the interval between two pages. */
#define BRIM_PAGE_SECONDS_MIN 0.1
#define BRIM_PAGE_SECONDS_MAX 86400

/* Writes the page of the run in `dir` to `path` every `every_seconds`, and again when the run has ended, however it
 * ended. If a page takes long to make, the interval grows, so that all pages together take at most 0.5 % of a
 * processor. If a page cannot be written, tries again after the interval.
 *
 * line < 0: checks once a second whether the run has ended. Otherwise `line` is a pipe from the run's process: if a
 * byte arrives, the run ends and writes its last page itself; if the pipe closes without a byte, the process was
 * killed, and this writes the last page two seconds later, unless the folder is gone or the run continues. Returns the
 * status of the last page. */
brim_status brim_page_follow(const char *dir, const char *path, double every_seconds, int line);
#endif
