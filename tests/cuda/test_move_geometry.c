/* Compares places of moved values with the plain definitions, element by element: division by multiplication, merged
 * dimensions of permute and pad, units of several bytes, sizes in sorting. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../plugins/backend/cuda/move_geometry.h"
#include "../../plugins/backend/cuda/sort_geometry.h"

/* ---- division ---- */

static void check_division(int64_t by, int64_t n)
{
  const cuda_divider d = cuda_divider_of(by);
  int64_t rest = n;
  if (n < 0) return; /* beyond the tested range */
  assert_int_equal(cuda_quotient(&d, n), n / by);
  assert_int_equal(cuda_take(&d, &rest), n % by);
  assert_int_equal(rest, n / by);
}

static void test_division_is_exact(void **state)
{
  static const int64_t about[] = {1,
                                  2,
                                  3,
                                  5,
                                  7,
                                  10,
                                  64,
                                  641,
                                  1 << 16,
                                  INT32_MAX,
                                  (int64_t)1 << 31,
                                  (int64_t)1 << 32,
                                  ((int64_t)1 << 32) + 1,
                                  (int64_t)1 << 62,
                                  INT64_MAX - 1};
  const size_t count = sizeof about / sizeof about[0];
  for (int64_t by = 1; by < 300; by++)
    for (int64_t n = 0; n < 1000; n++) check_division(by, n);
  for (size_t i = 0; i < count; i++)
    for (size_t j = 0; j < count; j++)
      for (int64_t k = 1; k < 1000000007; k = k * 10 + 7) { /* multiples, and the numbers around them */
        const int64_t by = about[i], n = about[j] > INT64_MAX / k ? INT64_MAX - 1 : about[j] * k;
        const int64_t multiple = n / by * by;
        check_division(by, n);
        check_division(by, multiple);
        check_division(by, multiple - 1);
        check_division(by, multiple + 1);
        check_division(by, INT64_MAX);
      }
}

static void test_units_divide_every_length(void **state)
{
  assert_int_equal(cuda_unit_bytes(64), 16);
  assert_int_equal(cuda_unit_bytes(64 | 24), 8);
  assert_int_equal(cuda_unit_bytes(16 | 4), 4);
  assert_int_equal(cuda_unit_bytes(16 | 6), 2);
  assert_int_equal(cuda_unit_bytes(7), 1);
  assert_int_equal(cuda_unit_bytes(0), 16);
}

/* ---- elements of a shape ---- */

/* Returns the place of a logical element in memory. */
static int64_t position(const brim_shape *s, bool channels_last, const int64_t *at)
{
  if (channels_last) return ((at[0] * s->dim[2] + at[2]) * s->dim[3] + at[3]) * s->dim[1] + at[1];
  int64_t i = 0;
  for (int32_t d = 0; d < s->rank; d++) i = i * s->dim[d] + at[d];
  return i;
}

/* Finds the coordinates of logical element i. */
static void locate(const brim_shape *s, int64_t i, int64_t *at)
{
  for (int32_t d = s->rank - 1; d >= 0; d--) {
    at[d] = i % s->dim[d];
    i /= s->dim[d];
  }
}

static uint32_t random_state = 1;
static int64_t pick(int64_t from, int64_t to)
{
  random_state = random_state * 1664525u + 1013904223u;
  return from + (int64_t)(random_state >> 8) % (to - from + 1);
}

static brim_shape pick_shape(int32_t rank, int64_t most)
{
  brim_shape s = {rank, {0}};
  for (int32_t d = 0; d < rank; d++) s.dim[d] = pick(0, 3) ? pick(1, most) : 1;
  return s;
}

/* ---- permute ---- */

/* Fills source[position in y] = position in x, in elements, by the definition. */
static void define_permutation(const brim_shape *x, bool x_last, const brim_shape *y, bool y_last, const int32_t *order,
                               int64_t *source)
{
  for (int64_t i = 0; i < brim_shape_count(y); i++) {
    int64_t at[BRIM_DIMS_MAX], from[BRIM_DIMS_MAX];
    locate(y, i, at);
    for (int32_t d = 0; d < y->rank; d++) from[order[d]] = at[d];
    source[position(y, y_last, at)] = position(x, x_last, from);
  }
}

static void check_permutation(const brim_shape *x, bool x_last, bool y_last, const int32_t *order, int64_t bytes)
{
  brim_shape y = *x;
  for (int32_t d = 0; d < y.rank; d++) y.dim[d] = x->dim[order[d]];
  const int64_t count = brim_shape_count(&y);
  int64_t *source = malloc((size_t)count * sizeof *source);
  assert_non_null(source);
  define_permutation(x, x_last, &y, y_last, order, source);

  cuda_permutation p = cuda_permutation_of(x, x_last, &y, y_last, order);
  const int32_t inner = cuda_permutation_inner(&p);
  assert_int_equal(p.from[inner], 1);
  const bool runs = inner == p.rank - 1;
  const int64_t unit = runs ? cuda_permutation_widen(&p, bytes) : bytes, elements = unit / bytes;
  assert_true(unit >= bytes && count % elements == 0);
  for (int64_t i = 0; i < count; i += elements) { /* elements of y, through p */
    int64_t rest = i / elements, from = 0, to = 0;
    for (int32_t d = p.rank - 1; d >= 0; d--) {
      from += rest % p.dim[d] * p.from[d];
      to += rest % p.dim[d] * p.to[d];
      rest /= p.dim[d];
    }
    assert_int_equal(rest, 0);
    assert_int_equal(to, i / elements);
    for (int64_t k = 0; k < elements; k++) assert_int_equal(source[i + k], from * elements + k);
  }
  for (int32_t d = 0; d + 1 < p.rank; d++) /* nothing is left to merge */
    assert_false(p.from[d] == p.dim[d + 1] * p.from[d + 1]);
  free(source);
}

static void test_merged_dimensions_permute_alike(void **state)
{
  for (int i = 0; i < 3000; i++) {
    const int32_t rank = (int32_t)pick(1, BRIM_DIMS_MAX);
    const brim_shape x = pick_shape(rank, 8);
    int32_t order[BRIM_DIMS_MAX];
    for (int32_t d = 0; d < rank; d++) order[d] = d;
    for (int32_t d = rank - 1; d > 1; d--) {
      const int32_t other = (int32_t)pick(1, d), kept = order[d];
      order[d] = order[other];
      order[other] = kept;
    }
    check_permutation(&x, rank == 4 && pick(0, 1), rank == 4 && pick(0, 1), order, (int64_t)1 << pick(0, 3));
  }
}

static void test_images_stored_with_channels_last_are_copied(void **state)
{
  const brim_shape x = {4, {2, 5, 6, 8}}, y = {4, {2, 8, 5, 6}}; /* [N,H,W,C] as [N,C,H,W] */
  const cuda_permutation p = cuda_permutation_of(&x, false, &y, true, (const int32_t[]){0, 3, 1, 2});
  assert_int_equal(p.rank, 1);
  assert_int_equal(p.dim[0], 480);
}

static void test_a_dimension_can_be_left_out(void **state)
{
  cuda_permutation p = {3, {2, 3, 5}, {15, 1, 3}, {15, 5, 1}};
  cuda_permutation_remove(&p, 1);
  assert_int_equal(p.rank, 2);
  assert_int_equal(p.dim[1], 5);
  assert_int_equal(p.from[1], 3);
  assert_int_equal(p.to[1], 1);
}

/* ---- pad, and around an axis ---- */

static void check_padding(const brim_shape *x, const brim_shape *y, const int64_t *before, bool last, int64_t bytes)
{
  const cuda_padding p = cuda_padding_of(x, y, before, last, bytes);
  const int64_t elements = p.unit_bytes / bytes;
  assert_true(elements >= 1);
  assert_int_equal(p.count * elements, brim_shape_count(y));
  for (int64_t i = 0; i < brim_shape_count(y); i++) {
    int64_t at[BRIM_DIMS_MAX];
    bool inside = true;
    locate(y, i, at);
    const int64_t to = position(y, last, at), source = cuda_padding_source(&p, to / elements);
    for (int32_t d = 0; d < x->rank; d++) {
      at[d] -= before[d];
      inside = inside && at[d] >= 0 && at[d] < x->dim[d];
    }
    if (inside)
      assert_int_equal(source * elements + to % elements, position(x, last, at));
    else
      assert_int_equal(source, -1);
  }
}

static void test_padding_is_around_x(void **state)
{
  for (int i = 0; i < 2000; i++) {
    const int32_t rank = (int32_t)pick(2, 5);
    const brim_shape x = pick_shape(rank, 8);
    brim_shape y = x;
    int64_t before[BRIM_DIMS_MAX] = {0};
    for (int32_t d = 1; d < rank; d++) {
      before[d] = pick(0, 1) ? 0 : pick(0, 4);
      y.dim[d] += before[d] + (pick(0, 1) ? 0 : pick(0, 4));
    }
    check_padding(&x, &y, before, rank == 4 && pick(0, 1), (int64_t)1 << pick(0, 3));
  }
}

static void test_dimensions_around_an_axis(void **state)
{
  const brim_shape s = {4, {2, 3, 5, 7}};
  const cuda_view plain = cuda_view_of(&s, false), last = cuda_view_of(&s, true);
  assert_int_equal(cuda_around_of(&plain, 1).outer, 2);
  assert_int_equal(cuda_around_of(&plain, 1).inner, 35);
  assert_int_equal(cuda_around_of(&last, 1).outer, 70);
  assert_int_equal(cuda_around_of(&last, 1).inner, 1);
  assert_int_equal(cuda_around_of(&last, 2).outer, 2);
  assert_int_equal(cuda_around_of(&last, 2).inner, 21);
}

/* ---- sorting ---- */

static void test_every_digit_of_a_key_is_sorted_by(void **state)
{
  static const int64_t limit[] = {1, 255, 256, 65535, 65536, 50257, (1 << 24) - 1, 1 << 24, INT32_MAX};
  static const int rounds[] = {1, 1, 2, 2, 3, 2, 3, 4, 4};
  for (size_t i = 0; i < sizeof limit / sizeof limit[0]; i++) assert_int_equal(cuda_sort_rounds(limit[i]), rounds[i]);
}

static void test_workers_have_all_numbers(void **state)
{
  for (int64_t count = 1; count < 5000000; count = count * 3 / 2 + 1) {
    const int64_t workers = cuda_sort_workers(count);
    assert_true(workers >= 1 && workers <= 1024);
    assert_true(cuda_divide_up(count, workers) * workers >= count);
    const int64_t tile = cuda_sum_tile(count);
    assert_true(tile >= 8 && tile <= 64 && tile % 8 == 0);
  }
}

static void test_where_equal_keys_end(void **state)
{
  static const uint32_t key[] = {0, 0, 0, 3, 4, 4, 9, 9, 9, 9};
  static const int64_t end[] = {3, 3, 3, 4, 6, 6, 10, 10, 10, 10};
  for (int64_t i = 0; i < 10; i++) assert_int_equal(cuda_sorted_end(key, 10, i), end[i]);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_division_is_exact),
      cmocka_unit_test(test_units_divide_every_length),
      cmocka_unit_test(test_merged_dimensions_permute_alike),
      cmocka_unit_test(test_images_stored_with_channels_last_are_copied),
      cmocka_unit_test(test_a_dimension_can_be_left_out),
      cmocka_unit_test(test_padding_is_around_x),
      cmocka_unit_test(test_dimensions_around_an_axis),
      cmocka_unit_test(test_every_digit_of_a_key_is_sorted_by),
      cmocka_unit_test(test_workers_have_all_numbers),
      cmocka_unit_test(test_where_equal_keys_end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
