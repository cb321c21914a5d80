/* Sends Ctrl-C to a run of this user. */
#ifndef BRIM_MONITOR_INTERRUPT_H
#define BRIM_MONITOR_INTERRUPT_H
#include <stdint.h>

#include "brim/status.h"

/* [init] Sends SIGINT to the process `pid` if it belongs to this user, published its slot at `started` (see
 * memory/live.h), and still runs. Never sends it to another process, even if a slot is forged or another process has
 * the pid now. EINVAL with the reason: no such run. */
brim_status brim_interrupt(int64_t pid, double started);
#endif
