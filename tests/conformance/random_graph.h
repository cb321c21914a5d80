/* Random models, the same for the same seed, whatever the batch. */
#ifndef TESTS_CONFORMANCE_RANDOM_GRAPH_H
#define TESTS_CONFORMANCE_RANDOM_GRAPH_H
#include "brim/model.h"

#define RANDOM_GRAPH_FAMILIES_MAX 64 /* for counts */

typedef struct random_graph {
  uint64_t seed;
  int64_t below;                               /* every index tensor's values are in [0, below) */
  int *families;                               /* counts of the built operations by family, or NULL */
  int64_t sample_rank, sample_dim[3], classes; /* the values that the dataset would report */
  /* Data [N, ...] of indices; NULL: no indices, and no operations that take them. */
  brim_tensor *(*indices)(brim_graph *g, const brim_shape *shape);
} random_graph;

/* Sets the sample and the classes; the caller sets the rest. */
void random_graph_choose(random_graph *r);
/* brim_model_ops.build; self: a random_graph. */
brim_status random_graph_build(const void *self, brim_graph *g);
/* Grows a graph from x [N, ...] to [N, results]. */
brim_tensor *random_graph_grow(const random_graph *r, brim_graph *g, brim_tensor *x, int64_t results);
/* The number of families of operations, and their names. */
int random_graph_family_count(void);
const char *random_graph_family(int i);
#endif
