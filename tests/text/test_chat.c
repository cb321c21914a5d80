/* Tests dataset=chat from inside: packing, places of tokens in their text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../plugins/dataset/chat/align.h"
#include "../../plugins/dataset/chat/pack.h"

#define COUNT_MAX 60000

/* ---- packing ---- */

typedef struct drawn {
  uint64_t seed;
  uint32_t at;
} drawn;

static double draw(drawn *d)
{
  d->seed = d->seed * 6364136223846793005u + 1442695040888963407u;
  return (double)(d->seed >> 11) * 0x1p-53;
}

/* Checks that each document is in exactly one row, and that no row is too full; returns the number of rows. */
static uint32_t check_packs(const uint32_t *places, uint32_t count, uint32_t context, const chat_packs *p)
{
  bool *seen = calloc(count + 1, sizeof *seen);
  assert_int_equal(p->first[0], 0);
  assert_int_equal(p->first[p->rows], count);
  for (uint32_t r = 0; r < p->rows; r++) {
    uint64_t sum = 0;
    assert_true(p->first[r + 1] > p->first[r]);
    for (uint32_t k = p->first[r]; k < p->first[r + 1]; k++) {
      assert_true(p->document[k] < count && !seen[p->document[k]]);
      seen[p->document[k]] = true;
      sum += places[p->document[k]];
    }
    assert_true(sum <= context);
  }
  free(seen);
  return p->rows;
}

static uint32_t pack(const uint32_t *places, uint32_t count, uint32_t context)
{
  chat_packs p;
  assert_int_equal(chat_pack(places, count, context, 0, &p), BRIM_OK);
  const uint32_t rows = check_packs(places, count, context, &p);
  chat_packs_free(&p);
  return rows;
}

/* Packs by best fit decreasing in its simplest form. */
static uint32_t pack_plainly(const uint32_t *places, uint32_t count, uint32_t context)
{
  uint32_t room[512], rows = 0;
  for (uint32_t length = context; length > 0; length--)
    for (uint32_t d = 0; d < count; d++) {
      if (places[d] != length) continue;
      uint32_t best = rows;
      for (uint32_t r = 0; r < rows; r++)
        if (room[r] >= length && (best == rows || room[r] < room[best])) best = r;
      if (best == rows) room[rows++] = context;
      room[best] -= length;
    }
  return rows;
}

static void packing_is_best_fit_decreasing(void **state)
{
  uint32_t places[500];
  drawn d = {7, 0};
  for (int round = 0; round < 200; round++) {
    const uint32_t context = 1 + (uint32_t)(draw(&d) * (round % 4 == 0 ? 10 : round % 4 == 1 ? 5000 : 300));
    const uint32_t count = 1 + (uint32_t)(draw(&d) * 499);
    for (uint32_t i = 0; i < count; i++) places[i] = 1 + (uint32_t)(draw(&d) * context);
    assert_int_equal(pack(places, count, context), pack_plainly(places, count, context));
  }
}

/* The lengths are like those of Alpaca's 52,002 rows: median about 80 tokens, mean about 110, few of more than 500. No
 * packing needs fewer rows than the tokens fill. */
static void rows_of_alpacas_lengths_are_at_least_98_percent_full(void **state)
{
  uint32_t *places = calloc(COUNT_MAX, sizeof *places);
  static const uint32_t contexts[] = {512, 1024, 2048, 8192};
  for (size_t c = 0; c < sizeof contexts / sizeof contexts[0]; c++) {
    drawn d = {c + 1, 0};
    uint64_t sum = 0;
    const uint32_t count = 52002;
    for (uint32_t i = 0; i < count; i++) {
      double x = 1; /* a product of draws has a skewed distribution, like lengths of answers */
      for (int k = 0; k < 6; k++) x *= 0.5 + draw(&d);
      places[i] = 30 + (uint32_t)(80 * x);
      if (places[i] > contexts[c]) places[i] = contexts[c];
      sum += places[i];
    }
    const uint64_t bound = (sum + contexts[c] - 1) / contexts[c];
    const uint32_t rows = pack(places, count, contexts[c]);
    assert_true(rows >= bound);
    assert_true((double)sum >= 0.98 * (double)rows * (double)contexts[c]);
  }
  free(places);
}

static void packing_depends_on_nothing_but_the_lengths(void **state)
{
  uint32_t places[300];
  chat_packs a, b;
  drawn d = {3, 0};
  for (uint32_t i = 0; i < 300; i++) places[i] = 1 + (uint32_t)(draw(&d) * 64);
  assert_int_equal(chat_pack(places, 300, 64, 0, &a), BRIM_OK);
  assert_int_equal(chat_pack(places, 300, 64, 0, &b), BRIM_OK);
  assert_int_equal(a.rows, b.rows);
  assert_memory_equal(a.document, b.document, sizeof places);
  assert_memory_equal(a.first, b.first, (a.rows + 1) * sizeof *a.first);
  chat_packs_free(&a);
  chat_packs_free(&b);
}

static void without_packing_each_row_has_one_document_in_order(void **state)
{
  const uint32_t places[] = {3, 9, 1, 9};
  chat_packs p;
  assert_int_equal(chat_pack(places, 4, 10, 1, &p), BRIM_OK);
  assert_int_equal(p.rows, 4);
  for (uint32_t i = 0; i < 4; i++) {
    assert_int_equal(p.first[i], i);
    assert_int_equal(p.document[i], i);
  }
  chat_packs_free(&p);
}

/* ---- places of tokens ---- */

typedef struct taken {
  int32_t token[256];
  size_t count;
} taken;

static brim_status take(void *context, const int32_t *tokens, size_t count)
{
  taken *t = context;
  memcpy(t->token + t->count, tokens, count * sizeof *tokens);
  t->count += count;
  return BRIM_OK;
}

/* Checks that each token's bytes are at its reported place, except for a space that the tokenizer puts before a
 * text. */
static void check_places(const char *name, const char *text, bool expected)
{
  tokenizer *t = NULL;
  taken made = {.count = 0};
  uint32_t start[257];
  char path[512];
  snprintf(path, sizeof path, BRIM_TESTS_DIR "/golden/tokenizers/%s.json", name);
  if (tokenizer_open(path, true, &t) != BRIM_OK) fail_msg("%s", brim_error_text());
  assert_int_equal(tokenizer_encode(t, "text", text, strlen(text), 0, take, &made), BRIM_OK);
  const bool found = chat_align(t, made.token, made.count, text, strlen(text), start);
  if (found != expected) fail_msg("%s: '%s'", name, text);
  for (size_t i = 0; found && i < made.count; i++) {
    size_t bytes;
    const char *piece = tokenizer_piece(t, made.token[i], &bytes);
    const bool is_before = piece[0] == ' ' && text[start[i]] != ' ';
    assert_memory_equal(text + start[i], piece + is_before, bytes - is_before);
    assert_true(start[i] + bytes - is_before <= start[i + 1]);
  }
  tokenizer_free(t);
}

static void the_place_of_each_token_is_found(void **state)
{
  check_places("llama3",
               "<|begin|>user\n\nWhat is 2 + 2?<|end_of_text|>It's  four \xc3\xa9\xe2\x82\xac.<|end_of_text|>", true);
  check_places("qwen", "<think>\nIt is 12345<think>  the end", true);
  check_places("llama2", "<s>[INST] hello there [/INST] answer \xe2\x82\xac</s>", true);
  check_places("llama2", "the beginning", true);
  check_places("qwen", "e\xcc\x81 is two characters, which NFC makes one", false);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(packing_is_best_fit_decreasing),
                                     cmocka_unit_test(rows_of_alpacas_lengths_are_at_least_98_percent_full),
                                     cmocka_unit_test(packing_depends_on_nothing_but_the_lengths),
                                     cmocka_unit_test(without_packing_each_row_has_one_document_in_order),
                                     cmocka_unit_test(the_place_of_each_token_is_found)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
