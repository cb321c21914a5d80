/* Where calls can be made to fail for a test: see docs/faults.md. */
#ifndef BRIM_FAULT_H
#define BRIM_FAULT_H
#include <stdbool.h>

#include "brim/status.h"
#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_FAULT_ALLOC "alloc" /* memory of the host, asked for by brim */
#define BRIM_FAULT_PLACE "place" /* an arena on a device */
#define BRIM_FAULT_LIB "lib"     /* a library's call; the name says for which kind of operation: "conv", "linear" */
#define BRIM_FAULT_BEGIN "begin" /* the beginning of a step */

/* [any thread] True where the call that would follow is to fail for want of memory: leave it out, and do as if it had
 * said so. `point` is one of the above; `name` a static string, or NULL. Counts the call, so ask once for each. Costs a
 * load where nothing is to fail. Takes no memory. Since ABI 1.3. */
BRIM_EXPORT bool brim_fault_hit(const char *point, const char *name);

#ifdef __cplusplus
}
#endif
#endif
