/* Files of traces in a run's folder: trace-FIRST-LAST.json.gz, operations.json (the newest trace's times by operation),
 * and trace.request, by which `brim trace` asks a running process for a trace.
 *
 * A run accepts a request only if it is a regular file of the run's own user or of root. So no other user can make a
 * run write, even if others can write to the folder. */
#ifndef BRIM_STORE_TRACE_FILES_H
#define BRIM_STORE_TRACE_FILES_H
#include <stdint.h>

#include "brim/status.h"

#define BRIM_TRACE_REQUEST_NAME "trace.request"
#define BRIM_OPERATIONS_NAME "operations.json"
#define BRIM_TRACE_STEPS 3       /* default number of steps of a trace */
#define BRIM_TRACE_STEPS_MAX 200 /* limit for a request */

/* Asks the run for a trace of its next steps. EIO with the system's reason. */
brim_status brim_trace_request_write(const char *run, int64_t steps);
/* Removes a request; preserves the thread's error text. */
void brim_trace_request_drop(const char *run);
/* [step] Takes and removes a request: *steps, or 0 if there is none. EINVAL: the request is damaged, or belongs to
 * another user, and was not removed. Cheap if there is no request. */
brim_status brim_trace_request_take(const char *run, int64_t *steps);
#endif
