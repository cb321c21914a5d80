/* See tracing.h. */
#include "base/tracing.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/error.h"
#ifdef BRIM_HAS_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

#define NOTES_BYTES ((size_t)64 << 10)
#define NOTE_BYTES 250

atomic_uint brim_tracing_modes;

static struct {
  brim_tracing_event *event; /* [room] */
  char *notes;               /* [NOTES_BYTES] */
  size_t room;
  atomic_size_t count, notes_used; /* may exceed the room: further events were lost */
  atomic_uint writers;             /* threads that are writing an event now */
} ring;

static _Thread_local uint16_t own_thread;

/* Within a step: when the thread's newest span ended, or the step began. */
static _Thread_local struct {
  bool is_on;
  int64_t last;
} chain;

int64_t brim_tracing_clock(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void brim_tracing_name_thread(unsigned thread)
{
  own_thread = (uint16_t)thread;
}

/* ---- NVTX ---- */

bool brim_tracing_use_nvtx(void)
{
#ifdef BRIM_HAS_NVTX
  atomic_fetch_or(&brim_tracing_modes, BRIM_TRACING_NVTX);
  return true;
#else
  return false;
#endif
}

static void push(const char *name)
{
#ifdef BRIM_HAS_NVTX
  if (atomic_load_explicit(&brim_tracing_modes, memory_order_relaxed) & BRIM_TRACING_NVTX) nvtxRangePushA(name);
#else
  (void)name;
#endif
}

static void pop(void)
{
#ifdef BRIM_HAS_NVTX
  if (atomic_load_explicit(&brim_tracing_modes, memory_order_relaxed) & BRIM_TRACING_NVTX) nvtxRangePop();
#endif
}

/* ---- adding ---- */

/* Writers announce themselves before they read the mode, so that stop() can wait for the last writer. */
static bool enter(void)
{
  atomic_fetch_add(&ring.writers, 1);
  if (atomic_load(&brim_tracing_modes) & BRIM_TRACING_RING) return true;
  atomic_fetch_sub(&ring.writers, 1);
  return false;
}

static void leave(void)
{
  atomic_fetch_sub_explicit(&ring.writers, 1, memory_order_release);
}

void brim_tracing_add(int64_t begin, int64_t end, enum brim_tracing_kind kind, const void *of, uint64_t value)
{
  if (!brim_tracing_records() || !enter()) return;
  const size_t at = atomic_fetch_add_explicit(&ring.count, 1, memory_order_relaxed);
  if (at < ring.room) ring.event[at] = (brim_tracing_event){begin, end, of, value, (uint16_t)kind, own_thread};
  leave();
}

int64_t brim_tracing_open_span(const char *name)
{
  push(name);
  return chain.is_on ? chain.last : brim_tracing_clock();
}

int64_t brim_tracing_begin_step(const char *name)
{
  chain.is_on = false;
  const int64_t began = brim_tracing_begin(name);
  chain.is_on = began != 0;
  chain.last = began;
  return began;
}

void brim_tracing_close_span(int64_t begin, enum brim_tracing_kind kind, const void *of, uint64_t value)
{
  static const char *const other = "other";
  const bool records = brim_tracing_records();
  const int64_t now = records || chain.is_on ? brim_tracing_clock() : 0;
  pop();
  if (chain.is_on && chain.last > begin && now > chain.last) /* the span contains other spans */
    brim_tracing_add(chain.last, now, BRIM_TRACING_PHASE, other, 0);
  if (records) brim_tracing_add(begin, now, kind, of, value);
  chain.last = now;
  if (kind == BRIM_TRACING_STEP) chain.is_on = false;
}

void brim_tracing_note(const char *text)
{
  const size_t length = strnlen(text, NOTE_BYTES), bytes = length + 1;
  const int64_t now = brim_tracing_clock();
  char *copy = NULL;
  if (!brim_tracing_records() || !enter()) return;
  const size_t at = atomic_fetch_add(&ring.notes_used, bytes);
  if (at + bytes <= NOTES_BYTES) {
    copy = ring.notes + at;
    memcpy(copy, text, length);
    copy[length] = '\0';
  }
  leave();
  brim_tracing_add(now, now, BRIM_TRACING_NOTE, copy ? copy : "more was noted", 0);
}

/* ---- deciding ---- */

brim_status brim_tracing_reserve(size_t room)
{
  if (room <= ring.room) return BRIM_OK;
  brim_tracing_release();
  ring.event = brim_try_malloc(room * sizeof *ring.event);
  ring.notes = brim_try_malloc(NOTES_BYTES);
  if (!ring.event || !ring.notes) {
    brim_tracing_release();
    return brim_fail(BRIM_ENOMEM_HOST, "no host memory for a trace of %zu events", room);
  }
  memset(ring.event, 0, room * sizeof *ring.event); /* touches the pages, so that no step has to */
  ring.room = room;
  return BRIM_OK;
}

void brim_tracing_start(void)
{
  if (ring.room > 0) atomic_fetch_or(&brim_tracing_modes, BRIM_TRACING_RING);
}

void brim_tracing_stop(void)
{
  atomic_fetch_and(&brim_tracing_modes, ~BRIM_TRACING_RING);
  while (atomic_load(&ring.writers) > 0) sched_yield();
}

const brim_tracing_event *brim_tracing_events(size_t *count, uint64_t *lost)
{
  const size_t all = atomic_load(&ring.count);
  *count = all < ring.room ? all : ring.room;
  *lost = all - *count;
  return ring.event;
}

void brim_tracing_clear(void)
{
  atomic_store(&ring.count, 0);
  atomic_store(&ring.notes_used, 0);
}

void brim_tracing_release(void)
{
  brim_tracing_stop();
  brim_tracing_clear();
  free(ring.event);
  free(ring.notes);
  ring.event = NULL;
  ring.notes = NULL;
  ring.room = 0;
}
