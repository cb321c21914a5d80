/* Activations, their gradients and copies of weights in a smaller type; parameters, their gradients, statistics and
 * losses stay in the type of parameters. */
#ifndef BRIM_GRAPH_LOWER_H
#define BRIM_GRAPH_LOWER_H
#include "graph/graph.h"

/* To be called when the forward pass is there, before autodiff. dtype: BRIM_DTYPE_BF16; nothing is done for the type of
 * parameters. On a backend whose type is F64 all is stored in F64 as before, and only what is rounded in between is
 * rounded: so a smaller type can be judged. */
void brim_graph_lower(brim_graph *g, uint32_t dtype);
#endif
