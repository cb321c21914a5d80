/* Tests decoding of pictures of every kind, compared with Pillow's pixels (tests/images/make_pictures.py), and the
 * errors for damaged and too large ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../../plugins/dataset/pixels/pixels.h"
#include "scratch.h"
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

static void every_format_has_the_pixels_of_pillow(void **state)
{
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

static void header_agrees_with_the_decoded_picture(void **state)
{
  uint8_t pixels[4096], turned[3000];
  brim_picture picture;
  const pixels_options as_it_lies = {.pixels_max = 1000000};
  assert_int_equal(decode("exif_6.jpg", &plain, turned, sizeof turned, &picture), BRIM_OK);
  assert_int_equal(picture.rows, 9);
  assert_int_equal(picture.columns, 13);
  assert_int_equal(decode("exif_6.jpg", &as_it_lies, pixels, sizeof pixels, &picture), BRIM_OK);
  assert_int_equal(picture.rows, 13);
  assert_int_equal(picture.columns, 9);
  /* the left edge of the file's picture becomes the top edge */
  for (int64_t y = 0; y < 13; y++)
    for (int64_t x = 0; x < 9; x++) assert_memory_equal(pixels + (y * 9 + x) * 3, turned + (x * 13 + 12 - y) * 3, 3);
}

static void smaller_pictures_are_decoded_where_they_are_enough(void **state)
{
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

static void damaged_files_are_named_with_their_defect(void **state)
{
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
  uint8_t pixels[100];
  brim_picture picture;
  static const char *const names[] = {"rgb.jpg", "rgb.png"};
  for (size_t i = 0; i < 2; i++) {
    assert_int_equal(decode(names[i], &plain, pixels, sizeof pixels, &picture), BRIM_ELOAD);
    assert_non_null(strstr(brim_error_text(), "is larger than it was when it was opened"));
  }
}

static void other_bytes_are_not_pictures(void **state)
{
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

#define IGNORED_BYTES (64L << 20)

static size_t read_picture(const char *name, uint8_t *out, size_t room)
{
  char path[4096];
  snprintf(path, sizeof path, "%s/images/pictures/%s", BRIM_TESTS_DIR, name);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  const ssize_t n = read(fd, out, room);
  assert_true(fd >= 0 && n > 0 && (size_t)n < room);
  close(fd);
  return (size_t)n;
}

static void put(int fd, const void *bytes, size_t count, off_t at)
{
  assert_int_equal(pwrite(fd, bytes, count, at), (ssize_t)count);
}

/* Makes a picture with a chunk of IGNORED_BYTES that decoders ignore; most of the chunk is a hole in the file. */
static int png_with_a_large_chunk(void)
{
  static const uint8_t chunk[] = {IGNORED_BYTES >> 24, 0, 0, 0, 's', 'P', 'L', 'T', 'a', '\0', 8};
  static uint8_t picture[10000];
  const size_t bytes = read_picture("rgb.png", picture, sizeof picture), header = 8 + 25;
  const int fd = open(scratch("chunk.png"), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  put(fd, picture, header, 0);
  put(fd, chunk, sizeof chunk, (off_t)header);
  put(fd, picture + header, bytes - header, (off_t)header + 8 + IGNORED_BYTES + 4);
  return fd;
}

/* Makes a picture with many APP1 markers of the maximum length that are not EXIF, before one that is. */
static int jpeg_with_many_markers(void)
{
  static const uint8_t marker[] = {0xFF, 0xE1, 0xFF, 0xFF, 'E', 'x', 'i', 'f', 'x'};
  static uint8_t picture[10000];
  const size_t bytes = read_picture("exif_6.jpg", picture, sizeof picture);
  const int fd = open(scratch("markers.jpg"), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  off_t at = 2;
  put(fd, picture, 2, 0);
  for (; at < IGNORED_BYTES; at += 2 + 65535) put(fd, marker, sizeof marker, at);
  put(fd, picture + 2, bytes - 2, at);
  return fd;
}

static long peak_bytes(void)
{
  struct rusage used;
  assert_int_equal(getrusage(RUSAGE_SELF, &used), 0);
  return used.ru_maxrss * 1024;
}

static void chunks_other_than_pixels_take_no_memory(void **state)
{
  static uint8_t pixels[4096];
  const int fds[] = {png_with_a_large_chunk(), jpeg_with_many_markers()};
  for (int i = 0; i < 2; i++) {
    brim_picture picture = {.pixels = pixels, .room = sizeof pixels};
    pixels_source source = pixels_source_file(fds[i]);
    const long before = peak_bytes();
    assert_int_equal(lseek(fds[i], 0, SEEK_SET), 0);
    if (pixels_decode(&source, "large", &plain, &picture) != BRIM_OK) fail_msg("%s", brim_error_text());
    assert_true(peak_bytes() - before < IGNORED_BYTES / 4);
    close(fds[i]);
    assert_int_equal(picture.rows, i == 0 ? 31 : 9); /* rotated as EXIF says */
  }
}

/* A picture of 40x31 pixels has 5x4 blocks of brightness, and 3x2 of each colour. Macroblocks of 2x2 blocks round the
 * former up to 6x4. A block has 64 short integers. */
static void progressive_pictures_report_the_memory_for_decoding(void **state)
{
  static const struct {
    const char *name;
    uint64_t bytes;
  } cases[] = {{"progressive.jpg", (6 * 4 + 2 * 3 * 2) * 128}, {"rgb.jpg", 0}, {"rgb.png", 0}};
  static uint8_t bytes[10000];
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    pixels_source source = pixels_source_memory(bytes, read_picture(cases[i].name, bytes, sizeof bytes));
    pixels_header header;
    assert_int_equal(pixels_header_read(&source, cases[i].name, &plain, &header), BRIM_OK);
    assert_int_equal(header.decoding_bytes, cases[i].bytes);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_format_has_the_pixels_of_pillow),
      cmocka_unit_test(header_agrees_with_the_decoded_picture),
      cmocka_unit_test(smaller_pictures_are_decoded_where_they_are_enough),
      cmocka_unit_test(damaged_files_are_named_with_their_defect),
      cmocka_unit_test(pictures_larger_than_their_room_are_refused),
      cmocka_unit_test(other_bytes_are_not_pictures),
      cmocka_unit_test_setup_teardown(chunks_other_than_pixels_take_no_memory, scratch_setup, scratch_teardown),
      cmocka_unit_test(progressive_pictures_report_the_memory_for_decoding),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
