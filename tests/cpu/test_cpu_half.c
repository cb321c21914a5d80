/* Tests conversions to 16-bit types: every value, and values in between, in every available instruction set. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

#include "cpu/isa.h"
#include "half.h"

enum { VALUES = 65536 };

/* Returns the value of a binary16, by the standard's definition of its bits. */
static double value_of(uint32_t half)
{
  const int exponent = (int)(half >> 10 & 31), digits = (int)(half & 1023);
  const double size = exponent ? ldexp(digits + 1024, exponent - 25) : ldexp(digits, -24);
  return half >> 15 ? -size : size;
}

static uint16_t round_f16(const cpu_half *half, float x)
{
  float in[11] = {[3] = x, [10] = x}; /* x lies in a vector and in the remainder */
  uint16_t out[11];
  half->round(in, out, 11);
  assert_int_equal(out[3], out[10]);
  assert_int_equal(out[3], cpu_f16_round(x));
  return out[3];
}

static void check_table(const cpu_halves *table)
{
  static uint16_t from[VALUES], back[VALUES];
  static float wide[VALUES];
  for (uint32_t i = 0; i < VALUES; i++) from[i] = (uint16_t)i;
  table->f16.widen(from, wide, VALUES);
  table->f16.round(wide, back, VALUES);
  for (uint32_t i = 0; i < VALUES; i++) {
    const bool special = (i & 0x7C00) == 0x7C00;
    assert_int_equal(cpu_float_bits(wide[i]), cpu_float_bits(cpu_f16_widen(from[i])));
    if (!special) assert_true((double)wide[i] == value_of(i) && back[i] == i);
    if (special && (i & 1023)) assert_true(isnan(wide[i]) && (back[i] & 0x7C00) == 0x7C00 && (back[i] & 1023));
    if (special && !(i & 1023)) assert_true(isinf(wide[i]) && back[i] == i);
  }
  table->bf16.widen(from, wide, VALUES);
  table->bf16.round(wide, back, VALUES);
  for (uint32_t i = 0; i < VALUES; i++) {
    assert_int_equal(cpu_float_bits(wide[i]), i << 16);
    if (!isnan(wide[i])) assert_int_equal(back[i], i);
  }
}

/* Checks that the middle between two neighbours rounds to even, and a float next to it to the nearer neighbour. */
static void check_rounding(const cpu_half *half)
{
  for (uint32_t i = 0; i < 0x7BFF; i++) {
    const double middle = (value_of(i) + value_of(i + 1)) / 2;
    const float m = (float)middle;
    assert_true((double)m == middle);
    assert_int_equal(round_f16(half, m), i + (i & 1));
    assert_int_equal(round_f16(half, nextafterf(m, 0)), i);
    assert_int_equal(round_f16(half, nextafterf(m, INFINITY)), i + 1);
    assert_int_equal(round_f16(half, -m), 0x8000 | (i + (i & 1)));
  }
}

static void check_ends(const cpu_half *half)
{
  assert_int_equal(round_f16(half, 65519.996f), 0x7BFF);
  assert_int_equal(round_f16(half, 65520), 0x7C00);
  assert_int_equal(round_f16(half, -1e30f), 0xFC00);
  assert_int_equal(round_f16(half, 0x1p-25f), 0);
  assert_int_equal(round_f16(half, 0x1.000002p-25f), 1);
  assert_int_equal(round_f16(half, 1e-40f), 0);
  assert_int_equal(round_f16(half, -0.0f), 0x8000);
  assert_true((round_f16(half, NAN) & 0x7FFF) > 0x7C00);
}

static void check_settled(const cpu_half *half)
{
  float a[2] = {1, 2}, b[2] = {0x1p-12f, 0x1.8p-10f};
  half->settle(a, b, 2);
  assert_true(a[0] == 1 && b[0] == 0 && b[1] == 0 && a[1] == 2 + 0x1p-9f);
}

static void each_instruction_set_rounds_as_the_standard_says(void **unused)
{
  (void)unused;
  static const cpu_halves *const tables[] = {CPU_OF_ISAS(&, cpu_halves)};
  for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
    if (!has_isa(isas[i])) continue;
    check_table(tables[i]);
    check_rounding(&tables[i]->f16);
    check_ends(&tables[i]->f16);
    check_settled(&tables[i]->f16);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_instruction_set_rounds_as_the_standard_says)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
