/* The recorder of traces: the events of a process in a few steps. Any thread adds events to one preallocated ring;
 * train/run_trace.c starts and stops recording, and train/trace_write.c writes the events to a file.
 *
 * An event costs two reads of the clock and one slot of the ring. While nothing is recorded it costs a load and a
 * branch. With BRIM_TRACING_NVTX the same spans are ranges of NVTX, which NVIDIA's profilers show. */
#ifndef BRIM_BASE_TRACING_H
#define BRIM_BASE_TRACING_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

/* Kinds of events; `of` and `value` depend on the kind. */
enum brim_tracing_kind {
  BRIM_TRACING_NODE = 1, /* a node ran; of: its brim_program; value: its index */
  BRIM_TRACING_WORK,     /* other work in the order of nodes; of: its name; value: bytes */
  BRIM_TRACING_IN,       /* a copy to the device; `of` and `value` as for WORK */
  BRIM_TRACING_OUT,      /* a copy from the device; `of` and `value` as for WORK */
  BRIM_TRACING_SUM,      /* a collective, from its start to the end of the first wait for it; value: brim_tracing_sum */
  BRIM_TRACING_PHASE,    /* an activity of the thread; of: its name; value: a number to show after the name, or 0 */
  BRIM_TRACING_STEP,     /* a whole step; of: a name; value: its number, from 1 */
  BRIM_TRACING_LOADED,   /* a thread decoded a micro-batch; of: a name; value: samples */
  BRIM_TRACING_NOTE      /* an instant; of: a text in the recorder's memory */
};

/* The thread of an event. */
enum brim_tracing_thread {
  BRIM_TRACING_MAIN = 0,     /* the training thread, and any other that has no name */
  BRIM_TRACING_LOADER = 1,   /* loader thread 0; others follow */
  BRIM_TRACING_LANE = 0x8000 /* lane 0 of a federation; others follow */
};

typedef struct brim_tracing_event {
  int64_t begin, end; /* nanoseconds of CLOCK_MONOTONIC */
  const void *of;
  uint64_t value;
  uint16_t kind, thread;
} brim_tracing_event;

/* The value of a collective: its bytes, less than 1 TiB, and its number, which is the same on all ranks. */
static inline uint64_t brim_tracing_sum(uint64_t number, uint64_t bytes)
{
  return number << 40 | (bytes & ((UINT64_C(1) << 40) - 1));
}

#define BRIM_TRACING_RING 1u
#define BRIM_TRACING_NVTX 2u
extern atomic_uint brim_tracing_modes; /* bits: the destinations of spans now */

int64_t brim_tracing_clock(void); /* nanoseconds of CLOCK_MONOTONIC */
int64_t brim_tracing_open_span(const char *name);
void brim_tracing_close_span(int64_t begin, enum brim_tracing_kind kind, const void *of, uint64_t value);

/* [step] Begins a span and returns the current time, or 0 while nothing is recorded. `name` is for NVTX. */
static inline int64_t brim_tracing_begin(const char *name)
{
  return atomic_load_explicit(&brim_tracing_modes, memory_order_relaxed) ? brim_tracing_open_span(name) : 0;
}
/* [step] The same for a step. Until the step ends, the thread's spans leave no gap: each begins where the one before
 * ended, and the time in a span after its last inner span becomes a span "other". So the innermost spans add up to the
 * step. */
int64_t brim_tracing_begin_step(const char *name);
/* [step] Ends the span that began at `begin`, on the same thread. */
static inline void brim_tracing_end(int64_t begin, enum brim_tracing_kind kind, const void *of, uint64_t value)
{
  if (begin) brim_tracing_close_span(begin, kind, of, value);
}
/* [step] Whether events are recorded now. */
static inline bool brim_tracing_records(void)
{
  return (atomic_load_explicit(&brim_tracing_modes, memory_order_relaxed) & BRIM_TRACING_RING) != 0;
}
/* [step] Adds an event that began and ended at these times; does nothing while nothing is recorded. */
void brim_tracing_add(int64_t begin, int64_t end, enum brim_tracing_kind kind, const void *of, uint64_t value);
/* [step] Adds an instant with a copy of the text, up to 250 bytes of it. */
void brim_tracing_note(const char *text);
/* Names the calling thread: LOADER + number or LANE + number. */
void brim_tracing_name_thread(unsigned thread);

/* The functions below are for the thread that starts and stops recording. */

/* [init] Makes room for `room` events, unless there is as much. ENOMEM_HOST. */
brim_status brim_tracing_reserve(size_t room);
/* [step] Start recording, after the events that the ring already has, and stop it. After the stop no thread writes to
 * the ring. */
void brim_tracing_start(void);
void brim_tracing_stop(void);
/* Returns the events so far, unordered, and the number of events that found no room. Call it while stopped. */
const brim_tracing_event *brim_tracing_events(size_t *count, uint64_t *lost);
/* Removes the events. Call it while stopped. */
void brim_tracing_clear(void);
void brim_tracing_release(void);
/* [init] Makes spans ranges of NVTX too. False: this build has no NVTX, because it was built without the CUDA
 * toolkit. */
bool brim_tracing_use_nvtx(void);
#endif
