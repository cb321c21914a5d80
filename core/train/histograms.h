/* histograms.jsonl of a run: histograms of each trained parameter's values, gradient and last update, after the steps
 * of at most BRIM_HISTOGRAMS_TIMES evaluations. Each line describes one tensor:
 *
 *     {"step":938,"tensor":"conv1.weight","of":"weights","shape":[32,1,3,3],"values":288,"counted":288,"zeros":0,
 *      "nan":0,"infinite":0,"min":-0.41,"max":0.38,"mean":0.01,"rms":0.16,"first":-9,"negative":[1,4,...],
 *      "positive":[0,2,...]}
 *
 * "of": "weights" after the step; "gradients" of the step, as means over its samples, before clipping; "updates", the
 * ratios |after - before| / |before| of the weights, and also "change_rms" and "ratio", the root mean squares of after
 * - before and of that divided by the weights'. Entry k of "negative" and "positive" counts values whose magnitude is
 * in [2^(first + k), 2^(first + k + 1)). "counted" is below "values" for tensors that are sampled
 * (BRIM_HISTOGRAM_VALUES_MAX).
 *
 * The host counts everything, between two steps. The counts are the same for any number of ranks and threads, any
 * micro-batch, recompute and offload, as the values are. A run that resumes keeps the lines up to its step. */
#ifndef BRIM_TRAIN_HISTOGRAMS_H
#define BRIM_TRAIN_HISTOGRAMS_H
#include "observe/histogram.h"
#include "observe/tensorboard.h"
#include "store/jsonl.h"
#include "train/trainer.h"

#define BRIM_HISTOGRAMS_NAME "histograms.jsonl"
#define BRIM_HISTOGRAMS_TIMES 32 /* most steps of a run with histograms, evenly spread over its evaluations */

typedef struct brim_histograms {
  bool on;                                /* on every rank */
  brim_jsonl log;                         /* fd -1: another rank writes the file */
  brim_text line;                         /* reused */
  brim_histogram *of, *change, *of_ranks; /* one for values; one for changes; one for each rank */
  void *all;                              /* BRIM_EXCHANGE_BYTES for each rank */
  float *block;                           /* BRIM_HISTOGRAM_BLOCK values */
  void *raw;                              /* these values in the type of the tensor */
  float *before;                          /* the sampled values of all trained parameters before the step */
  int64_t before_step;                    /* the step that `before` precedes; -1: none */
} brim_histograms;

/* [init] Allocates the buffers, the same for any plan of the training. All ranks call it. `dir`: the run's folder; its
 * file keeps the lines of steps up to `step`. NULL: another rank writes the file. EIO, ENOMEM_HOST, EPEER: histograms
 * are turned off on all ranks. ECOMM. */
brim_status brim_histograms_open(brim_histograms *h, const brim_trainer *trainer, const char *dir, int64_t step);
void brim_histograms_close(brim_histograms *h);
/* [step] Call before step number `step`, if it will have histograms: keeps the values that the step will change. */
brim_status brim_histograms_before(brim_histograms *h, brim_trainer *trainer, int64_t step);
/* [step] Call after the commit of that step, while its gradients exist; if gradients are divided among ranks, all ranks
 * call it, right after a meeting. `tensorboard` may be NULL. EIO, EPEER and errors of the backend: lines are missing;
 * then call brim_histograms_mute. ECOMM. */
brim_status brim_histograms_after(brim_histograms *h, brim_trainer *trainer, int64_t step,
                                  brim_tensorboard *tensorboard);
/* Stops writing on this rank; the other ranks need not be informed. */
void brim_histograms_mute(brim_histograms *h);
/* Removes the lines of later steps after the run went back to `step`. EIO. */
brim_status brim_histograms_rewind(brim_histograms *h, int64_t step);
#endif
