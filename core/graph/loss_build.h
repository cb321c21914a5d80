/* The graph of a loss plugin (brim/loss.h), behind the model's output. */
#ifndef BRIM_GRAPH_LOSS_BUILD_H
#define BRIM_GRAPH_LOSS_BUILD_H
#include "graph/graph.h"

/* Sets g->loss, one number a sample or token, of what o->loss.built makes of the output. ECONFIG or EINVAL, naming the
 * plugin, if that is no loss. */
brim_status brim_graph_build_loss(brim_graph *g, const brim_graph_options *o);
/* After autodiff: has the output a gradient? */
brim_status brim_graph_check_loss(brim_graph *g, const brim_graph_options *o);
#endif
