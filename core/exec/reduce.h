/* What the ranks of a job add up in a step: gradients, bucket by bucket while the backward pass goes on, and behind
 * them the metrics; and what belongs to programs, where parts of the training state are shared out. Every rank starts
 * the same collectives in the same order, also one that has failed meanwhile. All of it is nothing in a job of one
 * rank. Internal to exec.
 *
 * On a device that works ahead of the host collectives have a queue of their own: each is behind the kernels that were
 * started before it, and kernels wait for it where they need what it brings. The host starts all that and goes on.
 * Where it waits for the device it first waits for the collectives that it depends on, by the communicator, which gives
 * up when another rank is gone: the device would wait for ever. */
#ifndef BRIM_EXEC_REDUCE_H
#define BRIM_EXEC_REDUCE_H
#include "dist/dist.h"
#include "graph/plan.h"

/* Ready when zeroed. */
typedef struct brim_reduction {
  brim_dist *dist; /* NULL: one rank */
  const brim_plan *plan;
  uint8_t *base;   /* the arena */
  size_t next;     /* bucket that is not started yet */
  uint64_t ticket; /* of the last collective that was started */
  /* a device that works ahead of the host; else NULL: */
  const brim_backend_ops *backend;
  void *self, *queue;
} brim_reduction;

/* A program's own collectives, as it is run. */
typedef struct brim_reduction_walk {
  const brim_program *program;
  size_t started, finished;
  uint64_t ticket; /* of the first */
} brim_reduction_walk;

/* [init] With whom. `asynchronous`: the plan's backend works ahead of the host. */
void brim_reduction_join(brim_reduction *r, brim_dist *dist, bool asynchronous);
/* [step] A step begins: none of its buckets is started. */
void brim_reduction_begin(brim_reduction *r);
/* [step] Behind a node of the step's last micro-batch: starts the buckets that are complete, and lets those under way
 * make progress. */
brim_status brim_reduction_after(brim_reduction *r, const brim_program *program, size_t node);
/* [step] Starts the buckets that are not started yet, in whatever state they are. */
brim_status brim_reduction_rest(brim_reduction *r);
/* [step] Starts a sum of the first `count` metrics. */
brim_status brim_reduction_metrics(brim_reduction *r, uint64_t count);
/* [step] Starts one that brings to all what rank 0 has. */
brim_status brim_reduction_broadcast(brim_reduction *r, uint64_t offset, uint64_t bytes);
/* [step] Before a node: waits for those of the program that must be done, and starts what is to be started; before the
 * number of nodes: at the end. */
brim_status brim_reduction_before(brim_reduction *r, brim_reduction_walk *walk, size_t node);
/* [step] What a device that works ahead is given from here on is behind all that was started. */
brim_status brim_reduction_order(brim_reduction *r);
/* [step] Waits for all that was started; up to a ticket. */
brim_status brim_reduction_finish(brim_reduction *r);
brim_status brim_reduction_finish_to(brim_reduction *r, uint64_t ticket);
/* [step] On a device that works ahead, before the host waits for it: the same as finish. Elsewhere nothing. */
brim_status brim_reduction_settle(brim_reduction *r);
#endif
