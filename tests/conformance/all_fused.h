/* A model with every pair of operations that can be fused, batch norm, and a weight that several layers use, for inputs
 * [N, 2, 9, 8]; and the values it is trained with. An error fails the test. */
#ifndef TESTS_CONFORMANCE_ALL_FUSED_H
#define TESTS_CONFORMANCE_ALL_FUSED_H
#include "brim/model.h"
#include "exec/exec.h"

brim_status build_all_fused(const void *self, brim_graph *g);
void must(brim_status status);
/* Random numbers in [-bound, bound) of a dtype; the caller frees them. */
void *fused_numbers(uint32_t dtype, uint32_t stream, int64_t count, double bound);
/* Writes parameters; buffers stay 0, from which a step makes a positive variance. */
void fill_all_fused(brim_exec *exec, const brim_program *p);
#endif
