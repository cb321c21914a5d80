/* The parts of the conformance suite (test_conformance.c): its backends, its cases, its problems and its table. */
#ifndef TESTS_CONFORMANCE_SUITE_H
#define TESTS_CONFORMANCE_SUITE_H
#include "base/text.h"
#include "conformance/bench.h"

extern backend reference, tested; /* tested.ops is NULL if it was not built */
extern const char *tested_id, *tested_folder;
extern bool alone; /* the reference backend itself is not tested */

/* ---- the tests ---- */

void test_reference_gradients_match_finite_differences(void **state); /* suite_differences.c */
void test_backend_agrees_with_reference(void **state);                /* suite_agreement.c */
void test_backend_agrees_in_bf16(void **state);
void test_backend_agrees_in_f16(void **state);
void test_results_do_not_depend_on_shared_memory(void **state); /* suite_bits.c */
void test_cpu_gives_same_bits_at_multiples_of_the_grain(void **state);
void test_reference_gives_same_bits_at_any_micro_batch(void **state);
void test_cpu_gives_same_bits_on_any_number_of_threads(void **state);
void test_results_do_not_depend_on_the_order_of_blocks_and_threads(void **state);
void test_nan_spreads_as_in_the_reference(void **state); /* suite_extremes.c */
void test_values_too_large_for_f16_become_infinite(void **state);
void test_every_operation_has_cases(void **state); /* suite_coverage.c */

/* ---- cases (suite.c) ---- */

#define CASES 32 /* for each row and grain; covers every size, context and kind of values */

/* Case number `i` of a row: batch, grain, size, context and values cycle with different periods. */
bench_options case_of(const bench_row *row, int i);
/* The number of cases of a row, if small rows get `count`; at most BENCH_CASES of the environment, and BENCH_LARGE for
 * large rows. (BENCH_SETTINGS has the tested backend's parameters.) */
int cases_of(const bench_row *row, int count);
/* True if only some rows were selected. */
bool some_rows(void);
/* True if the tested backend has all operations of a row. */
bool offered(const bench_row *row);
/* True if the tested backend can store activations in a type. */
bool stores(uint32_t activations);
/* Skips the test if the tested backend was not built. */
void skip_without_tested(void);

/* ---- errors (suite.c) ---- */

/* ||a - b|| / ||b||; NaN is kept. */
double relative_error(const double *a, const double *b, int64_t count);
/* Describes a node's case, sources and results; the text is valid until the next call. */
const char *describe(const bench *b, const brim_node *n);
/* Reports a problem. The test continues, so that one run shows all problems, and fails at its end. */
BRIM_PRINTF(1, 2) void problem(const char *format, ...);
void fail_if_problems(void);

/* ---- the table (suite_coverage.c) ---- */

enum oracle { BY_DIFFERENCES, BY_REFERENCE, BY_REFERENCE_BF16, BY_REFERENCE_F16, ORACLE_COUNT };
typedef struct tally {
  int cases[ORACLE_COUNT];
  double worst[ORACLE_COUNT];
} tally;
extern int tensors_by_layout[3]; /* results of the tested backend: plain, channels in blocks, channels last */

void count_case(tally *t, enum oracle oracle, double error);
/* Returns the line of an operation within a row. */
tally *tally_for(const bench_row *row, const char *op);
#endif
