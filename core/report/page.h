/* A page about one run, or about several: one HTML file that needs no other, to look at on a light or dark screen and
 * on paper. It is well-formed XML too. The same files give the same bytes: it has no time and no path of its own. */
#ifndef BRIM_REPORT_PAGE_H
#define BRIM_REPORT_PAGE_H
#include "report/runs.h"

#define BRIM_REPORT_NAME "report.html" /* in a run's folder */

/* After brim_compare_finish; at least one run. What a folder lacks is left out, and a file that is damaged is named
 * there. */
void brim_page_print(brim_comparison *c, brim_text *out);
/* Writes <dir>/report.html of the run in `dir`. ECONFIG, ELOAD: its configuration or records cannot be read. EIO. */
brim_status brim_page_write(const char *dir);
#endif
