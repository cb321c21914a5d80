/* The sums of pooling and of a convolution's dbias have the same bits in every memory order, as fusion with neighbours
 * may decide a tensor's order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "brim/random.h"
#include "simd_pool.h"

extern const cpu_pooling cpu_pooling_shortest; /* compiled with the options of this program */

enum { CHANNELS = 16, ROWS = 5, COLUMNS = 67, PIXELS = ROWS * COLUMNS };

static float value(int64_t channel, int64_t pixel)
{
  return (float)(brim_uniform(brim_random4(3, BRIM_STREAM_DATA, (uint32_t)channel, (uint64_t)pixel, 0).v[0]) - 0.5);
}

/* Fills channels [from, from + lanes), which lie side by side. */
static void fill(float *x, int64_t from, int64_t lanes)
{
  for (int64_t i = 0; i < PIXELS; i++)
    for (int64_t c = 0; c < lanes; c++) x[i * lanes + c] = value(from + c, i);
}

/* 6 and 7 are not whole vectors. */
static const int64_t blocks[] = {1, 2, 6, 7, 8, 16};

static void sums_of_pixels(void **state)
{
  for (int64_t pixels = 1; pixels <= PIXELS; pixels++) {
    float x[PIXELS * CHANNELS], expected[CHANNELS] = {0};
    for (int64_t c = 0; c < CHANNELS; c++) {
      fill(x, c, 1);
      cpu_pooling_shortest.sum_pixels(x, pixels, 1, &expected[c]);
    }
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
      float sum[CHANNELS] = {0};
      fill(x, 0, blocks[i]);
      cpu_pooling_shortest.sum_pixels(x, pixels, blocks[i], sum);
      assert_memory_equal(sum, expected, (size_t)blocks[i] * sizeof *sum);
    }
  }
}

static void averages(void **state)
{
  for (int64_t width = 1; width <= COLUMNS; width += 3) {
    cpu_pool_plane plane = {.extent = {ROWS, COLUMNS}, .kernel = {3, width}, .stride = {1, 1}};
    plane.places[0] = ROWS - 3 + 1;
    plane.places[1] = COLUMNS - width + 1;
    const int64_t places = plane.places[0] * plane.places[1];
    float x[PIXELS * CHANNELS], expected[CHANNELS][PIXELS], y[PIXELS * CHANNELS];
    plane.lanes = 1;
    for (int64_t c = 0; c < CHANNELS; c++) {
      fill(x, c, 1);
      cpu_pooling_shortest.avg_pool(&plane, x, expected[c]);
    }
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
      plane.lanes = blocks[i];
      fill(x, 0, blocks[i]);
      cpu_pooling_shortest.avg_pool(&plane, x, y);
      for (int64_t p = 0; p < places; p++)
        for (int64_t c = 0; c < blocks[i]; c++) assert_memory_equal(&y[p * blocks[i] + c], &expected[c][p], sizeof *y);
    }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(sums_of_pixels), cmocka_unit_test(averages)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
