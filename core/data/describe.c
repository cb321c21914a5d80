#include "data/describe.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/error.h"
#include "base/text.h"
#include "data/mixup.h"
#include "graph/graph.h"
#include "plugin/instance.h"

#define ELEMENTS_MAX ((int64_t)1 << 40)
#define TARGETS_MAX (1 << 20) /* real numbers in the target of a sample */

const char *brim_data_validation_split(const brim_dataset_ops *ops)
{
  return BRIM_HAS(brim_dataset_ops, ops, validation_split) ? ops->validation_split : NULL;
}

/* ---- Descriptions ---- */

static brim_status check_pictures(const brim_data *data, const brim_dataset_info *info)
{
  char shape[96];
  const int64_t channels = info->sample.rank == 3 ? info->sample.dim[0] : 0;
  if (channels < 1 || channels > BRIM_DATA_CHANNELS_MAX || info->sample.dim[1] != 0 || info->sample.dim[2] != 0 ||
      info->dtype != BRIM_DTYPE_U8 || info->side_max < 1 || info->side_max > info->pixels_max ||
      info->pixels_max > ELEMENTS_MAX / channels)
    return brim_fail(BRIM_ELOAD,
                     "dataset '%s' has pictures of an invalid kind: samples %s %s, up to %" PRId64
                     " pixels, at most %" PRId64 " on a side",
                     data->plugin->id, brim_dtype_name(info->dtype),
                     brim_shape_format(shape, sizeof shape, &info->sample), info->pixels_max, info->side_max);
  return BRIM_OK;
}

/* Checks the targets of samples. */
static brim_status check_answers(const brim_data *data, const brim_dataset_info *info)
{
  const char *id = data->plugin->id;
  const bool is_values = info->task == BRIM_TASK_VALUES;
  if (info->task != BRIM_TASK_CLASS && info->task != BRIM_TASK_TOKENS && !is_values)
    return brim_fail(BRIM_ELOAD, "dataset '%s' has the unknown task %d", id, (int)info->task);
  if (is_values && (info->targets < 1 || info->targets > TARGETS_MAX))
    return brim_fail(BRIM_ELOAD, "dataset '%s' has %" PRId64 " target numbers; 1 to %d are possible", id, info->targets,
                     TARGETS_MAX);
  const bool is_unknown = info->estimated && info->task == BRIM_TASK_TOKENS && info->classes == 0;
  if (!is_values && info->classes < 2 && !is_unknown)
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
  if (info->documents && info->task != BRIM_TASK_TOKENS)
    return brim_fail(BRIM_ELOAD, "dataset '%s' has documents, but its samples are not tokens", id);
  if (info->task == BRIM_TASK_TOKENS) {
    if (info->dtype == BRIM_DTYPE_I32 && info->sample.rank == 1) return BRIM_OK;
    return brim_fail(BRIM_ELOAD,
                     "dataset '%s' has samples of %d dimensions and type %s; token samples must be [T] of I32", id,
                     info->sample.rank, brim_dtype_name(info->dtype));
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
      return brim_fail(BRIM_ELOAD, "dataset '%s' has samples with the invalid shape %s", id,
                       brim_shape_format(shape, sizeof shape, &info->sample));
  return BRIM_OK;
}

static brim_status describe_split(const brim_data *data, const char *split, brim_dataset_info *info)
{
  *info = (brim_dataset_info){0};
  brim_error_clear();
  BRIM_TRY(brim_plugin_answer(data->plugin, "describe", data->ops->describe(data->self, split, info)));
  return check_info(data, split, info);
}

static const char *describe_answer(char *out, size_t room, const brim_dataset_info *info)
{
  if (info->task == BRIM_TASK_VALUES)
    snprintf(out, room, "%" PRId64 " real number%s", info->targets, brim_plural(info->targets));
  else
    snprintf(out, room, info->task == BRIM_TASK_TOKENS ? "tokens" : "a class");
  return out;
}

static brim_status check_same(const brim_data *data, const char *split, const brim_dataset_info *b)
{
  const brim_dataset_info *a = &data->train;
  char train[96], other[96];
  if (!brim_shape_equal(&a->sample, &b->sample))
    return brim_fail(BRIM_ELOAD, "the splits of dataset '%s' do not match: training samples are %s, %s samples %s",
                     data->plugin->id, brim_shape_format(train, sizeof train, &a->sample), split,
                     brim_shape_format(other, sizeof other, &b->sample));
  if (a->task != b->task || a->targets != b->targets)
    return brim_fail(BRIM_ELOAD,
                     "the splits of dataset '%s' do not match: the targets of training samples are %s, "
                     "those of %s samples %s",
                     data->plugin->id, describe_answer(train, sizeof train, a), split,
                     describe_answer(other, sizeof other, b));
  if ((a->documents != 0) != (b->documents != 0))
    return brim_fail(BRIM_ELOAD, "the splits of dataset '%s' do not match: only one has several documents in a sample",
                     data->plugin->id);
  if ((a->pixels_max > 0) != (b->pixels_max > 0))
    return brim_fail(BRIM_ELOAD, "the splits of dataset '%s' do not match: only one has pictures of different sizes",
                     data->plugin->id);
  if (a->dtype != b->dtype || a->classes != b->classes)
    return brim_fail(BRIM_ELOAD,
                     "the splits of dataset '%s' do not match: training has %" PRId64
                     " classes and %s values, %s %" PRId64 " and %s",
                     data->plugin->id, a->classes, brim_dtype_name(a->dtype), split, b->classes,
                     brim_dtype_name(b->dtype));
  return BRIM_OK;
}

/* Describes a split; zeroes *info if the dataset lacks it. */
static brim_status describe_further(const brim_data *data, const char *split, brim_dataset_info *info)
{
  const brim_status status = split ? describe_split(data, split, info) : BRIM_ENOTSUP;
  if (status == BRIM_OK) return check_same(data, split, info);
  *info = (brim_dataset_info){0};
  return status == BRIM_ENOTSUP ? BRIM_OK : status;
}

/* ---- Normalisation ---- */

static brim_status check_list(const brim_data *data, const char *key, const brim_list *list)
{
  const char *what = data->train.sample.rank == 2 ? "feature" : "channel";
  if (list->count > 1 && list->count != (size_t)data->channels)
    return brim_fail(BRIM_ECONFIG,
                     "'%s' has %zu numbers, but the samples have %" PRId64 " %s%s; give 1 or as many "
                     "as %ss",
                     key, list->count, data->channels, what, brim_plural(data->channels), what);
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

/* The weights of red, green and blue in gray (ITU-R BT.601). */
#define LUMA(r, g, b) (0.299 * (r) + 0.587 * (g) + 0.114 * (b))
#define OF_COLOURS(r, g, b)                                                                                            \
  {                                                                                                                    \
    {r, g, b}, LUMA(r, g, b)                                                                                           \
  }

/* The normalisation that pretrained models expect. Gray is a weighted sum of the colours, so its mean is the same sum
 * of their means. For the deviation that sum is an upper bound; real images come close to it, because their channels
 * rise and fall together. */
typedef struct normalisation {
  const char *name;
  struct {
    double colours[3], gray;
  } mean, std;
} normalisation;

static const normalisation normalisations[] = {
    [BRIM_NORMALIZE_IMAGENET] = {"imagenet", OF_COLOURS(0.485, 0.456, 0.406), OF_COLOURS(0.229, 0.224, 0.225)},
    [BRIM_NORMALIZE_CLIP] = {"clip", OF_COLOURS(0.48145466, 0.4578275, 0.40821073),
                             OF_COLOURS(0.26862954, 0.26130258, 0.27577711)}};

static brim_status choose_lists(const brim_data *data, brim_list *mean, brim_list *std)
{
  const int32_t kind = data->settings->transform.normalize;
  *mean = data->settings->dataset.mean;
  *std = data->settings->dataset.std;
  if (kind == BRIM_NORMALIZE_DATASET) return BRIM_OK;
  const normalisation *n = &normalisations[kind];
  const bool gray = data->channels == 1;
  if ((data->channels != 3 && !gray) || data->train.sample.rank != 3 || data->train.dtype != BRIM_DTYPE_U8)
    return brim_fail(BRIM_ECONFIG,
                     "'transform.normalize=%s' is for images of type U8 with 3 channels, red, green and blue, or 1 of "
                     "gray; samples of dataset '%s' are %s with %" PRId64
                     "\nuse transform.normalize=dataset for the means of the dataset, "
                     "or transform=none, which also leaves sizes as they are",
                     n->name, data->plugin->id, brim_dtype_name(data->train.dtype), data->channels);
  if (mean->count > 0 || std->count > 0)
    return brim_fail(BRIM_ECONFIG, "'transform.normalize=%s' and '%s' are both set: leave out one of them", n->name,
                     mean->count > 0 ? "dataset.mean" : "dataset.std");
  *mean = (brim_list){gray ? &n->mean.gray : n->mean.colours, gray ? 1 : 3};
  *std = (brim_list){gray ? &n->std.gray : n->std.colours, gray ? 1 : 3};
  return BRIM_OK;
}

/* Computes (x / 255 - mean) / std for bytes, or (x - mean) / std for floats, as one multiplication and one addition. */
static brim_status set_normalisation(brim_data *data)
{
  const brim_list *mean = &data->mean, *std = &data->deviation;
  BRIM_TRY(choose_lists(data, &data->mean, &data->deviation));
  if (data->train.task == BRIM_TASK_TOKENS && mean->count + std->count > 0)
    return brim_fail(BRIM_ECONFIG, "'dataset.%s' is for real numbers, but the samples of dataset '%s' are tokens",
                     mean->count > 0 ? "mean" : "std", data->plugin->id);
  BRIM_TRY(check_list(data, "dataset.mean", mean));
  BRIM_TRY(check_list(data, "dataset.std", std));
  data->unit = data->train.dtype == BRIM_DTYPE_U8 ? 255 : 1;
  data->channel_step = mean->count > 1 || std->count > 1;
  const int32_t channels = data->channel_step ? (int32_t)data->channels : 1;
  for (int32_t c = 0; c < channels; c++) {
    const double s = item_of(std, c, 1);
    if (!(s > 0)) return brim_fail(BRIM_ECONFIG, "'dataset.std' must be greater than 0, got %g", s);
    data->scale[c] = (float)(1 / (data->unit * s));
    data->shift[c] = (float)(-item_of(mean, c, 0) / s);
  }
  return BRIM_OK;
}

/* ---- Parts and shapes ---- */

static brim_status set_parts(brim_data *data)
{
  const int64_t total = data->train.count, want = data->settings->training.num_train_samples;
  const double fraction = data->settings->dataset.validation_fraction;
  const int64_t validation = llround((double)total * fraction);
  if (fraction > 0 && data->validation.count > 0)
    return brim_fail(BRIM_ECONFIG,
                     "'dataset.validation_fraction' is %g, but dataset '%s' has its own validation data\n"
                     "leave one of them out",
                     fraction, data->plugin->id);
  if (fraction > 0 && validation == 0)
    return brim_fail(BRIM_ECONFIG,
                     "'dataset.validation_fraction' is %g, which is less than one of the %" PRId64 " samples", fraction,
                     total);
  if (validation >= total)
    return brim_fail(BRIM_ECONFIG,
                     "'dataset.validation_fraction' is %g, which leaves none of the %" PRId64 " samples for training",
                     fraction, total);
  if (want > total - validation)
    return brim_fail(BRIM_ECONFIG,
                     "'training.num_train_samples' is %" PRId64 ", but there are %" PRId64
                     " training samples (0: use all)",
                     want, total - validation);
  data->count[BRIM_PART_TRAIN] = want > 0 ? want : total - validation;
  data->count[BRIM_PART_VALIDATION] = data->validation.count > 0 ? data->validation.count : validation;
  data->count[BRIM_PART_TEST] = data->test.count;
  brim_permutation_init(&data->split, data->seed, BRIM_STREAM_SPLIT, 0, (uint64_t)total);
  return BRIM_OK;
}

/* Sets the shape of samples after their transform. */
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
  data->scratch_bytes = brim_mixup_room_of(data, brim_transform_bytes(t)).bytes;
  return BRIM_OK;
}

/* Sets everything that follows from descriptions and settings. */
static brim_status follow_descriptions(brim_data *data)
{
  BRIM_TRY(set_shape(data));
  BRIM_TRY(set_normalisation(data));
  return set_parts(data);
}

brim_status brim_data_set(brim_data *data)
{
  BRIM_TRY(describe_split(data, BRIM_SPLIT_TRAIN, &data->train));
  BRIM_TRY(describe_further(data, brim_data_validation_split(data->ops), &data->validation));
  BRIM_TRY(describe_further(data, BRIM_SPLIT_TEST, &data->test));
  return follow_descriptions(data);
}

brim_status brim_data_set_as(brim_data *data, const brim_dataset_info info[BRIM_PART_COUNT])
{
  data->train = info[BRIM_PART_TRAIN];
  data->validation = info[BRIM_PART_VALIDATION];
  data->test = info[BRIM_PART_TEST];
  BRIM_TRY(check_info(data, BRIM_SPLIT_TRAIN, &data->train));
  return follow_descriptions(data);
}
