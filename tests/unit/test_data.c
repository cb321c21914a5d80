/* Tests the parts of a dataset, the processing of a sample on its way to the network, and the errors for settings and
 * datasets. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "brim/random.h"
#include "data/data.h"
#include "data/partition.h"
#include "unit/made_dataset.h"

#define COUNT 200
#define PIXELS_MAX 512

static brim_settings default_settings(void)
{
  return (brim_settings){.seed = 5};
}

static brim_data open_data(made *m, const brim_settings *settings)
{
  brim_data data;
  if (brim_data_open(&data, &made_plugin, m, settings) != BRIM_OK) fail_msg("%s", brim_error_text());
  return data;
}

static int32_t label_at(const brim_data *data, enum brim_part part, int64_t epoch, int64_t i)
{
  uint8_t scratch[PIXELS_MAX * 4];
  float values[PIXELS_MAX];
  int32_t label = -1;
  if (brim_data_sample(data, part, epoch, i, BRIM_DTYPE_F32, scratch, values, &label) != BRIM_OK)
    fail_msg("%s", brim_error_text());
  return label;
}

/* ---- Parts and order ---- */

/* The same dataset with validation data of its own, which are like the test split but twice as many. */
static brim_status own_describe(const void *self, const char *split, brim_dataset_info *out)
{
  const bool validation = strcmp(split, "validation") == 0;
  BRIM_TRY(made_describe(self, validation ? "test" : split, out));
  if (validation) out->count *= 2;
  return BRIM_OK;
}

static brim_status own_read(const void *self, const char *split, int64_t index, void *values, void *label)
{
  const bool validation = strcmp(split, "validation") == 0;
  BRIM_TRY(made_read(self, validation ? "test" : split, index, values, label));
  if (validation) *(int32_t *)label += COUNT / 2;
  return BRIM_OK;
}

static void a_validation_split_takes_nothing_from_training(void **state)
{
  const brim_dataset_ops ops = {.size = sizeof ops,
                                .open = made_open,
                                .describe = own_describe,
                                .read = own_read,
                                .validation_split = "validation"};
  brim_plugin plugin = made_plugin;
  plugin.ops = &ops;
  brim_settings settings = default_settings();
  made m = made_images(COUNT, 1, 2, 3);
  m.test.count = 20;
  brim_data data;
  if (brim_data_open(&data, &plugin, &m, &settings) != BRIM_OK) fail_msg("%s", brim_error_text());
  assert_int_equal(m.opened, 3);
  assert_int_equal(data.count[BRIM_PART_TRAIN], COUNT);
  assert_int_equal(data.count[BRIM_PART_VALIDATION], 40);
  assert_int_equal(data.count[BRIM_PART_TEST], 20);
  for (int64_t i = 0; i < 40; i++) assert_int_equal(label_at(&data, BRIM_PART_VALIDATION, 1, i), COUNT / 2 + i);
  settings.dataset.validation_fraction = 0.1;
  assert_int_equal(brim_data_open(&data, &plugin, &m, &settings), BRIM_ECONFIG);
  assert_string_equal(brim_error_text(), "'dataset.validation_fraction' is 0.1, but dataset 'made' has its own "
                                         "validation data\nleave one of them out");
  const brim_dataset_ops older = {.size = offsetof(brim_dataset_ops, validation_split),
                                  .open = made_open,
                                  .describe = own_describe,
                                  .read = own_read};
  plugin.ops = &older; /* an older table ends before this function */
  assert_int_equal(brim_data_open(&data, &plugin, &m, &settings), BRIM_OK);
  assert_int_equal(data.count[BRIM_PART_VALIDATION], COUNT / 10);
}

static void an_epoch_has_every_training_sample_once_in_its_own_order(void **state)
{
  const brim_settings settings = default_settings();
  made m = made_images(COUNT, 1, 2, 3);
  const brim_data data = open_data(&m, &settings);
  assert_int_equal(data.count[BRIM_PART_TRAIN], COUNT);
  assert_int_equal(data.count[BRIM_PART_VALIDATION], 0);
  int32_t order[2][COUNT];
  int same = 0;
  for (int epoch = 0; epoch < 2; epoch++) {
    int seen[COUNT] = {0};
    for (int64_t i = 0; i < COUNT; i++) {
      order[epoch][i] = label_at(&data, BRIM_PART_TRAIN, epoch, i);
      seen[order[epoch][i]]++;
    }
    for (int i = 0; i < COUNT; i++) assert_int_equal(seen[i], 1);
  }
  for (int i = 0; i < COUNT; i++) same += order[0][i] == order[1][i];
  assert_true(same < 10);
}

static void validation_is_kept_out_of_training_in_every_epoch(void **state)
{
  brim_settings settings = default_settings();
  settings.dataset.validation_fraction = 0.1013; /* of 200 samples: 20.26 */
  made m = made_images(COUNT, 1, 2, 3);
  const brim_data data = open_data(&m, &settings);
  assert_int_equal(data.count[BRIM_PART_VALIDATION], 20);
  assert_int_equal(data.count[BRIM_PART_TRAIN], 180);
  for (int epoch = 0; epoch < 3; epoch++) {
    int seen[COUNT] = {0};
    for (int64_t i = 0; i < 180; i++) seen[label_at(&data, BRIM_PART_TRAIN, epoch, i)]++;
    for (int64_t i = 0; i < 20; i++) seen[label_at(&data, BRIM_PART_VALIDATION, epoch, i)]++;
    for (int i = 0; i < COUNT; i++) assert_int_equal(seen[i], 1);
  }
  for (int64_t i = 0; i < 20; i++) /* validation data always have one order */
    assert_int_equal(label_at(&data, BRIM_PART_VALIDATION, 0, i), label_at(&data, BRIM_PART_VALIDATION, 1, i));
  for (int64_t i = 0; i < 20; i++) { /* the validation samples are at the places that data.h states */
    brim_permutation split;
    brim_permutation_init(&split, 5, BRIM_STREAM_SPLIT, 0, COUNT);
    assert_int_equal(label_at(&data, BRIM_PART_VALIDATION, 0, i), brim_permutation_at(&split, (uint64_t)(180 + i)));
  }
}

static void num_train_samples_takes_a_fixed_subset_and_leaves_validation(void **state)
{
  brim_settings settings = default_settings(), all = default_settings();
  settings.dataset.validation_fraction = all.dataset.validation_fraction = 0.1;
  settings.training.num_train_samples = 30;
  made m = made_images(COUNT, 1, 2, 3);
  const brim_data data = open_data(&m, &settings), whole = open_data(&m, &all);
  assert_int_equal(data.count[BRIM_PART_TRAIN], 30);
  int seen[COUNT] = {0};
  for (int epoch = 0; epoch < 4; epoch++)
    for (int64_t i = 0; i < 30; i++) seen[label_at(&data, BRIM_PART_TRAIN, epoch, i)]++;
  int used = 0;
  for (int i = 0; i < COUNT; i++) {
    assert_true(seen[i] == 0 || seen[i] == 4);
    used += seen[i] == 4;
  }
  assert_int_equal(used, 30);
  for (int64_t i = 0; i < 20; i++) {
    const int32_t label = label_at(&data, BRIM_PART_VALIDATION, 0, i);
    assert_int_equal(label, label_at(&whole, BRIM_PART_VALIDATION, 0, i));
    assert_int_equal(seen[label], 0);
  }
}

static void test_samples_come_in_the_datasets_order(void **state)
{
  const brim_settings settings = default_settings();
  made m = made_images(COUNT, 1, 2, 3);
  const brim_data data = open_data(&m, &settings);
  assert_int_equal(data.count[BRIM_PART_TEST], 17);
  for (int64_t i = 0; i < 17; i++) assert_int_equal(label_at(&data, BRIM_PART_TEST, 3, i), i);
}

static void a_missing_test_split_is_allowed(void **state)
{
  const brim_settings settings = default_settings();
  made m = made_images(COUNT, 1, 2, 3);
  m.test.count = -1;
  const brim_data data = open_data(&m, &settings);
  assert_int_equal(data.test.count, 0);
  assert_int_equal(data.count[BRIM_PART_TEST], 0);
}

/* ---- Values ---- */

static void bytes_are_scaled_and_normalised_by_channel(void **state)
{
  const double mean[] = {0.25, 0.5, 0.75}, std[] = {0.5, 0.1, 2};
  brim_settings settings = default_settings();
  settings.dataset.mean = (brim_list){mean, 3};
  settings.dataset.std = (brim_list){std, 3};
  made m = made_images(COUNT, 3, 2, 5);
  const brim_data data = open_data(&m, &settings);
  for (int64_t i = 0; i < 17; i++) {
    uint8_t scratch[30];
    float values[30];
    double wide[30];
    int32_t label;
    assert_int_equal(brim_data_sample(&data, BRIM_PART_TEST, 0, i, BRIM_DTYPE_F32, scratch, values, &label), BRIM_OK);
    assert_int_equal(brim_data_sample(&data, BRIM_PART_TEST, 0, i, BRIM_DTYPE_F64, scratch, wide, &label), BRIM_OK);
    for (int k = 0; k < 30; k++) {
      const double expected = (made_value(i, k) / 255.0 - mean[k / 10]) / std[k / 10];
      assert_true(fabs(values[k] - expected) < 2e-6);
      assert_true(wide[k] == (double)values[k]);
    }
  }
}

static void floats_are_normalised_but_not_scaled(void **state)
{
  const double mean[] = {10}, std[] = {4};
  brim_settings settings = default_settings();
  settings.dataset.mean = (brim_list){mean, 1};
  settings.dataset.std = (brim_list){std, 1};
  made m = made_images(COUNT, 1, 1, 1);
  m.train.sample = m.test.sample = (brim_shape){.rank = 1, .dim = {7}};
  m.train.dtype = m.test.dtype = BRIM_DTYPE_F32;
  const brim_data data = open_data(&m, &settings);
  assert_int_equal(data.elements, 7);
  float scratch[7], values[7];
  int32_t label;
  assert_int_equal(brim_data_sample(&data, BRIM_PART_TEST, 0, 9, BRIM_DTYPE_F32, scratch, values, &label), BRIM_OK);
  for (int k = 0; k < 7; k++) assert_true(values[k] == ((float)made_value(9, k) - 110) / 4);
}

/* ---- Augmentation ---- */

/* The reference: raw pixel (y + dy, x + dx) or 0, mirrored, then normalised as data.c does. */
static bool matches(const brim_data *data, int64_t index, const float *values, int64_t dy, int64_t dx, bool mirror)
{
  for (int64_t k = 0; k < data->elements; k++) {
    const int64_t c = k / (data->rows * data->columns), y = k / data->columns % data->rows, x = k % data->columns;
    const int64_t from_y = y + dy, from_x = (mirror ? data->columns - 1 - x : x) + dx;
    const bool inside = from_y >= 0 && from_y < data->rows && from_x >= 0 && from_x < data->columns;
    const int64_t at = (c * data->rows + from_y) * data->columns + from_x;
    float raw = inside ? (float)made_value(index, at) : 0;
    if (inside && data->train.dtype == BRIM_DTYPE_F32) raw -= 100;
    if (values[k] != raw * data->scale[c * data->channel_step] + data->shift[c * data->channel_step]) return false;
  }
  return true;
}

/* Finds the view (dy, dx, mirror) of the raw sample, and returns it as one number; fails if no view matches. */
static int find_view(const brim_data *data, int64_t epoch, int64_t i, int64_t *index)
{
  const int64_t p = data->settings->augment.crop_padding;
  uint8_t scratch[PIXELS_MAX * 4];
  float values[PIXELS_MAX];
  int32_t label = -1;
  assert_int_equal(brim_data_sample(data, BRIM_PART_TRAIN, epoch, i, BRIM_DTYPE_F32, scratch, values, &label), BRIM_OK);
  *index = label;
  for (int64_t dy = -p; dy <= p; dy++)
    for (int64_t dx = -p; dx <= p; dx++)
      for (int mirror = 0; mirror < 2; mirror++)
        if (matches(data, label, values, dy, dx, mirror)) return (int)(((dy + p) * (2 * p + 1) + dx + p) * 2 + mirror);
  fail_msg("sample %d is not a view of the raw one", label);
  return -1;
}

static void check_views(uint32_t dtype, bool flip, int64_t padding, int64_t channels, int64_t rows, int64_t columns)
{
  const double mean[] = {0.3, 0.2}, std[] = {0.5, 0.7};
  brim_settings settings = default_settings();
  settings.augment = (brim_augment_settings){.flip = flip, .crop_padding = padding};
  settings.dataset.mean = (brim_list){mean, (size_t)channels};
  settings.dataset.std = (brim_list){std, (size_t)channels};
  made m = made_images(1000, channels, rows, columns);
  m.train.dtype = m.test.dtype = dtype;
  const brim_data data = open_data(&m, &settings);
  int hits[1000] = {0};
  const int views = (int)((2 * padding + 1) * (2 * padding + 1) * 2), wanted = flip ? views : views / 2;
  int64_t index;
  for (int64_t epoch = 0; epoch < 2; epoch++)
    for (int64_t i = 0; i < 1000; i++) hits[find_view(&data, epoch, i, &index)]++;
  for (int v = 0; v < views; v++) { /* every view occurs about equally often, and no other value occurs */
    const double expected = v % 2 == 1 && !flip ? 0 : 2000.0 / wanted;
    assert_true(fabs(hits[v] - expected) <= 6 * sqrt(expected));
  }
}

static void views_are_crops_and_mirror_images_equally_often(void **state)
{
  check_views(BRIM_DTYPE_U8, true, 0, 1, 5, 7);
  check_views(BRIM_DTYPE_U8, false, 2, 1, 6, 5);
  check_views(BRIM_DTYPE_U8, true, 2, 2, 5, 6);
  check_views(BRIM_DTYPE_F32, true, 2, 2, 6, 5);
}

/* With padding, some crops lie entirely outside the picture. */
static void crops_beyond_the_picture_are_padding(void **state)
{
  brim_settings settings = default_settings();
  settings.augment = (brim_augment_settings){.flip = true, .crop_padding = 9};
  made m = made_images(COUNT, 1, 3, 4);
  const brim_data data = open_data(&m, &settings);
  int64_t index;
  for (int64_t i = 0; i < COUNT; i++) find_view(&data, 0, i, &index);
}

/* A sample's view in an epoch depends neither on its position nor on the other samples in use. */
static void views_depend_on_seed_epoch_and_sample_only(void **state)
{
  brim_settings settings = default_settings(), other = default_settings();
  settings.augment = other.augment = (brim_augment_settings){.flip = true, .crop_padding = 3};
  other.dataset.validation_fraction = 0.5;
  other.training.num_train_samples = 50;
  made m = made_images(COUNT, 1, 9, 8);
  const brim_data data = open_data(&m, &settings), part = open_data(&m, &other);
  int view[2][COUNT], changed = 0;
  int64_t index;
  for (int epoch = 0; epoch < 2; epoch++)
    for (int64_t i = 0; i < COUNT; i++) {
      const int v = find_view(&data, epoch, i, &index);
      view[epoch][index] = v;
    }
  for (int epoch = 0; epoch < 2; epoch++)
    for (int64_t i = 0; i < 50; i++) {
      const int v = find_view(&part, epoch, i, &index);
      assert_int_equal(v, view[epoch][index]);
    }
  for (int i = 0; i < COUNT; i++) changed += view[0][i] != view[1][i];
  assert_true(changed > COUNT * 9 / 10);
}

static void validation_and_test_are_never_augmented(void **state)
{
  brim_settings settings = default_settings();
  settings.augment = (brim_augment_settings){.flip = true, .crop_padding = 2};
  settings.dataset.validation_fraction = 0.2;
  made m = made_images(COUNT, 1, 5, 6);
  const brim_data data = open_data(&m, &settings);
  static const enum brim_part parts[] = {BRIM_PART_VALIDATION, BRIM_PART_TEST};
  for (int p = 0; p < 2; p++)
    for (int64_t i = 0; i < data.count[parts[p]]; i++) {
      uint8_t scratch[30];
      float values[30];
      int32_t label;
      assert_int_equal(brim_data_sample(&data, parts[p], 1, i, BRIM_DTYPE_F32, scratch, values, &label), BRIM_OK);
      assert_true(matches(&data, label, values, 0, 0, false));
    }
}

/* ---- Errors ---- */

static void expect_refusal(made *m, const brim_settings *settings, brim_status expected, const char *text)
{
  brim_data data;
  assert_int_equal(brim_data_open(&data, &made_plugin, m, settings), expected);
  assert_string_equal(brim_error_text(), text);
}

static void datasets_that_cannot_be_used_are_refused(void **state)
{
  const brim_settings settings = default_settings();
  made m = made_images(0, 1, 2, 3);
  expect_refusal(&m, &settings, BRIM_ELOAD, "the train split of dataset 'made' is empty: it has 0 samples");
  m = made_images(COUNT, 1, 2, 3);
  m.test.count = 0;
  expect_refusal(&m, &settings, BRIM_ELOAD, "the test split of dataset 'made' is empty: it has 0 samples");
  m = made_images(COUNT, 1, 2, 3);
  m.train.classes = 1;
  expect_refusal(&m, &settings, BRIM_ELOAD, "dataset 'made' has 1 class; at least 2 are needed");
  m = made_images(COUNT, 1, 2, 3);
  m.train.dtype = BRIM_DTYPE_I32;
  expect_refusal(&m, &settings, BRIM_ELOAD, "dataset 'made' has samples of type I32; U8 and F32 can be used");
  m = made_images(COUNT, 1, 2, 3);
  m.train.sample.rank = 4;
  expect_refusal(
      &m, &settings, BRIM_ELOAD,
      "dataset 'made' has samples of 4 dimensions; [channels,rows,columns], [length,features] and [features] "
      "can be used");
  m = made_images(COUNT, 1, 2, 3);
  m.train.task = 7;
  expect_refusal(&m, &settings, BRIM_ELOAD, "dataset 'made' has the unknown task 7");
  m = made_tokens(COUNT, 6);
  m.train.classes = 1;
  expect_refusal(&m, &settings, BRIM_ELOAD, "dataset 'made' has 1 token; at least 2 are needed");
  m = made_tokens(COUNT, 6);
  m.train.dtype = BRIM_DTYPE_U8;
  expect_refusal(&m, &settings, BRIM_ELOAD,
                 "dataset 'made' has samples of 1 dimensions and type U8; token samples must be [T] of I32");
  m = made_values(COUNT, 2, 3, 0);
  expect_refusal(&m, &settings, BRIM_ELOAD, "dataset 'made' has 0 target numbers; 1 to 1048576 are possible");
  m = made_images(COUNT, 1, 0, 3);
  expect_refusal(&m, &settings, BRIM_ELOAD, "dataset 'made' has samples with the invalid shape [1, 0, 3]");
  m = made_images(COUNT, INT64_MAX, 2, 3);
  expect_refusal(&m, &settings, BRIM_ELOAD,
                 "dataset 'made' has samples with the invalid shape [9223372036854775807, 2, 3]");
}

static void splits_that_do_not_fit_together_are_refused(void **state)
{
  const brim_settings settings = default_settings();
  made m = made_images(COUNT, 1, 2, 3);
  m.test.sample.dim[2] = 4;
  expect_refusal(&m, &settings, BRIM_ELOAD,
                 "the splits of dataset 'made' do not match: training samples are [1, 2, 3], test samples "
                 "[1, 2, 4]");
  m = made_images(COUNT, 1, 2, 3);
  m.test.classes = 100;
  expect_refusal(&m, &settings, BRIM_ELOAD,
                 "the splits of dataset 'made' do not match: training has 200 classes and U8 values, test 100 "
                 "and U8");
}

static void splits_of_other_tasks_are_refused(void **state)
{
  const brim_settings settings = default_settings();
  made m = made_values(COUNT, 2, 3, 4);
  m.test.targets = 1;
  expect_refusal(&m, &settings, BRIM_ELOAD,
                 "the splits of dataset 'made' do not match: the targets of training samples are 4 real "
                 "numbers, those of test samples 1 real number");
  m = made_values(COUNT, 2, 3, 4);
  m.test.task = BRIM_TASK_CLASS;
  m.test.classes = 10;
  m.test.targets = 0;
  expect_refusal(&m, &settings, BRIM_ELOAD,
                 "the splits of dataset 'made' do not match: the targets of training samples are 4 real "
                 "numbers, those of test samples a class");
}

static void settings_that_do_not_fit_are_refused(void **state)
{
  const double numbers[] = {0.5, 0, NAN};
  made m = made_images(COUNT, 3, 2, 3);
  brim_settings s = default_settings();
  s.dataset.mean = (brim_list){numbers, 2};
  expect_refusal(&m, &s, BRIM_ECONFIG,
                 "'dataset.mean' has 2 numbers, but the samples have 3 channels; give 1 or as many as channels");
  s.dataset.mean = (brim_list){numbers + 2, 1};
  expect_refusal(&m, &s, BRIM_ECONFIG, "'dataset.mean': number 1 is not finite");
  s = default_settings();
  s.dataset.std = (brim_list){numbers + 1, 1};
  expect_refusal(&m, &s, BRIM_ECONFIG, "'dataset.std' must be greater than 0, got 0");
  s = default_settings();
  s.dataset.validation_fraction = 0.9999;
  expect_refusal(&m, &s, BRIM_ECONFIG,
                 "'dataset.validation_fraction' is 0.9999, which leaves none of the 200 samples for training");
  s.dataset.validation_fraction = 0.001;
  expect_refusal(&m, &s, BRIM_ECONFIG,
                 "'dataset.validation_fraction' is 0.001, which is less than one of the 200 samples");
  s.dataset.validation_fraction = 0.5;
  s.training.num_train_samples = 101;
  expect_refusal(&m, &s, BRIM_ECONFIG,
                 "'training.num_train_samples' is 101, but there are 100 training samples (0: use all)");
}

#define CURE "\nleave it out; transform=none and augment=none leave samples as they are"

static void augmentation_needs_images(void **state)
{
  made m = made_images(COUNT, 1, 2, 3);
  m.train.sample = m.test.sample = (brim_shape){.rank = 1, .dim = {6}};
  brim_settings s = default_settings();
  s.augment.flip = true;
  expect_refusal(&m, &s, BRIM_ECONFIG,
                 "'augment.flip' needs images, but the samples of dataset 'made' have shape [6]" CURE);
  s.augment = (brim_augment_settings){.crop_padding = 2};
  expect_refusal(&m, &s, BRIM_ECONFIG,
                 "'augment.crop_padding' needs images, but the samples of dataset 'made' have shape [6]" CURE);
}

static void samples_that_cannot_be_read_are_named(void **state)
{
  const brim_settings settings = default_settings();
  made m = made_images(COUNT, 1, 2, 3);
  m.fail_read = 4;
  m.bad_label = 5;
  const brim_data data = open_data(&m, &settings);
  uint8_t scratch[6];
  float values[6];
  int32_t label;
  assert_int_equal(brim_data_sample(&data, BRIM_PART_TEST, 0, 4, BRIM_DTYPE_F32, scratch, values, &label), BRIM_EIO);
  assert_string_equal(brim_error_text(),
                      "the disk is gone\nwhile reading sample 4 of the test split of dataset 'made'");
  assert_int_equal(brim_data_sample(&data, BRIM_PART_TEST, 0, 5, BRIM_DTYPE_F32, scratch, values, &label), BRIM_ELOAD);
  assert_string_equal(brim_error_text(),
                      "dataset 'made': label 200 of sample 5 of the test split is out of range, 0 to 199");
  assert_int_equal(brim_data_sample(&data, BRIM_PART_TEST, 0, 17, BRIM_DTYPE_F32, scratch, values, &label),
                   BRIM_EINVAL);
  assert_string_equal(brim_error_text(), "sample 17 of a part of 17");
}

static void samples_outside_of_a_view_cannot_be_read(void **state)
{
  const brim_settings settings = default_settings();
  made m = made_images(COUNT, 1, 2, 3);
  brim_data data = open_data(&m, &settings);
  uint8_t view[(COUNT + 7) / 8] = {0}, scratch[6];
  float values[6];
  int32_t label;
  view[1] = 1 << 3; /* sample 11 */
  data.view = view;
  for (int64_t i = 0; i < COUNT; i++) {
    const int64_t sample = brim_data_index(&data, BRIM_PART_TRAIN, 0, i);
    const brim_client_order order = {.sample = (int64_t[]){sample}};
    const brim_status expected = sample == 11 ? BRIM_OK : BRIM_EINTERNAL;
    assert_int_equal(brim_data_sample(&data, BRIM_PART_TRAIN, 0, i, BRIM_DTYPE_F32, scratch, values, &label), expected);
    assert_int_equal(brim_data_client_sample(&data, &order, 0, BRIM_DTYPE_F32, scratch, values, &label), expected);
  }
  const brim_client_order other = {.sample = (int64_t[]){12}};
  (void)brim_data_client_sample(&data, &other, 0, BRIM_DTYPE_F32, scratch, values, &label);
  assert_string_equal(brim_error_text(), "sample 12 of the training split belongs to another client");
  for (int64_t i = 0; i < 17; i++) assert_int_equal(label_at(&data, BRIM_PART_TEST, 0, i), i);
}

/* ---- Tokens and real numbers ---- */

static void tokens_come_with_one_label_each(void **state)
{
  const brim_settings settings = default_settings();
  made m = made_tokens(COUNT, 12);
  brim_data data = open_data(&m, &settings);
  data.ignored_token = 7;
  int32_t scratch[12], token[12], label[12];
  int ignored = 0;
  assert_int_equal(brim_data_values_bytes(&data, BRIM_DTYPE_F64), sizeof token); /* the type of reals does not matter */
  assert_int_equal(brim_data_label_bytes(&data, BRIM_PART_TEST, BRIM_DTYPE_F64), sizeof label);
  for (int64_t i = 0; i < 17; i++) {
    assert_int_equal(brim_data_sample(&data, BRIM_PART_TEST, 0, i, BRIM_DTYPE_F64, scratch, token, label), BRIM_OK);
    for (int k = 0; k < 12; k++) {
      const int next = made_value(i, k + 1) % 50;
      assert_int_equal(token[k], made_value(i, k) % 50);
      assert_int_equal(label[k], k % 5 == 4 || next == 7 ? BRIM_NO_TOKEN : next);
      ignored += k % 5 != 4 && next == 7;
    }
  }
  assert_true(ignored > 0);
}

static void tokens_outside_of_the_vocabulary_are_named(void **state)
{
  const brim_settings settings = default_settings();
  made m = made_tokens(COUNT, 3);
  m.bad_label = 5;
  const brim_data data = open_data(&m, &settings);
  int32_t scratch[3], token[3], label[3];
  assert_int_equal(brim_data_sample(&data, BRIM_PART_TEST, 0, 5, BRIM_DTYPE_F32, scratch, token, label), BRIM_ELOAD);
  assert_string_equal(brim_error_text(),
                      "dataset 'made': the label of token 2 of sample 5 of the test split is 50, which "
                      "is not in the vocabulary, 0 to 49");
}

static void real_targets_come_as_the_backend_has_them(void **state)
{
  const brim_settings settings = default_settings();
  made m = made_values(COUNT, 2, 3, 4);
  m.bad_label = 5;
  const brim_data data = open_data(&m, &settings);
  float scratch[6], narrow[6], target[4];
  double wide[6], wide_target[4];
  assert_int_equal(brim_data_label_bytes(&data, BRIM_PART_TEST, BRIM_DTYPE_F32), sizeof target);
  assert_int_equal(brim_data_label_bytes(&data, BRIM_PART_TEST, BRIM_DTYPE_F64), sizeof wide_target);
  assert_int_equal(brim_data_sample(&data, BRIM_PART_TEST, 0, 3, BRIM_DTYPE_F32, scratch, narrow, target), BRIM_OK);
  assert_int_equal(brim_data_sample(&data, BRIM_PART_TEST, 0, 3, BRIM_DTYPE_F64, scratch, wide, wide_target), BRIM_OK);
  for (int k = 0; k < 4; k++) assert_true(target[k] == 3 + (float)k / 4 && wide_target[k] == (double)target[k]);
  for (int k = 0; k < 6; k++) assert_true(wide[k] == (double)narrow[k]);
  assert_int_equal(brim_data_sample(&data, BRIM_PART_TEST, 0, 5, BRIM_DTYPE_F32, scratch, narrow, target), BRIM_ELOAD);
  assert_string_equal(brim_error_text(), "dataset 'made': target 3 of sample 5 of the test split is not finite");
}

static void features_of_sequences_have_a_mean_and_deviation_each(void **state)
{
  const double mean[] = {0.5, 0, -1}, deviation[] = {2, 1, 4};
  brim_settings settings = default_settings();
  settings.dataset.mean = (brim_list){mean, 3};
  settings.dataset.std = (brim_list){deviation, 3};
  made m = made_values(COUNT, 2, 3, 1);
  const brim_data data = open_data(&m, &settings);
  uint8_t scratch[6];
  float values[6], target;
  assert_int_equal(brim_data_sample(&data, BRIM_PART_TEST, 0, 2, BRIM_DTYPE_F32, scratch, values, &target), BRIM_OK);
  for (int k = 0; k < 6; k++) {
    const double expected = (made_value(2, k) / 255.0 - mean[k % 3]) / deviation[k % 3];
    assert_true(fabs((double)values[k] - expected) < 1e-6);
  }
  settings.dataset.mean.count = 2;
  expect_refusal(&m, &settings, BRIM_ECONFIG,
                 "'dataset.mean' has 2 numbers, but the samples have 3 features; give 1 or as many as features");
  m = made_tokens(COUNT, 3);
  expect_refusal(&m, &settings, BRIM_ECONFIG,
                 "'dataset.mean' is for real numbers, but the samples of dataset 'made' are tokens");
}

/* ---- Describing and opening single files ---- */

static void describe_does_not_open_unless_it_must(void **state)
{
  const brim_settings settings = default_settings();
  made m = made_images(COUNT, 1, 2, 3);
  brim_data data;
  assert_int_equal(brim_data_describe(&data, &made_plugin, &m, &settings), BRIM_OK);
  assert_int_equal(m.opened, 0);
  assert_int_equal(data.count[BRIM_PART_TRAIN], COUNT);
  assert_int_equal(data.elements, 6);
  m.describes_unopened = false;
  assert_int_equal(brim_data_describe(&data, &made_plugin, &m, &settings), BRIM_OK);
  assert_int_equal(m.opened, 2);
}

static void an_estimate_may_leave_out_the_vocabulary(void **state)
{
  const brim_settings settings = default_settings();
  made m = made_tokens(COUNT, 3);
  brim_data data;
  m.train.classes = m.test.classes = 0;
  assert_int_equal(brim_data_describe(&data, &made_plugin, &m, &settings), BRIM_ELOAD);
  m.train.estimated = m.test.estimated = 1;
  assert_int_equal(brim_data_describe(&data, &made_plugin, &m, &settings), BRIM_OK);
  assert_int_equal(m.opened, 0);
  double seconds;
  assert_int_equal(brim_data_sample_seconds(&data, &m, BRIM_DTYPE_F32, &seconds), BRIM_ENOTSUP);
  assert_int_equal(m.opened, 0);
}

static void opening_on_a_thread_ends_like_opening(void **state)
{
  const brim_settings settings = default_settings();
  made m = made_images(COUNT, 1, 2, 3);
  brim_data data;
  assert_int_equal(brim_data_describe(&data, &made_plugin, &m, &settings), BRIM_OK);
  data.ignored_token = 7;
  assert_int_equal(brim_data_open_start(&data), BRIM_OK);
  assert_int_equal(data.elements, 6);
  assert_int_equal(brim_data_open_finish(&data), BRIM_OK);
  assert_int_equal(m.opened, 2);
  assert_int_equal(label_at(&data, BRIM_PART_TEST, 0, 3), 3);
  assert_int_equal(data.ignored_token, 7);
}

static void a_failure_to_open_on_a_thread_is_returned_by_finish(void **state)
{
  const brim_settings settings = default_settings();
  made m = made_images(COUNT, 1, 2, 3);
  m.fail_open = true;
  brim_data data;
  assert_int_equal(brim_data_describe(&data, &made_plugin, &m, &settings), BRIM_OK);
  assert_int_equal(brim_data_open_start(&data), BRIM_OK);
  brim_fail(BRIM_EINVAL, "another error in between");
  assert_int_equal(brim_data_open_finish(&data), BRIM_ELOAD);
  assert_string_equal(brim_error_text(), "cannot open train");
}

static void dataset_that_changes_while_opened_is_refused(void **state)
{
  const brim_settings settings = default_settings();
  made m = made_images(COUNT, 1, 2, 3);
  brim_data data;
  assert_int_equal(brim_data_describe(&data, &made_plugin, &m, &settings), BRIM_OK);
  assert_int_equal(brim_data_open_start(&data), BRIM_OK);
  data.train.count--;
  assert_int_equal(brim_data_open_finish(&data), BRIM_ELOAD);
  assert_string_equal(brim_error_text(), "dataset 'made' changed while it was being opened");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_validation_split_takes_nothing_from_training),
      cmocka_unit_test(an_epoch_has_every_training_sample_once_in_its_own_order),
      cmocka_unit_test(validation_is_kept_out_of_training_in_every_epoch),
      cmocka_unit_test(num_train_samples_takes_a_fixed_subset_and_leaves_validation),
      cmocka_unit_test(test_samples_come_in_the_datasets_order),
      cmocka_unit_test(a_missing_test_split_is_allowed),
      cmocka_unit_test(bytes_are_scaled_and_normalised_by_channel),
      cmocka_unit_test(floats_are_normalised_but_not_scaled),
      cmocka_unit_test(views_are_crops_and_mirror_images_equally_often),
      cmocka_unit_test(crops_beyond_the_picture_are_padding),
      cmocka_unit_test(views_depend_on_seed_epoch_and_sample_only),
      cmocka_unit_test(validation_and_test_are_never_augmented),
      cmocka_unit_test(datasets_that_cannot_be_used_are_refused),
      cmocka_unit_test(splits_that_do_not_fit_together_are_refused),
      cmocka_unit_test(settings_that_do_not_fit_are_refused),
      cmocka_unit_test(augmentation_needs_images),
      cmocka_unit_test(samples_that_cannot_be_read_are_named),
      cmocka_unit_test(samples_outside_of_a_view_cannot_be_read),
      cmocka_unit_test(splits_of_other_tasks_are_refused),
      cmocka_unit_test(tokens_come_with_one_label_each),
      cmocka_unit_test(tokens_outside_of_the_vocabulary_are_named),
      cmocka_unit_test(real_targets_come_as_the_backend_has_them),
      cmocka_unit_test(features_of_sequences_have_a_mean_and_deviation_each),
      cmocka_unit_test(describe_does_not_open_unless_it_must),
      cmocka_unit_test(an_estimate_may_leave_out_the_vocabulary),
      cmocka_unit_test(opening_on_a_thread_ends_like_opening),
      cmocka_unit_test(a_failure_to_open_on_a_thread_is_returned_by_finish),
      cmocka_unit_test(dataset_that_changes_while_opened_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
