/* Numbers that a model has answered, of whichever type its backend keeps them in. */
#ifndef BRIM_TRAIN_LOGITS_H
#define BRIM_TRAIN_LOGITS_H
#include <stdint.h>

#include "brim/tensor.h"

/* Number `i` of `values`, of a real type. */
double brim_logit_at(uint32_t dtype, const void *values, int64_t i);
#endif
