/* A rank under test, and tests of its collectives. */
#ifndef TESTS_DIST_COLLECTIVES_H
#define TESTS_DIST_COLLECTIVES_H
#include <stdbool.h>
#include <stddef.h>

#include "brim/comm.h"
#include "plugin/registry.h"

typedef struct rank_under_test {
  brim_registry *registry;
  const brim_plugin *plugin;
  const brim_comm_ops *ops;
  void *self;
  brim_world world;
  double seconds; /* timeout for other ranks */
} rank_under_test;

/* Ends the job with exit status 1 if `holds` is false. */
void rank_check(const rank_under_test *rank, bool holds, const char *what);
/* Ends the job as brim does if the call fails. */
void rank_exchange(const rank_under_test *rank, const void *own, uint32_t bytes, void *all);

/* Checks collectives of every kind and type and of many sizes, one and several at a time, against sums in the order of
 * the ranks. */
void rank_check_collectives(const rank_under_test *rank);
/* Prints the time of an all-reduce of float32. */
void rank_time_sums(const rank_under_test *rank, size_t bytes, int times);
#endif
