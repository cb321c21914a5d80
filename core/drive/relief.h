/* How much a run gives back when memory is short. */
#ifndef BRIM_DRIVE_RELIEF_H
#define BRIM_DRIVE_RELIEF_H
#include "config/settings.h"
#include "memory/pressure.h"

/* What an arena of so many bytes should shrink to, so that the use falls below where it is warned; at most by half. 0:
 * it needs not, or a smaller one would not help: the host's memory is short, and the arena is not in it. */
uint64_t brim_relief_target(const brim_memory_settings *settings, bool on_host, uint64_t arena_bytes,
                            const brim_pressure_reading *reading);
#endif
