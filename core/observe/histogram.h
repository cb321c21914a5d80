/* Histograms of a tensor's values by binary exponent. All counts and sums are integers, so a histogram does not depend
 * on the order of the values, nor on how they are divided among ranks, threads or micro-batches: two histograms are
 * merged by adding them. */
#ifndef BRIM_OBSERVE_HISTOGRAM_H
#define BRIM_OBSERVE_HISTOGRAM_H
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

#define BRIM_HISTOGRAM_BINS 64
#define BRIM_HISTOGRAM_FIRST (-48) /* the binary exponent of bin 0: it counts magnitudes in [2^-48, 2^-47) */

/* A tensor with more values than this is sampled: BRIM_HISTOGRAM_BLOCKS blocks of the same size, evenly spread over the
 * tensor, from its first value to its last. So a histogram's cost is bounded for any model, and no sum overflows. */
#define BRIM_HISTOGRAM_VALUES_MAX 32768
#define BRIM_HISTOGRAM_BLOCKS 8
#define BRIM_HISTOGRAM_BLOCK (BRIM_HISTOGRAM_VALUES_MAX / BRIM_HISTOGRAM_BLOCKS)

/* Values by their highest 9 bits: sign and exponent. Zeroed: empty. */
#define BRIM_HISTOGRAM_CELLS 512
typedef struct brim_histogram {
  uint64_t count[BRIM_HISTOGRAM_CELLS]; /* values, without zeros and NaN */
  uint64_t sum[BRIM_HISTOGRAM_CELLS];   /* sums of their mantissas, as integers below 2^24 */
  /* Sums of the squares of these: below 2^64 for BRIM_HISTOGRAM_VALUES_MAX values. */
  uint64_t squares[BRIM_HISTOGRAM_CELLS];
  uint64_t zeros, nans;
  uint64_t least, most; /* the smallest and largest finite value, encoded as in histogram.c; 0: none yet */
  uint64_t lost;        /* set by callers: parts whose values could not be read */
} brim_histogram;

/* [any thread] Adds values to the histogram, at most BRIM_HISTOGRAM_VALUES_MAX in all. Each value is multiplied by
 * `factor`. */
void brim_histogram_add(brim_histogram *h, const float *values, size_t count, float factor);
/* [any thread] Adds |after - before| / |before| for each value: 0 if nothing changed, infinite if `before` was 0.
 * `change` (may be NULL): gets the histogram of after - before. */
void brim_histogram_add_ratios(brim_histogram *h, brim_histogram *change, const float *before, const float *after,
                               size_t count);
/* [any thread] Adds another part of the same values. */
void brim_histogram_merge(brim_histogram *h, const brim_histogram *other);

/* Figures of a histogram. */
typedef struct brim_histogram_figures {
  uint64_t values, zeros, nans, infinite; /* `values` counts all of them */
  double least, most;                     /* least and greatest finite value; NAN: no value is finite */
  double sum, squares;                    /* sums of the finite values, and of their squares */
  double mean, rms; /* mean and root mean square of the finite values, including zeros; NAN: no value is finite */
  /* Finite values by sign and magnitude: smaller magnitudes are counted in the first bin, and larger ones in the
   * last. */
  uint64_t negative[BRIM_HISTOGRAM_BINS], positive[BRIM_HISTOGRAM_BINS];
} brim_histogram_figures;
void brim_histogram_read(const brim_histogram *h, brim_histogram_figures *out);

/* Adds the fields of a JSON object, without braces: "counted", "zeros", "nan", "infinite", "min", "max", "mean", "rms",
 * and the bins "first" (the exponent of the first one that is not empty), "negative" and "positive". */
void brim_histogram_print(const brim_histogram_figures *f, brim_text *out);

/* Block `k` of a tensor with `values` values: elements [*first, *first + *count). False: there are fewer blocks. */
bool brim_histogram_block(int64_t values, int64_t k, int64_t *first, int64_t *count);
#endif
