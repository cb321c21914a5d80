/* Tests the reference backend's guarantees besides its numbers: a strict memory limit, labels checked before they are
 * used as indices, and the random numbers that define dropout. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "brim/random.h"
#include "conformance/load.h"

#define MIB (UINT64_C(1) << 20)

static const brim_kernel *kernel_of(const brim_backend_ops *ops, const char *op)
{
  for (const brim_kernel *const *k = ops->kernels; k < ops->kernels_end; k++)
    if (strcmp((*k)->op, op) == 0) return *k;
  fail_msg("no kernel %s", op);
  return NULL;
}

static void test_memory_mb_is_a_hard_limit(void **state)
{
  loaded plugin;
  void *first = NULL, *second = NULL;
  brim_device_info info;
  assert_true(load_plugin(&plugin, "backend", "reference", "{memory_mb: 2}"));
  const brim_backend_ops *ops = plugin.plugin->ops;
  assert_int_equal(ops->place(plugin.self, 0, 2 * MIB + 1, &first), BRIM_ENOMEM_DEVICE);
  assert_int_equal(ops->place(plugin.self, 0, 2 * MIB - 8, &first), BRIM_OK);
  assert_int_equal((uintptr_t)first % ops->alignment, 0);
  assert_int_equal(ops->place(plugin.self, 0, 9, &second), BRIM_ENOMEM_DEVICE);
  assert_int_equal(ops->place(plugin.self, 0, 8, &second), BRIM_OK);
  assert_int_equal(ops->describe(plugin.self, 0, &info), BRIM_OK);
  assert_int_equal(info.total_bytes, 2 * MIB);
  assert_int_equal(info.free_bytes, 0);
  ops->unplace(plugin.self, first, 2 * MIB - 8);
  ops->unplace(plugin.self, second, 8);
  assert_int_equal(ops->place(plugin.self, 0, 2 * MIB, &first), BRIM_OK);
  ops->unplace(plugin.self, first, 2 * MIB);
  unload_plugin(&plugin);
}

static void test_an_arena_starts_zeroed(void **state)
{
  loaded plugin;
  void *base = NULL;
  assert_true(load_plugin(&plugin, "backend", "reference", NULL));
  const brim_backend_ops *ops = plugin.plugin->ops;
  for (int round = 0; round < 2; round++) {
    assert_int_equal(ops->place(plugin.self, 0, 4096, &base), BRIM_OK);
    for (int i = 0; i < 4096; i++) assert_int_equal(((unsigned char *)base)[i], 0);
    memset(base, 0xFF, 4096);
    ops->unplace(plugin.self, base, 4096);
  }
  unload_plugin(&plugin);
}

static void test_there_is_one_device(void **state)
{
  loaded plugin;
  void *base = NULL;
  brim_device_info info;
  assert_true(load_plugin(&plugin, "backend", "reference", NULL));
  const brim_backend_ops *ops = plugin.plugin->ops;
  assert_int_equal(ops->device_count(plugin.self), 1);
  assert_int_equal(ops->describe(plugin.self, 1, &info), BRIM_ENODEVICE);
  assert_int_equal(ops->place(plugin.self, 1, 64, &base), BRIM_ENODEVICE);
  unload_plugin(&plugin);
}

static void check_label(const brim_backend_ops *ops, void *self, const char *op, int32_t second_label)
{
  double logits[2][3] = {{1, 2, 3}, {4, 5, 6}}, out[6] = {0};
  const int32_t label[2] = {2, second_label};
  brim_tensor logits_tensor = {.dtype = BRIM_DTYPE_F64, .shape = {2, {2, 3}}};
  brim_tensor label_tensor = {.dtype = BRIM_DTYPE_I32, .shape = {1, {2}}};
  const brim_node node = {
      .op = op, .in_count = 2, .in = (brim_tensor *[]){&logits_tensor, &label_tensor}, .out_count = 1};
  const void *const in[] = {logits, label};
  void *const to[] = {out};
  const brim_step step = {.loss_scale = 1};
  const brim_launch launch = {.node = &node, .in = (void *const *)in, .out = to, .step = &step};
  assert_int_equal(kernel_of(ops, op)->run(self, &launch), BRIM_EINVAL);
  assert_non_null(strstr(brim_error_text(), "sample 1"));
}

static void test_a_label_out_of_range_is_an_error(void **state)
{
  loaded plugin;
  assert_true(load_plugin(&plugin, "backend", "reference", NULL));
  check_label(plugin.plugin->ops, plugin.self, "softmax_cross_entropy", 3);
  check_label(plugin.plugin->ops, plugin.self, "softmax_cross_entropy", -1);
  check_label(plugin.plugin->ops, plugin.self, "softmax_cross_entropy_grad", 3);
  unload_plugin(&plugin);
}

/* kat_vectors of Random123: counter and key of all zeros, of all ones, and of digits of pi. */
static void test_philox_gives_the_published_numbers(void **state)
{
  const uint32_t one = 0xffffffff;
  static const uint32_t expected[3][4] = {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
                                          {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
                                          {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};
  const brim_philox got[3] = {brim_philox4x32(0, 0, 0, 0, 0, 0), brim_philox4x32(one, one, one, one, one, one),
                              brim_philox4x32(0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0)};
  assert_memory_equal(got, expected, sizeof expected);
}

/* Counts the kept elements of a mask of 4 samples of 4000, and the agreements of two masks. */
static void compare_masks(brim_dropout_key a, brim_dropout_key b, int *kept, int *equal)
{
  *kept = *equal = 0;
  for (int64_t sample = 0; sample < 4; sample++)
    for (int64_t element = 0; element < 4000; element++) {
      const int in_a = brim_dropout_keep(&a, sample, element), in_b = brim_dropout_keep(&b, sample, element);
      *kept += in_a;
      *equal += in_a == in_b;
    }
}

/* Of 16000 elements, six standard deviations are 329 for the number of kept ones, and 367 for the number on which two
 * masks agree. */
static void test_dropout_masks_keep_their_share_and_differ_by_seed_step_and_stream(void **state)
{
  int kept, equal;
  const brim_dropout_key key = brim_dropout_key_make(1, 2, 3, 0.25);
  const brim_dropout_key other[] = {brim_dropout_key_make(2, 2, 3, 0.25), brim_dropout_key_make(1, 3, 3, 0.25),
                                    brim_dropout_key_make(1, 2, 4, 0.25)};
  for (int i = 0; i < 3; i++) {
    compare_masks(key, other[i], &kept, &equal);
    assert_in_range(kept, 12000 - 329, 12000 + 329);
    assert_in_range(equal, 10000 - 370, 10000 + 370); /* 0.75^2 + 0.25^2 of them */
  }
  compare_masks(key, brim_dropout_key_make(1, 2, 3, 0.25), &kept, &equal);
  assert_int_equal(equal, 16000);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_memory_mb_is_a_hard_limit),
      cmocka_unit_test(test_an_arena_starts_zeroed),
      cmocka_unit_test(test_there_is_one_device),
      cmocka_unit_test(test_a_label_out_of_range_is_an_error),
      cmocka_unit_test(test_philox_gives_the_published_numbers),
      cmocka_unit_test(test_dropout_masks_keep_their_share_and_differ_by_seed_step_and_stream),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
