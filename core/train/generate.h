/* Going on with a text: token by token, each drawn by what a checkpoint's model says of those before. */
#ifndef BRIM_TRAIN_GENERATE_H
#define BRIM_TRAIN_GENERATE_H
#include <stdbool.h>

#include "drive/drive.h"

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

typedef struct brim_generator brim_generator;

typedef struct brim_generate_options {
  brim_sampling sampling;
  uint64_t seed;
  uint32_t number;             /* of the text, among those that are made with one seed */
  int64_t tokens;              /* at most so many new ones */
  int32_t stop;                /* this one ends the text; -1: none does */
  const volatile int *stopped; /* looked at before each token; NULL: nobody stops it */
  /* Is given each new token as it is drawn, but not `stop`. */
  brim_status (*take)(void *context, int32_t token);
  void *context;
} brim_generate_options;

/* [init] Places the model for one sample of the data's length and reads the parameters. The drive needs no data but
 * its description. ECONFIG if its data are not tokens; ELOAD, EBUDGET, ENOMEM_DEVICE. */
brim_status brim_generator_open(brim_drive *drive, const char *checkpoint, brim_generator **out);
void brim_generator_close(brim_generator *generator); /* NULL: a no-op */
/* Can the model go on behind these tokens? ECONFIG for one that is not in the vocabulary. */
brim_status brim_generator_check(const brim_generator *generator, const int32_t *prompt, int64_t count);
/* Goes on behind `count` tokens, at least 1. The model sees as many of the last tokens as a sample of its data has.
 * What is drawn depends on seed, number, place and these tokens alone. ECONFIG for a token that is not in the
 * vocabulary; ENUMERIC if the model's output is not finite; EINTERRUPTED if it was stopped; what `take` says. */
brim_status brim_generator_run(brim_generator *generator, const int32_t *prompt, int64_t count,
                               const brim_generate_options *options);
#endif
