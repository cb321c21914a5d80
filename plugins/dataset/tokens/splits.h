/* The splits of datasets of tokens and texts. */
#ifndef SPLITS_H
#define SPLITS_H
#include <string.h>

#include "brim/status.h"

enum { TRAIN, VALIDATION, TEST, SPLITS };
static const char *const split_names[SPLITS] = {"train", "validation", "test"};

/* Returns SPLITS if there is no split with this name. */
static inline int split_by_name(const char *name)
{
  int split = 0;
  while (split < SPLITS && strcmp(split_names[split], name) != 0) split++;
  return split;
}

static inline brim_status split_missing(const char *name)
{
  return brim_fail(BRIM_ENOTSUP, "the dataset has no split '%s'", name);
}
#endif
