/* Tests files of tokens, and windows over them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../plugins/dataset/tokens/windows.h"
#include "scratch.h"

/* ---- files ---- */

/* Writes a file of tokens first, first + step, ... in `width` bytes each, with a header or without. */
static const char *put_tokens(const char *name, int32_t width, bool header, int64_t count, uint32_t first,
                              uint32_t step)
{
  static char path[SCRATCH_PATH];
  unsigned char *bytes = calloc(1, TOKEN_HEADER_BYTES + (size_t)(count * width)), *at = bytes;
  if (header) {
    token_file_header(bytes, count, width);
    at += TOKEN_HEADER_BYTES;
  }
  for (int64_t i = 0; i < count; i++)
    for (int32_t b = 0; b < width; b++) *at++ = (unsigned char)((first + step * (uint32_t)i) >> 8 * b);
  snprintf(path, sizeof path, "%s", scratch("%s", name));
  scratch_write(path, bytes, (size_t)(at - bytes));
  free(bytes);
  return path;
}

static void check_file(const char *path, enum token_format format, int32_t width, int64_t count, uint32_t first,
                       uint32_t step)
{
  token_file f;
  if (token_file_open(path, format, &f) != BRIM_OK) fail_msg("%s", brim_error_text());
  assert_int_equal(f.width, width);
  assert_int_equal(f.count, count);
  for (int64_t i = 0; i < count; i++) assert_int_equal(token_file_at(&f, i), first + step * (uint32_t)i);
  token_file_close(&f);
}

static void files_of_llm_c_and_of_numpy_are_read(void **state)
{
  check_file(put_tokens("u16", 2, true, 30, 50000, 9), TOKEN_FORMAT_AUTO, 2, 30, 50000, 9);
  check_file(put_tokens("u32", 4, true, 30, 100000, 70000), TOKEN_FORMAT_AUTO, 4, 30, 100000, 70000);
  check_file(put_tokens("raw16", 2, false, 30, 7, 300), TOKEN_FORMAT_AUTO, 2, 30, 7, 300);
  check_file(put_tokens("raw32", 4, false, 30, 7, 3000000), TOKEN_FORMAT_U32, 4, 30, 7, 3000000);
  check_file(put_tokens("bytes", 1, false, 31, 200, 1), TOKEN_FORMAT_BYTES, 1, 31, 200, 1);
  check_file(put_tokens("empty", 2, false, 0, 0, 0), TOKEN_FORMAT_AUTO, 2, 0, 0, 0);
  check_file(put_tokens("none", 2, true, 0, 0, 0), TOKEN_FORMAT_U16, 2, 0, 0, 0);
}

static void expect_file_error(const char *path, enum token_format format, const char *text)
{
  token_file f;
  assert_int_equal(token_file_open(path, format, &f), BRIM_ELOAD);
  assert_null(f.map);
  if (!strstr(brim_error_text(), text)) fail_msg("'%s' is not in '%s'", text, brim_error_text());
}

static void wrong_files_are_refused(void **state)
{
  const unsigned char odd[] = {1, 2, 3}, start[] = {0x88, 0xd8, 0x34, 0x01, 1, 0, 0, 0};
  unsigned char head[TOKEN_HEADER_BYTES + 4];
  expect_file_error(scratch("nowhere"), TOKEN_FORMAT_AUTO, "cannot open");
  expect_file_error(scratch_root, TOKEN_FORMAT_AUTO, "is not a regular file");
  scratch_write(scratch("odd"), odd, sizeof odd);
  expect_file_error(scratch("odd"), TOKEN_FORMAT_AUTO, "has 3 bytes, not a whole number of tokens of 2 bytes");
  scratch_write(scratch("start"), start, sizeof start);
  expect_file_error(scratch("start"), TOKEN_FORMAT_AUTO, "has 8 bytes, less than the header's 1024");
  memset(head, 0, sizeof head);
  token_file_header(head, 3, 2);
  scratch_write(scratch("short"), head, sizeof head);
  expect_file_error(scratch("short"), TOKEN_FORMAT_AUTO, "is shorter than its header says: 3 tokens make 1030 bytes");
  token_file_header(head, 1, 2);
  scratch_write(scratch("long"), head, sizeof head);
  expect_file_error(scratch("long"), TOKEN_FORMAT_AUTO, "is longer than its header says");
  head[4] = 2;
  scratch_write(scratch("version"), head, sizeof head);
  expect_file_error(scratch("version"), TOKEN_FORMAT_AUTO, "is a token file of version 2; only version 1");
  expect_file_error(put_tokens("other", 4, true, 3, 0, 1), TOKEN_FORMAT_U16,
                    "states uint32, but dataset.format is uint16");
}

/* ---- windows ---- */

static windows make_windows(int64_t context, int64_t stride, int64_t vocabulary)
{
  return (windows){.context = context, .stride = stride, .vocabulary = vocabulary};
}

/* Adds a file of tokens first, first + 1, ... */
static void add(windows *w, const char *name, int64_t count, uint32_t first)
{
  token_file f;
  assert_int_equal(token_file_open(put_tokens(name, 2, false, count, first, 1), TOKEN_FORMAT_AUTO, &f), BRIM_OK);
  assert_int_equal(windows_add(w, &f, name), BRIM_OK);
}

/* Window i begins with this token; the answers are shifted by one. */
static void check_window(const windows *w, int64_t index, int32_t first)
{
  int32_t tokens[16], answers[16];
  assert_int_equal(windows_read(w, index, tokens, answers), BRIM_OK);
  for (int64_t i = 0; i < w->context; i++) {
    assert_int_equal(tokens[i], first + i);
    assert_int_equal(answers[i], first + i + 1);
  }
}

static void windows_lie_in_one_file_each(void **state)
{
  windows w = make_windows(4, 4, 1000);
  add(&w, "a", 13, 0);   /* 3 windows; the last answer is the 13th token */
  add(&w, "b", 4, 100);  /* no window: the last token has no answer */
  add(&w, "c", 5, 200);  /* 1 */
  add(&w, "d", 0, 300);  /* none */
  add(&w, "e", 12, 400); /* 2 */
  assert_int_equal(w.count, 6);
  assert_int_equal(w.tokens, 34);
  assert_int_equal(w.bytes, 68);
  const int32_t first[] = {0, 4, 8, 200, 400, 404};
  for (int64_t i = 0; i < w.count; i++) check_window(&w, i, first[i]);
  int32_t none[16];
  assert_int_equal(windows_read(&w, 6, none, none), BRIM_EINVAL);
  assert_int_equal(windows_read(&w, -1, none, none), BRIM_EINVAL);
  windows_free(&w);
}

static void a_stride_makes_windows_overlap_or_leaves_tokens_out(void **state)
{
  windows near = make_windows(4, 1, 1000), far = make_windows(4, 6, 1000);
  add(&near, "near", 8, 10);
  assert_int_equal(near.count, 4);
  for (int64_t i = 0; i < near.count; i++) check_window(&near, i, 10 + (int32_t)i);
  add(&far, "far", 17, 10);
  assert_int_equal(far.count, 3);
  for (int64_t i = 0; i < far.count; i++) check_window(&far, i, 10 + 6 * (int32_t)i);
  windows_free(&near);
  windows_free(&far);
}

static void too_few_tokens_are_reported(void **state)
{
  windows w = make_windows(8, 8, 1000);
  add(&w, "few", 8, 0);
  assert_int_equal(windows_check(&w, "the training tokens"), BRIM_ELOAD);
  assert_string_equal(brim_error_text(), "the training tokens, 'few', are too few: a sample needs 9 consecutive "
                                         "tokens, dataset.context + 1, but there are 8");
  windows_free(&w);
}

static void tokens_beyond_the_vocabulary_are_found(void **state)
{
  windows w = make_windows(4, 4, 70005);
  token_file f;
  int32_t tokens[4], answers[4];
  assert_int_equal(token_file_open(put_tokens("wide", 4, true, 70010, 0, 1), TOKEN_FORMAT_AUTO, &f), BRIM_OK);
  assert_int_equal(token_file_find_beyond(&f, 70005), 70005);
  assert_int_equal(token_file_find_beyond(&f, 70010), -1);
  assert_int_equal(windows_add(&w, &f, "wide"), BRIM_OK);
  assert_int_equal(windows_scan(&w), BRIM_ELOAD);
  const char *text = "'wide': token 70005 is 70005, but the vocabulary has 70005 tokens, 0 to 70004";
  assert_non_null(strstr(brim_error_text(), text));
  assert_int_equal(windows_read(&w, 17500, tokens, answers), BRIM_OK);
  assert_int_equal(windows_read(&w, 17501, tokens, answers), BRIM_ELOAD); /* the token is an answer here */
  assert_non_null(strstr(brim_error_text(), text));
  windows_free(&w);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(files_of_llm_c_and_of_numpy_are_read),
      cmocka_unit_test(wrong_files_are_refused),
      cmocka_unit_test(windows_lie_in_one_file_each),
      cmocka_unit_test(a_stride_makes_windows_overlap_or_leaves_tokens_out),
      cmocka_unit_test(too_few_tokens_are_reported),
      cmocka_unit_test(tokens_beyond_the_vocabulary_are_found),
  };
  return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
