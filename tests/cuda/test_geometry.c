/* Tests the division of work into blocks and threads: nothing is left out, for every count, and no limit of a launch is
 * exceeded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../plugins/backend/cuda/geometry.h"
#include "../../plugins/backend/cuda/reduce_geometry.h"

#define GRID_MAX 0x7FFFFFFF

static const int64_t counts[] = {1,
                                 2,
                                 31,
                                 32,
                                 33,
                                 255,
                                 256,
                                 257,
                                 1023,
                                 1024,
                                 1025,
                                 65535,
                                 65537,
                                 1 << 20,
                                 INT32_MAX - 1,
                                 INT32_MAX,
                                 (int64_t)INT32_MAX + 1,
                                 (int64_t)1 << 40,
                                 (int64_t)1 << 50};
#define EACH_COUNT(i)                                                                                                  \
  size_t i = 0;                                                                                                        \
  i < sizeof counts / sizeof counts[0];                                                                                \
  i++

static void assert_launchable(cuda_geometry g)
{
  assert_in_range(g.threads, 1, 1024);
  assert_in_range(g.blocks[0], 1, GRID_MAX);
  assert_in_range(g.blocks[1], 1, 65535);
  assert_in_range(g.blocks[2], 1, 65535);
}

static void test_stride_has_a_thread_for_everything_up_to_a_full_device(void **state)
{
  for (EACH_COUNT(i))
    for (int64_t per_thread = 1; per_thread <= 8; per_thread *= 2)
      for (int processors = 1; processors <= 144; processors += 11) {
        const cuda_geometry g = cuda_stride(counts[i], per_thread, processors);
        const int64_t threads = (int64_t)g.blocks[0] * g.threads, wanted = cuda_divide_up(counts[i], per_thread);
        assert_launchable(g);
        assert_true(threads >= wanted || threads == (int64_t)processors * 2048);
        assert_true(threads - wanted < g.threads); /* no block without work */
        assert_int_equal(g.shared_bytes, 0);
      }
}

static void test_stride_over_nothing_is_one_block(void **state)
{
  const cuda_geometry g = cuda_stride(0, 4, 132);
  assert_int_equal(g.blocks[0], 1);
  assert_launchable(g);
}

static void test_rows_have_a_block_each_up_to_the_limit_of_a_grid(void **state)
{
  for (EACH_COUNT(i)) {
    const cuda_geometry g = cuda_rows(counts[i], 128);
    assert_launchable(g);
    assert_int_equal(g.threads, 128);
    assert_true((int64_t)g.blocks[0] == (counts[i] < GRID_MAX ? counts[i] : GRID_MAX));
  }
  assert_int_equal(cuda_rows(0, 32).blocks[0], 1);
}

static void test_a_row_gets_whole_warps_and_no_idle_one(void **state)
{
  for (EACH_COUNT(i))
    for (int64_t per_thread = 1; per_thread <= 8; per_thread *= 2)
      for (unsigned most = 32; most <= 1024; most *= 2) {
        const unsigned threads = cuda_row_threads(counts[i], per_thread, most);
        const int64_t loads = cuda_divide_up(counts[i], per_thread);
        assert_int_equal(threads % CUDA_WARP, 0);
        assert_in_range(threads, CUDA_WARP, most);
        assert_true(threads >= loads || threads == most);
        assert_true(threads == CUDA_WARP || threads - CUDA_WARP < loads);
      }
  assert_int_equal(cuda_row_threads(0, 1, 256), CUDA_WARP);
}

static void test_rounding(void **state)
{
  assert_int_equal(cuda_divide_up(1, 256), 1);
  assert_int_equal(cuda_divide_up(256, 256), 1);
  assert_int_equal(cuda_divide_up(257, 256), 2);
  assert_int_equal(cuda_divide_up(0, 3), 0);
  assert_true(cuda_round_up(0, 256) == 0 && cuda_round_up(1, 256) == 256 && cuda_round_up(512, 256) == 512);
  assert_true(cuda_round_up(((uint64_t)1 << 40) + 1, 256) == ((uint64_t)1 << 40) + 256);
}

/* ---- sums ---- */

/* Checks that every element of x is a term of its output exactly once, for shapes [d0, d1, d2, d3], any of which are
 * summed. */
static void check_reduction(const brim_shape *x, bool channels_last, uint32_t axes)
{
  enum { MOST = 512 };
  static const int64_t nhwc[4] = {0, 2, 3, 1};
  const brim_shape y = cuda_reduced_shape(x, axes);
  int64_t seen[MOST] = {0}, step[4], stride = 1;
  cuda_reduction r = {0};
  cuda_reduction_init(&r, x, channels_last, &y);
  assert_true(r.outputs == brim_shape_count(&y) && r.outputs * r.terms == brim_shape_count(x));
  assert_true(brim_shape_count(x) <= MOST);
  for (int i = 3; i >= 0; i--) {
    const int64_t d = channels_last ? nhwc[i] : i;
    step[d] = stride;
    stride *= x->dim[d];
  }
  for (int64_t i = 0; i < r.outputs * r.terms; i++) {
    int64_t o = i / r.terms, t = i % r.terms, at = 0, at_y = 0, from = 0, stride_y = 1;
    for (int32_t d = r.kept_rank - 1; d >= 0; d--) {
      const int64_t place = cuda_take(&r.kept[d], &o);
      at += place * r.kept_x[d];
      at_y += place * r.kept_y[d];
    }
    for (int32_t d = r.summed_rank - 1; d >= 0; d--) at += cuda_take(&r.summed[d], &t) * r.summed_x[d];
    assert_in_range(at, 0, brim_shape_count(x) - 1);
    seen[at]++;
    for (int d = 3; d >= 0; d--) { /* computes the place of that element's sum */
      from += at / step[d] % x->dim[d] % y.dim[d] * stride_y;
      stride_y *= y.dim[d];
    }
    assert_int_equal(at_y, from);
  }
  for (int64_t i = 0; i < brim_shape_count(x); i++) assert_int_equal(seen[i], 1);
}

static void test_a_sum_has_every_element_once(void **state)
{
  static const brim_shape shapes[] = {{4, {3, 5, 4, 2}}, {4, {1, 7, 3, 3}}, {4, {4, 1, 5, 5}}, {4, {2, 6, 1, 1}}};
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
    for (uint32_t axes = 0; axes < 16; axes++)
      for (int last = 0; last < 2; last++) check_reduction(&shapes[i], last != 0, axes);
}

static void test_parts_of_a_sum_cover_its_terms(void **state)
{
  for (EACH_COUNT(i))
    for (int columns = 0; columns < 2; columns++)
      for (int vector = 4; vector <= 8; vector *= 2) {
        if (counts[i] > (int64_t)1 << 40) continue;
        const brim_shape x = columns ? (brim_shape){3, {2, counts[i], 5}} : (brim_shape){2, {6, counts[i]}};
        const brim_shape y = cuda_reduced_shape(&x, 2);
        cuda_reduction r = {0};
        cuda_reduction_init(&r, &x, false, &y);
        const cuda_reduction_plan p = cuda_reduction_plan_of(&r, vector);
        assert_true(p.splits >= 1 && (p.splits - 1) * p.segment < r.terms && p.splits * p.segment >= r.terms);
        assert_true(p.segment % p.vector == 0 && r.terms % p.vector == 0);
        assert_true(p.lanes >= 1 && p.lanes <= CUDA_WARP && (p.lanes & (p.lanes - 1)) == 0);
        assert_true(p.by != CUDA_BY_LANES || p.splits == 1);
      }
}

static void test_a_sum_is_split_independently_of_the_samples(void **state)
{
  for (int64_t samples = 1; samples < 5000; samples = samples * 3 + 1) {
    const brim_shape shape[2] = {{4, {1, 6, 300, 200}}, {4, {samples, 6, 300, 200}}};
    for (uint32_t axes = 2; axes < 16; axes += 2)
      for (int last = 0; last < 2; last++) {
        cuda_reduction_plan plan[2];
        for (int i = 0; i < 2; i++) {
          const brim_shape y = cuda_reduced_shape(&shape[i], axes);
          cuda_reduction r = {0};
          cuda_reduction_init(&r, &shape[i], last != 0, &y);
          plan[i] = cuda_reduction_plan_of(&r, 8);
        }
        assert_true(plan[0].by == plan[1].by && plan[0].vector == plan[1].vector && plan[0].lanes == plan[1].lanes);
        assert_true(plan[0].splits == plan[1].splits && plan[0].segment == plan[1].segment);
      }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_stride_has_a_thread_for_everything_up_to_a_full_device),
      cmocka_unit_test(test_stride_over_nothing_is_one_block),
      cmocka_unit_test(test_rows_have_a_block_each_up_to_the_limit_of_a_grid),
      cmocka_unit_test(test_a_row_gets_whole_warps_and_no_idle_one),
      cmocka_unit_test(test_rounding),
      cmocka_unit_test(test_a_sum_has_every_element_once),
      cmocka_unit_test(test_parts_of_a_sum_cover_its_terms),
      cmocka_unit_test(test_a_sum_is_split_independently_of_the_samples),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
