/* Values of tensors as numbers, whatever type they are kept in. */
#ifndef BRIM_TRAIN_VALUES_H
#define BRIM_TRAIN_VALUES_H
#include <stdint.h>

#include "brim/tensor.h"

/* [any thread] Number `i` of values of a real type. */
double brim_value_at(uint32_t dtype, const void *values, int64_t i);
#endif
