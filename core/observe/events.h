/* Builds messages in the wire format of protocol buffers, and the summaries of TensorBoard's plugins: histograms,
 * images, text and hyperparameters (tensorflow/core/framework/summary.proto,
 * tensorboard/plugins/hparams/plugin_data.proto). */
#ifndef BRIM_OBSERVE_EVENTS_H
#define BRIM_OBSERVE_EVENTS_H
#include "observe/histogram.h"
#include "observe/tensorboard.h"

/* [between steps] Each adds one event of a step, and allocates. EIO. */
brim_status brim_tensorboard_histogram(brim_tensorboard *t, int64_t step, const char *tag,
                                       const brim_histogram_figures *figures);
/* `png`: a PNG file. */
brim_status brim_tensorboard_image(brim_tensorboard *t, int64_t step, const char *tag, const void *png, size_t bytes,
                                   int64_t rows, int64_t columns, int64_t channels);
/* Markdown. */
brim_status brim_tensorboard_text(brim_tensorboard *t, int64_t step, const char *tag, const char *text);

/* A hyperparameter: a number if `is_number`, else the text. */
typedef struct brim_hyperparameter {
  const char *name, *text;
  double number;
  bool is_number;
} brim_hyperparameter;
/* [init] Adds this run's hyperparameters, and the tags of the scalars by which it is judged. */
brim_status brim_tensorboard_hyperparameters(brim_tensorboard *t, const brim_hyperparameter *value, size_t count,
                                             const char *const *metric, size_t metrics);
/* Adds an event that the run ended; is_well: without an error. */
brim_status brim_tensorboard_end(brim_tensorboard *t, bool is_well);
#endif
