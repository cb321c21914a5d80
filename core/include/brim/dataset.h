/* For authors of datasets: a dataset gives access to samples by index; several loader threads read and decode them. */
#ifndef BRIM_DATASET_H
#define BRIM_DATASET_H
#include "brim/tensor.h"
#ifdef __cplusplus
extern "C" {
#endif

/* The task: the kind of answer that a model predicts for a sample. */
enum brim_task {
  BRIM_TASK_CLASS,  /* the class of the sample */
  BRIM_TASK_TOKENS, /* the token at every position: language modelling */
  BRIM_TASK_VALUES  /* real numbers: regression */
};

typedef struct brim_dataset_info {
  int64_t count;     /* samples in the split; the core reports 0 as an error */
  brim_shape sample; /* one sample, without N: [C, H, W], [F], [T, F] (a sequence) or [T] (tokens). [C, 0, 0]: images of
                        different sizes; see pixels_max */
  uint32_t dtype;    /* type of the values that read() writes: BRIM_DTYPE_U8 (0..255, which the core scales to 0..1),
                        BRIM_DTYPE_F32, or BRIM_DTYPE_I32 (tokens) */
  int64_t classes;   /* labels are 0 .. classes-1; for tokens the size of the vocabulary; for BRIM_TASK_VALUES 0 */
  const char *const *class_names; /* `classes` names, or NULL */
  int32_t task;                   /* enum brim_task */
  int64_t targets;                /* for BRIM_TASK_VALUES: real numbers to predict, at least 1; otherwise 0 */
  /* For images of different sizes (U8): the most pixels and the longest side of any image in the split. The core sizes
   * its buffers by them. For a split that is not open they may be estimates. Otherwise 0. Since ABI 1.5. */
  int64_t pixels_max, side_max;
  /* A line for the user: which parts of the files the dataset uses, which it leaves out, and why. NULL: nothing to
   * report. Since ABI 1.5. */
  const char *summary;
  /* The most host memory, in bytes, that libraries allocate temporarily in one call of read(), on each reading thread.
   * For a split that is not open it may be an estimate. Since ABI 1.7. */
  uint64_t decoding_bytes;
  /* For a split that is not open: the bytes of mapped files in host_bytes(). The system can reclaim these pages, so the
   * files may be larger than memory. Since ABI 1.7. */
  uint64_t mapped_bytes;
  /* For BRIM_TASK_TOKENS: 1 if a sample consists of several documents that must not see each other. Then read() writes
   * two rows of T values: the tokens, and for each the place, its index in its own document. A place is 0 where a
   * document begins, and otherwise one more than the place before; the first place of a sample is 0. Models take places
   * by brim_positions() (brim/model.h). Since ABI 1.12. */
  int32_t documents;
  /* For a split that is not open: 1 if `count` is an estimate, so that `brim plan` needs no data. `classes` may then be
   * 0 for tokens: the model's own vocabulary. A run opens the split before it uses the count. Since ABI 1.12. */
  int32_t estimated;
} brim_dataset_info;

/* The destination of an image that read() reads. Since ABI 1.5. */
typedef struct brim_picture {
  uint8_t *pixels;       /* rows from top to bottom, pixels from left to right, C channels each, without gaps */
  uint64_t room;         /* size of `pixels` in bytes: pixels_max * C */
  int64_t rows, columns; /* set by read() */
  /* The core needs at most this many pixels on the shorter side. If its options allow it, a dataset may decode an image
   * at a reduced size down to this. */
  int64_t side_needed;
} brim_picture;

#define BRIM_NO_TOKEN (-100) /* equal to PyTorch's default ignore_index. Since ABI 1.5, as enum brim_task */

/* A conversation as tokens. Memory belongs to the dataset and is valid until its next call of converse(), or destroy.
 * Since ABI 1.12. */
typedef struct brim_conversation {
  const char *text; /* the rendered conversation, UTF-8 */
  size_t bytes;
  const int32_t *tokens; /* the tokens of the text */
  size_t count;
  const int32_t *ends; /* tokens that end an answer */
  size_t end_count;
} brim_conversation;

typedef struct brim_dataset_ops {
  uint32_t size;
  /* [init] Opens a split, "train" or "test", and checks all of it, so that read() cannot fail on bad data later. Splits
   * opened before stay open. Returns ELOAD with the file's name and the reason; ENOTSUP if there is no such split. */
  brim_status (*open)(void *self, const char *split);
  /* [init] Describes a split. If the split is not open, reads only data that takes little time, such as a file's
   * header, so that `brim plan` need not open it; returns EINVAL if that is not possible. ENOTSUP if there is no such
   * split. Strings are valid until destroy. */
  brim_status (*describe)(const void *self, const char *split, brim_dataset_info *out);
  /* [any thread] Reads sample `index`, in [0, count). Writes the sample's values, of type `dtype`, to `values`; for
   * images of different sizes `values` is a brim_picture. Writes to `label` one int32_t; for BRIM_TASK_TOKENS one
   * int32_t per token, of which BRIM_NO_TOKEN is ignored; for BRIM_TASK_VALUES `targets` floats. Must not allocate, but
   * decoding libraries may. */
  brim_status (*read)(const void *self, const char *split, int64_t index, void *values, void *label);
  /* [init] Opens a file of samples without labels, in the format of the dataset's own files, as the split `split`, a
   * name that the core chooses. Then describe() and read() accept this split, and read() gives its samples the label
   * -1. Checks the whole file; returns ELOAD. The file stays open until destroy. The dataset's own files may be
   * missing: the model may have been trained on another machine (see keep). NULL: the dataset does not read samples
   * from files. */
  brim_status (*open_file)(void *self, const char *path, const char *split);
  /* [init] The host memory, in bytes, that a split holds while it is open, mapped files included. If the split is not
   * open, reads as little as describe() does. `brim plan` uses the result to predict the process's memory. NULL: a
   * negligible amount. */
  brim_status (*host_bytes)(const void *self, const char *split, uint64_t *out);
  /* "validation" if the dataset may have a validation split: the core then opens it like "test". NULL: it has none, and
   * validation data can only be a share of the training split. Since ABI 1.5. */
  const char *validation_split;
  /* The following three convert between tokens and text, for `brim generate`: set all three, or none. No split need be
   * open. ENOTSUP: this instance has no text for its tokens, so users read and write their numbers. Since ABI 1.5.
   *
   * [init] Converts a text to tokens. On entry *count is the number of tokens that `tokens` has room for, at least one
   * per byte and 16 per byte plus 64 in brim generate; on return it is the number of tokens. ELOAD if the text is not
   * valid, for example not UTF-8. */
  brim_status (*encode)(const void *self, const char *text, size_t bytes, int32_t *tokens, size_t *count);
  /* [init] Returns the bytes of a token, which may be a part of a character; valid until destroy. */
  brim_status (*decode)(const void *self, int32_t token, const char **text, size_t *bytes);
  /* [init] The token that separates two texts, or -1. */
  brim_status (*end_of_text)(const void *self, int32_t *out);
  /* Returns facts about the data that the run stores with the description of the training split: everything from the
   * files, rather than from parameters, that is needed to prepare a new sample as in training (for example column
   * means). The text is a JSON object. Before a run is evaluated or resumed, the core compares it with that of the
   * current files and names the keys that differ; an object in a list is identified by its "name". NULL: there is
   * nothing to store. Since ABI 1.5.
   *
   * [init] Called after describe() of the training split. The text is valid until destroy. */
  brim_status (*keep)(void *self, const char **json);
  /* [init] Called instead of open(), with the text that keep() returned when the run began: open_file() and its splits
   * then use these facts. ELOAD if the text is not one of keep()'s. NULL: keep() reads no samples, and its text must
   * still equal the stored one. Since ABI 1.5. */
  brim_status (*recall)(void *self, const char *json);
  /* [init] For datasets that define the clients of a federation: sets *out to the client of sample `index` of an open
   * split, a number from 0. ECONFIG: the dataset's options do not define clients. NULL: the dataset never does. Since
   * ABI 1.9. */
  brim_status (*client)(const void *self, const char *split, int64_t index, int64_t *out);
  /* [init] For `brim data`: facts about an open split as a JSON object of numbers, texts and objects of numbers, for
   * example the samples that are left out, by reason. The text is valid until destroy. NULL: nothing to report. Since
   * ABI 1.12. */
  brim_status (*report)(const void *self, const char *split, const char **json);
  /* [init] Converts a conversation to tokens with the model's chat template, for `brim generate --chat`. `json` is an
   * object: "messages" is a list of {"role": "system", "user" or "assistant", "content": text};
   * "add_generation_prompt": true adds the beginning of an answer; other keys, such as "tools", are variables of the
   * template. *out is zeroed on entry. No split need be open. ECONFIG: there is no template; the message says how to
   * choose one. ELOAD: the template refuses the conversation. NULL: the dataset knows no conversations. Since ABI 1.12.
   */
  brim_status (*converse)(void *self, const char *json, brim_conversation *out);
} brim_dataset_ops;

#ifdef __cplusplus
}
#endif
#endif
