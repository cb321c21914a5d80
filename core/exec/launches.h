/* The launches that a program passes to its backend: for each node the pointers to its operands. */
#ifndef BRIM_EXEC_LAUNCHES_H
#define BRIM_EXEC_LAUNCHES_H
#include "graph/plan.h"

/* The memory in which a program works. */
typedef struct brim_bases {
  uint8_t *own;    /* the arena */
  uint8_t *server; /* for a federation's lane: the server's arena, in which the lane's lies; else NULL */
} brim_bases;

void *brim_launches_pointer(const brim_program *program, const brim_bases *bases, const brim_tensor *tensor);
/* Makes a launch for each node, in the memory of `arena`. */
brim_launch *brim_launches_make(const brim_program *program, const brim_bases *bases, brim_arena *arena);

/* A program that updates parameters in its backward pass has two halves: the loss is checked before the second. */
static inline size_t brim_launches_halves(const brim_program *program)
{
  return program->graph->passes ? 2 : 1;
}
/* Whether a piece of the program, which the backend runs as one, begins with this node. */
bool brim_launches_begin_piece(const brim_program *program, size_t node);

/* [plan] Counts the launches of a placed plan's program: out [node_count + 1], by the node with which they begin; the
 * last entry counts those that belong to no node. first: the first node that runs. The caller zeroes `out`. */
brim_status brim_launches_count(const brim_plan *plan, const brim_program *program, size_t first, uint32_t *out);
/* Whether a node computes nothing, because its result is its input with another shape. */
bool brim_launches_is_view(const brim_program *program, const brim_node *node);
#endif
