/* Computes the probability that a model gives to texts. */
#ifndef BRIM_TRAIN_SCORE_H
#define BRIM_TRAIN_SCORE_H
#include "drive/drive.h"

/* A list of tokens. The model predicts those from `first` on, each from the tokens before it. */
typedef struct brim_passage {
  const int32_t *tokens;
  int64_t count; /* at least 2, at most one more than a sample of the data has */
  int64_t first; /* in [1, count) */
  double loss;   /* the result: the sum of -log(probability), natural logarithm */
} brim_passage;

/* The work and the time of scoring. */
typedef struct brim_score_cost {
  int64_t rows;          /* samples that the model has seen */
  uint64_t device_bytes; /* bytes of the arena, as planned */
} brim_score_cost;

/* [init] Places the model for evaluation, reads the parameters from a checkpoint or, if that is NULL, from
 * model.weights, and scores the passages. The drive's data need not be open, only described. If samples consist of
 * documents (brim_dataset_info.documents), several short passages share a sample. ECONFIG if the data are not tokens,
 * or for a token outside the vocabulary; ENUMERIC if a loss is not finite; EINTERRUPTED if *stop becomes nonzero (may
 * be NULL); ELOAD, EBUDGET, ENOMEM_DEVICE, ENOMEM_HOST. */
brim_status brim_score(brim_drive *drive, const char *checkpoint, brim_passage *passage, size_t count,
                       const volatile int *stop, brim_score_cost *cost);
#endif
