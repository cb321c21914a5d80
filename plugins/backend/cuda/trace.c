/* See trace.h. */
#include "trace.h"

#include <stdio.h>
#include <stdlib.h>

#include "cupti.h"
#include "device.h"

#define PIECES_MAX ((size_t)16384) /* the driver keeps some bytes for each event */

/* A piece of work lies between two marks. A mark is an event in a stream, or a change of CUPTI's tag. The end of one
 * piece is often the beginning of the next. */
typedef struct measured {
  brim_device_work work;
  size_t begin, end; /* numbers of marks, from 1; 0: there was no room */
} measured;

struct cuda_trace {
  size_t room, count; /* room: maximum of recorded pieces; count: all pieces, with or without room */
  size_t marks, last; /* marks so far, at most 2 * room; the mark at which the current work began, or 0 without room */
  measured *piece;    /* [room] */
  cuda_cupti_span *span; /* [2 * room + 1] with CUPTI, the work after each mark; NULL if events are used */
  cudaEvent_t *event;    /* [2 * room + 1] with events, one for each mark; the first is at origin_seconds */
  double origin_seconds;
};

static char how[600]; /* how the newest trace was measured; the core reads this text */

static brim_status make_events(struct cuda_trace *t)
{
  t->event = brim_try_calloc(2 * t->room + 1, sizeof *t->event);
  if (!t->event) return brim_fail(BRIM_ENOMEM_HOST, "no memory for a trace");
  for (size_t i = 0; i <= 2 * t->room; i++)
    BRIM_TRY(cuda_check(cudaEventCreateWithFlags(&t->event[i], cudaEventDefault), "creating an event"));
  return BRIM_OK;
}

/* Events only give durations. So one event is recorded at a time that the host knows. */
static brim_status set_origin(cuda_backend *b, struct cuda_trace *t)
{
  BRIM_TRY(cuda_check(cudaStreamSynchronize(b->compute), "waiting for the device"));
  BRIM_TRY(cuda_check(cudaEventRecord(t->event[0], b->compute), "recording an event"));
  BRIM_TRY(cuda_check(cudaEventSynchronize(t->event[0]), "waiting for an event"));
  t->origin_seconds = cuda_cupti_seconds();
  return BRIM_OK;
}

static brim_status begin_events(cuda_backend *b, struct cuda_trace *t)
{
  BRIM_TRY(make_events(t));
  return set_origin(b, t);
}

void cuda_trace_drop(cuda_backend *b)
{
  struct cuda_trace *t = b->trace;
  b->trace = NULL;
  if (!t) return;
  if (t->span) cuda_cupti_drop();
  for (size_t i = 0; t->event && i <= 2 * t->room; i++)
    if (t->event[i]) (void)cudaEventDestroy(t->event[i]);
  free(t->event);
  free(t->span);
  free(t->piece);
  free(t);
}

/* Uses CUPTI if it is usable, otherwise events. */
static brim_status begin(cuda_backend *b, struct cuda_trace *t)
{
  t->piece = brim_try_calloc(t->room + 1, sizeof *t->piece);
  t->span = brim_try_calloc(2 * t->room + 1, sizeof *t->span);
  if (!t->piece || !t->span) return brim_fail(BRIM_ENOMEM_HOST, "no memory for a trace");
  t->origin_seconds = cuda_cupti_seconds();
  if (cuda_cupti_begin() == BRIM_OK) {
    snprintf(how, sizeof how, "CUPTI: kernels and copies of operations, which the host starts one by one");
    return BRIM_OK;
  }
  free(t->span);
  t->span = NULL;
  snprintf(how, sizeof how, "CUDA events around operations, which the host starts one by one (no CUPTI: %s)",
           brim_error_text());
  brim_log(BRIM_LOG_INFO, "the trace measures with CUDA events instead of CUPTI, so short operations seem longer: %s",
           brim_error_text());
  return begin_events(b, t);
}

brim_status cuda_trace_begin(void *self, size_t room, const char **how_out)
{
  cuda_backend *b = self;
  BRIM_TRY(cuda_device_enter(b));
  cuda_trace_drop(b);
  struct cuda_trace *t = b->trace = brim_try_calloc(1, sizeof *t);
  if (!t) return brim_fail(BRIM_ENOMEM_HOST, "no memory for a trace");
  t->room = room < PIECES_MAX ? room : PIECES_MAX;
  const brim_status status = begin(b, t);
  if (status != BRIM_OK) cuda_trace_drop(b);
  *how_out = how;
  return status;
}

static brim_status mark(struct cuda_trace *t, cudaStream_t stream)
{
  t->last = ++t->marks;
  if (!t->span) return cuda_check(cudaEventRecord(t->event[t->last], stream), "recording an event");
  cuda_cupti_tag(t->last);
  return BRIM_OK;
}

brim_status cuda_trace_start(cuda_backend *b, cudaStream_t stream)
{
  struct cuda_trace *t = b->trace;
  if (!t) return BRIM_OK;
  t->last = 0;
  return t->marks + 1 < 2 * t->room ? mark(t, stream) : BRIM_OK;
}

brim_status cuda_trace_mark(cuda_backend *b, cudaStream_t stream, const brim_device_work *work)
{
  struct cuda_trace *t = b->trace;
  if (!t || t->count++ >= t->room || t->last == 0 || t->marks >= 2 * t->room) return BRIM_OK;
  measured *piece = &t->piece[t->count - 1];
  *piece = (measured){*work, t->last, t->marks + 1};
  return mark(t, stream);
}

/* ---- results ---- */

static brim_status seconds_of(const struct cuda_trace *t, size_t event, double *out)
{
  float milliseconds = 0;
  BRIM_TRY(cuda_check(cudaEventElapsedTime(&milliseconds, t->event[0], t->event[event]), "reading an event's time"));
  *out = t->origin_seconds + 1e-3 * (double)milliseconds;
  return BRIM_OK;
}

static brim_status read_events(const struct cuda_trace *t, brim_device_work *out, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    out[i] = t->piece[i].work;
    if (t->piece[i].end == 0) continue;
    BRIM_TRY(seconds_of(t, t->piece[i].begin, &out[i].begin));
    BRIM_TRY(seconds_of(t, t->piece[i].end, &out[i].end));
  }
  return BRIM_OK;
}

/* If an operation has no records, it launches nothing, unless records were lost. Its time is then 0, at the end of the
 * operation before it. */
static brim_status read_spans(const struct cuda_trace *t, brim_device_work *out, size_t count)
{
  size_t lost, unknown = 0;
  double last = t->origin_seconds;
  BRIM_TRY(cuda_cupti_end(t->span, t->marks, &lost));
  for (size_t i = 0; i < count; i++) {
    const cuda_cupti_span *span = &t->span[t->piece[i].begin];
    out[i] = t->piece[i].work;
    if (t->piece[i].end == 0) continue;
    if (span->end > 0) {
      out[i].begin = span->begin;
      out[i].end = span->end;
    } else if (lost == 0) {
      out[i].begin = out[i].end = last;
    } else {
      unknown++;
    }
    if (out[i].node && out[i].end > 0) last = out[i].end;
  }
  if (lost > 0)
    brim_log(BRIM_LOG_WARN,
             "CUPTI has lost %zu records: the trace lacks %zu operations and copies, and others may seem too short; "
             "trace fewer steps",
             lost, unknown);
  return BRIM_OK;
}

brim_status cuda_trace_end(void *self, brim_device_work *out, size_t room, size_t *count)
{
  cuda_backend *b = self;
  const struct cuda_trace *t = b->trace;
  *count = 0;
  if (!t) return BRIM_OK;
  cudaStream_t const stream[] = {b->compute, b->copies, b->in, b->out};
  size_t known = t->count < t->room ? t->count : t->room;
  if (known > room) known = room;
  brim_status status = cuda_device_enter(b);
  for (size_t i = 0; i < sizeof stream / sizeof stream[0] && status == BRIM_OK; i++)
    status = cuda_check(cudaStreamSynchronize(stream[i]), "waiting for the device");
  if (status == BRIM_OK) status = (t->span ? read_spans : read_events)(t, out, known);
  if (status == BRIM_OK) *count = t->count;
  cuda_trace_drop(b);
  return status;
}
