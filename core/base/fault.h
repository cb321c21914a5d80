/* Fault injection: BRIM_FAULT names calls that fail, so that tests can observe the reaction of a run (docs/faults.md
 * describes the language). Failures are not random: the same text fails the same calls of a process, as long as its
 * threads make their calls in the same order. Plugins query faults through brim/host.h, as the core does:
 * brim_fault_hit(). */
#ifndef BRIM_BASE_FAULT_H
#define BRIM_BASE_FAULT_H
#include "brim/host.h"

#define BRIM_FAULT_ENVIRONMENT "BRIM_FAULT"
#define BRIM_FAULT_REPORT_ENVIRONMENT "BRIM_FAULT_REPORT"

/* [init] Arms the faults that `text` describes; NULL or "": none. Until brim_fault_close every call is counted, and
 * with `report`, a path, the counts of each step are appended to that file: lines "STEP POINT NAME CALLS FAILED", with
 * "-" for no name, and step 0 for calls before the first step. ECONFIG: the text is wrong; the error gives the
 * position. EIO: the report cannot be written. Both leave injection off. Does not allocate. */
brim_status brim_fault_open(const char *text, const char *report);
/* [init] Writes the last lines of the report and disarms all faults. */
void brim_fault_close(void);
/* [init] The rank of this process in a job; 0 until set. */
void brim_fault_set_rank(int32_t rank);
/* [step] Reports that step `step`, counted from 1, begins; a repeated step is reported again. */
void brim_fault_step(int64_t step);
/* [any thread] The text given to brim_fault_open; NULL: no faults are armed. */
const char *brim_fault_text(void);
#endif
