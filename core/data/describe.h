/* What a dataset tells of its splits, checked by itself and against the settings; and how splits are called. */
#ifndef BRIM_DATA_DESCRIBE_H
#define BRIM_DATA_DESCRIBE_H
#include "data/data.h"

#define BRIM_SPLIT_TRAIN "train"
#define BRIM_SPLIT_TEST "test"
/* NULL: the dataset never has one. */
const char *brim_data_validation_split(const brim_dataset_ops *ops);

/* [init] All of `data` that follows from descriptions and settings: parts, shapes, normalisation, scratch. EINVAL: the
 * dataset must be opened first; ECONFIG, ELOAD; what the dataset says. */
brim_status brim_data_set(brim_data *data);
/* [init] The same of descriptions that were made elsewhere, by enum brim_part. ECONFIG, ELOAD. */
brim_status brim_data_set_as(brim_data *data, const brim_dataset_info info[3]);
#endif
