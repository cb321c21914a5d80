/* Tests the error if cuDNN cannot be loaded. The test contains the plugin's own load.c. The libraries.so.1 beside this
 * program needs libcudnn.so.19, which does not exist, while libcudnn.so.18 does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "load.c" /* NOLINT(bugprone-suspicious-include) */

/* Stubs of functions of the plugin's other files: load.c refers to them, but these tests never call them. */
uint64_t cuda_device_free_bytes(void)
{
  return 0;
}
void cuda_device_count_library(cuda_backend *b, uint64_t free_before)
{
  (void)b;
  (void)free_before;
}

static void another_major_version_of_cudnn_is_named(void **state)
{
  cuda_backend b = {.device = 0};
  assert_int_equal(cuda_library_open(&b), BRIM_ENODEVICE);
  assert_non_null(strstr(brim_error_text(), "libcudnn.so.19"));
  assert_non_null(strstr(brim_error_text(), "this host has cuDNN 18.3.4, another major version"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(another_major_version_of_cudnn_is_named)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
