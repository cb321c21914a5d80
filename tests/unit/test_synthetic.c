/* Tests the synthetic dataset: its content, that it is reproducible, and that it can be learnt. */
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

static void describes_data_according_to_its_parameters(void **state)
{
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
  dataset_param given[3];
  dataset d = dataset_create("synthetic", with(given, image, 3, "test_count", "0"));
  assert_int_equal(d.ops->open(d.self, "test"), BRIM_ENOTSUP);
  assert_int_equal(d.ops->open(d.self, "valid"), BRIM_ENOTSUP);
  dataset_destroy(&d);
}

static void samples_repeat_and_differ_by_index_split_and_seed(void **state)
{
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

static void noise_has_the_configured_deviation_around_the_pattern(void **state)
{
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

/* The class means of the training samples predict the classes of test samples, for images and for plain features. */
static void nearest_class_mean_learns_it(void **state)
{
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
  static const double shape[][4] = {{1, 28, 28, 1}, {1, 2.5, 3}, {1, 0, 3}, {1, 60000, 60000}};
  static const size_t rank[] = {4, 3, 3, 3};
  static const char *const text[] = {
      "dataset.shape must have 3 numbers, [channels,rows,columns], 2, [length,features], or 1, [features]; it has 4",
      "dataset.shape: number 2 must be a whole number from 1 to 67108864, got 2.5",
      "dataset.shape: number 2 must be a whole number from 1 to 67108864, got 0",
      "dataset.shape makes 3600000000 values in a sample, but at most 67108864 are possible"};
  for (int i = 0; i < 4; i++) {
    dataset_param given[3];
    dataset d = dataset_create("synthetic", with(given, shape[i], rank[i], "seed", "1"));
    assert_int_equal(d.ops->open(d.self, "train"), BRIM_ECONFIG);
    assert_string_equal(brim_error_text(), text[i]);
    dataset_destroy(&d);
  }
}

#define FEATURES 60
#define CLIENTS 200

/* 20,000 samples with 60 features, of 200 clients. */
static dataset open_clients(const char *alpha, const char *beta)
{
  static const double features[] = {FEATURES};
  const dataset_param given[] = {{.key = "shape", .list = {(double *)features, 1}},
                                 {.key = "clients", .text = "200"},
                                 {.key = "train_count", .text = "20000"},
                                 {.key = "alpha", .text = alpha},
                                 {.key = "beta", .text = beta},
                                 {.key = NULL}};
  dataset d = dataset_create("synthetic", given);
  if (d.ops->open(d.self, "train") != BRIM_OK) fail_msg("%s", brim_error_text());
  return d;
}

static int64_t client_of(const dataset *d, const char *split, int64_t index)
{
  int64_t client = -1;
  if (d->ops->client(d->self, split, index, &client) != BRIM_OK) fail_msg("%s", brim_error_text());
  return client;
}

static void every_client_has_samples_that_follow_each_other(void **state)
{
  dataset d = open_clients("1", "1");
  int64_t last = 0;
  assert_int_equal(client_of(&d, "train", 0), 0);
  for (int64_t i = 1; i < 20000; i++) {
    const int64_t client = client_of(&d, "train", i);
    assert_true(client == last || client == last + 1);
    last = client;
  }
  assert_int_equal(last, CLIENTS - 1);
  assert_true(client_of(&d, "test", 0) <= client_of(&d, "test", 1023));
  dataset_destroy(&d);
}

/* Within a client, feature j has variance j^-1.2 around a mean of that client, and the means of client k have variance
 * 1 around a number B of that client, whose deviation is beta. */
static void inputs_of_clients_differ_as_leaf_says(void **state)
{
  static const double betas[] = {0, 3};
  for (int b = 0; b < 2; b++) {
    dataset d = open_clients("1", b == 0 ? "0" : "3");
    double within[FEATURES] = {0}, between = 0, centres = 0;
    int64_t degrees = 0, first = 0;
    for (int64_t k = 0; k < CLIENTS; k++) {
      double mean[FEATURES] = {0}, squares[FEATURES] = {0}, centre = 0;
      int64_t count = 0;
      for (; first < 20000 && client_of(&d, "train", first) == k; first++, count++) {
        float values[FEATURES];
        int32_t label;
        read_into(&d, "train", first, values, &label);
        for (int j = 0; j < FEATURES; j++) {
          mean[j] += (double)values[j];
          squares[j] += (double)values[j] * (double)values[j];
        }
      }
      for (int j = 0; j < FEATURES; j++) {
        mean[j] /= (double)count;
        within[j] += squares[j] - (double)count * mean[j] * mean[j];
      }
      for (int j = 20; j < FEATURES; j++) centre += mean[j] / 40; /* the last features, in which the noise is small */
      for (int j = 20; j < FEATURES; j++) between += (mean[j] - centre) * (mean[j] - centre) / 39 / CLIENTS;
      centres += centre * centre / CLIENTS;
      degrees += count - 1;
    }
    for (int j = 0; j < FEATURES; j++) {
      const double variance = within[j] / (double)degrees, wanted = pow(j + 1, -1.2);
      assert_true(fabs(variance / wanted - 1) < 0.05); /* five deviations: sqrt(2 / 20000) = 0.01 */
    }
    assert_true(fabs(between - 1) < 0.08);
    const double wanted = betas[b] * betas[b] + 1.0 / 40;
    assert_true(fabs(centres / wanted - 1) < 0.5); /* sqrt(2 / 200) = 0.1 */
    dataset_destroy(&d);
  }
}

/* Neighbours mostly belong to one client, which has inputs and a model of its own. So they have the same class more
 * often than other samples do, and all clients together have all classes. */
static void classes_differ_between_clients_and_follow_from_inputs(void **state)
{
  dataset d = open_clients("1", "1"), again = open_clients("1", "1");
  bool seen[10] = {false};
  int64_t alike = 0;
  for (int64_t i = 0; i < 20000; i += 7) {
    float values[FEATURES], same[FEATURES];
    int32_t label, other;
    read_into(&d, "train", i, values, &label);
    read_into(&again, "train", i, same, &other);
    assert_memory_equal(values, same, sizeof same);
    assert_int_equal(label, other);
    seen[label] = true;
    if (i + 1 < 20000) {
      read_into(&d, "train", i + 1, values, &other);
      alike += label == other;
    }
  }
  for (int k = 0; k < 10; k++) assert_true(seen[k]);
  assert_true(alike > 1000); /* of 2857 pairs; uniformly drawn classes would give 286 */
  dataset_destroy(&d);
  dataset_destroy(&again);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(describes_data_according_to_its_parameters),
      cmocka_unit_test(no_test_count_no_test_split),
      cmocka_unit_test(samples_repeat_and_differ_by_index_split_and_seed),
      cmocka_unit_test(noise_has_the_configured_deviation_around_the_pattern),
      cmocka_unit_test(nearest_class_mean_learns_it),
      cmocka_unit_test(impossible_shapes_are_refused),
      cmocka_unit_test(every_client_has_samples_that_follow_each_other),
      cmocka_unit_test(inputs_of_clients_differ_as_leaf_says),
      cmocka_unit_test(classes_differ_between_clients_and_follow_from_inputs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
