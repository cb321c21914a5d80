/* The graph of a loss plugin (brim/loss.h), after the model's output. */
#ifndef BRIM_GRAPH_LOSS_BUILD_H
#define BRIM_GRAPH_LOSS_BUILD_H
#include "graph/graph.h"

/* Sets g->loss to the result of o->loss.built for the output: one number per sample or token. ECONFIG or EINVAL, naming
 * the plugin, if the result is not a loss. */
brim_status brim_graph_build_loss(brim_graph *g, const brim_graph_options *o);
/* Call after autodiff: checks that the output has a gradient. */
brim_status brim_graph_check_loss(brim_graph *g, const brim_graph_options *o);
#endif
