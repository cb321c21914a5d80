/* Parts of an optimizer's update, for its own graph (update.c) and for updates in the backward pass
 * (update_backward.c). */
#ifndef BRIM_GRAPH_UPDATE_H
#define BRIM_GRAPH_UPDATE_H
#include "graph/graph.h"

/* The form of a parameter's update. It is the form for the whole parameter, even if a rank has only a slice. */
brim_update_form brim_update_form_of(const brim_update_options *options, const brim_tensor *parameter);
/* The name of a parameter's k-th state. */
const char *brim_update_state_name(brim_arena *arena, const brim_tensor *parameter, const brim_update_form *form,
                                   uint32_t k);
/* Adds the gradients' scale, if there is one, and the states of all parameters. Every graph has them in the same order,
 * so that they have the same places. */
void brim_update_add_states(brim_graph *g, const brim_update_options *options);
/* Adds the nodes that compute the gradients' scale. */
void brim_update_add_scale(brim_graph *g, const brim_update_options *options);
/* Adds the same parameter to another graph, with a gradient if that graph trains. */
void brim_update_copy_parameter(brim_graph *g, const brim_parameter *p);
/* Adds the gradients of further uses of a parameter to its own gradient; for a slice, its part of them. */
void brim_update_add_further(brim_graph *g, size_t parameter);
/* Adds the node that steers the gradient of a trained parameter, in place; needs g->global. */
void brim_update_add_steer(brim_graph *g, size_t parameter);
/* Adds the nodes that an optimizer's build() makes for a parameter; in: parameter, gradient, states. */
void brim_update_build(brim_graph *g, const brim_update_options *options, const brim_update_form *form,
                       const brim_tensor *parameter, brim_tensor *const *in);
/* Adds the update of a parameter that is not a buffer, or of its slice. */
void brim_update_add_node(brim_graph *g, const brim_update_options *options, size_t parameter);
#endif
