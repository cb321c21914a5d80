/* A bench on a backend with other settings, for tests that compare two ways to compute. */
#ifndef TESTS_CPU_RUN_H
#define TESTS_CPU_RUN_H
#include "conformance/bench.h"
#include "conformance/load.h"

typedef struct run {
  loaded plugin;
  backend on;
  bench *b;
} run;

/* Loads the backend `id` and builds the bench; sets `backend` and `seed` in the options. */
void run_start(run *r, const bench_options *options, const char *id, const char *settings);
/* Runs all nodes. */
void run_finish(run *r);
void run_stop(run *r);
/* ||a - b|| / ||b|| of the tensor with this id; the denominator is at least `least` * sqrt(elements). */
double run_difference(const run *a, const run *b, size_t id, double least);
/* Fails if cpu, with any of the settings, gives other bits in any tensor than with one thread. */
void run_check_same_bits(const bench_options *options, const char *const *settings, size_t count);
#endif
