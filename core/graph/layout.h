/* The buffers of one program: the tensors that share a buffer, the buffer's lifetime and its place. */
#ifndef BRIM_GRAPH_LAYOUT_H
#define BRIM_GRAPH_LAYOUT_H
#include "graph/plan.h"

/* There are two steps, because placing takes most of a plan's time, and the live bytes alone often show that a program
 * will not fit.   Fills the buffers with their lifetimes, and the live_* fields, of a program with prepared nodes. */
#define BRIM_LAYOUT_UNPLACED UINT64_MAX
void brim_layout_find(brim_program *p, uint64_t alignment);
/* Fills the buffers' offsets (from the start of the transient part) and transient_bytes, which is BRIM_LAYOUT_UNPLACED
 * before. Does nothing if they are placed. */
void brim_layout_place(brim_program *p);
/* Does the same for a backend that records programs. Such a backend can then make all copies of parameters in a smaller
 * type in one launch. Moves casts of parameters in the forward pass to the program's start, as far as their results
 * have room from there on; the program never needs more memory. Node indices change. */
void brim_layout_place_casts_first(brim_program *p);
/* Call after that for a plan whose steps have several micro-batches. As far as there is room, keeps the results of such
 * casts in the same place in all training programs until the end of the step, so that only the first micro-batch of the
 * step computes them. The arena never becomes larger. Node indices change. See kept_casts. */
void brim_layout_keep_casts(brim_plan *plan);
#endif
