/* The optimizer's state in host memory: where it lies, and its copies between there and the arena.
 *
 * A device that works ahead of the host has a queue for copies in and one for copies out beside that of its kernels.
 * A group's states are copied in behind what had their memory before, its kernels wait for that, and its copies out
 * wait for them (graph/offload.h says when its memory is another's). In order with these is everything else that uses
 * the window: other programs' nodes, and inputs. */
#ifndef BRIM_EXEC_OFFLOAD_H
#define BRIM_EXEC_OFFLOAD_H
#include "graph/plan.h"

typedef struct brim_offload {
  const brim_plan *plan;
  const brim_backend_ops *backend;
  void *self;
  uint8_t *base;    /* of the arena; set when it is placed */
  uint8_t *state;   /* on the host; NULL: none is there */
  uint32_t pending; /* copies out that no kernel waits for yet: a bit for each of their marks */
} brim_offload;

/* What a piece of a program has to do with it. */
typedef struct brim_offload_piece {
  int32_t group;              /* whose nodes they are; -1: none's */
  int32_t in_from, in_to;     /* groups whose copies in begin before it */
  int32_t done_from, done_to; /* groups whose copies out it waits for */
  bool uses_window;           /* see graph/offload.h */
  bool ends;                  /* it is the last of a program that has groups */
} brim_offload_piece;

/* [init] All of the host's memory, zeroed. ENOMEM_HOST if there is no room for it. close(): after the arena is gone. */
brim_status brim_offload_open(brim_offload *o, const brim_plan *plan);
void brim_offload_close(brim_offload *o);
/* On the host; NULL: the tensor lies in the arena. */
void *brim_offload_pointer(const brim_offload *o, const brim_program *program, const brim_tensor *t);
/* [init] Of a piece that has the nodes [from, to). */
brim_offload_piece brim_offload_describe(const brim_program *program, size_t from, size_t to);
/* [step] Around the start of a piece. */
brim_status brim_offload_begin(brim_offload *o, const brim_program *program, const brim_offload_piece *piece);
brim_status brim_offload_end(brim_offload *o, const brim_program *program, const brim_offload_piece *piece);
/* [step] Around a node that is run by itself. If its kernel fails the host's states are as they were. */
brim_status brim_offload_begin_node(brim_offload *o, const brim_program *program, const brim_node *n);
brim_status brim_offload_end_node(brim_offload *o, const brim_program *program, const brim_node *n);
/* [step] Around anything else that uses these bytes of the arena. */
brim_status brim_offload_begin_use(brim_offload *o, const void *at, uint64_t bytes);
brim_status brim_offload_end_use(brim_offload *o, const void *at, uint64_t bytes);
#endif
