/* Tests the processing of pixels on their way to the network: resizing and colours compared with Pillow's bytes
 * (tests/images/make_pictures.py), the chain as in torchvision, and the random choices. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <unistd.h>

#include "../../plugins/dataset/pixels/pixels.h"
#include "builtin/jitter.h"
#include "data/data.h"
#include "data/resample.h"
#include "unit/made_dataset.h"
#include "unit/picture_files.h"

#define ROWS 31
#define COLUMNS 40

/* ---- Resizing ---- */

static uint8_t scene[ROWS * COLUMNS * 3], gray[ROWS * COLUMNS];

static int read_scene(void **state)
{
  const pixels_options options = {.pixels_max = 1000000};
  brim_picture picture = {.pixels = scene, .room = sizeof scene};
  const int fd = open(BRIM_TESTS_DIR "/images/pictures/rgb.png", O_RDONLY | O_CLOEXEC);
  pixels_source source = pixels_source_file(fd);
  const brim_status status = pixels_decode(&source, "rgb.png", &options, &picture);
  close(fd);
  for (int i = 0; i < ROWS * COLUMNS; i++)
    gray[i] = (uint8_t)((scene[3 * i] * 19595u + scene[3 * i + 1] * 38470u + scene[3 * i + 2] * 7471u + 0x8000u) >> 16);
  return status != BRIM_OK;
}

static void *scratch_of(const brim_resize *to, int64_t side, int64_t channels)
{
  void *scratch = malloc(brim_resample_bytes(side, 0, to->window_rows, to->window_columns, channels));
  assert_non_null(scratch);
  return scratch;
}

/* A picture is resized to fewer pixels than the result has, and the border is black. */
static void there_is_room_for_pictures_that_become_smaller_than_the_result(void **state)
{
  static uint8_t out[ROWS * ROWS * 3];
  static const char guard[64] = "nothing is written here";
  for (int64_t side = 8; side <= ROWS; side++) {
    const int64_t resized = side - 1;
    const size_t room = (size_t)brim_resample_bytes(side, resized, side, side, 3);
    const brim_pixels in = {scene, side, side, 3, COLUMNS * 3};
    const brim_resize to = {resized, resized, 0, 0, resized, resized, BRIM_FILTER_BICUBIC};
    char *scratch = malloc(room + sizeof guard);
    assert_non_null(scratch);
    memcpy(scratch + room, guard, sizeof guard);
    brim_resample(&in, &to, scratch, out, resized * 3);
    assert_memory_equal(scratch + room, guard, sizeof guard);
    free(scratch);
  }
}

static void resizing_makes_the_bytes_that_pillow_makes(void **state)
{
  static picture_lines lines;
  int cases = 0;
  picture_lines_open(&lines, "resize.txt");
  while (picture_lines_next(&lines)) {
    char filter[32];
    long long top, left, rows, columns, to_rows, to_columns;
    const int channels = strncmp(lines.title, "gray ", 5) == 0 ? 1 : 3;
    assert_int_equal(sscanf(lines.title + (channels == 1 ? 5 : 0), "%31s %lld %lld %lld %lld %lld %lld", filter, &top,
                            &left, &rows, &columns, &to_rows, &to_columns),
                     7);
    const uint8_t *from = (channels == 1 ? gray : scene) + (top * COLUMNS + left) * channels;
    const brim_pixels in = {from, rows, columns, channels, COLUMNS * channels};
    const brim_resize to = {to_rows,
                            to_columns,
                            0,
                            0,
                            to_rows,
                            to_columns,
                            filter[0] == 'n'   ? BRIM_FILTER_NEAREST
                            : filter[2] == 'l' ? BRIM_FILTER_BILINEAR
                                               : BRIM_FILTER_BICUBIC};
    uint8_t out[4000];
    void *scratch = scratch_of(&to, rows > columns ? rows : columns, channels);
    brim_resample(&in, &to, scratch, out, to_columns * channels);
    free(scratch);
    assert_int_equal(lines.count, to_rows * to_columns * channels);
    for (size_t i = 0; i < lines.count; i++)
      if (out[i] != lines.bytes[i]) fail_msg("%s: byte %zu is %d, not %d", lines.title, i, out[i], lines.bytes[i]);
    cases++;
  }
  assert_int_equal(cases, 52);
}

static void window_is_a_part_of_the_whole(void **state)
{
  const brim_pixels in = {scene, ROWS, COLUMNS, 3, COLUMNS * 3};
  for (int filter = BRIM_FILTER_NEAREST; filter <= BRIM_FILTER_BICUBIC; filter++) {
    uint8_t whole[20 * 50 * 3], part[7 * 9 * 3];
    brim_resize to = {20, 50, 0, 0, 20, 50, (enum brim_filter)filter};
    void *scratch = scratch_of(&to, 50, 3);
    brim_resample(&in, &to, scratch, whole, 50 * 3);
    for (int k = 0; k < 30; k++) {
      to.top = k % 14;
      to.left = k * 7 % 42;
      to.window_rows = 7;
      to.window_columns = 9;
      brim_resample(&in, &to, scratch, part, 9 * 3);
      for (int y = 0; y < 7; y++) assert_memory_equal(part + y * 27, whole + ((to.top + y) * 50 + to.left) * 3, 27);
    }
    free(scratch);
  }
}

typedef void (*jitter)(uint8_t *pixels, int64_t count, int channels, double factor);

static jitter jitter_of(const char *name)
{
  if (strcmp(name, "brightness") == 0) return brim_jitter_brightness;
  if (strcmp(name, "contrast") == 0) return brim_jitter_contrast;
  return strcmp(name, "saturation") == 0 ? brim_jitter_saturation : brim_jitter_hue;
}

/* Copies the corner of 16 rows and 20 columns of a picture that is COLUMNS wide. */
static void check_colours(const char *file, const uint8_t *picture, int channels)
{
  static picture_lines lines;
  const size_t row = 20 * (size_t)channels;
  int cases = 0;
  picture_lines_open(&lines, file);
  while (picture_lines_next(&lines)) {
    char what[32];
    double factor;
    uint8_t pixels[16 * 20 * 3];
    assert_int_equal(sscanf(lines.title, "%31s %lf", what, &factor), 2);
    for (size_t y = 0; y < 16; y++) memcpy(pixels + y * row, picture + y * COLUMNS * (size_t)channels, row);
    jitter_of(what)(pixels, 16 * 20, channels, factor);
    assert_int_equal(lines.count, 16 * row);
    for (size_t i = 0; i < lines.count; i++)
      if (pixels[i] != lines.bytes[i])
        fail_msg("%s, %s: byte %zu is %d, not %d", file, lines.title, i, pixels[i], lines.bytes[i]);
    cases++;
  }
  assert_int_equal(cases, 24);
}

static void colours_are_those_of_pillow(void **state)
{
  check_colours("colours.txt", scene, 3);
  check_colours("grays.txt", gray, 1);
}

/* ---- The chain ---- */

/* Pictures of different sizes: sample i has 20 + i rows and 50 - i columns; pixel (y, x) is (y, x, i). */
#define PICTURES 30

static int64_t rows_of(int64_t index)
{
  return 20 + index;
}
static int64_t columns_of(int64_t index)
{
  return 50 - index;
}

static brim_status any_describe(const void *self, const char *split, brim_dataset_info *out)
{
  (void)self;
  if (strcmp(split, "train") != 0) return brim_fail(BRIM_ENOTSUP, "no split '%s'", split);
  *out = (brim_dataset_info){.count = PICTURES,
                             .sample = {.rank = 3, .dim = {3, 0, 0}},
                             .dtype = BRIM_DTYPE_U8,
                             .classes = PICTURES,
                             .pixels_max = 35 * 35,
                             .side_max = 50};
  return BRIM_OK;
}

static brim_status any_open(void *self, const char *split)
{
  brim_dataset_info info;
  return any_describe(self, split, &info);
}

static brim_status any_read(const void *self, const char *split, int64_t index, void *values, void *label)
{
  (void)self;
  (void)split;
  brim_picture *p = values;
  p->rows = rows_of(index);
  p->columns = columns_of(index);
  assert_true((uint64_t)(p->rows * p->columns * 3) <= p->room);
  for (int64_t y = 0; y < p->rows; y++)
    for (int64_t x = 0; x < p->columns; x++)
      memcpy(p->pixels + (y * p->columns + x) * 3, (uint8_t[]){(uint8_t)y, (uint8_t)x, (uint8_t)index}, 3);
  *(int32_t *)label = (int32_t)index;
  return BRIM_OK;
}

static const brim_dataset_ops any_ops = {
    .size = sizeof(brim_dataset_ops), .open = any_open, .describe = any_describe, .read = any_read};
static const brim_plugin any_plugin = {
    .size = sizeof(brim_plugin), .kind = BRIM_DATASET, .id = "any", .help = "for tests", .ops = &any_ops};

static const double defaults_scale[] = {0.08, 1}, defaults_ratio[] = {0.75, 4.0 / 3}, erase_scale[] = {0.02, 0.33},
                    erase_ratio[] = {0.3, 3.3};

static brim_settings settings_of(const double *size, size_t count)
{
  brim_settings s = {.seed = 5};
  s.transform.size = (brim_list){size, count};
  s.transform.interpolation = BRIM_FILTER_BILINEAR;
  s.augment.crop_scale = (brim_list){defaults_scale, 2};
  s.augment.crop_ratio = (brim_list){defaults_ratio, 2};
  s.augment.erase_scale = (brim_list){erase_scale, 2};
  s.augment.erase_ratio = (brim_list){erase_ratio, 2};
  return s;
}

static brim_data open_any(const brim_settings *s)
{
  brim_data data;
  if (brim_data_open(&data, &any_plugin, &data, s) != BRIM_OK) fail_msg("%s", brim_error_text());
  return data;
}

/* Returns the values of a sample as bytes: 0..255. */
static int32_t sample_of(const brim_data *data, int64_t epoch, int64_t i, float *values)
{
  int32_t label = -1;
  void *scratch = malloc(data->scratch_bytes); /* the exact size, so that AddressSanitizer detects writes beyond it */
  if (brim_data_sample(data, BRIM_PART_TRAIN, epoch, i, BRIM_DTYPE_F32, scratch, values, &label) != BRIM_OK)
    fail_msg("%s", brim_error_text());
  free(scratch);
  for (int64_t k = 0; k < data->elements; k++) values[k] = roundf(values[k] * 255);
  return label;
}

static void shorter_side_is_resized_and_the_middle_cut_out(void **state)
{
  const double size[] = {12, 10};
  brim_settings s = settings_of(size, 2);
  s.transform.resize = 15;
  const brim_data data = open_any(&s);
  assert_int_equal(data.elements, 3 * 12 * 10);
  for (int64_t i = 0; i < PICTURES; i++) {
    float values[3 * 12 * 10];
    const int32_t label = sample_of(&data, 0, i, values);
    const int64_t rows = rows_of(label), columns = columns_of(label);
    const int64_t to_rows = rows <= columns ? 15 : 15 * rows / columns,
                  to_columns = rows <= columns ? 15 * columns / rows : 15;
    /* CenterCrop rounds halves to even */
    const int64_t top = llrint((double)(to_rows - 12) / 2), left = llrint((double)(to_columns - 10) / 2);
    for (int y = 1; y < 11; y++)
      for (int x = 1; x < 9; x++) {
        const double from_y = ((double)(top + y) + 0.5) * (double)rows / (double)to_rows - 0.5,
                     from_x = ((double)(left + x) + 0.5) * (double)columns / (double)to_columns - 0.5;
        assert_true(fabs(values[y * 10 + x] - from_y) <= 1);
        assert_true(fabs(values[120 + y * 10 + x] - from_x) <= 1);
        assert_true(values[240 + y * 10 + x] == (float)label);
      }
  }
}

static void a_crop_beyond_the_image_is_black(void **state)
{
  const double size[] = {40};
  brim_settings s = settings_of(size, 1);
  s.transform.resize = 20;
  const brim_data data = open_any(&s);
  float values[3 * 40 * 40];
  const int32_t label = sample_of(&data, 0, 3, values);
  const int64_t to_rows = rows_of(label) <= columns_of(label) ? 20 : 20 * rows_of(label) / columns_of(label);
  const int64_t top = (40 - to_rows) / 2;
  for (int y = 0; y < 40; y++)
    assert_true((values[3200 + y * 40 + 20] == (float)label) == (y >= top && y < top + to_rows));
}

/* The pixels of a random crop show its position, as long as they are not reduced. */
static void parts_have_areas_and_ratios_in_range(void **state)
{
  const double size[] = {64}, scale[] = {0.2, 0.7}, ratio[] = {0.5, 2};
  brim_settings s = settings_of(size, 1);
  s.transform.interpolation = BRIM_FILTER_NEAREST;
  s.augment.random_resized_crop = s.augment.flip = true;
  s.augment.crop_scale = (brim_list){scale, 2};
  s.augment.crop_ratio = (brim_list){ratio, 2};
  const brim_data data = open_any(&s);
  static float values[3 * 64 * 64];
  int mirrored = 0, wide = 0;
  double areas = 0;
  for (int64_t i = 0; i < 10 * PICTURES; i++) {
    const int32_t label = sample_of(&data, i / PICTURES, i % PICTURES, values);
    const float *y = values, *x = values + 4096;
    const double h = y[63 * 64] - y[0] + 1, w = fabsf(x[63] - x[0]) + 1;
    const double area = h * w / (double)(rows_of(label) * columns_of(label));
    assert_true(area > 0.2 * 0.9 && area < 0.7 * 1.1);
    assert_true(w / h > 0.5 * 0.9 && w / h < 2 * 1.1);
    mirrored += x[63] < x[0];
    wide += w > h;
    areas += area;
  }
  assert_true(mirrored > 110 && mirrored < 190);
  assert_true(wide > 110 && wide < 190);
  assert_true(areas / 300 > 0.40 && areas / 300 < 0.50);
}

/* As in torchvision, the crop is the largest part in the middle. */
static void middle_is_taken_where_no_part_fits(void **state)
{
  const double size[] = {64}, whole[] = {1, 1}, ratio[] = {2.9, 3};
  brim_settings s = settings_of(size, 1);
  s.transform.interpolation = BRIM_FILTER_NEAREST;
  s.augment.random_resized_crop = true;
  s.augment.crop_scale = (brim_list){whole, 2};
  s.augment.crop_ratio = (brim_list){ratio, 2};
  const brim_data data = open_any(&s);
  static float values[3 * 64 * 64];
  for (int64_t i = 0; i < PICTURES; i++) {
    const int32_t label = sample_of(&data, 0, i, values);
    const int64_t rows = llrint((double)columns_of(label) / 2.9), top = (rows_of(label) - rows) / 2;
    assert_true(values[0] == (float)top && values[63 * 64] == (float)(top + rows - 1));
    assert_true(values[4096] == 0 && values[4096 + 63] == (float)(columns_of(label) - 1));
  }
}

/* Samples of one size have the same values, whether or not they are processed as pixels. */
static void crop_and_flip_are_the_same_through_pixels(void **state)
{
  const double size[] = {6, 5};
  made m = made_images(100, 3, 6, 5);
  brim_settings plain = settings_of(NULL, 0), through = settings_of(size, 2);
  plain.augment.flip = through.augment.flip = true;
  plain.augment.crop_padding = through.augment.crop_padding = 2;
  brim_data a, b;
  assert_int_equal(brim_data_open(&a, &made_plugin, &m, &plain), BRIM_OK);
  assert_int_equal(brim_data_open(&b, &made_plugin, &m, &through), BRIM_OK);
  assert_false(a.transform.applies);
  assert_true(b.transform.applies);
  for (int64_t i = 0; i < 100; i++) {
    float x[90], y[90];
    assert_int_equal(sample_of(&a, 1, i, x), sample_of(&b, 1, i, y));
    for (int k = 0; k < 90; k++) assert_true(x[k] == y[k]); /* 0 may be -0 */
  }
}

static void colours_change_only_in_training(void **state)
{
  made m = made_images(100, 3, 6, 5);
  brim_settings s = settings_of(NULL, 0), none = s;
  s.augment.brightness = s.augment.contrast = s.augment.saturation = 0.4;
  s.augment.hue = 0.1;
  brim_data a, b;
  assert_int_equal(brim_data_open(&a, &made_plugin, &m, &s), BRIM_OK);
  assert_int_equal(brim_data_open(&b, &made_plugin, &m, &none), BRIM_OK);
  int changed = 0;
  uint8_t *scratch = malloc(a.scratch_bytes);
  for (int64_t i = 0; i < 17; i++) {
    float x[90], y[90];
    int32_t label;
    sample_of(&a, 1, i, x);
    sample_of(&b, 1, i, y);
    /* The same bits. NOLINTNEXTLINE(bugprone-suspicious-memory-comparison) */
    changed += memcmp(x, y, sizeof x) != 0;
    assert_int_equal(brim_data_sample(&a, BRIM_PART_TEST, 1, i, BRIM_DTYPE_F32, scratch, x, &label), BRIM_OK);
    assert_int_equal(brim_data_sample(&b, BRIM_PART_TEST, 1, i, BRIM_DTYPE_F32, scratch, y, &label), BRIM_OK);
    assert_memory_equal(x, y, sizeof x);
  }
  free(scratch);
  assert_int_equal(changed, 17);
}

static void rectangle_is_erased_in_some_samples(void **state)
{
  made m = made_images(200, 1, 20, 30);
  brim_settings s = settings_of(NULL, 0);
  const double one[] = {1}, mean[] = {-1}; /* so that only erased values are 0 */
  s.augment.erase_probability = 0.25;
  s.dataset.mean = (brim_list){mean, 1};
  s.dataset.std = (brim_list){one, 1};
  brim_data data;
  assert_int_equal(brim_data_open(&data, &made_plugin, &m, &s), BRIM_OK);
  int erased = 0;
  for (int64_t i = 0; i < 200; i++) {
    float values[600];
    int zeros = 0, top = 20, bottom = -1, left = 30, right = -1;
    sample_of(&data, 0, i, values);
    for (int k = 0; k < 600; k++) {
      if (values[k] != 0) continue;
      zeros++;
      const int y = k / 30, x = k % 30;
      top = y < top ? y : top;
      bottom = y > bottom ? y : bottom;
      left = x < left ? x : left;
      right = x > right ? x : right;
    }
    if (zeros == 0) continue;
    erased++;
    assert_int_equal(zeros, (bottom - top + 1) * (right - left + 1));
    assert_true(zeros >= 600 * 0.02 * 0.7 && zeros <= 600 * 0.33 * 1.2);
  }
  assert_true(erased > 30 && erased < 70);
}

/* The expected gray is 0.299, 0.587 and 0.114 of the means of red, green and blue. */
static void gray_has_the_means_of_its_colours(void **state)
{
  static const double mean[] = {0.458971}, std[] = {0.225609};
  made m = made_images(20, 1, 6, 5);
  brim_settings s = settings_of(NULL, 0);
  brim_data given, known;
  s.dataset.mean = (brim_list){mean, 1};
  s.dataset.std = (brim_list){std, 1};
  assert_int_equal(brim_data_open(&given, &made_plugin, &m, &s), BRIM_OK);
  brim_settings named = settings_of(NULL, 0);
  named.transform.normalize = BRIM_NORMALIZE_IMAGENET;
  assert_int_equal(brim_data_open(&known, &made_plugin, &m, &named), BRIM_OK);
  for (int64_t i = 0; i < 20; i++) {
    float x[30], y[30];
    sample_of(&given, 0, i, x);
    sample_of(&known, 0, i, y);
    for (int k = 0; k < 30; k++) assert_float_equal(x[k], y[k], 1e-5F);
  }
}

/* ---- Errors ---- */

static void refused(const brim_plugin *plugin, void *self, const brim_settings *s, const char *text)
{
  brim_data data;
  assert_int_equal(brim_data_open(&data, plugin, self, s), BRIM_ECONFIG);
  assert_string_equal(brim_error_text(), text);
}

static void impossible_settings_are_refused(void **state)
{
  const double size[] = {24}, wrong[] = {0.5}, turned[] = {0.5, 0.1}, three[] = {1, 2, 3};
  made images = made_images(20, 1, 6, 5), pairs = made_images(20, 2, 6, 5), floats = images;
  floats.train.dtype = floats.test.dtype = BRIM_DTYPE_F32;
  brim_settings s = settings_of(NULL, 0);
  refused(&any_plugin, &s, &s,
          "the pictures of dataset 'any' have different sizes: set the size that the model gets, for example "
          "transform.size=224");
  s.augment.hue = 0.1;
  refused(&made_plugin, &pairs, &s,
          "'augment.hue' needs 1 or 3 channels, but the images of dataset 'made' have 2\n"
          "set it and the other keys that change colours (augment.brightness, contrast, saturation, hue) to 0");
  refused(&made_plugin, &floats, &s,
          "'augment.hue' needs images of type U8, but the samples of dataset 'made' are of type F32");
  s = settings_of(wrong, 1);
  refused(&any_plugin, &s, &s, "'transform.size' must be whole numbers from 1 to 16384, got 0.5");
  s = settings_of(three, 3);
  refused(&any_plugin, &s, &s, "'transform.size' must have 1 number, or 2: rows and columns; got 3");
  s = settings_of(size, 1);
  s.augment.random_crop = s.augment.random_resized_crop = true;
  refused(&any_plugin, &s, &s,
          "'augment.random_resized_crop' and 'augment.random_crop' are two ways to crop: leave out one of them");
  s.augment.random_crop = false;
  s.augment.crop_scale = (brim_list){turned, 2};
  refused(&any_plugin, &s, &s,
          "'augment.crop_scale' must be a minimum and a maximum, above 0 and at most 1, got [0.5, 0.1]");
  s = settings_of(size, 1);
  s.augment.random_crop = true;
  s.transform.resize = 20;
  refused(&any_plugin, &s, &s,
          "a crop of transform.size, 24x24, may not fit into pictures with transform.resize=20 and "
          "augment.crop_padding=0");
  s = settings_of(size, 1);
  s.transform.normalize = BRIM_NORMALIZE_IMAGENET;
  refused(&made_plugin, &pairs, &s,
          "'transform.normalize=imagenet' is for images of type U8 with 3 channels, red, green and blue, or 1 of gray; "
          "samples of dataset 'made' are U8 with 2\nuse transform.normalize=dataset for the means of the dataset, or "
          "transform=none, which also leaves sizes as they are");
  s.dataset.mean = (brim_list){wrong, 1};
  refused(&any_plugin, &s, &s, "'transform.normalize=imagenet' and 'dataset.mean' are both set: leave out one of them");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(resizing_makes_the_bytes_that_pillow_makes),
      cmocka_unit_test(there_is_room_for_pictures_that_become_smaller_than_the_result),
      cmocka_unit_test(window_is_a_part_of_the_whole),
      cmocka_unit_test(colours_are_those_of_pillow),
      cmocka_unit_test(shorter_side_is_resized_and_the_middle_cut_out),
      cmocka_unit_test(a_crop_beyond_the_image_is_black),
      cmocka_unit_test(parts_have_areas_and_ratios_in_range),
      cmocka_unit_test(middle_is_taken_where_no_part_fits),
      cmocka_unit_test(crop_and_flip_are_the_same_through_pixels),
      cmocka_unit_test(colours_change_only_in_training),
      cmocka_unit_test(rectangle_is_erased_in_some_samples),
      cmocka_unit_test(gray_has_the_means_of_its_colours),
      cmocka_unit_test(impossible_settings_are_refused),
  };
  return cmocka_run_group_tests(tests, read_scene, NULL);
}
