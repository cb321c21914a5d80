/* Tests windows of pooling by brute force: the elements of a window, and the windows of an element, for every kernel,
 * stride and padding that pooling accepts, and adaptive ones to fewer and more places. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../plugins/backend/cuda/pool_windows.h"

/* Returns pooling of x [2,3,H,5] to y [2,3,P,4] along the first dimension. */
static cuda_pool pool_of(bool adaptive, int64_t H, int64_t P, int64_t kernel, int64_t stride, int64_t padding)
{
  const brim_pool2d_attr attr = {.kernel = {kernel, 2}, .stride = {stride, 1}, .padding = {padding, 0}};
  const brim_shape x = {4, {2, 3, H, 5}}, y = {4, {2, 3, P, 4}};
  return cuda_pool_of(&attr, adaptive, &x, &y, false, 1);
}

/* Returns whether place's window contains row `at` of x, by the definition. */
static bool is_in(const cuda_pool *p, int64_t H, int64_t P, int64_t place, int64_t at)
{
  if (p->adaptive) return at >= place * H / P && at < ((place + 1) * H + P - 1) / P;
  const int64_t start = place * p->stride[0] - p->padding[0];
  return at >= start && at < start + p->kernel[0];
}

static void check(const cuda_pool *p, int64_t H, int64_t P)
{
  for (int64_t place = 0; place < P; place++) {
    const cuda_range r = cuda_window(p, 0, place);
    assert_true(0 <= r.from && r.from < r.to && r.to <= H);
    for (int64_t at = 0; at < H; at++) assert_int_equal(at >= r.from && at < r.to, is_in(p, H, P, place, at));
  }
  for (int64_t at = 0; at < H; at++) {
    const cuda_range r = cuda_windows_over(p, 0, at);
    assert_true(0 <= r.from && r.to <= P);
    for (int64_t place = 0; place < P; place++)
      assert_int_equal(place >= r.from && place < r.to, is_in(p, H, P, place, at));
  }
}

static void test_windows_and_elements_find_each_other(void **state)
{
  int seen = 0;
  for (int64_t H = 1; H <= 13; H++)
    for (int64_t kernel = 1; kernel <= 7; kernel++)
      for (int64_t stride = 1; stride <= 9; stride++)
        for (int64_t padding = 0; padding <= kernel / 2; padding++) {
          if (H + 2 * padding < kernel) continue;
          const int64_t P = (H + 2 * padding - kernel) / stride + 1;
          const cuda_pool p = pool_of(false, H, P, kernel, stride, padding);
          check(&p, H, P);
          seen++;
        }
  assert_true(seen > 1000);
}

static void test_adaptive_windows_and_elements_find_each_other(void **state)
{
  for (int64_t H = 1; H <= 24; H++)
    for (int64_t P = 1; P <= 24; P++) {
      const cuda_pool p = pool_of(true, H, P, 0, 0, 0);
      check(&p, H, P);
    }
}

static void test_the_divisor_of_a_sum(void **state)
{
  cuda_pool p = pool_of(false, 6, 3, 3, 2, 1); /* windows of 3 x 2, the first row of the first in the padding */
  assert_true(cuda_window_divisor(&p, 0, 0) == 3.0f);
  assert_true(cuda_window_divisor(&p, 1, 0) == 2.0f);
  p.exclude_padding = 1;
  assert_true(cuda_window_divisor(&p, 0, 0) == 2.0f);
  assert_true(cuda_window_divisor(&p, 0, 1) == 3.0f);
  const cuda_pool adaptive = pool_of(true, 7, 2, 0, 0, 0); /* rows 0..3 and 3..6; columns 0..1, 1..2, 2..3, 3..4 */
  assert_true(cuda_window_divisor(&adaptive, 0, 1) == 4.0f);
  assert_true(cuda_window_divisor(&adaptive, 1, 3) == 2.0f);
}

static void test_elements_are_counted_as_they_lie_in_memory(void **state)
{
  const brim_pool2d_attr attr = {.kernel = {1, 1}, .stride = {1, 1}};
  const brim_shape x = {4, {2, 12, 3, 5}}, y = {4, {2, 12, 2, 4}};
  for (int64_t pack = 0; pack <= 4; pack += 2) { /* 0: plain */
    const cuda_pool p = cuda_pool_of(&attr, false, &x, &y, pack > 0, pack ? pack : 1);
    const int64_t units = 2 * 12 * 3 * 5 / (pack ? pack : 1);
    assert_int_equal(p.planes * p.lanes * 3 * 5, units);
    for (int64_t i = 0; i < units; i++) {
      const cuda_pixel at = cuda_pixel_of(&p, p.by_extent, i);
      assert_true(at.row < 3 && at.column < 5 && at.lane < p.lanes && at.plane < p.planes);
      assert_int_equal(cuda_at_x(&p, &at, at.row, at.column), i);
    }
    for (int64_t i = 0; i < 2 * 12 * 2 * 4 / (pack ? pack : 1); i++) {
      const cuda_pixel at = cuda_pixel_of(&p, p.by_places, i);
      assert_int_equal(cuda_at_y(&p, &at, at.row, at.column), i);
    }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_windows_and_elements_find_each_other),
      cmocka_unit_test(test_adaptive_windows_and_elements_find_each_other),
      cmocka_unit_test(test_the_divisor_of_a_sum),
      cmocka_unit_test(test_elements_are_counted_as_they_lie_in_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
