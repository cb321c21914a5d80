/* Starts and ends the child process that rewrites the report page of a run in progress: `brim report RUN --every S`. */
#ifndef BRIM_CLI_LIVE_PAGE_H
#define BRIM_CLI_LIVE_PAGE_H

/* [init] Makes a thread start the child for the run in `dir` when the run has lasted a second, or `every_seconds` if
 * that is less. If the child cannot be started, warns; the run then writes its page only at the end. */
void brim_live_page_begin(const char *dir, double every_seconds);
/* Ends the child, which then leaves the page to the caller. Does nothing without a child. */
void brim_live_page_end(void);
#endif
