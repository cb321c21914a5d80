/* Tests YAML: values and their positions, errors and their positions, and that printed text reads back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "param/yaml.h"
#include "scratch.h"

static brim_arena arena;

static int release(void **state)
{
  brim_arena_release(&arena);
  return 0;
}

static brim_yaml *parse(const char *text)
{
  brim_yaml *node = NULL;
  if (brim_yaml_parse(&arena, text, strlen(text), "f.yaml", &node) != BRIM_OK)
    fail_msg("%s\n%s", text, brim_error_text());
  return node;
}

static void check_refused(const char *text, size_t bytes, const char *want)
{
  brim_yaml *node = NULL;
  assert_int_equal(brim_yaml_parse(&arena, text, bytes, "f.yaml", &node), BRIM_ECONFIG);
  assert_string_equal(brim_error_text(), want);
}

static void check_at(const brim_yaml *root, const char *path, const char *scalar, int line, int column)
{
  const brim_yaml *node = brim_yaml_get_path(root, path);
  if (!node) fail_msg("no %s", path);
  if (node->kind == BRIM_YAML_SCALAR) assert_string_equal(node->scalar, scalar);
  if (node->origin.line != line || node->origin.column != column)
    fail_msg("%s stands at %d:%d", path, node->origin.line, node->origin.column);
  assert_string_equal(node->origin.file, "f.yaml");
}

static void every_node_knows_its_position(void **state)
{
  const brim_yaml *root = parse("# first\na: 1\nbb:\n  c: [x, 'y']\n  d:\n    - e: 2\n    - |\n      text\nf:\n"
                                "\xc3\xbc\xc3\xbc: \"z\"\n");
  check_at(root, "a", "1", 2, 4);
  check_at(root, "bb", "", 4, 3);
  check_at(root, "bb.c", "", 4, 6);
  check_at(root, "bb.c.1", "y", 4, 10);
  check_at(root, "bb.d.0.e", "2", 6, 10);
  check_at(root, "bb.d.1", "text\n", 7, 7);
  check_at(root, "f", "", 9, 3);
  check_at(root, "\xc3\xbc\xc3\xbc", "z", 10, 5); /* columns count characters, not bytes */
  const brim_yaml *bb = brim_yaml_get(root, "bb");
  assert_int_equal(bb->key_line, 3);
  assert_int_equal(bb->key_column, 1);
  assert_int_equal(brim_yaml_key_origin(bb).line, 3);
}

static void a_byte_order_mark_is_skipped(void **state)
{
  const brim_yaml *root = parse("\xef\xbb\xbf"
                                "a: 1\nb:\n  c: 2\n");
  check_at(root, "a", "1", 1, 4);
  check_at(root, "b.c", "2", 3, 6);
  check_refused("\xef\xbb\xbf"
                "a: 1\na: 2\n",
                13, "duplicate key 'a' (first in line 1)\n  f.yaml:2:1");
}

static void quotes_are_remembered(void **state)
{
  const brim_yaml *root = parse("a: x\nb: 'x'\nc: \"x\"\nd: |\n  x\ne: >\n  x\n");
  assert_false(brim_yaml_get(root, "a")->quoted);
  for (const char *key = "b\0c\0d\0e\0"; *key; key += 2) assert_true(brim_yaml_get(root, key)->quoted);
}

static void null_is_unquoted_null_tilde_or_nothing(void **state)
{
  const brim_yaml *root = parse("[null, ~, Null, NULL, 'null', '', \"~\", nul, 0, no]");
  for (size_t i = 0; i < root->count; i++) assert_int_equal(brim_yaml_is_null(root->item[i]), i < 4);
  assert_true(brim_yaml_is_null(brim_yaml_get(parse("a:"), "a")));
  assert_true(brim_yaml_is_null(parse("")));
  assert_true(brim_yaml_is_null(parse("# nothing\n\n")));
  assert_false(brim_yaml_is_null(parse("[]")));
}

static void aliases_are_copies(void **state)
{
  brim_yaml *root = parse("a: &x {b: 1}\nc: *x\nd: &x 2\ne: *x\n");
  brim_yaml_set(&arena, brim_yaml_get(root, "c"), "b", brim_yaml_scalar(&arena, "9", (brim_yaml_origin){0}));
  assert_string_equal(brim_yaml_get_path(root, "a.b")->scalar, "1");
  assert_string_equal(brim_yaml_get_path(root, "c.b")->scalar, "9");
  assert_string_equal(brim_yaml_get_path(root, "e")->scalar, "2");
}

/* Texts, and the errors for them. */
static const struct {
  const char *text, *want;
} refused[] = {
    {"a: 1\nb: 2\na: 3\n", "duplicate key 'a' (first in line 1)\n  f.yaml:3:1"},
    {"x:\n  - {k: 1, k: 2}\n", "duplicate key 'k' (first in line 2)\n  f.yaml:2:12"},
    {"a: 1\n'a': 2\n", "duplicate key 'a' (first in line 1)\n  f.yaml:2:1"},
    {"a: &x {b: 1}\nc:\n  <<: *x\n",
     "merge keys '<<' are not supported: name the file in the defaults list instead\n  f.yaml:3:3"},
    {"a: &x\n  b: [1, *x]\n", "recursive alias '*x': it is inside its own anchor\n  f.yaml:2:10"},
    {"a: *y\n", "alias '*y' has no anchor '&y' before it\n  f.yaml:1:4"},
    {"? [a, b]\n: 1\n", "a key must be a scalar\n  f.yaml:1:3"},
    {"? {a: b}\n: 1\n", "a key must be a scalar\n  f.yaml:1:3"},
    {"a: &x 1\n*x : 2\n", "a key must be a scalar\n  f.yaml:2:1"},
    {"&x a: 1\n", "a key cannot have a tag or an anchor\n  f.yaml:1:1"},
    {"!!str a: 1\n", "a key cannot have a tag or an anchor\n  f.yaml:1:1"},
    {"?\n: 1\n", "a key is empty\n  f.yaml:1:2"},
    {"'': 1\n", "a key is empty\n  f.yaml:1:1"},
    {"a: !!str 1\n",
     "tags ('tag:yaml.org,2002:str') are not supported: quote a value to make it a string\n  f.yaml:1:4"},
    {"a: !x [1]\n", "tags ('!x') are not supported: quote a value to make it a string\n  f.yaml:1:4"},
    {"a: 1\n---\nb: 2\n", "several documents in one file: only one is allowed\n  f.yaml:2:1"},
    {"a: \"x\\0y\"\n", "a value holds the character NUL\n  f.yaml:1:4"},
    {"\"x\\0y\": 1\n", "a key holds the character NUL\n  f.yaml:1:1"},
    {"a: [1, 2\nb: 3\n", "not valid YAML: did not find expected ',' or ']' while parsing a flow sequence\n"
                         "  f.yaml:2:2"},
    {"a:\n\tb: 1\n", "a tab: in YAML, lines are indented with spaces\n"
                     "  f.yaml:2:1"},
    {"a: b: c\n", "not valid YAML: mapping values are not allowed in this context\n  f.yaml:1:5"},
    {"a: 'x\n", "not valid YAML: found unexpected end of stream while scanning a quoted scalar\n  f.yaml:2:1"},
    {"ok: 1\nbad: \xc3\x28\n", "not valid UTF-8: byte 0xc3\n  f.yaml:2:6"},
    {"\xc3\xbc: \xff\n", "not valid UTF-8: byte 0xff\n  f.yaml:1:4"},
    {"a: \xc0\xaf\n", "not valid UTF-8: byte 0xc0\n  f.yaml:1:4"},         /* overlong */
    {"a: \xe0\x80\xaf\n", "not valid UTF-8: byte 0xe0\n  f.yaml:1:4"},     /* overlong */
    {"a: \xed\xa0\x80\n", "not valid UTF-8: byte 0xed\n  f.yaml:1:4"},     /* a surrogate */
    {"a: \xf4\x90\x80\x80\n", "not valid UTF-8: byte 0xf4\n  f.yaml:1:4"}, /* above U+10FFFF */
    {"a: \xe2\x82", "not valid UTF-8: byte 0xe2\n  f.yaml:1:4"},           /* cut off */
    {"\xff\xfe\x61\x00", "not valid UTF-8: byte 0xff\n  f.yaml:1:1"},      /* UTF-16 */
    {"a: \x01\n", "control character U+0001\n  f.yaml:1:4"},
    {"a: b\r\nc: \x7f\n", "control character U+007F\n  f.yaml:2:4"},
    {"a: \xc2\x9f\n", "control character U+009F\n  f.yaml:1:4"},
};

static void errors_have_positions(void **state)
{
  for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
    check_refused(refused[i].text, strlen(refused[i].text), refused[i].want);
  check_refused("a: \0b\n", 6, "control character U+0000\n  f.yaml:1:4");
}

/* Appends `open` n times, `middle`, and `close` n times. */
static void nest(brim_text *text, const char *open, const char *middle, const char *close, int n)
{
  brim_text_clear(text);
  for (int i = 0; i < n; i++) brim_text_add(text, open);
  brim_text_add(text, middle);
  for (int i = 0; i < n; i++) brim_text_add(text, close);
}

static void nesting_goes_64_deep(void **state)
{
  brim_text text = {0};
  nest(&text, "[", "", "]", 64);
  parse(text.s);
  nest(&text, "[", "", "]", 65);
  check_refused(text.s, text.length, "nested deeper than 64\n  f.yaml:1:65");
  nest(&text, "{a: ", "1", "}", 64);
  parse(text.s);
  nest(&text, "[", "x", "]", 10000); /* reading must be fast and need little stack */
  check_refused(text.s, text.length, "nested deeper than 64\n  f.yaml:1:65");
  brim_text_clear(&text); /* an alias makes it deep */
  brim_text_add(&text, "a: &x ");
  for (int i = 0; i < 40; i++) brim_text_add(&text, "[");
  for (int i = 0; i < 40; i++) brim_text_add(&text, "]");
  brim_text_add(&text, "\nb: ");
  for (int i = 0; i < 23; i++) brim_text_add(&text, "[");
  brim_text clone = {0};
  brim_text_printf(&clone, "%s*x%.*s\n", text.s, 23, "]]]]]]]]]]]]]]]]]]]]]]]]]]");
  parse(clone.s);
  brim_text_clear(&clone);
  brim_text_printf(&clone, "%s[*x]%.*s\n", text.s, 23, "]]]]]]]]]]]]]]]]]]]]]]]]]]");
  check_refused(clone.s, clone.length, "nested deeper than 64\n  f.yaml:2:28");
  brim_text_release(&clone);
  brim_text_release(&text);
}

static void documents_hold_10000_nodes(void **state)
{
  brim_text text = {0};
  for (int i = 0; i < 9999; i++) brim_text_add(&text, "- 1\n"); /* the list is one node too */
  parse(text.s);
  brim_text_add(&text, "- 1\n");
  check_refused(text.s, text.length, "more than 10000 nodes\n  f.yaml:10000:3");
  brim_text_clear(&text);
  for (int i = 0; i < 5000; i++) brim_text_printf(&text, "k%d: 1\n", i); /* keys count as nodes */
  check_refused(text.s, text.length, "more than 10000 nodes\n  f.yaml:5000:8");
  brim_text_clear(&text); /* the attack "a billion laughs": aliases that expand exponentially */
  brim_text_add(&text, "a: &a [x, x, x, x, x, x, x, x, x]\n");
  for (int c = 'b'; c <= 'i'; c++)
    brim_text_printf(&text, "%c: &%c [*%c, *%c, *%c, *%c, *%c, *%c, *%c, *%c, *%c]\n", c, c, c - 1, c - 1, c - 1, c - 1,
                     c - 1, c - 1, c - 1, c - 1, c - 1);
  check_refused(text.s, text.length, "more than 10000 nodes\n  f.yaml:5:8");
  brim_text_release(&text);
}

static void keys_have_at_most_200_bytes(void **state)
{
  brim_text text = {0};
  nest(&text, "k", ": 1", "", 200);
  parse(text.s);
  nest(&text, "k", ": 1", "", 201);
  check_refused(text.s, text.length, "a key is longer than 200 bytes: it has 201\n  f.yaml:1:1");
  brim_text_release(&text);
}

static void files_hold_a_mebibyte(void **state)
{
  const char *path = scratch("large.yaml");
  char *text = malloc(BRIM_YAML_BYTES_MAX + 1);
  memset(text, ' ', BRIM_YAML_BYTES_MAX + 1);
  memcpy(text, "a: 1\n#", 6);
  scratch_write(path, text, BRIM_YAML_BYTES_MAX);
  brim_yaml *node = NULL;
  assert_int_equal(brim_yaml_parse_file(&arena, path, &node), BRIM_OK);
  scratch_write(path, text, BRIM_YAML_BYTES_MAX + 1);
  assert_int_equal(brim_yaml_parse_file(&arena, path, &node), BRIM_ECONFIG);
  assert_non_null(strstr(brim_error_text(), "larger than 1 MiB\n  "));
  free(text);
}

static void files_that_cannot_be_read_are_load_errors(void **state)
{
  brim_yaml *node = NULL;
  assert_int_equal(brim_yaml_parse_file(&arena, scratch("gone.yaml"), &node), BRIM_ELOAD);
  assert_non_null(strstr(brim_error_text(), "gone.yaml: No such file or directory"));
  assert_int_equal(brim_yaml_parse_file(&arena, scratch_root, &node), BRIM_ELOAD);
  assert_non_null(strstr(brim_error_text(), "it is a folder"));
}

static void values_of_words_have_the_words_origin(void **state)
{
  const brim_yaml_origin origin = {.file = "command line", .line = 3, .text = "l=[1, {a: 2}]"};
  brim_yaml *node = NULL;
  assert_int_equal(brim_yaml_parse_value(&arena, "[1, {a: 2}]", origin, &node), BRIM_OK);
  const brim_yaml *two = brim_yaml_get_path(node, "1.a");
  brim_text text = {0};
  brim_yaml_print_origin(&two->origin, &text);
  assert_string_equal(text.s, "command line, argument 3: l=[1, {a: 2}]");
  brim_text_release(&text);
  assert_int_equal(brim_yaml_parse_value(&arena, "{a: 1, a: 2}", origin, &node), BRIM_ECONFIG);
  assert_string_equal(brim_error_text(), "duplicate key 'a'\n  command line, argument 3: l=[1, {a: 2}]");
}

/* Texts, and how they are printed after reading. */
static const struct {
  const char *text, *want;
} printed[] = {
    {"a: 1\nb: {c: x, d: [1, 2], e: {}, f: [], g: }\n", "a: 1\nb:\n  c: x\n  d: [1, 2]\n  e: {}\n  f: []\n  g: null\n"},
    {"- a\n- [b, [c]]\n- {d: 1, e: {f: 2}}\n- [[[]]]\n", "- a\n- - b\n  - [c]\n- d: 1\n  e:\n    f: 2\n- - - []\n"},
    {"a: '1'\n", "a: \"1\"\n"},
    {"a: ''\n", "a: \"\"\n"},
    {"a: 'null'\n", "a: \"null\"\n"},
    {"a: x y\n", "a: \"x y\"\n"},
    {"a: http://b.c:80/d?e\n", "a: \"http://b.c:80/d?e\"\n"},
    {"a: /usr/share/x-y_z.1\n", "a: /usr/share/x-y_z.1\n"},
    {"a: -1e-4\n", "a: -1e-4\n"},
    {"a: \"\\t\\n\\r\\\\\\\"\\x01\\x7f\\u2028\\ufeff\\U0001F600\"\n",
     "a: \"\\t\\n\\x0d\\\\\\\"\\x01\\x7f\\u2028\\ufeff\xf0\x9f\x98\x80\"\n"},
    {"'<<': 1\n'a b': 2\n'#': 3\n", "\"<<\": 1\n\"a b\": 2\n\"#\": 3\n"},
    {"\"-\": -\"-\"\n", "\"-\": \"-\\\"-\\\"\"\n"},
    {"a: '---'\nb: ...x\n", "a: \"---\"\nb: \"...x\"\n"},
    {"plain", "plain\n"},
    {"", "null\n"},
};

static void printed_text_reads_back(void **state)
{
  for (size_t i = 0; i < sizeof printed / sizeof printed[0]; i++) {
    brim_text once = {0}, twice = {0};
    brim_yaml_print(parse(printed[i].text), &once, false);
    assert_string_equal(once.s, printed[i].want);
    brim_yaml_print(parse(once.s), &twice, false);
    assert_string_equal(once.s, twice.s);
    brim_text_release(&once);
    brim_text_release(&twice);
  }
}

static void origins_are_comments(void **state)
{
  brim_yaml *root = parse("a: 1\nb:\n  c: [2, 3]\n");
  const brim_yaml_origin word = {.file = "command line", .line = 2, .text = "d=x\ny\xff\xc2\x85"};
  brim_yaml_set(&arena, root, "d", brim_yaml_scalar(&arena, "x\ny", word));
  brim_text text = {0};
  brim_yaml_print(root, &text, true);
  assert_string_equal(text.s, "a: 1  # f.yaml:1:4\nb:\n  c: [2, 3]  # f.yaml:3:6\n"
                              "d: \"x\\ny\"  # command line, argument 2: d=x?y??\n");
  const brim_yaml *again = parse(text.s);
  assert_string_equal(brim_yaml_get(again, "d")->scalar, "x\ny");
  brim_text_release(&text);
}

static void maps_change_in_order(void **state)
{
  brim_yaml *root = parse("{a: 1, b: 2, c: 3}");
  assert_true(brim_yaml_remove(root, "b"));
  assert_false(brim_yaml_remove(root, "b"));
  for (int i = 0; i < 20; i++) {
    char key[16];
    snprintf(key, sizeof key, "k%d", i);
    brim_yaml_set(&arena, root, key, brim_yaml_scalar(&arena, key, (brim_yaml_origin){0}));
  }
  brim_yaml_set(&arena, root, "a", brim_yaml_scalar(&arena, "9", (brim_yaml_origin){0}));
  assert_int_equal(root->count, 22);
  assert_string_equal(root->key[0], "a");
  assert_string_equal(root->item[0]->scalar, "9");
  assert_string_equal(root->key[1], "c");
  assert_string_equal(root->key[21], "k19");
  assert_null(brim_yaml_get(root, "b"));
  assert_null(brim_yaml_get_path(root, "a.x"));
  assert_null(brim_yaml_get_path(parse("[1]"), "1"));
  assert_null(brim_yaml_get_path(parse("[1]"), "-1"));
  assert_null(brim_yaml_get_path(parse("[1]"), "99999999999999999999"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(every_node_knows_its_position, release),
      cmocka_unit_test_teardown(a_byte_order_mark_is_skipped, release),
      cmocka_unit_test_teardown(quotes_are_remembered, release),
      cmocka_unit_test_teardown(null_is_unquoted_null_tilde_or_nothing, release),
      cmocka_unit_test_teardown(aliases_are_copies, release),
      cmocka_unit_test_teardown(errors_have_positions, release),
      cmocka_unit_test_teardown(nesting_goes_64_deep, release),
      cmocka_unit_test_teardown(documents_hold_10000_nodes, release),
      cmocka_unit_test_teardown(keys_have_at_most_200_bytes, release),
      cmocka_unit_test_teardown(files_hold_a_mebibyte, release),
      cmocka_unit_test_teardown(files_that_cannot_be_read_are_load_errors, release),
      cmocka_unit_test_teardown(values_of_words_have_the_words_origin, release),
      cmocka_unit_test_teardown(printed_text_reads_back, release),
      cmocka_unit_test_teardown(origins_are_comments, release),
      cmocka_unit_test_teardown(maps_change_in_order, release),
  };
  return cmocka_run_group_tests_name("yaml", tests, scratch_setup, scratch_teardown);
}
