/* First values of the parameters. */
#ifndef BRIM_TRAIN_INITIALIZE_H
#define BRIM_TRAIN_INITIALIZE_H
#include "exec/exec.h"

/* Uniform in [-bound, bound], as each operation asks; from (seed, the parameter's name, the element) alone, so that
 * changing one layer leaves the others' values as they were. */
brim_status brim_initialize_parameters(brim_exec *exec, const brim_program *program, uint64_t seed);
/* The same for those that are frozen; exec NULL: only to find the hash. *hash: of their names, shapes and values in
 * single precision, in whatever type they are kept; 0 if there are none. */
brim_status brim_initialize_frozen(brim_exec *exec, const brim_program *program, const brim_graph *graph, uint64_t seed,
                                   uint64_t *hash);
#endif
