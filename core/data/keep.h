/* The description of a run's data that the run stores, so that new samples are prepared like the training samples even
 * if the data is gone, and so that a run is not resumed with other data. As JSON:
 *
 *     {"dataset": "csv", "task": "class", "sample": [4], "dtype": "F32", "classes": 3, "class_names": ["lily", ...],
 *      "targets": 0, "pixels_max": 0, "side_max": 0, "samples": {"train": 120, "validation": 0, "test": 30},
 *      "trained": 108, "seed": 0, "inputs": {...}, "kept": the dataset's own JSON (brim_dataset_ops.keep)}
 *
 * "inputs" describes the preparation of samples for evaluation, for programs that read an export; brim itself uses the
 * run's configuration, and neither reads nor compares "inputs":
 *
 *     {"shape": [3, 224, 224], "divided_by": 255, "mean": [0.485, ...], "std": [0.229, ...],
 *      "transform": {"resize": 256, "size": [224, 224], "interpolation": "bilinear"}}
 *
 * A value x becomes (x / divided_by - mean) / std; mean and std have one number, or one per channel. Tokens have only a
 * shape. Before that, an image is resized so that its shorter side has `resize` pixels, and the centre of `size` is
 * cropped; if `resize` is 0, the image is resized to `size`. "transform" is null if samples are not changed. */
#ifndef BRIM_DATA_KEEP_H
#define BRIM_DATA_KEEP_H
#include <jansson.h>

#include "base/arena.h"
#include "data/data.h"

/* [init] Makes the description of `data`, which must be described and not between open_start and open_finish. The
 * dataset's errors; EINTERNAL. The caller owns *out. */
brim_status brim_data_keep(const brim_data *data, json_t **out);
/* Whether the description was stored for this dataset plugin. */
bool brim_data_is_kept_of(const json_t *kept, const brim_plugin *plugin);
/* [init] Calls brim_data_recall with a description that was stored for the same plugin. Samples of tokens have the length
 * that `self` gives them. `arena` owns the strings. ELOAD if brim_data_keep did not write the description, or the dataset
 * rejects it. */
brim_status brim_data_recall_kept(brim_data *data, const brim_plugin *plugin, void *self, const brim_settings *settings,
                                  const json_t *kept, brim_arena *arena);
/* ELOAD, naming the differences, if the data differs from the stored description, apart from rounding of numbers. With
 * `order`, the number of samples in the training split, the number that brim trains on, and the seed must also be the
 * same: they determine the order of samples and the share for validation. */
brim_status brim_data_compare(const json_t *kept, const json_t *now, bool order);
#endif
