/* Computes which samples belong to each step and rank.
 *
 * An epoch's samples are divided into steps of `effective` samples; the last step of an epoch takes the remainder. The
 * samples of a step are distributed to the ranks in indivisible units: norm groups, or single samples. S samples make
 * max(1, S / unit) units; a rest of fewer than `unit` samples belongs to the last one. Each rank has consecutive units,
 * its share, and divides it into micro-batches of `batch`; the last may be shorter, or longer: a rest of fewer than
 * `unit` samples joins the micro-batch before it (batch norm has no statistics of fewer). A rank's micro-batches are
 * numbered through the whole run, and each can be computed from its number alone, so a run can resume at any of
 * them. */
#ifndef BRIM_DATA_ORDER_H
#define BRIM_DATA_ORDER_H
#include <stdbool.h>

#include "data/data.h"

/* A rank's part of a step's units: of U units those from U * from / of up to U * to / of, both rounded down. The
 * portions of all ranks cover 0 to `of`. U times `of` must be below 2^63. */
typedef struct brim_portion {
  int64_t from, to, of;
} brim_portion;

typedef struct brim_order {
  int64_t count, effective, batch; /* samples in an epoch, in a step, and in a micro-batch of this rank */
  int64_t unit;                    /* samples that stay together */
  brim_portion portion;            /* this rank's portion of each step */
  int64_t steps_per_epoch;
  int64_t steps;               /* steps of the whole run */
  int64_t micros, last_micros; /* this rank's micro-batches in a step, and in the last step of an epoch; may be 0 */
} brim_order;

/* The portion of each rank if all portions are equal. */
brim_portion brim_portion_even(int32_t rank, int32_t ranks);
/* Finds the samples of a portion in a step of `samples` samples; *first is relative to the start of the step. */
void brim_portion_of(const brim_portion *portion, int64_t samples, int64_t unit, int64_t *first, int64_t *count);

/* Makes an order; `steps` > 0 takes precedence over epochs. count, effective, batch and unit must be at least 1. */
brim_order brim_order_make(int64_t count, int64_t effective, int64_t batch, int64_t unit, brim_portion portion,
                           int64_t epochs, int64_t steps);
/* Writes the distinct sizes of this rank's micro-batches to `size` and returns their number, 0 if the rank has none. */
#define BRIM_ORDER_SIZES 4
size_t brim_order_sizes(const brim_order *order, int64_t size[BRIM_ORDER_SIZES]);
/* Samples in the largest micro-batch; 0: there is none. */
int64_t brim_order_batch_max(const brim_order *order);
/* Returns this rank's micro-batch with number `sequence`; count 0 after the last step. */
brim_span brim_order_span(const brim_order *order, int64_t sequence);
/* The number of this rank's first micro-batch in a step, or, if the step has none, in the next step that has one. */
int64_t brim_order_sequence(const brim_order *order, int64_t step);
/* All samples of a step, of all ranks. A sample's place in the step is its distance from the first sample. */
brim_span brim_order_step(const brim_order *order, int64_t step);
/* Returns this rank's samples of a step; count 0: none. */
brim_span brim_order_share(const brim_order *order, int64_t step);
/* Whether this is the last step of its epoch. */
bool brim_order_ends_epoch(const brim_order *order, int64_t step);
#endif
