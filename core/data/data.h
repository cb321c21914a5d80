/* Turns a dataset into micro-batches in order.
 *
 * The order of samples, the split and every augmentation are functions of (seed, epoch, sample) only, so the stream is
 * the same for any number of loader threads, any micro-batch, and after a resume. */
#ifndef BRIM_DATA_DATA_H
#define BRIM_DATA_DATA_H
#include "base/part.h"
#include "base/permutation.h"
#include "brim/dataset.h"
#include "brim/plugin.h"
#include "config/settings.h"
#include "data/transform.h"

#define BRIM_DATA_CHANNELS_MAX 64 /* channels with a mean and deviation of their own */

/* An opened dataset and its parts. Validation samples are those of the validation split; without one, the last
 * round(count * fraction) of the training split in the order of permutation (seed, BRIM_STREAM_SPLIT, 0). Training
 * samples are the first num_train_samples of the rest, or all of them. */
typedef struct brim_data {
  const brim_plugin *plugin;
  const brim_dataset_ops *ops;
  void *self;
  brim_dataset_info train, validation, test; /* descriptions of the splits; count = 0: the split does not exist */
  int64_t count[BRIM_PART_COUNT];            /* samples of each part */
  brim_permutation split;
  uint64_t seed;
  brim_transform transform;
  brim_shape sample; /* shape of a sample as the model gets it */
  int64_t elements;  /* values in a sample; with documents, the same number of places follows the tokens */
  int64_t channels, rows, columns; /* dimensions of a sample; [F] counts as one channel with one row, [T, F] as F
                                      channels side by side, with T rows */
  int32_t ignored_token;           /* label to ignore, like BRIM_NO_TOKEN. The caller sets it after open or describe */
  uint64_t scratch_bytes;          /* bytes of one raw sample, and of the scratch of its transform */
  const uint8_t *view; /* a bit for each sample of the training split whose values may be read; NULL: all. Set by the
                          caller */
  const brim_settings *settings;
  brim_list mean, deviation; /* (x / unit - mean) / deviation: one number, or one per channel; empty: 0 and 1 */
  double unit;               /* 255 for bytes, else 1 */
  /* The same normalisation for each channel: x * scale + shift. */
  float scale[BRIM_DATA_CHANNELS_MAX], shift[BRIM_DATA_CHANNELS_MAX];
  int32_t channel_step;              /* 1: channel c uses scale[c]; 0: all channels use scale[0] */
  bool opened;                       /* samples can be read */
  bool recalled;                     /* made by brim_data_recall: the dataset's own files are missing */
  struct brim_data_opening *opening; /* between open_start and open_finish */
} brim_data;

/* [init] Opens the splits and checks them against each other and the settings. ECONFIG, ELOAD. The caller releases only
 * the plugin's instance. */
brim_status brim_data_open(brim_data *data, const brim_plugin *plugin, void *self, const brim_settings *settings);
/* [init] The same for plans, without opening files where possible (see brim_dataset_ops.describe): sets shapes, classes
 * and counts, and checks the settings, but no sample can be read. If the dataset cannot be described before it is
 * opened, opens it. */
brim_status brim_data_describe(brim_data *data, const brim_plugin *plugin, void *self, const brim_settings *settings);
/* [init] The same from descriptions of the splits, train, validation and test, that a run has stored (data/keep.h):
 * does not call the dataset, and only files of samples can be opened. Strings of `info` must stay valid. */
brim_status brim_data_recall(brim_data *data, const brim_plugin *plugin, void *self, const brim_settings *settings,
                             const brim_dataset_info info[BRIM_PART_COUNT]);
/* [init] Opens the splits that brim_data_describe described, in two calls, so that files are read while the caller
 * builds graphs and kernels: open_start starts a thread that opens the splits, and open_finish waits for it and returns
 * its status. Fields of `data` that the caller set after the description are kept. Between the two, samples cannot be
 * read and the plugin's instance must not be used; after a successful start, call open_finish before you free the
 * instance. */
brim_status brim_data_open_start(brim_data *data);
brim_status brim_data_open_finish(brim_data *data);
/* [init] Returns the bytes of host memory that the open splits use, as far as the dataset reports them. Do not call it
 * between open_start and open_finish. Errors of the dataset. */
brim_status brim_data_host_bytes(const brim_data *data, uint64_t *out);
/* Pass this instead of an epoch to read training samples without augmentation and in the order of brim_data.split,
 * without the epoch's shuffle. */
#define BRIM_EPOCH_PLAIN (-1)
/* [any thread] Reads sample `i` of a part. For training, `i` counts in the epoch's permutation, and the sample is
 * augmented and, if requested, mixed with another one; otherwise it is unchanged. Writes `elements` values of `real`
 * (BRIM_DTYPE_F32 or _F64; computed in float either way; tokens are I32) and the label: I32, checked against the number
 * of classes; for tokens one per token, BRIM_NO_TOKEN if it is ignored; for real numbers `targets` values of `real`;
 * for mixed classes the class probabilities, `classes` values of `real`. `scratch` must have room for `scratch_bytes`,
 * and the others for the sizes that the next two functions return. Does not allocate. EINVAL for a sample outside the
 * part; ELOAD for a label or a token out of range; the dataset's errors. */
brim_status brim_data_sample(const brim_data *data, enum brim_part part, int64_t epoch, int64_t i, uint32_t real,
                             void *scratch, void *values, void *label);
/* The bytes of a sample's values and of its label in a part; UINT64_MAX if that does not fit in 64 bits. */
uint64_t brim_data_values_bytes(const brim_data *data, uint32_t real);
uint64_t brim_data_label_bytes(const brim_data *data, enum brim_part part, uint32_t real);
/* Whether each sample of the part is mixed with another one. */
bool brim_data_is_mixed(const brim_data *data, enum brim_part part);

/* [any thread] Sample `i` of a federation's client in the order of a local epoch, under the rules of brim_data_sample
 * for training. */
typedef struct brim_client_order brim_client_order; /* data/partition.h */
brim_status brim_data_client_sample(const brim_data *data, const brim_client_order *order, int64_t i, uint32_t real,
                                    void *scratch, void *values, void *label);
/* [init] Returns the class of training sample `i`, counted in the order of the split; `scratch` as above. ELOAD. */
brim_status brim_data_label(const brim_data *data, int64_t i, void *scratch, int32_t *out);
/* Returns the class of sample `index` of the dataset's training split. [init] ELOAD. */
brim_status brim_data_label_at(const brim_data *data, int64_t index, void *scratch, int32_t *out);

/* [any thread] The index in its split of sample `i` of a part. */
int64_t brim_data_index(const brim_data *data, enum brim_part part, int64_t epoch, int64_t i);

/* [plan] Seconds that one thread needs to read and prepare a training sample. `data` need only be described: brim reads
 * samples from a separate instance, made with `params`, and destroys it. ENOTSUP: that would take too much memory; the
 * dataset's errors. */
brim_status brim_data_sample_seconds(const brim_data *data, const void *params, uint32_t real, double *out);

/* [init] Opens a file of samples without labels as the split `split`, and returns their number; `scratch_bytes` may
 * grow. ELOAD if they do not match the training samples; ECONFIG if the dataset cannot read files. */
brim_status brim_data_open_file(brim_data *data, const char *path, const char *split, int64_t *count);
/* [any thread] Reads sample `i` of such a split, without augmentation, as brim_data_sample does. `label`: room for one
 * label, whose content is undefined. */
brim_status brim_data_file_sample(const brim_data *data, const char *split, int64_t i, uint32_t real, void *scratch,
                                  void *values, void *label);

/* The samples to load, in order, in micro-batches of `batch` samples; the last of a step or part may be shorter. */
typedef struct brim_span {
  enum brim_part part;
  int64_t epoch, first, count; /* samples first .. first+count-1 of the part */
} brim_span;
/* Returns the span of micro-batch number `sequence` (0, 1, ...); count 0 ends the stream. The loader calls it under its
 * lock, once for each number, in order, up to `slots` ahead of the consumer, and not after the end. */
typedef brim_span (*brim_span_fn)(void *context, int64_t sequence);

typedef struct brim_batch {
  brim_span span;
  void *values; /* [count, elements] of `real`, or tokens of I32; with documents [count, 2, elements] */
  void *labels; /* the labels that brim_data_sample writes, one after another: [count], ... */
} brim_batch;

typedef struct brim_loader brim_loader;
typedef struct brim_loader_options {
  const brim_data *data;
  enum brim_part part; /* the part of which all samples are; any part if none of them is mixed */
  int64_t batch_max;   /* samples in the largest micro-batch */
  uint32_t real;
  int32_t threads; /* 0: the caller decodes each micro-batch when it asks for it */
  int32_t slots; /* micro-batches in memory, including the one in use; at least 2. With threads + 1 all threads can work
                    while one is in use */
  brim_span_fn next;
  void *context;
} brim_loader_options;
/* [init] Exact host memory of a loader with these options (without its threads' stacks); UINT64_MAX if that does not
 * fit in 64 bits. */
uint64_t brim_loader_bytes(const brim_loader_options *options);
/* [init] The data must stay open until close. EINVAL, ENOMEM_HOST. */
brim_status brim_loader_open(const brim_loader_options *options, brim_loader **out);
/* [step] Waits for the next micro-batch; *out is valid until the next call. NULL at the end of the stream. Does not
 * allocate. If a sample fails, returns its error instead of the micro-batch; the next call continues with the next
 * one. */
brim_status brim_loader_next(brim_loader *loader, const brim_batch **out);
/* Stops the threads and frees the loader; NULL is a no-op. */
void brim_loader_close(brim_loader *loader);
#endif
