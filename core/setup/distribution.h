/* Divides a step's samples among the ranks: evenly, or by weights. */
#ifndef BRIM_SETUP_DISTRIBUTION_H
#define BRIM_SETUP_DISTRIBUTION_H
#include <stdbool.h>
#include <stdint.h>

#include "data/order.h"

#define BRIM_PARTS_A_RANK 64 /* parts per rank into which a step is divided */

/* A zeroed struct means an even distribution. */
typedef struct brim_distribution {
  int64_t *weight; /* each rank's weight: its part of a step is its weight divided by the sum of all weights; NULL:
                      equal parts */
  int64_t *batch;  /* samples in the micro-batches of each rank; NULL: unknown */
  bool is_settled; /* the ranks have agreed on the distribution */
} brim_distribution;

void brim_distribution_release(brim_distribution *distribution);
/* Computes weights from each rank's time per sample, in any unit: faster ranks get more, every rank at least 1, and the
 * sum is BRIM_PARTS_A_RANK times the number of ranks. Uses integers only, so that every rank gets the same result.
 * False, with nothing written, if a time is unknown (0). */
bool brim_distribution_weigh(const uint64_t *sample_time, int32_t ranks, int64_t *weight);
/* The portion of one rank. */
brim_portion brim_distribution_portion(const brim_distribution *distribution, int32_t rank, int32_t ranks);
#endif
