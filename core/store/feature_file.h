/* The file of computed features: a header, then labels and features of the samples of each split. Unused samples are
 * holes. brim writes it under a temporary name and renames it, so it is complete or absent, and maps it for reading. */
#ifndef BRIM_STORE_FEATURE_FILE_H
#define BRIM_STORE_FEATURE_FILE_H
#include <stdbool.h>

#include "base/file.h"
#include "brim/dataset.h"

enum brim_feature_split { BRIM_FEATURES_TRAIN, BRIM_FEATURES_TEST, BRIM_FEATURES_SPLITS };

/* Identifies the contents of a file. */
typedef struct brim_feature_shape {
  uint64_t key, weights;               /* hashes */
  int64_t values;                      /* number of values of a sample */
  int64_t count[BRIM_FEATURES_SPLITS]; /* samples; 0 if the split does not exist */
} brim_feature_shape;

typedef struct brim_feature_file {
  brim_feature_shape shape;
  const void *map;
  uint64_t bytes;
} brim_feature_file;

/* Writes the path "<the user's cache folder>/brim/features/<key>.bin". ECONFIG if the environment does not name that
 * folder. */
brim_status brim_feature_file_path(uint64_t key, char out[BRIM_PATH_MAX]);
/* Opens a file; false if there is none with these contents. Warns about a damaged one. */
bool brim_feature_file_open(const char *path, const brim_feature_shape *shape, brim_feature_file *out);
void brim_feature_file_close(brim_feature_file *file);
/* [any thread] Returns the `values` floats of a sample, and its label. */
const float *brim_feature_file_sample(const brim_feature_file *file, enum brim_feature_split split, int64_t i,
                                      int32_t *label);

/* A file that is being written. */
typedef struct brim_feature_writer {
  brim_feature_shape shape;
  char path[BRIM_PATH_MAX];
  int fd;
} brim_feature_writer;
/* Begins a file. Only one process writes a file: if another one is writing it, waits until that process has finished or
 * *stop (may be NULL) becomes nonzero. So the caller must check afterwards whether the file exists now.
 * EINTERRUPTED. */
brim_status brim_feature_writer_open(brim_feature_writer *w, const char *path, const brim_feature_shape *shape,
                                     const volatile int *stop);
brim_status brim_feature_writer_put(brim_feature_writer *w, enum brim_feature_split split, int64_t i,
                                    const float *values, int32_t label);
/* If this returns OK the file exists; else it is removed. */
brim_status brim_feature_writer_close(brim_feature_writer *w);
/* Removes the file and preserves the thread's error text. */
void brim_feature_writer_cancel(brim_feature_writer *w);
#endif
