/* Loads the weights that a configuration names into the parameters of its model. Fills the frozen parameters of a model
 * that wraps another: from these weights, or by initialisation. Checkpoints do not contain frozen parameters, only
 * their hash. */
#ifndef BRIM_SETUP_SETUP_WEIGHTS_H
#define BRIM_SETUP_SETUP_WEIGHTS_H
#include "exec/exec.h"
#include "setup/setup.h"
#include "store/checkpoint.h"
#include "store/weights.h"

typedef struct brim_setup_weights {
  brim_weights *weights; /* may be NULL */
  /* The parameters that the weights fill, and the index of each among all parameters of the graph. For a wrapping model
   * these are the frozen parameters, with the type of real numbers instead of their storage type. */
  const brim_tensor **parameter;
  size_t *index;
  size_t count;
  brim_arena arena; /* memory of copies of parameters */
  bool is_borrowed; /* the weights belong to the setup's features */
} brim_setup_weights;

/* [plan] Compares names and shapes; does not read values. Errors as for brim_weights_open. On failure there is nothing
 * to close. For a setup that uses features, opens the weights with which the features are computed, for any graph;
 * close them before the setup. */
brim_status brim_setup_weights_open(const brim_setup *setup, const brim_graph *graph, brim_setup_weights *out);
void brim_setup_weights_close(brim_setup_weights *weights);

/* Receives the values of one frozen parameter of a graph, in BRIM_DTYPE_F32, or in F64 if the graph's real numbers
 * are F64. */
typedef struct brim_frozen_sink {
  brim_status (*take)(void *context, const brim_parameter *parameter, uint32_t dtype, const void *values);
  /* The address for the values, in the graph's type of real numbers, without a call of take(). NULL: take() gets the
   * values. `place` itself may be NULL. */
  void *(*place)(void *context, const brim_parameter *parameter);
  void *context;
} brim_frozen_sink;

/* [init] Passes each frozen parameter of the graph to the sink, in their order. sink NULL: only computes the hash.
 * *hash: a hash of their names, shapes and values in single precision; 0 without frozen parameters. Errors as for
 * brim_weights_open and brim_weights_read. */
brim_status brim_frozen_read(const brim_setup *setup, const brim_graph *graph, const brim_frozen_sink *sink,
                             uint64_t *hash);
/* [init] Tells whether a checkpoint's frozen parameters have this hash. Reads them again for checkpoints that have a
 * hash of the older kind. Errors as for brim_frozen_read. */
brim_status brim_frozen_check(const brim_setup *setup, const brim_graph *graph, const brim_train_state *state,
                              uint64_t hash, bool *same);
/* [init] Writes the frozen parameters to a program's tensors, in the type in which they are stored. */
brim_status brim_frozen_write(const brim_setup *setup, brim_exec *exec, const brim_program *program, uint64_t *hash);
#endif
