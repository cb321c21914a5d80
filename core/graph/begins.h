/* The gradients that the first micro-batch of a step overwrites, so that they need not be zeroed: those whose kernels
 * support it (brim_kernel_need.begins in brim/backend.h). */
#ifndef BRIM_GRAPH_BEGINS_H
#define BRIM_GRAPH_BEGINS_H
#include "graph/plan.h"

/* [plan] Finds the parts of the gradients that must be zeroed before a step. All tensors must have their places. */
void brim_begins_find(brim_plan *plan);
/* The bytes of the gradients that a node of a training program overwrites, instead of adding to them, in the first
 * micro-batch of a step. */
uint64_t brim_begins_bytes(const brim_program *program, const brim_node *node);
#endif
