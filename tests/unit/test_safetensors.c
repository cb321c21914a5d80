/* Tests the safetensors format: writing, reading, and refusing invalid files. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "base/file.h"
#include "scratch.h"
#include "store/safetensors.h"

#define F32 BRIM_DTYPE_F32
#define LEN(array) (sizeof(array) / sizeof((array)[0]))

static brim_safetensor tensor(const char *name, uint32_t dtype, const void *data, int rank, const int64_t *dim)
{
  brim_safetensor t = {.name = name, .dtype = dtype, .shape = {.rank = rank}, .data = data};
  for (int i = 0; i < rank; i++) t.shape.dim[i] = dim[i];
  return t;
}
#define DIMS(...)                                                                                                      \
  (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])                                               \
  {                                                                                                                    \
    __VA_ARGS__                                                                                                        \
  }

/* Builds a file in memory: the length, the header, and data bytes of zeros. */
static char *build(const char *header, size_t data, size_t *size)
{
  const uint64_t length = strlen(header);
  *size = 8 + length + data;
  char *bytes = calloc(1, *size);
  memcpy(bytes, &length, 8);
  memcpy(bytes + 8, header, length);
  return bytes;
}

static void the_bytes_are_those_of_the_format(void **state)
{
  static const float value[] = {1, -2};
  static const char header[] = "{\"__metadata__\":{\"k\":\"v\"},"
                               "\"a\\\"b\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]}}";
  const brim_safetensor t = tensor("a\"b", F32, value, DIMS(2, 1));
  const char *const metadata[] = {"k", "v", NULL};
  size_t size;
  assert_int_equal(brim_safetensors_write(scratch("bytes"), &t, 1, metadata, NULL), BRIM_OK);
  char *bytes = scratch_read(scratch("bytes"), &size);
  uint64_t length;
  memcpy(&length, bytes, 8);
  assert_int_equal(length % 8, 0);
  assert_in_range(length, strlen(header), strlen(header) + 7);
  assert_memory_equal(bytes + 8, header, strlen(header));
  for (size_t i = strlen(header); i < length; i++) assert_int_equal(bytes[8 + i], ' ');
  assert_int_equal(size, 8 + length + sizeof value);
  assert_memory_equal(bytes + 8 + length, value, sizeof value);
  free(bytes);
}

static void written_data_reads_back(void **state)
{
  static const uint8_t u8[] = {1, 2, 255};
  static const int32_t i32[] = {INT32_MIN, 7};
  static const double f64[] = {0.1, -0.0, 1e-320};
  static const float f32[] = {NAN, 3.5f, 1, 2, 3, 4};
  const brim_safetensor t[] = {
      tensor("u8", BRIM_DTYPE_U8, u8, DIMS(3)),       tensor("f32", F32, f32, DIMS(1, 2, 3)),
      tensor("i32", BRIM_DTYPE_I32, i32, DIMS(2)),    tensor("f64", BRIM_DTYPE_F64, f64, DIMS(3)),
      tensor("scalar", F32, f32 + 1, 0, NULL),        tensor("none", F32, NULL, DIMS(3, 0)),
      tensor("six", F32, f32, DIMS(1, 1, 2, 1, 3, 1))};
  brim_safetensors *file;
  assert_int_equal(brim_safetensors_write(scratch("all"), t, LEN(t), NULL, NULL), BRIM_OK);
  assert_int_equal(brim_safetensors_open(scratch("all"), &file), BRIM_OK);
  assert_int_equal(brim_safetensors_count(file), LEN(t));
  for (size_t i = 0; i < LEN(t); i++) {
    const brim_safetensor *have = brim_safetensors_find(file, t[i].name);
    assert_non_null(have);
    assert_int_equal(have->dtype, t[i].dtype);
    assert_memory_equal(&have->shape, &t[i].shape, sizeof have->shape);
    const size_t bytes = (size_t)brim_shape_count(&have->shape) * brim_dtype_bytes(have->dtype);
    if (bytes) assert_memory_equal(have->data, t[i].data, bytes);
    assert_int_equal((uintptr_t)have->data % brim_dtype_bytes(have->dtype), 0);
  }
  assert_null(brim_safetensors_find(file, "f3"));
  assert_null(brim_safetensors_find(file, "zzz"));
  brim_safetensors_close(file);
}

static void tensors_keep_their_order_but_wider_elements_come_first(void **state)
{
  static const double zeros[2];
  static const char *const expected[] = {"wide", "z", "a", "m", "byte"};
  const brim_safetensor t[] = {tensor("byte", BRIM_DTYPE_U8, zeros, DIMS(1)), tensor("z", F32, zeros, DIMS(1)),
                               tensor("a", BRIM_DTYPE_I32, zeros, DIMS(1)),
                               tensor("wide", BRIM_DTYPE_F64, zeros, DIMS(1)), tensor("m", F32, zeros, DIMS(1))};
  brim_safetensors *file;
  assert_int_equal(brim_safetensors_write(scratch("order"), t, LEN(t), NULL, NULL), BRIM_OK);
  assert_int_equal(brim_safetensors_open(scratch("order"), &file), BRIM_OK);
  for (size_t i = 0; i < LEN(expected); i++) assert_string_equal(brim_safetensors_at(file, i)->name, expected[i]);
  brim_safetensors_close(file);
}

static void the_digest_is_of_the_file(void **state)
{
  static const float value[] = {1, 2, 3};
  const brim_safetensor t = tensor("a", F32, value, DIMS(3));
  brim_file_digest digest = {0};
  uint64_t bytes, hash;
  assert_int_equal(brim_safetensors_write(scratch("digest"), &t, 1, NULL, &digest), BRIM_OK);
  assert_int_equal(brim_file_xxh64(scratch("digest"), &bytes, &hash), BRIM_OK);
  assert_int_equal(digest.bytes, bytes);
  assert_true(digest.hash == hash);
}

static void an_empty_list_is_a_file_too(void **state)
{
  brim_safetensors *file;
  assert_int_equal(brim_safetensors_write(scratch("empty"), NULL, 0, NULL, NULL), BRIM_OK);
  assert_int_equal(brim_safetensors_open(scratch("empty"), &file), BRIM_OK);
  assert_int_equal(brim_safetensors_count(file), 0);
  assert_null(brim_safetensors_find(file, ""));
  brim_safetensors_close(file);
}

static void a_file_of_the_formats_own_library_is_read(void **state)
{
  static const int32_t labels[] = {1, -2, 3, INT32_MAX, INT32_MIN, 0};
  static const double mean[] = {1e300, -1e-300, 0.1};
  static const uint8_t mask[] = {0, 1, 255, 7, 9};
  brim_safetensors *file;
  assert_int_equal(brim_safetensors_open(BRIM_TESTS_DIR "/golden/reference.safetensors", &file), BRIM_OK);
  assert_int_equal(brim_safetensors_count(file), 8);
  const brim_safetensor *t = brim_safetensors_find(file, "conv1.weight");
  assert_non_null(t);
  assert_int_equal(t->shape.rank, 4);
  assert_memory_equal(t->shape.dim, ((int64_t[]){2, 3, 2, 2}), 4 * sizeof(int64_t));
  for (int i = 0; i < 24; i++) assert_float_equal(((const float *)t->data)[i], (float)i / 8 - 1, 0);
  assert_memory_equal(brim_safetensors_find(file, "running.mean")->data, mean, sizeof mean);
  assert_memory_equal(brim_safetensors_find(file, "labels")->data, labels, sizeof labels);
  assert_memory_equal(brim_safetensors_find(file, "mask")->data, mask, sizeof mask);
  assert_int_equal(brim_safetensors_find(file, "scale")->shape.rank, 0);
  assert_int_equal(brim_shape_count(&brim_safetensors_find(file, "empty")->shape), 0);
  assert_non_null(brim_safetensors_find(file, "a \"quoted\" n\xc3\xa4me\n"));
  brim_safetensors_close(file);
}

static void broken_headers_are_refused_with_the_reason(void **state)
{
#define T(dtype, shape, offsets) "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
  static const struct {
    const char *header;
    size_t data;
    const char *reason;
  } cases[] = {
      {"", 0, "does not start with '{'"},
      {" {}", 0, "does not start with '{'"},
      {"[]", 0, "does not start with '{'"},
      {"{", 0, "byte 1 of its header"},
      {"{} x", 0, "end of file expected"},
      {"{}", 4, "extra bytes at the end"},
      {"{\"a\":1}", 0, "tensor 'a' is not described by an object"},
      {"{\"a\":{}}", 0, "tensor 'a' has no dtype"},
      {"{\"a\":" T("Q4", "[2]", "[0,4]") "}", 4, "dtype Q4, which the format does not define"},
      {"{\"a\":{\"dtype\":\"F32\"}}", 0, "tensor 'a' has no shape"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 0, "data_offsets of tensor 'a'"},
      {"{\"a\":" T("F32", "[1,1,1,1,1,1,1]", "[0,4]") "}", 4, "7 dimensions; brim reads up to 6"},
      {"{\"a\":" T("F32", "[-1]", "[0,4]") "}", 4, "dimension 0 of tensor 'a' is not a non-negative integer"},
      {"{\"a\":" T("F32", "[1.0]", "[0,4]") "}", 4, "dimension 0 of tensor 'a' is not a non-negative integer"},
      {"{\"a\":" T("F32", "[\"1\"]", "[0,4]") "}", 4, "dimension 0 of tensor 'a' is not a non-negative integer"},
      {"{\"a\":" T("F32", "[4611686018427387904,4]", "[0,4]") "}", 4, "the size of tensor 'a' overflows"},
      {"{\"a\":" T("F32", "[99999999999999999999]", "[0,4]") "}", 4, "too big"},
      {"{\"a\":" T("F32", "[1]", "[0]") "}", 4, "data_offsets of tensor 'a' are not two ascending numbers"},
      {"{\"a\":" T("F32", "[1]", "[0,4,8]") "}", 4, "data_offsets of tensor 'a' are not two ascending numbers"},
      {"{\"a\":" T("F32", "[1]", "[4,0]") "}", 4, "data_offsets of tensor 'a' are not two ascending numbers"},
      {"{\"a\":" T("F32", "[1]", "[-4,0]") "}", 4, "data_offsets of tensor 'a' are not two ascending numbers"},
      {"{\"a\":" T("F32", "[1]", "[0,8]") "}", 8, "tensor 'a' has 8 bytes, but its shape and dtype need 4"},
      {"{\"a\":" T("F32", "[2]", "[0,8]") "}", 4, "the file is cut short"},
      {"{\"a\":" T("F32", "[1]", "[0,4]") "}", 5, "extra bytes at the end"},
      {"{\"a\":" T("F32", "[1]", "[4,8]") "}", 8, "tensor 'a' starts at byte 4"},
      {"{\"a\":" T("F32", "[1]", "[0,4]") ",\"b\":" T("F32", "[1]", "[8,12]") "}", 12, "(a gap)"},
      {"{\"a\":" T("F32", "[2]", "[0,8]") ",\"b\":" T("F32", "[2]", "[4,12]") "}", 12, "(they overlap)"},
      {"{\"a\":" T("F32", "[1]", "[0,4]") ",\"b\":" T("F32", "[1]", "[0,4]") "}", 4, "(they overlap)"},
      {"{\"a\":" T("F32", "[1]", "[0,4]") ",\"a\":" T("F32", "[1]", "[4,8]") "}", 8, "duplicate object key"},
      {"{\"__metadata__\":[]}", 0, "__metadata__ is not an object"},
      {"{\"__metadata__\":{\"k\":1}}", 0, "__metadata__ 'k' is not a string"},
      {"{\"\xff\":" T("F32", "[1]", "[0,4]") "}", 4, "unable to decode byte 0xff"},
  };
  for (size_t i = 0; i < LEN(cases); i++) {
    size_t size;
    brim_safetensors *file = NULL;
    char *bytes = build(cases[i].header, cases[i].data, &size);
    if (brim_safetensors_parse(bytes, size, "some/file", &file) != BRIM_ELOAD)
      fail_msg("case %zu was accepted: %s", i, cases[i].header);
    if (!strstr(brim_error_text(), cases[i].reason) || !strstr(brim_error_text(), "some/file"))
      fail_msg("case %zu: expected '%s', got: %s", i, cases[i].reason, brim_error_text());
    free(bytes);
  }
#undef T
}

static void the_order_of_the_header_need_not_be_that_of_the_data(void **state)
{
  static const char header[] = "{\"__metadata__\":null,\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[3,4]},"
                               "\"a\":{\"data_offsets\":[0,3],\"extra\":[1],\"shape\":[3],\"dtype\":\"U8\"}}  ";
  size_t size;
  brim_safetensors *file;
  char *bytes = build(header, 4, &size);
  bytes[size - 1] = 9;
  assert_int_equal(brim_safetensors_parse(bytes, size, "f", &file), BRIM_OK);
  assert_string_equal(brim_safetensors_at(file, 0)->name, "a");
  assert_int_equal(*(const uint8_t *)brim_safetensors_find(file, "b")->data, 9);
  brim_safetensors_close(file);
  free(bytes);
}

static void a_header_longer_than_the_file_or_the_format_allows_is_refused(void **state)
{
  static const uint64_t lengths[] = {3, 100, 100000000, 100000001, UINT64_MAX, UINT64_MAX - 7};
  size_t size;
  brim_safetensors *file;
  char *bytes = build("{}", 0, &size);
  for (size_t i = 0; i < LEN(lengths); i++) {
    memcpy(bytes, &lengths[i], 8);
    assert_int_equal(brim_safetensors_parse(bytes, size, "f", &file), BRIM_ELOAD);
    assert_non_null(
        strstr(brim_error_text(), lengths[i] > 100000000 ? "the maximum is 100 MB" : "the file ends after"));
  }
  free(bytes);
}

static void a_file_cut_anywhere_is_refused(void **state)
{
  size_t size;
  brim_safetensors *file;
  char *bytes = scratch_read(BRIM_TESTS_DIR "/golden/reference.safetensors", &size);
  for (size_t cut = 0; cut < size; cut++) {
    char *part = malloc(cut + 1); /* a separate block, so that a sanitizer detects a read beyond it */
    memcpy(part, bytes, cut);
    if (brim_safetensors_parse(part, cut, "cut", &file) != BRIM_ELOAD) fail_msg("accepted at %zu bytes", cut);
    free(part);
  }
  scratch_write(scratch("cut"), bytes, size - 1);
  assert_int_equal(brim_safetensors_open(scratch("cut"), &file), BRIM_ELOAD);
  assert_non_null(strstr(brim_error_text(), "cut short"));
  scratch_write(scratch("cut"), bytes, 0);
  assert_int_equal(brim_safetensors_open(scratch("cut"), &file), BRIM_ELOAD);
  free(bytes);
}

static void anything_but_a_file_is_refused_by_name(void **state)
{
  brim_safetensors *file;
  assert_int_equal(brim_safetensors_open(scratch("absent"), &file), BRIM_ELOAD);
  assert_non_null(strstr(brim_error_text(), "absent': No such file"));
  assert_int_equal(brim_safetensors_open(scratch_root, &file), BRIM_ELOAD);
  assert_non_null(strstr(brim_error_text(), "not a regular file"));
}

static void invalid_tensors_are_not_written(void **state)
{
  static const float value[1];
  const brim_safetensor twice[] = {tensor("a", F32, value, DIMS(1)), tensor("a", F32, value, DIMS(1))};
  const brim_safetensor reserved = tensor("__metadata__", F32, value, DIMS(1));
  const brim_safetensor not_utf8 = tensor("\xff", F32, value, DIMS(1)), no_dtype = tensor("a", 77, value, DIMS(1));
  assert_int_equal(brim_safetensors_write(scratch("bad"), twice, 2, NULL, NULL), BRIM_EINVAL);
  assert_int_equal(brim_safetensors_write(scratch("bad"), &reserved, 1, NULL, NULL), BRIM_EINVAL);
  assert_int_equal(brim_safetensors_write(scratch("bad"), &not_utf8, 1, NULL, NULL), BRIM_EINVAL);
  assert_int_equal(brim_safetensors_write(scratch("bad"), &no_dtype, 1, NULL, NULL), BRIM_EINVAL);
  assert_false(scratch_exists(scratch("bad")));
}

static void a_file_that_cannot_be_written_is_an_error_with_its_path(void **state)
{
  static const float value[1];
  const brim_safetensor t = tensor("a", F32, value, DIMS(1));
  assert_int_equal(brim_safetensors_write(scratch("no/such/folder"), &t, 1, NULL, NULL), BRIM_EIO);
  assert_non_null(strstr(brim_error_text(), "no/such/folder': No such file or directory"));
}

/* A limit on file sizes replaces a full disk: the same write() fails, with another errno. */
static void a_write_that_fails_half_way_leaves_no_file(void **state)
{
  static const float value[4096];
  const brim_safetensor t = tensor("a", F32, value, DIMS(4096));
  struct rlimit before, small;
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  small = before;
  small.rlim_cur = 1000;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  const brim_status status = brim_safetensors_write(scratch("half"), &t, 1, NULL, NULL);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  assert_int_equal(status, BRIM_EIO);
  assert_non_null(strstr(brim_error_text(), "/half': File too large"));
  assert_false(scratch_exists(scratch("half")));
}

static void a_failed_write_removes_plain_files_only(void **state)
{
  static const float value[1];
  const brim_safetensor t = tensor("a", F32, value, DIMS(1));
  assert_int_equal(mkfifo(scratch("fifo"), 0600), 0);
  const int reader = open(scratch("fifo"), O_RDONLY | O_NONBLOCK);
  assert_true(reader >= 0);
  assert_int_equal(brim_safetensors_write(scratch("fifo"), &t, 1, NULL, NULL), BRIM_EIO); /* a pipe has no fsync */
  assert_true(scratch_exists(scratch("fifo")));
  close(reader);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_bytes_are_those_of_the_format),
      cmocka_unit_test(written_data_reads_back),
      cmocka_unit_test(tensors_keep_their_order_but_wider_elements_come_first),
      cmocka_unit_test(the_digest_is_of_the_file),
      cmocka_unit_test(an_empty_list_is_a_file_too),
      cmocka_unit_test(a_file_of_the_formats_own_library_is_read),
      cmocka_unit_test(broken_headers_are_refused_with_the_reason),
      cmocka_unit_test(the_order_of_the_header_need_not_be_that_of_the_data),
      cmocka_unit_test(a_header_longer_than_the_file_or_the_format_allows_is_refused),
      cmocka_unit_test(a_file_cut_anywhere_is_refused),
      cmocka_unit_test(anything_but_a_file_is_refused_by_name),
      cmocka_unit_test(invalid_tensors_are_not_written),
      cmocka_unit_test(a_file_that_cannot_be_written_is_an_error_with_its_path),
      cmocka_unit_test(a_write_that_fails_half_way_leaves_no_file),
      cmocka_unit_test(a_failed_write_removes_plain_files_only),
  };
  return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
