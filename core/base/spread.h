/* Statistics of how evenly something is distributed. Each distinct value is stored with its count, so a million mostly
 * equal values take little memory. */
#ifndef BRIM_BASE_SPREAD_H
#define BRIM_BASE_SPREAD_H
#include <stddef.h>

#include "brim/status.h"

typedef struct brim_spread {
  double mean, variance; /* variance: of the population, not of a sample */
  double gini;           /* Gini coefficient: 0 if all values are equal; NAN if their sum is 0 */
} brim_spread;

typedef struct brim_tally_item {
  double value, times;
} brim_tally_item;
typedef struct brim_tally { /* empty: {0} */
  brim_tally_item *item;
  size_t count, room;
} brim_tally;

/* [any thread] Adds a value that must not be negative or NAN. ENOMEM_HOST: the value is not added. */
brim_status brim_tally_add(brim_tally *tally, double value);
/* [any thread] Computes the figures; all are NAN for an empty tally. */
brim_spread brim_tally_spread(brim_tally *tally);
void brim_tally_release(brim_tally *tally);
#endif
