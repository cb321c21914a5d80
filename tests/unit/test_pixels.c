/* Pins what is decoded of pictures of every kind, against Pillow's pixels (tests/images/make_pictures.py), and what is
 * said of those that are damaged or too large. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <unistd.h>

#include "../../plugins/dataset/pixels/pixels.h"
#include "unit/picture_files.h"

static const pixels_options plain = {.pixels_max = 1000000, .orient = true};

static brim_status decode(const char *name, const pixels_options *options, uint8_t *pixels, size_t room,
                          brim_picture *picture)
{
  char path[4096];
  snprintf(path, sizeof path, "%s/images/pictures/%s", BRIM_TESTS_DIR, name);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  assert_true(fd >= 0);
  pixels_source source = pixels_source_file(fd);
  *picture = (brim_picture){.pixels = pixels, .room = room};
  const brim_status status = pixels_decode(&source, name, options, picture);
  close(fd);
  return status;
}

static void every_kind_has_the_pixels_that_pillow_finds(void **state)
{
  (void)state;
  static picture_lines lines;
  static uint8_t pixels[PICTURE_BYTES_MAX];
  int kinds = 0;
  picture_lines_open(&lines, "pixels.txt");
  while (picture_lines_next(&lines)) {
    char name[PICTURE_TITLE_ROOM];
    long long rows, columns;
    brim_picture picture;
    assert_int_equal(sscanf(lines.title, "%s %lld %lld", name, &rows, &columns), 3);
    if (decode(name, &plain, pixels, lines.count, &picture) != BRIM_OK) fail_msg("%s: %s", name, brim_error_text());
    assert_int_equal(picture.rows, rows);
    assert_int_equal(picture.columns, columns);
    for (size_t i = 0; i < lines.count; i++)
      if (pixels[i] != lines.bytes[i]) fail_msg("%s: byte %zu is %d, not %d", name, i, pixels[i], lines.bytes[i]);
    kinds++;
  }
  assert_int_equal(kinds, 26);
}

static void header_agrees_with_what_is_decoded(void **state)
{
  (void)state;
  uint8_t pixels[4096], turned[3000];
  brim_picture picture;
  const pixels_options as_it_lies = {.pixels_max = 1000000};
  assert_int_equal(decode("exif_6.jpg", &plain, turned, sizeof turned, &picture), BRIM_OK);
  assert_int_equal(picture.rows, 9);
  assert_int_equal(picture.columns, 13);
  assert_int_equal(decode("exif_6.jpg", &as_it_lies, pixels, sizeof pixels, &picture), BRIM_OK);
  assert_int_equal(picture.rows, 13);
  assert_int_equal(picture.columns, 9);
  /* what lies to the left is on top, its bottom to the left */
  for (int64_t y = 0; y < 13; y++)
    for (int64_t x = 0; x < 9; x++) assert_memory_equal(pixels + (y * 9 + x) * 3, turned + (x * 13 + 12 - y) * 3, 3);
}

static void smaller_pictures_are_decoded_where_they_are_enough(void **state)
{
  (void)state;
  uint8_t pixels[4096];
  brim_picture picture;
  const struct {
    int64_t needed, rows, columns;
  } cases[] = {{0, 31, 40}, {16, 31, 40}, {15, 16, 20}, {7, 8, 10}, {1, 4, 5}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const pixels_options options = {.pixels_max = 1000000, .side_needed = cases[i].needed};
    assert_int_equal(decode("rgb.jpg", &options, pixels, sizeof pixels, &picture), BRIM_OK);
    assert_int_equal(picture.rows, cases[i].rows);
    assert_int_equal(picture.columns, cases[i].columns);
  }
}

static void damaged_files_are_named_with_what_is_wrong(void **state)
{
  (void)state;
  static uint8_t pixels[200000];
  static const struct {
    const char *name, *text;
  } cases[] = {
      {"cut.jpg", "'cut.jpg' is damaged: it ends before the picture does"},
      {"cut_progressive.jpg", "'cut_progressive.jpg' is damaged: it ends before the picture does"},
      {"header.jpg", "'header.jpg' is damaged: it ends before the picture does"},
      {"damaged.jpg", "'damaged.jpg' is damaged: Corrupt JPEG data: premature end of data segment"},
      {"cut.png", "'cut.png' is damaged: it ends before the picture does"},
      {"damaged.png", "'damaged.png' is damaged: "},
      {"bomb.png", "'bomb.png' has 60000x60000 pixels, more than dataset.max_pixels=1000000 allows"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    brim_picture picture;
    assert_int_equal(decode(cases[i].name, &plain, pixels, sizeof pixels, &picture), BRIM_ELOAD);
    if (strncmp(brim_error_text(), cases[i].text, strlen(cases[i].text)) != 0) fail_msg("%s", brim_error_text());
  }
}

static void pictures_larger_than_their_room_are_refused(void **state)
{
  (void)state;
  uint8_t pixels[100];
  brim_picture picture;
  static const char *const names[] = {"rgb.jpg", "rgb.png"};
  for (size_t i = 0; i < 2; i++) {
    assert_int_equal(decode(names[i], &plain, pixels, sizeof pixels, &picture), BRIM_ELOAD);
    assert_non_null(strstr(brim_error_text(), "is larger than it was when it was opened"));
  }
}

static void other_bytes_are_no_pictures(void **state)
{
  (void)state;
  static const struct {
    const char *bytes, *text;
  } cases[] = {
      {"", "'x' is empty"}, {"GIF89a..", "'x' is neither a JPEG nor a PNG file"}, {"\xff\xd8", "'x' is damaged"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    pixels_source source = pixels_source_memory(cases[i].bytes, strlen(cases[i].bytes));
    pixels_header header;
    assert_int_equal(pixels_header_read(&source, "x", &plain, &header), BRIM_ELOAD);
    assert_non_null(strstr(brim_error_text(), cases[i].text));
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_kind_has_the_pixels_that_pillow_finds),
      cmocka_unit_test(header_agrees_with_what_is_decoded),
      cmocka_unit_test(smaller_pictures_are_decoded_where_they_are_enough),
      cmocka_unit_test(damaged_files_are_named_with_what_is_wrong),
      cmocka_unit_test(pictures_larger_than_their_room_are_refused),
      cmocka_unit_test(other_bytes_are_no_pictures),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
