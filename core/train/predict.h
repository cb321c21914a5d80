/* Predicts classes with probabilities, or real numbers, for files of samples without labels. */
#ifndef BRIM_TRAIN_PREDICT_H
#define BRIM_TRAIN_PREDICT_H
#include "base/arena.h"
#include "drive/drive.h"

typedef struct brim_prediction {
  int64_t class;      /* the most probable class; of equally probable ones the first */
  double probability; /* softmax of the model's output */
  double *value;      /* [setup->answers] the model's output if it predicts real numbers; else NULL */
} brim_prediction;

typedef struct brim_predicted_file {
  const char *path;
  int64_t count; /* samples */
  const brim_prediction *prediction;
} brim_predicted_file;

/* Predicts every sample of the files. The caller sets the paths; this fills in the other members, in `arena`. The
 * drive's data need not be open, only described. ECONFIG if the dataset reads no files or the model predicts tokens,
 * ELOAD for a file or checkpoint that does not fit, ENUMERIC if the model's output is not finite; EBUDGET,
 * ENOMEM_DEVICE. */
brim_status brim_predict(brim_drive *drive, const char *checkpoint, brim_arena *arena, brim_predicted_file *file,
                         size_t count);
#endif
