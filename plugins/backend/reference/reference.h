/* The reference backend: what every operation of brim means.
 *
 * Double precision, plain loops, one thread, no library: written to be read beside the formula, and to
 * judge the other backends. Activations, parameters and gradients are F64, labels I32, pooling indices
 * U8, metrics F64; every tensor is plain row-major. Kernels keep no state and use no scratch, so that
 * each is one function here. Gradients of parameters are added up (+=) sample by sample in the order of
 * the samples: the result does not depend on how the effective batch was cut into micro-batches. */
#ifndef BRIM_REFERENCE_H
#define BRIM_REFERENCE_H
#include <math.h>

#include "brim/backend.h"

/* Each operation's `run` and its BRIM_KERNEL stand in the file of its family; tensors, shapes and attributes as listed
 * in brim/ops.h. */

/* All dimensions but the last, multiplied: rows of what is worked on along the last. */
static inline int64_t rows_of(const brim_tensor *t)
{
  return brim_shape_count(&t->shape) / t->shape.dim[t->shape.rank - 1];
}

/* Whether `value` takes the place of `best` in a search for the first greatest value. NaN counts as
 * greater than every number, so that it is passed on and not hidden, and the first NaN stays. */
static inline int is_greater(double value, double best)
{
  return value > best || (isnan(value) && !isnan(best));
}

#endif
