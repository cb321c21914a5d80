/* Graphs of a federation (core/federate): a client's operations on the global model, and the server's on the clients'
 * updates. The global model and the sum of updates belong to the server's plan; a client's plan has tensors for them
 * (brim_graph_is_shared) that lie in the server's arena.
 *
 * Frozen parameters belong to the server too, and these operations skip them. They also skip local parameters, except
 * that a client starts with the values of the global model. */
#ifndef BRIM_GRAPH_FEDERATE_H
#define BRIM_GRAPH_FEDERATE_H
#include "graph/graph.h"

/* Adds tensors for the global model: g->global. Call at most once for a graph. */
void brim_graph_add_global(brim_graph *g);
/* Adds g->control, the controls of a client's gradients, which the host will write. Call it before the optimizer's
 * states are added. */
void brim_graph_add_control(brim_graph *g);
/* [plan] Builds the copy of the global model to a client: one node for each parameter of `like` that is not frozen,
 * buffers included. */
brim_status brim_graph_build_adopt(const brim_graph *like, brim_graph **out);
/* [plan] Computes the distance of the parameters that the client sends from the global model: `kept` is f64 [2], the
 * sum of the squared differences and the largest absolute difference. */
brim_status brim_graph_build_distance(const brim_graph *like, brim_graph **out);
/* [plan] Adds the client's update to the sum. */
brim_status brim_graph_build_fold(const brim_graph *like, brim_graph **out);
/* [plan] Adds the difference between the client's and the global model's parameters to the sum from which controls are
 * updated. */
brim_status brim_graph_build_fold_control(const brim_graph *like, brim_graph **out);
/* [plan] The server's step: an update whose gradients come from the sum; buffers get the mean of their changes. */
brim_status brim_graph_build_serve(const brim_graph *like, const brim_update_options *options, brim_graph **out);
/* The sum of updates of a parameter, in the server's step; NULL if clients do not send the parameter. */
const brim_tensor *brim_graph_sum_of(const brim_graph *serve, size_t parameter);
/* The number of values of the largest parameter that is not frozen and, with `sent`, not local; 0 if there is none.
 * Accepts any of these graphs. */
int64_t brim_graph_largest(const brim_graph *g, bool sent);
/* The number of values that a client sends, with or without those of buffers. */
int64_t brim_graph_sent(const brim_graph *g, bool buffers);
/* Whether the tensor of a client's graph lies in the server's arena. */
static inline bool brim_graph_is_shared(const brim_graph *g, const brim_tensor *t)
{
  return t->id >= g->shared_first && t->id < g->shared_end;
}
#endif
