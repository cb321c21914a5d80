/* The buffers of one program: which tensors share one, how long each lives, and where. */
#ifndef BRIM_GRAPH_LAYOUT_H
#define BRIM_GRAPH_LAYOUT_H
#include "graph/plan.h"

/* Fills buffers, offsets (from the start of the transient part), transient_bytes and the live_* fields of a program
 * with prepared nodes. */
brim_status brim_layout_program(brim_program *p, uint64_t alignment);
#endif
