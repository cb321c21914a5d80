/* Tests how CSV files become samples, and the errors for files that cannot. Each test writes its files into its own
 * folder and loads the real plugin. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "scratch.h"
#include "unit/dataset_plugin.h"

#define GIVEN_MAX 12
#define VALUES_MAX 64

static void put_bytes(const char *name, const char *bytes, size_t count)
{
  scratch_write(scratch("%s", name), bytes, count);
}

static void put(const char *name, const char *text)
{
  put_bytes(name, text, strlen(text));
}

/* ---- checks ---- */

/* Opens the test's folder as a dataset, from "key=value" words; the names in a list are separated by blanks. By default
 * there is no test split and no standardisation. */
static dataset create(const char *const *words)
{
  static char text[GIVEN_MAX][256];
  static const char *name[GIVEN_MAX][8];
  dataset_param given[GIVEN_MAX + 4] = {
      {.key = "path", .text = scratch_root}, {.key = "test", .text = ""}, {.key = "standardise", .text = "false"}};
  size_t n = 3;
  for (size_t i = 0; words[i]; i++) {
    snprintf(text[i], sizeof text[i], "%s", words[i]);
    char *value = strchr(text[i], '=');
    *value++ = '\0';
    size_t at = 0, names = 0;
    while (at < n && strcmp(given[at].key, text[i]) != 0) at++;
    given[at] = (dataset_param){.key = text[i], .text = value};
    if (at == n) n++;
    if (strcmp(text[i], "features") != 0 && strcmp(text[i], "targets") != 0) continue;
    for (char *s = value; *s; names++) {
      name[i][names] = s;
      s += strcspn(s, " ");
      if (*s) *s++ = '\0';
    }
    given[at].names = (brim_names){name[i], names};
  }
  given[n].key = NULL;
  return dataset_create("csv", given);
}
#define CREATE(...) create((const char *const[]){__VA_ARGS__, NULL})

static void open_split(dataset *d, const char *split, brim_dataset_info *info)
{
  if (d->ops->open(d->self, split) != BRIM_OK) fail_msg("%s", brim_error_text());
  assert_int_equal(d->ops->describe(d->self, split, info), BRIM_OK);
}

/* Asserts a sample's values, and its class or first target. */
static void expect_sample(const dataset *d, const char *split, int64_t index, const float *values, size_t count,
                          double answer)
{
  brim_dataset_info info;
  float got[VALUES_MAX], target[8] = {0};
  int32_t label = -7;
  assert_int_equal(d->ops->describe(d->self, split, &info), BRIM_OK);
  assert_int_equal(brim_shape_count(&info.sample), count);
  const bool is_values = info.task == BRIM_TASK_VALUES;
  void *to = is_values ? (void *)target : (void *)&label;
  if (d->ops->read(d->self, split, index, got, to) != BRIM_OK) fail_msg("%s", brim_error_text());
  for (size_t i = 0; i < count; i++)
    if (fabsf(got[i] - values[i]) > 1e-6f) fail_msg("value %zu is %g, not %g", i, (double)got[i], (double)values[i]);
  const double is = is_values ? (double)target[0] : (double)label;
  if (fabs(is - answer) > 1e-6) fail_msg("answered with %g, not %g", is, answer);
}
#define EXPECT_SAMPLE(d, split, index, answer, ...)                                                                    \
  expect_sample(d, split, index, (const float[]){__VA_ARGS__}, sizeof((const float[]){__VA_ARGS__}) / sizeof(float),   \
                answer)

/* Asserts that opening the training split fails with exactly this text, where DIR stands for the test's folder. */
static void expect_error(dataset d, brim_status expected, const char *text)
{
  assert_int_equal(d.ops->open(d.self, "train"), expected);
  char shown[4096] = "";
  size_t used = 0;
  for (const char *s = brim_error_text(); *s && used + 4 < sizeof shown;) {
    const bool is_folder = strncmp(s, scratch_root, strlen(scratch_root)) == 0;
    used += (size_t)snprintf(shown + used, sizeof shown - used, is_folder ? "DIR" : "%c", *s);
    s += is_folder ? strlen(scratch_root) : 1;
  }
  assert_string_equal(shown, text);
  dataset_destroy(&d);
}

static void expect_file_error(const char *file, const char *text)
{
  put("train.csv", file);
  expect_error(CREATE("label=k"), BRIM_ELOAD, text);
}

/* ---- Rows ---- */

static void class_names_are_sorted(void **state)
{
  brim_dataset_info info;
  put("train.csv", "a,k,b\n1,rose,2\n3,lily,4\n5,rose,6\n");
  dataset d = CREATE("label=k");
  assert_int_equal(d.ops->describe(d.self, "train", &info), BRIM_EINVAL); /* not open yet */
  open_split(&d, "train", &info);
  assert_int_equal(info.count, 3);
  assert_int_equal(info.task, BRIM_TASK_CLASS);
  assert_int_equal(info.classes, 2);
  assert_string_equal(info.class_names[0], "lily");
  assert_string_equal(info.class_names[1], "rose");
  EXPECT_SAMPLE(&d, "train", 0, 1, 1, 2);
  EXPECT_SAMPLE(&d, "train", 1, 0, 3, 4);
  assert_int_equal(d.ops->open(d.self, "test"), BRIM_ENOTSUP);
  assert_int_equal(d.ops->read(d.self, "train", 3, (float[2]){0}, &(int32_t){0}), BRIM_EINVAL);
  dataset_destroy(&d);
}

static void classes_that_are_numbers_are_sorted_as_such(void **state)
{
  brim_dataset_info info;
  put("train.csv", "a,k\n1,10\n2,9\n3,-1\n");
  dataset d = CREATE("label=k");
  open_split(&d, "train", &info);
  assert_string_equal(info.class_names[0], "-1");
  assert_string_equal(info.class_names[1], "9");
  EXPECT_SAMPLE(&d, "train", 0, 2, 1);
  dataset_destroy(&d);
}

static void the_table_of_class_names_grows(void **state)
{
  static char text[64 * 1024];
  brim_dataset_info info;
  size_t used = (size_t)snprintf(text, sizeof text, "a,k\n");
  for (int i = 0; i < 3000; i++) used += (size_t)snprintf(text + used, sizeof text - used, "%d,x%04d\n", i, i);
  put("train.csv", text);
  dataset d = CREATE("label=k");
  open_split(&d, "train", &info);
  assert_int_equal(info.classes, 3000);
  for (int i = 0; i < 3000; i += 7) EXPECT_SAMPLE(&d, "train", i, i, (float)i);
  dataset_destroy(&d);
}

static void targets_are_real_numbers_and_no_features(void **state)
{
  brim_dataset_info info;
  put("train.csv", "a,y,b,z\n1,2.5,3,4\n-5e1, 6 ,+.7,8\n");
  dataset d = CREATE("targets=y z");
  open_split(&d, "train", &info);
  assert_int_equal(info.task, BRIM_TASK_VALUES);
  assert_int_equal(info.targets, 2);
  EXPECT_SAMPLE(&d, "train", 0, 2.5, 1, 3);
  EXPECT_SAMPLE(&d, "train", 1, 6, -50, 0.7f);
  dataset_destroy(&d);
}

static void features_are_named_one_by_one_or_from_to(void **state)
{
  brim_dataset_info info;
  put("train.csv", "k,a,b,c,d..e\nx,1,2,3,4\ny,5,6,7,8\n");
  dataset d = CREATE("label=k", "features=d..e a..b");
  open_split(&d, "train", &info);
  EXPECT_SAMPLE(&d, "train", 0, 0, 4, 1, 2);
  dataset_destroy(&d);
  put("train.csv", "1,2,3,x\n4,5,6,y\n");
  d = CREATE("label=4", "features=2..3", "header=false");
  open_split(&d, "train", &info);
  EXPECT_SAMPLE(&d, "train", 1, 1, 5, 6);
  dataset_destroy(&d);
}

/* pandas writes such files: the index has no name, and text columns are not features. */
static void text_and_an_index_without_a_name_are_no_features(void **state)
{
  brim_dataset_info info;
  put("train.csv", ",date,a,k\n0,2020-01-01,5,x\n1,2020-01-02,6,y\n");
  dataset d = CREATE("label=k");
  open_split(&d, "train", &info);
  EXPECT_SAMPLE(&d, "train", 1, 1, 6);
  dataset_destroy(&d);
}

static void a_test_file_has_its_columns_in_any_order(void **state)
{
  brim_dataset_info info;
  put("train.csv", "a,b,k\n1,2,x\n3,4,y\n");
  put("test.csv", "k,b,extra,a\ny,8,?,7\n");
  dataset d = CREATE("label=k", "test=test.csv");
  open_split(&d, "train", &info);
  open_split(&d, "test", &info);
  assert_int_equal(info.count, 1);
  EXPECT_SAMPLE(&d, "test", 0, 1, 7, 8);
  dataset_destroy(&d);
}

static void the_last_rows_can_be_the_test_split(void **state)
{
  char path[PATH_MAX + 64];
  brim_dataset_info info;
  uint64_t bytes = 0;
  put("one.csv", "a,y\n1,1\n2,2\n3,3\n4,4\n5,5\n");
  snprintf(path, sizeof path, "path=%s/one.csv", scratch_root);
  dataset d = CREATE(path, "targets=y", "test_fraction=0.4");
  open_split(&d, "train", &info);
  assert_int_equal(info.count, 3);
  open_split(&d, "test", &info);
  assert_int_equal(info.count, 2);
  EXPECT_SAMPLE(&d, "test", 0, 4, 4);
  assert_int_equal(d.ops->host_bytes(d.self, "train", &bytes), BRIM_OK);
  assert_int_equal(bytes, 5 * 2 * sizeof(float));
  assert_int_equal(d.ops->host_bytes(d.self, "test", &bytes), BRIM_OK);
  assert_int_equal(bytes, 0);
  dataset_destroy(&d);
}

/* ---- Sequences ---- */

static void the_target_of_a_window_is_a_later_row(void **state)
{
  brim_dataset_info info;
  put("train.csv", "t,u\n1,10\n2,20\n3,30\n4,40\n5,50\n6,60\n7,70\n");
  dataset d = CREATE("targets=t", "sequence=3");
  open_split(&d, "train", &info);
  assert_int_equal(info.sample.rank, 2);
  assert_int_equal(info.sample.dim[0], 3);
  assert_int_equal(info.sample.dim[1], 2); /* the target's past is a feature too */
  assert_int_equal(info.count, 4);
  EXPECT_SAMPLE(&d, "train", 3, 7, 4, 40, 5, 50, 6, 60);
  dataset_destroy(&d);
  d = CREATE("targets=t", "sequence=2", "stride=2", "horizon=2", "features=u");
  open_split(&d, "train", &info);
  assert_int_equal(info.count, 2);
  EXPECT_SAMPLE(&d, "train", 1, 6, 30, 40);
  dataset_destroy(&d);
  d = CREATE("targets=t", "sequence=2", "horizon=0"); /* with horizon 0 the target is not a feature */
  open_split(&d, "train", &info);
  assert_int_equal(info.count, 6);
  EXPECT_SAMPLE(&d, "train", 5, 7, 60, 70);
  dataset_destroy(&d);
}

static void a_window_has_the_label_of_its_last_row(void **state)
{
  brim_dataset_info info;
  put("train.csv", "a,k\n1,x\n2,x\n3,y\n");
  dataset d = CREATE("label=k", "sequence=2");
  open_split(&d, "train", &info);
  assert_int_equal(info.count, 2);
  EXPECT_SAMPLE(&d, "train", 1, 1, 2, 3);
  dataset_destroy(&d);
}

static void no_window_crosses_the_start_of_the_test_split(void **state)
{
  brim_dataset_info info;
  put("train.csv", "t\n1\n2\n3\n4\n5\n6\n7\n8\n");
  dataset d = CREATE("targets=t", "sequence=2", "test_fraction=0.5");
  open_split(&d, "train", &info);
  assert_int_equal(info.count, 2);
  EXPECT_SAMPLE(&d, "train", 1, 4, 2, 3);
  open_split(&d, "test", &info);
  EXPECT_SAMPLE(&d, "test", 0, 7, 5, 6);
  dataset_destroy(&d);
}

static const char groups[] = "id,a,k\np,1,x\nq,10,y\np,2,x\nr,100,x\np,3,y\nq,20,y\n";

static void groups_are_padded_to_the_longest(void **state)
{
  brim_dataset_info info;
  put("train.csv", groups);
  dataset d = CREATE("label=k", "group=id");
  open_split(&d, "train", &info);
  assert_int_equal(info.count, 3);
  EXPECT_SAMPLE(&d, "train", 0, 1, 1, 2, 3);
  EXPECT_SAMPLE(&d, "train", 1, 1, 0, 10, 20);
  EXPECT_SAMPLE(&d, "train", 2, 0, 0, 0, 100);
  dataset_destroy(&d);
  d = CREATE("label=k", "group=id", "pad=behind");
  open_split(&d, "train", &info);
  EXPECT_SAMPLE(&d, "train", 1, 1, 10, 20, 0);
  dataset_destroy(&d);
  put("test.csv", "id,a,k\ns,1,x\ns,2,x\ns,3,x\ns,4,x\n"); /* test.csv has the longest sequence of both files */
  d = CREATE("label=k", "group=id", "test=test.csv");
  open_split(&d, "train", &info);
  EXPECT_SAMPLE(&d, "train", 0, 1, 0, 1, 2, 3);
  dataset_destroy(&d);
}

static void groups_are_cut_on_the_chosen_side(void **state)
{
  brim_dataset_info info;
  put("train.csv", groups);
  dataset d = CREATE("label=k", "group=id", "sequence=2");
  open_split(&d, "train", &info);
  EXPECT_SAMPLE(&d, "train", 0, 1, 2, 3);
  dataset_destroy(&d);
  d = CREATE("label=k", "group=id", "sequence=2", "cut=behind", "test_fraction=0.3");
  open_split(&d, "train", &info);
  assert_int_equal(info.count, 2);
  EXPECT_SAMPLE(&d, "train", 0, 1, 1, 2);
  EXPECT_SAMPLE(&d, "test", 0, 0, 0, 100);
  dataset_destroy(&d);
}

/* ---- Values ---- */

static void features_are_standardised_by_the_training_rows(void **state)
{
  brim_dataset_info info;
  put("train.csv", "a,same,y\n1,7,1\n3,7,2\n5,9,3\n");
  dataset d = CREATE("targets=y", "standardise=true", "test_fraction=0.34");
  open_split(&d, "train", &info);
  EXPECT_SAMPLE(&d, "train", 0, 1, -1, 0);
  EXPECT_SAMPLE(&d, "test", 0, 3, 3, 2); /* (5 - 2) / 1; a constant column is not divided */
  dataset_destroy(&d);
}

/* A float has 24 bits. It represents only every 128th of the current seconds since 1970, and only every second date
 * written as a number. */
static void times_and_dates_are_standardised_in_double(void **state)
{
  brim_dataset_info info;
  put("train.csv", "time,date,far,y\n1700000000,20240101,1e9,1\n1700000001,20240102,1e9,2\n"
                   "1700000002,20240103,1000000001,3\n1700000003,20240104,1000000001,4\n");
  dataset d = CREATE("targets=y", "standardise=true", "test_fraction=0.25");
  open_split(&d, "train", &info);
  const float side = 1.2247449f; /* sqrt(3 / 2) */
  EXPECT_SAMPLE(&d, "train", 0, 1, -side, -side, -0.70710678f);
  EXPECT_SAMPLE(&d, "train", 1, 2, 0, 0, -0.70710678f);
  EXPECT_SAMPLE(&d, "train", 2, 3, side, side, 1.41421356f);
  EXPECT_SAMPLE(&d, "test", 0, 4, 2 * side, 2 * side, 1.41421356f);
  dataset_destroy(&d);
  put("train.csv", "time,y\n1700000000,1\nNA,2\n1700000002,3\n");
  d = CREATE("targets=y", "standardise=true", "fill=mean");
  open_split(&d, "train", &info);
  EXPECT_SAMPLE(&d, "train", 0, 1, -1);
  EXPECT_SAMPLE(&d, "train", 1, 2, 0);
  dataset_destroy(&d);
}

#define NUMBERS "features and targets must be numbers in every row; dataset.features selects columns"

static void missing_values_can_be_filled(void **state)
{
  brim_dataset_info info;
  put("train.csv", "a,b,k\n1,NA,x\n,4,y\n5, nan ,x\n");
  dataset d = CREATE("label=k", "fill=mean");
  open_split(&d, "train", &info);
  EXPECT_SAMPLE(&d, "train", 0, 0, 1, 4);
  EXPECT_SAMPLE(&d, "train", 1, 1, 3, 4);
  dataset_destroy(&d);
  d = CREATE("label=k", "fill=zero");
  open_split(&d, "train", &info);
  EXPECT_SAMPLE(&d, "train", 1, 1, 0, 4);
  dataset_destroy(&d);
  expect_error(CREATE("label=k"), BRIM_ELOAD,
               "'DIR/train.csv', line 2, column 2 'b': a value is missing\n"
               "dataset.fill=mean or zero replaces it");
  expect_error(CREATE("label=k", "fill=mean", "features=a k"), BRIM_ELOAD,
               "'DIR/train.csv', line 2, column 3 'k': 'x' is not a number within a float's range\n" NUMBERS);
  expect_error(CREATE("targets=a", "fill=mean"), BRIM_ELOAD,
               "'DIR/train.csv', line 3, column 1 'a': a value is missing");
}

/* ---- Syntax of RFC 4180 and variants ---- */

static void quotes_line_ends_and_byte_order_marks_are_read(void **state)
{
  brim_dataset_info info;
  put("train.csv", "\xef\xbb\xbf\"a\",\"na\"\"me, of k\",note\r\n\"1\",\"x,\r\ny\",\r\n\r\n2,\"\"\"\",5\" pipe");
  dataset d = CREATE("label=na\"me, of k", "features=a");
  open_split(&d, "train", &info);
  assert_int_equal(info.count, 2);
  assert_string_equal(info.class_names[0], "\"");
  assert_string_equal(info.class_names[1], "x,\ny");
  EXPECT_SAMPLE(&d, "train", 1, 0, 2);
  dataset_destroy(&d);
  put("train.csv", "a;k\r1;x\r2;y\r");
  d = CREATE("label=k", "separator=semicolon");
  open_split(&d, "train", &info);
  EXPECT_SAMPLE(&d, "train", 1, 1, 2);
  dataset_destroy(&d);
}

static void a_file_larger_than_the_buffer_is_read_in_pieces(void **state)
{
  static char text[1 << 20];
  brim_dataset_info info;
  size_t used = (size_t)snprintf(text, sizeof text, "a,\"b\",k\r\n");
  for (int i = 0; i < 40000; i++)
    used += (size_t)snprintf(text + used, sizeof text - used, "%d,\"%d\",\"x\"\"\"\r\n", i, i % 10);
  put("train.csv", text);
  dataset d = CREATE("label=k");
  open_split(&d, "train", &info);
  assert_int_equal(info.count, 40000);
  for (int i = 0; i < 40000; i += 13) EXPECT_SAMPLE(&d, "train", i, 0, (float)i, (float)(i % 10));
  dataset_destroy(&d);
}

static void files_that_are_not_csv_are_refused(void **state)
{
  expect_file_error("", "'DIR/train.csv' is empty");
  expect_file_error("a,k\n", "'DIR/train.csv' has no rows");
  expect_file_error("a,k\n1,x\n2\n", "'DIR/train.csv', line 3: 1 field, but the first line has 2");
  expect_file_error("a,k\n1,\"x\ny\"\n2,z,\n", "'DIR/train.csv', line 4: more than 2 fields, but the first line has 2");
  expect_file_error("a,k\n1,\"x\n2,y\n", "'DIR/train.csv', line 2, column 2: the quote is never closed");
  expect_file_error("a,k\n1,\"x\"y\n", "'DIR/train.csv', line 2, column 2: text after the closing quote\n"
                                       "write a quote inside a quoted field twice");
  expect_file_error("a,k\n1,\xe4\n", "'DIR/train.csv', line 2, column 2: byte e4 is not UTF-8\nsave the file as UTF-8");
  expect_file_error("a,k\n1,\xed\xa0\x80\n",
                    "'DIR/train.csv', line 2, column 2: byte ed is not UTF-8\nsave the file as UTF-8");
  expect_file_error("\xff\xfe"
                    "a",
                    "'DIR/train.csv' is UTF-16; save it as UTF-8");
  expect_file_error("\x1f\x8b\x08", "'DIR/train.csv' is compressed; decompress it with `gzip -d`");
  put_bytes("train.csv", "a\0,k\n", 5);
  expect_error(
      CREATE("label=k"), BRIM_ELOAD,
      "'DIR/train.csv', line 1: a byte of 0, which text must not contain\nif the file is UTF-16, save it as UTF-8");
}

static void values_that_cannot_be_used_are_named(void **state)
{
  expect_file_error("a,k\n1,x\n1x,y\n",
                    "'DIR/train.csv', line 3, column 1 'a': '1x' is not a number within a float's range\n" NUMBERS);
  expect_file_error("a,k\n1,x\n1e39,y\n",
                    "'DIR/train.csv', line 3, column 1 'a': '1e39' is not a number within a float's range\n" NUMBERS);
  expect_file_error("a,k\n1,x\n\"2\n3\",y\n",
                    "'DIR/train.csv', line 3, column 1 'a': '2' is not a number within a float's range\n" NUMBERS);
  expect_file_error("a,k\n1,x\n2,\n", "'DIR/train.csv', line 3, column 2 'k': the class is missing");
  expect_file_error("b,k\nx,y\n", "'DIR/train.csv' has no column of numbers besides the targets and the label");
  expect_file_error("a,a,k\n1,1,x\n", "'DIR/train.csv' has 2 columns named 'a'");
  put("train.csv", "a,k\n1,x\n");
  put("test.csv", "a,k\n1,z\n");
  expect_error(CREATE("label=k", "test=test.csv"), BRIM_ELOAD,
               "'DIR/test.csv', line 2, column 2 'k': class 'z' is not one of the training file's 1");
  expect_error(CREATE("label=k", "test=t.csv"), BRIM_ELOAD,
               "no file 'DIR/t.csv'\n"
               "without a test file, set dataset.test= (empty), or dataset.test_fraction=0.2 to test on the last rows");
}

static void settings_that_do_not_fit_the_file_are_refused(void **state)
{
  put("train.csv", "a,b,k\n1,2,x\n3,4,y\n");
  expect_error(CREATE("features=a"), BRIM_ECONFIG,
               "neither dataset.targets nor dataset.label is set\n"
               "dataset.targets=NAME is a column of real numbers, dataset.label=NAME one of classes");
  expect_error(CREATE("label=class"), BRIM_ECONFIG,
               "'DIR/train.csv' has no column 'class', which dataset.label names\nits columns are a, b, k");
  expect_error(CREATE("label=k", "separator=tab"), BRIM_ECONFIG,
               "'DIR/train.csv' has no column 'k', which dataset.label names\nits columns are a,b,k\n"
               "dataset.separator sets the separator of fields");
  expect_error(CREATE("label=k", "features=b..a"), BRIM_ECONFIG,
               "dataset.features: 'b..a' is in the wrong order: 'b' comes after 'a' in 'DIR/train.csv'");
  expect_error(CREATE("label=k", "features=a a..b"), BRIM_ECONFIG, "dataset.features names column 'a' twice");
  expect_error(CREATE("targets=a", "sequence=2"), BRIM_ELOAD,
               "'DIR/train.csv': 2 rows are too few for one window of dataset.sequence=2 rows and the row 1 after it");
  expect_error(CREATE("targets=a", "horizon=1"), BRIM_ECONFIG,
               "dataset.horizon is for windows over rows; dataset.sequence sets their length");
  expect_error(CREATE("label=k", "group=b", "stride=2"), BRIM_ECONFIG,
               "dataset.stride is for windows over rows; with dataset.group a sample is a whole group");
  expect_error(CREATE("label=k", "test_fraction=0.1"), BRIM_ECONFIG,
               "dataset.test_fraction=0.1: of the 2 rows of 'DIR/train.csv' the test split would get none");
  expect_error(CREATE("label=k", "train="), BRIM_ECONFIG,
               "'DIR' is a folder: dataset.train must name the training file in it");
  expect_error(CREATE("label=k", "path=/nowhere/at/all"), BRIM_ELOAD,
               "no file '/nowhere/at/all'\n"
               "set dataset.path to a CSV file, or to a folder that has 'train.csv'");
}

/* ---- Single files ---- */

static void a_file_to_be_predicted_needs_no_targets(void **state)
{
  char path[PATH_MAX + 64];
  brim_dataset_info info;
  put("train.csv", "t,u\n1,1\n2,2\n3,3\n4,4\n");
  put("new.csv", "u,t\n10,5\n20,6\n30,7\n");
  snprintf(path, sizeof path, "%s/new.csv", scratch_root);
  dataset d = CREATE("targets=t", "sequence=2");
  assert_int_equal(d.ops->open_file(d.self, path, "file0"), BRIM_OK);
  open_split(&d, "file0", &info);
  assert_int_equal(info.count, 2); /* the last sample predicts the value after the last row */
  EXPECT_SAMPLE(&d, "file0", 1, 0, 6, 20, 7, 30);
  assert_int_equal(d.ops->open_file(d.self, path, "file0"), BRIM_EINVAL);
  dataset_destroy(&d);
  put("new.csv", "a\n9\n");
  put("train.csv", "a,k\n1,x\n2,y\n");
  d = CREATE("label=k", "standardise=true");
  assert_int_equal(d.ops->open_file(d.self, path, "file0"), BRIM_OK);
  EXPECT_SAMPLE(&d, "file0", 0, -1, 15); /* (9 - 1.5) / 0.5 */
  put("new.csv", "b\n9\n");
  assert_int_equal(d.ops->open_file(d.self, path, "file1"), BRIM_ELOAD);
  dataset_destroy(&d);
}

/* ---- The record in a run's folder ---- */

static void new_files_are_read_with_the_stored_facts(void **state)
{
  brim_dataset_info info;
  char path[PATH_MAX + 16], kept[1024];
  const char *json = NULL;
  put("train.csv", "id,a,k,b\nn1,1,x,10\nn2,3,y,30\n");
  put("new.csv", "b,a\n40,5\n");
  snprintf(path, sizeof path, "%s/new.csv", scratch_root);
  dataset d = CREATE("label=k", "standardise=true");
  open_split(&d, "train", &info);
  assert_int_equal(d.ops->keep(d.self, &json), BRIM_OK);
  snprintf(kept, sizeof kept, "%s", json);
  dataset_destroy(&d);
  put("train.csv", "other\n");
  d = CREATE("label=k", "standardise=true");
  assert_int_equal(d.ops->recall(d.self, kept), BRIM_OK);
  assert_int_equal(d.ops->open_file(d.self, path, "file0"), BRIM_OK);
  EXPECT_SAMPLE(&d, "file0", 0, -1, 3, 2); /* (5 - 2) / 1, (40 - 20) / 10 */
  assert_int_equal(d.ops->describe(d.self, "train", &info), BRIM_EINVAL);
  dataset_destroy(&d);
}

static void stored_facts_of_sequences_include_their_length(void **state)
{
  brim_dataset_info info;
  char path[PATH_MAX + 16], kept[1024];
  const char *json = NULL;
  put("train.csv", "id,a,t\nA,1,5\nA,2,6\nA,3,7\nB,4,8\n");
  put("new.csv", "id,a\nC,9\n");
  snprintf(path, sizeof path, "%s/new.csv", scratch_root);
  dataset d = CREATE("targets=t", "group=id");
  open_split(&d, "train", &info);
  assert_int_equal(d.ops->keep(d.self, &json), BRIM_OK);
  snprintf(kept, sizeof kept, "%s", json);
  dataset_destroy(&d);
  d = CREATE("targets=t", "group=id");
  assert_int_equal(d.ops->recall(d.self, kept), BRIM_OK);
  assert_int_equal(d.ops->open_file(d.self, path, "file0"), BRIM_OK);
  EXPECT_SAMPLE(&d, "file0", 0, 0, 0, 0, 9);
  dataset_destroy(&d);
}

static void damaged_stored_facts_are_refused(void **state)
{
  static const char *const damaged[] = {
      "",
      "null",
      "[]",
      "{}",
      "{\"features\":[]}",
      "{\"features\":[1]}",
      "{\"features\":[{\"name\":\"a\",\"mean\":1}]}",
      "{\"features\":[{\"name\":\"a\",\"mean\":1,\"deviation\":0}]}",
      "{\"features\":[{\"name\":\"a\",\"mean\":\"1\",\"deviation\":1}]}",
      "{\"features\":[{\"name\":\"a\",\"mean\":1,\"deviation\":1}],\"targets\":[2]}",
      "{\"features\":[{\"name\":\"a\",\"mean\":1,\"deviation\":1}],\"targets\":[],\"rows in a sample\":-1}"};
  dataset d = CREATE("label=k");
  for (size_t i = 0; i < sizeof damaged / sizeof damaged[0]; i++)
    if (d.ops->recall(d.self, damaged[i]) != BRIM_ELOAD) fail_msg("'%s' was not refused", damaged[i]);
  dataset_destroy(&d);
}

static void the_summary_lists_the_columns_used(void **state)
{
  brim_dataset_info info;
  put("train.csv", "id,a,city,hollow,k\nn1,1,M\xc3\xbcnchen,,x\nn2,2,3,,y\n");
  dataset d = CREATE("label=k");
  open_split(&d, "train", &info);
  assert_string_equal(info.summary, "1 feature (a), label k of 2 classes; left out: id (text, 'n1'), city (text, "
                                    "'M\xc3\xbcnchen'), hollow (without a value)");
  dataset_destroy(&d);
  put("train.csv", ",a,b,c,d,e,f,g,t,i\n0,1,2,3,4,5,6,7,8,9\n1,1,2,3,4,5,6,7,8,9\n");
  d = CREATE("targets=t", "group=i");
  open_split(&d, "train", &info);
  assert_string_equal(info.summary,
                      "7 features (a, b, c, d, e, ..., g), 1 target (t), samples by i; left out: column 1 "
                      "(without a name)");
  dataset_destroy(&d);
  d = CREATE("targets=t", "features=a..g");
  open_split(&d, "train", &info);
  assert_string_equal(info.summary, "7 features (a, b, c, d, e, ..., g), 1 target (t); left out: column 1 (not in "
                                    "dataset.features), i (not in dataset.features)");
  dataset_destroy(&d);
}

/* If there are thousands of columns, the line names only some. */
static void the_summary_of_many_columns_is_short(void **state)
{
  brim_dataset_info info;
  char text[16384] = "a,k";
  size_t used = strlen(text);
  for (int i = 0; i < 200; i++)
    used += (size_t)snprintf(text + used, sizeof text - used, ",a long name of column %d", i);
  used += (size_t)snprintf(text + used, sizeof text - used, "\n1,x");
  for (int i = 0; i < 200; i++) used += (size_t)snprintf(text + used, sizeof text - used, ",t%d", i);
  snprintf(text + used, sizeof text - used, "\n");
  put("train.csv", text);
  dataset d = CREATE("label=k");
  open_split(&d, "train", &info);
  assert_true(strlen(info.summary) < 700);
  assert_non_null(strstr(info.summary, "a long name of column 0 (text, 't0'), "));
  assert_non_null(strstr(info.summary, " more"));
  dataset_destroy(&d);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)
  const struct CMUnitTest tests[] = {
      T(class_names_are_sorted),
      T(classes_that_are_numbers_are_sorted_as_such),
      T(the_table_of_class_names_grows),
      T(targets_are_real_numbers_and_no_features),
      T(features_are_named_one_by_one_or_from_to),
      T(text_and_an_index_without_a_name_are_no_features),
      T(a_test_file_has_its_columns_in_any_order),
      T(the_last_rows_can_be_the_test_split),
      T(the_target_of_a_window_is_a_later_row),
      T(a_window_has_the_label_of_its_last_row),
      T(no_window_crosses_the_start_of_the_test_split),
      T(groups_are_padded_to_the_longest),
      T(groups_are_cut_on_the_chosen_side),
      T(features_are_standardised_by_the_training_rows),
      T(times_and_dates_are_standardised_in_double),
      T(missing_values_can_be_filled),
      T(quotes_line_ends_and_byte_order_marks_are_read),
      T(a_file_larger_than_the_buffer_is_read_in_pieces),
      T(files_that_are_not_csv_are_refused),
      T(values_that_cannot_be_used_are_named),
      T(settings_that_do_not_fit_the_file_are_refused),
      T(a_file_to_be_predicted_needs_no_targets),
      T(new_files_are_read_with_the_stored_facts),
      T(stored_facts_of_sequences_include_their_length),
      T(damaged_stored_facts_are_refused),
      T(the_summary_lists_the_columns_used),
      T(the_summary_of_many_columns_is_short),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
