/* The gradients that the first micro-batch of a step overwrites, so that they need not be zeroed: those whose kernels
 * support it (brim_kernel_need.overwrites in brim/backend.h). */
#ifndef BRIM_GRAPH_OVERWRITTEN_H
#define BRIM_GRAPH_OVERWRITTEN_H
#include "graph/plan.h"

/* [plan] Finds the other parts of the gradients, which must be zeroed before a step. All tensors must have their
 * places. */
void brim_overwritten_find(brim_plan *plan);
/* The bytes of the gradients that a node of a training program overwrites, instead of adding to them, in the first
 * micro-batch of a step. */
uint64_t brim_overwritten_bytes(const brim_program *program, const brim_node *node);
#endif
