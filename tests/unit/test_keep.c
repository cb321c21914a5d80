/* Tests the record of a run's data: it reads back as written, differences in the data are reported, and damaged records
 * are rejected. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "data/keep.h"
#include "unit/made_dataset.h"

static const char *const letters[] = {"a", "b", "c", "d"};
static const brim_settings settings = {.seed = 5};

static made four_classes(void)
{
  made m = made_images(20, 1, 2, 3);
  m.train.classes = m.test.classes = 4;
  m.train.class_names = m.test.class_names = letters;
  return m;
}

static json_t *keep_of(made *m, const brim_plugin *plugin)
{
  brim_data data;
  json_t *out = NULL;
  assert_int_equal(brim_data_describe(&data, plugin, m, &settings), BRIM_OK);
  assert_int_equal(brim_data_keep(&data, &out), BRIM_OK);
  return out;
}

/* Copies a record by writing it to a file and reading it. */
static json_t *copy_of(const json_t *json)
{
  char *text = json_dumps(json, JSON_REAL_PRECISION(17));
  json_t *out = json_loads(text, 0, NULL);
  free(text);
  assert_non_null(out);
  return out;
}

static void expect_recalled(made m)
{
  brim_arena arena = {0};
  brim_data data, recalled;
  json_t *kept = keep_of(&m, &made_plugin), *read = copy_of(kept);
  assert_int_equal(brim_data_describe(&data, &made_plugin, &m, &settings), BRIM_OK);
  m.fail_open = true; /* brim must not call open */
  m.describes_unopened = false;
  m.opened = 0;
  assert_true(brim_data_is_kept_of(read, &made_plugin));
  if (brim_data_recall_kept(&recalled, &made_plugin, &m, &settings, read, &arena) != BRIM_OK)
    fail_msg("%s", brim_error_text());
  for (int part = 0; part < 3; part++) assert_int_equal(recalled.count[part], data.count[part]);
  assert_int_equal(recalled.train.task, data.train.task);
  assert_int_equal(recalled.train.dtype, data.train.dtype);
  assert_int_equal(recalled.train.classes, data.train.classes);
  assert_int_equal(recalled.train.targets, data.train.targets);
  assert_true(brim_shape_equal(&recalled.sample, &data.sample));
  assert_int_equal(recalled.scratch_bytes, data.scratch_bytes);
  assert_int_equal(recalled.train.class_names != NULL, data.train.class_names != NULL);
  for (int64_t k = 0; data.train.class_names && k < data.train.classes; k++)
    assert_string_equal(recalled.train.class_names[k], data.train.class_names[k]);
  uint64_t bytes = 1;
  assert_int_equal(brim_data_host_bytes(&recalled, &bytes), BRIM_OK);
  assert_int_equal(bytes, 0);
  json_decref(kept);
  json_decref(read);
  brim_arena_release(&arena);
}

static void the_record_is_recalled_without_the_data(void **state)
{
  expect_recalled(four_classes());
  expect_recalled(made_images(20, 3, 4, 5));
  expect_recalled(made_tokens(30, 8));
  expect_recalled(made_values(30, 4, 3, 2));
}

static void names_that_are_not_utf8_are_left_out(void **state)
{
  static const char *const names[] = {"a", "b\xe9", "c", "d"};
  made m = four_classes();
  m.train.class_names = names;
  json_t *kept = keep_of(&m, &made_plugin);
  assert_true(json_is_null(json_object_get(kept, "class_names")));
  json_decref(kept);
}

/* ---- differences ---- */

static void expect_compared(const json_t *a, const json_t *b, bool order, const char *text)
{
  const brim_status status = brim_data_compare(a, b, order);
  assert_int_equal(status, text ? BRIM_ELOAD : BRIM_OK);
  if (text) assert_string_equal(brim_error_text(), text);
}

static void differences_are_named(void **state)
{
  static const char *const others[] = {"a", "b", "tulip", "d"};
  made was = four_classes(), now = was;
  json_t *a = keep_of(&was, &made_plugin);
  now.train.class_names = others;
  now.train.count = 21;
  json_t *b = keep_of(&now, &made_plugin);
  expect_compared(a, a, true, NULL);
  expect_compared(a, b, false, "the data differs from the run's training data:\nclass 2 was 'c', and is 'tulip'");
  expect_compared(a, b, true,
                  "the data differs from the run's training data:\nclass 2 was 'c', and is 'tulip'\n"
                  "the number of training samples was 20, and is 21");
  json_decref(b);
  now.train.class_names = NULL; /* the dataset gives no names */
  b = keep_of(&now, &made_plugin);
  expect_compared(a, b, false, NULL);
  json_decref(b);
  now = made_images(20, 1, 3, 3);
  b = keep_of(&now, &made_plugin);
  expect_compared(a, b, false,
                  "the data differs from the run's training data:\nthe shape of a sample, dimension 1 was 2, and is 3\n"
                  "the number of classes was 4, and is 20");
  json_decref(a);
  json_decref(b);
}

/* ---- a dataset's own record ---- */

static const char *own_text;
static char own_recalled[256];

static brim_status own_keep(void *self, const char **json)
{
  (void)self;
  *json = own_text;
  return BRIM_OK;
}

static brim_status own_recall(void *self, const char *json)
{
  (void)self;
  snprintf(own_recalled, sizeof own_recalled, "%s", json);
  return BRIM_OK;
}

static json_t *own_kept(const char *text)
{
  brim_dataset_ops ops = made_ops;
  brim_plugin plugin = made_plugin;
  made m = four_classes();
  ops.keep = own_keep;
  plugin.ops = &ops;
  own_text = text;
  return keep_of(&m, &plugin);
}

static void expect_own(const char *was, const char *now, const char *text)
{
  json_t *a = own_kept(was), *b = own_kept(now);
  expect_compared(a, b, true, text);
  json_decref(a);
  json_decref(b);
}

static void facts_of_a_dataset_are_compared_by_name(void **state)
{
#define HEAD "the data differs from the run's training data:\n"
  expect_own("{\"columns\":[{\"name\":\"x\",\"mean\":1.5}]}", "{\"columns\":[{\"name\":\"x\",\"mean\":1.5000000001}]}",
             NULL);
  expect_own("{\"columns\":[{\"name\":\"x\",\"mean\":1.5}]}", "{\"columns\":[{\"name\":\"x\",\"mean\":1.6}]}",
             HEAD "mean of column 'x' was 1.5, and is 1.6");
  expect_own("{\"columns\":[{\"name\":\"x\"}]}", "{\"columns\":[{\"name\":\"y\"}]}",
             HEAD "column 0 was 'x', and is 'y'");
  expect_own("{\"names\":[1,2]}", "{\"names\":[1]}", HEAD "there were 2 names, now 1");
  expect_own("{\"a\":1,\"b\":{\"c\":true}}", "{\"a\":1,\"b\":{\"c\":false},\"d\":\"e\"}",
             HEAD "c of b was true, and is false\nd was nothing, and is 'e'");
  expect_own("{\"n\":[1,2,3,4,5,6,7]}", "{\"n\":[0,0,0,0,0,0,0]}",
             HEAD "n 0 was 1, and is 0\nn 1 was 2, and is 0\nn 2 was 3, and is 0\nn 3 was 4, and is 0\n"
                  "n 4 was 5, and is 0\n... and 2 more");
  expect_own(NULL, "{\"a\":1}", NULL); /* the build that recorded it did not know the key */
#undef HEAD
}

static void a_dataset_gets_its_stored_facts_back(void **state)
{
  brim_arena arena = {0};
  brim_dataset_ops ops = made_ops;
  brim_plugin plugin = made_plugin;
  made m = four_classes();
  brim_data data;
  ops.keep = own_keep;
  ops.recall = own_recall;
  plugin.ops = &ops;
  json_t *kept = own_kept("{\"x\":0.1}");
  assert_int_equal(brim_data_recall_kept(&data, &plugin, &m, &settings, kept, &arena), BRIM_OK);
  json_t *back = json_loads(own_recalled, 0, NULL);
  assert_true(json_equal(back, json_object_get(kept, "kept")));
  ops.recall = NULL; /* without recall, the records must be equal */
  assert_int_equal(brim_data_recall_kept(&data, &plugin, &m, &settings, kept, &arena), BRIM_OK);
  own_text = "{\"x\":0.2}";
  assert_int_equal(brim_data_recall_kept(&data, &plugin, &m, &settings, kept, &arena), BRIM_ELOAD);
  assert_non_null(strstr(brim_error_text(), "x was 0.1, and is 0.2"));
  json_decref(back);
  json_decref(kept);
  brim_arena_release(&arena);
}

/* ---- damage ---- */

static void expect_refused(const char *key, json_t *value)
{
  brim_arena arena = {0};
  made m = four_classes();
  brim_data data;
  json_t *kept = keep_of(&m, &made_plugin);
  if (value)
    json_object_set_new(kept, key, value);
  else
    json_object_del(kept, key);
  if (brim_data_recall_kept(&data, &made_plugin, &m, &settings, kept, &arena) != BRIM_ELOAD)
    fail_msg("'%s' was not refused", key);
  json_decref(kept);
  brim_arena_release(&arena);
}

static void damaged_records_are_refused(void **state)
{
  static const char *const keys[] = {"task",    "sample",     "dtype",    "classes", "class_names",
                                     "targets", "pixels_max", "side_max", "samples"};
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
    expect_refused(keys[i], NULL);
    expect_refused(keys[i], json_true());
  }
  expect_refused("task", json_string("poetry"));
  expect_refused("dtype", json_string("F8"));
  expect_refused("sample", json_pack("[i,i,i,i,i,i,i,i,i,i]", 1, 1, 1, 1, 1, 1, 1, 1, 1, 1));
  expect_refused("sample", json_pack("[i,i,i]", 1, -2, 3));
  expect_refused("sample", json_pack("[i,s]", 1, "x"));
  expect_refused("classes", json_integer(-1));
  expect_refused("classes", json_integer(INT64_MAX));
  expect_refused("class_names", json_pack("[s,s]", "a", "b"));
  expect_refused("class_names", json_pack("[s,s,i,s]", "a", "b", 3, "d"));
  expect_refused("samples", json_pack("{s:i,s:i,s:i}", "train", 0, "validation", 0, "test", 0));
  expect_refused("samples", json_pack("{s:i,s:i,s:i}", "train", 9, "validation", -1, "test", 0));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_record_is_recalled_without_the_data),
      cmocka_unit_test(names_that_are_not_utf8_are_left_out),
      cmocka_unit_test(differences_are_named),
      cmocka_unit_test(facts_of_a_dataset_are_compared_by_name),
      cmocka_unit_test(a_dataset_gets_its_stored_facts_back),
      cmocka_unit_test(damaged_records_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
