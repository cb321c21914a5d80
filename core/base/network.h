/* Sorting networks, which sort many columns of numbers at once: a fixed list of exchanges, each of which puts two rows
 * in order, column by column (Batcher's merge exchange: Knuth, The Art of Computer Programming 3, 5.2.2, algorithm M).
 * Numbers must be finite. */
#ifndef BRIM_BASE_NETWORK_H
#define BRIM_BASE_NETWORK_H
#include <stdint.h>

#define BRIM_NETWORK_COLUMNS 32

typedef struct brim_exchange {
  uint32_t low, high; /* rows: the smaller number goes to `low`, the larger one to `high` */
} brim_exchange;

/* The number of exchanges that sort `rows` rows. */
uint64_t brim_network_count(uint32_t rows);
/* Lists the exchanges that rows first..end-1 of the sorted result need; the other rows may end up in any order. `out`
 * has room for brim_network_count(rows), `needed` for `rows` bytes. Returns their number. */
uint64_t brim_network_make(uint32_t rows, uint32_t first, uint32_t end, brim_exchange *out, uint8_t *needed);
/* Sorts each column of values [rows, BRIM_NETWORK_COLUMNS]. */
void brim_network_sort(const brim_exchange *exchange, uint64_t count, double *values);
#endif
