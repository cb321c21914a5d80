/* Observes the work of the emulated device, as CUPTI does (emulated_cupti.cpp). */
#ifndef EMULATED_OBSERVER_H
#define EMULATED_OBSERVER_H
#include <cstdint>
#include <functional>

#include "brim/status.h"
extern "C" {
#include "cupti.h"
}

/* Called for each kernel, copy and memset outside of graphs by the thread that starts it, with its kind of CUPTI's. The
 * result is called when it has run, with nanoseconds of CLOCK_MONOTONIC. NULL: nothing is observed. */
typedef std::function<void(uint64_t begin, uint64_t end)> emulated_report;
extern "C" BRIM_EXPORT emulated_report (*emulated_observer)(uint32_t kind);
#endif
