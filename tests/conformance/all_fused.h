/* A model with every pair of operations that may be fused, batch norm, and a weight that several layers use; for inputs
 * [N, 2, 9, 8]. */
#ifndef TESTS_CONFORMANCE_ALL_FUSED_H
#define TESTS_CONFORMANCE_ALL_FUSED_H
#include "brim/model.h"

brim_status build_all_fused(const void *self, brim_graph *g);
#endif
