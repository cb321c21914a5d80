/* Converts numbers through doubles, which can represent every value of the other types. See convert.h. */
#include "base/convert.h"

#include <math.h>
#include <string.h>

bool brim_dtype_is_real(uint32_t dtype)
{
  return dtype == BRIM_DTYPE_F64 || dtype == BRIM_DTYPE_F32 || dtype == BRIM_DTYPE_BF16 || dtype == BRIM_DTYPE_F16;
}

/* A type of 16 bits: sign, exponent and mantissa. */
typedef struct small {
  int mantissa_bits, exponent_bits;
} small;
static const small bf16 = {7, 8}, f16 = {10, 5};

static double widen(uint16_t bits, small type)
{
  const int top = (1 << type.exponent_bits) - 1, bias = top >> 1;
  const int exponent = bits >> type.mantissa_bits & top, mantissa = bits & ((1 << type.mantissa_bits) - 1);
  double value;
  if (exponent == top)
    value = mantissa ? NAN : INFINITY;
  else if (exponent == 0)
    value = ldexp(mantissa, 1 - bias - type.mantissa_bits);
  else
    value = ldexp(mantissa + (1 << type.mantissa_bits), exponent - bias - type.mantissa_bits);
  return bits >> 15 ? -value : value;
}

/* Rounds to the nearest value, ties to even: the default mode of nearbyint. */
static uint16_t narrow(double value, small type)
{
  const int top = (1 << type.exponent_bits) - 1, bias = top >> 1;
  const uint16_t sign = (uint16_t)(signbit(value) ? 0x8000 : 0), infinite = (uint16_t)(top << type.mantissa_bits);
  int exponent;
  if (isnan(value)) return (uint16_t)(sign | infinite | 1 << (type.mantissa_bits - 1));
  value = fabs(value);
  if (isinf(value)) return sign | infinite;
  (void)frexp(value, &exponent); /* value = [0.5, 1) * 2^exponent */
  exponent += bias - 1;
  if (value == 0 || exponent < 1) exponent = 1; /* subnormal values have no leading one */
  const double units = nearbyint(ldexp(value, type.mantissa_bits + bias - exponent));
  /* The leading one, if any, adds 1 to the exponent, and so does a mantissa that was rounded up to the next power of
   * two. */
  const double bits = units + (double)((uint32_t)(exponent - 1) << type.mantissa_bits);
  return (uint16_t)(sign | (bits >= infinite ? infinite : (uint16_t)bits));
}

static double get(uint32_t dtype, const char *from, size_t i)
{
  double wide;
  float single;
  uint16_t half;
  switch (dtype) {
  case BRIM_DTYPE_F64:
    memcpy(&wide, from + i * sizeof wide, sizeof wide);
    return wide;
  case BRIM_DTYPE_F32:
    memcpy(&single, from + i * sizeof single, sizeof single);
    return single;
  default:
    memcpy(&half, from + i * sizeof half, sizeof half);
    return widen(half, dtype == BRIM_DTYPE_F16 ? f16 : bf16);
  }
}

static void put(uint32_t dtype, void *to, size_t i, double value)
{
  switch (dtype) {
  case BRIM_DTYPE_F64:
    ((double *)to)[i] = value;
    break;
  case BRIM_DTYPE_F32:
    ((float *)to)[i] = (float)value;
    break;
  default:
    ((uint16_t *)to)[i] = narrow(value, dtype == BRIM_DTYPE_F16 ? f16 : bf16);
    break;
  }
}

/* Fast paths of frequent conversions. bf16 is the upper half of a float. */
static void widen_bf16(float *to, const char *from, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    uint16_t half;
    memcpy(&half, from + i * sizeof half, sizeof half);
    const uint32_t bits = (uint32_t)half << 16;
    memcpy(&to[i], &bits, sizeof bits);
  }
}

static void widen_floats(double *to, const char *from, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    float value;
    memcpy(&value, from + i * sizeof value, sizeof value);
    to[i] = value;
  }
}

static void narrow_doubles(float *to, const char *from, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    double value;
    memcpy(&value, from + i * sizeof value, sizeof value);
    to[i] = (float)value;
  }
}

void brim_convert(uint32_t to_dtype, void *to, uint32_t from_dtype, const void *from, size_t count)
{
  if (to_dtype == from_dtype) {
    if (count > 0) memcpy(to, from, count * brim_dtype_bytes(to_dtype));
  } else if (to_dtype == BRIM_DTYPE_F32 && from_dtype == BRIM_DTYPE_BF16) {
    widen_bf16(to, from, count);
  } else if (to_dtype == BRIM_DTYPE_F64 && from_dtype == BRIM_DTYPE_F32) {
    widen_floats(to, from, count);
  } else if (to_dtype == BRIM_DTYPE_F32 && from_dtype == BRIM_DTYPE_F64) {
    narrow_doubles(to, from, count);
  } else {
    for (size_t i = 0; i < count; i++) put(to_dtype, to, i, get(from_dtype, from, i));
  }
}

double brim_value_at(uint32_t dtype, const void *values, int64_t i)
{
  return get(dtype, values, (size_t)i);
}

bool brim_all_finite(uint32_t dtype, const void *values, size_t count)
{
  const float *single = values; /* fast path for the most frequent type */
  bool finite = true;
  if (dtype == BRIM_DTYPE_F32)
    for (size_t i = 0; i < count; i++) finite &= isfinite(single[i]) != 0;
  else
    for (size_t i = 0; i < count && finite; i++) finite = isfinite(get(dtype, values, i));
  return finite;
}
