/* The frozen parameters of a model around another: from the weights that the configuration names, else as they are
 * initialised. No checkpoint has them; it has their hash. */
#ifndef BRIM_SETUP_FROZEN_H
#define BRIM_SETUP_FROZEN_H
#include "exec/exec.h"
#include "setup/setup.h"

/* What is done with the values of one frozen parameter of a graph, which are BRIM_DTYPE_F32, or F64 where the graph's
 * real numbers are. */
typedef struct brim_frozen_sink {
  brim_status (*take)(void *context, const brim_parameter *parameter, uint32_t dtype, const void *values);
  void *context;
} brim_frozen_sink;

/* [init] Gives each frozen parameter of the graph to the sink, in their order. sink NULL: only the hash is found.
 * *hash: of their names, shapes and values in single precision; 0 if there are none. What brim_weights_open and
 * brim_weights_read return. */
brim_status brim_frozen_read(const brim_setup *setup, const brim_graph *graph, const brim_frozen_sink *sink,
                             uint64_t *hash);
/* [init] Puts them where a program has them, in the type that they are kept in. */
brim_status brim_frozen_write(const brim_setup *setup, brim_exec *exec, const brim_program *program, uint64_t *hash);
#endif
