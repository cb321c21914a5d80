/* How a step's samples are distributed over the ranks: evenly, or by weights. */
#ifndef BRIM_SETUP_DISTRIBUTION_H
#define BRIM_SETUP_DISTRIBUTION_H
#include <stdbool.h>
#include <stdint.h>

#include "data/order.h"

#define BRIM_PARTS_A_RANK 64 /* into which a step is divided for distribution */

/* Ready when zeroed: even distribution. */
typedef struct brim_distribution {
  int64_t *weight; /* of each rank, which gets this share of the sum of all weights; NULL: equal shares */
  int64_t *batch;  /* samples in each rank's micro-batches; NULL: unknown */
  bool is_settled; /* the ranks have agreed on it */
} brim_distribution;

void brim_distribution_release(brim_distribution *distribution);
/* Computes weights from each rank's time per sample, in any unit: faster ranks get more, at least 1, with a sum of
 * BRIM_PARTS_A_RANK times the number of ranks. Uses integers only, so that every rank gets the same result. False,
 * with nothing written, if a time is unknown (0). */
bool brim_distribution_weigh(const uint64_t *sample_time, int32_t ranks, int64_t *weight);
/* The portion of one rank. */
brim_portion brim_distribution_portion(const brim_distribution *distribution, int32_t rank, int32_t ranks);
#endif
