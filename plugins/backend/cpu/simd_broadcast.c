/* Sums, differences, products and quotients of rows, and the sum of a row in double precision, for one instruction set.
 * The values after the last whole vector undergo the same operations as a vector's lanes. */
#include "simd.h"

#include "simd_broadcast.h"

/* A repeated operand is read once, into a variable that hides its name in the loops. */
#define ROW(name, op, a_vector, a_element, b_vector, b_element)                                                        \
  static void name(const float *a, const float *b, float *y, int64_t count)                                            \
  {                                                                                                                    \
    const float first_a = a[0], first_b = b[0];                                                                        \
    const vf all_a = splat(first_a), all_b = splat(first_b);                                                           \
    int64_t i = 0;                                                                                                     \
    (void)all_a, (void)all_b, (void)first_a, (void)first_b;                                                            \
    for (; i + LANES <= count; i += LANES) store(y + i, a_vector op b_vector);                                         \
    for (; i < count; i++) y[i] = a_element op b_element;                                                              \
  }
#define ROWS(name, op)                                                                                                 \
  ROW(name##_both, op, load(a + i), a[i], load(b + i), b[i])                                                           \
  ROW(name##_by_one, op, load(a + i), a[i], all_b, first_b)                                                            \
  ROW(name##_from_one, op, all_a, first_a, load(b + i), b[i])                                                          \
  ROW(name##_ones, op, all_a, first_a, all_b, first_b)
#define TABLE_OF(name)                                                                                                 \
  {                                                                                                                    \
    {name##_both, name##_by_one},                                                                                      \
    {                                                                                                                  \
      name##_from_one, name##_ones                                                                                     \
    }                                                                                                                  \
  }
ROWS(add, +)
ROWS(sub, -)
ROWS(mul, *)
ROWS(div, /)

static void add_row(const float *x, double *sum, int64_t count)
{
  for (int64_t i = 0; i < count; i++) sum[i] += (double)x[i];
}

enum { PARTS = 16 };

static double sum_row(const float *x, int64_t count)
{
  double part[PARTS] = {0}, sum = 0;
  int64_t i = 0;
  for (; i + PARTS <= count; i += PARTS)
    for (int k = 0; k < PARTS; k++) part[k] += (double)x[i + k];
  for (; i < count; i++) sum += (double)x[i];
  for (int k = 0; k < PARTS; k++) sum += part[k];
  return sum;
}

const cpu_broadcast CPU_NAME(cpu_broadcast) = {
    .binary =
        {[CPU_ADD] = TABLE_OF(add), [CPU_SUB] = TABLE_OF(sub), [CPU_MUL] = TABLE_OF(mul), [CPU_DIV] = TABLE_OF(div)},
    .add_row = add_row,
    .sum_row = sum_row,
    .softmax = CPU_NAME(simd_softmax),
    .softmax_grad = CPU_NAME(simd_softmax_grad),
    .log_softmax = CPU_NAME(simd_log_softmax),
    .log_softmax_grad = CPU_NAME(simd_log_softmax_grad),
};
