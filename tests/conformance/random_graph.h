/* Models made by chance: the same one for the same seed, whatever the batch. */
#ifndef TESTS_CONFORMANCE_RANDOM_GRAPH_H
#define TESTS_CONFORMANCE_RANDOM_GRAPH_H
#include "brim/model.h"

#define RANDOM_GRAPH_FAMILIES_MAX 64 /* room for counts */

typedef struct random_graph {
  uint64_t seed;
  int64_t below;                               /* every index tensor's values are in [0, below) */
  int *families;                               /* counts, by family, what was built; or NULL */
  int64_t sample_rank, sample_dim[3], classes; /* what the dataset would say */
  /* Data [N, ...] of indices; NULL: there are none, and nothing that takes them. */
  brim_tensor *(*indices)(brim_graph *g, const brim_shape *shape);
} random_graph;

/* Sets the sample and the classes; the rest is given. */
void random_graph_choose(random_graph *r);
/* brim_model_ops.build; self: a random_graph. */
brim_status random_graph_build(const void *self, brim_graph *g);
/* A graph behind x [N, ...], in the end [N, results]. */
brim_tensor *random_graph_grow(const random_graph *r, brim_graph *g, brim_tensor *x, int64_t results);
/* How many families of operations there are, and their names. */
int random_graph_family_count(void);
const char *random_graph_family(int i);
#endif
