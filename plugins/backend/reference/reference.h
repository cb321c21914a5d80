/* The reference backend, which defines every operation of brim.
 *
 * It uses double precision, plain loops, one thread and no library, so that it can be compared with the formulas and
 * used to test the other backends. Activations, parameters and gradients are F64, labels I32, pooling indices U8,
 * metrics F64; every tensor is plain row-major. A kernel has neither state nor scratch, so it is one function.
 * Gradients of parameters are added up (+=) in the order of the samples, so the result does not depend on the
 * micro-batch. */
#ifndef BRIM_REFERENCE_H
#define BRIM_REFERENCE_H
#include <math.h>

#include "brim/backend.h"

/* Defines the kernel of an operation, whose body follows. It stands in the file of the operation's family:
 *
 *     REFERENCE(relu, "relu")
 *     {
 *       const double *x = launch->in[0];
 *       ...
 *
 * brim/ops.h lists tensors, shapes and attributes. */
#define REFERENCE(id, its_op)                                                                                          \
  static brim_status id(void *self, const brim_launch *launch);                                                        \
  BRIM_KERNEL(id) = {.op = its_op, .run = id};                                                                         \
  static brim_status id(__attribute__((unused)) void *self, const brim_launch *launch)

/* Returns the product of all dimensions except the last: the number of rows for operations along the last dimension. */
static inline int64_t rows_of(const brim_tensor *t)
{
  return brim_shape_count(&t->shape) / t->shape.dim[t->shape.rank - 1];
}

/* The weight decay of an update. */
static inline double weight_decay(const brim_launch *launch)
{
  return launch->node->attr.update.no_decay ? 0 : launch->step->weight_decay;
}

/* The factor of an update's gradients, which is the last input, or 1. */
static inline double gradient_factor(const brim_launch *launch)
{
  const brim_node *n = launch->node;
  return n->attr.update.scaled ? ((const double *)launch->in[n->in_count - 1])[1] : 1;
}

/* Returns whether `value` replaces `best` in a search for the first greatest value. NaN is greater than every number,
 * so that it stays visible, and the first NaN stays. */
static inline int is_greater(double value, double best)
{
  return value > best || (isnan(value) && !isnan(best));
}

#endif
