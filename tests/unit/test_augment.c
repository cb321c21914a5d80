/* Compares RandAugment, Gaussian blur and CutMix byte by byte with Pillow and NumPy on the same random images (see
 * golden/make_augment.py). Also tests that augmentations set by keys equal the same entries in a list. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "builtin/builtin.h"
#include "data/data.h"
#include "unit/made_dataset.h"

#define CASES 400
#define BYTES_MAX (3 * 40 * 40 * 4)

static uint64_t digest(const void *data, size_t bytes)
{
  uint64_t out = 0xCBF29CE484222325u;
  for (size_t i = 0; i < bytes; i++) out = (out ^ ((const uint8_t *)data)[i]) * 0x100000001B3u;
  return out;
}

static brim_philox number(uint32_t what, int64_t i)
{
  return brim_philox4x32(what, (uint32_t)i, 1, 0, 1, 2);
}

static brim_augment_sample sample_of(int64_t i, void *values, void *scratch)
{
  const brim_philox x = number(0, i);
  brim_augment_sample s = {.values = values, .scratch = scratch, .share = 1, .block = BRIM_AUGMENT_BLOCKS};
  s.shape = (brim_shape){3, {x.v[0] & 1 ? 1 : 3, 3 + brim_draw_below(x.v[1], 38), 3 + brim_draw_below(x.v[2], 38)}};
  s.seed = 5;
  s.epoch = 2;
  s.index = i;
  return s;
}

static void draw_pixels(const brim_augment_sample *s)
{
  const brim_philox x = number(1, s->index);
  const uint32_t low = (uint32_t)brim_draw_below(x.v[0], 200), width = 1 + (uint32_t)brim_draw_below(x.v[1], 256 - low);
  for (int64_t k = 0; k < brim_shape_count(&s->shape); k++)
    ((uint8_t *)s->values)[k] =
        (uint8_t)(low + brim_philox4x32((uint32_t)k, (uint32_t)s->index, 0, 0, 1, 2).v[0] % width);
}

static void apply(const brim_plugin *plugin, const void *params, brim_augment_sample *s, const char *word,
                  size_t element)
{
  const brim_augment_ops *ops = plugin->ops;
  assert_true(!ops->scratch_bytes || ops->scratch_bytes(params, &s->shape) <= BYTES_MAX);
  ops->apply(params, s);
  const uint64_t got = digest(s->values, (size_t)brim_shape_count(&s->shape) * element);
  if (got != strtoull(word, NULL, 16)) fail_msg("%s, case %" PRId64, plugin->id, s->index);
}

/* The layout of the parameters, as in the tables. */
typedef struct randaugment {
  int64_t operations, magnitude, bins;
} randaugment;
typedef struct blur {
  double probability;
  int64_t kernel_size;
  double sigma_min, sigma_max;
} blur;

static void results_equal_those_of_pillow_and_numpy(void **state)
{
  static _Alignas(64) uint8_t values[BYTES_MAX], scratch[BYTES_MAX], partner[BYTES_MAX];
  FILE *file = fopen(BRIM_TESTS_DIR "/golden/augment.txt", "r");
  char line[200], word[40];
  assert_non_null(file);
  for (int64_t i = 0; i < CASES; i++) {
    brim_augment_sample s = sample_of(i, values, scratch);
    randaugment r;
    blur b = {.probability = 1};
    brim_mixup m;
    double share;
    draw_pixels(&s);
    assert_non_null(fgets(line, sizeof line, file));
    assert_int_equal(sscanf(line, "randaugment %" SCNd64 " %" SCNd64 " %" SCNd64 " %39s", &r.operations, &r.magnitude,
                            &r.bins, word),
                     4);
    apply(&brim_augment_randaugment, &r, &s, word, 1);
    draw_pixels(&s);
    assert_non_null(fgets(line, sizeof line, file));
    assert_int_equal(
        sscanf(line, "gaussian_blur %" SCNd64 " %lf %lf %39s", &b.kernel_size, &b.sigma_min, &b.sigma_max, word), 4);
    apply(&brim_augment_gaussian_blur, &b, &s, word, 1);
    for (int64_t k = 0; k < brim_shape_count(&s.shape); k++) {
      ((float *)(void *)values)[k] = (float)k;
      ((float *)(void *)partner)[k] = -(float)k - 1;
    }
    s.partner = partner;
    assert_non_null(fgets(line, sizeof line, file));
    assert_int_equal(sscanf(line, "cutmix %lf %lf %39s", &m.alpha, &share, word), 3);
    apply(&brim_augment_cutmix, &m, &s, word, sizeof(float));
    assert_true((double)s.share == share);
  }
  fclose(file);
}

/* ---- a list ---- */

#define COUNT 40
#define ELEMENTS (3 * 8 * 9)

static void read_all(const brim_settings *settings, float *values, float *share)
{
  made m = made_images(COUNT, 3, 8, 9);
  brim_data data;
  if (brim_data_open(&data, &made_plugin, &m, settings) != BRIM_OK) fail_msg("%s", brim_error_text());
  assert_true(brim_data_is_mixed(&data, BRIM_PART_TRAIN));
  void *scratch = malloc(data.scratch_bytes); /* the exact size, so that AddressSanitizer detects writes beyond it */
  for (int64_t i = 0; i < COUNT; i++)
    if (brim_data_sample(&data, BRIM_PART_TRAIN, 1, i, BRIM_DTYPE_F32, scratch, values + i * ELEMENTS,
                         share + i * COUNT) != BRIM_OK)
      fail_msg("%s", brim_error_text());
  free(scratch);
}

/* A later entry in the list does not change the random numbers of the others, and labels get the shares of the mixed
 * samples. */
static void a_list_is_applied_in_its_order(void **state)
{
  static float mixed[COUNT * ELEMENTS], both[COUNT * ELEMENTS], share[COUNT * COUNT], other[COUNT * COUNT];
  const randaugment r = {2, 20, 31};
  const brim_mixup m = {1};
  const brim_augment_choice list[] = {{&brim_augment_cutmix, &m}, {&brim_augment_randaugment, &r}};
  brim_settings s = {.seed = 3, .augment = {.chosen = list, .chosen_count = 1}};
  read_all(&s, mixed, share);
  s.augment.chosen_count = 2;
  read_all(&s, both, other);
  assert_memory_equal(share, other, sizeof share);
  assert_memory_not_equal(mixed, both, sizeof mixed);
  for (int64_t i = 0; i < COUNT; i++) {
    float sum = 0;
    for (int64_t k = 0; k < COUNT; k++) sum += share[i * COUNT + k];
    assert_float_equal(sum, 1, 1e-6);
  }
}

static void settings_that_do_not_fit_the_samples_are_refused(void **state)
{
  const randaugment r = {2, 9, 31};
  const brim_mixup m = {1};
  const brim_augment_choice list[] = {{&brim_augment_randaugment, &r}, {&brim_augment_cutmix, &m}};
  brim_settings s = {.augment = {.chosen = list, .chosen_count = 1}};
  made values = made_values(COUNT, 4, 10, 2), images = made_images(COUNT, 2, 8, 9), tokens = made_tokens(COUNT, 6);
  brim_data data;
  assert_int_equal(brim_data_open(&data, &made_plugin, &values, &s), BRIM_ECONFIG);
  assert_non_null(strstr(brim_error_text(), "augmentation 'randaugment' needs images"));
  assert_int_equal(brim_data_open(&data, &made_plugin, &images, &s), BRIM_ECONFIG);
  assert_non_null(strstr(brim_error_text(), "needs 1 or 3 channels, but the images of dataset 'made' have 2"));
  assert_int_equal(brim_data_open(&data, &made_plugin, &tokens, &s), BRIM_ECONFIG);
  assert_non_null(strstr(brim_error_text(), "the samples of dataset 'made' are tokens"));
  images = made_images(COUNT, 3, 8, 9);
  s.augment.chosen_count = 2;
  s.augment.mixup = 0.2;
  assert_int_equal(brim_data_open(&data, &made_plugin, &images, &s), BRIM_ECONFIG);
  assert_string_equal(brim_error_text(), "'augment.mixup' and 'cutmix' both mix samples: leave out one of them");
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(results_equal_those_of_pillow_and_numpy),
                                     cmocka_unit_test(a_list_is_applied_in_its_order),
                                     cmocka_unit_test(settings_that_do_not_fit_the_samples_are_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
