/* The best device: the GPU with the most free memory, if that is enough; else the host, with the reason. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "brim/ledger.h"
#include "brim/memory.h"
#include "memory/board.h"

#define MIB ((uint64_t)1 << 20)

static const char *const made_up[] = {GPUS};
static char folder[256];

/* Hides real GPUs, so that only the plugin's are found. */
static int set_up(void **state)
{
  snprintf(folder, sizeof folder, "%s/tests/best-%d", BRIM_BUILD_DIR, (int)getpid());
  brim_shared_folder_set(folder);
  unsetenv("BRIM_PLUGIN_PATH");
  return setenv("CUDA_VISIBLE_DEVICES", "", 1);
}

static int tear_down(void **state)
{
  char command[300];
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  return system(command);
}

static void set_gpus(const char *gpus, const char *device_id)
{
  setenv("TEST_GPUS", gpus, 1);
  device_id ? setenv("GPU_DEVICE_ID", device_id, 1) : unsetenv("GPU_DEVICE_ID");
}

static brim_device_search query(const char *backend, uint64_t min_mib)
{
  return (brim_device_search){
      .backend = backend, .min_bytes = min_mib * MIB, .plugin_path = made_up, .plugin_path_count = 1};
}

static brim_device_choice best(const char *backend, uint64_t min_mib)
{
  const brim_device_search q = query(backend, min_mib);
  brim_device_choice choice;
  memset(&choice, 0xA5, sizeof choice);
  if (brim_device_best(&q, &choice) != BRIM_OK) fail_msg("%s", brim_error_text());
  return choice;
}

static void assert_says(const char *text, const char *part)
{
  if (!strstr(text, part)) fail_msg("'%s' is not in: %s", part, text);
}

static void assert_fails(const brim_device_search *q, brim_status status, const char *part)
{
  brim_device_choice choice;
  assert_int_equal(brim_device_best(q, &choice), status);
  assert_says(brim_error_text(), part);
}

static void assert_is_host(const brim_device_choice *choice)
{
#ifdef HAS_CPU
  assert_string_equal(choice->name, "cpu:0");
#else
  assert_string_equal(choice->name, "reference:0");
#endif
  assert_true(choice->info.on_host);
  assert_true(choice->info.total_bytes > 0);
  assert_says(choice->reason, "the host, since no GPU can be used");
}

static void the_gpu_with_the_most_free_memory_is_chosen(void **state)
{
  static const char *const backends[] = {NULL, "auto", "gpus"};
  set_gpus("100/400,300/400,200/800", NULL);
  for (int i = 0; i < 3; i++) {
    const brim_device_choice choice = best(backends[i], 0);
    assert_string_equal(choice.name, "gpus:1");
    assert_string_equal(choice.info.name, "made up");
    assert_int_equal(choice.info.free_bytes, 300 * MIB);
    assert_int_equal(choice.info.total_bytes, 400 * MIB);
    assert_says(choice.reason, "the most free memory of 3 GPUs");
  }
}

static void a_gpu_comes_before_the_host_however_little_it_has(void **state)
{
  set_gpus("1/400", NULL);
  const brim_device_choice choice = best(NULL, 1);
  assert_string_equal(choice.name, "gpus:0");
  assert_says(choice.reason, "the only GPU that can be used");
}

static void a_gpu_without_enough_is_passed_over_and_named(void **state)
{
  set_gpus("100/400,300/400", NULL);
  brim_device_choice choice = best(NULL, 300);
  assert_string_equal(choice.name, "gpus:1");
  assert_says(choice.reason, "gpus:0 has 100.0 MiB of 400.0 MiB free");
  choice = best(NULL, 301);
  assert_is_host(&choice);
  assert_says(choice.reason, "gpus:0 has 100.0 MiB of 400.0 MiB free; gpus:1 has 300.0 MiB of 400.0 MiB free");
  const brim_device_search q = query("gpus", 301);
  assert_fails(&q, BRIM_ENODEVICE, "with 301.0 MiB free can be used: gpus:0 has 100.0 MiB");
}

static void gpu_device_id_selects_the_device(void **state)
{
  set_gpus("100/400,300/400", "0");
  brim_device_choice choice = best(NULL, 0);
  assert_string_equal(choice.name, "gpus:0");
  assert_string_equal(choice.reason, "GPU_DEVICE_ID names it");
  choice = best(NULL, 200); /* the named GPU is too small, and no other one is used */
  assert_is_host(&choice);
  set_gpus("100/400,300/400", "2");
  const brim_device_search q = query(NULL, 0);
  assert_fails(&q, BRIM_ENODEVICE, "GPU_DEVICE_ID is '2', but backend 'gpus' has 2 devices");
}

static void the_host_is_chosen_without_a_gpu(void **state)
{
  set_gpus("", NULL);
  const brim_device_choice choice = best(NULL, UINT32_MAX); /* a host without limits is not checked for this size */
  assert_is_host(&choice);
  assert_says(choice.reason, "gpus: the backend has no device on this host");
}

static void a_failing_driver_is_reported_but_is_no_error(void **state)
{
  set_gpus("broken", NULL);
  const brim_device_choice choice = best(NULL, 0);
  assert_is_host(&choice);
  assert_says(choice.reason, "gpus: the driver does not answer, try to restart it");
  const brim_device_search q = query("gpus", 0);
  assert_fails(&q, BRIM_ENODEVICE, "can be used: gpus: the driver does not answer");
}

static void errors_of_a_query_are_reported(void **state)
{
  static const char *const missing[] = {"/nowhere"}, *const option[] = {"threads=1"}, *const word[] = {"threads"};
  set_gpus("100/400", NULL);
  brim_device_search q = query("nonsense", 0);
  assert_fails(&q, BRIM_EINVAL, "there is no backend 'nonsense'\n");
  assert_says(brim_error_text(), "gpus: GPUs that are made up");
  q = query(NULL, 0);
  q.plugin_path = missing;
  assert_fails(&q, BRIM_ELOAD, "/nowhere");
  q = query(NULL, 0);
  q.option = option;
  q.option_count = 1;
  assert_fails(&q, BRIM_EINVAL, "'threads=1' needs a backend");
  q.backend = "gpus";
  assert_fails(&q, BRIM_ECONFIG, "'threads=1': no such parameter\nin a parameter of backend 'gpus'");
  q.option = word;
  assert_fails(&q, BRIM_ECONFIG, "'threads' is not a parameter: write key=value");
}

#ifdef HAS_CPU
/* Another process's share of a device counts like a GPU's used memory. */
static void devices_with_a_limit_are_chosen_by_its_free_part(void **state)
{
  static const char *const option[] = {"devices=2", "memory_mb=64"}, *const wrong[] = {"memory_mb=lots"};
  set_gpus("", NULL);
  brim_device_search q = query("cpu", 50);
  brim_device_choice choice;
  brim_ledger *ledger = NULL;
  int32_t entry;
  q.option = option;
  q.option_count = 2;
  assert_int_equal(brim_ledger_open("cpu", 2, 64 * MIB, &ledger), BRIM_OK);
  assert_int_equal(brim_ledger_take(ledger, 0, 40 * MIB, &entry), BRIM_OK);
  assert_int_equal(brim_device_best(&q, &choice), BRIM_OK);
  assert_string_equal(choice.name, "cpu:1");
  assert_int_equal(choice.info.total_bytes, 64 * MIB);
  assert_string_equal(choice.reason, "the only device that can be used (cpu:0 has 24.0 MiB of 64.0 MiB free)");
  brim_ledger_give(ledger, entry);
  assert_int_equal(brim_ledger_take(ledger, 1, 1 * MIB, &entry), BRIM_OK);
  assert_int_equal(brim_device_best(&q, &choice), BRIM_OK);
  assert_string_equal(choice.name, "cpu:0");
  assert_string_equal(choice.reason, "the most free memory of 2 devices");
  q.min_bytes = 65 * MIB;
  assert_fails(&q, BRIM_ENODEVICE, "with 65.0 MiB free can be used: cpu:0 has 64.0 MiB of 64.0 MiB free");
  q.option = wrong;
  q.option_count = 1;
  assert_fails(&q, BRIM_ECONFIG, "'memory_mb' must be");
  brim_ledger_close(ledger);
}
#endif

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_gpu_with_the_most_free_memory_is_chosen),
      cmocka_unit_test(a_gpu_comes_before_the_host_however_little_it_has),
      cmocka_unit_test(a_gpu_without_enough_is_passed_over_and_named),
      cmocka_unit_test(gpu_device_id_selects_the_device),
      cmocka_unit_test(the_host_is_chosen_without_a_gpu),
      cmocka_unit_test(a_failing_driver_is_reported_but_is_no_error),
      cmocka_unit_test(errors_of_a_query_are_reported),
#ifdef HAS_CPU
      cmocka_unit_test(devices_with_a_limit_are_chosen_by_its_free_part),
#endif
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
