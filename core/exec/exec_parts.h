/* The parts of an exec. Internal to core/exec. */
#ifndef BRIM_EXEC_EXEC_PARTS_H
#define BRIM_EXEC_EXEC_PARTS_H
#include "exec/exec.h"
#include "exec/offload.h"
#include "exec/reduce.h"

#define BRIM_FEEDS 2 /* micro-batches that a backend accepts before feed() waits for the device */

/* Nodes that a backend runs together. */
typedef struct brim_exec_piece {
  size_t from, to;
  brim_offload_piece offload;
  void *record[2]; /* recordings, by brim_step.is_first_micro_batch; the backend owns them */
} brim_exec_piece;

typedef struct brim_placed_program {
  brim_launch *launch; /* one per node */
  brim_exec_piece *piece;
  size_t piece_count;
} brim_placed_program;

struct brim_exec {
  const brim_plan *plan;
  const brim_backend_ops *backend;
  void *self;
  uint8_t *base;        /* the arena, on the device */
  uint8_t *server_base; /* for a federation's lane: the server's arena, in which the lane's lies; else NULL */
  bool on_host;         /* the core can dereference pointers to the arena */
  brim_exec **lane;     /* [plan->lane_count] */
  brim_offload offload;
  brim_reduction reduction;
  bool before_first; /* the step has run no micro-batch yet, and its first one differs: it makes the casts that the plan
                        keeps, and overwrites gradients whose memory is not zeroed */
  bool casted;       /* the memory of casts that the plan keeps has the casts of the current parameters */
  /* Tickets of the collectives that the device must finish before the latest fetches and feeds, one for each that is
   * pending. */
  uint64_t fetch_ticket[BRIM_FETCHES], feed_ticket[BRIM_FEEDS];
  uint64_t fetched, collected, fed;
  brim_arena host;
  brim_placed_program program[BRIM_PROGRAMS_ROOM];
};

/* Finds the range of nodes, *from to *to - 1, of a half of a program. */
void brim_exec_range(const brim_program *program, size_t half, size_t *from, size_t *to);
/* Zeroes gradients that count as 0 although their memory is not zeroed yet; needed before they are read or added to. */
brim_status brim_exec_settle_gradients(brim_exec *exec);
/* The address of the metrics on the device. */
const double *brim_exec_metrics_at(const brim_exec *exec);
/* The address of the proof on the device. An update takes effect only if it is finite. */
const double *brim_exec_proof_at(const brim_exec *exec);
#endif
