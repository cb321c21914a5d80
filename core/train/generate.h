/* Continues a text token by token, each drawn from the distribution that a checkpoint's model predicts from the
 * tokens before. */
#ifndef BRIM_TRAIN_GENERATE_H
#define BRIM_TRAIN_GENERATE_H
#include <stdbool.h>

#include "drive/drive.h"

typedef struct brim_sampling {
  double temperature; /* logits are divided by it; 0: always the most probable token */
  int64_t top_k;      /* only this many of the most probable tokens; 0: all */
  double top_p; /* of these, the smallest set of the most probable ones with at least this total probability, (0, 1] */
} brim_sampling;

typedef struct brim_sampling_choice {
  int32_t token;
  double logit, probability;
} brim_sampling_choice;

/* Draws a token from `count` logits; equally probable tokens keep their order. `uniform` in [0, 1) decides. `room`
 * holds `count` choices. -1 if a logit is NaN or infinite. (top_p: Holtzman et al. 2019, The Curious Case of Neural
 * Text Degeneration, arXiv:1904.09751.) */
int32_t brim_sample(const brim_sampling *how, const double *logits, int64_t count, double uniform,
                    brim_sampling_choice *room);

typedef struct brim_generator brim_generator;

typedef struct brim_generate_options {
  brim_sampling sampling;
  uint64_t seed;
  uint32_t number;             /* of the text, among those generated with one seed */
  int64_t tokens;              /* maximum number of new tokens */
  int32_t stop;                /* token that ends the text; -1: none */
  const volatile int *stopped; /* checked before each token; may be NULL */
  /* Receives each new token as it is drawn, except `stop`. */
  brim_status (*take)(void *context, int32_t token);
  void *context;
} brim_generate_options;

/* [init] Places the model for one sample of the data's length and reads the parameters. The drive needs only the
 * description of its data. ECONFIG if the data are not tokens; ELOAD, EBUDGET, ENOMEM_DEVICE. */
brim_status brim_generator_open(brim_drive *drive, const char *checkpoint, brim_generator **out);
void brim_generator_close(brim_generator *generator); /* may be NULL */
/* Whether the model can continue these tokens. ECONFIG for a token outside the vocabulary. */
brim_status brim_generator_check(const brim_generator *generator, const int32_t *prompt, int64_t count);
/* Continues `count` tokens, at least 1. The model sees the last tokens, as many as a sample of its data has. The
 * result depends only on seed, number, place and these tokens. ECONFIG for a token outside the vocabulary; ENUMERIC
 * if the model's output is not finite; EINTERRUPTED if stopped; the status of `take`. */
brim_status brim_generator_run(brim_generator *generator, const int32_t *prompt, int64_t count,
                               const brim_generate_options *options);
#endif
