/* The conformance suite: every operation, forward and backward.
 *
 *   reference  against itself: gradients and central differences of the forward pass, through the real autodiff
 *   tested     against reference: relative L2 of every tensor, over random shapes, sizes, contexts and layouts
 *   cpu        against itself: the same bits for every split of a batch at multiples of the grain and every number of
 *              threads
 *   both       with the planner's memory layout instead of separate memory: the same bits; NaN is passed on
 *
 *     test_conformance                    the reference backend, and cpu
 *     test_conformance BACKEND [FOLDER]   only that backend, of the build or of FOLDER in it
 *
 * Prints a table: operation, cases, worst error. An operation without a case fails the suite, unless only some rows
 * were selected: BENCH_ROWS=conv,max_pool runs those whose names begin so, BENCH_SHARD=2/12 the third of every twelve.
 * BENCH_CASES=2 runs two cases of each; only BRIM_TEST_TIER=full splits large rows at every batch. */
#include <limits.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/load.h"
#include "conformance/suite.h"

static loaded reference_plugin, tested_plugin;
backend reference, tested;
const char *tested_id = "cpu", *tested_folder = "";
bool alone;

static int set_up(void **state)
{
  /* The benches take and free large memory: the heap keeps it, because the kernel would clear each page again. */
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  if (!load_plugin(&reference_plugin, "backend", "reference", NULL)) return -1;
  reference = (backend){"reference", reference_plugin.plugin->ops, reference_plugin.self};
  if (!load_plugin_from(&tested_plugin, tested_folder, "backend", tested_id, getenv("BENCH_SETTINGS")))
    return alone ? -1 : 0;
  tested = (backend){tested_id, tested_plugin.plugin->ops, tested_plugin.self};
  if (BRIM_HAS(brim_backend_ops, tested.ops, select) && tested.ops->select(tested.self, 0) != BRIM_OK) {
    fprintf(stderr, "%s: %s\n", tested_id, brim_error_text());
    return -1;
  }
  return 0;
}

static int tear_down(void **state)
{
  unload_plugin(&reference_plugin);
  unload_plugin(&tested_plugin);
  return 0;
}

int main(int argc, char **argv)
{
  const struct CMUnitTest all[] = {
      cmocka_unit_test(test_reference_gradients_match_finite_differences),
      cmocka_unit_test(test_reference_gives_same_bits_at_any_micro_batch),
      cmocka_unit_test(test_cpu_gives_same_bits_at_multiples_of_the_grain),
      cmocka_unit_test(test_cpu_gives_same_bits_on_any_number_of_threads),
      cmocka_unit_test(test_backend_agrees_with_reference),
      cmocka_unit_test(test_backend_agrees_in_bf16),
      cmocka_unit_test(test_backend_agrees_in_f16),
      cmocka_unit_test(test_results_do_not_depend_on_shared_memory),
      cmocka_unit_test(test_nan_spreads_as_in_the_reference),
      cmocka_unit_test(test_values_too_large_for_f16_become_infinite),
      cmocka_unit_test(test_every_operation_has_cases),
  };
  const struct CMUnitTest of_backend[] = {
      cmocka_unit_test(test_backend_agrees_with_reference),
      cmocka_unit_test(test_backend_agrees_in_bf16),
      cmocka_unit_test(test_backend_agrees_in_f16),
      cmocka_unit_test(test_results_do_not_depend_on_shared_memory),
      cmocka_unit_test(test_results_do_not_depend_on_the_order_of_blocks_and_threads),
      cmocka_unit_test(test_nan_spreads_as_in_the_reference),
      cmocka_unit_test(test_values_too_large_for_f16_become_infinite),
      cmocka_unit_test(test_every_operation_has_cases),
  };
  if (argc <= 1) return cmocka_run_group_tests(all, set_up, tear_down);
  alone = true;
  tested_id = argv[1];
  tested_folder = argc > 2 ? argv[2] : "";
  return cmocka_run_group_tests(of_backend, set_up, tear_down);
}
