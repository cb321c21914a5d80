/* What a run keeps of its data, so that a new sample becomes what the model was trained on wherever the data is by
 * then, and so that nobody goes on with other data than the run began with. As JSON:
 *
 *     {"dataset": "csv", "task": "class", "sample": [4], "dtype": "F32", "classes": 3, "class_names": ["lily", ...],
 *      "targets": 0, "pixels_max": 0, "side_max": 0, "samples": {"train": 120, "validation": 0, "test": 30},
 *      "trained": 108, "seed": 0, "inputs": {...}, "kept": what the dataset itself keeps (brim_dataset_ops.keep)}
 *
 * "inputs" says how a sample becomes what the model gets in evaluation, for programs that read an export; brim itself
 * uses the run's configuration, and neither reads nor compares it:
 *
 *     {"shape": [3, 224, 224], "divided_by": 255, "mean": [0.485, ...], "std": [0.229, ...],
 *      "transform": {"resize": 256, "size": [224, 224], "interpolation": "bilinear"}}
 *
 * A value x becomes (x / divided_by - mean) / std; mean and std have one number, or one per channel. Tokens have only a
 * shape. Before that a picture's shorter side becomes `resize` and the middle of `size` is cut out; if `resize` is 0
 * the picture becomes `size` itself. "transform" is null if samples stay as they are. */
#ifndef BRIM_DATA_KEEP_H
#define BRIM_DATA_KEEP_H
#include <jansson.h>

#include "base/arena.h"
#include "data/data.h"

/* [init] Of data that is described and not being opened. What the dataset says; EINTERNAL. The caller's. */
brim_status brim_data_keep(const brim_data *data, json_t **out);
/* Is it of this dataset plugin? */
bool brim_data_is_kept_of(const json_t *kept, const brim_plugin *plugin);
/* [init] brim_data_recall by what was kept of the same plugin's data. Strings of the data live in `arena`. ELOAD: this
 * is nothing that brim_data_keep has made, or the dataset says so. */
brim_status brim_data_recall_kept(brim_data *data, const brim_plugin *plugin, void *self, const brim_settings *settings,
                                  const json_t *kept, brim_arena *arena);
/* ELOAD, naming what differs, if the data is not what was kept; numbers may differ by what rounding does. With `order`
 * there must also be as many training samples, as many of them trained on, and the same seed: their order, and which of
 * them are a share for validation, depend on that. */
brim_status brim_data_compare(const json_t *kept, const json_t *now, bool order);
#endif
