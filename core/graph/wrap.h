/* A model around another (brim/model.h): the backbone built into the model's graph, frozen, without its head, and what
 * is added to its linear layers. */
#ifndef BRIM_GRAPH_WRAP_H
#define BRIM_GRAPH_WRAP_H
#include "graph/graph.h"

/* For a model that may call brim_backbone. */
void brim_wrap_open(brim_graph *g, const brim_graph_options *options);
/* EINVAL, as the graph's error, if the model is to be around a backbone and has not built it. */
brim_status brim_wrap_check(brim_graph *g);
/* Where the output goes that is named now: the graph's, or while a backbone is built nowhere. */
brim_tensor **brim_wrap_output(brim_graph *g);
/* The features of its backbone; NULL: there is none. */
brim_tensor *brim_wrap_features(const brim_graph *g);
/* y, what a linear layer makes of x; of a layer that is a target with its change added. NULL on error. */
brim_tensor *brim_wrap_adapt(brim_graph *g, const char *name, brim_tensor *x, brim_tensor *y);
#endif
