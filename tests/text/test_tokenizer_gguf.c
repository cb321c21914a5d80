/* Tests tokenizers in GGUF files: they give the ids that transformers makes with the same files
 * (tests/golden/make_gguf.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/gguf.h"
#include "tokenizer.h"

typedef struct ids {
  int32_t id[64];
  size_t count;
} ids;

static brim_status take(void *context, const int32_t *tokens, size_t count)
{
  ids *to = context;
  assert_true(to->count + count <= 64);
  memcpy(to->id + to->count, tokens, count * sizeof *tokens);
  to->count += count;
  return BRIM_OK;
}

static void check_file(const char *path)
{
  brim_gguf *file = NULL;
  tokenizer *t = NULL;
  const char *text;
  uint64_t at = 0, bytes, first = 0;
  assert_int_equal(brim_gguf_open(path, &file), BRIM_OK);
  assert_int_equal(tokenizer_open(path, true, &t), BRIM_OK);
  const brim_gguf_value *texts = brim_gguf_find(file, "test.texts"), *answers = brim_gguf_find(file, "test.ids");
  assert_true(texts->count > 5);
  for (uint64_t i = 0; brim_gguf_next_text(texts, &at, &text, &bytes); i++) {
    ids got = {.count = 0};
    int64_t count, want;
    assert_true(brim_gguf_integer(brim_gguf_find(file, "test.counts"), i, &count));
    assert_int_equal(tokenizer_encode(t, "text", text, bytes, TOKENIZER_TEMPLATE, take, &got), BRIM_OK);
    assert_int_equal(got.count, count);
    for (size_t k = 0; k < got.count; k++) {
      assert_true(brim_gguf_integer(answers, first + k, &want));
      assert_int_equal(got.id[k], want);
    }
    first += got.count;
  }
  assert_int_equal(first, answers->count);
  assert_int_equal(tokenizer_end_of_text(t), tokenizer_id(t, "</s>", 4));
  tokenizer_free(t);
  brim_gguf_close(file);
}

static void sentencepiece_without_merges_has_the_ids_of_transformers(void **state)
{
  check_file(BRIM_TESTS_DIR "/golden/tokens-llama.gguf");
}

static void byte_pairs_have_the_ids_of_transformers(void **state)
{
  check_file(BRIM_TESTS_DIR "/golden/tokens-gpt2.gguf");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sentencepiece_without_merges_has_the_ids_of_transformers),
      cmocka_unit_test(byte_pairs_have_the_ids_of_transformers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
