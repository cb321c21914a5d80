/* How evenly something is shared out. Values are kept with how often each occurs, so a million of them that are mostly
 * equal take little room. */
#ifndef BRIM_BASE_SPREAD_H
#define BRIM_BASE_SPREAD_H
#include <stddef.h>

#include "brim/status.h"

typedef struct brim_spread {
  double mean, variance; /* variance: of all values, which are no sample of others */
  double gini;           /* Gini coefficient: 0 if all values are equal; NAN if they add up to 0 */
} brim_spread;

typedef struct brim_tally_item {
  double value, times;
} brim_tally_item;
typedef struct brim_tally { /* empty: {0} */
  brim_tally_item *item;
  size_t count, room;
} brim_tally;

/* [any thread] Adds a value that is not negative and no NAN. ENOMEM_HOST: it is not added. */
brim_status brim_tally_add(brim_tally *tally, double value);
/* [any thread] Of no values all figures are NAN. */
brim_spread brim_tally_spread(brim_tally *tally);
void brim_tally_release(brim_tally *tally);
#endif
