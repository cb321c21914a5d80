/* GPT-2's byte-pair encoding: the ids are those of OpenAI's encoder (tests/golden/make_bpe.py), from either kind of
 * files; errors in files are reported. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "../../plugins/dataset/text/bpe.h"
#include "scratch.h"
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

static bpe *open_bpe(const char *path)
{
  bpe *b = NULL;
  if (bpe_open(path, &b) != BRIM_OK) fail_msg("%s", brim_error_text());
  return b;
}

static void encode(const bpe *b, const char *text, size_t bytes, taken *out)
{
  out->count = 0;
  if (bpe_encode(b, "a text", text, bytes, take, out) != BRIM_OK) fail_msg("%s", brim_error_text());
}

/* ---- ids ---- */

static void check_case(const bpe *b, size_t number, const char *text, size_t bytes, const json_t *ids)
{
  static taken got;
  encode(b, text, bytes, &got);
  bool same = got.count == json_array_size(ids);
  for (size_t i = 0; i < got.count && same; i++) same = got.id[i] == json_integer_value(json_array_get(ids, i));
  if (!same) fail_msg("case %zu, '%s': other ids than OpenAI's encoder gives", number, text);
}

/* The tokens' bytes give the text again. */
static void check_text(const bpe *b, const char *text, size_t bytes)
{
  static taken got;
  static char back[IDS_MAX];
  size_t used = 0;
  encode(b, text, bytes, &got);
  for (size_t i = 0; i < got.count; i++) {
    size_t count = 0;
    const char *part = bpe_text(b, got.id[i], &count);
    assert_true(count > 0 && used + count <= sizeof back);
    memcpy(back + used, part, count);
    used += count;
  }
  assert_int_equal(used, bytes);
  assert_memory_equal(back, text, bytes);
}

static void check_cases(const char *path)
{
  bpe *b = open_bpe(path);
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
  bpe_free(b);
}

static void ids_are_those_of_openais_encoder(void **state)
{
  (void)state;
  check_cases(GOLDEN); /* vocab.json and merges.txt are preferred to tokenizer.json */
}

static void a_tokenizer_json_gives_the_same_ids(void **state)
{
  (void)state;
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
  (void)state;
  mkdir(scratch("openai"), 0755);
  copy(GOLDEN "/vocab.json", scratch("openai/encoder.json"));
  copy(GOLDEN "/merges.txt", scratch("openai/vocab.bpe"));
  check_cases(scratch("openai"));
}

static void pairs_may_be_lists(void **state)
{
  (void)state;
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
  (void)state;
  bpe *hugging = open_bpe(GOLDEN), *other = open_bpe(GOLDEN "/tokenizer.json");
  json_t *ids = json_load_file(GOLDEN "/vocab.json", 0, NULL);
  const json_int_t end = json_integer_value(json_object_get(ids, "<|endoftext|>"));
  size_t bytes = 0;
  assert_int_equal(bpe_vocabulary(hugging), json_object_size(ids));
  assert_int_equal(bpe_vocabulary(other), json_object_size(ids));
  assert_int_equal(bpe_end_of_text(hugging), end);
  assert_int_equal(bpe_end_of_text(other), end);
  assert_string_equal(bpe_text(other, (int32_t)end, &bytes), "<|endoftext|>");
  bpe_text(hugging, (int32_t)bpe_vocabulary(hugging), &bytes);
  assert_int_equal(bytes, 0);
  assert_true(bpe_hash(hugging) != bpe_hash(other));
  json_decref(ids);
  bpe_free(hugging);
  bpe_free(other);
}

/* Adds up the bytes of tokens. */
typedef struct sum {
  const bpe *b;
  size_t tokens, bytes;
} sum;

static brim_status add_up(void *context, const int32_t *tokens, size_t count)
{
  sum *s = context;
  for (size_t i = 0; i < count; i++) {
    size_t bytes = 0;
    bpe_text(s->b, tokens[i], &bytes);
    s->bytes += bytes;
  }
  s->tokens += count;
  return BRIM_OK;
}

/* A quadratic algorithm would never end. */
static void a_million_letters_without_a_break_are_encoded(void **state)
{
  (void)state;
  enum { BYTES = 1000000 };
  bpe *b = open_bpe(GOLDEN);
  char *text = malloc(BYTES);
  sum s = {.b = b};
  for (size_t i = 0; i < BYTES; i++) text[i] = "themory"[i * i % 7];
  assert_int_equal(bpe_encode(b, "a text", text, BYTES, add_up, &s), BRIM_OK);
  assert_int_equal(s.bytes, BYTES);
  assert_in_range(s.tokens, BYTES / 8, BYTES);
  free(text);
  bpe_free(b);
}

static void invalid_utf8_is_refused_with_its_place(void **state)
{
  (void)state;
  static const struct {
    const char *text;
    size_t bytes, at;
  } cases[] = {
      {"abc\xff", 4, 3}, {"\xc3", 1, 0}, {"a\xed\xa0\x80", 4, 1}, {"ab \xc0\x80", 5, 3}, {"x\xf4\x90\x80\x80", 5, 1}};
  bpe *b = open_bpe(GOLDEN);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    sum s = {.b = b};
    char expected[64];
    snprintf(expected, sizeof expected, "'a text' is not UTF-8 at byte %zu\n", cases[i].at);
    assert_int_equal(bpe_encode(b, "a text", cases[i].text, cases[i].bytes, add_up, &s), BRIM_ELOAD);
    assert_non_null(strstr(brim_error_text(), expected));
  }
  bpe_free(b);
}

/* ---- errors in files ---- */

static void expect_error(const char *vocabulary, const char *merges, const char *text)
{
  bpe *b = NULL;
  const bpe_source v = {"V", vocabulary, strlen(vocabulary)},
                   m = {"M", merges ? merges : "", merges ? strlen(merges) : 0};
  assert_int_equal(bpe_build(&v, merges ? &m : NULL, &b), BRIM_ELOAD);
  assert_null(b);
  if (!strstr(brim_error_text(), text)) fail_msg("'%s' is not in '%s'", text, brim_error_text());
}

static void wrong_vocabularies_are_refused(void **state)
{
  (void)state;
  expect_error("{", "", "'V' is not JSON: line 1");
  expect_error("[]", "", "'V' has no tokens");
  expect_error("{}", "", "'V' has no tokens");
  expect_error("{\"a\": 0}", "", "'V' has no token for byte");
  expect_error("{\"a\": -1}", "", "the id of token 'a' must be a whole number from 0 to 16777215");
  expect_error("{\"a\": 1.5}", "", "the id of token 'a' must be a whole number");
  expect_error("{\"a\": 16777216}", "", "the id of token 'a' must be a whole number");
  expect_error("{\"a\": 1000000}", "", "too many ids are unused");
  expect_error("{\"a\": 7, \"b\": 7}", "", "have the same id, 7");
  expect_error("{\"a\": 1, \"a\": 2}", "", "duplicate object key");
}

static void wrong_merges_are_refused_with_their_line(void **state)
{
  (void)state;
  char *vocabulary = scratch_read(GOLDEN "/vocab.json", NULL);
  expect_error(vocabulary, "#version: 0.2\nh e\nhe\n", "'M', line 3: two tokens with a space between them are needed");
  expect_error(vocabulary, "h e\nh e l\n", "'M', line 2: there are more than two tokens");
  expect_error(vocabulary, "h e\n\nQQ e\n", "'M', line 3: the merged token is not in");
  expect_error(vocabulary, "h \n", "'M', line 1: two tokens with a space");
  expect_error(vocabulary, " h\n", "'M', line 1: two tokens with a space");
  free(vocabulary);
}

/* A tokenizer.json with one change. */
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

static void tokenizers_that_give_other_ids_are_refused(void **state)
{
  (void)state;
  expect_tokenizer_error("model", "type", "\"WordPiece\"", "its model's type is not \"BPE\"");
  expect_tokenizer_error("model", "byte_fallback", "true", "byte_fallback");
  expect_tokenizer_error("model", "merges", "{}", "has no \"vocab\" and \"merges\"");
  expect_tokenizer_error("model", "merges", "[\"h e\", 7]", "'V', merge 2: a text or a list of two texts is needed");
  expect_tokenizer_error("model", "merges", "[[\"h\"]]", "'V', merge 1: a text or a list of two texts is needed");
  expect_tokenizer_error(NULL, "model", "7", "it has no \"model\"");
  expect_tokenizer_error(NULL, "normalizer", "{\"type\": \"NFC\"}", "it has a normalizer");
  expect_tokenizer_error(NULL, "pre_tokenizer", "{\"type\": \"Sequence\"}", "its pre_tokenizer is not \"ByteLevel\"");
  expect_tokenizer_error("pre_tokenizer", "use_regex", "false", "its pre_tokenizer is not \"ByteLevel\"");
  expect_tokenizer_error("pre_tokenizer", "add_prefix_space", "true", "it adds a space before texts");
  expect_tokenizer_error(NULL, "added_tokens", "[{}]", "added token 1 has no content or no id");
}

static void missing_files_are_reported_with_their_origin(void **state)
{
  (void)state;
  bpe *b = NULL;
  assert_int_equal(bpe_open(scratch("nowhere"), &b), BRIM_ELOAD);
  assert_non_null(strstr(brim_error_text(), "set dataset.tokenizer to its folder"));
  mkdir(scratch("half"), 0755);
  copy(GOLDEN "/vocab.json", scratch("half/vocab.json"));
  assert_int_equal(bpe_open(scratch("half"), &b), BRIM_ELOAD);
  assert_non_null(strstr(brim_error_text(), "looked for vocab.json and merges.txt"));
  assert_non_null(strstr(brim_error_text(), "https://huggingface.co/"));
}

/* In a data set, so that Ctrl-C ends it. */
static void tokenizing_stops_on_request(void **state)
{
  (void)state;
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
      cmocka_unit_test(a_million_letters_without_a_break_are_encoded),
      cmocka_unit_test(invalid_utf8_is_refused_with_its_place),
      cmocka_unit_test(wrong_vocabularies_are_refused),
      cmocka_unit_test(wrong_merges_are_refused_with_their_line),
      cmocka_unit_test(tokenizers_that_give_other_ids_are_refused),
      cmocka_unit_test(missing_files_are_reported_with_their_origin),
      cmocka_unit_test(tokenizing_stops_on_request),
  };
  return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
