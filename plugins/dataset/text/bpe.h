/* GPT-2's byte-pair encoding: a text is cut into words by a regular expression, a word's bytes are tokens, and of
 * neighbours whose merge the vocabulary knows the pair that was learnt first becomes one, until there is none left. The
 * ids are those of OpenAI's encoder.py, of tiktoken's encode_ordinary and of Hugging Face's tokenizers; "<|endoftext|>"
 * in a text is text like any other.
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

/* `path`: a folder that has such files, or a tokenizer.json. ELOAD says what is wrong with which file, and where. */
brim_status bpe_open(const char *path, bpe **out);
/* The same of the bytes of files, whose names stand in messages. `merges` NULL: the first is a tokenizer.json. */
typedef struct bpe_source {
  const char *name, *bytes;
  size_t count;
} bpe_source;
brim_status bpe_build(const bpe_source *vocabulary, const bpe_source *merges, bpe **out);
void bpe_free(bpe *b); /* NULL: a no-op */

/* The greatest id, and one. */
int64_t bpe_vocabulary(const bpe *b);
/* The token between two texts, "<|endoftext|>"; -1: the vocabulary has none. */
int32_t bpe_end_of_text(const bpe *b);
/* Tells vocabularies apart. */
uint64_t bpe_hash(const bpe *b);

/* Is given the tokens of a text, word by word. */
typedef brim_status (*bpe_take_fn)(void *context, const int32_t *tokens, size_t count);
/* [any thread] There are at most as many tokens as bytes. ELOAD if the text is not UTF-8, naming the place by `name`;
 * ENOMEM_HOST; what `take` says. */
brim_status bpe_encode(const bpe *b, const char *name, const char *text, size_t bytes, bpe_take_fn take, void *context);
/* [any thread] The bytes of a token, which may be part of a character; none of an id that is not in the vocabulary.
 * They live as long as b. */
const char *bpe_text(const bpe *b, int32_t token, size_t *bytes);
#endif
