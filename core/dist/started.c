#include "dist/started.h"

#include <stdlib.h>

static const struct {
  const char *ranks, *rank;
} names[] = {{"BRIM_RANKS", "BRIM_RANK"},
             {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
             {"PMI_SIZE", "PMI_RANK"},
             {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}};

/* Reads a number from the environment; -1: none. */
static int32_t number_of(const char *name)
{
  const char *text = getenv(name);
  char *end = NULL;
  const long number = text ? strtol(text, &end, 10) : -1;
  return end == text || number < 0 || number > INT32_MAX ? -1 : (int32_t)number;
}

int32_t brim_dist_started(void)
{
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    const int32_t ranks = number_of(names[i].ranks);
    if (ranks > 0) return ranks;
  }
  return 1;
}

int32_t brim_dist_started_rank(void)
{
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    const int32_t ranks = number_of(names[i].ranks), rank = number_of(names[i].rank);
    if (ranks > 0) return rank > 0 && rank < ranks ? rank : 0;
  }
  return 0;
}
