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
/* What a layer of the backbone calls itself that works on the features: "head"; NULL: there is none. */
const char *brim_wrap_head(const brim_graph *g);
/* How its layers are changed; r 0: not. */
const brim_lora_options *brim_wrap_lora(const brim_graph *g);
/* A change of low rank: rows first_row.. of a weight count scale * up x down more. */
typedef struct brim_wrap_change {
  const char *layer; /* "blocks.0.attn.qkv" */
  const brim_tensor *weight, *down, *up;
  int64_t first_row;
  double scale;
} brim_wrap_change;
/* Those of the graph, in the order of the layers. */
const brim_wrap_change *brim_wrap_changes(const brim_graph *g, size_t *count);
/* y, what a linear layer makes of x; of a layer that is a target with its change added. NULL on error. */
brim_tensor *brim_wrap_adapt(brim_graph *g, const char *name, brim_tensor *x, const brim_tensor *weight,
                             brim_tensor *y);
#endif
