/* See trace.h. */
#include "trace.h"

#include <stdlib.h>
#include <time.h>

#include "device.h"

#define PIECES_MAX ((size_t)16384) /* the driver keeps some bytes for each event */

typedef struct measured {
  brim_device_work work;
  cudaEvent_t begin, end; /* the end of one piece is often the beginning of the next */
} measured;

struct cuda_trace {
  size_t room, count, events, started; /* pieces with room, all pieces, events made, events used */
  cudaEvent_t *event;                  /* [2 * room] */
  measured *piece;                     /* [room] */
  cudaEvent_t origin, last;            /* last: where the work in progress began */
  double origin_seconds;
};

static double now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static brim_status make_events(struct cuda_trace *t)
{
  for (; t->events < 2 * t->room; t->events++)
    BRIM_TRY(cuda_check(cudaEventCreateWithFlags(&t->event[t->events], cudaEventDefault), "creating an event"));
  return cuda_check(cudaEventCreateWithFlags(&t->origin, cudaEventDefault), "creating an event");
}

/* Events tell durations only, so one of them is taken when the host knows the time. */
static brim_status set_origin(cuda_backend *b, struct cuda_trace *t)
{
  BRIM_TRY(cuda_check(cudaStreamSynchronize(b->compute), "waiting for the device"));
  BRIM_TRY(cuda_check(cudaEventRecord(t->origin, b->compute), "recording an event"));
  BRIM_TRY(cuda_check(cudaEventSynchronize(t->origin), "waiting for an event"));
  t->origin_seconds = now();
  return BRIM_OK;
}

void cuda_trace_drop(cuda_backend *b)
{
  struct cuda_trace *t = b->trace;
  b->trace = NULL;
  if (!t) return;
  for (size_t i = 0; i < t->events; i++) (void)cudaEventDestroy(t->event[i]);
  if (t->origin) (void)cudaEventDestroy(t->origin);
  free(t->event);
  free(t->piece);
  free(t);
}

brim_status cuda_trace_begin(void *self, size_t room, const char **how)
{
  cuda_backend *b = self;
  BRIM_TRY(cuda_device_enter(b));
  cuda_trace_drop(b);
  struct cuda_trace *t = b->trace = brim_try_calloc(1, sizeof *t);
  if (!t) return brim_fail(BRIM_ENOMEM_HOST, "no memory for a trace");
  t->room = room < PIECES_MAX ? room : PIECES_MAX;
  t->event = brim_try_calloc(2 * t->room + 1, sizeof(cudaEvent_t));
  t->piece = brim_try_calloc(t->room + 1, sizeof *t->piece);
  brim_status status = t->event && t->piece ? make_events(t) : brim_fail(BRIM_ENOMEM_HOST, "no memory for a trace");
  if (status == BRIM_OK) status = set_origin(b, t);
  if (status != BRIM_OK) cuda_trace_drop(b);
  *how = "CUDA events around operations, which the host starts one by one";
  return status;
}

brim_status cuda_trace_start(cuda_backend *b, cudaStream_t stream)
{
  struct cuda_trace *t = b->trace;
  if (!t || t->started + 1 >= t->events) return BRIM_OK;
  t->last = t->event[t->started++];
  return cuda_check(cudaEventRecord(t->last, stream), "recording an event");
}

brim_status cuda_trace_mark(cuda_backend *b, cudaStream_t stream, const brim_device_work *work)
{
  struct cuda_trace *t = b->trace;
  if (!t || t->count++ >= t->room || t->started >= t->events) return BRIM_OK;
  cudaEvent_t const end = t->event[t->started++];
  t->piece[t->count - 1] = (measured){*work, t->last, end};
  t->last = end;
  return cuda_check(cudaEventRecord(end, stream), "recording an event");
}

static brim_status seconds_of(const struct cuda_trace *t, cudaEvent_t e, double *out)
{
  float milliseconds = 0;
  BRIM_TRY(cuda_check(cudaEventElapsedTime(&milliseconds, t->origin, e), "reading an event's time"));
  *out = t->origin_seconds + 1e-3 * (double)milliseconds;
  return BRIM_OK;
}

static brim_status read_times(const struct cuda_trace *t, brim_device_work *out, size_t room)
{
  for (size_t i = 0; i < t->count && i < t->room && i < room; i++) {
    out[i] = t->piece[i].work;
    if (!t->piece[i].end) continue;
    BRIM_TRY(seconds_of(t, t->piece[i].begin, &out[i].begin));
    BRIM_TRY(seconds_of(t, t->piece[i].end, &out[i].end));
  }
  return BRIM_OK;
}

brim_status cuda_trace_end(void *self, brim_device_work *out, size_t room, size_t *count)
{
  cuda_backend *b = self;
  *count = 0;
  if (!b->trace) return BRIM_OK;
  cudaStream_t const stream[] = {b->compute, b->copies, b->in, b->out};
  brim_status status = cuda_device_enter(b);
  for (size_t i = 0; i < sizeof stream / sizeof stream[0] && status == BRIM_OK; i++)
    status = cuda_check(cudaStreamSynchronize(stream[i]), "waiting for the device");
  if (status == BRIM_OK) status = read_times(b->trace, out, room);
  if (status == BRIM_OK) *count = b->trace->count;
  cuda_trace_drop(b);
  return status;
}
