/* Tests values by declared type: the accepted and converted ones, the errors; and the check of a whole table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "param/value.h"

typedef struct all {
  bool flag;
  int64_t count;
  double number;
  uint64_t size, size_mb;
  double seconds, minutes;
  const char *text, *path;
  int32_t choice;
  union {
    brim_list list;
    brim_names names;
  };
  brim_shares shares;
} all;

static const brim_param flag = BRIM_PARAM(BOOL, all, flag, "true", NULL, "");
static const brim_param count = BRIM_PARAM(I64, all, count, "1", NULL, "");
static const brim_param count_in = BRIM_PARAM(I64, all, count, "1", "[1,512]", "");
static const brim_param count_auto = BRIM_PARAM(I64, all, count, "auto", "auto|[1,64]", "");
static const brim_param number = BRIM_PARAM(F64, all, number, "1", NULL, "");
static const brim_param number_in = BRIM_PARAM(F64, all, number, "1", "(0,1]", "");
static const brim_param number_up = BRIM_PARAM(F64, all, number, "1", "[0,inf)", "");
static const brim_param size = BRIM_PARAM(BYTES, all, size, "1", NULL, "");
static const brim_param size_mb = BRIM_PARAM(BYTES, all, size_mb, "1", "[0,65536]", "");
static const brim_param seconds = BRIM_PARAM(SECONDS, all, seconds, "1", "[0,inf)", "");
static const brim_param minutes = {"wait_minutes", BRIM_SECONDS, sizeof(double), offsetof(all, minutes), "1", NULL, ""};
static const brim_param text = BRIM_PARAM(STR, all, text, "", NULL, "");
static const brim_param path = BRIM_PARAM(PATH, all, path, "", NULL, "");
static const brim_param choice = BRIM_PARAM(ENUM, all, choice, "ring", "ring|tree|2", "");
static const brim_param list = BRIM_PARAM(LIST, all, list, "[]", NULL, "");
static const brim_param list_in = BRIM_PARAM(LIST, all, list, "[1]", "[0,1]", "");
static const brim_param words = BRIM_PARAM(NAMES, all, names, "[]", NULL, "");
static const brim_param shares = BRIM_PARAM(SHARES, all, shares, "{}", NULL, "");

static const brim_param set = BRIM_PARAM(SET, all, size, "all", "red|green|blue", "");

static brim_arena arena;

static int release(void **state)
{
  brim_arena_release(&arena);
  return 0;
}

static brim_status parse(const brim_param *row, const char *yaml, all *out, brim_text *problem)
{
  brim_yaml *node = NULL;
  brim_text_clear(problem);
  if (brim_yaml_parse(&arena, yaml, strlen(yaml), "f.yaml", &node) != BRIM_OK) fail_msg("%s", brim_error_text());
  return brim_value_parse(row, node, out, &arena, problem);
}

static all accept(const brim_param *row, const char *yaml)
{
  all out = {0};
  brim_text problem = {0};
  if (parse(row, yaml, &out, &problem) != BRIM_OK) fail_msg("%s: %s %s", yaml, row->key, problem.s);
  assert_int_equal(problem.length, 0);
  brim_text_release(&problem);
  return out;
}

static void booleans_are_true_and_false_only(void **state)
{
  assert_true(accept(&flag, "true").flag);
  assert_false(accept(&flag, "false").flag);
}

static void integers_are_decimal_hexadecimal_and_octal(void **state)
{
  static const struct {
    const char *yaml;
    int64_t want;
  } cases[] = {{"0", 0},
               {"-7", -7},
               {"+7", 7},
               {"007", 7},
               {"0x1F", 31},
               {"0o17", 15},
               {"-0", 0},
               {"9223372036854775807", INT64_MAX},
               {"-9223372036854775808", INT64_MIN}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    assert_true(accept(&count, cases[i].yaml).count == cases[i].want);
  assert_int_equal(accept(&count_in, "512").count, 512);
}

static void numbers_are_those_of_the_core_schema(void **state)
{
  static const struct {
    const char *yaml;
    double want;
  } cases[] = {{"1", 1},      {"-1.5", -1.5}, {".5", 0.5},  {"5.", 5},   {"1e-4", 1e-4},
               {"1E+4", 1e4}, {"+.5e1", 5.0}, {"0x10", 16}, {"0o10", 8}, {"1e300", 1e300}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    assert_true(accept(&number, cases[i].yaml).number == cases[i].want);
  assert_true(isinf(accept(&number, ".inf").number));
  assert_true(accept(&number, "-.inf").number < 0);
  assert_true(accept(&number_in, "1").number == 1);
  assert_true(accept(&number_up, "0").number == 0);
}

static void sizes_take_units(void **state)
{
  assert_true(accept(&size, "123").size == 123);
  assert_true(accept(&size, "4GB").size == 4000000000u);
  assert_true(accept(&size, "512MiB").size == (uint64_t)512 << 20);
  assert_true(accept(&size, "1.5 kib").size == 1536);
  assert_true(accept(&size, "2TiB").size == (uint64_t)2 << 40);
  assert_true(accept(&size, "7B").size == 7);
  assert_true(accept(&size_mb, "512").size_mb == 512);
  assert_true(accept(&size_mb, "512MiB").size_mb == 512);
  assert_true(accept(&size_mb, "4GB").size_mb == 3814); /* rounded down: a limit is never exceeded */
  assert_true(accept(&size_mb, "64GiB").size_mb == 65536);
  assert_true(accept(&size_mb, "1500KB").size_mb == 1);
  assert_true(accept(&size_mb, "1024KiB").size_mb == 1);
  assert_true(accept(&size_mb, "0").size_mb == 0 && accept(&size_mb, "0GB").size_mb == 0);
}

static void times_take_units(void **state)
{
  assert_true(accept(&seconds, "30").seconds == 30);
  assert_true(accept(&seconds, "0.5").seconds == 0.5);
  assert_true(accept(&seconds, "30s").seconds == 30);
  assert_true(accept(&seconds, "5min").seconds == 300);
  assert_true(accept(&seconds, "250ms").seconds == 0.25);
  assert_true(accept(&seconds, "2h").seconds == 7200);
  assert_true(accept(&minutes, "5").minutes == 5);
  assert_true(accept(&minutes, "90s").minutes == 1.5);
  assert_true(accept(&minutes, "2h").minutes == 120);
}

static void strings_are_any_scalar(void **state)
{
  assert_string_equal(accept(&text, "no").text, "no");
  assert_string_equal(accept(&text, "1e-4").text, "1e-4");
  assert_string_equal(accept(&text, "''").text, "");
  assert_string_equal(accept(&text, "'null'").text, "null");
  assert_string_equal(accept(&path, "../a b").path, "../a b");
}

static void enums_are_indices_of_their_names(void **state)
{
  assert_int_equal(accept(&choice, "ring").choice, 0);
  assert_int_equal(accept(&choice, "'tree'").choice, 1);
  assert_int_equal(accept(&choice, "2").choice, 2);
}

static void names_are_strings(void **state)
{
  const brim_names two = accept(&words, "[q_proj, 'attn.qkv:q']").names;
  assert_int_equal(two.count, 2);
  assert_string_equal(two.item[0], "q_proj");
  assert_string_equal(two.item[1], "attn.qkv:q");
  assert_int_equal(accept(&words, "[]").names.count, 0);
  assert_int_equal(accept(&words, "''").names.count, 0);
  assert_int_equal(accept(&words, "[1]").names.count, 1);
  assert_string_equal(accept(&words, "fc1").names.item[0], "fc1");
}

static void lists_are_of_numbers(void **state)
{
  const brim_list three = accept(&list, "[1, 2.5, -1e2]").list;
  assert_int_equal(three.count, 3);
  assert_true(three.item[2] == -100);
  assert_int_equal(accept(&list, "[]").list.count, 0);
  assert_int_equal(accept(&list, "7").list.count, 1);
  assert_true(accept(&list, "7").list.item[0] == 7);
}

/* The name stands for a number that has no other spelling. */
static void a_range_may_begin_with_a_name(void **state)
{
  assert_int_equal(accept(&count_auto, "auto").count, -1);
  assert_int_equal(accept(&count_auto, "1").count, 1);
  assert_int_equal(accept(&count_auto, "64").count, 64);
  const brim_param table[] = {count_auto, BRIM_PARAMS_END};
  assert_int_equal(brim_value_check_table(table, sizeof(all)), BRIM_OK);
  const brim_yaml *node = brim_value_default(&count_auto, &arena);
  assert_string_equal(node->scalar, "auto");
  assert_false(node->quoted);
}

static void check_share(const brim_share *got, const char *of, const char *client, double fraction, uint64_t bytes)
{
  assert_string_equal(got->of, of);
  assert_string_equal(got->who, client);
  assert_true(got->fraction == fraction);
  assert_true(got->bytes == bytes);
}

static void shares_are_fractions_or_bytes_with_a_unit(void **state)
{
  const brim_shares all_of_it =
      accept(&shares, "{'cpu:0': {alice: 0.4, bob: 8000MB}, any: {}, x: {'1': 1, z: 1.5KiB}}").shares;
  assert_int_equal(all_of_it.count, 4);
  check_share(&all_of_it.item[0], "cpu:0", "alice", 0.4, 0);
  check_share(&all_of_it.item[1], "cpu:0", "bob", 0, 8000000000u);
  check_share(&all_of_it.item[2], "x", "1", 1, 0);
  check_share(&all_of_it.item[3], "x", "z", 0, 1536);
  assert_int_equal(accept(&shares, "{}").shares.count, 0);
  check_share(accept(&shares, "{a: {b: 1B}}").shares.item, "a", "b", 0, 1); /* the smallest possible share */
  check_share(accept(&shares, "{a: {b: 1e-9}}").shares.item, "a", "b", 1e-9, 0);
}

static const struct {
  const brim_param *row;
  const char *yaml, *want;
} refused[] = {
    {&flag, "yes", "must be true or false, got yes"},
    {&flag, "True", "must be true or false, got True"},
    {&flag, "'true'", "must be true or false, got the string 'true'"},
    {&flag, "1", "must be true or false, got 1"},
    {&count, "1.0", "must be an integer, got 1.0"},
    {&count, "1e3", "must be an integer, got 1e3"},
    {&count, "12x", "must be an integer, got 12x"},
    {&count, "-", "must be an integer, got a list"},
    {&count, "0x", "must be an integer, got 0x"},
    {&count, "-0x1", "must be an integer, got -0x1"},
    {&count, "'3'", "must be an integer, got the string '3'"},
    {&count, "", "must be an integer, got null"},
    {&count, "~", "must be an integer, got null"},
    {&count, "[1]", "must be an integer, got a list"},
    {&count, "{a: 1}", "must be an integer, got a map"},
    {&count, "9223372036854775808", "must be an integer of at most 64 bits, got 9223372036854775808"},
    {&count_in, "0", "must be in [1,512], got 0"},
    {&count_in, "513", "must be in [1,512], got 513"},
    {&count_auto, "0", "must be auto or in [1,64], got 0"},
    {&count_auto, "65", "must be auto or in [1,64], got 65"},
    {&count_auto, "-1", "must be auto or in [1,64], got -1"}, /* -1 is how auto is stored */
    {&count_auto, "x", "must be auto or an integer, got x"},
    {&count_auto, "aut", "must be auto or an integer, got aut"},
    {&count_auto, "automatic", "must be auto or an integer, got automatic"},
    {&count_auto, "auto|", "must be auto or an integer, got auto|"},
    {&count_auto, "'auto'", "must be auto or an integer, got the string 'auto'"},
    {&count_auto, "[auto]", "must be auto or an integer, got a list"},
    {&count_auto, "null", "must be auto or an integer, got null"},
    {&count_in, "auto", "must be an integer, got auto"},
    {&number, "abc", "must be a number, got abc"},
    {&number, ".", "must be a number, got ."},
    {&number, "1e", "must be a number, got 1e"},
    {&number, "nan", "must be a number, got nan"},
    {&number, ".nan", "must be a number, got .nan"},
    {&number, "inf", "must be a number, got inf"},
    {&number, "1e999", "must be a number of at most 1.7976931348623157e+308, got 1e999"},
    {&number, "0x1p3", "must be a number, got 0x1p3"},
    {&number, "1,5", "must be a number, got 1,5"},
    {&number_in, "0", "must be in (0,1], got 0"},
    {&number_in, "1.01", "must be in (0,1], got 1.01"},
    {&number_up, ".inf", "must be in [0,inf), got .inf"},
    {&number_up, "-1e-300", "must be in [0,inf), got -1e-300"},
    {&size, "1.5", "must be a size: a whole number of bytes, or one with a unit (512MiB, 4GB), got 1.5"},
    {&size, "4G", "must be a size: a whole number of bytes, or one with a unit (512MiB, 4GB), got 4G"},
    {&size, "4 bytes", "must be a size: a whole number of bytes, or one with a unit (512MiB, 4GB), got 4 bytes"},
    {&size, "-1", "must be a size of at least 0 bytes, got -1"},
    {&size, "9e18GB", "must be a size below 2^63 bytes, got 9e18GB"},
    {&size, "9999999999999999999", "must be a size below 2^63 bytes, got 9999999999999999999"},
    {&size_mb, "x", "must be a size: a whole number of MiB, or one with a unit (512MiB, 4GB), got x"},
    {&size_mb, "800KB", "must be a size of at least 1 MiB, got 800KB"}, /* rounding to 0 would mean no limit */
    {&size_mb, "1023.9KiB", "must be a size of at least 1 MiB, got 1023.9KiB"},
    {&size_mb, "1MB", "must be a size of at least 1 MiB, got 1MB"},
    {&size_mb, "-1KB", "must be a size of at least 0 bytes, got -1KB"},
    {&size, "0.5B", "must be a size of at least 1 byte, got 0.5B"},
    {&size_mb, "65GiB", "must be in [0,65536], got 65GiB"},
    {&size_mb, "9000000000000000", "must be a size below 2^63 bytes, got 9000000000000000"},
    {&seconds, "5 parsecs", "must be a time: a number of seconds, or one with a unit (30s, 5min, 2h), got 5 parsecs"},
    {&minutes, "'5'", "must be a time: a number of minutes, or one with a unit (30s, 5min, 2h), got the string '5'"},
    {&seconds, "-1s", "must be in [0,inf), got -1s"},
    {&text, "null", "must be a string, got null"},
    {&text, "[a]", "must be a string, got a list"},
    {&path, "{a: b}", "must be a path, got a map"},
    {&choice, "rin", "must be one of ring|tree|2, got rin"},
    {&choice, "ring|tree", "must be one of ring|tree|2, got ring|tree"},
    {&choice, "[ring]", "must be one of ring|tree|2, got a list"},
    {&list, "abc", "must be a list of numbers, got abc"},
    {&list, "null", "must be a list of numbers, got null"},
    {&list, "{a: 1}", "must be a list of numbers, got a map"},
    {&list, "[1, '2']", "must be a list of numbers, but item 1 is the string '2'"},
    {&list, "[[1]]", "must be a list of numbers, but item 0 is a list"},
    {&list_in, "[0, 2]", "must be a list of numbers in [0,1], but item 1 is 2"},
    {&list_in, "2", "must be a list of numbers in [0,1], got 2"},
    {&words, "{a: b}", "must be a list of names, got a map"},
    {&words, "null", "must be a list of names, got null"},
    {&words, "[a, [b]]", "must be a list of names, but item 1 is a list"},
    {&words, "[a, '']", "must be a list of names, but item 1 is the string ''"},
    {&set, "[red, grey]", "must be all, none, or a list of red|green|blue, got grey"},
    {&set, "re", "must be all, none, or a list of red|green|blue, got re"},
    {&set, "[red, all]", "must be all, none, or a list of red|green|blue, got all"},
    {&set, "{red: 1}", "must be all, none, or a list of red|green|blue, got a map"},
    {&set, "null", "must be all, none, or a list of red|green|blue, got null"},
    {&shares, "0.5", "must be a map of maps: {DEVICE: {NAME: SHARE}}, with shares as 0.5 or 8000MB, got 0.5"},
    {&shares, "[a]", "must be a map of maps: {DEVICE: {NAME: SHARE}}, with shares as 0.5 or 8000MB, got a list"},
    {&shares, "null", "must be a map of maps: {DEVICE: {NAME: SHARE}}, with shares as 0.5 or 8000MB, got null"},
    {&shares, "{a: 0.5}", "'a' must be a map of names to shares, got 0.5"},
    {&shares, "{a: {b: 1}, c: }", "'c' must be a map of names to shares, got null"},
    {&shares, "{a: [b]}", "'a' must be a map of names to shares, got a list"},
    {&shares, "{a: {b: 0}}", "'a.b' must be a share in (0,1], or bytes with a unit (8000MB), got 0"},
    {&shares, "{a: {b: -0.5}}", "'a.b' must be a share in (0,1], or bytes with a unit (8000MB), got -0.5"},
    {&shares, "{a: {b: 1.01}}", "'a.b' must be a share in (0,1], or bytes with a unit (8000MB), got 1.01"},
    {&shares, "{a: {b: 8000}}", "'a.b' must be a share in (0,1], or bytes with a unit (8000MB), got 8000"},
    {&shares, "{a: {b: 0MB}}", "'a.b' must be a share in (0,1], or bytes with a unit (8000MB), got 0MB"},
    {&shares, "{a: {b: -1GB}}", "'a.b' must be a share in (0,1], or bytes with a unit (8000MB), got -1GB"},
    {&shares, "{a: {b: 0.5B}}", "'a.b' must be a share in (0,1], or bytes with a unit (8000MB), got 0.5B"},
    {&shares, "{a: {b: 9e18GB}}", "'a.b' must be a share in (0,1], or bytes with a unit (8000MB), got 9e18GB"},
    {&shares, "{a: {b: 8 parsecs}}", "'a.b' must be a share in (0,1], or bytes with a unit (8000MB), got 8 parsecs"},
    {&shares, "{a: {b: half}}", "'a.b' must be a share in (0,1], or bytes with a unit (8000MB), got half"},
    {&shares, "{a: {b: nan}}", "'a.b' must be a share in (0,1], or bytes with a unit (8000MB), got nan"},
    {&shares, "{a: {b: ''}}", "'a.b' must be a share in (0,1], or bytes with a unit (8000MB), got the string ''"},
    {&shares, "{a: {b: '0.5'}}", "'a.b' must be a share in (0,1], or bytes with a unit (8000MB), got the string '0.5'"},
    {&shares, "{a: {b: null}}", "'a.b' must be a share in (0,1], or bytes with a unit (8000MB), got null"},
    {&shares, "{a: {b: {c: 1}}}", "'a.b' must be a share in (0,1], or bytes with a unit (8000MB), got a map"},
};

static void errors_of_types(void **state)
{
  brim_text problem = {0};
  for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
    all out, before;
    memset(&out, 0x5a, sizeof out);
    memcpy(&before, &out, sizeof out);
    assert_int_equal(parse(refused[i].row, refused[i].yaml, &out, &problem), BRIM_ECONFIG);
    assert_string_equal(problem.s, refused[i].want);
    assert_memory_equal(&out, &before, sizeof out); /* an error leaves it unchanged */
  }
  brim_text_release(&problem);
}

static void a_set_is_all_none_or_names_in_any_order(void **state)
{
  assert_int_equal(accept(&set, "all").size, 7);
  assert_int_equal(accept(&set, "none").size, 0);
  assert_int_equal(accept(&set, "[]").size, 0);
  assert_int_equal(accept(&set, "blue").size, 4);
  assert_int_equal(accept(&set, "[blue, red, blue]").size, 5);
  const brim_param names = BRIM_PARAM(SET, all, size, "[a, b]", "a|b", ""), table[] = {names, BRIM_PARAMS_END};
  assert_int_equal(brim_value_default(&names, &arena)->kind, BRIM_YAML_LIST);
  assert_int_equal(brim_value_check_table(table, sizeof(all)), BRIM_OK);
}

static void defaults_are_nodes_of_their_own_origin(void **state)
{
  const brim_yaml *node = brim_value_default(&list_in, &arena);
  assert_int_equal(node->kind, BRIM_YAML_LIST);
  assert_string_equal(node->origin.file, "default");
  assert_int_equal(node->item[0]->origin.line, 0);
  node = brim_value_default(&text, &arena);
  assert_true(node->quoted); /* the empty string, not null */
  assert_false(brim_yaml_is_null(node));
  assert_false(brim_value_default(&choice, &arena)->quoted);
  const brim_param required = BRIM_PARAM(I64, all, count, NULL, NULL, "");
  assert_null(brim_value_default(&required, &arena));
}

static void a_good_table_passes(void **state)
{
  const brim_param table[] = {flag,
                              count_in,
                              number,
                              size,
                              size_mb,
                              seconds,
                              minutes,
                              text,
                              path,
                              choice,
                              list_in,
                              shares,
                              {"a.b", BRIM_I64, 8, offsetof(all, count), NULL, NULL, ""},
                              BRIM_PARAMS_END};
  if (brim_value_check_table(table, sizeof(all)) != BRIM_OK) fail_msg("%s", brim_error_text());
  assert_int_equal(brim_value_check_table(NULL, 0), BRIM_OK);
}

static const struct {
  brim_param row;
  const char *want;
} bad_rows[] = {
    {{"", BRIM_I64, 8, 0, "1", NULL, ""}, "parameter '': a key is 1 to 100 of [a-z0-9_.], and not 'id'"},
    {{"Width", BRIM_I64, 8, 0, "1", NULL, ""}, "parameter 'Width': a key is 1 to 100 of [a-z0-9_.], and not 'id'"},
    {{"a..b", BRIM_I64, 8, 0, "1", NULL, ""}, "parameter 'a..b': a key is 1 to 100 of [a-z0-9_.], and not 'id'"},
    {{"id", BRIM_I64, 8, 0, "1", NULL, ""}, "parameter 'id': a key is 1 to 100 of [a-z0-9_.], and not 'id'"},
    {{"first", BRIM_I64, 8, 0, "1", NULL, ""}, "parameter 'first' clashes with 'first' before it"},
    {{"first.x", BRIM_I64, 8, 0, "1", NULL, ""}, "parameter 'first.x' clashes with 'first' before it"},
    {{"a", 0, 8, 0, "1", NULL, ""}, "parameter 'a': unknown type 0"},
    {{"a", 99, 8, 0, "1", NULL, ""}, "parameter 'a': unknown type 99"},
    {{"a", BRIM_I64, 4, 0, "1", NULL, ""}, "parameter 'a': a field of type integer is 8 bytes wide, not 4"},
    {{"a", BRIM_I64, 8, sizeof(all), "1", NULL, ""},
     "parameter 'a': its field at offset 112 lies outside the struct of 112 bytes"},
    {{"a", BRIM_I64, 8, (size_t)-8, "1", NULL, ""},
     "parameter 'a': its field at offset 18446744073709551608 lies outside the struct of 112 bytes"},
    {{"a", BRIM_I64, 8, 4, "1", NULL, ""}, "parameter 'a': offset 4 is not aligned for type integer"},
    {{"a", BRIM_I64, 8, 0, "1", NULL, NULL}, "parameter 'a' has no help"},
    {{"a", BRIM_I64, 8, 0, "1", "1..5", ""},
     "parameter 'a': cannot read range \"1..5\"; write \"[1,64]\", \"(0,1]\" or \"[0,inf)\""},
    {{"a", BRIM_I64, 8, 0, "1", "[5,1]", ""},
     "parameter 'a': cannot read range \"[5,1]\"; write \"[1,64]\", \"(0,1]\" or \"[0,inf)\""},
    {{"a", BRIM_ENUM, 4, 0, "x", NULL, ""}, "parameter 'a': an enum needs its names in range, such as \"ring|tree\""},
    {{"a", BRIM_ENUM, 4, 0, "x", "x||y", ""}, "parameter 'a': an enum needs its names in range, such as \"ring|tree\""},
    {{"a", BRIM_BOOL, 1, 0, "true", "[0,1]", ""}, "parameter 'a': type boolean has no range"},
    {{"a", BRIM_I64, 8, 0, "x", NULL, ""}, "parameter 'a': its default must be an integer, got x"},
    {{"a", BRIM_I64, 8, 0, "9", "[1,5]", ""}, "parameter 'a': its default must be in [1,5], got 9"},
    {{"a", BRIM_ENUM, 4, 0, "z", "x|y", ""}, "parameter 'a': its default must be one of x|y, got z"},
    {{"a", BRIM_LIST, sizeof(brim_list), 0, "[1", NULL, ""}, "parameter 'a': cannot read default \"[1\""},
    {{"a", BRIM_I64, 8, 0, "1", "auto|[-1,64]", ""},
     "parameter 'a': cannot read range \"auto|[-1,64]\"; write \"[1,64]\", \"(0,1]\" or \"[0,inf)\""},
    {{"a", BRIM_I64, 8, 0, "1", "auto|[-5,64]", ""},
     "parameter 'a': cannot read range \"auto|[-5,64]\"; write \"[1,64]\", \"(0,1]\" or \"[0,inf)\""},
    {{"a", BRIM_I64, 8, 0, "1", "auto|(-1,64]", ""},
     "parameter 'a': cannot read range \"auto|(-1,64]\"; write \"[1,64]\", \"(0,1]\" or \"[0,inf)\""},
    {{"a", BRIM_I64, 8, 0, "1", "auto|(-inf,64]", ""},
     "parameter 'a': cannot read range \"auto|(-inf,64]\"; write \"[1,64]\", \"(0,1]\" or \"[0,inf)\""},
    {{"a", BRIM_I64, 8, 0, "1", "auto|", ""},
     "parameter 'a': cannot read range \"auto|\"; write \"[1,64]\", \"(0,1]\" or \"[0,inf)\""},
    {{"a", BRIM_I64, 8, 0, "1", "auto", ""},
     "parameter 'a': cannot read range \"auto\"; write \"[1,64]\", \"(0,1]\" or \"[0,inf)\""},
    {{"a", BRIM_I64, 8, 0, "1", "auto|x|[1,64]", ""},
     "parameter 'a': cannot read range \"auto|x|[1,64]\"; write \"[1,64]\", \"(0,1]\" or \"[0,inf)\""},
    {{"a", BRIM_I64, 8, 0, "1", "[1,64]|auto", ""},
     "parameter 'a': cannot read range \"[1,64]|auto\"; write \"[1,64]\", \"(0,1]\" or \"[0,inf)\""},
    {{"a", BRIM_F64, 8, 0, "1", "auto|[0,1]", ""},
     "parameter 'a': cannot read range \"auto|[0,1]\"; write \"[1,64]\", \"(0,1]\" or \"[0,inf)\""},
    {{"a", BRIM_BYTES, 8, 0, "1", "auto|(-inf,64]", ""},
     "parameter 'a': cannot read range \"auto|(-inf,64]\"; write \"[1,64]\", \"(0,1]\" or \"[0,inf)\""},
    {{"a", BRIM_SECONDS, 8, 0, "1", "auto|[0,64]", ""},
     "parameter 'a': cannot read range \"auto|[0,64]\"; write \"[1,64]\", \"(0,1]\" or \"[0,inf)\""},
    {{"a", BRIM_LIST, sizeof(brim_list), 0, "[1]", "auto|[0,64]", ""},
     "parameter 'a': cannot read range \"auto|[0,64]\"; write \"[1,64]\", \"(0,1]\" or \"[0,inf)\""},
    {{"a", BRIM_STR, 8, 0, "x", "auto|[0,1]", ""}, "parameter 'a': type string has no range"},
    {{"a", BRIM_I64, 8, 0, "of", "auto|[0,1]", ""}, "parameter 'a': its default must be auto or an integer, got of"},
    {{"a", BRIM_SHARES, sizeof(brim_shares), 0, "{}", "[0,1]", ""}, "parameter 'a': type shares has no range"},
    {{"a", BRIM_SHARES, 8, 0, "{}", NULL, ""}, "parameter 'a': a field of type shares is 16 bytes wide, not 8"},
    {{"a", BRIM_SHARES, sizeof(brim_shares), 0, "{a: 1}", NULL, ""},
     "parameter 'a': its default 'a' must be a map of names to shares, got 1"},
};

static void a_wrong_row_is_named(void **state)
{
  assert_int_equal(sizeof(all), 112); /* the messages above contain this size */
  for (size_t i = 0; i < sizeof bad_rows / sizeof bad_rows[0]; i++) {
    const brim_param table[] = {
        {"first", BRIM_I64, 8, offsetof(all, count), "1", NULL, ""}, bad_rows[i].row, BRIM_PARAMS_END};
    assert_int_equal(brim_value_check_table(table, sizeof(all)), BRIM_EINVAL);
    assert_string_equal(brim_error_text(), bad_rows[i].want);
  }
}

static void types_have_names(void **state)
{
  assert_string_equal(brim_value_type_name(BRIM_I64), "integer");
  assert_string_equal(brim_value_type_name(BRIM_LIST), "list");
  assert_string_equal(brim_value_type_name(BRIM_SHARES), "shares");
  assert_string_equal(brim_value_type_name(0), "unknown");
  assert_string_equal(brim_value_type_name(1000), "unknown");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(booleans_are_true_and_false_only, release),
      cmocka_unit_test_teardown(integers_are_decimal_hexadecimal_and_octal, release),
      cmocka_unit_test_teardown(numbers_are_those_of_the_core_schema, release),
      cmocka_unit_test_teardown(sizes_take_units, release),
      cmocka_unit_test_teardown(times_take_units, release),
      cmocka_unit_test_teardown(strings_are_any_scalar, release),
      cmocka_unit_test_teardown(enums_are_indices_of_their_names, release),
      cmocka_unit_test_teardown(names_are_strings, release),
      cmocka_unit_test_teardown(lists_are_of_numbers, release),
      cmocka_unit_test_teardown(a_range_may_begin_with_a_name, release),
      cmocka_unit_test_teardown(shares_are_fractions_or_bytes_with_a_unit, release),
      cmocka_unit_test_teardown(errors_of_types, release),
      cmocka_unit_test_teardown(a_set_is_all_none_or_names_in_any_order, release),
      cmocka_unit_test_teardown(defaults_are_nodes_of_their_own_origin, release),
      cmocka_unit_test_teardown(a_good_table_passes, release),
      cmocka_unit_test_teardown(a_wrong_row_is_named, release),
      cmocka_unit_test_teardown(types_have_names, release),
  };
  return cmocka_run_group_tests_name("value", tests, NULL, NULL);
}
