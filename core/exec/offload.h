/* The optimizer's state in host memory, and its copies between there and the arena.
 *
 * Besides its kernel queue, an asynchronous device has a queue for copies in and one for copies out. A group's states
 * are copied in after the previous users of their memory, its kernels wait for that, and its copies out wait for the
 * kernels (graph/offload.h describes the uses of that memory). Everything else that uses the window is ordered with
 * these: other programs' nodes, and inputs. */
#ifndef BRIM_EXEC_OFFLOAD_H
#define BRIM_EXEC_OFFLOAD_H
#include "graph/plan.h"

typedef struct brim_offload {
  const brim_plan *plan;
  const brim_backend_ops *backend;
  void *self;
  uint8_t *base;    /* the arena, on the device; set when the arena is placed */
  uint8_t *state;   /* the states, on the host; NULL if there are none */
  uint32_t pending; /* a bit for each mark of copies out that no kernel has waited for yet */
} brim_offload;

/* The copies of offloading before and after a piece. */
typedef struct brim_offload_piece {
  int32_t group;              /* the group of the piece's nodes; -1: none */
  int32_t in_from, in_to;     /* groups whose copies in start before the piece */
  int32_t done_from, done_to; /* groups whose copies out the piece waits for */
  bool uses_window;           /* see graph/offload.h */
  bool ends;                  /* the last piece of a program that has groups */
} brim_offload_piece;

/* [init] Allocates all of the host memory, zeroed. ENOMEM_HOST. Call close() after the arena is freed. */
brim_status brim_offload_open(brim_offload *o, const brim_plan *plan);
void brim_offload_close(brim_offload *o);
/* The tensor's address on the host, or NULL if it lies in the arena. */
void *brim_offload_pointer(const brim_offload *o, const brim_program *program, const brim_tensor *t);
/* [init] Describes a piece with the nodes [from, to). */
brim_offload_piece brim_offload_describe(const brim_program *program, size_t from, size_t to);
/* [step] Call before and after a piece starts. */
brim_status brim_offload_begin(brim_offload *o, const brim_program *program, const brim_offload_piece *piece);
brim_status brim_offload_end(brim_offload *o, const brim_program *program, const brim_offload_piece *piece);
/* [step] Call before and after a single node. If its kernel fails, the states on the host are unchanged. */
brim_status brim_offload_begin_node(brim_offload *o, const brim_program *program, const brim_node *n);
brim_status brim_offload_end_node(brim_offload *o, const brim_program *program, const brim_node *n);
/* [step] Call before and after anything else that uses these bytes of the arena. */
brim_status brim_offload_begin_use(brim_offload *o, const void *at, uint64_t bytes);
brim_status brim_offload_end_use(brim_offload *o, const void *at, uint64_t bytes);
#endif
