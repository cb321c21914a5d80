/* Tests tokenizers: the ids of GPT-2's byte-pair encoding are those of OpenAI's encoder (tests/golden/make_bpe.py),
 * from either kind of files, the others those of the package tokenizers (tests/golden/make_tokenizers.py); errors in
 * files are reported. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "scratch.h"
#include "tokenizer.h"
#include "train/stop.h"
#include "unit/dataset_plugin.h"

#define GOLDEN BRIM_TESTS_DIR "/golden/bpe"
#define IDS_MAX 4096

typedef struct taken {
  int32_t id[IDS_MAX];
  size_t count;
} taken;

static brim_status take(void *context, const int32_t *tokens, size_t count)
{
  taken *t = context;
  assert_true(t->count + count <= IDS_MAX);
  memcpy(t->id + t->count, tokens, count * sizeof *tokens);
  t->count += count;
  return BRIM_OK;
}

static tokenizer *open_tokenizer(const char *path)
{
  tokenizer *b = NULL;
  if (tokenizer_open(path, false, &b) != BRIM_OK) fail_msg("%s", brim_error_text());
  return b;
}

static void encode(const tokenizer *b, const char *text, size_t bytes, taken *out)
{
  out->count = 0;
  if (tokenizer_encode(b, "a text", text, bytes, TOKENIZER_PLAIN, take, out) != BRIM_OK)
    fail_msg("%s", brim_error_text());
}

/* ---- ids ---- */

static void check_case(const tokenizer *b, size_t number, const char *text, size_t bytes, const json_t *ids)
{
  static taken got;
  encode(b, text, bytes, &got);
  bool same = got.count == json_array_size(ids);
  for (size_t i = 0; i < got.count && same; i++) same = got.id[i] == json_integer_value(json_array_get(ids, i));
  if (!same) fail_msg("case %zu, '%s': other ids than OpenAI's encoder gives", number, text);
}

/* Checks that the bytes of the tokens are the text. */
static void check_text(const tokenizer *b, const char *text, size_t bytes)
{
  static taken got;
  static char back[IDS_MAX];
  size_t used = 0;
  encode(b, text, bytes, &got);
  for (size_t i = 0; i < got.count; i++) {
    size_t count = 0;
    const char *part = tokenizer_piece(b, got.id[i], &count);
    assert_true(count > 0 && used + count <= sizeof back);
    memcpy(back + used, part, count);
    used += count;
  }
  assert_int_equal(used, bytes);
  assert_memory_equal(back, text, bytes);
}

static void check_cases(const char *path)
{
  tokenizer *b = open_tokenizer(path);
  size_t number;
  json_t *entry, *cases = json_load_file(GOLDEN "/cases.json", JSON_ALLOW_NUL, NULL);
  assert_true(json_array_size(cases) > 200);
  json_array_foreach(cases, number, entry)
  {
    const json_t *text = json_object_get(entry, "text");
    check_case(b, number, json_string_value(text), json_string_length(text), json_object_get(entry, "ids"));
    check_text(b, json_string_value(text), json_string_length(text));
  }
  json_decref(cases);
  tokenizer_free(b);
}

static void ids_are_those_of_openais_encoder(void **state)
{
  check_cases(GOLDEN); /* vocab.json and merges.txt are preferred to tokenizer.json */
}

static void a_tokenizer_json_gives_the_same_ids(void **state)
{
  check_cases(GOLDEN "/tokenizer.json");
}

static void copy(const char *from, const char *to)
{
  size_t bytes = 0;
  char *text = scratch_read(from, &bytes);
  scratch_write(to, text, bytes);
  free(text);
}

static void openais_names_are_found(void **state)
{
  mkdir(scratch("openai"), 0755);
  copy(GOLDEN "/vocab.json", scratch("openai/encoder.json"));
  copy(GOLDEN "/merges.txt", scratch("openai/vocab.bpe"));
  check_cases(scratch("openai"));
}

static void pairs_may_be_lists(void **state)
{
  json_t *root = json_load_file(GOLDEN "/tokenizer.json", 0, NULL), *pair;
  json_t *merges = json_object_get(json_object_get(root, "model"), "merges");
  size_t i;
  json_array_foreach(merges, i, pair)
  {
    const char *text = json_string_value(pair), *space = strchr(text, ' ');
    json_array_set_new(merges, i, json_pack("[s%, s]", text, (size_t)(space - text), space + 1));
  }
  assert_int_equal(json_dump_file(root, scratch("lists.json"), 0), 0);
  json_decref(root);
  check_cases(scratch("lists.json"));
}

static void the_vocabulary_follows_from_the_files(void **state)
{
  tokenizer *hugging = open_tokenizer(GOLDEN), *other = open_tokenizer(GOLDEN "/tokenizer.json");
  json_t *ids = json_load_file(GOLDEN "/vocab.json", 0, NULL);
  const json_int_t end = json_integer_value(json_object_get(ids, "<|endoftext|>"));
  size_t bytes = 0;
  assert_int_equal(tokenizer_rows(hugging), json_object_size(ids));
  assert_int_equal(tokenizer_rows(other), json_object_size(ids));
  assert_int_equal(tokenizer_end_of_text(hugging), end);
  assert_int_equal(tokenizer_end_of_text(other), end);
  assert_memory_equal(tokenizer_piece(other, (int32_t)end, &bytes), "<|endoftext|>", 13);
  assert_int_equal(bytes, 13);
  tokenizer_piece(hugging, (int32_t)tokenizer_rows(hugging), &bytes);
  assert_int_equal(bytes, 0);
  assert_true(tokenizer_hash(hugging) != tokenizer_hash(other));
  json_decref(ids);
  tokenizer_free(hugging);
  tokenizer_free(other);
}

/* ---- the other kinds of tokenizers ---- */

static void check_ids(const tokenizer *t, const char *name, size_t number, const json_t *text, const json_t *ids,
                      unsigned flags)
{
  static taken got;
  got.count = 0;
  if (tokenizer_encode(t, "a text", json_string_value(text), json_string_length(text), flags, take, &got) != BRIM_OK)
    fail_msg("%s", brim_error_text());
  bool same = got.count == json_array_size(ids);
  for (size_t i = 0; i < got.count && same; i++) same = got.id[i] == json_integer_value(json_array_get(ids, i));
  if (same) return;
  for (size_t i = 0; i < got.count; i++) print_error("%d ", (int)got.id[i]);
  fail_msg("%s, case %zu, '%s': other ids than the package tokenizers gives", name, number, json_string_value(text));
}

static bool same_but_for_spaces(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
  for (size_t i = 0, j = 0;; i++, j++) {
    while (i < a_bytes && a[i] == ' ') i++;
    while (j < b_bytes && b[j] == ' ') j++;
    if (i == a_bytes || j == b_bytes) return i == a_bytes && j == b_bytes;
    if (a[i] != b[j]) return false;
  }
}

/* The texts of tokens, one after the other, equal the text that the package decodes. It strips spaces at the start of
 * a text, and puts them between the tokens of a tokenizer that has no decoder. Texts in which it replaced bytes that
 * are not a character are left out. */
static void check_pieces(const tokenizer *t, const char *name, size_t number, const json_t *ids, const json_t *text)
{
  static char all[8 * IDS_MAX];
  const char *want = json_string_value(text);
  const size_t length = json_string_length(text);
  size_t used = 0, bytes = 0;
  if (strstr(want, "\xef\xbf\xbd")) return;
  for (size_t i = 0; i < json_array_size(ids); i++) {
    const int32_t id = (int32_t)json_integer_value(json_array_get(ids, i));
    const char *piece = tokenizer_piece(t, id, &bytes);
    if (tokenizer_is_special(t, id)) continue;
    assert_true(used + bytes < sizeof all);
    memcpy(all + used, piece, bytes);
    used += bytes;
  }
  const bool exact = strcmp(name, "llama2") == 0 || strcmp(name, "llama3") == 0 || strcmp(name, "fused") == 0;
  const size_t from = used == length + 1 && all[0] == ' ';
  if (exact ? used - from == length && memcmp(all + from, want, length) == 0
            : same_but_for_spaces(all, used, want, length))
    return;
  fail_msg("%s, case %zu: ids decode to '%.*s', not to '%s'", name, number, (int)used, all, want);
}

static void check_kind(const char *name, const json_t *cases)
{
  char path[256];
  size_t number;
  json_t *entry;
  snprintf(path, sizeof path, BRIM_TESTS_DIR "/golden/tokenizers/%s.json", name);
  tokenizer *t = open_tokenizer(path);
  json_array_foreach(cases, number, entry)
  {
    const json_t *text = json_array_get(entry, 0), *ids = json_array_get(entry, 1), *back = json_array_get(entry, 3);
    check_ids(t, name, number, text, ids, 0);
    check_ids(t, name, number, text, json_array_get(entry, 2), TOKENIZER_TEMPLATE);
    check_pieces(t, name, number, ids, back);
  }
  tokenizer_free(t);
}

static void ids_and_texts_are_those_of_the_package_tokenizers(void **state)
{
  const char *name;
  json_t *list, *cases = json_load_file(BRIM_TESTS_DIR "/golden/tokenizers/cases.json", JSON_ALLOW_NUL, NULL);
  assert_true(json_object_size(cases) > 15);
  json_object_foreach(cases, name, list) check_kind(name, list);
  json_decref(cases);
}

static void the_end_of_text_is_that_of_the_configuration(void **state)
{
  mkdir(scratch("eos"), 0755);
  copy(BRIM_TESTS_DIR "/golden/tokenizers/llama3.json", scratch("eos/tokenizer.json"));
  tokenizer *t = open_tokenizer(scratch("eos"));
  assert_int_equal(tokenizer_end_of_text(t), tokenizer_id(t, "<|end_of_text|>", 15));
  assert_true(tokenizer_is_special(t, tokenizer_end_of_text(t)));
  tokenizer_free(t);
  scratch_put("eos/tokenizer_config.json",
              "{\"model_max_length\": 1000000000000000019884624838656, \"eos_token\": {\"content\": \"<|begin|>\"}}");
  t = open_tokenizer(scratch("eos/tokenizer.json"));
  assert_int_equal(tokenizer_end_of_text(t), tokenizer_id(t, "<|begin|>", 9));
  tokenizer_free(t);
  scratch_put("eos/tokenizer_config.json", "{\"eos_token\": \"none\"}");
  assert_int_equal(tokenizer_open(scratch("eos"), true, &t), BRIM_ELOAD);
  assert_non_null(strstr(brim_error_text(), "the eos_token is not in"));
}

/* Adds up the bytes of tokens. */
typedef struct sum {
  const tokenizer *b;
  size_t tokens, bytes;
} sum;

static brim_status add_up(void *context, const int32_t *tokens, size_t count)
{
  sum *s = context;
  for (size_t i = 0; i < count; i++) {
    size_t bytes = 0;
    tokenizer_piece(s->b, tokens[i], &bytes);
    s->bytes += bytes;
  }
  s->tokens += count;
  return BRIM_OK;
}

/* A quadratic algorithm would take far too long. */
static void a_million_letters_without_a_break_are_encoded(void **state)
{
  enum { BYTES = 1000000 };
  tokenizer *b = open_tokenizer(GOLDEN);
  char *text = malloc(BYTES);
  sum s = {.b = b};
  for (size_t i = 0; i < BYTES; i++) text[i] = "themory"[i * i % 7];
  assert_int_equal(tokenizer_encode(b, "a text", text, BYTES, 0, add_up, &s), BRIM_OK);
  assert_int_equal(s.bytes, BYTES);
  assert_in_range(s.tokens, BYTES / 8, BYTES);
  free(text);
  tokenizer_free(b);
}

static void invalid_utf8_is_refused_with_its_place(void **state)
{
  static const struct {
    const char *text;
    size_t bytes, at;
  } cases[] = {
      {"abc\xff", 4, 3}, {"\xc3", 1, 0}, {"a\xed\xa0\x80", 4, 1}, {"ab \xc0\x80", 5, 3}, {"x\xf4\x90\x80\x80", 5, 1}};
  tokenizer *b = open_tokenizer(GOLDEN);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    sum s = {.b = b};
    char expected[64];
    snprintf(expected, sizeof expected, "'a text' is not UTF-8 at byte %zu\n", cases[i].at);
    assert_int_equal(tokenizer_encode(b, "a text", cases[i].text, cases[i].bytes, 0, add_up, &s), BRIM_ELOAD);
    assert_non_null(strstr(brim_error_text(), expected));
  }
  tokenizer_free(b);
}

/* ---- errors in files ---- */

static void expect_error(const char *vocabulary, const char *merges, const char *text)
{
  tokenizer *b = NULL;
  const tokenizer_source v = {"V", vocabulary, strlen(vocabulary)},
                         m = {"M", merges ? merges : "", merges ? strlen(merges) : 0};
  if (tokenizer_build(&v, merges ? &m : NULL, NULL, &b) != BRIM_ELOAD) fail_msg("no error '%s'", text);
  assert_null(b);
  if (!strstr(brim_error_text(), text)) fail_msg("'%s' is not in '%s'", text, brim_error_text());
}

static void wrong_vocabularies_are_refused(void **state)
{
  expect_error("{", "", "'V': line 1, column 2: '\"' is needed here");
  expect_error("[]", "", "'V': line 1, column 1: '{' is needed here");
  expect_error("{}", "", "'V' has no tokens");
  expect_error("{\"a\": 0} 7", "", "'V': line 1, column 10: the end of the file is needed here");
  expect_error("{\n\"a\\q\": 0}", "", "'V': line 2, column 5: there is no such escape sequence");
  expect_error("{\"a\\ud800\": 0}", "", "there is no such escape sequence");
  expect_error("{\"a", "", "a text does not end");
  expect_error("{\"a\": \"b\"}", "", "'V': line 1, column 7: a number is needed here");
  expect_error("{\"\xff\": 1}", "", "'V' is not UTF-8 at byte 2");
  expect_error("{\"a\": -1}", "", "the id of token 'a' must be a whole number from 0 to 16777215");
  expect_error("{\"a\": 1.5}", "", "the id of token 'a' must be a whole number");
  expect_error("{\"a\": 16777216}", "", "the id of token 'a' must be a whole number");
  expect_error("{\"a\": 1000000}", "", "too many ids are unused");
  expect_error("{\"a\": 7, \"b\": 7}", "", "have the same id, 7");
  expect_error("{\"a\": 1, \"a\": 2}", "", "has token 'a' twice");
}

static void wrong_merges_are_refused_with_their_line(void **state)
{
  char *vocabulary = scratch_read(GOLDEN "/vocab.json", NULL);
  expect_error(vocabulary, "#version: 0.2\nh e\nhe\n", "'M', line 3: two tokens with a space between them are needed");
  expect_error(vocabulary, "h e\nh e l\n", "'M', line 2: there are more than two tokens");
  expect_error(vocabulary, "h e\n\nQQ e\n", "'M', line 3: the merged token is not in");
  expect_error(vocabulary, "h \n", "'M', line 1: two tokens with a space");
  expect_error(vocabulary, " h\n", "'M', line 1: two tokens with a space");
  char many[512]; /* more merges than are looked up together */
  for (int i = 0; i < 100; i++) snprintf(many + 4 * i, sizeof many - 4 * (size_t)i, "h e\n");
  snprintf(many + 400, sizeof many - 400, "QQ e\nh e\n");
  expect_error(vocabulary, many, "'M', line 101: the merged token is not in");
  free(vocabulary);
}

/* Expects an error for a tokenizer.json with one change. */
static void expect_tokenizer_error(const char *in, const char *key, const char *json, const char *text)
{
  json_t *root = json_load_file(GOLDEN "/tokenizer.json", 0, NULL);
  json_t *object = in ? json_object_get(root, in) : root, *value = json_loads(json, JSON_DECODE_ANY, NULL);
  assert_non_null(value);
  assert_int_equal(json_object_set_new(object, key, value), 0);
  char *changed = json_dumps(root, 0);
  expect_error(changed, NULL, text);
  free(changed);
  json_decref(root);
}

static void unknown_kinds_are_refused_by_name_and_place(void **state)
{
  static const char split[] = "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\"}, %s]}";
  static const struct {
    const char *step, *text;
  } steps[] = {
      {"{\"type\": \"BertPreTokenizer\"}", "'V', pre_tokenizer.pretokenizers[1]: type \"BertPreTokenizer\" is not"},
      {"{\"type\": \"Digits\", \"other\": 1}", "pretokenizers[1]: key \"other\" is not supported"},
      {"{\"type\": \"Digits\", \"individual_digits\": 1}", "\"individual_digits\" has a value of another type"},
      {"{\"type\": \"Split\", \"pattern\": {\"Regex\": \"a\\\\h\"}, \"behavior\": \"Removed\"}",
       "the regular expression \"a\\h\" has an escape sequence at byte 1"},
      {"{\"type\": \"Split\", \"pattern\": {\"Regex\": \"[a[b]]\"}, \"behavior\": \"Removed\"}",
       "has a class inside a class at byte 2"},
      {"{\"type\": \"Split\", \"pattern\": {\"Regex\": \"(?s:a)\"}, \"behavior\": \"Removed\"}",
       "a group of this kind"},
      {"{\"type\": \"Split\", \"pattern\": {\"Regex\": \"(?i:ss)\"}, \"behavior\": \"Removed\"}", "that ignore case"},
      {"{\"type\": \"Split\", \"pattern\": {\"Regex\": \"a{1,2}+\"}, \"behavior\": \"Removed\"}", "after a repetition"},
      {"{\"type\": \"Split\", \"pattern\": {\"Regex\": \"(\"}, \"behavior\": \"Removed\"}", "PCRE2 refuses"},
      {"{\"type\": \"Split\", \"pattern\": {\"Regex\": \"a\"}, \"behavior\": \"Other\"}", "\"behavior\" must be"},
      {"{\"type\": \"ByteLevel\"}, {\"type\": \"Digits\"}",
       "pretokenizers[2]: a step after ByteLevel is not supported"},
      {"{\"type\": \"Metaspace\", \"replacement\": \"ab\"}", "\"replacement\" must be one character"}};
  for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
    char json[512];
    snprintf(json, sizeof json, split, steps[i].step);
    expect_tokenizer_error(NULL, "pre_tokenizer", json, steps[i].text);
  }
  expect_tokenizer_error(NULL, "normalizer", "{\"type\": \"Precompiled\"}", "normalizer: type \"Precompiled\" is not");
  expect_tokenizer_error(NULL, "decoder", "{\"type\": \"CTC\"}", "decoder: type \"CTC\" is not supported");
  expect_tokenizer_error(NULL, "post_processor", "{\"type\": \"BertProcessing\"}", "type \"BertProcessing\" is not");
  expect_tokenizer_error(NULL, "new", "1", "key \"new\" is not supported");
}

static void unknown_models_are_refused(void **state)
{
  expect_tokenizer_error("model", "type", "\"WordPiece\"", "'V', model: type \"WordPiece\" is not supported");
  expect_tokenizer_error("model", "merges", "{}", "'[' is needed here");
  expect_tokenizer_error("model", "merges", "[\"h e\", 7]", "'\"' is needed here");
  expect_tokenizer_error("model", "merges", "[\"h e\", \"he\"]", "'V', merge 2: two tokens with a space between");
  expect_tokenizer_error("model", "dropout", "0.1", "model: \"dropout\" is not supported");
  expect_tokenizer_error("model", "unk_token", "\"what\"", "\"unk_token\" is not in the vocabulary");
  expect_tokenizer_error("model", "fuse_unk", "7", "\"fuse_unk\" must be true or false");
  expect_tokenizer_error(NULL, "model", "7", "'V', model: an object is needed");
  expect_tokenizer_error(NULL, "added_tokens", "[{}]", "added_tokens[0]: an added token needs");
  expect_tokenizer_error(NULL, "added_tokens", "[{\"id\": 5000, \"content\": \"<x>\"}]",
                         "token '<x>' has id 5000, but it would be numbered");
}

static void other_tokenizers_are_not_gpt2s(void **state)
{
  tokenizer *t = open_tokenizer(GOLDEN "/tokenizer.json");
  assert_true(tokenizer_is_gpt2(t));
  tokenizer_free(t);
  t = open_tokenizer(BRIM_TESTS_DIR "/golden/tokenizers/llama3.json");
  assert_false(tokenizer_is_gpt2(t));
  tokenizer_free(t);
}

static void missing_files_are_reported_with_their_origin(void **state)
{
  tokenizer *b = NULL;
  assert_int_equal(tokenizer_open(scratch("nowhere"), false, &b), BRIM_ELOAD);
  assert_non_null(strstr(brim_error_text(), "set dataset.tokenizer to its folder"));
  mkdir(scratch("half"), 0755);
  copy(GOLDEN "/vocab.json", scratch("half/vocab.json"));
  assert_int_equal(tokenizer_open(scratch("half"), true, &b), BRIM_ELOAD);
  assert_non_null(strstr(brim_error_text(), "looked for vocab.json and merges.txt"));
  assert_non_null(strstr(brim_error_text(), "https://huggingface.co/"));
}

/* The tokenizer runs inside a data set, where Ctrl-C ends it. */
static void tokenizing_stops_on_request(void **state)
{
  scratch_put("a.txt", "the memory of a step is known before that step begins");
  const dataset_param given[] = {{.key = "path", .text = scratch("a.txt")}, {.key = "tokens", .text = "gpt2"},
                                 {.key = "tokenizer", .text = GOLDEN},      {.key = "cache", .text = scratch("cache")},
                                 {.key = "context", .text = "4"},           {.key = NULL}};
  dataset d = dataset_create("text", given);
  (void)brim_stop_watch(false);
  raise(SIGINT);
  assert_int_equal(d.ops->open(d.self, "train"), BRIM_EINTERRUPTED);
  assert_string_equal(brim_error_text(), "interrupted while tokenizing");
  assert_false(scratch_exists(scratch("cache")));
  (void)brim_stop_watch(false);
  assert_int_equal(d.ops->open(d.self, "train"), BRIM_OK);
  dataset_destroy(&d);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ids_are_those_of_openais_encoder),
      cmocka_unit_test(a_tokenizer_json_gives_the_same_ids),
      cmocka_unit_test(openais_names_are_found),
      cmocka_unit_test(pairs_may_be_lists),
      cmocka_unit_test(the_vocabulary_follows_from_the_files),
      cmocka_unit_test(ids_and_texts_are_those_of_the_package_tokenizers),
      cmocka_unit_test(the_end_of_text_is_that_of_the_configuration),
      cmocka_unit_test(a_million_letters_without_a_break_are_encoded),
      cmocka_unit_test(invalid_utf8_is_refused_with_its_place),
      cmocka_unit_test(wrong_vocabularies_are_refused),
      cmocka_unit_test(wrong_merges_are_refused_with_their_line),
      cmocka_unit_test(unknown_kinds_are_refused_by_name_and_place),
      cmocka_unit_test(unknown_models_are_refused),
      cmocka_unit_test(other_tokenizers_are_not_gpt2s),
      cmocka_unit_test(missing_files_are_reported_with_their_origin),
      cmocka_unit_test(tokenizing_stops_on_request),
  };
  return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
