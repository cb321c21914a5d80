/* States that are kept in host memory (memory.offload): when they lie in the arena, and where.
 *
 * A group is the updates whose states are copied together, some consecutive nodes. On a device that works ahead of the
 * host a group's states have their buffers from the group before it to the group behind it, so that at one time those
 * of the next group are copied in, those of this one are updated, and those of the one before are copied out: three
 * buffers in rotation. A host copies while it waits: there each update is a group, whose states live at its node.
 *
 * A program's first copies in may begin before it does, and its last copies out may end after it. The window is the
 * part of the arena that these use: other programs' nodes that use it too are in order with them, all others need not
 * be. */
#ifndef BRIM_GRAPH_OFFLOAD_H
#define BRIM_GRAPH_OFFLOAD_H
#include "graph/plan.h"

/* Bytes of states: so many of several parameters become one group, and what is small joins one of any size; but no
 * group has more than the largest parameter does. */
#define BRIM_OFFLOAD_GROUP_BYTES ((uint64_t)4 << 20)
#define BRIM_OFFLOAD_SMALL_BYTES ((uint64_t)64 << 10)

/* [plan] Fills a program's groups; its nodes are prepared, its buffers not yet assigned. `ahead`: the device works
 * ahead of the host. */
void brim_offload_find_groups(brim_program *p, uint64_t alignment, bool ahead);
/* [plan] Gives the states of a program the lifetimes that its groups say. */
void brim_offload_set_lifetimes(brim_program *p);
/* [plan] Of placed programs: the window, which nodes use it, and where programs are cut in pieces. */
void brim_offload_find_window(brim_plan *plan);
/* Do some bytes of the arena and the window overlap? */
bool brim_offload_in_window(const brim_plan *plan, uint64_t offset, uint64_t bytes);
#endif
