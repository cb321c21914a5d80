/* Stores activations, their gradients and copies of weights in a smaller type; parameters, their gradients, statistics
 * and losses stay in the type of parameters. */
#ifndef BRIM_GRAPH_LOWER_H
#define BRIM_GRAPH_LOWER_H
#include "graph/graph.h"

/* Call after the forward pass is built and before autodiff. dtype: BRIM_DTYPE_BF16; 0 or the type of parameters leaves
 * activations alone. Frozen weights with brim_parameter.is_small get their smaller type here, and are widened for each
 * node that cannot read it. A backend of type F64 still stores everything in F64 and only rounds values in between, so
 * that it can verify a smaller type. */
void brim_graph_lower(brim_graph *g, uint32_t dtype);
/* Call after autodiff. The forward pass widened frozen weights for its own nodes; nodes of the backward pass get copies
 * of their own, right before they read them, so that no copy lives until the backward pass. */
void brim_graph_widen_again(brim_graph *g);
#endif
