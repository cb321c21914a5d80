/* Cases of a fixture that are one operation each: sources have the names and the numbers of the fixture's tensors; "y"
 * is the result, "dy" its gradient, and "d<name>" the gradient of a source. */
#ifndef TESTS_CONFORMANCE_GOLDEN_CASE_H
#define TESTS_CONFORMANCE_GOLDEN_CASE_H
#include "conformance/bench.h"

/* Opens the fixture and the reference backend; -1 if it is missing. Group setup and teardown of tests. */
int golden_case_open(const char *fixture);
void golden_case_close(void);
/* Builds a case, runs it and compares the result and every gradient. */
void golden_case_check(const char *prefix, brim_tensor *(*make)(bench *b));

/* For `make`: the prefix of the case, such as "gelu0."; its sources by name. */
const char *golden_case_prefix(void);
brim_tensor *golden_case_input(bench *b, const char *name);
brim_tensor *golden_case_parameter(bench *b, const char *name);
brim_tensor *golden_case_indices(bench *b, const char *name);
#endif
