/* Tests the vector code that draws normal values. Each value must be the float nearest to the value that the C
 * library's functions give. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "brim/random.h"
#include "exec/normal.h"

static void check_block(uint64_t seed, uint64_t item, double scale, int64_t first)
{
  float drawn[BRIM_NORMAL_BLOCK], expected[BRIM_NORMAL_BLOCK];
  brim_normal_block(seed, item, scale, first, drawn);
  for (int i = 0; i < BRIM_NORMAL_BLOCK; i += 4) {
    const brim_philox random = brim_random4(seed, BRIM_STREAM_INIT, 0, item, (uint32_t)((first + i) / 4));
    for (int k = 0; k < 4; k += 2) {
      double pair[2];
      brim_normal_pair(scale, brim_uniform(random.v[k]), brim_uniform(random.v[k + 1]), pair);
      expected[i + k] = (float)pair[0];
      expected[i + k + 1] = (float)pair[1];
    }
  }
  assert_memory_equal(drawn, expected, sizeof drawn);
}

static void test_same_bits_as_the_library(void **state)
{
  for (uint64_t seed = 0; seed < 4; seed++)
    for (int64_t first = 0; first < 1 << 19; first += BRIM_NORMAL_BLOCK) check_block(seed, 17 * seed, 0.02, first);
}

static void test_any_scale_and_any_place(void **state)
{
  static const double scale[] = {0, -0.0, 1, -3, 1e-30, 1e-44, 1e38, 1e-300};
  for (size_t i = 0; i < sizeof scale / sizeof scale[0]; i++)
    for (int64_t first = 4; first < (int64_t)1 << 33; first = 3 * first + 4) check_block(5, 6, scale[i], first);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits_as_the_library),
                                     cmocka_unit_test(test_any_scale_and_any_place)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
