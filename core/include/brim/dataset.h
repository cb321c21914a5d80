/* For authors of datasets: samples by index, decoded on any of several loader threads. */
#ifndef BRIM_DATASET_H
#define BRIM_DATASET_H
#include "brim/tensor.h"
#ifdef __cplusplus
extern "C" {
#endif

/* What a sample is to be answered with. */
enum brim_task {
  BRIM_TASK_CLASS,  /* the class that the whole sample is of */
  BRIM_TASK_TOKENS, /* the token at every place: language modelling */
  BRIM_TASK_VALUES  /* real numbers: regression */
};

typedef struct brim_dataset_info {
  int64_t count;     /* samples in the split; 0 is an error that the core reports */
  brim_shape sample; /* one sample: [C, H, W], [F], [T, F] (a sequence) or, of tokens, [T]; without N. [C, 0, 0]:
                        pictures that each have a size of their own; see pixels_max */
  uint32_t dtype;    /* of what read() writes: BRIM_DTYPE_U8 (0..255, the core scales to 0..1), BRIM_DTYPE_F32, or, of
                        tokens, BRIM_DTYPE_I32 */
  int64_t classes;   /* labels are 0 .. classes-1; of tokens: the vocabulary. Of BRIM_TASK_VALUES: 0 */
  const char *const *class_names; /* `classes` names, or NULL */
  int32_t task;                   /* enum brim_task */
  int64_t targets;                /* of BRIM_TASK_VALUES: numbers to be answered, at least 1; else 0 */
  /* Of pictures of different sizes, of type U8: no one of the split has more pixels, or a longer side. The core makes
   * room by them; of a split that is not open they may be estimates. Else 0. Since ABI 1.5. */
  int64_t pixels_max, side_max;
  /* A line for people: what was taken of the files, and what was left out and why; NULL: nothing that anybody could
   * wonder about. Since ABI 1.5. */
  const char *summary;
  /* Bytes of the host's memory that libraries take while read() decodes a sample, on each thread that reads, and give
   * back: of the split's sample that takes most. Of a split that is not open it may be an estimate. Since ABI 1.7. */
  uint64_t decoding_bytes;
  /* Of what host_bytes() tells of a split that is not open yet, the pages of files that will be mapped: the system
   * takes them back when memory is wanted, so the files may be larger than it. Since ABI 1.7. */
  uint64_t mapped_bytes;
} brim_dataset_info;

/* A picture that is read. Since ABI 1.5. */
typedef struct brim_picture {
  uint8_t *pixels;       /* for rows from the top, of pixels from the left, of C channels, without gaps */
  uint64_t room;         /* bytes there, pixels_max * C */
  int64_t rows, columns; /* set by read() */
  /* What is going to be made of it needs no more pixels than so many on the shorter side: a dataset that may read
   * pictures smaller than they are, because its options say so, can go by that. */
  int64_t side_needed;
} brim_picture;

#define BRIM_NO_TOKEN (-100) /* as PyTorch's ignore_index. Since ABI 1.5, as tasks are */

typedef struct brim_dataset_ops {
  uint32_t size;
  /* [init] Opens a split, "train" or "test", and checks it whole: what open() accepts, read() can
   * serve. ELOAD with the file's name and the reason; ENOTSUP if there is no such split. Opening
   * another split keeps those opened before. */
  brim_status (*open)(void *self, const char *split);
  /* [init] Describes a split. One that is not open yet: from what can be had at once, such as a file's
   * header, so that `brim plan` need not open it; or EINVAL if that is not possible. ENOTSUP if there is no
   * such split. Strings live until destroy. */
  brim_status (*describe)(const void *self, const char *split, brim_dataset_info *out);
  /* [any thread] Sample `index` in [0, count): writes count(sample) values of `dtype` to `values`, and to `label` one
   * int32_t; for BRIM_TASK_TOKENS one for each token, of which BRIM_NO_TOKEN counts for nothing; for BRIM_TASK_VALUES
   * `targets` floats. Must not allocate. Of pictures of different sizes, `values` is a brim_picture; libraries that
   * decode them may allocate. */
  brim_status (*read)(const void *self, const char *split, int64_t index, void *values, void *label);
  /* [init] Opens a file of samples without labels, of the kind that the dataset's own files are, as the split `split`,
   * a name of the core's choice; from then on describe() and read() know it, and read() gives it the label -1. Checks
   * the file whole. ELOAD. It stays open until destroy. NULL: the dataset has no files of samples. The dataset's own
   * files need not be there: a model that was trained elsewhere is asked about new samples (see keep). */
  brim_status (*open_file)(void *self, const char *path, const char *split);
  /* [init] Bytes of the host's memory that a split keeps while it is open, what is mapped included; of one that is not
   * open yet, from what can be had at once, as in describe(). For `brim plan`, which says what the process will take.
   * NULL: nothing worth telling. */
  brim_status (*host_bytes)(const void *self, const char *split, uint64_t *out);
  /* "validation" if there may be such a split too, which is then asked for as "test" is; NULL: never, and validation
   * data can only be a share of the training split. Since ABI 1.5. */
  const char *validation_split;
  /* Text of tokens, for `brim generate`: all three, or NULL. Nothing need be open. ENOTSUP: the tokens of this instance
   * have no text here, so people read and write their numbers. Since ABI 1.5.
   *
   * [init] The tokens of a text, at most one for each of its bytes: `tokens` has room for so many. ELOAD if it cannot
   * be one, as what is not UTF-8. */
  brim_status (*encode)(const void *self, const char *text, size_t bytes, int32_t *tokens, size_t *count);
  /* [init] The bytes of a token, which may be part of a character; valid until destroy. */
  brim_status (*decode)(const void *self, int32_t token, const char **text, size_t *bytes);
  /* [init] The token that stands between two texts, or -1. */
  brim_status (*end_of_text)(const void *self, int32_t *out);
  /* What a run keeps of its data beside the description of the training split, which the core keeps: all that makes a
   * new sample into what the model was trained on, and is found in files, not in parameters. An object of JSON, which
   * the core compares with that of the files as they are now before a run is evaluated or gone on with, and tells where
   * they differ by its keys; an object in a list is called by its "name". NULL: nothing. Since ABI 1.5.
   *
   * [init] When describe() has said what the training split is. The text is valid until destroy. */
  brim_status (*keep)(void *self, const char **json);
  /* [init] In the place of open(), with what keep() said when the run began: from then on open_file() and what it opens
   * go by that. ELOAD if it is none of keep()'s. NULL: keep() reads no samples, and what it says now must be what was
   * kept. Since ABI 1.5. */
  brim_status (*recall)(void *self, const char *json);
  /* [init] The client that sample `index` of a split that is open belongs to, where the dataset has clients of its own:
   * any number, 0 or higher, of each. ECONFIG: the dataset's options name none. NULL: there are none. Since
   * ABI 1.9. */
  brim_status (*client)(const void *self, const char *split, int64_t index, int64_t *out);
} brim_dataset_ops;

#ifdef __cplusplus
}
#endif
#endif
