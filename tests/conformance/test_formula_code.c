/* Formulas give the same bits on every instruction set: as machine code for AVX-512 or AVX2, and as the SSE vector
 * code, which works line by line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/bench.h"
#include "conformance/load.h"
#include "cpu/isa.h"

#define CASES 60

/* Returns the results of all cases, concatenated. */
static double *results(const char *isa, size_t *count)
{
  loaded cpu;
  char settings[32];
  double *all = NULL;
  snprintf(settings, sizeof settings, "{threads: 2, isa: %s}", isa);
  assert_true(load_plugin(&cpu, "backend", "cpu", settings));
  const backend on = {"cpu", cpu.plugin->ops, cpu.self};
  *count = 0;
  for (uint64_t seed = 0; seed < CASES; seed++)
    BENCH_EACH_ROW (row) {
      if (strcmp(row->name, "formula") != 0) continue;
      const bench_options o = {.backend = &on,
                               .row = row,
                               .seed = seed,
                               .batch = 2,
                               .size = (enum bench_size)(seed % SIZE_COUNT),
                               .values = (enum bench_values)(seed % VALUES_COUNT)};
      bench *b = bench_create(&o);
      bench_run(b, 0, b->g->node_count);
      const brim_node *n = b->g->node[b->g->node_count - 1];
      for (uint32_t k = 0; k < n->out_count; k++) {
        const size_t values = (size_t)brim_shape_count(&n->out[k]->shape);
        double *value = bench_values_of(b, n->out[k]);
        all = realloc(all, (*count + values) * sizeof *all);
        memcpy(all + *count, value, values * sizeof *all);
        *count += values;
        free(value);
      }
      bench_free(b);
    }
  unload_plugin(&cpu);
  return all;
}

static void instruction_sets_leave_the_same_bits(void **state)
{
  size_t count = 0;
  double *first = results(isas[0], &count);
  assert_true(count > 1000);
  const char *const others[] = {isas[1], isas[2], "auto"};
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
    if (i < 2 && !has_isa(others[i])) continue;
    size_t values = 0;
    double *other = results(others[i], &values);
    assert_int_equal(values, count);
    assert_memory_equal(first, other, count * sizeof *first);
    free(other);
  }
  free(first);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(instruction_sets_leave_the_same_bits)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
