/* A model that wraps another (brim/model.h): the backbone, built into the model's graph, frozen and without its head,
 * and the changes to its linear layers. */
#ifndef BRIM_GRAPH_WRAP_H
#define BRIM_GRAPH_WRAP_H
#include "graph/graph.h"

/* Prepares the graph of a model that may call brim_backbone. */
void brim_wrap_open(brim_graph *g, const brim_graph_options *options);
/* Sets the error EINVAL in the graph if the model must wrap a backbone but has not built one. */
brim_status brim_wrap_check(brim_graph *g);
/* The address at which brim_output stores the output: the graph's or, while a backbone is built, the backbone's. */
brim_tensor **brim_wrap_output(brim_graph *g);
/* The features of the graph's backbone, or NULL. */
brim_tensor *brim_wrap_features(const brim_graph *g);
/* The name of the backbone's own layer on the features, such as "head"; NULL if there is none. */
const char *brim_wrap_head(const brim_graph *g);
/* The changes to the backbone's layers; r 0: none. */
const brim_lora_options *brim_wrap_lora(const brim_graph *g);
/* A low-rank change: adds scale * up x down to the rows of a weight from first_row on. */
typedef struct brim_wrap_change {
  const char *layer; /* "blocks.0.attn.qkv" */
  const brim_tensor *weight, *down, *up;
  int64_t first_row;
  double scale;
} brim_wrap_change;
/* The graph's changes, in the order of the layers. */
const brim_wrap_change *brim_wrap_changes(const brim_graph *g, size_t *count);
/* Adds the change of a linear layer, if it is a target, to y, its result for x. NULL on error. */
brim_tensor *brim_wrap_adapt(brim_graph *g, const char *name, brim_tensor *x, const brim_tensor *weight,
                             brim_tensor *y);
#endif
