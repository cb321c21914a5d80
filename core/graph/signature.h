/* What the time of a node depends on, in words: its operation, types, shapes, layouts and attributes, and how the
 * program is cut. Nodes of one signature take equally long, so a layer that repeats is timed once. */
#ifndef BRIM_GRAPH_SIGNATURE_H
#define BRIM_GRAPH_SIGNATURE_H
#include "base/text.h"
#include "graph/plan.h"

/* Appends "relu f32[N,32,26,26] > f32[N,32,26,26] 0 g16 t". Dimensions that follow the samples of the micro-batch are
 * written by N, "N*2" or "N/16": the signature of another micro-batch is the same text. */
void brim_signature_print(const brim_program *program, const brim_node *node, brim_text *out);
#endif
