/* The buffers of one program: which tensors share one, how long each lives, and where. */
#ifndef BRIM_GRAPH_LAYOUT_H
#define BRIM_GRAPH_LAYOUT_H
#include "graph/plan.h"

/* There are two steps, because placing takes most of a plan's time, and the live bytes alone often show that a program
 * will not fit.
 *
 * Fills the buffers with their lifetimes, and the live_* fields, of a program with prepared nodes. */
#define BRIM_LAYOUT_UNPLACED UINT64_MAX
void brim_layout_find(brim_program *p, uint64_t alignment);
/* Fills the buffers' offsets (from the start of the transient part) and transient_bytes, which is BRIM_LAYOUT_UNPLACED
 * before. Does nothing if they are placed. */
void brim_layout_place(brim_program *p);
/* The same for a backend that records programs, which then makes the copies of parameters in a smaller type in one
 * launch. Casts of parameters in the forward pass move to the program's start, those whose results have room from there
 * on; the program never takes more memory for it. Node indices change. */
void brim_layout_place_casts_first(brim_program *p);
/* Then, for a plan whose steps have several micro-batches: lets results of such casts stay in the same place, in all
 * training programs, until the end of the step, so that only its first micro-batch makes them: those for which there is
 * room. The arena never becomes larger. Node indices change. See kept_casts. */
void brim_layout_keep_casts(brim_plan *plan);
#endif
