/* Parts of an optimizer's update, for the graph of it (update.c) and for updates in the backward pass
 * (update_backward.c). */
#ifndef BRIM_GRAPH_UPDATE_H
#define BRIM_GRAPH_UPDATE_H
#include "graph/graph.h"

/* How a parameter is updated: all of it, whatever a rank has of it. */
brim_update_form brim_update_form_of(const brim_update_options *options, const brim_tensor *parameter);
/* The name of its k-th state. */
const char *brim_update_state_name(brim_arena *arena, const brim_tensor *parameter, const brim_update_form *form,
                                   uint32_t k);
/* The own parts of all gradients, without what makes them: see graph/shard.h. */
void brim_update_add_own_parts(brim_graph *g, const struct brim_shards *shards);
/* The gradients' scale, if there is one, and the states of all parameters: in every graph that has them in the same
 * order, so that they lie in the same places. */
void brim_update_add_states(brim_graph *g, const brim_update_options *options);
/* The nodes that find the gradients' scale. */
void brim_update_add_scale(brim_graph *g, const brim_update_options *options);
/* The same parameter in another graph, with a gradient if that graph trains. */
void brim_update_copy_parameter(brim_graph *g, const brim_parameter *p);
/* Adds the gradients of further uses of a parameter to its own; of a slice, what they have of it. */
void brim_update_add_further(brim_graph *g, size_t parameter);
/* Steers the gradient of a parameter that is trained, in place; needs g->global. */
void brim_update_add_steer(brim_graph *g, size_t parameter);
/* The nodes that an optimizer's build() makes for a parameter; in: parameter, gradient, states. */
void brim_update_build(brim_graph *g, const brim_update_options *options, const brim_update_form *form,
                       const brim_tensor *parameter, brim_tensor *const *in);
/* The update of a parameter that is no buffer, or of its slice. */
void brim_update_add_node(brim_graph *g, const brim_update_options *options, size_t parameter);
#endif
