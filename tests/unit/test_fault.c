/* Tests BRIM_FAULT: valid texts, errors with their position, and the calls that fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"
#include "scratch.h"

static void open_faults(const char *text)
{
  if (brim_fault_open(text, NULL) != BRIM_OK) fail_msg("'%s': %s", text ? text : "", brim_error_text());
}

/* Makes some calls and compares which of them fail: "..x" means that the third of three calls fails. */
static void assert_calls(const char *point, const char *name, const char *wanted)
{
  char seen[64] = "";
  for (size_t i = 0; i < strlen(wanted); i++) seen[i] = brim_fault_hit(point, name) ? 'x' : '.';
  assert_string_equal(seen, wanted);
}

static void nothing_fails_without_a_text(void **state)
{
  open_faults(NULL);
  assert_null(brim_fault_text());
  assert_calls("alloc", NULL, "....");
  open_faults("");
  assert_null(brim_fault_text());
  assert_calls("alloc", NULL, "....");
  open_faults("alloc");
  assert_string_equal(brim_fault_text(), "alloc");
  brim_fault_close();
  assert_null(brim_fault_text());
  assert_calls("alloc", NULL, "..");
}

static void counts_are_once_onwards_and_every(void **state)
{
  open_faults("alloc");
  assert_calls("alloc", NULL, "x....");
  open_faults("alloc:3");
  assert_calls("alloc", NULL, "..x...");
  open_faults("alloc:3+");
  assert_calls("alloc", NULL, "..xxxx");
  open_faults("alloc:%3");
  assert_calls("alloc", NULL, "..x..x..x");
  open_faults("alloc:2,alloc:%4,place:1");
  assert_calls("alloc", NULL, ".x.x...x");
  assert_calls("place", NULL, "x.");
  assert_calls("lib", "conv", "...");
}

static void libraries_fail_by_name(void **state)
{
  open_faults("lib:conv:2");
  assert_calls("lib", "linear", "...");
  assert_calls("lib", "conv", ".x.");
  open_faults("lib:2");
  assert_calls("lib", "linear", ".");
  assert_calls("lib", "conv", "x.");
  open_faults("lib:norm");
  assert_calls("lib", NULL, "..");
  assert_calls("lib", "norms", "..");
  assert_calls("lib", "norm", "x.");
}

static void a_step_counts_its_own_calls_also_when_it_is_redone(void **state)
{
  open_faults("step:3:lib:conv:2");
  assert_calls("lib", "conv", "...");
  brim_fault_step(2);
  assert_calls("lib", "conv", "...");
  brim_fault_step(3);
  assert_calls("lib", "conv", ".x.");
  brim_fault_step(3);
  assert_calls("lib", "conv", "....");
  open_faults("step:3:lib:conv:%2");
  brim_fault_step(3);
  assert_calls("lib", "conv", ".x.");
  brim_fault_step(3);
  assert_calls("lib", "conv", "x.x");
}

static void a_bare_step_fails_at_its_beginning(void **state)
{
  open_faults("step:2");
  brim_fault_step(1);
  assert_calls("begin", NULL, ".");
  brim_fault_step(2);
  assert_calls("alloc", NULL, ".");
  assert_calls("begin", NULL, "x.");
  open_faults("step:2:begin:1+");
  brim_fault_step(2);
  assert_calls("begin", NULL, "xxx");
  brim_fault_step(3);
  assert_calls("begin", NULL, "..");
}

static void every_rank_fails_by_itself(void **state)
{
  open_faults("rank:1:alloc,rank:1:step:1,rank:0:place:2");
  brim_fault_step(1);
  assert_calls("alloc", NULL, "...");
  assert_calls("begin", NULL, "...");
  assert_calls("place", NULL, ".x.");
}

/* Once the file exists, the fault never occurs again. */
static void a_fault_is_cleared_by_a_file(void **state)
{
  const char *path = scratch("cleared");
  char text[SCRATCH_PATH + 64];
  snprintf(text, sizeof text, "place:2+:until=%s,step:4:until=%s,alloc:2", path, path);
  open_faults(text);
  assert_calls("place", NULL, ".xx");
  brim_fault_step(4);
  assert_calls("begin", NULL, "xx");
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fclose(file);
  assert_calls("place", NULL, "..");
  assert_calls("begin", NULL, "..");
  assert_int_equal(unlink(path), 0);
  assert_calls("place", NULL, "..");
  assert_calls("alloc", NULL, ".x");
}

static void mistakes_are_reported_with_their_place(void **state)
{
  static const struct {
    const char *text;
    int at;
    const char *what;
  } cases[] = {{"aloc", 1, "unknown point"},
               {"alloc,", 7, "unknown point"},
               {",alloc", 1, "unknown point"},
               {"alloc:0", 7, "counted from 1"},
               {"alloc:-1", 7, "a count or until=PATH"},
               {"alloc:%", 8, "expected a number"},
               {"alloc:%2+", 9, "':' or ','"},
               {"alloc:3x", 8, "':' or ','"},
               {"alloc:", 7, "a count or until=PATH"},
               {"alloc:conv", 7, "a count or until=PATH"},
               {"alloc:2:3", 9, "expected until=PATH"},
               {"alloc:99999999999999999999", 7, "too large"},
               {"place:1,step:0:alloc", 14, "counted from 1"},
               {"step:", 6, "expected a number"},
               {"step", 5, "':' and a number"},
               {"step:3:", 8, "unknown point"},
               {"step:3x", 7, "':' or ','"},
               {"step:3:rank:1:alloc", 8, "write rank:R before"},
               {"rank:1", 7, "unknown point"},
               {"rank:1:step:2:step:3", 15, "each at most once"},
               {"lib:Conv", 5, "a name, a count"},
               {"lib:co-nv", 7, "lower-case"},
               {"lib:conv:conv", 10, "a count or until=PATH"},
               {"lib:a123456789012345678901234567890123", 5, "too long"},
               {"place:until=", 13, "expected a path"},
               {"place alloc", 1, "unknown point"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char wanted[64];
    snprintf(wanted, sizeof wanted, "BRIM_FAULT, character %d: ", cases[i].at);
    assert_int_equal(brim_fault_open(cases[i].text, NULL), BRIM_ECONFIG);
    if (strncmp(brim_error_text(), wanted, strlen(wanted)) != 0 || !strstr(brim_error_text(), cases[i].what))
      fail_msg("'%s': wanted %d %s, got %s", cases[i].text, cases[i].at, cases[i].what, brim_error_text());
    assert_null(brim_fault_text());
    assert_calls("alloc", NULL, "..");
  }
}

static void the_maximum_number_of_faults(void **state)
{
  char text[512] = "";
  for (int i = 1; i <= 32; i++)
    snprintf(text + strlen(text), sizeof text - strlen(text), "%salloc:%d", i > 1 ? "," : "", i);
  open_faults(text);
  for (int i = 0; i < 32; i++) assert_calls("alloc", NULL, "x");
  assert_calls("alloc", NULL, ".");
  snprintf(text + strlen(text), sizeof text - strlen(text), ",alloc");
  assert_int_equal(brim_fault_open(text, NULL), BRIM_ECONFIG);
  assert_non_null(strstr(brim_error_text(), "too many"));
}

static void a_report_has_the_calls_of_each_step(void **state)
{
  const char *path = scratch("report");
  char seen[512] = "";
  unlink(path);
  assert_int_equal(brim_fault_open("lib:conv:3", path), BRIM_OK);
  assert_calls("alloc", NULL, "..");
  assert_calls("lib", "conv", "..");
  brim_fault_step(1);
  brim_fault_step(2);
  assert_calls("lib", "conv", "x.");
  assert_calls("lib", "norm", ".");
  brim_fault_close();
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  seen[fread(seen, 1, sizeof seen - 1, file)] = '\0';
  fclose(file);
  assert_string_equal(seen, "0 alloc - 2 0\n0 lib conv 2 0\n2 lib conv 2 1\n2 lib norm 1 0\n");
  assert_int_equal(brim_fault_open(NULL, "/nowhere/at/all"), BRIM_EIO);
  assert_calls("alloc", NULL, ".");
}

static int close_faults(void **state)
{
  brim_fault_close();
  return 0;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(nothing_fails_without_a_text, close_faults),
      cmocka_unit_test_teardown(counts_are_once_onwards_and_every, close_faults),
      cmocka_unit_test_teardown(libraries_fail_by_name, close_faults),
      cmocka_unit_test_teardown(a_step_counts_its_own_calls_also_when_it_is_redone, close_faults),
      cmocka_unit_test_teardown(a_bare_step_fails_at_its_beginning, close_faults),
      cmocka_unit_test_teardown(every_rank_fails_by_itself, close_faults),
      cmocka_unit_test_teardown(a_fault_is_cleared_by_a_file, close_faults),
      cmocka_unit_test_teardown(mistakes_are_reported_with_their_place, close_faults),
      cmocka_unit_test_teardown(the_maximum_number_of_faults, close_faults),
      cmocka_unit_test_teardown(a_report_has_the_calls_of_each_step, close_faults)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
