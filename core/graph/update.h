/* Parts of an optimizer's update, for the graph of it (update.c) and for updates in the backward pass
 * (update_backward.c). */
#ifndef BRIM_GRAPH_UPDATE_H
#define BRIM_GRAPH_UPDATE_H
#include "graph/graph.h"

/* The gradients' scale, if there is one, and the states of all parameters: in every graph that has them in the same
 * order, so that they lie in the same places. */
void brim_update_add_states(brim_graph *g, const brim_update_options *options);
/* The nodes that find the gradients' scale. */
void brim_update_add_scale(brim_graph *g, const brim_update_options *options);
/* Adds the gradients of further uses of a parameter to its own. */
void brim_update_add_further(brim_graph *g, size_t parameter);
/* The update of a parameter that is no buffer. */
void brim_update_add_node(brim_graph *g, const brim_update_options *options, size_t parameter);
#endif
