/* The weights that a configuration names, for the parameters of its model. */
#ifndef BRIM_SETUP_SETUP_WEIGHTS_H
#define BRIM_SETUP_SETUP_WEIGHTS_H
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
#endif
