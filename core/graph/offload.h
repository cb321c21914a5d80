/* Optimizer states in host memory (memory.offload): the time and the place at which they are in the arena.
 *
 * A group consists of the updates whose states are copied together: some consecutive nodes. On an asynchronous device a
 * group's states have buffers from the previous group to the next, so that at any time the next group's states are
 * copied in, this group's are updated, and the previous one's are copied out: three buffers in rotation. On a device
 * that is the host, copies are synchronous: each update is a group, and its states live at its node only.
 *
 * A program's first copies in may start before the program, and its last copies out may end after it. The window is the
 * part of the arena that these copies use. Nodes of other programs that use the window are ordered with the copies;
 * other nodes need not be. */
#ifndef BRIM_GRAPH_OFFLOAD_H
#define BRIM_GRAPH_OFFLOAD_H
#include "graph/plan.h"

/* Sizes of states. States of several parameters form a group of up to the first size; states of up to the second size
 * join a group of any size. No group is larger than the states of the largest parameter. */
#define BRIM_OFFLOAD_GROUP_BYTES ((uint64_t)4 << 20)
#define BRIM_OFFLOAD_SMALL_BYTES ((uint64_t)64 << 10)

/* [plan] Finds a program's groups. The program's nodes are prepared; its buffers are not assigned yet. `ahead`: the
 * device is asynchronous. */
void brim_offload_find_groups(brim_program *p, uint64_t alignment, bool ahead);
/* [plan] Sets the lifetimes of a program's states by its groups. */
void brim_offload_set_lifetimes(brim_program *p);
/* [plan] For placed programs: finds the window, the nodes that use it, and the places where programs are cut in
 * pieces. */
void brim_offload_find_window(brim_plan *plan);
/* Whether the range overlaps the window. */
bool brim_offload_in_window(const brim_plan *plan, uint64_t offset, uint64_t bytes);
#endif
