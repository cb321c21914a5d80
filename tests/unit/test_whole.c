/* Tests the file of a round's updates: it has no name once it is open, and a disk with too little room is an error with
 * the numbers. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "federate/whole.h"
#include "scratch.h"

static brim_updates_plan plan_of(int64_t rows, int64_t values)
{
  return (brim_updates_plan){.rows = rows,
                             .values = values,
                             .largest = 8,
                             .dtype = BRIM_DTYPE_F32,
                             .block = 8,
                             .row_bytes = 4 * (uint64_t)values,
                             .file_bytes = 4 * (uint64_t)(rows * values)};
}

static int count_files(const char *folder)
{
  DIR *d = opendir(folder);
  int count = 0;
  assert_non_null(d);
  for (struct dirent *e; (e = readdir(d));) count += e->d_name[0] != '.';
  closedir(d);
  return count;
}

static void the_file_has_no_name(void **state)
{
  const brim_updates_plan plan = plan_of(3, 20);
  brim_whole *whole = NULL;
  const char *folder = scratch("run");
  assert_int_equal(mkdir(folder, 0700), 0);
  scratch_write(scratch("run/updates.2.tmp"), "of a process that was killed", 28);
  assert_int_equal(brim_whole_open(&plan, folder, 2, &whole), BRIM_OK);
  assert_int_equal(count_files(folder), 0);
  brim_whole_close(whole, false);
  brim_whole_close(NULL, false);
}

static void too_small_a_disk_is_refused_with_the_numbers(void **state)
{
  const brim_updates_plan plan = plan_of(1000, (int64_t)1 << 48);
  brim_whole *whole = NULL;
  assert_int_equal(brim_whole_open(&plan, scratch("."), 0, &whole), BRIM_EBUDGET);
  assert_null(whole);
  assert_non_null(strstr(brim_error_text(), "the updates of a round take 1000.0 PiB (1000 clients, 281474976710656"));
  assert_non_null(strstr(brim_error_text(), "has "));
}

static void a_folder_that_does_not_exist_is_an_error(void **state)
{
  const brim_updates_plan plan = plan_of(3, 20);
  brim_whole *whole = NULL;
  assert_int_equal(brim_whole_open(&plan, scratch("missing"), 0, &whole), BRIM_EIO);
  assert_non_null(strstr(brim_error_text(), "missing/updates.0.tmp"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_file_has_no_name),
                                     cmocka_unit_test(too_small_a_disk_is_refused_with_the_numbers),
                                     cmocka_unit_test(a_folder_that_does_not_exist_is_an_error)};
  return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
