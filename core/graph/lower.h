/* Activations, their gradients and copies of weights in a smaller type; parameters, their gradients, statistics and
 * losses stay in the type of parameters. */
#ifndef BRIM_GRAPH_LOWER_H
#define BRIM_GRAPH_LOWER_H
#include "graph/graph.h"

/* To be called when the forward pass is there, before autodiff. dtype: BRIM_DTYPE_BF16; 0 or the type of parameters:
 * activations stay as they are. Frozen weights that are kept in a smaller type (brim_parameter.is_small) get it here,
 * and are widened for each node that cannot read it. On a backend whose type is F64 all is stored in F64 as before, and
 * only what is rounded in between is rounded: so a smaller type can be judged. */
void brim_graph_lower(brim_graph *g, uint32_t dtype);
/* To be called after autodiff. What frozen weights are widened to, the forward pass made for its own nodes: nodes of
 * the backward pass get copies of their own, right before they read them, so that none waits for the backward pass. */
void brim_graph_widen_again(brim_graph *g);
#endif
