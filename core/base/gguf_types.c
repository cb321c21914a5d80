/* The block types of GGUF. Each block consists of its scales and its packed values. The arithmetic is in single
 * precision, in the same order as in the Python package gguf (gguf/quants.py), so that values have the same bits. See
 * gguf.h. */
#include <math.h>
#include <string.h>

#include "base/gguf.h"

#define SMALL 32 /* values of a block of the simple types */
#define LARGE 256

static float bits_to_float(uint32_t bits)
{
  float out;
  memcpy(&out, &bits, sizeof out);
  return out;
}

static uint32_t float_to_bits(float value)
{
  uint32_t out;
  memcpy(&out, &value, sizeof out);
  return out;
}

static uint16_t half_bits(const unsigned char *from)
{
  return (uint16_t)(from[0] | from[1] << 8);
}

static float half(const unsigned char *from)
{
  const uint16_t h = half_bits(from);
  const uint32_t sign = (uint32_t)(h >> 15) << 31, exponent = h >> 10 & 31, mantissa = h & 1023;
  if (exponent == 0) {
    const float value = (float)mantissa * 0x1p-24f;
    return sign ? -value : value;
  }
  if (exponent == 31) return bits_to_float(sign | 0x7f800000u | mantissa << 13);
  return bits_to_float(sign | (exponent + 112) << 23 | mantissa << 13);
}

/* Rounds to the nearest, ties to even. */
static uint16_t to_half(float value)
{
  const uint32_t bits = float_to_bits(value), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
  if (size > 0x7f800000) return (uint16_t)(sign | 0x7e00);
  if (size >= 0x477ff000) return (uint16_t)(sign | 0x7c00);                                  /* 65520 and more */
  if (size < 0x38800000) return (uint16_t)(sign | (uint32_t)lrintf(fabsf(value) * 0x1p24f)); /* below 2^-14 */
  return (uint16_t)(sign | ((size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13));
}

static void put_half(unsigned char *to, uint16_t h)
{
  to[0] = (unsigned char)h;
  to[1] = (unsigned char)(h >> 8);
}

/* ---- one value a block ---- */

static void unpack_f32(const unsigned char *from, size_t blocks, float *to)
{
  memcpy(to, from, blocks * sizeof *to);
}

static void pack_f32(const float *from, size_t blocks, unsigned char *to)
{
  memcpy(to, from, blocks * sizeof *from);
}

static void unpack_f16(const unsigned char *from, size_t blocks, float *to)
{
  for (size_t i = 0; i < blocks; i++) to[i] = half(from + 2 * i);
}

static void pack_f16(const float *from, size_t blocks, unsigned char *to)
{
  for (size_t i = 0; i < blocks; i++) put_half(to + 2 * i, to_half(from[i]));
}

static void unpack_bf16(const unsigned char *from, size_t blocks, float *to)
{
  for (size_t i = 0; i < blocks; i++) to[i] = bits_to_float((uint32_t)half_bits(from + 2 * i) << 16);
}

static void pack_bf16(const float *from, size_t blocks, unsigned char *to)
{
  for (size_t i = 0; i < blocks; i++) {
    uint32_t bits = float_to_bits(from[i]);
    if ((bits & 0x7fffffff) > 0x7f800000) bits = (bits & 0xffff0000) | 64 << 16;
    put_half(to + 2 * i, (uint16_t)(((uint64_t)bits + 0x7fff + (bits >> 16 & 1)) >> 16));
  }
}

/* ---- 32 values a block ---- */

static void unpack_q8_0(const unsigned char *from, size_t blocks, float *to)
{
  for (size_t b = 0; b < blocks; b++, from += 34, to += SMALL) {
    const float d = half(from);
    for (int i = 0; i < SMALL; i++) to[i] = (float)(int8_t)from[2 + i] * d;
  }
}

static void pack_q8_0(const float *from, size_t blocks, unsigned char *to)
{
  for (size_t b = 0; b < blocks; b++, from += SMALL, to += 34) {
    float most = 0;
    for (int i = 0; i < SMALL; i++) most = fmaxf(most, fabsf(from[i]));
    const float d = most / 127.0f, inverse = d == 0 ? 0 : 1.0f / d;
    put_half(to, to_half(d));
    for (int i = 0; i < SMALL; i++) {
      const float x = from[i] * inverse, size = fabsf(x), low = floorf(size);
      const float rounded = low + floorf(2 * (size - low)); /* half away from zero */
      to[2 + i] = (unsigned char)(int8_t)(x < 0 ? -rounded : rounded);
    }
  }
}

/* Returns the four bits of value i: those of the first half of the values are the low bits of the bytes. */
static int nibble(const unsigned char *from, int i)
{
  return i < SMALL / 2 ? from[i] & 15 : from[i - SMALL / 2] >> 4;
}

static int fifth(const unsigned char *bits, int i)
{
  return (bits[i / 8] >> (i % 8) & 1) << 4;
}

static void unpack_q4_0(const unsigned char *from, size_t blocks, float *to)
{
  for (size_t b = 0; b < blocks; b++, from += 18, to += SMALL) {
    const float d = half(from);
    for (int i = 0; i < SMALL; i++) to[i] = d * (float)(nibble(from + 2, i) - 8);
  }
}

static void unpack_q4_1(const unsigned char *from, size_t blocks, float *to)
{
  for (size_t b = 0; b < blocks; b++, from += 20, to += SMALL) {
    const float d = half(from), m = half(from + 2);
    for (int i = 0; i < SMALL; i++) {
      const float scaled = d * (float)nibble(from + 4, i);
      to[i] = scaled + m;
    }
  }
}

static void unpack_q5_0(const unsigned char *from, size_t blocks, float *to)
{
  for (size_t b = 0; b < blocks; b++, from += 22, to += SMALL) {
    const float d = half(from);
    for (int i = 0; i < SMALL; i++) to[i] = d * (float)((nibble(from + 6, i) | fifth(from + 2, i)) - 16);
  }
}

static void unpack_q5_1(const unsigned char *from, size_t blocks, float *to)
{
  for (size_t b = 0; b < blocks; b++, from += 24, to += SMALL) {
    const float d = half(from), m = half(from + 2);
    for (int i = 0; i < SMALL; i++) {
      const float scaled = d * (float)(nibble(from + 8, i) | fifth(from + 4, i));
      to[i] = scaled + m;
    }
  }
}

/* ---- blocks of 256 values, with one scale for each 32 or 16 values ---- */

/* Reads scale and minimum number j of 8, which have 6 bits each and are packed into 12 bytes. */
static void k_scale(const unsigned char *from, int j, int *scale, int *minimum)
{
  if (j < 4) {
    *scale = from[j] & 63;
    *minimum = from[j + 4] & 63;
  } else {
    *scale = (from[j + 4] & 15) | (from[j - 4] >> 2 & 48);
    *minimum = from[j + 4] >> 4 | (from[j] >> 2 & 48);
  }
}

/* Unpacks Q4_K and, with `high`, Q5_K: bit j of high[i] is the fifth bit of value i of group j. */
static void unpack_k(const unsigned char *scales, const unsigned char *high, const unsigned char *low, float d, float m,
                     float *to)
{
  for (int j = 0; j < 8; j++) {
    int scale, minimum;
    k_scale(scales, j, &scale, &minimum);
    const float own = d * (float)scale, less = m * (float)minimum;
    for (int i = 0; i < 32; i++) {
      int q = low[j / 2 * 32 + i] >> j % 2 * 4 & 15;
      if (high) q |= (high[i] >> j & 1) << 4;
      const float scaled = own * (float)q;
      to[j * 32 + i] = scaled - less;
    }
  }
}

static void unpack_q4_k(const unsigned char *from, size_t blocks, float *to)
{
  for (size_t b = 0; b < blocks; b++, from += 144, to += LARGE)
    unpack_k(from + 4, NULL, from + 16, half(from), half(from + 2), to);
}

static void unpack_q5_k(const unsigned char *from, size_t blocks, float *to)
{
  for (size_t b = 0; b < blocks; b++, from += 176, to += LARGE)
    unpack_k(from + 4, from + 16, from + 48, half(from), half(from + 2), to);
}

static void unpack_q6_k(const unsigned char *from, size_t blocks, float *to)
{
  for (size_t b = 0; b < blocks; b++, from += 210, to += LARGE) {
    const float d = half(from + 208);
    for (int i = 0; i < LARGE; i++) {
      /* Each group g: its low bits are in 64 bytes, which two groups share. */
      const int side = i / 128, group = i % 128 / 32, at = i % 32;
      const int low = from[side * 64 + group % 2 * 32 + at] >> group / 2 * 4 & 15;
      const int high = from[128 + side * 32 + at] >> 2 * group & 3;
      const float own = d * (float)(int8_t)from[192 + i / 16];
      to[i] = own * (float)((low | high << 4) - 32);
    }
  }
}

/* ---- the table ---- */

static const brim_gguf_type types[] = {
    {"F32", 0, 1, 4, unpack_f32, pack_f32},         {"F16", 1, 1, 2, unpack_f16, pack_f16},
    {"Q4_0", 2, SMALL, 18, unpack_q4_0, NULL},      {"Q4_1", 3, SMALL, 20, unpack_q4_1, NULL},
    {"Q5_0", 6, SMALL, 22, unpack_q5_0, NULL},      {"Q5_1", 7, SMALL, 24, unpack_q5_1, NULL},
    {"Q8_0", 8, SMALL, 34, unpack_q8_0, pack_q8_0}, {"Q4_K", 12, LARGE, 144, unpack_q4_k, NULL},
    {"Q5_K", 13, LARGE, 176, unpack_q5_k, NULL},    {"Q6_K", 14, LARGE, 210, unpack_q6_k, NULL},
    {"BF16", 30, 1, 2, unpack_bf16, pack_bf16},
};
#define TYPES (sizeof types / sizeof types[0])

/* Names for messages, as in ggml.h's enum ggml_type. */
static const char *const names[] = {
    "F32",   "F16",    "Q4_0",  "Q4_1", NULL,   NULL,      "Q5_0",   "Q5_1",    "Q8_0",  "Q8_1",   "Q2_K",
    "Q3_K",  "Q4_K",   "Q5_K",  "Q6_K", "Q8_K", "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S",
    "IQ2_S", "IQ4_XS", "I8",    "I16",  "I32",  "I64",     "F64",    "IQ1_M",   "BF16",  NULL,     NULL,
    NULL,    "TQ1_0",  "TQ2_0", NULL,   NULL,   NULL,      "MXFP4",  "NVFP4"};

const brim_gguf_type *brim_gguf_type_of(uint32_t id)
{
  for (size_t i = 0; i < TYPES; i++)
    if (types[i].id == id) return &types[i];
  return NULL;
}

const char *brim_gguf_type_name(uint32_t id)
{
  return id < sizeof names / sizeof names[0] ? names[id] : NULL;
}

const brim_gguf_type *brim_gguf_type_named(const char *name)
{
  for (size_t i = 0; i < TYPES; i++)
    if (strcmp(types[i].name, name) == 0) return &types[i];
  return NULL;
}
