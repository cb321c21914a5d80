/* Graphs that continue texts. They process a few tokens of each text at a time, and read the keys and values of earlier
 * tokens from caches.
 *
 * The graph has no loss. Its inputs are tokens and their places in the text, both [N,T]. Each causal attention writes
 * its keys and values into a cache [N,capacity,...] of its own, at their places, and reads the cache (operation
 * cache_write; brim_attention). Every other operation must process each token independently. */
#ifndef BRIM_GRAPH_GENERATE_H
#define BRIM_GRAPH_GENERATE_H
#include "graph/graph.h"

/* Returns the cache to which `x`, the keys or values of an attention with this window (0: none), is written. NULL on
 * error. */
brim_tensor *brim_generate_cache(brim_graph *g, const char *name, brim_tensor *x, int64_t window);
/* Checks that the model's nodes let tokens affect each other only through caches. ENOTSUP naming the first node that
 * does not: such a model generates without caches. A graph for one token cannot be checked. */
brim_status brim_generate_check(const brim_graph *g);
/* Whether two graphs have the same caches. */
bool brim_generate_is_alike(const brim_graph *a, const brim_graph *b);
/* Removes the nodes that neither the kept output nor a cache depends on. */
void brim_generate_prune(brim_graph *g);
#endif
