/* Which samples belong to which step, and to which rank: arithmetic only.
 *
 * An epoch's samples come in steps of `effective` samples; the last step of an epoch takes what is left. The samples of
 * a step are dealt to the ranks in units, which nobody cuts: norm groups, or single samples. Of S samples there are
 * max(1, S / unit) units; fewer than `unit` samples at the end belong to the last one. Each rank has some units in a
 * row, its share, and cuts it into micro-batches of `batch`; the last may be shorter, or longer: one of fewer than
 * `unit` samples joins the one before it (batch norm has no statistics of fewer). A rank's micro-batches are numbered
 * through the whole run, so any of them can be found without having made the others: that is how a run resumes. */
#ifndef BRIM_DATA_ORDER_H
#define BRIM_DATA_ORDER_H
#include <stdbool.h>

#include "data/data.h"

/* A rank's part of a step's units: of U units those from U * from / of on, before U * to / of, both rounded down. All
 * ranks' portions together are 0 to `of`. U times `of` must be below 2^63. */
typedef struct brim_portion {
  int64_t from, to, of;
} brim_portion;

typedef struct brim_order {
  int64_t count, effective, batch; /* samples in an epoch; in a step; in a micro-batch of this rank */
  int64_t unit;                    /* samples that stay together */
  brim_portion portion;            /* this rank's */
  int64_t steps_per_epoch;
  int64_t steps;               /* of the whole run */
  int64_t micros, last_micros; /* this rank's micro-batches in a step, and in the last of an epoch; may be 0 */
} brim_order;

/* That of each rank, where all have as much. */
brim_portion brim_portion_even(int32_t rank, int32_t ranks);
/* Its samples of a step of `samples`: *first counts from the step's first. */
void brim_portion_of(const brim_portion *portion, int64_t samples, int64_t unit, int64_t *first, int64_t *count);

/* `steps` > 0 wins over epochs. count, effective, batch and unit at least 1. */
brim_order brim_order_make(int64_t count, int64_t effective, int64_t batch, int64_t unit, brim_portion portion,
                           int64_t epochs, int64_t steps);
/* Micro-batches that come in different sizes, a size each: written to `size`, and how many. 0: the rank has none. */
#define BRIM_ORDER_SIZES 4
size_t brim_order_sizes(const brim_order *order, int64_t size[BRIM_ORDER_SIZES]);
/* Samples in the largest micro-batch; 0: there is none. */
int64_t brim_order_batch_max(const brim_order *order);
/* This rank's micro-batch number `sequence`; count 0 after the last step. */
brim_span brim_order_span(const brim_order *order, int64_t sequence);
/* Number of this rank's first micro-batch of a step, or of the next one that has any. */
int64_t brim_order_sequence(const brim_order *order, int64_t step);
/* All samples of a step, of all ranks together. A sample's place in the step is its distance from the first of them. */
brim_span brim_order_step(const brim_order *order, int64_t step);
/* This rank's part of them; count 0: none. */
brim_span brim_order_share(const brim_order *order, int64_t step);
/* Is this the last step of its epoch? */
bool brim_order_ends_epoch(const brim_order *order, int64_t step);
#endif
