/* A dataset cut into parts, and its samples made ready: index, read, crop, mirror, normalise.
 *
 * A sample of training position i in an epoch is sample split(shuffle_epoch(i)) of the dataset's training
 * split. What is done to it at random is drawn from one Philox block of (seed, epoch, that index), so
 * nothing depends on who decodes it, or when. */
#include "data/data.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "base/thread.h"
#include "brim/random.h"
#include "graph/graph.h"

#define ELEMENTS_MAX ((int64_t)1 << 40)
#define TARGETS_MAX (1 << 20) /* real numbers that a sample is to be answered with */

static const char *const train_split = "train", *const test_split = "test";

/* NULL: the dataset never has one. */
static const char *validation_split(const brim_dataset_ops *ops)
{
  return BRIM_HAS(brim_dataset_ops, ops, validation_split) ? ops->validation_split : NULL;
}

/* ---- Opening and checking ---- */

static brim_status check_pictures(const brim_data *data, const brim_dataset_info *info)
{
  char shape[96];
  const int64_t channels = info->sample.rank == 3 ? info->sample.dim[0] : 0;
  if (channels < 1 || channels > BRIM_DATA_CHANNELS_MAX || info->sample.dim[1] != 0 || info->sample.dim[2] != 0 ||
      info->dtype != BRIM_DTYPE_U8 || info->side_max < 1 || info->side_max > info->pixels_max ||
      info->pixels_max > ELEMENTS_MAX / channels)
    return brim_fail(BRIM_ELOAD,
                     "dataset '%s' has pictures of an impossible kind: samples %s %s, up to %" PRId64
                     " pixels and %" PRId64 " to a side",
                     data->plugin->id, brim_dtype_name(info->dtype),
                     brim_shape_format(shape, sizeof shape, &info->sample), info->pixels_max, info->side_max);
  return BRIM_OK;
}

/* What samples are to be answered with. */
static brim_status check_answers(const brim_data *data, const brim_dataset_info *info)
{
  const char *id = data->plugin->id;
  const bool is_values = info->task == BRIM_TASK_VALUES;
  if (info->task != BRIM_TASK_CLASS && info->task != BRIM_TASK_TOKENS && !is_values)
    return brim_fail(BRIM_ELOAD, "dataset '%s' is for task %d, which this brim does not know", id, (int)info->task);
  if (is_values && (info->targets < 1 || info->targets > TARGETS_MAX))
    return brim_fail(BRIM_ELOAD, "dataset '%s' has %" PRId64 " numbers to be answered; 1 to %d are possible", id,
                     info->targets, TARGETS_MAX);
  if (!is_values && info->classes < 2)
    return brim_fail(BRIM_ELOAD, "dataset '%s' has %" PRId64 " %s%s; at least 2 are needed", id, info->classes,
                     info->task == BRIM_TASK_TOKENS ? "token" : "class",
                     info->classes == 1              ? ""
                     : info->task == BRIM_TASK_CLASS ? "es"
                                                     : "s");
  return BRIM_OK;
}

static brim_status check_values(const brim_data *data, const brim_dataset_info *info)
{
  const char *id = data->plugin->id;
  if (info->task == BRIM_TASK_TOKENS) {
    if (info->dtype == BRIM_DTYPE_I32 && info->sample.rank == 1) return BRIM_OK;
    return brim_fail(BRIM_ELOAD, "dataset '%s' has samples of %d dimensions and type %s; of tokens they are [T] of I32",
                     id, info->sample.rank, brim_dtype_name(info->dtype));
  }
  if (info->dtype != BRIM_DTYPE_U8 && info->dtype != BRIM_DTYPE_F32)
    return brim_fail(BRIM_ELOAD, "dataset '%s' has samples of type %s; U8 and F32 can be used", id,
                     brim_dtype_name(info->dtype));
  if (info->sample.rank < 1 || info->sample.rank > 3)
    return brim_fail(BRIM_ELOAD,
                     "dataset '%s' has samples of %d dimensions; [channels,rows,columns], [length,features] and "
                     "[features] can be used",
                     id, info->sample.rank);
  return BRIM_OK;
}

static brim_status check_info(const brim_data *data, const char *split, const brim_dataset_info *info)
{
  const char *id = data->plugin->id;
  char shape[96];
  if (info->count < 1)
    return brim_fail(BRIM_ELOAD, "the %s split of dataset '%s' is empty: it has 0 samples", split, id);
  BRIM_TRY(check_answers(data, info));
  BRIM_TRY(check_values(data, info));
  if (info->pixels_max > 0) return check_pictures(data, info);
  int64_t elements = 1;
  for (int32_t i = 0; i < info->sample.rank; i++)
    if (info->sample.dim[i] < 1 || __builtin_mul_overflow(elements, info->sample.dim[i], &elements) ||
        elements > ELEMENTS_MAX)
      return brim_fail(BRIM_ELOAD, "dataset '%s' has samples of an impossible shape, %s", id,
                       brim_shape_format(shape, sizeof shape, &info->sample));
  return BRIM_OK;
}

static brim_status describe_split(const brim_data *data, const char *split, brim_dataset_info *info)
{
  *info = (brim_dataset_info){0};
  BRIM_TRY(data->ops->describe(data->self, split, info));
  return check_info(data, split, info);
}

static const char *describe_answer(char *out, size_t room, const brim_dataset_info *info)
{
  if (info->task == BRIM_TASK_VALUES)
    snprintf(out, room, "%" PRId64 " real number%s", info->targets, info->targets == 1 ? "" : "s");
  else
    snprintf(out, room, info->task == BRIM_TASK_TOKENS ? "tokens" : "a class");
  return out;
}

static brim_status check_same(const brim_data *data, const char *split, const brim_dataset_info *b)
{
  const brim_dataset_info *a = &data->train;
  char train[96], other[96];
  bool same = a->sample.rank == b->sample.rank;
  for (int32_t i = 0; same && i < a->sample.rank; i++) same = a->sample.dim[i] == b->sample.dim[i];
  if (!same)
    return brim_fail(BRIM_ELOAD,
                     "the splits of dataset '%s' do not fit together: training samples are %s, %s samples %s",
                     data->plugin->id, brim_shape_format(train, sizeof train, &a->sample), split,
                     brim_shape_format(other, sizeof other, &b->sample));
  if (a->task != b->task || a->targets != b->targets)
    return brim_fail(BRIM_ELOAD,
                     "the splits of dataset '%s' do not fit together: training samples are to be answered with %s, "
                     "%s samples with %s",
                     data->plugin->id, describe_answer(train, sizeof train, a), split,
                     describe_answer(other, sizeof other, b));
  if ((a->pixels_max > 0) != (b->pixels_max > 0))
    return brim_fail(BRIM_ELOAD, "the splits of dataset '%s' do not fit together: only one has pictures of any size",
                     data->plugin->id);
  if (a->dtype != b->dtype || a->classes != b->classes)
    return brim_fail(BRIM_ELOAD,
                     "the splits of dataset '%s' do not fit together: training has %" PRId64
                     " classes and %s values, %s %" PRId64 " and %s",
                     data->plugin->id, a->classes, brim_dtype_name(a->dtype), split, b->classes,
                     brim_dtype_name(b->dtype));
  return BRIM_OK;
}

/* A split that a dataset may lack: then *info is zero. */
static brim_status describe_further(const brim_data *data, const char *split, brim_dataset_info *info)
{
  const brim_status status = split ? describe_split(data, split, info) : BRIM_ENOTSUP;
  if (status == BRIM_OK) return check_same(data, split, info);
  *info = (brim_dataset_info){0};
  return status == BRIM_ENOTSUP ? BRIM_OK : status;
}

static brim_status check_list(const brim_data *data, const char *key, const brim_list *list)
{
  const char *what = data->train.sample.rank == 2 ? "feature" : "channel";
  if (list->count > 1 && list->count != (size_t)data->channels)
    return brim_fail(BRIM_ECONFIG,
                     "'%s' has %zu numbers, but the samples have %" PRId64 " %s%s; give 1 or as many "
                     "as %ss",
                     key, list->count, data->channels, what, data->channels == 1 ? "" : "s", what);
  if (list->count > BRIM_DATA_CHANNELS_MAX)
    return brim_fail(BRIM_ECONFIG, "'%s' has %zu numbers; at most %d are possible", key, list->count,
                     BRIM_DATA_CHANNELS_MAX);
  for (size_t i = 0; i < list->count; i++)
    if (!isfinite(list->item[i])) return brim_fail(BRIM_ECONFIG, "'%s': number %zu is not finite", key, i + 1);
  return BRIM_OK;
}

static double item_of(const brim_list *list, int32_t channel, double otherwise)
{
  return list->count == 0 ? otherwise : list->item[list->count == 1 ? 0 : channel];
}

/* What pretrained models expect, of red, green and blue. */
static const double imagenet_mean[] = {0.485, 0.456, 0.406}, imagenet_std[] = {0.229, 0.224, 0.225},
                    clip_mean[] = {0.48145466, 0.4578275, 0.40821073},
                    clip_std[] = {0.26862954, 0.26130258, 0.27577711};

static brim_status choose_lists(const brim_data *data, brim_list *mean, brim_list *std)
{
  const int32_t kind = data->settings->transform.normalize;
  *mean = data->settings->dataset.mean;
  *std = data->settings->dataset.std;
  if (kind == BRIM_NORMALIZE_DATASET) return BRIM_OK;
  const char *name = kind == BRIM_NORMALIZE_CLIP ? "clip" : "imagenet";
  if (data->channels != 3 || data->train.dtype != BRIM_DTYPE_U8)
    return brim_fail(BRIM_ECONFIG,
                     "'transform.normalize=%s' is for images of bytes with 3 channels, red, green and blue; those of "
                     "dataset '%s' are %s with %" PRId64 "\ntransform.normalize=dataset has the means of the dataset, "
                     "and transform=none besides leaves sizes as they are",
                     name, data->plugin->id, brim_dtype_name(data->train.dtype), data->channels);
  if (mean->count > 0 || std->count > 0)
    return brim_fail(BRIM_ECONFIG, "'transform.normalize=%s' and '%s' are both set: leave out one of them", name,
                     mean->count > 0 ? "dataset.mean" : "dataset.std");
  *mean = (brim_list){kind == BRIM_NORMALIZE_CLIP ? clip_mean : imagenet_mean, 3};
  *std = (brim_list){kind == BRIM_NORMALIZE_CLIP ? clip_std : imagenet_std, 3};
  return BRIM_OK;
}

/* (x / 255 - mean) / std for bytes, (x - mean) / std for floats, as one multiplication and one addition. */
static brim_status set_normalisation(brim_data *data)
{
  brim_list chosen[2];
  BRIM_TRY(choose_lists(data, &chosen[0], &chosen[1]));
  const brim_list *mean = &chosen[0], *std = &chosen[1];
  if (data->train.task == BRIM_TASK_TOKENS && mean->count + std->count > 0)
    return brim_fail(BRIM_ECONFIG, "'dataset.%s' is for real numbers, but the samples of dataset '%s' are tokens",
                     mean->count > 0 ? "mean" : "std", data->plugin->id);
  BRIM_TRY(check_list(data, "dataset.mean", mean));
  BRIM_TRY(check_list(data, "dataset.std", std));
  const double unit = data->train.dtype == BRIM_DTYPE_U8 ? 255 : 1;
  data->channel_step = mean->count > 1 || std->count > 1;
  const int32_t channels = data->channel_step ? (int32_t)data->channels : 1;
  for (int32_t c = 0; c < channels; c++) {
    const double s = item_of(std, c, 1);
    if (!(s > 0)) return brim_fail(BRIM_ECONFIG, "'dataset.std' must be greater than 0, got %g", s);
    data->scale[c] = (float)(1 / (unit * s));
    data->shift[c] = (float)(-item_of(mean, c, 0) / s);
  }
  return BRIM_OK;
}

static brim_status set_parts(brim_data *data)
{
  const int64_t total = data->train.count, want = data->settings->training.num_train_samples;
  const double fraction = data->settings->dataset.validation_fraction;
  const int64_t validation = llround((double)total * fraction);
  if (fraction > 0 && data->validation.count > 0)
    return brim_fail(BRIM_ECONFIG,
                     "'dataset.validation_fraction' is %g, but dataset '%s' has validation data of its own\n"
                     "leave the one or the other out",
                     fraction, data->plugin->id);
  if (fraction > 0 && validation == 0)
    return brim_fail(BRIM_ECONFIG, "'dataset.validation_fraction' is %g, which of %" PRId64 " samples is none",
                     fraction, total);
  if (validation >= total)
    return brim_fail(BRIM_ECONFIG,
                     "'dataset.validation_fraction' is %g, which of %" PRId64 " samples leaves none to train on",
                     fraction, total);
  if (want > total - validation)
    return brim_fail(BRIM_ECONFIG,
                     "'training.num_train_samples' is %" PRId64 ", but there are %" PRId64 " to train on (0 takes all)",
                     want, total - validation);
  data->count[BRIM_PART_TRAIN] = want > 0 ? want : total - validation;
  data->count[BRIM_PART_VALIDATION] = data->validation.count > 0 ? data->validation.count : validation;
  data->count[BRIM_PART_TEST] = data->test.count;
  brim_permutation_init(&data->split, data->seed, BRIM_STREAM_SPLIT, 0, (uint64_t)total);
  return BRIM_OK;
}

/* What the model gets of samples, after their transform. */
static brim_status set_shape(brim_data *data)
{
  const brim_transform *t = &data->transform;
  const brim_shape *s = &data->train.sample;
  BRIM_TRY(brim_transform_init(&data->transform, data->settings, data->plugin->id, &data->train));
  if (data->validation.count > 0) brim_transform_widen(&data->transform, &data->validation);
  if (data->test.count > 0) brim_transform_widen(&data->transform, &data->test);
  data->channels = s->rank == 2 ? s->dim[1] : t->channels;
  data->rows = s->rank == 2 ? s->dim[0] : t->rows;
  data->columns = s->rank == 2 ? 1 : t->columns;
  data->sample = *s;
  if (s->rank == 3) {
    data->sample.dim[1] = t->rows;
    data->sample.dim[2] = t->columns;
  }
  data->elements = brim_shape_count(&data->sample);
  data->scratch_bytes = brim_transform_bytes(t);
  return BRIM_OK;
}

/* All that follows from descriptions and settings. */
static brim_status follow_descriptions(brim_data *data)
{
  BRIM_TRY(set_shape(data));
  BRIM_TRY(set_normalisation(data));
  return set_parts(data);
}

static brim_status describe(brim_data *data)
{
  BRIM_TRY(describe_split(data, train_split, &data->train));
  BRIM_TRY(describe_further(data, validation_split(data->ops), &data->validation));
  BRIM_TRY(describe_further(data, test_split, &data->test));
  return follow_descriptions(data);
}

static brim_status open_splits(const brim_dataset_ops *ops, void *self)
{
  const char *const further[] = {test_split, validation_split(ops)};
  BRIM_TRY(ops->open(self, train_split));
  for (size_t i = 0; i < 2 && further[i]; i++) {
    const brim_status status = ops->open(self, further[i]);
    if (status != BRIM_ENOTSUP) BRIM_TRY(status);
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

static brim_status open_and_describe(brim_data *data)
{
  BRIM_TRY(open_splits(data->ops, data->self));
  BRIM_TRY(describe(data));
  data->opened = true;
  return BRIM_OK;
}

brim_status brim_data_open(brim_data *data, const brim_plugin *plugin, void *self, const brim_settings *settings)
{
  start(data, plugin, self, settings);
  const brim_status status = describe(data); /* what is wrong with settings shows before files are read */
  return status == BRIM_OK || status == BRIM_EINVAL ? open_and_describe(data) : status;
}

brim_status brim_data_describe(brim_data *data, const brim_plugin *plugin, void *self, const brim_settings *settings)
{
  start(data, plugin, self, settings);
  const brim_status status = describe(data);
  return status == BRIM_EINVAL ? open_and_describe(data) : status;
}

brim_status brim_data_recall(brim_data *data, const brim_plugin *plugin, void *self, const brim_settings *settings,
                             const brim_dataset_info info[3])
{
  start(data, plugin, self, settings);
  data->recalled = true;
  data->train = info[BRIM_PART_TRAIN];
  data->validation = info[BRIM_PART_VALIDATION];
  data->test = info[BRIM_PART_TEST];
  BRIM_TRY(check_info(data, train_split, &data->train));
  return follow_descriptions(data);
}

/* ---- Opening aside ---- */

struct brim_data_opening {
  pthread_t thread;
  const brim_dataset_ops *ops;
  void *self;
  brim_status status;
  char error[4096];
};

static void *open_aside(void *context)
{
  struct brim_data_opening *o = context;
  o->status = open_splits(o->ops, o->self);
  if (o->status != BRIM_OK) snprintf(o->error, sizeof o->error, "%s", brim_error_text());
  return NULL;
}

brim_status brim_data_open_start(brim_data *data, const brim_plugin *plugin, void *self, const brim_settings *settings)
{
  start(data, plugin, self, settings);
  const brim_status status = describe(data);
  if (status == BRIM_EINVAL) return open_and_describe(data);
  BRIM_TRY(status);
  struct brim_data_opening *o = brim_try_calloc(1, sizeof *o);
  if (!o) return brim_fail(BRIM_ENOMEM_HOST, "no memory to open the dataset");
  o->ops = data->ops;
  o->self = self;
  if (brim_thread_start(&o->thread, "brim-open", open_aside, o)) { /* then here and now */
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
  pthread_join(o->thread, NULL);
  data->opening = NULL;
  const brim_status status = o->status;
  if (status != BRIM_OK) brim_fail(status, "%s", o->error);
  free(o);
  BRIM_TRY(status);
  const brim_data before = *data;
  BRIM_TRY(describe(data));
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
  const char *const splits[] = {train_split, data->validation.count > 0 ? validation_split(data->ops) : NULL,
                                data->test.count > 0 ? test_split : NULL};
  *out = 0;
  if (data->recalled || !BRIM_HAS(brim_dataset_ops, data->ops, host_bytes)) return BRIM_OK;
  for (size_t i = 0; i < sizeof splits / sizeof splits[0]; i++) {
    uint64_t bytes = 0;
    if (splits[i]) BRIM_TRY(data->ops->host_bytes(data->self, splits[i], &bytes));
    *out += bytes;
  }
  return BRIM_OK;
}

/* ---- Samples ---- */

/* Where the picture that is made lies on the one that was read. */
typedef struct view {
  int64_t dy, dx; /* pixel (y, x) comes from (y + dy, x + dx), or is padding if there is none */
  bool mirror;    /* then left and right change places */
} view;

static view draw_view(const brim_data *data, const brim_draws *draws)
{
  const brim_augment_settings *a = &data->settings->augment;
  view v = {0, 0, false};
  if (!draws || (!a->flip && a->crop_padding == 0)) return v;
  const brim_philox r = brim_draw(draws, BRIM_DRAW_PLACE);
  v.mirror = a->flip && r.v[0] >> 31;
  v.dy = brim_draw_below(r.v[1], 2 * a->crop_padding + 1) - a->crop_padding;
  v.dx = brim_draw_below(r.v[2], 2 * a->crop_padding + 1) - a->crop_padding;
  return v;
}

/* n values, scaled; mirrored: the last first. Plain loops, that compilers turn into vector code. */
static void scale_u8(float *restrict out, const uint8_t *restrict in, int64_t n, float scale, float shift, bool mirror)
{
  if (mirror)
    for (int64_t i = 0; i < n; i++) out[i] = (float)in[n - 1 - i] * scale + shift;
  else
    for (int64_t i = 0; i < n; i++) out[i] = (float)in[i] * scale + shift;
}

static void scale_f32(float *restrict out, const float *restrict in, int64_t n, float scale, float shift, bool mirror)
{
  if (mirror)
    for (int64_t i = 0; i < n; i++) out[i] = in[n - 1 - i] * scale + shift;
  else
    for (int64_t i = 0; i < n; i++) out[i] = in[i] * scale + shift;
}

static void scale_values(const brim_data *data, float *out, const void *raw, int64_t first, int64_t n, int64_t channel,
                         bool mirror)
{
  const float scale = data->scale[channel * data->channel_step], shift = data->shift[channel * data->channel_step];
  if (data->train.dtype == BRIM_DTYPE_U8)
    scale_u8(out, (const uint8_t *)raw + first, n, scale, shift, mirror);
  else
    scale_f32(out, (const float *)raw + first, n, scale, shift, mirror);
}

static void fill(float *out, int64_t n, float value)
{
  for (int64_t i = 0; i < n; i++) out[i] = value;
}

static int64_t clamp(int64_t x, int64_t low, int64_t high)
{
  return x < low ? low : x > high ? high : x;
}

/* One channel through a view. Padding is a raw 0, as in torchvision's RandomCrop, and normalised like one. */
static void make_plane(const brim_data *data, const view *v, const void *raw, int64_t channel, float *out)
{
  const int64_t rows = data->rows, columns = data->columns, plane = channel * rows * columns;
  const float padding = data->shift[channel * data->channel_step];
  if (v->dy == 0 && v->dx == 0 && !v->mirror) {
    scale_values(data, out, raw, plane, rows * columns, channel, false);
    return;
  }
  /* columns [first, end) of the crop are on the picture */
  const int64_t first = clamp(-v->dx, 0, columns), end = clamp(columns - v->dx, first, columns);
  const int64_t left = v->mirror ? columns - end : first, width = end - first;
  for (int64_t y = 0; y < rows; y++, out += columns) {
    const int64_t from = y + v->dy;
    if (from < 0 || from >= rows) {
      fill(out, columns, padding);
      continue;
    }
    fill(out, left, padding);
    scale_values(data, out + left, raw, plane + from * columns + first + v->dx, width, channel, v->mirror);
    fill(out + left + width, columns - left - width, padding);
  }
}

/* n floats at the start of `values` become n doubles there, from the last on. */
static void widen(void *values, int64_t n)
{
  for (int64_t i = n - 1; i >= 0; i--) {
    float narrow;
    memcpy(&narrow, (const char *)values + i * (int64_t)sizeof(float), sizeof narrow);
    const double wide = narrow;
    memcpy((char *)values + i * (int64_t)sizeof(double), &wide, sizeof wide);
  }
}

/* The split that a part is of. */
static const char *split_of_part(const brim_data *data, enum brim_part part)
{
  if (part == BRIM_PART_VALIDATION && data->validation.count > 0) return validation_split(data->ops);
  return part == BRIM_PART_TEST ? test_split : train_split;
}

int64_t brim_data_index(const brim_data *data, enum brim_part part, int64_t epoch, int64_t i)
{
  if (split_of_part(data, part) != train_split) return i;
  if (part == BRIM_PART_VALIDATION) {
    const int64_t first = data->train.count - data->count[BRIM_PART_VALIDATION];
    return (int64_t)brim_permutation_at(&data->split, (uint64_t)(first + i));
  }
  brim_permutation shuffle;
  brim_permutation_init(&shuffle, data->seed, BRIM_STREAM_SHUFFLE, (uint64_t)epoch,
                        (uint64_t)data->count[BRIM_PART_TRAIN]);
  return (int64_t)brim_permutation_at(&data->split, brim_permutation_at(&shuffle, (uint64_t)i));
}

/* A sequence [T, F]: its features have what channels have of pictures, but lie side by side. */
static void make_sequence(const brim_data *data, const void *raw, float *out)
{
  const int64_t features = data->channels;
  for (int64_t t = 0; t < data->rows; t++)
    for (int64_t f = 0; f < features; f++) {
      const int64_t i = t * features + f, c = f * data->channel_step;
      const float x = data->train.dtype == BRIM_DTYPE_U8 ? (float)((const uint8_t *)raw)[i] : ((const float *)raw)[i];
      out[i] = x * data->scale[c] + data->shift[c];
    }
}

/* A sample of a split as the dataset has it, at the start of the scratch. */
static brim_status read_sample(const brim_data *data, const char *split, int64_t index, bool training, void *scratch,
                               brim_picture *picture, void *label)
{
  const brim_transform *t = &data->transform;
  if (!t->any_size) return data->ops->read(data->self, split, index, scratch, label);
  *picture = brim_transform_picture(t, training, scratch);
  BRIM_TRY(data->ops->read(data->self, split, index, picture, label));
  if (picture->rows >= 1 && picture->columns >= 1 && picture->rows <= t->side_max && picture->columns <= t->side_max &&
      picture->rows * picture->columns <= t->pixels_max)
    return BRIM_OK;
  return brim_fail(BRIM_ELOAD, "a picture of %" PRId64 "x%" PRId64 " pixels, larger than was said when it was opened",
                   picture->columns, picture->rows);
}

/* The values of a raw sample; draws == NULL: plain. */
static void make_values(const brim_data *data, const brim_picture *picture, const brim_draws *draws, void *scratch,
                        uint32_t real, void *values)
{
  const brim_transform *t = &data->transform;
  const view v = draw_view(data, draws);
  if (data->train.task == BRIM_TASK_TOKENS) {
    memcpy(values, scratch, (size_t)data->elements * sizeof(int32_t));
    return;
  }
  if (data->train.sample.rank == 2) {
    make_sequence(data, scratch, values);
  } else if (t->applies) {
    const uint8_t *pixels = brim_transform_apply(t, picture, draws, scratch);
    brim_transform_scale(t, pixels, data->scale, data->shift, data->channel_step, v.mirror, values);
  } else {
    for (int64_t c = 0; c < data->channels; c++)
      make_plane(data, &v, scratch, c, (float *)values + c * data->rows * data->columns);
  }
  if (draws) brim_transform_erase(t, draws, values);
  if (real == BRIM_DTYPE_F64) widen(values, data->elements);
}

/* ---- Answers ---- */

static int64_t answers_of(const brim_data *data)
{
  if (data->train.task == BRIM_TASK_VALUES) return data->train.targets;
  return data->train.task == BRIM_TASK_TOKENS ? data->elements : 1;
}

uint64_t brim_data_values_bytes(const brim_data *data, uint32_t real)
{
  uint64_t bytes;
  const uint32_t dtype = data->train.task == BRIM_TASK_TOKENS ? BRIM_DTYPE_I32 : real;
  return __builtin_mul_overflow((uint64_t)data->elements, (uint64_t)brim_dtype_bytes(dtype), &bytes) ? UINT64_MAX
                                                                                                     : bytes;
}

uint64_t brim_data_label_bytes(const brim_data *data, uint32_t real)
{
  const uint32_t dtype = data->train.task == BRIM_TASK_VALUES ? real : BRIM_DTYPE_I32;
  return (uint64_t)answers_of(data) * brim_dtype_bytes(dtype);
}

static brim_status check_class(const brim_data *data, const char *split, int64_t index, int32_t label)
{
  if (label >= 0 && label < data->train.classes) return BRIM_OK;
  return brim_fail(BRIM_ELOAD,
                   "dataset '%s': label %d of sample %" PRId64 " of the %s split is out of range, 0 to %" PRId64,
                   data->plugin->id, label, index, split, data->train.classes - 1);
}

static brim_status fail_token(const brim_data *data, const char *split, int64_t index, const char *what, int64_t at,
                              int32_t token)
{
  return brim_fail(BRIM_ELOAD,
                   "dataset '%s': %s %" PRId64 " of sample %" PRId64
                   " of the %s split is %d, which is not in the vocabulary, 0 to %" PRId64,
                   data->plugin->id, what, at, index, split, token, data->train.classes - 1);
}

/* Tokens that count for nothing all become BRIM_NO_TOKEN. */
static brim_status take_tokens(const brim_data *data, const char *split, int64_t index, const int32_t *token,
                               int32_t *label)
{
  const int64_t vocabulary = data->train.classes;
  for (int64_t t = 0; t < data->elements; t++) {
    if (token[t] < 0 || token[t] >= vocabulary) return fail_token(data, split, index, "token", t, token[t]);
    if (label[t] == data->ignored_token) label[t] = BRIM_NO_TOKEN;
    if (label[t] != BRIM_NO_TOKEN && (label[t] < 0 || label[t] >= vocabulary))
      return fail_token(data, split, index, "the label of token", t, label[t]);
  }
  return BRIM_OK;
}

static brim_status take_targets(const brim_data *data, const char *split, int64_t index, uint32_t real, void *label)
{
  const float *target = label;
  for (int64_t k = 0; k < data->train.targets; k++)
    if (!isfinite(target[k]))
      return brim_fail(BRIM_ELOAD,
                       "dataset '%s': number %" PRId64 " that sample %" PRId64
                       " of the %s split is to be answered with is not finite",
                       data->plugin->id, k, index, split);
  if (real == BRIM_DTYPE_F64) widen(label, data->train.targets);
  return BRIM_OK;
}

static brim_status take_label(const brim_data *data, const char *split, int64_t index, uint32_t real, const void *raw,
                              void *label)
{
  if (data->train.task == BRIM_TASK_TOKENS) return take_tokens(data, split, index, raw, label);
  if (data->train.task == BRIM_TASK_VALUES) return take_targets(data, split, index, real, label);
  return check_class(data, split, index, *(const int32_t *)label);
}

brim_status brim_data_sample(const brim_data *data, enum brim_part part, int64_t epoch, int64_t i, uint32_t real,
                             void *scratch, void *values, void *label)
{
  if (i < 0 || i >= data->count[part])
    return brim_fail(BRIM_EINVAL, "sample %" PRId64 " of a part of %" PRId64, i, data->count[part]);
  const int64_t index = brim_data_index(data, part, epoch, i);
  const char *split = split_of_part(data, part);
  const brim_draws draws = {data->seed, epoch, index};
  const bool training = part == BRIM_PART_TRAIN;
  brim_picture picture = {0};
  const brim_status status = read_sample(data, split, index, training, scratch, &picture, label);
  if (status != BRIM_OK)
    return brim_fail_add(status, "while reading sample %" PRId64 " of the %s split of dataset '%s'", index, split,
                         data->plugin->id);
  BRIM_TRY(take_label(data, split, index, real, scratch, label));
  make_values(data, &picture, training ? &draws : NULL, scratch, real, values);
  return BRIM_OK;
}

#define TIMED_SAMPLES 16
#define TIMED_ROUNDS 5
#define TIMED_BYTES ((uint64_t)256 << 20) /* that a dataset may keep, if it is to be opened only for this */

/* The least of some rounds over samples from all of the split. */
static brim_status time_samples(const brim_data *data, uint32_t real, double *out)
{
  const int64_t count = data->count[BRIM_PART_TRAIN];
  void *raw = brim_try_calloc(1, (size_t)data->scratch_bytes + 1);
  void *values = brim_try_calloc(1, (size_t)brim_data_values_bytes(data, real) + 1);
  void *label = brim_try_calloc(1, (size_t)brim_data_label_bytes(data, real));
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
  BRIM_TRY(brim_data_host_bytes(data, &bytes));
  if (bytes > TIMED_BYTES)
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
    return brim_fail(BRIM_ELOAD, "'%s' holds pictures of another kind than dataset '%s'", path, data->plugin->id);
  brim_transform_widen(&data->transform, &info);
  data->scratch_bytes = brim_transform_bytes(&data->transform);
  *count = info.count;
  return BRIM_OK;
}

brim_status brim_data_file_sample(const brim_data *data, const char *split, int64_t i, uint32_t real, void *scratch,
                                  void *values, void *label)
{
  brim_picture picture = {0};
  BRIM_TRY(read_sample(data, split, i, false, scratch, &picture, label));
  make_values(data, &picture, NULL, scratch, real, values);
  return BRIM_OK;
}
