/* Which samples belong to which step: arithmetic only.
 *
 * An epoch's samples come in micro-batches of `batch`, `accumulation` of them a step; the last step of an epoch takes
 * what is left, and its last micro-batch may be shorter, or longer: one of fewer than `least` samples joins the
 * one before it in its step (batch norm has no statistics of fewer). Micro-batches are numbered through the whole run,
 * so any of them can be found without having made the others: that is how a run resumes. */
#ifndef BRIM_TRAIN_ORDER_H
#define BRIM_TRAIN_ORDER_H
#include <stdbool.h>

#include "train/data.h"

typedef struct brim_order {
  int64_t count, batch, accumulation; /* samples in an epoch; samples in a micro-batch; micro-batches in a step */
  int64_t micros_per_epoch, steps_per_epoch;
  int64_t steps; /* of the whole run */
  int64_t last;  /* samples in an epoch's last micro-batch */
} brim_order;

/* `steps` > 0 wins over epochs. count, batch and least at least 1. */
brim_order brim_order_make(int64_t count, int64_t batch, int64_t accumulation, int64_t least, int64_t epochs,
                           int64_t steps);
/* Samples in the largest micro-batch. */
int64_t brim_order_batch_max(const brim_order *order);
/* Micro-batch number `sequence`; count 0 after the last step. */
brim_span brim_order_span(const brim_order *order, int64_t sequence);
/* Number of the first micro-batch of a step. */
int64_t brim_order_sequence(const brim_order *order, int64_t step);
/* All samples of a step. */
brim_span brim_order_step(const brim_order *order, int64_t step);
brim_span brim_order_share(const brim_order *order, int64_t step);
/* Is this the last step of its epoch? */
bool brim_order_ends_epoch(const brim_order *order, int64_t step);
#endif
