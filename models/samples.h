/* Checks that a model accepts a dataset's samples. If not, the error names models that do. */
#ifndef BRIM_MODELS_SAMPLES_H
#define BRIM_MODELS_SAMPLES_H
#include "brim/model.h"

enum sample_kind {
  SAMPLES_NUMBERS, /* real numbers of any shape */
  SAMPLES_IMAGES,  /* [channels,rows,columns] */
  SAMPLES_TOKENS   /* [T] of I32 */
};

static inline enum sample_kind kind_of_samples(const brim_tensor *x)
{
  if (x->dtype == BRIM_DTYPE_I32) return SAMPLES_TOKENS;
  return x->shape.rank == 4 ? SAMPLES_IMAGES : SAMPLES_NUMBERS;
}

/* Returns ECONFIG if the samples of a batch (or NULL) are not of the kind that the model `id` takes. */
static inline brim_status check_samples(const char *id, const brim_tensor *x, enum sample_kind takes)
{
  static const char *const must[] = {"real numbers, not tokens", "images, [channels,rows,columns]",
                                     "tokens, such as those of dataset=text and dataset=tokens"};
  static const char *const models[] = {
      "for rows of numbers use model=mlp, model=mental_state or model=temperature_lstm",
      "for images use model=cnn, model=resnet18, model=vit or others",
      "for tokens use model=gpt2, or the small model=gpt2_tiny"};
  if (!x) return BRIM_OK;
  const enum sample_kind kind = kind_of_samples(x);
  if (kind == takes || (takes == SAMPLES_NUMBERS && kind == SAMPLES_IMAGES)) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG, "%s: samples must be %s\n%s", id, must[takes], models[kind]);
}
#endif
