/* Operations of a federated round, for one instruction set. Loops are scalar, or use vectors of the same length for
 * every instruction set. The files are compiled without fused multiply-adds and -ffast-math (see CMakeLists.txt), so an
 * element has the same bits for every set. tests/cpu/test_cpu_federate.c checks this at several optimization levels. */
#include "simd_federate.h"

#include <string.h>

enum { SUMS = 8 };
typedef float floats __attribute__((vector_size(SUMS * sizeof(float))));
typedef double doubles __attribute__((vector_size(SUMS * sizeof(double))));
typedef int64_t masks __attribute__((vector_size(SUMS * sizeof(int64_t))));

/* Uses eight sums for any vector length, so that the order is the same for every instruction set. The maximum ignores
 * NaN. */
static void distance(const float *w, const float *g, double out[2], int64_t count)
{
  doubles sum = {0}, largest = {0};
  for (int64_t i = 0; i < count; i += SUMS) {
    const size_t bytes = (size_t)(count - i < SUMS ? count - i : SUMS) * sizeof(float);
    floats a = {0}, b = {0};
    if (bytes == sizeof a) {
      memcpy(&a, w + i, sizeof a);
      memcpy(&b, g + i, sizeof b);
    } else {
      memcpy(&a, w + i, bytes);
      memcpy(&b, g + i, bytes);
    }
    const doubles d = __builtin_convertvector(a, doubles) - __builtin_convertvector(b, doubles);
    const doubles size = (doubles)((masks)d & INT64_MAX);
    const masks is_more = size > largest;
    sum += d * d;
    largest = (doubles)(((masks)size & is_more) | ((masks)largest & ~is_more));
  }
  out[0] = out[1] = 0;
  for (int k = 0; k < SUMS; k++) {
    out[0] += sum[k];
    out[1] = largest[k] > out[1] ? largest[k] : out[1];
  }
}

static void steer(double factor, const float *w, const float *g, const float *old, float *gradient, int64_t count)
{
  for (int64_t i = 0; i < count; i++) gradient[i] = (float)((double)old[i] + ((double)w[i] - (double)g[i]) * factor);
}

static void steer_by(double factor, double control_factor, const float *w, const float *g, const float *old,
                     const float *control, float *gradient, int64_t count)
{
  for (int64_t i = 0; i < count; i++)
    gradient[i] =
        (float)((double)old[i] + ((double)w[i] - (double)g[i]) * factor + (double)control[i] * control_factor);
}

/* Rounds to multiples of 2^-42: for |v| < 512, v + 1536 lies between 1024 and 2048, where doubles are 2^-42 apart. */
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

const cpu_federate_simd CPU_NAME(cpu_federate) = {
    .distance = distance, .steer = steer, .steer_by = steer_by, .fold = fold, .serve = serve};
