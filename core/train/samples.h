/* The samples of an evaluation for which the model is most wrong, or for a language model the tokens with the greatest
 * losses. samples.json of a run describes them:
 *
 *     {"step": 4690, "split": "test", "task": "class", "samples": 10000, "wrong": 780, "worst": [{"index": 1234,
 *      "label": 6, "label_name": "Shirt", "answer": 0, "answer_name": "T-shirt/top", "loss": 7.31,
 *      "answer_probability": 0.998, "label_probability": 0.0007, "picture": "iVBORw0...", "width": 28, "height": 28},
 * ...]}
 *
 * The greatest losses come first; samples with equal losses keep their order. "index" is the sample's in its split.
 * "label_name" and "answer_name" are there if the dataset names its classes; "picture" (a PNG file in base64) if
 * samples are pictures, else "inputs", the first values of the sample as the dataset reads it. For real numbers "label"
 * and "answer" are lists, and the loss is the mean squared error. The answers are those of `brim predict`.
 *
 * For tokens "index" is the sample's, "position" is the token's position among the sample's labels, "before" and
 * "after" are the text around the token, and "label_name" and "answer_name" are the texts of tokens. If the loss
 * includes the last product, the answer is not known, and the file has "label_rank" instead: the number of tokens that
 * the model considered likelier.
 *
 *     {"step": 800, "split": "test", "task": "tokens", "samples": 16256, "worst": [{"index": 12, "position": 40,
 *      "label": 262, "label_name": " the", "answer": 11, "answer_name": ",", "loss": 9.2, "before": "...", "after":
 *      "..."}, ...]}
 *
 * The list depends only on the answers, not on batches or ranks. Answers are read on the host, after each batch. */
#ifndef BRIM_TRAIN_SAMPLES_H
#define BRIM_TRAIN_SAMPLES_H
#include "drive/drive.h"
#include "exec/exec.h"

#define BRIM_SAMPLES_NAME "samples.json"
#define BRIM_SAMPLES_MAX 32
#define BRIM_SAMPLE_VALUES_MAX 4 /* most real targets stored for a sample */
#define BRIM_SAMPLE_SIDE_MAX 56  /* longest side of a picture; larger pictures are reduced */

typedef struct brim_wrong_sample {
  int64_t sample;        /* index in the part */
  int64_t label, answer; /* -1: real numbers; for a token, answer -1 means not known */
  double loss, label_probability, answer_probability;
  union {
    struct {
      double target[BRIM_SAMPLE_VALUES_MAX], value[BRIM_SAMPLE_VALUES_MAX];
    };
    struct {
      int64_t position;   /* position of a token among the sample's labels */
      int64_t label_rank; /* number of answers that the model considered more likely; -1: not known */
    };
  };
} brim_wrong_sample;

typedef struct brim_samples {
  int64_t limit; /* most samples in the list */
  int64_t count, wrong, samples;
  int64_t lost; /* batches that are missing, because there was no host memory for their answers */
  enum brim_part part;
  brim_wrong_sample worst[BRIM_SAMPLES_MAX];
  void *answers; /* answers of a batch */
  uint64_t answers_bytes;
} brim_samples;

/* Empties the list, before an evaluation. */
void brim_samples_begin(brim_samples *samples, enum brim_part part);
/* Adds a batch whose program has just run. Errors of the backend. */
brim_status brim_samples_add(brim_samples *samples, const brim_setup *setup, brim_exec *exec,
                             const brim_program *program, const brim_batch *batch);
/* Merges the lists of all ranks. All ranks call it, after all have succeeded. ECOMM. */
brim_status brim_samples_merge(brim_samples *samples, const brim_setup *setup);
/* Reads the samples of the list again, and writes samples.json to the run's folder. *out: the JSON object, which the
 * caller releases. EIO, ENOMEM_HOST, the dataset's errors. */
brim_status brim_samples_write(const brim_samples *samples, const brim_setup *setup, const char *dir, int64_t step,
                               json_t **out);
void brim_samples_release(brim_samples *samples);
#endif
