/* How a step's samples are dealt to the ranks, as arithmetic: to each as many, or by weights. */
#ifndef BRIM_SETUP_DEALING_H
#define BRIM_SETUP_DEALING_H
#include <stdbool.h>
#include <stdint.h>

#include "data/order.h"

#define BRIM_PARTS_A_RANK 64 /* that a step is cut into, to be dealt */

/* Ready when zeroed: to each as many. */
typedef struct brim_dealing {
  int64_t *weight; /* of each rank: its part of a step is the weight, of the sum of all; NULL: all have the same */
  int64_t *batch;  /* samples in each rank's micro-batches; NULL: not known */
  bool is_settled; /* the ranks have agreed on it */
} brim_dealing;

void brim_dealing_release(brim_dealing *deal);
/* Weights by what a sample takes on each rank, in any unit: the faster the more, at least 1, together BRIM_PARTS_A_RANK
 * for each rank. Integers only, so that every rank comes to the same. False, and nothing written, if some is not
 * known: 0. */
bool brim_dealing_weigh(const uint64_t *sample_time, int32_t ranks, int64_t *weight);
/* Of one of so many ranks. */
brim_portion brim_dealing_portion(const brim_dealing *deal, int32_t rank, int32_t ranks);
#endif
