/* Initial values of the parameters. */
#ifndef BRIM_EXEC_INITIALIZE_H
#define BRIM_EXEC_INITIALIZE_H
#include "exec/exec.h"

/* Sets each parameter as its brim_init describes. A value depends only on the seed, the parameter's name and the
 * element, so changing one layer does not change the values of others. Skips frozen parameters: see
 * setup/setup_weights.h. */
brim_status brim_initialize_parameters(brim_exec *exec, const brim_program *program, uint64_t seed);
/* Sets one parameter in this way. */
brim_status brim_initialize_parameter(brim_exec *exec, const brim_program *program, const brim_parameter *parameter,
                                      uint64_t seed);
/* Computes the initial values of one parameter, of type BRIM_DTYPE_F32 or _F64. */
void brim_first_values(const brim_parameter *parameter, uint64_t seed, uint32_t dtype, void *values);
#endif
