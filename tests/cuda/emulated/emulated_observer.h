/* Observes the work of the emulated device, as CUPTI does (emulated_cupti.cpp). */
#ifndef EMULATED_OBSERVER_H
#define EMULATED_OBSERVER_H
#include <cstdint>
#include <functional>

#include "brim/status.h"
extern "C" {
#include "cupti.h"
}

/* The thread that starts a kernel, copy or memset outside of graphs calls this function with CUPTI's kind of the work.
 * The returned function is called when the work has run, with times in nanoseconds of CLOCK_MONOTONIC. NULL: nothing is
 * observed. */
typedef std::function<void(uint64_t begin, uint64_t end)> emulated_report;
extern "C" BRIM_EXPORT emulated_report (*emulated_observer)(uint32_t kind);
#endif
