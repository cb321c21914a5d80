/* Shared by trace_write.c, which makes the events of a trace's file, and trace_operations.c, which adds up the times by
 * operation. */
#ifndef BRIM_TRAIN_TRACE_PARTS_H
#define BRIM_TRAIN_TRACE_PARTS_H
#include <zlib.h>

#include "train/trace_write.h"

#define BRIM_TRACE_CHUNK ((size_t)64 << 10) /* bytes of compressed text */

/* A node of a program, with its texts and times. */
typedef struct brim_trace_node {
  char *label, *shape; /* JSON strings with their quotes */
  int64_t nanoseconds; /* measured, all runs */
  uint64_t runs;
  double predicted, least; /* seconds; least 0: unknown */
  bool guessed;            /* no time was measured for this operation and shape before */
} brim_trace_node;

typedef struct brim_trace_program {
  const brim_program *program;
  const brim_plan *plan;
  brim_trace_node *node;
  uint64_t *live;
} brim_trace_program;

/* An innermost span of the training thread: an operation, a copy, or a phase of the host. */
typedef struct brim_trace_leaf {
  const char *name; /* NULL: a node */
  int64_t begin, end;
  bool is_work; /* work of the device, which counts as covered */
} brim_trace_leaf;

/* Work of the host in the traced steps, besides nodes; one entry per name. */
typedef struct brim_trace_phase {
  const char *name;
  int64_t nanoseconds;
  uint64_t runs;
} brim_trace_phase;
#define BRIM_TRACE_PHASES_MAX 64

struct brim_trace_writer {
  brim_trace_about about;
  z_stream stream;
  bool has_stream;
  uint8_t *out; /* compressed */
  size_t out_bytes, out_room;
  brim_text line;
  size_t lines;
  brim_arena arena;
  brim_trace_program *program;
  size_t program_count, program_room;
  json_t *rows; /* rows for programs of plans that were released */
  uint64_t live_now;
  bool has_loader[256];
  bool has_lane[1024];
  int64_t step_nanoseconds, operation_nanoseconds; /* time of the traced steps; time of operations and copies in them */
  int64_t steps;
  brim_trace_leaf *leaf; /* since the last step */
  size_t leaves, leaf_room;
  int64_t last_end; /* end of the training thread's newest span */
  brim_trace_phase phase[BRIM_TRACE_PHASES_MAX];
  size_t phases;
};

/* ENOMEM_HOST, with its text. */
brim_status brim_trace_fail_memory(void);
/* Adds a JSON string with its quotes. */
void brim_trace_add_string(brim_text *out, const char *s);

/* ---- trace_operations.c ---- */

/* "forward", "update", ...: the part of a step to which a node belongs. */
const char *brim_trace_phase_of(const brim_program *program, const brim_node *node);
/* Returns the texts of program `p` of the plan `all` or its lanes; NULL: the program does not belong to them, or there
 * is no memory. */
brim_trace_program *brim_trace_find_program(brim_trace_writer *w, const brim_plan *all, const brim_program *p);
/* Counts an event of the training thread: times of nodes, copies and phases of the host within steps. */
void brim_trace_count(brim_trace_writer *writer, const brim_tracing_event *event);
/* Converts the times so far to rows, because the plan of these programs may be released. */
void brim_trace_keep_rows(brim_trace_writer *writer);
#endif
