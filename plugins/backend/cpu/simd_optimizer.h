/* The vector functions of the updates of lion, adafactor and adamw8bit, for each instruction set. */
#ifndef CPU_SIMD_OPTIMIZER_H
#define CPU_SIMD_OPTIMIZER_H
#include "brim/code8.h"
#include "simd.h"

typedef struct cpu_lion {
  float decay; /* 1 - lr * weight_decay */
  float lr, beta1, one_beta1, beta2, one_beta2;
  float factor; /* multiplies the gradient */
} cpu_lion;

/* A row of a matrix whose second moments are factored. */
typedef struct cpu_factored_row {
  float factor; /* multiplies the gradient */
  float row;    /* the row's mean of squares, divided by the mean of these means over all rows */
  float least;  /* the minimum of a second moment */
  float scale;  /* multiplies u */
  float decay;  /* 1 - lr * weight_decay */
  float beta1, one_beta1;
} cpu_factored_row;

/* The codes of brim/code8.h: their values, and tables for finding the code nearest to a magnitude. Vector code first
 * finds the decade; there are few. Codes have equal distances within a decade, so a linear function then gives the
 * code. */
enum { CPU_CODE8_DECADES = 7 };
typedef struct cpu_code8 {
  float value[256];
  /* Values above limit[i] are in decade i or later; values above the last limit get the code of 1. */
  float limit[CPU_CODE8_DECADES + 1];
  /* In decade i, the code of x is slope[i] * x + shift[i], rounded down, but at least 1 and at most last[i]. */
  float slope[CPU_CODE8_DECADES], shift[CPU_CODE8_DECADES];
  float last[CPU_CODE8_DECADES];
  int32_t one; /* the code of 1 */
} cpu_code8;

typedef struct cpu_adam8 {
  cpu_adam adam; /* its l2 is 0 */
  const cpu_code8 *with_sign, *without;
} cpu_adam8;

typedef struct cpu_optimizer_simd {
  void (*lion)(const cpu_lion *c, const float *g, float *p, float *m, int64_t count);
  double (*squares)(const float *x, int64_t count); /* returns the sum of squares */
  /* sums[i] += (factor * g[i])^2. Returns the sum of these squares. */
  double (*add_squares)(float factor, const float *g, float *sums, int64_t count);
  /* Returns the sum of squares of u = factor * g / sqrt(max(row * column, least)). */
  double (*factored_squares)(const cpu_factored_row *c, const float *g, const float *column, int64_t count);
  /* d = u * scale. If m is not NULL: m = beta1 * m + one_beta1 * d, and d = m. Then p = decay * p - d. */
  void (*factored)(const cpu_factored_row *c, const float *g, const float *column, float *p, float *m, int64_t count);
  /* Updates a block of at most BRIM_CODE8_BLOCK values. */
  void (*adam8)(const cpu_adam8 *c, const float *g, float *p, uint8_t *m, float *m_absmax, uint8_t *v, float *v_absmax,
                int64_t count);
} cpu_optimizer_simd;

extern const cpu_optimizer_simd CPU_OF_ISAS(, cpu_optimizer);
#endif
