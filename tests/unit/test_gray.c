/* Tests dataset.gray of the picture data sets: one channel, with the bytes of Pillow's mode L. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "scratch.h"
#include "unit/dataset_plugin.h"

/* Two classes: colours/1.png and gray/1.png. */
static int make_folder(void **state)
{
  static const char *const class[] = {"colours", "gray"}, *const picture[] = {"rgb.png", "gray.png"};
  bool made = scratch_setup(state) == 0;
  for (int i = 0; made && i < 2; i++) {
    char from[PATH_MAX];
    made = mkdir(scratch("%s", class[i]), 0777) == 0;
    snprintf(from, sizeof from, "%s/images/pictures/%s", BRIM_TESTS_DIR, picture[i]);
    made = made && symlink(from, scratch("%s/1.png", class[i])) == 0;
  }
  return made ? 0 : -1;
}

/* Reads the picture of a class, into the caller's memory. */
static brim_picture read_picture(const char *gray, int64_t class, int64_t *channels)
{
  const dataset_param given[] = {{.key = "path", .text = scratch_root}, {.key = "gray", .text = gray}, {.key = NULL}};
  dataset d = dataset_create("image_folder", given);
  brim_dataset_info info;
  int32_t label = -1;
  if (d.ops->open(d.self, "train") != BRIM_OK) fail_msg("%s", brim_error_text());
  assert_int_equal(d.ops->describe(d.self, "train", &info), BRIM_OK);
  *channels = info.sample.dim[0];
  brim_picture p = {.room = (uint64_t)(info.pixels_max * *channels)};
  p.pixels = malloc(p.room);
  assert_non_null(p.pixels);
  assert_int_equal(d.ops->read(d.self, "train", class, &p, &label), BRIM_OK);
  assert_int_equal(label, class);
  dataset_destroy(&d);
  return p;
}

static void skip_without_pictures(void)
{
  if (access(BRIM_BUILD_DIR "/lib/brim/plugins/dataset/image_folder.so", F_OK) != 0) skip();
}

static void colours_become_their_luma(void **state)
{
  skip_without_pictures();
  int64_t three, one;
  const brim_picture colours = read_picture("false", 0, &three), gray = read_picture("true", 0, &one);
  assert_int_equal(three, 3);
  assert_int_equal(one, 1);
  assert_int_equal(gray.rows, colours.rows);
  assert_int_equal(gray.columns, colours.columns);
  for (int64_t i = 0; i < gray.rows * gray.columns; i++) {
    const uint8_t *c = colours.pixels + 3 * i;
    const double luma = 0.299 * c[0] + 0.587 * c[1] + 0.114 * c[2];
    assert_true(gray.pixels[i] > luma - 0.51 && gray.pixels[i] < luma + 0.51);
  }
  free(colours.pixels);
  free(gray.pixels);
}

static void gray_stays_unchanged(void **state)
{
  skip_without_pictures();
  int64_t channels;
  const brim_picture colours = read_picture("false", 1, &channels), gray = read_picture("true", 1, &channels);
  for (int64_t i = 0; i < gray.rows * gray.columns; i++) assert_int_equal(gray.pixels[i], colours.pixels[3 * i]);
  free(colours.pixels);
  free(gray.pixels);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(colours_become_their_luma, make_folder, scratch_teardown),
      cmocka_unit_test_setup_teardown(gray_stays_unchanged, make_folder, scratch_teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
