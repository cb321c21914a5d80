/* Makes a page about one or several runs: a self-contained HTML file for light and dark screens and for paper, which is
 * also well-formed XML. The same files give the same bytes, because the page does not contain the time or path at which
 * it is made. */
#ifndef BRIM_REPORT_PAGE_H
#define BRIM_REPORT_PAGE_H
#include "report/runs.h"

#define BRIM_REPORT_NAME "report.html" /* in a run's folder */

/* A page that is made while its run may still be in progress. */
typedef struct brim_page_live {
  double every_seconds; /* seconds until the page is made again, and the browser reloads it; 0: it is not made again */
  double written;       /* time of writing, in seconds since 1970 */
} brim_page_live;

/* Prints the page. live: NULL for a page that is made once. Call it after brim_compare_finish, with at least one run.
 * Omits sections without data, and lists damaged files. */
void brim_page_print(brim_comparison *c, const brim_page_live *live, brim_text *out);
/* Writes <dir>/report.html for the run in `dir`. ECONFIG, ELOAD: cannot read its configuration or records. EIO. */
brim_status brim_page_write(const char *dir);
#endif
