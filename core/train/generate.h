/* Continues a text token by token. Each token is drawn from the distribution that a checkpoint's model predicts from
 * the tokens before it. */
#ifndef BRIM_TRAIN_GENERATE_H
#define BRIM_TRAIN_GENERATE_H
#include <stdbool.h>

#include "drive/drive.h"

typedef struct brim_sampling {
  double temperature; /* logits are divided by the temperature; 0: always take the most probable token */
  int64_t top_k;      /* draw only from this many of the most probable tokens; 0: all */
  double top_p; /* from these, take the smallest set of the most probable tokens with at least this total probability,
                   (0, 1] */
  /* Positive logits of tokens that already occur in the text are divided by this number, and negative ones are
   * multiplied by it (Keskar et al. 2019, CTRL, arXiv:1909.05858); 1 or 0: no penalty. */
  double repetition_penalty;
} brim_sampling;

typedef struct brim_sampling_choice {
  int32_t token;
  double logit, probability;
} brim_sampling_choice;

/* Draws a token from `count` logits; equally probable tokens keep their order. `uniform` in [0, 1) decides. `room` has
 * space for `count` choices. -1 if a logit is NaN or infinite. (top_p: Holtzman et al. 2019, The Curious Case of Neural
 * Text Degeneration, arXiv:1904.09751.) */
int32_t brim_sample(const brim_sampling *how, const double *logits, int64_t count, double uniform,
                    brim_sampling_choice *room);

typedef struct brim_generator brim_generator;

#define BRIM_STOPS_MAX 32
/* Tokens that end a text. */
typedef struct brim_stops {
  int32_t token[BRIM_STOPS_MAX];
  size_t count;
} brim_stops;
bool brim_stops_have(const brim_stops *stops, int32_t token);

/* The room for which a generator plans. */
typedef struct brim_generator_options {
  int64_t texts;   /* number of texts that are continued side by side; at least 1 */
  int64_t prompt;  /* tokens of the longest prompt; 0: not known */
  int64_t tokens;  /* maximum number of new tokens */
  int64_t context; /* most tokens that the model sees; 0: the number in a sample of its data */
} brim_generator_options;

typedef struct brim_generate_options {
  brim_sampling sampling;
  uint64_t seed;
  int64_t tokens; /* maximum number of new tokens of each text */
  brim_stops stops;
  const volatile int *stopped; /* checked before each token; may be NULL */
  /* Receives each new token of text `index` as it is drawn, except those of `stops`. */
  brim_status (*take)(void *context, int64_t index, int32_t token);
  /* Called when text `index` is complete; may be NULL. */
  brim_status (*end)(void *context, int64_t index);
  void *context;
} brim_generate_options;

typedef struct brim_generate_text {
  const int32_t *prompt;
  int64_t count;   /* tokens of the prompt, at least 1 */
  uint32_t number; /* number of the text, among those generated with one seed */
} brim_generate_text;

/* [init] Places the model and reads the parameters, from a checkpoint or, if that is NULL, from model.weights. The plan
 * has caches of keys and values for the longest text if the model allows it: see graph/generate.h. The drive's data
 * need not be open, only described. ECONFIG if the data are not tokens, or the model has no such context; ELOAD,
 * EBUDGET, ENOMEM_DEVICE. */
brim_status brim_generator_open(brim_drive *drive, const char *checkpoint, const brim_generator_options *options,
                                brim_generator **out);
void brim_generator_close(brim_generator *generator); /* may be NULL */
const brim_plan *brim_generator_plan(const brim_generator *generator);
/* Returns why the model has no caches; "" if it has them. */
const char *brim_generator_without_cache(const brim_generator *generator);
/* [init] Makes the plan of a generator, without placing it. */
brim_status brim_generator_make_plan(const brim_drive *drive, const brim_generator_options *options, brim_plan **out);
/* Checks that the data are tokens, and that these tokens are in the vocabulary. ECONFIG if not. */
brim_status brim_generator_check(const brim_drive *drive, const int32_t *prompt, int64_t count);
/* Continues the texts, at most as many as planned. The model sees the last tokens of a text, up to the length of its
 * context. The result for a text depends only on the seed, the text's number, the position and the tokens before it.
 * ECONFIG for a token outside the vocabulary; ENUMERIC if the model's output is not finite; EINTERRUPTED if stopped;
 * the status of `take` and `end`. */
brim_status brim_generator_run(brim_generator *generator, const brim_generate_text *text, int64_t count,
                               const brim_generate_options *options);
#endif
