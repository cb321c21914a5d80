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
  /* Divides positive logits of tokens that the text has already, and multiplies negative ones (Keskar et al. 2019,
   * CTRL, arXiv:1909.05858); 1, or 0: no penalty. */
  double repetition_penalty;
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

#define BRIM_STOPS_MAX 32
/* Tokens that end a text. */
typedef struct brim_stops {
  int32_t token[BRIM_STOPS_MAX];
  size_t count;
} brim_stops;
bool brim_stops_have(const brim_stops *stops, int32_t token);

/* The room that a generator plans. */
typedef struct brim_generator_options {
  int64_t texts;   /* that are continued side by side; at least 1 */
  int64_t prompt;  /* tokens of the longest prompt; 0: not known */
  int64_t tokens;  /* maximum number of new tokens */
  int64_t context; /* tokens that the model sees at most; 0: as many as a sample of its data has */
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
  uint32_t number; /* of the text, among those generated with one seed */
} brim_generate_text;

/* [init] Places the model and reads the parameters, of a checkpoint or (NULL) of model.weights. The plan has caches of
 * keys and values for the longest text if the model allows it: see graph/generate.h. The drive needs only the
 * description of its data. ECONFIG if the data are not tokens, or the model has no such context; ELOAD, EBUDGET,
 * ENOMEM_DEVICE. */
brim_status brim_generator_open(brim_drive *drive, const char *checkpoint, const brim_generator_options *options,
                                brim_generator **out);
void brim_generator_close(brim_generator *generator); /* may be NULL */
const brim_plan *brim_generator_plan(const brim_generator *generator);
/* Why the model has no caches; "" if it has them. */
const char *brim_generator_without_cache(const brim_generator *generator);
/* [init] The plan of a generator, without placing it. */
brim_status brim_generator_make_plan(const brim_drive *drive, const brim_generator_options *options, brim_plan **out);
/* Whether the data are tokens, and include these. ECONFIG for other data and for a token outside the vocabulary. */
brim_status brim_generator_check(const brim_drive *drive, const int32_t *prompt, int64_t count);
/* Continues the texts, at most as many as planned. The model sees the last tokens of a text, as many as its context.
 * A text depends only on seed, number, place and its tokens. ECONFIG for a token outside the vocabulary; ENUMERIC if
 * the model's output is not finite; EINTERRUPTED if stopped; the status of `take` and `end`. */
brim_status brim_generator_run(brim_generator *generator, const brim_generate_text *text, int64_t count,
                               const brim_generate_options *options);
#endif
