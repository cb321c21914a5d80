/* Which gradients the first micro-batch of a step writes, so that nothing has to zero them: those whose kernels can
 * (brim_kernel_need.begins in brim/backend.h). */
#ifndef BRIM_GRAPH_BEGINS_H
#define BRIM_GRAPH_BEGINS_H
#include "graph/plan.h"

/* [plan] Finds the parts of the gradients that must be zeroed before a step. All tensors must have their places. */
void brim_begins_find(brim_plan *plan);
/* The bytes of the gradients that a node of a training program writes, instead of adding to them, in the first
 * micro-batch of a step. */
uint64_t brim_begins_bytes(const brim_program *program, const brim_node *node);
#endif
