/* Tests sorting networks: they sort columns for every number of rows. If only some rows are requested, the network
 * leaves out exchanges that these rows do not need, and they are right. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/network.h"
#include "brim/random.h"

enum { ROWS = 300, COLUMNS = BRIM_NETWORK_COLUMNS };

static int ascending(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Draws numbers, with many ties in some columns. */
static void draw(uint32_t rows, double *values)
{
  for (uint32_t i = 0; i < rows; i++)
    for (uint32_t c = 0; c < COLUMNS; c++) {
      const uint32_t r = brim_random4(rows, BRIM_STREAM_DATA, c, i, 0).v[0];
      values[i * COLUMNS + c] = c % 2 ? (double)(r % 5) - 2 : brim_uniform(r) - 0.5;
    }
}

/* Checks that rows first..end-1 of each column equal those of qsort. */
static void check(uint32_t rows, uint32_t first, uint32_t end)
{
  static double values[ROWS * COLUMNS], before[ROWS * COLUMNS], column[ROWS];
  static uint8_t needed[ROWS];
  const uint64_t room = brim_network_count(rows);
  brim_exchange *exchange = calloc(room + 1, sizeof *exchange);
  const uint64_t count = brim_network_make(rows, first, end, exchange, needed);
  assert_true(count <= room);
  draw(rows, before);
  draw(rows, values);
  brim_network_sort(exchange, count, values);
  for (uint32_t c = 0; c < COLUMNS; c++) {
    for (uint32_t i = 0; i < rows; i++) column[i] = before[i * COLUMNS + c];
    qsort(column, rows, sizeof *column, ascending);
    for (uint32_t i = first; i < end; i++) assert_true(values[i * COLUMNS + c] == column[i]);
  }
  free(exchange);
}

static void sorts_any_number_of_rows(void **state)
{
  for (uint32_t rows = 1; rows <= 70; rows++) check(rows, 0, rows);
  check(ROWS, 0, ROWS);
}

static void finds_the_requested_rows(void **state)
{
  for (uint32_t rows = 1; rows <= 40; rows++)
    for (uint32_t first = 0; first < rows; first++)
      for (uint32_t end = first + 1; end <= rows; end++) check(rows, first, end);
  check(ROWS, (ROWS - 1) / 2, ROWS / 2 + 1);
}

static void a_median_needs_fewer_exchanges(void **state)
{
  static brim_exchange exchange[4096];
  static uint8_t needed[100];
  assert_int_equal(brim_network_count(100), 1077);
  assert_int_equal(brim_network_make(100, 49, 51, exchange, needed), 889);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(sorts_any_number_of_rows),
                                     cmocka_unit_test(finds_the_requested_rows),
                                     cmocka_unit_test(a_median_needs_fewer_exchanges)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
