/* Normal random numbers, many at a time. */
#ifndef BRIM_EXEC_NORMAL_H
#define BRIM_EXEC_NORMAL_H
#include <stdint.h>

enum { BRIM_NORMAL_BLOCK = 64 }; /* numbers that are drawn at a time */

/* [any thread] Computes the elements first .. first + BRIM_NORMAL_BLOCK - 1 of the stream of initial values (seed,
 * item), each times `scale`; first must be a multiple of 4. A value is the result of brim_normal_pair(), rounded to a
 * float. */
void brim_normal_block(uint64_t seed, uint64_t item, double scale, int64_t first, float out[BRIM_NORMAL_BLOCK]);

/* [any thread] Computes two normal values with standard deviation `scale` from two uniform ones in [0, 1), by the
 * Box-Muller transform. */
void brim_normal_pair(double scale, double u, double w, double out[2]);

#endif
