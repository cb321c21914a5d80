/* Fault injection: BRIM_FAULT names calls that fail, so that a test sees what becomes of a run then (docs/faults.md has
 * the language). Nothing is failed by chance; the same text fails the same calls of a process, as far as its threads
 * call in the same order. Plugins ask through brim/host.h, as the core does:
 * brim_fault_hit(). */
#ifndef BRIM_BASE_FAULT_H
#define BRIM_BASE_FAULT_H
#include "brim/host.h"

#define BRIM_FAULT_ENVIRONMENT "BRIM_FAULT"
#define BRIM_FAULT_REPORT_ENVIRONMENT "BRIM_FAULT_REPORT"

/* [init] Takes the faults of a text; NULL or "": none. Until brim_fault_close every call is counted then, and with
 * `report`, a path, the counts of each step are appended to that file: lines "STEP POINT NAME CALLS FAILED", with "-"
 * for no name, and step 0 for what was before the first one. ECONFIG: the text is wrong, with the position of the
 * mistake; EIO: the report cannot be written. Both leave it closed. Takes no memory. */
brim_status brim_fault_open(const char *text, const char *report);
/* [init] Writes the last lines of the report. No call fails any more. */
void brim_fault_close(void);
/* [init] Which rank of a job this process is; 0 until then. */
void brim_fault_set_rank(int32_t rank);
/* [step] Step `step`, 1 for the first, begins, perhaps for another time. */
void brim_fault_step(int64_t step);
/* [any thread] The text of brim_fault_open; NULL: nothing is made to fail. */
const char *brim_fault_text(void);
#endif
