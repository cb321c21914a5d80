/* A text with everything that a node's time depends on: its operation, types, shapes, layouts and attributes, and how
 * the program is cut. Nodes with the same signature take the same time, so a layer that repeats is timed once. */
#ifndef BRIM_GRAPH_SIGNATURE_H
#define BRIM_GRAPH_SIGNATURE_H
#include "base/text.h"
#include "graph/plan.h"

/* Appends "relu f32[N,32,26,26] > f32[N,32,26,26] 0 g16 t". Dimensions that follow the micro-batch's samples are
 * written as N, "N*2" or "N/16": other micro-batches have the same signature. */
void brim_signature_print(const brim_program *program, const brim_node *node, brim_text *out);
/* Whether two nodes of a program have the same signature; may be false although they do. If it is true, both have the
 * same hash. */
bool brim_signature_equal(const brim_program *program, const brim_node *a, const brim_node *b);
uint64_t brim_signature_hash(const brim_node *node);
#endif
