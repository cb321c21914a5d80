/* Rows of softmax, of its logarithm and of their gradients, for one instruction set. A sum is taken in fp32 vectors
 * over each block of a row, and in double precision over the blocks, in an order that depends on the row's length
 * alone. */
#include <math.h>

#include "simd_math.h"

#include "simd_broadcast.h"

enum { BLOCK = 64 * LANES }; /* elements added up in fp32 */

/* Adds up the first `count` elements of a vector. */
static double sum_lanes(vf v, int64_t count)
{
  float values[LANES];
  double sum = 0;
  store(values, v);
  for (int64_t i = 0; i < count; i++) sum += (double)values[i];
  return sum;
}

static float greatest_of(const float *x, int64_t count)
{
  vf most = splat(-INFINITY);
  float values[LANES], greatest = -INFINITY;
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) most = max_of(most, load(x + i));
  for (; i < count; i++) greatest = x[i] > greatest ? x[i] : greatest;
  store(values, most);
  for (int k = 0; k < LANES; k++) greatest = values[k] > greatest ? values[k] : greatest;
  return greatest;
}

/* Returns the sum of exp(x - greatest), and writes its terms to y unless y is NULL. */
static double sum_exp(const float *x, float greatest, float *y, int64_t count)
{
  double sum = 0;
  int64_t i = 0;
  while (i + LANES <= count) {
    const int64_t end = i + BLOCK < count ? i + BLOCK : count;
    vf part = splat(0);
    for (; i + LANES <= end; i += LANES) {
      const vf e = exponential(load(x + i) - greatest);
      part += e;
      if (y) store(y + i, e);
    }
    sum += sum_lanes(part, LANES);
  }
  if (i < count) {
    const vf e = exponential(load_part(x + i, count - i) - greatest);
    sum += sum_lanes(e, count - i);
    if (y) store_part(y + i, e, count - i);
  }
  return sum;
}

void CPU_NAME(simd_softmax)(const float *x, float *y, int64_t count)
{
  const float factor = (float)(1 / sum_exp(x, greatest_of(x, count), y, count));
  for (int64_t i = 0; i < count; i++) y[i] *= factor;
}

void CPU_NAME(simd_log_softmax)(const float *x, float *y, int64_t count)
{
  const float greatest = greatest_of(x, count), log_sum = (float)log(sum_exp(x, greatest, NULL, count));
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) store(y + i, (load(x + i) - greatest) - log_sum);
  for (; i < count; i++) y[i] = (x[i] - greatest) - log_sum;
}

/* Returns the sum of a * b, or of b if a is NULL. */
static double sum_products(const float *a, const float *b, int64_t count)
{
  double sum = 0;
  int64_t i = 0;
  while (i + LANES <= count) {
    const int64_t end = i + BLOCK < count ? i + BLOCK : count;
    vf part = splat(0);
    for (; i + LANES <= end; i += LANES) part += a ? load(a + i) * load(b + i) : load(b + i);
    sum += sum_lanes(part, LANES);
  }
  for (; i < count; i++) sum += (double)(a ? a[i] * b[i] : b[i]);
  return sum;
}

void CPU_NAME(simd_softmax_grad)(const float *y, const float *dy, float *dx, int64_t count)
{
  const float sum = (float)sum_products(y, dy, count);
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) store(dx + i, load(y + i) * (load(dy + i) - sum));
  for (; i < count; i++) dx[i] = y[i] * (dy[i] - sum);
}

void CPU_NAME(simd_log_softmax_grad)(const float *y, const float *dy, float *dx, int64_t count)
{
  const float sum = (float)sum_products(NULL, dy, count);
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) store(dx + i, load(dy + i) - exponential(load(y + i)) * sum);
  if (i < count) {
    const int64_t rest = count - i;
    store_part(dx + i, load_part(dy + i, rest) - exponential(load_part(y + i, rest)) * sum, rest);
  }
}
