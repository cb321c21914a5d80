/* Tests the idx dataset: the files it reads, and its errors for others. Each test writes its files into its own folder
 * and loads the real plugin. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "unit/dataset_plugin.h"

#define FASHION "/usr/share/datasets/fashion-mnist"

static char folder[PATH_MAX]; /* folder of the running test; messages show it as DIR */

/* ---- Files ---- */

typedef struct bytes {
  unsigned char at[8192];
  size_t count;
} bytes;

/* Returns an IDX file with the values 0, 1, 2, ... (mod `modulus`) in row-major order. */
static bytes idx_bytes(unsigned type, int rank, const uint32_t *dim, size_t values, unsigned modulus)
{
  bytes b = {.at = {0, 0, (unsigned char)type, (unsigned char)rank}, .count = 4};
  for (int i = 0; i < rank; i++)
    for (int shift = 24; shift >= 0; shift -= 8) b.at[b.count++] = (unsigned char)(dim[i] >> shift);
  for (size_t i = 0; i < values; i++) b.at[b.count++] = (unsigned char)(i % modulus);
  return b;
}

static bytes gzip_bytes(const bytes *plain)
{
  bytes b = {.count = 0};
  z_stream z = {.next_in = (unsigned char *)plain->at, .avail_in = (uInt)plain->count};
  assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 16 + MAX_WBITS, 9, Z_DEFAULT_STRATEGY), Z_OK);
  z.next_out = b.at;
  z.avail_out = sizeof b.at;
  assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
  b.count = sizeof b.at - z.avail_out;
  deflateEnd(&z);
  return b;
}

static void put(const char *name, const bytes *b)
{
  char path[PATH_MAX + 64];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(b->at, 1, b->count, f), b->count);
  assert_int_equal(fclose(f), 0);
}

static bytes images(uint32_t count)
{
  const uint32_t dim[] = {count, 3, 4};
  return idx_bytes(8, 3, dim, (size_t)count * 12, 251);
}

static bytes labels(uint32_t count)
{
  return idx_bytes(8, 1, &count, count, 10);
}

static void put_good(const char *except)
{
  const bytes i = images(20), l = labels(20);
  if (strcmp(except, "images") != 0) put("train-images-idx3-ubyte", &i);
  if (strcmp(except, "labels") != 0) put("train-labels-idx1-ubyte", &l);
}

static int make_folder(void **state)
{
  const char *temporary = getenv("TMPDIR");
  snprintf(folder, sizeof folder, "%s/brim-test_idx.XXXXXX", temporary ? temporary : P_tmpdir);
  return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
  char command[2 * PATH_MAX + 32];
  snprintf(command, sizeof command, "chmod -R u+rwx '%s'; rm -r '%s'", folder, folder);
  return system(command);
}

/* ---- Checks ---- */

static dataset create_at(const char *path)
{
  const dataset_param given[] = {{.key = "path", .text = path}, {.key = NULL}};
  return dataset_create("idx", given);
}

/* Asserts that opening a split of the dataset in `path` fails with exactly this text, where DIR stands for the test's
 * folder. */
static void expect_error_at(const char *path, const char *split, brim_status expected, const char *text)
{
  dataset d = create_at(path);
  assert_int_equal(d.ops->open(d.self, split), expected);
  char shown[4096] = "";
  size_t used = 0;
  for (const char *s = brim_error_text(); *s && used + 4 < sizeof shown;) {
    const bool is_folder = strncmp(s, folder, strlen(folder)) == 0;
    used += (size_t)snprintf(shown + used, sizeof shown - used, is_folder ? "DIR" : "%c", *s);
    s += is_folder ? strlen(folder) : 1;
  }
  assert_string_equal(shown, text);
  dataset_destroy(&d);
}

static void expect_error(const char *text)
{
  expect_error_at(folder, "train", BRIM_ELOAD, text);
}

static void expect_images_error(const bytes *b, const char *text)
{
  put_good("images");
  put("train-images-idx3-ubyte", b);
  expect_error(text);
}

static void expect_labels_error(const bytes *b, const char *text)
{
  put_good("labels");
  put("train-labels-idx1-ubyte", b);
  expect_error(text);
}

/* Asserts that the training split opens and serves the samples of images(20) and labels(20). */
static void expect_good(void)
{
  dataset d = create_at(folder);
  assert_int_equal(d.ops->open(d.self, "train"), BRIM_OK);
  brim_dataset_info info;
  assert_int_equal(d.ops->describe(d.self, "train", &info), BRIM_OK);
  assert_int_equal(info.count, 20);
  assert_int_equal(info.dtype, BRIM_DTYPE_U8);
  assert_int_equal(info.classes, 10);
  for (int64_t i = 0; i < 20; i++) {
    unsigned char values[12];
    int32_t label = -1;
    assert_int_equal(d.ops->read(d.self, "train", i, values, &label), BRIM_OK);
    assert_int_equal(label, i % 10);
    for (int64_t k = 0; k < 12; k++) assert_int_equal(values[k], (i * 12 + k) % 251);
  }
  int32_t label;
  unsigned char values[12];
  assert_int_equal(d.ops->read(d.self, "train", 20, values, &label), BRIM_EINVAL);
  assert_int_equal(d.ops->read(d.self, "train", -1, values, &label), BRIM_EINVAL);
  dataset_destroy(&d);
}

/* ---- Valid files ---- */

static void plain_files_are_read(void **state)
{
  put_good("");
  expect_good();
}

static void gzip_files_are_read_with_and_without_suffix(void **state)
{
  const bytes i = images(20), l = labels(20), gi = gzip_bytes(&i), gl = gzip_bytes(&l);
  put("train-images-idx3-ubyte.gz", &gi);
  put("train-labels-idx1-ubyte", &gl); /* the content of a file decides its kind, not the name */
  expect_good();
}

static void dotted_names_are_found(void **state)
{
  const bytes i = images(20), l = labels(20), gl = gzip_bytes(&l);
  put("train-images.idx3-ubyte", &i);
  put("train-labels.idx1-ubyte.gz", &gl);
  expect_good();
}

static void gzip_members_after_each_other_are_one_file(void **state)
{
  const bytes i = images(20), l = labels(20);
  bytes head = i, tail = {.count = 0};
  head.count = 100;
  tail.count = i.count - 100;
  memcpy(tail.at, i.at + 100, tail.count);
  bytes both = gzip_bytes(&head);
  const bytes second = gzip_bytes(&tail);
  memcpy(both.at + both.count, second.at, second.count);
  both.count += second.count;
  put("train-images-idx3-ubyte.gz", &both);
  put("train-labels-idx1-ubyte", &l);
  expect_good();
}

static void rank_4_images_have_channels(void **state)
{
  const uint32_t dim[] = {5, 3, 4, 2};
  const bytes i = idx_bytes(8, 4, dim, 120, 251), l = labels(5);
  put("train-images-idx3-ubyte", &i);
  put("train-labels-idx1-ubyte", &l);
  dataset d = create_at(folder);
  assert_int_equal(d.ops->open(d.self, "train"), BRIM_OK);
  brim_dataset_info info;
  assert_int_equal(d.ops->describe(d.self, "train", &info), BRIM_OK);
  assert_int_equal(info.sample.rank, 3);
  assert_int_equal(info.sample.dim[0], 3);
  assert_int_equal(info.sample.dim[1], 4);
  assert_int_equal(info.sample.dim[2], 2);
  dataset_destroy(&d);
}

static void describe_needs_only_the_header_before_open(void **state)
{
  bytes i = images(20);
  bytes gi = gzip_bytes(&i);
  gi.count -= 6; /* opening the dataset would refuse this size */
  put("train-images-idx3-ubyte.gz", &gi);
  dataset d = create_at(folder);
  brim_dataset_info info;
  assert_int_equal(d.ops->describe(d.self, "train", &info), BRIM_OK);
  assert_int_equal(info.count, 20);
  assert_int_equal(info.sample.dim[0], 1);
  assert_int_equal(info.sample.dim[1], 3);
  assert_int_equal(info.sample.dim[2], 4);
  unsigned char values[12];
  int32_t label;
  assert_int_equal(d.ops->read(d.self, "train", 0, values, &label), BRIM_EINVAL);
  dataset_destroy(&d);
}

static void memory_of_a_split_is_known_before_it_is_open(void **state)
{
  const bytes i = images(20), l = labels(20), gi = gzip_bytes(&i);
  put("train-images-idx3-ubyte.gz", &gi);
  put("train-labels-idx1-ubyte", &l);
  dataset d = create_at(folder);
  for (int opened = 0; opened < 2; opened++) {
    uint64_t host_bytes = 0;
    if (opened) assert_int_equal(d.ops->open(d.self, "train"), BRIM_OK);
    assert_int_equal(d.ops->host_bytes(d.self, "train", &host_bytes), BRIM_OK);
    assert_int_equal(host_bytes, 20 * 3 * 4 + 20); /* images of 3x4, and their labels */
    assert_int_equal(d.ops->host_bytes(d.self, "other", &host_bytes), BRIM_ENOTSUP);
  }
  dataset_destroy(&d);
}

static void empty_dataset_is_left_to_the_core_to_refuse(void **state)
{
  const bytes i = images(0), l = labels(0), gi = gzip_bytes(&i);
  put("train-images-idx3-ubyte.gz", &gi);
  put("train-labels-idx1-ubyte", &l);
  dataset d = create_at(folder);
  assert_int_equal(d.ops->open(d.self, "train"), BRIM_OK);
  brim_dataset_info info;
  assert_int_equal(d.ops->describe(d.self, "train", &info), BRIM_OK);
  assert_int_equal(info.count, 0);
  dataset_destroy(&d);
}

static void unknown_and_unset_splits_are_not_supported(void **state)
{
  put_good("");
  expect_error_at(folder, "valid", BRIM_ENOTSUP, "the dataset has no split 'valid'");
  const dataset_param given[] = {{.key = "path", .text = folder}, {.key = "test_images", .text = ""}, {.key = NULL}};
  dataset d = dataset_create("idx", given);
  brim_dataset_info info;
  assert_int_equal(d.ops->open(d.self, "test"), BRIM_ENOTSUP);
  assert_int_equal(d.ops->describe(d.self, "test", &info), BRIM_ENOTSUP);
  dataset_destroy(&d);
}

static void fashion_mnist_opens(void **state)
{
  if (access(FASHION, R_OK) != 0) skip(); /* Debian: dataset-fashion-mnist */
  dataset d = create_at(FASHION);
  static const char *const split[] = {"train", "test"};
  static const int64_t count[] = {60000, 10000}, per_class[] = {6000, 1000};
  for (int s = 0; s < 2; s++) {
    assert_int_equal(d.ops->open(d.self, split[s]), BRIM_OK);
    brim_dataset_info info;
    assert_int_equal(d.ops->describe(d.self, split[s], &info), BRIM_OK);
    assert_int_equal(info.count, count[s]);
    assert_int_equal(info.sample.dim[1], 28);
    assert_int_equal(info.sample.dim[2], 28);
    int64_t seen[10] = {0};
    for (int64_t i = 0; i < info.count; i++) {
      unsigned char values[784];
      int32_t label = -1;
      assert_int_equal(d.ops->read(d.self, split[s], i, values, &label), BRIM_OK);
      assert_in_range(label, 0, 9);
      seen[label]++;
    }
    for (int c = 0; c < 10; c++) assert_int_equal(seen[c], per_class[s]);
  }
  dataset_destroy(&d);
}

/* ---- Damaged files ---- */

static void truncated_gzip_is_refused(void **state)
{
  const bytes i = images(20);
  bytes g = gzip_bytes(&i);
  const size_t whole = g.count;
  g.count = 120;
  expect_images_error(&g, "'DIR/train-images-idx3-ubyte' is truncated: the gzip data is incomplete at the file's end, "
                          "byte 120\ncopy or download the file again");
  g.count = whole - 1; /* all values are there, but not the trailer */
  char text[256];
  snprintf(text, sizeof text,
           "'DIR/train-images-idx3-ubyte' is truncated: the gzip data is incomplete at the file's end, "
           "byte %zu\ncopy or download the file again",
           whole - 1);
  expect_images_error(&g, text);
}

static void damaged_gzip_is_refused(void **state)
{
  const bytes i = images(20);
  bytes g = gzip_bytes(&i);
  char text[256];
  g.at[g.count - 7] ^= 1; /* checksum */
  snprintf(text, sizeof text,
           "'DIR/train-images-idx3-ubyte' is damaged: incorrect data check in the gzip data before "
           "byte %zu of the file\ncopy or download the file again",
           g.count - 4);
  expect_images_error(&g, text);
  g = gzip_bytes(&i);
  g.at[10] |= 6; /* block type 3 does not exist */
  expect_images_error(&g,
                      "'DIR/train-images-idx3-ubyte' is damaged: invalid block type in the gzip data before byte 11 "
                      "of the file\ncopy or download the file again");
}

static void bytes_after_gzip_are_refused(void **state)
{
  const bytes i = images(20);
  bytes g = gzip_bytes(&i);
  const size_t end = g.count;
  g.at[g.count++] = 'x';
  g.at[g.count++] = 'y';
  char text[256];
  snprintf(text, sizeof text,
           "'DIR/train-images-idx3-ubyte': the gzip data ends at byte %zu but the file has %zu bytes", end, end + 2);
  expect_images_error(&g, text);
}

static void wrong_magic_is_refused(void **state)
{
  bytes i = images(20);
  memcpy(i.at, "\x89PNG", 4);
  expect_images_error(&i,
                      "'DIR/train-images-idx3-ubyte' is not an IDX file: it starts with bytes 89 50 4e 47, expected "
                      "00 00 08 and the number of dimensions");
  i = images(20);
  i.at[2] = 0x0D;
  expect_images_error(&i,
                      "'DIR/train-images-idx3-ubyte' holds 32-bit floats (IDX type 0x0d); only unsigned bytes (0x08) "
                      "can be read");
  i.at[2] = 0x42;
  expect_images_error(&i, "'DIR/train-images-idx3-ubyte' holds an unknown type (IDX type 0x42); only unsigned bytes "
                          "(0x08) can be read");
  i.at[2] = 8;
  i.at[3] = 0;
  expect_images_error(&i, "'DIR/train-images-idx3-ubyte': the IDX header says 0 dimensions, expected 1 to 4");
}

static void wrong_ranks_are_refused(void **state)
{
  const bytes l = labels(20), i = images(20);
  expect_images_error(&l, "'DIR/train-images-idx3-ubyte' has 1 dimension; images have 3, [count, rows, columns], or 4, "
                          "[count, channels, rows, columns]");
  expect_labels_error(&i, "'DIR/train-labels-idx1-ubyte' has 3 dimensions; labels have 1, [count]");
}

static void images_of_no_size_are_refused(void **state)
{
  const uint32_t dim[] = {20, 28, 0};
  const bytes i = idx_bytes(8, 3, dim, 0, 1);
  expect_images_error(&i, "'DIR/train-images-idx3-ubyte': images of size 0 in dimension 2");
}

static void counts_that_disagree_are_refused(void **state)
{
  const bytes l = labels(19);
  expect_labels_error(&l, "'DIR/train-images-idx3-ubyte' holds 20 images but 'DIR/train-labels-idx1-ubyte' holds 19 "
                          "labels");
}

static void label_out_of_range_is_refused_with_its_place(void **state)
{
  bytes l = labels(20);
  l.at[8 + 13] = 10;
  const char *text = "'DIR/train-labels-idx1-ubyte': label 10 of sample 13 is out of range: with dataset.classes=10, "
                     "labels are 0 to 9";
  expect_labels_error(&l, text);
  l.at[8 + 15] = 200; /* the message names the first wrong label */
  expect_labels_error(&l, text);
}

static void file_of_another_length_is_refused(void **state)
{
  bytes i = images(20);
  i.count--;
  bytes g = gzip_bytes(&i);
  expect_images_error(&i,
                      "'DIR/train-images-idx3-ubyte' is shorter than its header says: 20x3x4 values make 256 bytes, "
                      "the file has 255");
  expect_images_error(&g,
                      "'DIR/train-images-idx3-ubyte' is shorter than its header says: 20x3x4 values make 240 bytes, "
                      "there are 239");
  i.count += 2;
  g = gzip_bytes(&i);
  expect_images_error(&i, "'DIR/train-images-idx3-ubyte' is longer than its header says: 20x3x4 values make 256 bytes, "
                          "the file has 257");
  expect_images_error(&g, "'DIR/train-images-idx3-ubyte' is longer than its header says: 20x3x4 values make 240 bytes, "
                          "there are more");
}

static void file_shorter_than_a_header_is_refused(void **state)
{
  bytes i = images(20);
  i.count = 0;
  expect_images_error(&i, "'DIR/train-images-idx3-ubyte' is too short for an IDX header: 0 bytes, expected at least 4");
  i.count = 9;
  expect_images_error(&i,
                      "'DIR/train-images-idx3-ubyte' is too short for an IDX header: 9 bytes, expected at least 16");
  const bytes g = gzip_bytes(&i);
  expect_images_error(&g, "'DIR/train-images-idx3-ubyte' is too short for an IDX header: 9 bytes after inflating, "
                          "expected at least 16");
}

/* A header alone never makes brim allocate memory. */
static void absurd_headers_are_refused_before_allocating(void **state)
{
  const uint32_t huge[] = {0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, large[] = {20, 65536, 65536};
  bytes i = idx_bytes(8, 4, huge, 240, 251);
  expect_images_error(&i, "'DIR/train-images-idx3-ubyte': the IDX header declares "
                          "4294967295x4294967295x4294967295x4294967295 values, and brim reads at most 2^48");
  i = idx_bytes(8, 3, large, 240, 251);
  expect_images_error(&i, "'DIR/train-images-idx3-ubyte' is shorter than its header says: 20x65536x65536 values make "
                          "85899345936 bytes, the file has 256");
  const bytes g = gzip_bytes(&i);
  char text[256];
  snprintf(text, sizeof text,
           "'DIR/train-images-idx3-ubyte': the IDX header says 20x65536x65536 values, which %zu bytes "
           "of gzip data cannot hold",
           g.count);
  expect_images_error(&g, text);
}

/* ---- Missing files ---- */

static void missing_file_error_lists_the_names_tried(void **state)
{
  put_good("labels");
  expect_error("no training labels in 'DIR'\nlooked for train-labels-idx1-ubyte, train-labels-idx1-ubyte.gz, "
               "train-labels.idx1-ubyte, train-labels.idx1-ubyte.gz\nset dataset.path to the folder that holds the "
               "files");
  expect_error_at(folder, "test", BRIM_ELOAD,
                  "no test images in 'DIR'\nlooked for t10k-images-idx3-ubyte, t10k-images-idx3-ubyte.gz, "
                  "t10k-images.idx3-ubyte, t10k-images.idx3-ubyte.gz\nset dataset.path to the folder that holds the "
                  "files");
}

static void missing_debian_folder_names_the_package(void **state)
{
  expect_error_at(FASHION "-not-there", "train", BRIM_ELOAD,
                  "no folder '" FASHION "-not-there'\nDebian's package dataset-fashion-mnist installs it");
}

static void unusable_folder_error_gives_the_reason(void **state)
{
  char path[PATH_MAX + 64], other[PATH_MAX + 64];
  snprintf(path, sizeof path, "%s/none", folder);
  expect_error_at(
      path, "train", BRIM_ELOAD,
      "cannot open the dataset's folder 'DIR/none': No such file or directory\nset dataset.path to the folder");
  const bytes l = labels(1);
  put("file", &l);
  snprintf(path, sizeof path, "%s/file", folder);
  expect_error_at(path, "train", BRIM_ELOAD,
                  "cannot open the dataset's folder 'DIR/file': Not a directory\nset dataset.path to the folder");
  snprintf(path, sizeof path, "%s/a", folder);
  snprintf(other, sizeof other, "%s/b", folder);
  assert_int_equal(symlink(path, other), 0);
  assert_int_equal(symlink(other, path), 0);
  expect_error_at(
      path, "train", BRIM_ELOAD,
      "cannot open the dataset's folder 'DIR/a': Too many levels of symbolic links\nset dataset.path to the folder");
}

/* Root may read everything, so under root the test calls open as user 65534 (nobody). */
static void expect_denied(dataset *d, const char *text)
{
  const bool root = geteuid() == 0;
  if (root) assert_int_equal(seteuid(65534), 0);
  const brim_status status = d->ops->open(d->self, "train");
  if (root) assert_int_equal(seteuid(0), 0);
  char expected[PATH_MAX + 128];
  snprintf(expected, sizeof expected, "cannot open %s'%s%s': Permission denied%s", text, folder,
           text[0] ? "" : "/train-images-idx3-ubyte", text[0] ? "\nset dataset.path to the folder" : "");
  assert_int_equal(status, BRIM_ELOAD);
  assert_string_equal(brim_error_text(), expected);
}

static void unreadable_files_and_folders_are_reported(void **state)
{
  char path[PATH_MAX + 64];
  put_good("");
  dataset d = create_at(folder);
  snprintf(path, sizeof path, "%s/train-images-idx3-ubyte", folder);
  assert_int_equal(chmod(folder, 0711), 0); /* search permission is enough, list permission is not needed */
  assert_int_equal(chmod(path, 0), 0);
  expect_denied(&d, "");
  assert_int_equal(chmod(path, 0644), 0);
  assert_int_equal(chmod(folder, 0), 0);
  expect_denied(&d, "");
  dataset_destroy(&d);
}

static void inaccessible_folder_is_reported(void **state)
{
  char inner[PATH_MAX], outer[PATH_MAX];
  memcpy(outer, folder, sizeof outer);
  assert_true(snprintf(inner, sizeof inner, "%.4000s/data", outer) > 0);
  assert_int_equal(mkdir(inner, 0755), 0);
  memcpy(folder, inner, sizeof folder);
  dataset d = create_at(inner);
  assert_int_equal(chmod(outer, 0), 0);
  expect_denied(&d, "the dataset's folder ");
  memcpy(folder, outer, sizeof folder);
  dataset_destroy(&d);
}

static void files_that_are_not_regular_are_refused(void **state)
{
  char path[PATH_MAX + 64];
  put_good("images");
  snprintf(path, sizeof path, "%s/train-images-idx3-ubyte", folder);
  assert_int_equal(mkdir(path, 0700), 0);
  expect_error("'DIR/train-images-idx3-ubyte' is not a regular file");
  assert_int_equal(rmdir(path), 0);
  assert_int_equal(mkfifo(path, 0600), 0); /* brim must not wait for its other end */
  expect_error("'DIR/train-images-idx3-ubyte' is not a regular file");
}

/* A failure leaves the instance unchanged: once the file is corrected, it opens. */
static void open_can_be_tried_again(void **state)
{
  put_good("images");
  bytes i = images(20);
  i.count--;
  put("train-images-idx3-ubyte", &i);
  dataset d = create_at(folder);
  assert_int_equal(d.ops->open(d.self, "train"), BRIM_ELOAD);
  i.count++;
  put("train-images-idx3-ubyte", &i);
  assert_int_equal(d.ops->open(d.self, "train"), BRIM_OK);
  assert_int_equal(d.ops->open(d.self, "train"), BRIM_OK);
  dataset_destroy(&d);
}

/* A single file is a split without labels, next to the dataset's own splits and other files. */
static void files_without_labels_are_splits_of_their_own(void **state)
{
  put_good("none");
  bytes i = images(3);
  put("mine", &i);
  const bytes packed = gzip_bytes(&i);
  put("packed", &packed);
  char path[2][PATH_MAX + 16];
  snprintf(path[0], sizeof path[0], "%s/mine", folder);
  snprintf(path[1], sizeof path[1], "%s/packed", folder);
  dataset d = create_at(folder);
  assert_int_equal(d.ops->open_file(d.self, path[0], "file 0"), BRIM_OK);
  assert_int_equal(d.ops->open_file(d.self, path[1], "file 1"), BRIM_OK);
  assert_int_equal(d.ops->open(d.self, "train"), BRIM_OK);
  for (int k = 0; k < 2; k++) {
    brim_dataset_info info;
    unsigned char mine[4096], train[4096];
    int32_t label = 0;
    assert_int_equal(d.ops->describe(d.self, k ? "file 1" : "file 0", &info), BRIM_OK);
    assert_int_equal(info.count, 3);
    assert_int_equal(d.ops->read(d.self, k ? "file 1" : "file 0", 2, mine, &label), BRIM_OK);
    assert_int_equal(label, -1);
    assert_int_equal(d.ops->read(d.self, "train", 2, train, &label), BRIM_OK);
    assert_memory_equal(mine, train, (size_t)brim_shape_count(&info.sample));
    assert_int_equal(d.ops->read(d.self, k ? "file 1" : "file 0", 3, mine, &label), BRIM_EINVAL);
  }
  assert_int_equal(d.ops->open_file(d.self, path[0], "file 0"), BRIM_EINVAL);
  dataset_destroy(&d);
}

static void a_file_that_holds_no_images_is_refused(void **state)
{
  const bytes l = labels(20);
  put("labels", &l);
  char path[PATH_MAX + 16];
  snprintf(path, sizeof path, "%s/labels", folder);
  dataset d = create_at(folder);
  assert_int_equal(d.ops->open_file(d.self, path, "file 0"), BRIM_ELOAD);
  assert_non_null(strstr(brim_error_text(), "a file of images is needed"));
  assert_int_equal(d.ops->open_file(d.self, "/nowhere/images", "file 0"), BRIM_ELOAD);
  assert_non_null(strstr(brim_error_text(), "cannot open '/nowhere/images': No such file or directory"));
  brim_dataset_info info;
  assert_int_equal(d.ops->describe(d.self, "file 0", &info), BRIM_ENOTSUP);
  dataset_destroy(&d);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(plain_files_are_read),
      TEST(gzip_files_are_read_with_and_without_suffix),
      TEST(dotted_names_are_found),
      TEST(gzip_members_after_each_other_are_one_file),
      TEST(rank_4_images_have_channels),
      TEST(describe_needs_only_the_header_before_open),
      TEST(memory_of_a_split_is_known_before_it_is_open),
      TEST(empty_dataset_is_left_to_the_core_to_refuse),
      TEST(unknown_and_unset_splits_are_not_supported),
      TEST(fashion_mnist_opens),
      TEST(truncated_gzip_is_refused),
      TEST(damaged_gzip_is_refused),
      TEST(bytes_after_gzip_are_refused),
      TEST(wrong_magic_is_refused),
      TEST(wrong_ranks_are_refused),
      TEST(images_of_no_size_are_refused),
      TEST(counts_that_disagree_are_refused),
      TEST(label_out_of_range_is_refused_with_its_place),
      TEST(file_of_another_length_is_refused),
      TEST(file_shorter_than_a_header_is_refused),
      TEST(absurd_headers_are_refused_before_allocating),
      TEST(missing_file_error_lists_the_names_tried),
      TEST(missing_debian_folder_names_the_package),
      TEST(unusable_folder_error_gives_the_reason),
      TEST(unreadable_files_and_folders_are_reported),
      TEST(inaccessible_folder_is_reported),
      TEST(files_that_are_not_regular_are_refused),
      TEST(open_can_be_tried_again),
      TEST(files_without_labels_are_splits_of_their_own),
      TEST(a_file_that_holds_no_images_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
