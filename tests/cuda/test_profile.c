/* Tests the device profile: it is read back as written, only for the same device, library and sizes; an invalid profile
 * is refused with its line; and everything that a library's choice may depend on is in the key. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../plugins/backend/cuda/dnn.h"
#include "../../plugins/backend/cuda/libraries/profile.h"
#include "../../plugins/backend/cuda/product.h"

static char path[512];

static int setup(void **state)
{
  snprintf(path, sizeof path, BRIM_BUILD_DIR "/tests/profile-%d", (int)getpid());
  unlink(path);
  return 0;
}
static int teardown(void **state)
{
  unlink(path);
  return 0;
}

static void write_file(const char *text, size_t length)
{
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  assert_int_equal(fwrite(text, 1, length, file), length);
  assert_int_equal(fclose(file), 0);
}

static void test_what_is_added_is_found_now_and_later(void **state)
{
  cuda_profile p;
  assert_int_equal(cuda_profile_read(&p, path, 1), BRIM_OK);
  assert_null(cuda_profile_find(&p, "gpu", "lib 1", "key"));
  for (int i = 0; i < 200; i++) { /* more than the initial capacity */
    char key[32], choice[32];
    snprintf(key, sizeof key, "key %d", i);
    snprintf(choice, sizeof choice, "choice %d", i);
    assert_int_equal(cuda_profile_add(&p, "gpu", "lib 1", key, choice), BRIM_OK);
  }
  assert_string_equal(cuda_profile_find(&p, "gpu", "lib 1", "key 0"), "choice 0");
  assert_string_equal(cuda_profile_find(&p, "gpu", "lib 1", "key 199"), "choice 199");
  cuda_profile_release(&p);

  assert_int_equal(cuda_profile_read(&p, path, 0), BRIM_OK);
  assert_int_equal(p.count, 200);
  assert_string_equal(cuda_profile_find(&p, "gpu", "lib 1", "key 117"), "choice 117");
  cuda_profile_release(&p);
}

static void test_choices_are_for_one_device_library_and_key(void **state)
{
  cuda_profile p;
  assert_int_equal(cuda_profile_read(&p, path, 1), BRIM_OK);
  assert_int_equal(cuda_profile_add(&p, "gpu", "lib 1", "key", "choice"), BRIM_OK);
  assert_null(cuda_profile_find(&p, "gpu 2", "lib 1", "key"));
  assert_null(cuda_profile_find(&p, "gpu", "lib 2", "key"));
  assert_null(cuda_profile_find(&p, "gpu", "lib 1", "key 2"));
  assert_string_equal(cuda_profile_find(&p, "gpu", "lib 1", "key"), "choice");
  cuda_profile_release(&p);
}

static void test_of_two_lines_the_later_counts(void **state)
{
  static const char text[] = "# made by hand\n\ngpu\tlib\tkey\tfirst\r\ngpu\tlib\tother\tx\ngpu\tlib\tkey\tsecond";
  cuda_profile p;
  write_file(text, sizeof text - 1);
  assert_int_equal(cuda_profile_read(&p, path, 0), BRIM_OK);
  assert_int_equal(p.count, 3);
  assert_string_equal(cuda_profile_find(&p, "gpu", "lib", "key"), "second");
  cuda_profile_release(&p);
}

static void expect_refusal(const char *text, size_t length, const char *where)
{
  cuda_profile p;
  write_file(text, length);
  assert_int_equal(cuda_profile_read(&p, path, 0), BRIM_EINVAL);
  assert_non_null(strstr(brim_error_text(), path));
  if (!strstr(brim_error_text(), where)) fail_msg("'%s' does not say '%s'", brim_error_text(), where);
}
#define EXPECT_REFUSAL(text, where) expect_refusal(text, sizeof(text) - 1, where)

static void test_what_is_no_profile_is_refused_with_its_line(void **state)
{
  EXPECT_REFUSAL("gpu\tlib\tkey\n", ":1:");
  EXPECT_REFUSAL("# fine\ngpu\tlib\tkey\tchoice\ngpu\tlib\tkey\tchoice\tmore\n", ":3:");
  EXPECT_REFUSAL("\n\tlib\tkey\tchoice\n", ":2:");
  EXPECT_REFUSAL("gpu\tlib\t\tchoice\n", ":1:");
  EXPECT_REFUSAL("gpu\tlib\tkey\t\n", ":1:");
  EXPECT_REFUSAL("gpu\tlib\tkey\tcho\0ice\n", ":1:");
}

static void test_a_file_that_does_not_exist_is_empty_only_where_it_may_be(void **state)
{
  cuda_profile p;
  assert_int_equal(cuda_profile_read(&p, path, 1), BRIM_OK);
  assert_int_equal(p.count, 0);
  cuda_profile_release(&p);
  assert_int_equal(cuda_profile_read(&p, path, 0), BRIM_ELOAD);
  assert_non_null(strstr(brim_error_text(), path));
  assert_int_equal(cuda_profile_read(&p, "/", 1), BRIM_EIO); /* a folder */
}

static void test_a_field_with_a_tab_is_no_choice(void **state)
{
  cuda_profile p;
  assert_int_equal(cuda_profile_read(&p, path, 1), BRIM_OK);
  assert_int_equal(cuda_profile_add(&p, "gpu", "lib", "key", "a\tb"), BRIM_EINTERNAL);
  assert_int_equal(cuda_profile_add(&p, "gpu", "lib", "key", "a\nb"), BRIM_EINTERNAL);
  assert_int_equal(cuda_profile_add(&p, "gpu", "lib", "", "a"), BRIM_EINTERNAL);
  assert_int_equal(p.count, 0);
  cuda_profile_release(&p);
  assert_int_equal(cuda_profile_read(&p, path, 1), BRIM_OK); /* the file does not have the refused entries either */
  assert_int_equal(p.count, 0);
  cuda_profile_release(&p);
}

/* Every change of a description must change its key. */
#define EXPECT_OTHER_KEY(make_key, description, change)                                                                \
  do {                                                                                                                 \
    __typeof__(description) changed = (description);                                                                   \
    char before[CUDA_PROFILE_KEY_MAX], after[CUDA_PROFILE_KEY_MAX];                                                    \
    make_key(before, &changed, 0);                                                                                     \
    change;                                                                                                            \
    make_key(after, &changed, 0);                                                                                      \
    assert_string_not_equal(before, after);                                                                            \
  } while (0)

static void test_a_products_key_has_all_that_it_is(void **state)
{
  cuda_product p = {
      .m = 64, .n = 32, .k = 16, .lda = 16, .ldb = 32, .ldd = 32, .type = BRIM_DTYPE_F32, .type_d = BRIM_DTYPE_F32};
  char plain[CUDA_PROFILE_KEY_MAX], rounded[CUDA_PROFILE_KEY_MAX];
#define OTHER(change) EXPECT_OTHER_KEY(cuda_product_key, p, changed.change)
  OTHER(m = 65);
  OTHER(n = 33);
  OTHER(k = 17);
  OTHER(transpose_a = true);
  OTHER(transpose_b = true);
  OTHER(lda = 17);
  OTHER(ldb = 33);
  OTHER(ldd = 33);
  OTHER(batch = 2);
  OTHER(stride_a = 1);
  OTHER(stride_b = 1);
  OTHER(stride_d = 1);
  OTHER(type = BRIM_DTYPE_BF16);
  OTHER(type_d = BRIM_DTYPE_BF16);
  OTHER(accumulate = true);
  OTHER(bias = true);
  OTHER(function = CUDA_FUNCTION_GELU_TANH);
  OTHER(keep = true);
  OTHER(alignment = 16);
#undef OTHER
  cuda_product_key(plain, &p, 0);
  cuda_product_key(rounded, &p, 1);
  assert_string_not_equal(plain, rounded);
  p.type = p.type_d = BRIM_DTYPE_BF16;
  EXPECT_OTHER_KEY(cuda_product_key, p, changed.type = BRIM_DTYPE_F16);
  EXPECT_OTHER_KEY(cuda_product_key, p, changed.type_d = BRIM_DTYPE_F16);
}

static void test_a_convolutions_key_has_all_that_it_is(void **state)
{
  cuda_dnn_conv c = {.result = CUDA_DNN_Y,
                     .conv = {.N = 2,
                              .C = 4,
                              .H = 8,
                              .W = 8,
                              .K = 4,
                              .D = 4,
                              .R = 3,
                              .S = 3,
                              .P = 6,
                              .Q = 6,
                              .groups = 1,
                              .stride = {1, 1},
                              .dilation = {1, 1},
                              .dtype = BRIM_DTYPE_F32}};
  char plain[CUDA_PROFILE_KEY_MAX], rounded[CUDA_PROFILE_KEY_MAX];
#define OTHER(change) EXPECT_OTHER_KEY(cuda_dnn_key, c, changed.change)
  OTHER(result = CUDA_DNN_X);
  OTHER(result = CUDA_DNN_WEIGHT);
  OTHER(conv.N = 3);
  OTHER(conv.C = 8);
  OTHER(conv.H = 9);
  OTHER(conv.W = 9);
  OTHER(conv.K = 5);
  OTHER(conv.D = 2);
  OTHER(conv.R = 1);
  OTHER(conv.S = 1);
  OTHER(conv.stride[0] = 2);
  OTHER(conv.stride[1] = 2);
  OTHER(conv.padding[0] = 1);
  OTHER(conv.padding[1] = 1);
  OTHER(conv.dilation[0] = 2);
  OTHER(conv.dilation[1] = 2);
  OTHER(conv.dtype = BRIM_DTYPE_BF16);
  OTHER(conv.x_last = true);
#undef OTHER
  cuda_dnn_key(plain, &c, 0);
  cuda_dnn_key(rounded, &c, 1);
  assert_string_not_equal(plain, rounded);
  c.conv.dtype = BRIM_DTYPE_BF16;
  EXPECT_OTHER_KEY(cuda_dnn_key, c, changed.conv.dtype = BRIM_DTYPE_F16);
}

/* The longest keys are not truncated, because two keys might differ only in the truncated part. */
static void test_the_greatest_sizes_fit_into_a_key(void **state)
{
  const int64_t most = INT32_MAX, square = (int64_t)INT32_MAX * INT32_MAX;
  const cuda_product p = {most,
                          most,
                          most,
                          true,
                          true,
                          most,
                          most,
                          most,
                          most,
                          square,
                          square,
                          square,
                          BRIM_DTYPE_BF16,
                          BRIM_DTYPE_BF16,
                          true,
                          true,
                          CUDA_FUNCTION_GELU_TANH,
                          true,
                          256};
  const cuda_dnn_conv c = {CUDA_DNN_WEIGHT,
                           {most,
                            most,
                            most,
                            most,
                            most,
                            most,
                            most,
                            most,
                            most,
                            most,
                            most,
                            {most, most},
                            {most, most},
                            {most, most},
                            BRIM_DTYPE_BF16,
                            true,
                            true}};
  char text[CUDA_PROFILE_KEY_MAX];
  cuda_product_key(text, &p, 1);
  assert_true(strlen(text) < CUDA_PROFILE_KEY_MAX - 1);
  assert_string_equal(text + strlen(text) - 5, " keep");
  cuda_dnn_key(text, &c, 1);
  assert_true(strlen(text) < CUDA_PROFILE_KEY_MAX - 1);
  assert_string_equal(text + strlen(text) - 5, " last");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(test_what_is_added_is_found_now_and_later),
      TEST(test_choices_are_for_one_device_library_and_key),
      TEST(test_of_two_lines_the_later_counts),
      TEST(test_what_is_no_profile_is_refused_with_its_line),
      TEST(test_a_file_that_does_not_exist_is_empty_only_where_it_may_be),
      TEST(test_a_field_with_a_tab_is_no_choice),
      TEST(test_a_products_key_has_all_that_it_is),
      TEST(test_a_convolutions_key_has_all_that_it_is),
      TEST(test_the_greatest_sizes_fit_into_a_key),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
