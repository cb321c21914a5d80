/* See sampling.h. */
#include "train/sampling.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

static int by_logit(const void *a, const void *b)
{
  const brim_sampling_choice *x = a, *y = b;
  if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
  return x->token < y->token ? -1 : x->token > y->token;
}

static int32_t most_probable(const double *logits, int64_t count)
{
  int64_t best = 0;
  for (int64_t i = 1; i < count; i++)
    if (logits[i] > logits[best]) best = i;
  return (int32_t)best;
}

/* How many of the choices, in their order, have `share` of what all have together. */
static int64_t count_share(const brim_sampling_choice *choice, int64_t count, double total, double share)
{
  double sum = 0;
  for (int64_t i = 0; i < count; i++) {
    sum += choice[i].probability;
    if (sum >= share * total) return i + 1;
  }
  return count;
}

static double add_up(const brim_sampling_choice *choice, int64_t count)
{
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += choice[i].probability;
  return sum;
}

int32_t brim_sample(const brim_sampling *how, const double *logits, int64_t count, double uniform,
                    brim_sampling_choice *room)
{
  for (int64_t i = 0; i < count; i++)
    if (!isfinite(logits[i])) return -1;
  const int32_t best = most_probable(logits, count);
  if (how->temperature == 0) return best;
  for (int64_t i = 0; i < count; i++)
    room[i] = (brim_sampling_choice){(int32_t)i, logits[i], exp((logits[i] - logits[best]) / how->temperature)};
  const bool some = how->top_p < 1 || (how->top_k > 0 && how->top_k < count);
  if (some) qsort(room, (size_t)count, sizeof *room, by_logit);
  int64_t left = how->top_k > 0 && how->top_k < count ? how->top_k : count;
  if (how->top_p < 1) left = count_share(room, left, add_up(room, left), how->top_p);

  const double at = uniform * add_up(room, left);
  double sum = 0;
  for (int64_t i = 0; i < left; i++) {
    sum += room[i].probability;
    if (at < sum) return room[i].token;
  }
  return room[left - 1].token; /* sums are rounded */
}
