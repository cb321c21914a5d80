/* See values.h. */
#include "train/values.h"

#include <math.h>
#include <string.h>

static double bf16_value(uint16_t half)
{
  const uint32_t bits = (uint32_t)half << 16; /* the upper half of a float */
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static double f16_value(uint16_t half)
{
  const int exponent = half >> 10 & 31, digits = half & 1023;
  double size = exponent ? ldexp(digits + 1024, exponent - 25) : ldexp(digits, -24);
  if (exponent == 31) size = digits ? NAN : INFINITY;
  return half & 0x8000 ? -size : size;
}

double brim_value_at(uint32_t dtype, const void *values, int64_t i)
{
  switch (dtype) {
  case BRIM_DTYPE_BF16:
    return bf16_value(((const uint16_t *)values)[i]);
  case BRIM_DTYPE_F16:
    return f16_value(((const uint16_t *)values)[i]);
  case BRIM_DTYPE_F64:
    return ((const double *)values)[i];
  default:
    return (double)((const float *)values)[i];
  }
}
