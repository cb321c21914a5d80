/* What a model takes, and which models there are for samples of another kind. */
#ifndef BRIM_MODELS_SAMPLES_H
#define BRIM_MODELS_SAMPLES_H
#include "brim/model.h"

enum sample_kind {
  SAMPLES_NUMBERS, /* real ones, of any shape */
  SAMPLES_IMAGES,  /* [channels,rows,columns] */
  SAMPLES_TOKENS   /* [T] of I32 */
};

static inline enum sample_kind kind_of_samples(const brim_tensor *x)
{
  if (x->dtype == BRIM_DTYPE_I32) return SAMPLES_TOKENS;
  return x->shape.rank == 4 ? SAMPLES_IMAGES : SAMPLES_NUMBERS;
}

/* ECONFIG if a batch of samples, NULL where there is none, is not of the kind that the model `id` takes. */
static inline brim_status check_samples(const char *id, const brim_tensor *x, enum sample_kind takes)
{
  static const char *const must[] = {"real numbers, not tokens", "images, [channels,rows,columns]",
                                     "tokens, as those of dataset=text and dataset=tokens are"};
  static const char *const models[] = {
      "for rows of numbers there are model=mlp, model=mental_state and model=temperature_lstm",
      "for images there are model=cnn, model=resnet18, model=vit and others",
      "for tokens there is model=gpt2, and model=gpt2_tiny is a small one"};
  if (!x) return BRIM_OK;
  const enum sample_kind kind = kind_of_samples(x);
  if (kind == takes || (takes == SAMPLES_NUMBERS && kind == SAMPLES_IMAGES)) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG, "%s: samples must be %s\n%s", id, must[takes], models[kind]);
}
#endif
