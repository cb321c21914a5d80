/* Drawing a token by a language model's logits. */
#ifndef BRIM_TRAIN_SAMPLING_H
#define BRIM_TRAIN_SAMPLING_H
#include <stdint.h>

typedef struct brim_sampling {
  double temperature; /* logits are divided by it; 0: the most probable token, always */
  int64_t top_k;      /* only so many of the most probable tokens; 0: all */
  double top_p;       /* of these the fewest, from the most probable on, that have this much together, (0, 1] */
} brim_sampling;

typedef struct brim_sampling_choice {
  int32_t token;
  double logit, probability;
} brim_sampling_choice;

/* A token of `count` logits; of equally probable ones the first comes first. `uniform` in [0, 1) decides. `room` is for
 * `count` choices. -1 if a logit is not a number or infinite. (Holtzman et al. 2019, The Curious Case of Neural Text
 * Degeneration, arXiv:1904.09751: top_p.) */
int32_t brim_sample(const brim_sampling *how, const double *logits, int64_t count, double uniform,
                    brim_sampling_choice *room);
#endif
