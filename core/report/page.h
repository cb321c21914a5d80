/* A page about one run or several: a self-contained HTML file for light and dark screens and for paper. It is also
 * well-formed XML. The same files give the same bytes: the page contains no time or path of its own. */
#ifndef BRIM_REPORT_PAGE_H
#define BRIM_REPORT_PAGE_H
#include "report/runs.h"

#define BRIM_REPORT_NAME "report.html" /* in a run's folder */

/* A page that is made while its run may be going on. */
typedef struct brim_page_live {
  double every_seconds; /* until it is made again; the browser follows. 0: it is not */
  double written;       /* now, in seconds since 1970 */
} brim_page_live;

/* Prints the page. live: NULL for a page that is made once. Call it after brim_compare_finish; it needs at least one
 * run. Sections without data are omitted, and damaged files are listed.
 */
void brim_page_print(brim_comparison *c, const brim_page_live *live, brim_text *out);
/* Writes <dir>/report.html for the run in `dir`. ECONFIG, ELOAD: cannot read its configuration or records. EIO. */
brim_status brim_page_write(const char *dir);
#endif
