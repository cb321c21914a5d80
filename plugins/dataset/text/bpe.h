/* GPT-2's byte-pair encoding: a regular expression splits a text into words; a word begins as one token for each byte,
 * and the pair of neighbours with the lowest rank among the vocabulary's merges becomes one token, until no pair can be
 * merged. The ids are those of OpenAI's encoder.py, of tiktoken's encode_ordinary and of Hugging Face's tokenizers;
 * "<|endoftext|>" in a text is ordinary text.
 *
 * Vocabularies come as
 *     vocab.json and merges.txt      Hugging Face (huggingface.co/gpt2)
 *     encoder.json and vocab.bpe     OpenAI
 *     tokenizer.json                 Hugging Face; both in one */
#ifndef BPE_H
#define BPE_H
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

typedef struct bpe bpe;

/* `path`: a folder with such files, or a tokenizer.json. ELOAD names the file, the place and the error. */
brim_status bpe_open(const char *path, bpe **out);
/* The contents of a file; the name is for messages. bpe_build is bpe_open without reading files: `vocabulary` is a
 * tokenizer.json if `merges` is NULL. */
typedef struct bpe_source {
  const char *name, *bytes;
  size_t count;
} bpe_source;
brim_status bpe_build(const bpe_source *vocabulary, const bpe_source *merges, bpe **out);
void bpe_free(bpe *b); /* NULL: a no-op */

/* Returns the greatest id plus one. */
int64_t bpe_vocabulary(const bpe *b);
/* Returns the token between two texts, "<|endoftext|>", or -1 if the vocabulary has none. */
int32_t bpe_end_of_text(const bpe *b);
/* Returns a hash that identifies the vocabulary. */
uint64_t bpe_hash(const bpe *b);

/* Receives the tokens of a text, word by word. */
typedef brim_status (*bpe_take_fn)(void *context, const int32_t *tokens, size_t count);
/* [any thread] Makes at most as many tokens as bytes. ELOAD if the text is not UTF-8, with `name` and the place;
 * ENOMEM_HOST; errors of `take`. */
brim_status bpe_encode(const bpe *b, const char *name, const char *text, size_t bytes, bpe_take_fn take, void *context);
/* [any thread] Returns the bytes of a token, which may be part of a character; 0 bytes for an id that is not in the
 * vocabulary. They live as long as b. */
const char *bpe_text(const bpe *b, int32_t token, size_t *bytes);
#endif
