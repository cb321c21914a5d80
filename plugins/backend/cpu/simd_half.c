/* Conversions between floats and 16-bit types, for one instruction set. bfloat16 needs shifts, which the compiler
 * vectorizes. For binary16, ARM and x86 from AVX2 on have instructions. */
#include "half.h"
#include "simd.h"

#if defined(__F16C__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

static void bf16_widen(const uint16_t *from, float *to, int64_t count)
{
  for (int64_t i = 0; i < count; i++) to[i] = cpu_bf16_widen(from[i]);
}

static void bf16_round(const float *from, uint16_t *to, int64_t count)
{
  for (int64_t i = 0; i < count; i++) to[i] = cpu_bf16_round(from[i]);
}

static void bf16_settle(float *a, float *b, int64_t count)
{
  for (int64_t i = 0; i < count; i++) {
    a[i] = cpu_bf16_widen(cpu_bf16_round(a[i] + b[i]));
    b[i] = -0.0f;
  }
}

static void f16_widen(const uint16_t *from, float *to, int64_t count)
{
  int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= count; i += 8) {
    __m128i half;
    memcpy(&half, from + i, sizeof half);
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(half));
  }
#elif defined(__aarch64__)
  for (; i + 4 <= count; i += 4) vst1q_f32(to + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from + i))));
#endif
  for (; i < count; i++) to[i] = cpu_f16_widen(from[i]);
}

static void f16_round(const float *from, uint16_t *to, int64_t count)
{
  int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= count; i += 8) {
    const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
    memcpy(to + i, &half, sizeof half);
  }
#elif defined(__aarch64__)
  for (; i + 4 <= count; i += 4) vst1_u16(to + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(from + i))));
#endif
  for (; i < count; i++) to[i] = cpu_f16_round(from[i]);
}

static void f16_settle(float *a, float *b, int64_t count)
{
  for (int64_t i = 0; i < count; i++) {
    a[i] = cpu_f16_widen(cpu_f16_round(a[i] + b[i]));
    b[i] = -0.0f;
  }
}

const cpu_halves CPU_NAME(cpu_halves) = {.bf16 = {bf16_widen, bf16_round, bf16_settle},
                                         .f16 = {f16_widen, f16_round, f16_settle}};
