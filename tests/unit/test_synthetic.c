/* Pins the synthetic dataset: what it is, that it repeats, and that it can be learnt. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/dataset_plugin.h"

#define ELEMENTS 784

static const dataset_param *with(dataset_param *given, const double *shape, size_t rank, const char *key,
                                 const char *text)
{
  given[0] = (dataset_param){.key = "shape", .list = {shape, rank}};
  given[1] = (dataset_param){.key = key, .text = text};
  given[2] = (dataset_param){.key = NULL};
  return given;
}

static const double image[] = {1, 28, 28};

static void read_into(const dataset *d, const char *split, int64_t index, float *values, int32_t *label)
{
  if (d->ops->read(d->self, split, index, values, label) != BRIM_OK) fail_msg("%s", brim_error_text());
}

static void describes_what_its_parameters_say(void **state)
{
  (void)state;
  dataset_param given[3];
  dataset d = dataset_create("synthetic", with(given, image, 3, "train_count", "77"));
  brim_dataset_info info;
  assert_int_equal(d.ops->open(d.self, "train"), BRIM_OK);
  assert_int_equal(d.ops->describe(d.self, "train", &info), BRIM_OK);
  assert_int_equal(info.count, 77);
  assert_int_equal(info.classes, 10);
  assert_int_equal(info.dtype, BRIM_DTYPE_F32);
  assert_int_equal(brim_shape_count(&info.sample), ELEMENTS);
  assert_int_equal(d.ops->describe(d.self, "test", &info), BRIM_OK);
  assert_int_equal(info.count, 1024);
  float values[ELEMENTS];
  int32_t label;
  assert_int_equal(d.ops->read(d.self, "train", 77, values, &label), BRIM_EINVAL);
  dataset_destroy(&d);
}

static void no_test_count_no_test_split(void **state)
{
  (void)state;
  dataset_param given[3];
  dataset d = dataset_create("synthetic", with(given, image, 3, "test_count", "0"));
  assert_int_equal(d.ops->open(d.self, "test"), BRIM_ENOTSUP);
  assert_int_equal(d.ops->open(d.self, "valid"), BRIM_ENOTSUP);
  dataset_destroy(&d);
}

static void samples_repeat_and_differ_by_index_split_and_seed(void **state)
{
  (void)state;
  dataset_param given[3];
  dataset d = dataset_create("synthetic", with(given, image, 3, "seed", "1"));
  dataset e = dataset_create("synthetic", with(given, image, 3, "seed", "2"));
  float a[ELEMENTS], b[ELEMENTS];
  int32_t label, other;
  read_into(&d, "train", 3, a, &label);
  read_into(&d, "train", 3, b, &other);
  assert_memory_equal(a, b, sizeof a);
  assert_int_equal(label, other);
  read_into(&d, "train", 13, b, &other); /* the same class */
  assert_int_equal(label, other);
  assert_memory_not_equal(a, b, sizeof a);
  read_into(&d, "test", 3, b, &other);
  assert_memory_not_equal(a, b, sizeof a);
  read_into(&e, "train", 3, b, &other);
  assert_memory_not_equal(a, b, sizeof a);
  dataset_destroy(&d);
  dataset_destroy(&e);
}

static void noise_has_the_asked_deviation_around_the_pattern(void **state)
{
  (void)state;
  dataset_param given[3];
  dataset clean = dataset_create("synthetic", with(given, image, 3, "noise", "0"));
  dataset noisy = dataset_create("synthetic", with(given, image, 3, "noise", "2.5"));
  double sum = 0, squares = 0;
  enum { SAMPLES = 200 };
  for (int64_t i = 0; i < SAMPLES; i++) {
    float pattern[ELEMENTS], values[ELEMENTS];
    int32_t label;
    read_into(&clean, "train", i, pattern, &label);
    read_into(&noisy, "train", i, values, &label);
    for (int k = 0; k < ELEMENTS; k++) {
      assert_true(pattern[k] >= -1 && pattern[k] <= 1);
      sum += values[k] - pattern[k];
      squares += ((double)values[k] - pattern[k]) * ((double)values[k] - pattern[k]);
    }
  }
  const double n = (double)SAMPLES * ELEMENTS;
  assert_true(fabs(sum / n) < 5 * 2.5 / sqrt(n));
  assert_true(fabs(sqrt(squares / n) - 2.5) < 0.02);
  dataset_destroy(&clean);
  dataset_destroy(&noisy);
}

/* Class means of the training samples tell the classes of test samples, in images and in plain features. */
static void nearest_class_mean_learns_it(void **state)
{
  (void)state;
  const double features[] = {ELEMENTS};
  for (int rank = 1; rank <= 3; rank += 2) {
    dataset_param given[3];
    dataset d = dataset_create("synthetic", with(given, rank == 1 ? features : image, (size_t)rank, "classes", "10"));
    static float mean[10][ELEMENTS];
    memset(mean, 0, sizeof mean);
    float values[ELEMENTS];
    int32_t label;
    for (int64_t i = 0; i < 200; i++) {
      read_into(&d, "train", i, values, &label);
      for (int k = 0; k < ELEMENTS; k++) mean[label][k] += values[k] / 20;
    }
    int right = 0;
    for (int64_t i = 0; i < 200; i++) {
      read_into(&d, "test", i, values, &label);
      double least = INFINITY;
      int best = -1;
      for (int c = 0; c < 10; c++) {
        double distance = 0;
        for (int k = 0; k < ELEMENTS; k++) distance += (values[k] - mean[c][k]) * (values[k] - mean[c][k]);
        if (distance < least) {
          least = distance;
          best = c;
        }
      }
      right += best == label;
    }
    assert_true(right > 190);
    dataset_destroy(&d);
  }
}

static void impossible_shapes_are_refused(void **state)
{
  (void)state;
  static const double shape[][4] = {{1, 28, 28, 1}, {1, 2.5, 3}, {1, 0, 3}, {1, 60000, 60000}};
  static const size_t rank[] = {4, 3, 3, 3};
  static const char *const text[] = {
      "dataset.shape must have 3 numbers, [channels,rows,columns], 2, [length,features], or 1, [features]; it has 4",
      "dataset.shape: number 2 must be a whole number from 1 to 67108864, got 2.5",
      "dataset.shape: number 2 must be a whole number from 1 to 67108864, got 0",
      "dataset.shape makes 3600000000 values a sample, at most 67108864 are possible"};
  for (int i = 0; i < 4; i++) {
    dataset_param given[3];
    dataset d = dataset_create("synthetic", with(given, shape[i], rank[i], "seed", "1"));
    assert_int_equal(d.ops->open(d.self, "train"), BRIM_ECONFIG);
    assert_string_equal(brim_error_text(), text[i]);
    dataset_destroy(&d);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(describes_what_its_parameters_say),
      cmocka_unit_test(no_test_count_no_test_split),
      cmocka_unit_test(samples_repeat_and_differ_by_index_split_and_seed),
      cmocka_unit_test(noise_has_the_asked_deviation_around_the_pattern),
      cmocka_unit_test(nearest_class_mean_learns_it),
      cmocka_unit_test(impossible_shapes_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
