/* The tier of tests that runs (scripts/test.sh); full without BRIM_TEST_TIER. */
#ifndef TESTS_TIER_H
#define TESTS_TIER_H
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static inline bool is_tier(const char *name)
{
  const char *tier = getenv("BRIM_TEST_TIER");
  return strcmp(tier ? tier : "full", name) == 0;
}
#endif
