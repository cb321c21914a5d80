/* The 16-bit storage types: bfloat16, the upper half of a float, and IEEE 754's binary16. The functions here convert
 * one number with integer operations; simd_half.c converts vectors, to the same bits. Rounding is to nearest, ties to
 * even; overflow gives infinity, and NaN stays NaN. */
#ifndef CPU_HALF_H
#define CPU_HALF_H
#include <stdint.h>
#include <string.h>

#include "brim/tensor.h"
#include "isa.h"

static inline uint32_t cpu_float_bits(float x)
{
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static inline float cpu_float_of(uint32_t bits)
{
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static inline float cpu_bf16_widen(uint16_t x)
{
  return cpu_float_of((uint32_t)x << 16);
}

static inline uint16_t cpu_bf16_round(float x)
{
  const uint32_t bits = cpu_float_bits(x), rounded = bits + 0x7FFF + (bits >> 16 & 1);
  return (uint16_t)((bits & 0x7FFFFFFF) > 0x7F800000 ? bits >> 16 | 0x40 : rounded >> 16);
}

static inline float cpu_f16_widen(uint16_t x)
{
  const uint32_t sign = (uint32_t)(x & 0x8000) << 16, exponent = x >> 10 & 0x1F, mantissa = x & 0x3FF;
  if (exponent == 0x1F) return cpu_float_of(sign | 0x7F800000 | mantissa << 13 | (mantissa ? 0x400000 : 0));
  if (exponent > 0) return cpu_float_of(sign | (exponent + 127 - 15) << 23 | mantissa << 13);
  return cpu_float_of(sign | cpu_float_bits((float)mantissa * 0x1p-24f));
}

static inline uint16_t cpu_f16_round(float x)
{
  const uint32_t bits = cpu_float_bits(x), sign = bits >> 16 & 0x8000, size = bits & 0x7FFFFFFF;
  uint32_t half;
  if (size > 0x7F800000)
    half = 0x7E00 | (size >> 13 & 0x3FF);
  else if (size >= 0x477FF000) /* 65520, halfway between the largest number and the next power of two */
    half = 0x7C00;
  else if (size >= 0x38800000) /* 2^-14 */
    half = (size - ((127 - 15) << 23) + 0xFFF + (size >> 13 & 1)) >> 13;
  else /* a multiple of 2^-24, like a float in [0.5, 1), so the addition rounds */
    half = cpu_float_bits(cpu_float_of(size) + 0.5f) - cpu_float_bits(0.5f);
  return (uint16_t)(sign | half);
}

typedef struct cpu_half {
  void (*widen)(const uint16_t *from, float *to, int64_t count);
  void (*round)(const float *from, uint16_t *to, int64_t count);
  void (*settle)(float *a, float *b, int64_t count); /* a = the rounded sum of a and b, as a float; b = -0 */
} cpu_half;

/* The conversions of an instruction set. */
typedef struct cpu_halves {
  cpu_half bf16, f16;
} cpu_halves;
extern const cpu_halves CPU_OF_ISAS(, cpu_halves);
/* isa: see cpu_backend. */
static inline const cpu_half *cpu_half_of(int isa, uint32_t dtype)
{
  static const cpu_halves *const tables[] = {CPU_OF_ISAS(&, cpu_halves)};
  return dtype == BRIM_DTYPE_F16 ? &tables[isa]->f16 : &tables[isa]->bf16;
}
#endif
