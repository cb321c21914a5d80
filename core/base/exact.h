/* Sums of doubles that do not depend on the order of the additions, nor on how they are divided among processes. Each
 * number is split into parts that are multiples of fixed powers of two, and the sums of the parts are exact. Numbers
 * are rounded to multiples of 2^-80. Exact for 2^22 additions of numbers below 2^47 in magnitude; larger ones and those
 * that are not finite are added up as doubles. */
#ifndef BRIM_BASE_EXACT_H
#define BRIM_BASE_EXACT_H

#define BRIM_EXACT_PARTS 5

/* An empty sum is {{0}}. Two sums are added part by part. */
typedef struct brim_exact {
  double part[BRIM_EXACT_PARTS]; /* sums of multiples of 2^16, of 2^-16, of 2^-48 and of 2^-80; the last part: the sum
                                    of numbers that are too large or not finite */
} brim_exact;

/* [any thread] */
void brim_exact_add(brim_exact *sum, double number);
void brim_exact_merge(brim_exact *sum, const brim_exact *other);
/* [any thread] The sum, rounded. */
double brim_exact_value(const brim_exact *sum);
#endif
