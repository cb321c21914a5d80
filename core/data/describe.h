/* Checks a dataset's descriptions of its splits, and the settings against them; names of splits. */
#ifndef BRIM_DATA_DESCRIBE_H
#define BRIM_DATA_DESCRIBE_H
#include "data/data.h"

#define BRIM_SPLIT_TRAIN "train"
#define BRIM_SPLIT_TEST "test"
/* The name of the dataset's validation split; NULL: it never has one. */
const char *brim_data_validation_split(const brim_dataset_ops *ops);

/* [init] Sets all fields of `data` that follow from descriptions and settings: parts, shapes, normalisation, scratch.
 * EINVAL: the dataset must be opened first; ECONFIG, ELOAD; the dataset's errors. */
brim_status brim_data_set(brim_data *data);
/* [init] The same from stored descriptions, indexed by enum brim_part. ECONFIG, ELOAD. */
brim_status brim_data_set_as(brim_data *data, const brim_dataset_info info[BRIM_PART_COUNT]);
#endif
