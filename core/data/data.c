/* Opens a dataset, immediately or on a separate thread, and predicts the cost of keeping it open. */
#include "data/data.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/long_call.h"
#include "base/text.h"
#include "base/thread.h"
#include "data/describe.h"
#include "data/mixup.h"
#include "graph/graph.h"
#include "plugin/instance.h"

static brim_status open_splits(const brim_plugin *plugin, void *self)
{
  const brim_dataset_ops *ops = plugin->ops;
  const char *const split[] = {BRIM_SPLIT_TRAIN, BRIM_SPLIT_TEST, brim_data_validation_split(ops)};
  for (size_t i = 0; i < 3 && split[i]; i++) {
    brim_error_clear();
    const brim_status status = brim_plugin_answer(plugin, "open", ops->open(self, split[i]));
    if (i == 0 || status != BRIM_ENOTSUP) BRIM_TRY(status);
  }
  return BRIM_OK;
}

static void start(brim_data *data, const brim_plugin *plugin, void *self, const brim_settings *settings)
{
  *data = (brim_data){.plugin = plugin,
                      .ops = plugin->ops,
                      .self = self,
                      .settings = settings,
                      .seed = (uint64_t)settings->seed,
                      .ignored_token = BRIM_NO_TOKEN};
}

static void begin_to_wait(brim_long_call *call, const brim_dataset_ops *ops)
{
  brim_long_call_begin(call, "the dataset's open", (const void *)(uintptr_t)ops->open);
}

static brim_status open_and_describe(brim_data *data)
{
  brim_long_call call;
  begin_to_wait(&call, data->ops);
  const brim_status status = open_splits(data->plugin, data->self);
  brim_long_call_end(&call);
  BRIM_TRY(status);
  BRIM_TRY(brim_data_set(data));
  data->opened = true;
  return BRIM_OK;
}

brim_status brim_data_open(brim_data *data, const brim_plugin *plugin, void *self, const brim_settings *settings)
{
  start(data, plugin, self, settings);
  const brim_status status = brim_data_set(data); /* report errors in settings before files are read */
  return status == BRIM_OK || status == BRIM_EINVAL ? open_and_describe(data) : status;
}

brim_status brim_data_describe(brim_data *data, const brim_plugin *plugin, void *self, const brim_settings *settings)
{
  start(data, plugin, self, settings);
  const brim_status status = brim_data_set(data);
  return status == BRIM_EINVAL ? open_and_describe(data) : status;
}

brim_status brim_data_recall(brim_data *data, const brim_plugin *plugin, void *self, const brim_settings *settings,
                             const brim_dataset_info info[BRIM_PART_COUNT])
{
  start(data, plugin, self, settings);
  data->recalled = true;
  return brim_data_set_as(data, info);
}

/* ---- Opening on a thread ---- */

struct brim_data_opening {
  pthread_t thread;
  const brim_plugin *plugin;
  void *self;
  brim_status status;
  brim_error error;
};

static void *open_aside(void *context)
{
  struct brim_data_opening *o = context;
  o->status = open_splits(o->plugin, o->self);
  if (o->status != BRIM_OK) brim_error_take(&o->error);
  return NULL;
}

brim_status brim_data_open_start(brim_data *data)
{
  struct brim_data_opening *o = brim_try_calloc(1, sizeof *o);
  if (!o) return brim_fail(BRIM_ENOMEM_HOST, "no memory to open the dataset");
  o->plugin = data->plugin;
  o->self = data->self;
  if (brim_thread_start(&o->thread, "brim-open", open_aside, o)) { /* no thread: open it here */
    free(o);
    return open_and_describe(data);
  }
  data->opening = o;
  return BRIM_OK;
}

brim_status brim_data_open_finish(brim_data *data)
{
  struct brim_data_opening *o = data->opening;
  if (!o) return BRIM_OK;
  brim_long_call call;
  begin_to_wait(&call, o->plugin->ops);
  pthread_join(o->thread, NULL);
  brim_long_call_end(&call);
  data->opening = NULL;
  const brim_status status = o->status;
  if (status != BRIM_OK) brim_error_put(&o->error);
  free(o);
  BRIM_TRY(status);
  const brim_data before = *data;
  BRIM_TRY(brim_data_set(data));
  data->opened = true;
  if (before.train.count != data->train.count || before.test.count != data->test.count ||
      before.validation.count != data->validation.count || before.elements != data->elements ||
      before.train.task != data->train.task || before.train.classes != data->train.classes ||
      before.train.targets != data->train.targets)
    return brim_fail(BRIM_ELOAD, "dataset '%s' changed while it was being opened", data->plugin->id);
  return BRIM_OK;
}

/* ---- Memory ---- */

brim_status brim_data_host_bytes(const brim_data *data, uint64_t *out)
{
  const char *const splits[] = {BRIM_SPLIT_TRAIN,
                                data->validation.count > 0 ? brim_data_validation_split(data->ops) : NULL,
                                data->test.count > 0 ? BRIM_SPLIT_TEST : NULL};
  *out = 0;
  if (data->recalled || !BRIM_HAS(brim_dataset_ops, data->ops, host_bytes)) return BRIM_OK;
  for (size_t i = 0; i < sizeof splits / sizeof splits[0]; i++) {
    uint64_t bytes = 0;
    if (splits[i]) BRIM_TRY(data->ops->host_bytes(data->self, splits[i], &bytes));
    *out += bytes;
  }
  return BRIM_OK;
}

#define TIMED_SAMPLES 16
#define TIMED_ROUNDS 5
#define TIMED_BYTES ((uint64_t)256 << 20) /* limit for the memory of a dataset that is opened only for timing */

/* Returns the minimum over several rounds, with samples from the whole split. */
static brim_status time_samples(const brim_data *data, uint32_t real, double *out)
{
  const int64_t count = data->count[BRIM_PART_TRAIN];
  void *raw = brim_try_calloc(1, (size_t)data->scratch_bytes + 1);
  void *values = brim_try_calloc(1, (size_t)brim_data_values_bytes(data, real) + 1);
  void *label = brim_try_calloc(1, (size_t)brim_data_label_bytes(data, BRIM_PART_TRAIN, real));
  brim_status status = raw && values && label ? BRIM_OK : brim_fail(BRIM_ENOMEM_HOST, "no host memory for a sample");
  *out = INFINITY;
  for (int round = 0; round < TIMED_ROUNDS && status == BRIM_OK; round++) {
    const double start = brim_now();
    for (int64_t i = 0; i < TIMED_SAMPLES && status == BRIM_OK; i++)
      status = brim_data_sample(data, BRIM_PART_TRAIN, 1, i * count / TIMED_SAMPLES, real, raw, values, label);
    const double seconds = (brim_now() - start) / TIMED_SAMPLES;
    if (seconds < *out) *out = seconds;
  }
  free(raw);
  free(values);
  free(label);
  return status;
}

brim_status brim_data_sample_seconds(const brim_data *data, const void *params, uint32_t real, double *out)
{
  const brim_plugin *plugin = data->plugin;
  void *self = (void *)params;
  uint64_t bytes = 0;
  if (data->train.estimated)
    return brim_fail(BRIM_ENOTSUP, "samples of dataset '%s' cannot be timed: it has not been opened yet", plugin->id);
  BRIM_TRY(brim_data_host_bytes(data, &bytes));
  if (bytes > TIMED_BYTES || bytes > brim_host_memory_now().available_bytes / 2)
    return brim_fail(BRIM_ENOTSUP, "dataset '%s' is too large to be opened for timing", plugin->id);
  if (plugin->create) BRIM_TRY(plugin->create(params, &self));
  brim_data opened;
  brim_status status = brim_data_open(&opened, plugin, self, data->settings);
  if (status == BRIM_OK) status = time_samples(&opened, real, out);
  if (plugin->create && plugin->destroy) plugin->destroy(self);
  return status;
}

/* ---- Files without labels ---- */

brim_status brim_data_open_file(brim_data *data, const char *path, const char *split, int64_t *count)
{
  brim_dataset_info info = {0};
  char ours[96], theirs[96];
  if (!BRIM_HAS(brim_dataset_ops, data->ops, open_file))
    return brim_fail(BRIM_ECONFIG, "dataset '%s' reads no files of samples, so '%s' cannot be predicted",
                     data->plugin->id, path);
  BRIM_TRY(data->ops->open_file(data->self, path, split));
  BRIM_TRY(data->ops->describe(data->self, split, &info));
  if (info.dtype != data->train.dtype || !brim_shape_equal(&info.sample, &data->train.sample))
    return brim_fail(BRIM_ELOAD, "'%s' holds samples of %s %s, but the model was trained on %s %s", path,
                     brim_dtype_name(info.dtype), brim_shape_format(theirs, sizeof theirs, &info.sample),
                     brim_dtype_name(data->train.dtype), brim_shape_format(ours, sizeof ours, &data->train.sample));
  if ((info.pixels_max > 0) != data->transform.any_size)
    return brim_fail(BRIM_ELOAD, "'%s' holds images of %s, but the images of dataset '%s' have %s", path,
                     data->transform.any_size ? "one size" : "different sizes", data->plugin->id,
                     data->transform.any_size ? "different sizes" : "one size");
  brim_transform_widen(&data->transform, &info);
  data->scratch_bytes = brim_mixup_room_of(data, brim_transform_bytes(&data->transform)).bytes;
  *count = info.count;
  return BRIM_OK;
}
