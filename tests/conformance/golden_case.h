/* Cases of a fixture that are one operation each: sources are named as the fixture's tensors are and get their numbers;
 * "y" is the result, "dy" its gradient, and "d<name>" the gradient of a source. */
#ifndef TESTS_CONFORMANCE_GOLDEN_CASE_H
#define TESTS_CONFORMANCE_GOLDEN_CASE_H
#include "conformance/bench.h"

/* The fixture and the reference backend; -1 if there is none. For a group of tests, before and behind all. */
int golden_case_open(const char *fixture);
void golden_case_close(void);
/* Builds a case, runs it and compares the result and every gradient. */
void golden_case_check(const char *prefix, brim_tensor *(*make)(bench *b));

/* While it is built: its prefix, "gelu0."; its sources. */
const char *golden_case_prefix(void);
brim_tensor *golden_case_input(bench *b, const char *name);
brim_tensor *golden_case_parameter(bench *b, const char *name);
brim_tensor *golden_case_indices(bench *b, const char *name);
#endif
