/* Sends Ctrl-C to a run of this user. */
#ifndef BRIM_MONITOR_INTERRUPT_H
#define BRIM_MONITOR_INTERRUPT_H
#include <stdint.h>

#include "brim/status.h"

/* [init] Sends SIGINT to the process `pid` if it is the run of this user that published its slot at `started` (see
 * memory/live.h) and still runs. Sends nothing to any other process, even if a slot is forged or a pid is
 * used again. EINVAL with the reason: no such run. */
brim_status brim_interrupt(int64_t pid, double started);
#endif
