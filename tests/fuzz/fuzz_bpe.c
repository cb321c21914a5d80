/* Fuzzes the files of byte-pair encoding. The input is a vocabulary's JSON, a byte 0, merges, a byte 0, and a text;
 * without the first 0 it is a tokenizer.json. "@" before the JSON stands for the tokens of all bytes, which random JSON
 * would never have. Every input is refused with an error, or the text's tokens decode to the text. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../plugins/dataset/text/bpe.h"

#define INPUT_BYTES_MAX ((size_t)1 << 16)
#define SYMBOLS 324

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int condition, const char *what)
{
  if (condition) return;
  fprintf(stderr, "fuzz_bpe: %s\n", what);
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

typedef struct back {
  const bpe *b;
  const char *text;
  size_t bytes, at;
} back;

static brim_status take(void *context, const int32_t *tokens, size_t count)
{
  back *t = context;
  for (size_t i = 0; i < count; i++) {
    size_t bytes = 0;
    const char *part = bpe_text(t->b, tokens[i], &bytes);
    check(bytes > 0 && t->at + bytes <= t->bytes, "a token has no text, or too much");
    check(memcmp(t->text + t->at, part, bytes) == 0, "tokens make another text");
    t->at += bytes;
  }
  return BRIM_OK;
}

static void encode(const bpe *b, const char *text, size_t bytes)
{
  back t = {b, text, bytes, 0};
  const brim_status status = bpe_encode(b, "the text", text, bytes, take, &t);
  check(status == BRIM_OK ? t.at == bytes : brim_error_text()[0] != '\0',
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
  const bpe_source v = {"vocabulary", vocabulary, used + rest};
  const bpe_source m = {"merges", merges ? merges + 1 : "", merges ? (size_t)((text ? text : end) - merges - 1) : 0};
  bpe *b = NULL;
  if (bpe_build(&v, merges ? &m : NULL, &b) == BRIM_OK)
    encode(b, text ? text + 1 : "", text ? (size_t)(end - text - 1) : 0);
  else
    check(brim_error_text()[0] && !b, "refused without a text, or something is left");
  bpe_free(b);
  return 0;
}
