/* The weights that a configuration names, for the parameters of its model; and the frozen parameters of a model around
 * another: from these weights, else as they are initialised. No checkpoint has them; it has their hash. */
#ifndef BRIM_SETUP_SETUP_WEIGHTS_H
#define BRIM_SETUP_SETUP_WEIGHTS_H
#include "exec/exec.h"
#include "setup/setup.h"
#include "store/weights.h"

typedef struct brim_setup_weights {
  brim_weights *weights; /* NULL: there are none */
  /* The parameters that they are for (of a model around another the frozen ones, as if they were kept in the type of
   * real numbers), and the place of each among all parameters of the graph. */
  const brim_tensor **parameter;
  size_t *index;
  size_t count;
  brim_arena arena; /* of copies of parameters */
  bool is_borrowed; /* from the setup's features */
} brim_setup_weights;

/* [plan] Names and shapes are compared, values are not read. As brim_weights_open. On failure there is nothing to
 * close. Of a setup whose data is features, whatever the graph: what they are made with, to be closed before it is.
 */
brim_status brim_setup_weights_open(const brim_setup *setup, const brim_graph *graph, brim_setup_weights *out);
void brim_setup_weights_close(brim_setup_weights *weights);

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
