/* Samples that consist of several documents (brim_dataset_info.documents). The input [N, 2T] has two rows for each
 * sample, its tokens and their places. Both are slices of it: g->tokens and g->places, [N, T].
 *
 * Attention and rotary use the places automatically. A program that reads and writes a cache of keys sets g->places to
 * a tensor of its own instead. */
#ifndef BRIM_GRAPH_DOCUMENTS_H
#define BRIM_GRAPH_DOCUMENTS_H
#include "graph/graph.h"

#define BRIM_DOCUMENT_ROWS 2 /* rows of a sample's values: tokens, places */

/* Makes g->tokens and g->places from the input. */
brim_status brim_documents_open(brim_graph *g);
/* Fails if the model, which has been built, does not use the places: its answers would then depend on other
 * documents. */
brim_status brim_documents_check(brim_graph *g);
/* Returns the number of inputs of an operation on x [N, T, ...]: `count`, or one more if it needs the places, which are
 * then stored in in[count]. Returns 0 with an error if x does not have a row for each place. */
uint32_t brim_documents_add(brim_graph *g, const char *op, const brim_tensor *x, brim_tensor **in, uint32_t count);
/* [any thread] Writes the places of `samples` samples of `length` tokens into their values, as if each sample were one
 * document. */
void brim_documents_fill(int32_t *values, int64_t samples, int64_t length);
#endif
