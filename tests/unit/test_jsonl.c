/* Tests JSON lines: the format of records, and that a file never keeps part of one. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

#include <cmocka.h>
#include <jansson.h>

#include "scratch.h"
#include "store/jsonl.h"

static brim_jsonl jsonl; /* 8 KiB: too large for a test's stack frame */

static void open_new(const char *name)
{
  unlink(scratch("%s", name));
  if (brim_jsonl_open(&jsonl, scratch("%s", name), 0) != BRIM_OK) fail_msg("%s", brim_error_text());
}

static void record(int64_t step)
{
  brim_jsonl_begin(&jsonl);
  brim_jsonl_int(&jsonl, "step", step);
  assert_int_equal(brim_jsonl_end(&jsonl), BRIM_OK);
}

static void expect_file(const char *name, const char *text)
{
  char *found = scratch_read(scratch("%s", name), NULL);
  assert_string_equal(found, text);
  free(found);
}

static void a_record_is_one_line_with_its_fields_in_order(void **state)
{
  open_new("line");
  brim_jsonl_begin(&jsonl);
  brim_jsonl_int(&jsonl, "step", -12);
  brim_jsonl_string(&jsonl, "split", "train");
  brim_jsonl_number(&jsonl, "loss", 0.25);
  assert_int_equal(brim_jsonl_end(&jsonl), BRIM_OK);
  brim_jsonl_begin(&jsonl);
  assert_int_equal(brim_jsonl_end(&jsonl), BRIM_OK);
  assert_int_equal(jsonl.records, 2);
  static const char expected[] = "{\"step\":-12,\"split\":\"train\",\"loss\":0.25}\n{}\n";
  expect_file("line", expected);
  assert_int_equal(jsonl.bytes, strlen(expected));
  brim_jsonl_close(&jsonl);
}

static void a_number_is_the_shortest_that_reads_back(void **state)
{
  static const struct {
    double value;
    const char *text;
  } cases[] = {{0, "0"},
               {-0.0, "-0"},
               {1, "1"},
               {0.1, "0.1"},
               {0.2871, "0.2871"},
               {1e-4, "0.0001"},
               {123456789, "123456789"},
               {1e22, "1e+22"},
               {0.1 + 0.2, "0.30000000000000004"},
               {1.0 / 3, "0.3333333333333333"},
               {0.1f, "0.10000000149011612"},
               {DBL_MAX, "1.7976931348623157e+308"},
               {NAN, "null"},
               {INFINITY, "null"},
               {-INFINITY, "null"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char expected[64];
    open_new("number");
    brim_jsonl_begin(&jsonl);
    brim_jsonl_number(&jsonl, "x", cases[i].value);
    assert_int_equal(brim_jsonl_end(&jsonl), BRIM_OK);
    snprintf(expected, sizeof expected, "{\"x\":%s}\n", cases[i].text);
    expect_file("number", expected);
    brim_jsonl_close(&jsonl);
  }
}

static void any_double_reads_back_to_the_same_bits(void **state)
{
  uint64_t bits = 1;
  open_new("bits");
  for (int i = 0; i < 20000; i++) {
    double value;
    bits = bits * 6364136223846793005u + 1442695040888963407u;
    memcpy(&value, &bits, sizeof value);
    if (!isfinite(value)) continue;
    brim_jsonl_begin(&jsonl);
    brim_jsonl_number(&jsonl, "x", value);
    jsonl.line[jsonl.length] = '\0';
    const double back = strtod(strchr(jsonl.line, ':') + 1, NULL);
    assert_memory_equal(&back, &value, sizeof value);
  }
  brim_jsonl_close(&jsonl);
}

static void texts_are_escaped(void **state)
{
  open_new("text");
  brim_jsonl_begin(&jsonl);
  brim_jsonl_string(&jsonl, "a", "\"\\\b\f\n\r\t\x01\x1f\x7f/");
  brim_jsonl_string(&jsonl, "b", "na\xc3\xafve \xe2\x82\xac \xf0\x9f\x98\x80");
  assert_int_equal(brim_jsonl_end(&jsonl), BRIM_OK);
  expect_file("text", "{\"a\":\"\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u001f\x7f/\","
                      "\"b\":\"na\xc3\xafve \xe2\x82\xac \xf0\x9f\x98\x80\"}\n");
  brim_jsonl_close(&jsonl);
}

static void bytes_that_are_not_utf8_are_replaced(void **state)
{
  /* a lone continuation byte, an overlong '/', a surrogate, beyond U+10FFFF, a truncated character */
  static const char *const bad[] = {"\x80", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    open_new("bad");
    brim_jsonl_begin(&jsonl);
    brim_jsonl_string(&jsonl, "a", bad[i]);
    assert_int_equal(brim_jsonl_end(&jsonl), BRIM_OK);
    brim_jsonl_close(&jsonl);
    json_error_t problem;
    json_t *json = json_load_file(scratch("bad"), 0, &problem);
    assert_non_null(json);
    assert_int_equal(strncmp(json_string_value(json_object_get(json, "a")), "\xef\xbf\xbd", 3), 0);
    json_decref(json);
  }
}

static void a_long_text_is_cut_and_leaves_room_for_the_rest(void **state)
{
  static const char *const units[] = {"x", "\x01", "\xf0\x9f\x98\x80"};
  for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
    char text[20000] = "";
    size_t length = 0;
    while (length + 5 < sizeof text) length += (size_t)snprintf(text + length, sizeof text - length, "%s", units[u]);
    open_new("long");
    brim_jsonl_begin(&jsonl);
    brim_jsonl_string(&jsonl, "message", text);
    brim_jsonl_int(&jsonl, "step", 7);
    assert_int_equal(brim_jsonl_end(&jsonl), BRIM_OK);
    brim_jsonl_close(&jsonl);
    json_error_t problem;
    json_t *json = json_load_file(scratch("long"), 0, &problem);
    if (!json) fail_msg("%s", problem.text);
    const char *kept = json_string_value(json_object_get(json, "message"));
    assert_string_equal(kept + strlen(kept) - 3, "...");
    assert_int_equal(json_integer_value(json_object_get(json, "step")), 7);
    json_decref(json);
  }
}

static void a_record_that_is_too_long_is_refused_and_nothing_written(void **state)
{
  open_new("over");
  record(1);
  brim_jsonl_begin(&jsonl);
  for (int i = 0; i < 1000; i++) brim_jsonl_int(&jsonl, "key", i);
  assert_int_equal(brim_jsonl_end(&jsonl), BRIM_EINVAL);
  record(2);
  expect_file("over", "{\"step\":1}\n{\"step\":2}\n");
  brim_jsonl_close(&jsonl);
}

static void opening_keeps_the_given_number_of_records(void **state)
{
  for (int64_t keep = 0; keep <= 3; keep++) {
    char expected[64] = "";
    size_t length = 0;
    scratch_write(scratch("keep"), "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"st", 37);
    assert_int_equal(brim_jsonl_open(&jsonl, scratch("keep"), keep), BRIM_OK);
    assert_int_equal(jsonl.records, keep);
    record(9);
    assert_int_equal(jsonl.records, keep + 1);
    brim_jsonl_close(&jsonl);
    for (int i = 1; i <= keep; i++)
      length += (size_t)snprintf(expected + length, sizeof expected - length, "{\"step\":%d}\n", i);
    snprintf(expected + length, sizeof expected - length, "{\"step\":9}\n");
    expect_file("keep", expected);
  }
}

static void a_partial_last_line_is_cut_when_all_records_are_kept(void **state)
{
  scratch_write(scratch("partial"), "{\"step\":1}\n{\"st", 15);
  assert_int_equal(brim_jsonl_open(&jsonl, scratch("partial"), BRIM_JSONL_ALL), BRIM_OK);
  assert_int_equal(jsonl.records, 1);
  record(2);
  brim_jsonl_close(&jsonl);
  expect_file("partial", "{\"step\":1}\n{\"step\":2}\n");
  scratch_write(scratch("partial"), "{\"st", 4);
  assert_int_equal(brim_jsonl_open(&jsonl, scratch("partial"), BRIM_JSONL_ALL), BRIM_OK);
  brim_jsonl_close(&jsonl);
  expect_file("partial", "");
}

static void records_beyond_one_buffer_are_counted(void **state)
{
  open_new("many");
  for (int64_t i = 0; i < 5000; i++) record(i);
  const int64_t bytes = jsonl.bytes;
  brim_jsonl_close(&jsonl);
  assert_int_equal(brim_jsonl_open(&jsonl, scratch("many"), BRIM_JSONL_ALL), BRIM_OK);
  assert_int_equal(jsonl.records, 5000);
  assert_int_equal(jsonl.bytes, bytes);
  brim_jsonl_close(&jsonl);
}

static void a_file_with_fewer_records_than_the_checkpoint_counts_is_filled_up(void **state)
{
  scratch_write(scratch("fewer"), "{\"step\":1}\n{\"step\":2}", 21);
  assert_int_equal(brim_jsonl_open(&jsonl, scratch("fewer"), 3), BRIM_OK);
  assert_int_equal(jsonl.records, 3);
  record(4);
  brim_jsonl_close(&jsonl);
  expect_file("fewer", "{\"step\":1}\n{\"lost\":1}\n{\"lost\":1}\n{\"step\":4}\n");
}

static void a_write_that_fails_halfway_is_undone(void **state)
{
  struct rlimit before, small;
  signal(SIGXFSZ, SIG_IGN);
  open_new("full");
  record(1);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  small = before;
  small.rlim_cur = 15; /* one record and 4 bytes of the next */
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  brim_jsonl_begin(&jsonl);
  brim_jsonl_int(&jsonl, "step", 2);
  const brim_status status = brim_jsonl_end(&jsonl);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  assert_int_equal(status, BRIM_EIO);
  assert_non_null(strstr(brim_error_text(), "full': File too large"));
  expect_file("full", "{\"step\":1}\n");
  record(3);
  expect_file("full", "{\"step\":1}\n{\"step\":3}\n");
  brim_jsonl_close(&jsonl);
}

static void files_that_cannot_be_opened_are_reported(void **state)
{
  assert_int_equal(brim_jsonl_open(&jsonl, scratch("no/folder"), 0), BRIM_EIO);
  assert_non_null(strstr(brim_error_text(), "no/folder': No such file or directory"));
  brim_jsonl_close(&jsonl);
  jsonl = (brim_jsonl){0};
  brim_jsonl_close(&jsonl); /* closing must not close standard input */
  assert_true(fcntl(STDIN_FILENO, F_GETFD) != -1 || errno == EBADF);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_record_is_one_line_with_its_fields_in_order),
      cmocka_unit_test(a_number_is_the_shortest_that_reads_back),
      cmocka_unit_test(any_double_reads_back_to_the_same_bits),
      cmocka_unit_test(texts_are_escaped),
      cmocka_unit_test(bytes_that_are_not_utf8_are_replaced),
      cmocka_unit_test(a_long_text_is_cut_and_leaves_room_for_the_rest),
      cmocka_unit_test(a_record_that_is_too_long_is_refused_and_nothing_written),
      cmocka_unit_test(opening_keeps_the_given_number_of_records),
      cmocka_unit_test(a_partial_last_line_is_cut_when_all_records_are_kept),
      cmocka_unit_test(records_beyond_one_buffer_are_counted),
      cmocka_unit_test(a_file_with_fewer_records_than_the_checkpoint_counts_is_filled_up),
      cmocka_unit_test(a_write_that_fails_halfway_is_undone),
      cmocka_unit_test(files_that_cannot_be_opened_are_reported),
  };
  return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
