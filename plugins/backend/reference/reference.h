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

/* [step] The `run` of each operation; tensors, shapes and attributes as listed in brim/ops.h. */
brim_status reference_conv2d(void *self, const brim_launch *launch);
brim_status reference_conv2d_grad_input(void *self, const brim_launch *launch);
brim_status reference_conv2d_grad_weight(void *self, const brim_launch *launch);
brim_status reference_linear(void *self, const brim_launch *launch);
brim_status reference_linear_grad_input(void *self, const brim_launch *launch);
brim_status reference_linear_grad_weight(void *self, const brim_launch *launch);
brim_status reference_relu(void *self, const brim_launch *launch);
brim_status reference_relu_grad(void *self, const brim_launch *launch);
brim_status reference_dropout(void *self, const brim_launch *launch);
brim_status reference_dropout_grad(void *self, const brim_launch *launch);
brim_status reference_add(void *self, const brim_launch *launch);
brim_status reference_reshape(void *self, const brim_launch *launch);
brim_status reference_max_pool2d(void *self, const brim_launch *launch);
brim_status reference_max_pool2d_grad(void *self, const brim_launch *launch);
brim_status reference_softmax_cross_entropy(void *self, const brim_launch *launch);
brim_status reference_softmax_cross_entropy_grad(void *self, const brim_launch *launch);
brim_status reference_classification_metrics(void *self, const brim_launch *launch);
brim_status reference_adamw(void *self, const brim_launch *launch);
brim_status reference_adam(void *self, const brim_launch *launch);
brim_status reference_sgd(void *self, const brim_launch *launch);
brim_status reference_ema(void *self, const brim_launch *launch);
brim_status reference_squared_norm(void *self, const brim_launch *launch);
brim_status reference_gradient_scale(void *self, const brim_launch *launch);

/* Whether `value` takes the place of `best` in a search for the first greatest value. NaN counts as
 * greater than every number, so that it is passed on and not hidden, and the first NaN stays. */
static inline int is_greater(double value, double best)
{
  return value > best || (isnan(value) && !isnan(best));
}

#endif
