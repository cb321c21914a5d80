/* Makes a trace file of recorded events: JSON in Chrome's trace-event format, compressed by gzip, for Perfetto
 * (ui.perfetto.dev) or chrome://tracing. Also makes a table of the measured times by operation.
 *
 * Each rank is a process of the file, with the rank as its id. Its tracks are the host's phases, the operations, copies
 * in and out, loader threads and the lanes of a federation; collectives overlap and have a track each. The counter
 * "live bytes" is the part of the arena that is in use at an operation: the persistent part, and the buffers that are
 * alive; at the operation with the most live bytes, also the gaps between them. So its maximum over the operations of
 * the largest program is exactly the planned peak. */
#ifndef BRIM_TRAIN_TRACE_WRITE_H
#define BRIM_TRAIN_TRACE_WRITE_H
#include <jansson.h>

#include "base/tracing.h"
#include "planner/planner.h"

typedef struct brim_trace_writer brim_trace_writer;

typedef struct brim_trace_about {
  int32_t rank, ranks;
  const char *place;     /* "cpu:0 AMD EPYC on lab7", the name of the process */
  const char *how;       /* how operations were measured: "the host's clock around each operation" */
  int64_t first, end;    /* steps [first, end), from 1 */
  int64_t origin;        /* time 0 of the file, on this rank's clock, in nanoseconds */
  bool adds_up;          /* the host itself runs the operations: their times and those of its phases add up to a step */
  brim_planner *planner; /* for predictions */
} brim_trace_about;

/* [init] ENOMEM_HOST. The texts must outlive the writer. */
brim_status brim_trace_writer_open(const brim_trace_about *about, brim_trace_writer **out);
void brim_trace_writer_close(brim_trace_writer *writer);
/* [init] Adds events whose nodes belong to this plan or its lanes. ENOMEM_HOST. */
brim_status brim_trace_writer_add(brim_trace_writer *writer, const brim_plan *plan, const brim_tracing_event *event,
                                  size_t count);
/* Converts a time that a device measured to an event; its kind is 0 if its node does not belong to this plan or its
 * lanes. */
brim_tracing_event brim_trace_event_of(const brim_plan *plan, const brim_device_work *work);
/* [init] Ends this rank's part: a list of JSON objects, compressed by zlib; owned by the writer. ENOMEM_HOST. */
brim_status brim_trace_writer_finish(brim_trace_writer *writer, const void **part, size_t *bytes);
/* [init] Returns the table of operations (operations.json; see docs/guide/traces.md). `trace`: the name of the trace's
 * file. */
json_t *brim_trace_writer_table(const brim_trace_writer *writer, const char *trace);

/* A rank's part. */
typedef struct brim_trace_part {
  const void *data;
  size_t bytes;
} brim_trace_part;
/* [init] Writes the parts as one file, under a temporary name that it then renames. `note`: the description in the
 * file. EIO; ENOMEM_HOST; EINVAL: a part is damaged. */
brim_status brim_trace_write(const char *path, const brim_trace_part *part, int32_t ranks, const json_t *note);

/* Computes the bytes of the arena that a program has in use at each node: see above. `live`: one per node, from the
 * start of the plan's part of the arena. */
void brim_trace_live_bytes(const brim_plan *plan, const brim_program *program, uint64_t *live);
#endif
