/* The clocks of a job's ranks, for traces. Ranks of one host have the same clock. The clock of another host has an
 * offset, which the ranks find by exchanging readings: a message is received after it was sent. */
#ifndef BRIM_TRAIN_CLOCKS_H
#define BRIM_TRAIN_CLOCKS_H
#include <stddef.h>
#include <stdint.h>

#include "dist/dist.h"

/* Readings, in nanoseconds, of one rank's clock before and after an exchange in which every rank receives a message
 * from every other rank. */
typedef struct brim_clock_reading {
  int64_t before, after;
} brim_clock_reading;

typedef struct brim_clock_offset {
  int64_t nanoseconds; /* this rank's clock minus rank 0's */
  int64_t error;       /* the largest possible error of `nanoseconds` */
} brim_clock_offset;

/* Computes the offset from the readings of rank 0 and this rank for the same `count` exchanges. */
brim_clock_offset brim_clock_offset_of(const brim_clock_reading *first, const brim_clock_reading *own, size_t count);
/* [step] Finds this rank's offset, together with all ranks, and rank 0's time at the last exchange. ECOMM; ENOMEM_HOST.
 * {0, 0} without other ranks, or on the host of rank 0. */
brim_status brim_clocks_compare(brim_dist *dist, brim_clock_offset *out, int64_t *now);
#endif
