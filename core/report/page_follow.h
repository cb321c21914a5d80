/* Rewriting the page of a run in progress. */
#ifndef BRIM_REPORT_PAGE_FOLLOW_H
#define BRIM_REPORT_PAGE_FOLLOW_H
#include "brim/status.h"

/* The bounds of the interval between two pages. */
#define BRIM_PAGE_SECONDS_MIN 0.1
#define BRIM_PAGE_SECONDS_MAX 86400

/* Writes the page of the run in `dir` to `path` every `every_seconds`, and once more when the run has ended, however it
 * ended. If a page takes long to make, the interval grows, so that all pages together take at most 0.5 % of a
 * processor. A page that cannot be written is written at the next turn.
 *
 * line < 0: looks for the run's end once a second. Else a pipe of the run's process: if a byte arrives there, the run
 * ends and writes its last page itself; if the pipe closes without one, the process was killed, and the last page is
 * written two seconds later, unless the folder is gone or the run continues. Returns the status of the last page. */
brim_status brim_page_follow(const char *dir, const char *path, double every_seconds, int line);
#endif
