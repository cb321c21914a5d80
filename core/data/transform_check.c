/* Checks the settings of transforms against the samples: which transforms are possible, and the resulting size. */
#include "data/transform_check.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "data/augment.h"
#include "data/resample.h"
#include "data/transform.h"
#include "graph/documents.h"

static const char *const filters[] = {"nearest", "bilinear", "bicubic"};

/* Returns the first key that is set and needs red, green and blue; NULL: none. */
static const char *key_of_colours(const brim_settings *s)
{
  const brim_augment_settings *a = &s->augment;
  if (a->brightness > 0) return "augment.brightness";
  if (a->contrast > 0) return "augment.contrast";
  if (a->saturation > 0) return "augment.saturation";
  return a->hue > 0 ? "augment.hue" : NULL;
}

/* Whether settings change brightness, contrast, saturation or hue. */
static bool has_colours(const brim_settings *s)
{
  return key_of_colours(s) != NULL;
}

bool brim_transform_augments(const brim_settings *s)
{
  const brim_augment_settings *a = &s->augment;
  return a->flip || a->crop_padding > 0 || a->random_crop || a->random_resized_crop || a->erase_probability > 0 ||
         has_colours(s) || a->mixup > 0 || a->chosen_count > 0;
}

/* Returns the first key that is set and needs rows and columns of pixels; NULL: none. */
static const char *key_of_images(const brim_settings *s)
{
  const brim_augment_settings *a = &s->augment;
  if (a->flip) return "augment.flip";
  if (a->crop_padding > 0) return "augment.crop_padding";
  if (a->random_crop) return "augment.random_crop";
  if (a->erase_probability > 0) return "augment.erase_probability";
  return NULL;
}

/* Returns the first key that is set and needs pixels that are bytes; NULL: none. */
static const char *key_of_bytes(const brim_settings *s)
{
  if (s->transform.size.count > 0) return "transform.size";
  if (s->transform.resize > 0) return "transform.resize";
  if (s->augment.random_resized_crop) return "augment.random_resized_crop";
  if (s->augment.random_crop) return "augment.random_crop";
  return key_of_colours(s);
}

static brim_status check_kind(const brim_settings *s, const char *dataset, const brim_dataset_info *info)
{
  char shape[96];
  const char *key = key_of_images(s) ? key_of_images(s) : key_of_bytes(s);
  if (s->augment.mixup > 0 && info->task == BRIM_TASK_TOKENS)
    return brim_fail(BRIM_ECONFIG, "'augment.mixup' mixes numbers, but the samples of dataset '%s' are tokens",
                     dataset);
  if (key && info->sample.rank != 3)
    return brim_fail(BRIM_ECONFIG,
                     "'%s' needs images, but the samples of dataset '%s' have shape %s\n"
                     "leave it out; transform=none and augment=none leave samples as they are",
                     key, dataset, brim_shape_format(shape, sizeof shape, &info->sample));
  key = key_of_bytes(s);
  if (key && info->dtype != BRIM_DTYPE_U8)
    return brim_fail(BRIM_ECONFIG, "'%s' needs images of type U8, but the samples of dataset '%s' are of type %s", key,
                     dataset, brim_dtype_name(info->dtype));
  key = key_of_colours(s);
  if (key && info->sample.dim[0] != 3 && info->sample.dim[0] != 1)
    return brim_fail(
        BRIM_ECONFIG,
        "'%s' needs 1 or 3 channels, but the images of dataset '%s' have %" PRId64
        "\nset it and the other keys that change colours (augment.brightness, contrast, saturation, hue) to 0",
        key, dataset, info->sample.dim[0]);
  return BRIM_OK;
}

brim_status brim_transform_check_range(const char *key, const brim_list *list, double most)
{
  if (list->count != 2)
    return brim_fail(BRIM_ECONFIG, "'%s' must have 2 numbers, the minimum and the maximum, got %zu", key, list->count);
  if (list->item[0] > 0 && list->item[0] <= list->item[1] && list->item[1] <= most) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG, "'%s' must be a minimum and a maximum, above 0 and at most %g, got [%g, %g]", key,
                   most, list->item[0], list->item[1]);
}

static brim_status check_ranges(const brim_augment_settings *a)
{
  if (a->random_resized_crop) {
    BRIM_TRY(brim_transform_check_range("augment.crop_scale", &a->crop_scale, 1));
    BRIM_TRY(brim_transform_check_range("augment.crop_ratio", &a->crop_ratio, 1000));
  }
  if (a->erase_probability > 0) {
    BRIM_TRY(brim_transform_check_range("augment.erase_scale", &a->erase_scale, 1));
    BRIM_TRY(brim_transform_check_range("augment.erase_ratio", &a->erase_ratio, 1000));
  }
  return BRIM_OK;
}

static brim_status set_size(brim_transform *t, const char *dataset)
{
  const brim_list *size = &t->settings->transform.size;
  t->rows = t->rows_in;
  t->columns = t->columns_in;
  if (size->count == 0 && t->any_size)
    return brim_fail(BRIM_ECONFIG,
                     "the pictures of dataset '%s' have different sizes: set the size that the model gets, for example "
                     "transform.size=224",
                     dataset);
  if (size->count == 0) return BRIM_OK;
  if (size->count > 2)
    return brim_fail(BRIM_ECONFIG, "'transform.size' must have 1 number, or 2: rows and columns; got %zu", size->count);
  for (size_t i = 0; i < size->count; i++)
    if (!(size->item[i] >= 1 && size->item[i] <= BRIM_TRANSFORM_SIDE_MAX) || size->item[i] != floor(size->item[i]))
      return brim_fail(BRIM_ECONFIG, "'transform.size' must be whole numbers from 1 to %d, got %g",
                       BRIM_TRANSFORM_SIDE_MAX, size->item[i]);
  t->rows = (int64_t)size->item[0];
  t->columns = (int64_t)size->item[size->count - 1];
  return BRIM_OK;
}

static brim_status check_crop(const brim_transform *t)
{
  const brim_augment_settings *a = &t->settings->augment;
  if (a->random_resized_crop && (a->random_crop || a->crop_padding > 0))
    return brim_fail(BRIM_ECONFIG, "'augment.random_resized_crop' and '%s' are two ways to crop: leave out one of them",
                     a->random_crop ? "augment.random_crop" : "augment.crop_padding");
  if (!a->random_crop && a->crop_padding == 0) return BRIM_OK;
  const int64_t side = t->settings->transform.resize, room = side + 2 * a->crop_padding,
                longer = t->rows > t->columns ? t->rows : t->columns;
  if (side == 0 || room >= longer) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG,
                   "a crop of transform.size, %" PRId64 "x%" PRId64
                   ", may not fit into pictures with transform.resize=%" PRId64 " and augment.crop_padding=%" PRId64,
                   t->rows, t->columns, side, a->crop_padding);
}

void brim_transform_widen(brim_transform *t, const brim_dataset_info *info)
{
  if (!t->any_size) return;
  if (info->pixels_max > t->pixels_max) t->pixels_max = info->pixels_max;
  if (info->side_max > t->side_max) t->side_max = info->side_max;
  t->read_bytes = (uint64_t)t->pixels_max * (uint64_t)t->channels;
}

brim_status brim_transform_init(brim_transform *t, const brim_settings *settings, const char *dataset,
                                const brim_dataset_info *train)
{
  const brim_shape *s = &train->sample;
  *t = (brim_transform){.settings = settings, .any_size = train->pixels_max > 0};
  BRIM_TRY(check_kind(settings, dataset, train));
  t->channels = s->rank == 3 ? s->dim[0] : 1;
  t->rows_in = s->rank == 3 ? s->dim[1] : 1;
  t->columns_in = s->rank == 3 ? s->dim[2] : s->dim[0];
  BRIM_TRY(set_size(t, dataset));
  BRIM_TRY(check_ranges(&settings->augment));
  BRIM_TRY(brim_augment_check(t, dataset, train));
  t->applies = t->any_size || (s->rank == 3 && (key_of_bytes(settings) || brim_augment_has_bytes(settings)));
  t->made = *s;
  if (s->rank == 3) {
    t->made.dim[1] = t->rows;
    t->made.dim[2] = t->columns;
  }
  if (t->applies) BRIM_TRY(check_crop(t));
  t->side_max = t->rows_in > t->columns_in ? t->rows_in : t->columns_in;
  t->read_bytes = (uint64_t)brim_shape_count(s) * brim_dtype_bytes(train->dtype);
  if (train->documents) t->read_bytes *= BRIM_DOCUMENT_ROWS;
  brim_transform_widen(t, train);
  return BRIM_OK;
}

const char *brim_transform_filter(const brim_transform *t)
{
  return filters[t->settings->transform.interpolation];
}

const char *brim_transform_text(const brim_transform *t, char *out, size_t room)
{
  const brim_settings *s = t->settings;
  const brim_augment_settings *a = &s->augment;
  size_t used = (size_t)snprintf(out, room, "%s%s%s%s", a->flip ? " flip" : "", a->crop_padding > 0 ? " crop" : "",
                                 a->erase_probability > 0 ? " erase" : "", a->mixup > 0 ? " mixup" : "");
  if (t->applies && used < room)
    used += (size_t)snprintf(out + used, room - used, " size %" PRId64 "x%" PRId64 " %s", t->rows, t->columns,
                             brim_transform_filter(t));
  if (t->applies && s->transform.resize > 0 && used < room)
    used += (size_t)snprintf(out + used, room - used, " resize %" PRId64, s->transform.resize);
  for (size_t i = 0; i < a->chosen_count && used < room; i++)
    used += (size_t)snprintf(out + used, room - used, " %s", a->chosen[i].plugin->id);
  if (t->applies && used < room)
    snprintf(out + used, room - used, "%s%s", a->random_resized_crop ? " part" : "",
             has_colours(s) ? a->hue > 0 ? " colours hue" : " colours" : "");
  return out;
}
