/* Prepares samples: reads, crops, mirrors, normalises and mixes them.
 *
 * A sample of training position i in an epoch is sample split(shuffle_epoch(i)) of the dataset's training split. Its
 * augmentation is drawn from one Philox block of (seed, epoch, that index), so it does not depend on which thread
 * decodes it, or when. */
#include <inttypes.h>
#include <string.h>

#include "brim/random.h"
#include "builtin/augment.h"
#include "data/answers.h"
#include "data/augment.h"
#include "data/describe.h"
#include "data/mixup.h"
#include "data/partition.h"

/* ---- Indices ---- */

/* Whether a part consists of samples of the training split. */
static bool is_of_train(const brim_data *data, enum brim_part part)
{
  return part == BRIM_PART_TRAIN || (part == BRIM_PART_VALIDATION && data->validation.count == 0);
}

/* Returns the split to which a part belongs. */
static const char *split_of_part(const brim_data *data, enum brim_part part)
{
  if (is_of_train(data, part)) return BRIM_SPLIT_TRAIN;
  return part == BRIM_PART_TEST ? BRIM_SPLIT_TEST : brim_data_validation_split(data->ops);
}

/* Returns the training sample at place i of an epoch. */
static int64_t number_of(const brim_data *data, int64_t epoch, int64_t i)
{
  brim_permutation shuffle;
  if (epoch == BRIM_EPOCH_PLAIN) return i;
  brim_permutation_init(&shuffle, data->seed, BRIM_STREAM_SHUFFLE, (uint64_t)epoch,
                        (uint64_t)data->count[BRIM_PART_TRAIN]);
  return (int64_t)brim_permutation_at(&shuffle, (uint64_t)i);
}

int64_t brim_data_index(const brim_data *data, enum brim_part part, int64_t epoch, int64_t i)
{
  if (!is_of_train(data, part)) return i;
  if (part == BRIM_PART_VALIDATION) {
    const int64_t first = data->train.count - data->count[BRIM_PART_VALIDATION];
    return (int64_t)brim_permutation_at(&data->split, (uint64_t)(first + i));
  }
  return (int64_t)brim_permutation_at(&data->split, (uint64_t)number_of(data, epoch, i));
}

/* ---- Values ---- */

/* The position of the result relative to the image that was read. */
typedef struct view {
  int64_t dy, dx; /* pixel (y, x) comes from (y + dy, x + dx), or is padding if that is outside */
  bool mirror;    /* left and right are swapped */
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

/* Scales n values; mirrored: in reverse order. The loops are plain, so that compilers vectorize them. */
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

/* Makes one channel of the result, through a view. Padding is a raw 0, as in torchvision's RandomCrop, and is
 * normalised too. */
static void make_plane(const brim_data *data, const view *v, const void *raw, int64_t channel, float *out)
{
  const int64_t rows = data->rows, columns = data->columns, plane = channel * rows * columns;
  const float padding = data->shift[channel * data->channel_step];
  if (v->dy == 0 && v->dx == 0 && !v->mirror) {
    scale_values(data, out, raw, plane, rows * columns, channel, false);
    return;
  }
  /* columns [first, end) of the crop are inside the image */
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

/* Makes a sequence [T, F], whose features are like the channels of an image but lie side by side. */
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

/* Reads a sample of a split as the dataset stores it, to the start of the scratch. */
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
  return brim_fail(BRIM_ELOAD,
                   "a picture of %" PRId64 "x%" PRId64 " pixels, larger than the dataset reported when it was opened",
                   picture->columns, picture->rows);
}

/* Makes the values of a raw sample, as floats, or tokens; draws == NULL: without augmentation. */
static void make_values(const brim_data *data, const brim_picture *picture, const brim_draws *draws, void *scratch,
                        void *values)
{
  const brim_transform *t = &data->transform;
  const view v = draw_view(data, draws);
  if (data->train.task == BRIM_TASK_TOKENS) {
    memcpy(values, scratch, (size_t)brim_data_values_bytes(data, BRIM_DTYPE_F32));
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
  if (draws) brim_augment_apply(t, BRIM_DTYPE_F32, draws, values, brim_transform_further(t, scratch));
}

static void finish_values(const brim_data *data, uint32_t real, void *values)
{
  if (real == BRIM_DTYPE_F64 && data->train.task != BRIM_TASK_TOKENS) brim_data_widen(values, data->elements);
}

/* ---- Samples ---- */

static bool may_read(const brim_data *data, const char *split, int64_t sample)
{
  return !data->view || strcmp(split, BRIM_SPLIT_TRAIN) != 0 || data->view[sample / 8] >> sample % 8 & 1;
}

/* Makes a single sample of a split: its values as floats, or tokens, and its label as the dataset stores it. */
static brim_status make_sample(const brim_data *data, const char *split, const brim_draws *draws, bool training,
                               void *scratch, void *values, void *label)
{
  brim_picture picture = {0};
  if (!may_read(data, split, draws->sample))
    return brim_fail(BRIM_EINTERNAL, "sample %" PRId64 " of the training split belongs to another client",
                     draws->sample);
  const brim_status status = read_sample(data, split, draws->sample, training, scratch, &picture, label);
  if (status != BRIM_OK)
    return brim_fail_add(status, "while reading sample %" PRId64 " of the %s split of dataset '%s'", draws->sample,
                         split, data->plugin->id);
  BRIM_TRY(brim_data_check_label(data, split, draws->sample, scratch, label));
  make_values(data, &picture, training ? draws : NULL, scratch, values);
  return BRIM_OK;
}

/* Mixes training sample i, which is prepared, with its partner. */
static brim_status mix_sample(const brim_data *data, const brim_draws *draws, int64_t i, char *scratch, void *values,
                              void *label)
{
  const brim_mixup_room room = brim_mixup_room_of(data, brim_transform_bytes(&data->transform));
  const int64_t partner = brim_mixup_partner(data, draws->epoch, number_of(data, draws->epoch, i));
  const brim_draws other = {draws->seed, draws->epoch, (int64_t)brim_permutation_at(&data->split, (uint64_t)partner)};
  float *other_values = (float *)(scratch + room.values);
  void *other_label = scratch + room.label;
  BRIM_TRY(make_sample(data, BRIM_SPLIT_TRAIN, &other, true, scratch, other_values, other_label));
  const float share = brim_augment_mix(&data->transform, draws, values, other_values,
                                       brim_transform_further(&data->transform, scratch));
  brim_data_mix_label(data, label, other_label, share);
  return BRIM_OK;
}

brim_status brim_data_sample(const brim_data *data, enum brim_part part, int64_t epoch, int64_t i, uint32_t real,
                             void *scratch, void *values, void *label)
{
  if (i < 0 || i >= data->count[part])
    return brim_fail(BRIM_EINVAL, "sample %" PRId64 " of a part of %" PRId64, i, data->count[part]);
  const brim_draws draws = {data->seed, epoch, brim_data_index(data, part, epoch, i)};
  const bool training = part == BRIM_PART_TRAIN && epoch != BRIM_EPOCH_PLAIN;
  BRIM_TRY(make_sample(data, split_of_part(data, part), &draws, training, scratch, values, label));
  if (brim_data_is_mixed(data, part)) BRIM_TRY(mix_sample(data, &draws, i, scratch, values, label));
  finish_values(data, real, values);
  brim_data_finish_label(data, part, real, label);
  return BRIM_OK;
}

brim_status brim_data_client_sample(const brim_data *data, const brim_client_order *order, int64_t i, uint32_t real,
                                    void *scratch, void *values, void *label)
{
  const brim_draws draws = {data->seed, order->epoch, order->sample[i]};
  BRIM_TRY(make_sample(data, BRIM_SPLIT_TRAIN, &draws, order->epoch != BRIM_EPOCH_PLAIN, scratch, values, label));
  finish_values(data, real, values);
  brim_data_finish_label(data, BRIM_PART_TRAIN, real, label);
  return BRIM_OK;
}

brim_status brim_data_label(const brim_data *data, int64_t i, void *scratch, int32_t *out)
{
  return brim_data_label_at(data, (int64_t)brim_permutation_at(&data->split, (uint64_t)i), scratch, out);
}

brim_status brim_data_label_at(const brim_data *data, int64_t index, void *scratch, int32_t *out)
{
  brim_picture picture = {0};
  BRIM_TRY(read_sample(data, BRIM_SPLIT_TRAIN, index, true, scratch, &picture, out));
  return brim_data_check_label(data, BRIM_SPLIT_TRAIN, index, scratch, out);
}

brim_status brim_data_file_sample(const brim_data *data, const char *split, int64_t i, uint32_t real, void *scratch,
                                  void *values, void *label)
{
  brim_picture picture = {0};
  BRIM_TRY(read_sample(data, split, i, false, scratch, &picture, label));
  make_values(data, &picture, NULL, scratch, values);
  finish_values(data, real, values);
  return BRIM_OK;
}
