/* A round of federated learning, for one instruction set. The loops are plain and the compiler makes vectors of them:
 * without fused multiply-adds and without -ffast-math (see CMakeLists.txt) an element has the same bits in each, which
 * tests/cpu/test_cpu_federate.c checks at several levels of optimisation. */
#include "simd_federate.h"

#include <math.h>

/* Eight sums side by side, whatever the vectors' length: so their order is the same for every instruction set. NaN is
 * not above anything, so the largest ignores it. */
static void distance(const float *w, const float *g, double out[2], int64_t count)
{
  enum { SUMS = 8 };
  double sum[SUMS] = {0}, largest[SUMS] = {0};
  int64_t i = 0;
  for (; i + SUMS <= count; i += SUMS)
    for (int k = 0; k < SUMS; k++) {
      const double d = (double)w[i + k] - (double)g[i + k], size = fabs(d);
      sum[k] += d * d;
      largest[k] = size > largest[k] ? size : largest[k];
    }
  for (int k = 0; i < count; i++, k++) {
    const double d = (double)w[i] - (double)g[i], size = fabs(d);
    sum[k] += d * d;
    largest[k] = size > largest[k] ? size : largest[k];
  }
  out[0] = out[1] = 0;
  for (int k = 0; k < SUMS; k++) {
    out[0] += sum[k];
    out[1] = largest[k] > out[1] ? largest[k] : out[1];
  }
}

/* v + 1536 lies between 1024 and 2048 for |v| < 512, where doubles are 2^-42 apart. */
static void fold(double weight, const float *w, const float *g, const double *old, double *sum, int64_t count)
{
  for (int64_t i = 0; i < count; i++) {
    const double v = ((double)w[i] - (double)g[i]) * weight;
    const double q = (v + 1536.0) - 1536.0;
    sum[i] = old[i] + q;
  }
}

static void serve(double factor, const double *sum, const float *x, float *y, int64_t count)
{
  if (x)
    for (int64_t i = 0; i < count; i++) y[i] = (float)((double)x[i] + sum[i] * factor);
  else
    for (int64_t i = 0; i < count; i++) y[i] = -(float)(sum[i] * factor);
}

const cpu_federate_simd CPU_NAME(cpu_federate) = {.distance = distance, .fold = fold, .serve = serve};
