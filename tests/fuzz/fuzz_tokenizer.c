/* Fuzzes the files of tokenizers. The input is a vocabulary's JSON, a byte 0, merges, a byte 0, and a text; without the
 * first 0 it is a tokenizer.json, whose text is the JSON itself. "@" before the JSON stands for the tokens of all
 * bytes, which random JSON would never have. Every input is refused with an error, or the text is encoded: in GPT-2's
 * encoding the tokens are the text again, in others ids are in the vocabulary, and their text is UTF-8. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../plugins/dataset/language/tokenizer.h"

#define INPUT_BYTES_MAX ((size_t)1 << 16)
#define SYMBOLS 324

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int condition, const char *what)
{
  if (condition) return;
  fprintf(stderr, "fuzz_tokenizer: %s\n", what);
  abort();
}

/* {"!": 0, ..., the tokens of all bytes; returns the length. */
static size_t all_bytes(char *out, size_t room)
{
  size_t used = (size_t)snprintf(out, room, "{");
  for (int symbol = 33, id = 0; symbol < SYMBOLS; symbol++) {
    if ((symbol >= 127 && symbol < 161) || symbol == 173) continue;
    used += (size_t)snprintf(out + used, room - used, "\"\\u%04x\": %d, ", symbol, id++);
  }
  return used;
}

#define IDS_MAX 4096

typedef struct back {
  const tokenizer *t;
  const char *text;
  size_t bytes, at; /* at: the length of the text that the tokens have covered */
  bool same;        /* tokens are the text */
  int32_t id[IDS_MAX];
  size_t count;
} back;

static brim_status take(void *context, const int32_t *tokens, size_t count)
{
  back *b = context;
  for (size_t i = 0; i < count; i++) {
    size_t bytes = 0;
    const char *part = tokenizer_piece(b->t, tokens[i], &bytes);
    check(tokens[i] >= 0 && tokens[i] < tokenizer_rows(b->t), "an id is not in the vocabulary");
    if (b->count < IDS_MAX) b->id[b->count++] = tokens[i];
    if (!b->same) continue;
    check(bytes > 0 && b->at + bytes <= b->bytes, "a token has no text, or too much");
    check(memcmp(b->text + b->at, part, bytes) == 0, "tokens make another text");
    b->at += bytes;
  }
  return BRIM_OK;
}

static void encode(const tokenizer *t, const char *text, size_t bytes, bool same)
{
  static back b;
  b = (back){.t = t, .text = text, .bytes = bytes, .same = same};
  const unsigned flags = same ? TOKENIZER_PLAIN : TOKENIZER_TEMPLATE;
  const brim_status status = tokenizer_encode(t, "the text", text, bytes, flags, take, &b);
  check(status == BRIM_OK ? !same || b.at == bytes : brim_error_text()[0] != '\0',
        "a text is not whole, or refused without one");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static char vocabulary[INPUT_BYTES_MAX + 8192];
  if (size < 1 || size > INPUT_BYTES_MAX) return 0;
  const char *in = (const char *)data, *end = in + size;
  const char *merges = memchr(in, 0, size), *text = merges ? memchr(merges + 1, 0, (size_t)(end - merges - 1)) : NULL;
  size_t used = 0;
  const char *json = in;
  if (*json == '@') {
    used = all_bytes(vocabulary, sizeof vocabulary);
    json++;
  }
  const size_t rest = (size_t)((merges ? merges : end) - json);
  memcpy(vocabulary + used, json, rest);
  const tokenizer_source v = {"vocabulary", vocabulary, used + rest};
  const tokenizer_source m = {"merges", merges ? merges + 1 : "",
                              merges ? (size_t)((text ? text : end) - merges - 1) : 0};
  tokenizer *t = NULL;
  if (tokenizer_build(&v, merges ? &m : NULL, NULL, &t) != BRIM_OK)
    check(brim_error_text()[0] && !t, "refused without a text, or something is left");
  else if (merges)
    encode(t, text ? text + 1 : "", text ? (size_t)(end - text - 1) : 0, tokenizer_is_gpt2(t));
  else
    encode(t, in, size, false);
  tokenizer_free(t);
  return 0;
}
