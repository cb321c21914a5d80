/* Tests tables of tensors: for all sizes, every element belongs to one part of one tensor, and a block finds it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../plugins/backend/cuda/update_table.h"

#define TENSORS_MAX 2000

/* The elements found so far, by tensor. The flags of an entry hold the tensor's number. */
typedef struct seen {
  int64_t count[TENSORS_MAX], elements[TENSORS_MAX], next[TENSORS_MAX];
  int tables;
} seen;

/* Processes a table as the kernel's blocks do, in the order of the parts. Checks that the pieces of a tensor come in
 * order, each where the last one ended. */
static void walk(seen *s, const cuda_table *table)
{
  s->tables++;
  assert_true(table->head.entries > 0 && table->head.entries <= CUDA_TABLE_ENTRIES);
  for (uint32_t part = 0; part < table->head.parts; part++) {
    const uint32_t found = cuda_table_find(table->entry, table->head.entries, part);
    assert_true(found < table->head.entries);
    const cuda_table_entry *e = &table->entry[found];
    assert_true(part >= e->first);
    const int64_t start = (int64_t)(part - e->first) * CUDA_UPDATE_PIECE;
    assert_true(start < e->count); /* no part is empty or belongs to another tensor */
    assert_int_equal(start, s->next[e->flags]);
    const int64_t end = cuda_min(e->count, start + CUDA_UPDATE_PIECE);
    s->next[e->flags] = end;
    s->elements[e->flags] += end - start;
  }
}

static void check_tensors(const int64_t *count, int tensors, int tables_expected)
{
  static cuda_table table;
  static seen s;
  memset(&s, 0, sizeof s);
  cuda_table_clear(&table, NULL);
  for (int t = 0; t < tensors; t++) {
    const cuda_table_entry e = {.count = count[t], .flags = (uint32_t)t};
    if (cuda_table_add(&table, &e, cuda_update_parts(count[t]), CUDA_TABLE_PARTS_MAX)) continue;
    walk(&s, &table);
    cuda_table_clear(&table, NULL);
    assert_true(cuda_table_add(&table, &e, cuda_update_parts(count[t]), CUDA_TABLE_PARTS_MAX));
  }
  if (table.head.entries > 0) walk(&s, &table);
  for (int t = 0; t < tensors; t++) assert_int_equal(s.elements[t], count[t]);
  assert_int_equal(s.tables, tables_expected);
}

static void test_a_table_fits_a_kernels_arguments(void **state)
{
  assert_true(sizeof(cuda_table) + 64 <= CUDA_PARAMETER_BYTES);
  /* One more entry would not fit. */
  assert_true(sizeof(cuda_table) + 64 + sizeof(cuda_table_entry) > CUDA_PARAMETER_BYTES);
  assert_int_equal(offsetof(cuda_table, entry), offsetof(cuda_table_few, entry));
}

static void test_no_tensor_and_empty_tensors_take_no_part(void **state)
{
  check_tensors(NULL, 0, 0);
  check_tensors((const int64_t[]){0}, 1, 0);
  check_tensors((const int64_t[]){0, 5, 0, 0, 4097, 0}, 6, 1);
}

static void test_one_tensor_of_any_size_is_cut_without_rest(void **state)
{
  const int64_t sizes[] = {1, 3, 4095, 4096, 4097, 8192, 1000003};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) check_tensors(&sizes[i], 1, 1);
}

static void test_tiny_and_huge_tensors_share_a_table(void **state)
{
  static int64_t count[300];
  for (int t = 0; t < 300; t++) count[t] = t % 7 == 0 ? 1000000 + t : t % 3 == 0 ? 4096 * (t % 5) : t;
  check_tensors(count, 300, 1);
}

static void test_more_tensors_than_a_table_holds_continue_in_the_next(void **state)
{
  static int64_t count[TENSORS_MAX];
  const int full = (int)CUDA_TABLE_ENTRIES;
  for (int t = 0; t < TENSORS_MAX; t++) count[t] = 1 + t % 5000;
  check_tensors(count, full, 1);
  check_tensors(count, full + 1, 2);
  check_tensors(count, 3 * full, 3);
}

static void test_parts_of_a_table_are_limited_but_not_those_of_one_tensor(void **state)
{
  static cuda_table table;
  const cuda_table_entry e = {.count = 1};
  cuda_table_clear(&table, NULL);
  assert_true(cuda_table_add(&table, &e, 10, 16));
  assert_true(cuda_table_add(&table, &e, 6, 16));
  assert_false(cuda_table_add(&table, &e, 1, 16));
  assert_int_equal(table.head.parts, 16);
  cuda_table_clear(&table, NULL);
  assert_true(cuda_table_add(&table, &e, 17, 16));
}

static void test_a_norm_has_a_limited_number_of_parts_and_at_least_one(void **state)
{
  assert_int_equal(cuda_norm_parts(0), 1);
  assert_int_equal(cuda_norm_parts(CUDA_NORM_PIECE), 1);
  assert_int_equal(cuda_norm_parts(CUDA_NORM_PIECE + 1), 2);
  assert_int_equal(cuda_norm_parts((int64_t)1 << 40), CUDA_NORM_PARTS);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_table_fits_a_kernels_arguments),
      cmocka_unit_test(test_no_tensor_and_empty_tensors_take_no_part),
      cmocka_unit_test(test_one_tensor_of_any_size_is_cut_without_rest),
      cmocka_unit_test(test_tiny_and_huge_tensors_share_a_table),
      cmocka_unit_test(test_more_tensors_than_a_table_holds_continue_in_the_next),
      cmocka_unit_test(test_parts_of_a_table_are_limited_but_not_those_of_one_tensor),
      cmocka_unit_test(test_a_norm_has_a_limited_number_of_parts_and_at_least_one),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
