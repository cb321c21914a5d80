/* Tests mixup: the mixed samples and their shares, and that a sample does not depend on the thread or the micro-batch.
 * tests/cli/test_tasks.py compares training with PyTorch. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "data/data.h"
#include "data/mixup.h"
#include "unit/made_dataset.h"

#define COUNT 60
#define TRAIN 41 /* training samples */
#define ELEMENTS 40

typedef struct fixture {
  made dataset;
  brim_settings settings;
  brim_data data;
} fixture;

static void open_data(fixture *f)
{
  if (brim_data_open(&f->data, &made_plugin, &f->dataset, &f->settings) != BRIM_OK) fail_msg("%s", brim_error_text());
}

/* Opens images whose labels are their numbers, so that the shares of classes identify the mixed samples. */
static void prepare(fixture *f, double alpha)
{
  *f = (fixture){.dataset = made_images(COUNT, 2, 4, 5), .settings = {.seed = 3}};
  f->settings.augment = (brim_augment_settings){.flip = true, .crop_padding = 1, .mixup = alpha};
  f->settings.dataset.validation_fraction = 0.25;
  f->settings.training.num_train_samples = TRAIN;
  open_data(f);
}

static void read_sample(const fixture *f, enum brim_part part, int64_t epoch, int64_t i, uint32_t real, void *values,
                        void *label)
{
  void *scratch = malloc(f->data.scratch_bytes); /* the exact size, so that AddressSanitizer detects writes beyond it */
  if (brim_data_sample(&f->data, part, epoch, i, real, scratch, values, label) != BRIM_OK)
    fail_msg("%s", brim_error_text());
  free(scratch);
}

/* Returns the sample that `own` is mixed with; it is `own` itself if no other class has a share. */
static int64_t partner_of(const float *share, int64_t own)
{
  int64_t partner = own;
  for (int64_t k = 0; k < COUNT; k++)
    if (share[k] > 0 && k != own) partner = k;
  return partner;
}

static void partners_are_a_permutation_of_the_training_samples(void **state)
{
  fixture f;
  prepare(&f, 1);
  assert_int_equal(brim_data_label_bytes(&f.data, BRIM_PART_TRAIN, BRIM_DTYPE_F32), COUNT * sizeof(float));
  int64_t before[COUNT] = {0}, moved = 0;
  for (int64_t epoch = 0; epoch < 3; epoch++) {
    int own_times[COUNT] = {0}, partner_times[COUNT] = {0};
    for (int64_t i = 0; i < TRAIN; i++) {
      float values[ELEMENTS], share[COUNT], sum = 0;
      read_sample(&f, BRIM_PART_TRAIN, epoch, i, BRIM_DTYPE_F32, values, share);
      const int64_t own = brim_data_index(&f.data, BRIM_PART_TRAIN, epoch, i), partner = partner_of(share, own);
      for (int64_t k = 0; k < COUNT; k++) sum += share[k];
      assert_float_equal(sum, 1, 1e-6);
      own_times[own]++;
      partner_times[partner]++;
      moved += epoch > 0 && before[own] != partner;
      before[own] = partner;
    }
    assert_memory_equal(own_times, partner_times, sizeof own_times); /* the partner is not a validation sample */
  }
  assert_true(moved > TRAIN);
}

static void evaluation_uses_unmixed_samples(void **state)
{
  static const enum brim_part parts[] = {BRIM_PART_VALIDATION, BRIM_PART_TEST};
  fixture mixed, plain;
  prepare(&mixed, 0.4);
  prepare(&plain, 0);
  for (size_t p = 0; p < 2; p++) {
    assert_int_equal(brim_data_label_bytes(&mixed.data, parts[p], BRIM_DTYPE_F32), sizeof(int32_t));
    for (int64_t i = 0; i < mixed.data.count[parts[p]]; i++) {
      float a[ELEMENTS], b[ELEMENTS];
      int32_t label, expected;
      read_sample(&mixed, parts[p], 1, i, BRIM_DTYPE_F32, a, &label);
      read_sample(&plain, parts[p], 1, i, BRIM_DTYPE_F32, b, &expected);
      assert_int_equal(label, expected);
      assert_memory_equal(a, b, sizeof a);
    }
  }
}

/* Reads the values of sample `index` in an epoch without mixing. */
static void read_alone(const fixture *plain, int64_t epoch, int64_t index, float *values)
{
  int32_t label = -1;
  for (int64_t i = 0; i < TRAIN && label != index; i++)
    read_sample(plain, BRIM_PART_TRAIN, epoch, i, BRIM_DTYPE_F32, values, &label);
  assert_int_equal(label, index);
}

static void a_mixed_sample_combines_two_prepared_samples(void **state)
{
  fixture mixed, plain;
  prepare(&mixed, 0.7);
  prepare(&plain, 0);
  for (int64_t i = 0; i < TRAIN; i++) {
    float values[ELEMENTS], share[COUNT], own[ELEMENTS], partner[ELEMENTS];
    double wide[ELEMENTS], wide_share[COUNT];
    read_sample(&mixed, BRIM_PART_TRAIN, 2, i, BRIM_DTYPE_F32, values, share);
    read_sample(&mixed, BRIM_PART_TRAIN, 2, i, BRIM_DTYPE_F64, wide, wide_share);
    const int64_t index = brim_data_index(&mixed.data, BRIM_PART_TRAIN, 2, i);
    read_alone(&plain, 2, index, own);
    read_alone(&plain, 2, partner_of(share, index), partner);
    for (int64_t k = 0; k < ELEMENTS; k++) {
      assert_float_equal(values[k], share[index] * own[k] + (1 - share[index]) * partner[k], 1e-6);
      assert_true(wide[k] == (double)values[k]);
    }
    for (int64_t k = 0; k < COUNT; k++) assert_true(wide_share[k] == (double)share[k]);
  }
}

static void real_targets_are_mixed_too(void **state)
{
  fixture f = {.dataset = made_values(COUNT, 4, 10, 2), .settings = {.seed = 3, .augment = {.mixup = 0.4}}};
  open_data(&f);
  for (int64_t i = 0; i < COUNT; i++) {
    float values[ELEMENTS], target[2];
    read_sample(&f, BRIM_PART_TRAIN, 0, i, BRIM_DTYPE_F32, values, target);
    const int64_t own = brim_data_index(&f.data, BRIM_PART_TRAIN, 0, i);
    const float share = brim_mixup_share(0.4, brim_draw(&(brim_draws){3, 0, own}, BRIM_DRAW_MIXUP));
    /* The partner's number. */
    const double partner = ((double)target[0] - (double)share * (double)own) / (1 - (double)share);
    if (share < 0.99f) assert_float_equal(partner, round(partner), 0.01);
    assert_float_equal(target[1] - target[0], 0.25, 1e-4);
  }
}

static void tokens_are_refused(void **state)
{
  fixture f = {.dataset = made_tokens(COUNT, 6), .settings = {.seed = 3, .augment = {.mixup = 0.4}}};
  assert_int_equal(brim_data_open(&f.data, &made_plugin, &f.dataset, &f.settings), BRIM_ECONFIG);
  assert_string_equal(brim_error_text(), "'augment.mixup' mixes numbers, but the samples of dataset 'made' are tokens");
}

/* ---- Shares ---- */

#define SHARES 20000

static double arcsine(double x)
{
  return asin(sqrt(x)) / asin(1);
}
static double uniform(double x)
{
  return x;
}
static double parabola(double x)
{
  return x * x * (3 - 2 * x);
}

static int compare(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Kolmogorov's distance times sqrt(n) exceeds 2.7 once in a million times. */
static void check_distribution(double alpha, double (*below)(double))
{
  static double share[SHARES];
  double distance = 0;
  for (int64_t i = 0; i < SHARES; i++)
    share[i] = (double)brim_mixup_share(alpha, brim_draw(&(brim_draws){7, 1, i}, BRIM_DRAW_MIXUP));
  qsort(share, SHARES, sizeof *share, compare);
  for (int i = 0; i < SHARES; i++) {
    const double expected = below(share[i]);
    distance = fmax(distance, fmax(fabs(expected - (double)i / SHARES), fabs(expected - (double)(i + 1) / SHARES)));
  }
  assert_true(distance * sqrt(SHARES) < 2.7);
}

static void shares_follow_the_beta_distribution(void **state)
{
  check_distribution(0.5, arcsine);
  check_distribution(1, uniform);
  check_distribution(2, parabola);
}

static void shares_of_extreme_distributions_are_shares(void **state)
{
  int64_t ends = 0, middle = 0;
  for (int64_t i = 0; i < SHARES; i++) {
    const float far = brim_mixup_share(1e-4, brim_draw(&(brim_draws){7, 1, i}, BRIM_DRAW_MIXUP));
    const float near = brim_mixup_share(1000, brim_draw(&(brim_draws){7, 1, i}, BRIM_DRAW_MIXUP));
    assert_true(far >= 0 && far <= 1 && near >= 0 && near <= 1);
    ends += far < 0.001f || far > 0.999f;
    middle += near > 0.4f && near < 0.6f;
  }
  assert_true(ends > SHARES * 0.99 && middle == SHARES);
}

/* ---- The loader ---- */

typedef struct order {
  int64_t batch;
} order;

static brim_span next_span(void *context, int64_t sequence)
{
  const order *o = context;
  const int64_t first = sequence * o->batch, rest = TRAIN - first;
  if (rest <= 0) return (brim_span){BRIM_PART_TRAIN, 1, 0, 0};
  return (brim_span){BRIM_PART_TRAIN, 1, first, rest < o->batch ? rest : o->batch};
}

static void samples_are_the_same_for_any_threads_and_micro_batch(void **state)
{
  static const int32_t threads[] = {0, 1, 4};
  static const int64_t batches[] = {1, 3, TRAIN};
  fixture f;
  prepare(&f, 0.4);
  f.dataset.slow = true;
  for (size_t c = 0; c < 9; c++) {
    order spans = {batches[c % 3]};
    const brim_loader_options options = {.data = &f.data,
                                         .part = BRIM_PART_TRAIN,
                                         .batch_max = spans.batch,
                                         .real = BRIM_DTYPE_F32,
                                         .threads = threads[c / 3],
                                         .slots = 5,
                                         .next = next_span,
                                         .context = &spans};
    brim_loader *loader = NULL;
    const brim_batch *b = NULL;
    int64_t samples = 0;
    assert_int_equal(brim_loader_open(&options, &loader), BRIM_OK);
    for (;;) {
      assert_int_equal(brim_loader_next(loader, &b), BRIM_OK);
      if (!b) break;
      for (int64_t i = 0; i < b->span.count; i++, samples++) {
        float values[ELEMENTS], share[COUNT];
        read_sample(&f, BRIM_PART_TRAIN, 1, samples, BRIM_DTYPE_F32, values, share);
        assert_memory_equal((const float *)b->values + i * ELEMENTS, values, sizeof values);
        assert_memory_equal((const float *)b->labels + i * COUNT, share, sizeof share);
      }
    }
    assert_int_equal(samples, TRAIN);
    brim_loader_close(loader);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(partners_are_a_permutation_of_the_training_samples),
      cmocka_unit_test(evaluation_uses_unmixed_samples),
      cmocka_unit_test(a_mixed_sample_combines_two_prepared_samples),
      cmocka_unit_test(real_targets_are_mixed_too),
      cmocka_unit_test(tokens_are_refused),
      cmocka_unit_test(shares_follow_the_beta_distribution),
      cmocka_unit_test(shares_of_extreme_distributions_are_shares),
      cmocka_unit_test(samples_are_the_same_for_any_threads_and_micro_batch),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
