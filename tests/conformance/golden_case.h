/* Cases of a fixture that are one operation each: sources have the names of the fixture's tensors, without the layer's
 * name ("weight" for "conv.weight"), and their numbers; "y" is the result, "dy" its gradient, and "d<name>" the
 * gradient of a source. */
#ifndef TESTS_CONFORMANCE_GOLDEN_CASE_H
#define TESTS_CONFORMANCE_GOLDEN_CASE_H
#include "conformance/bench.h"
#include "conformance/golden.h"

/* The name of a file in tests/golden; the test defines it. */
extern const char golden_case_fixture[];
/* Group setup and teardown: the fixture, and the reference backend. */
int golden_case_set_up(void **state);
int golden_case_tear_down(void **state);
const backend *golden_case_backend(void);

/* Builds a case, runs it and compares the result and every gradient. `prefix` begins the names of its tensors, for
 * example "gelu0.". */
void golden_case_check(const char *prefix, brim_tensor *(*make)(bench *b));
/* These functions do the same in two steps. The row's name is the prefix. */
bench *golden_case_create(const bench_row *row, bool evaluate);
void golden_case_run(bench *b);

/* Finds a tensor of the current case by name; before the first case, a tensor of the whole fixture. */
const golden_tensor *golden_case_find(const char *name);
/* golden_case_put() gives one tensor the fixture's numbers, golden_case_fill() all sources except buffers. */
void golden_case_put(const bench *b, const brim_tensor *t, const char *name);
void golden_case_fill(const bench *b);
void golden_case_compare(const bench *b, const brim_tensor *t, const char *name);

/* For `make`: these functions return the prefix of the case, and add its sources by name. */
const char *golden_case_prefix(void);
brim_tensor *golden_case_input(bench *b, const char *name);
brim_tensor *golden_case_parameter(bench *b, const char *name);
brim_tensor *golden_case_indices(bench *b, const char *name);
#endif
