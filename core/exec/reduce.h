/* The sums over a job's ranks in a step: gradients, bucket by bucket during the backward pass, then the metrics; and
 * the programs' own collectives, if parts of the training state are sharded. Every rank starts the same collectives in
 * the same order, even if it has failed. In a job of one rank all functions do nothing. Internal to exec.
 *
 * An asynchronous device has a queue for collectives: each starts after the kernels that were started before it, and
 * kernels wait for it where they need its result. The host starts all this work and continues. Before the host waits
 * for the device, it waits, through the communicator, for the collectives that the device depends on: if another rank
 * is gone, the communicator reports that, whereas the device would wait forever. */
#ifndef BRIM_EXEC_REDUCE_H
#define BRIM_EXEC_REDUCE_H
#include "dist/dist.h"
#include "graph/plan.h"

#define BRIM_REDUCTIONS_OPEN 64 /* collectives that a trace can follow at the same time; it leaves out any others */

/* Ready to use when zeroed. */
typedef struct brim_reduction {
  brim_dist *dist; /* NULL: one rank */
  const brim_plan *plan;
  uint8_t *base;   /* the arena */
  size_t next;     /* the next bucket to start */
  uint64_t ticket; /* ticket of the last collective started */
  /* For traces: collectives that were started and not waited for yet. */
  struct {
    uint64_t ticket, bytes;
    int64_t began;
    const char *name;
  } open[BRIM_REDUCTIONS_OPEN];
  size_t open_count;
  /* an asynchronous device, else NULL: */
  const brim_backend_ops *backend;
  void *self, *queue;
} brim_reduction;

/* The progress of a program through its own collectives. */
typedef struct brim_reduction_walk {
  const brim_program *program;
  size_t started, finished;
  uint64_t ticket; /* ticket of the first collective */
} brim_reduction_walk;

/* [init] Joins the job. `asynchronous`: the plan's backend works ahead of the host. */
void brim_reduction_join(brim_reduction *r, brim_dist *dist, bool asynchronous);
/* [step] Called when a step starts: no bucket has been started. */
void brim_reduction_begin(brim_reduction *r);
/* [step] Call after a node of the step's last micro-batch: starts the complete buckets, and lets running ones make
 * progress. */
brim_status brim_reduction_after(brim_reduction *r, const brim_program *program, size_t node);
/* [step] Starts the remaining buckets, whatever they contain. */
brim_status brim_reduction_rest(brim_reduction *r);
/* [step] Starts the sum of the first `count` metrics. */
brim_status brim_reduction_metrics(brim_reduction *r, uint64_t count);
/* [step] Starts a broadcast of a range of bytes from rank 0. */
brim_status brim_reduction_broadcast(brim_reduction *r, uint64_t offset, uint64_t bytes);
/* [step] Call before a node: waits for the program's collectives that it needs, and starts those that are due. Call
 * with the number of nodes at the end. */
brim_status brim_reduction_before(brim_reduction *r, brim_reduction_walk *walk, size_t node);
/* [step] Makes the device's later work wait for all collectives started so far. */
brim_status brim_reduction_order(brim_reduction *r);
/* [step] Waits for all collectives started so far, or for those up to a ticket. */
brim_status brim_reduction_finish(brim_reduction *r);
brim_status brim_reduction_finish_to(brim_reduction *r, uint64_t ticket);
/* [step] Call before the host waits for an asynchronous device: the same as finish. Does nothing on other devices. */
brim_status brim_reduction_settle(brim_reduction *r);
#endif
