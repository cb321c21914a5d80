/* Tokenizers of language models, as Hugging Face's library `tokenizers` defines them: the same ids for the same text.
 *
 * A tokenizer is read from
 *     tokenizer.json                 Hugging Face
 *     vocab.json and merges.txt      Hugging Face, GPT-2's byte-pair encoding
 *     encoder.json and vocab.bpe     OpenAI, the same
 *     a file that ends in .gguf      llama.cpp: the tokenizer in its metadata
 * tokenizer_config.json in the same folder names the token that ends a text.
 *
 * Text becomes tokens in the steps of tokenizer.json: added tokens are cut out, the rest is normalized and split into
 * pieces, the model (byte-pair encoding or Unigram) makes each piece's tokens, and a template adds tokens around all.
 * A step, or an option of one, that this library does not know is refused by name with its place in the file. */
#ifndef TOKENIZER_H
#define TOKENIZER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

typedef struct tokenizer tokenizer;

/* `path`: a folder, a tokenizer.json, or a GGUF file. In a folder with several kinds of files, tokenizer.json is read
 * if `prefer_json`. ELOAD names the file, the place and the error. */
brim_status tokenizer_open(const char *path, bool prefer_json, tokenizer **out);
/* The contents of a file; the name is for messages. tokenizer_build is tokenizer_open without reading files:
 * `vocabulary` is a tokenizer.json if `merges` is NULL; `config` is a tokenizer_config.json, or NULL. */
typedef struct tokenizer_source {
  const char *name, *bytes;
  size_t count;
} tokenizer_source;
brim_status tokenizer_build(const tokenizer_source *vocabulary, const tokenizer_source *merges,
                            const tokenizer_source *config, tokenizer **out);
void tokenizer_free(tokenizer *t); /* NULL: a no-op */

/* Returns the greatest id plus one: the rows that a model's table of embeddings needs at least. */
int64_t tokenizer_rows(const tokenizer *t);
/* Returns the id of a token by its text in the vocabulary, or -1. */
int32_t tokenizer_id(const tokenizer *t, const char *token, size_t bytes);
/* Returns the token that ends a text: tokenizer_config.json's eos_token, or else the first of "<|endoftext|>",
 * "<|end_of_text|>", "</s>" and "<eos>" in the vocabulary, or -1. */
int32_t tokenizer_end_of_text(const tokenizer *t);
/* Returns whether the id is an added token that is marked as special. */
bool tokenizer_is_special(const tokenizer *t, int32_t id);
/* Returns whether the tokenizer does what GPT-2's does: bytes, GPT-2's regular expression, byte-pair encoding. */
bool tokenizer_is_gpt2(const tokenizer *t);
/* Returns a hash of the contents of the files. */
uint64_t tokenizer_hash(const tokenizer *t);
/* Writes the rows and the hash as the JSON that a dataset's keep() returns, because the same ids mean other texts in
 * another vocabulary. Returns `out`. */
#define TOKENIZER_IDENTITY_ROOM 128
const char *tokenizer_identity(int64_t rows, uint64_t hash, char out[TOKENIZER_IDENTITY_ROOM]);

enum {
  TOKENIZER_BEGIN = 1, /* add the tokens that the post-processor has before a text */
  TOKENIZER_END = 2,   /* and after it */
  TOKENIZER_TEMPLATE = TOKENIZER_BEGIN | TOKENIZER_END,
  TOKENIZER_PLAIN = 4 /* special tokens that are written in the text are ordinary text */
};
/* Receives the tokens of a text, piece by piece. */
typedef brim_status (*tokenizer_take_fn)(void *context, const int32_t *tokens, size_t count);
/* [any thread] ELOAD if the text is not UTF-8, with `name` and the byte: invalid text is never repaired. ENOMEM_HOST;
 * errors of `take`. */
brim_status tokenizer_encode(const tokenizer *t, const char *name, const char *text, size_t bytes, unsigned flags,
                             tokenizer_take_fn take, void *context);
/* [any thread] The same into an array of *count tokens; sets *count to their number. ELOAD too if they are more. */
brim_status tokenizer_encode_into(const tokenizer *t, const char *text, size_t bytes, unsigned flags, int32_t *tokens,
                                  size_t *count);
/* The same as tokenizer_encode for many texts: keeps its memory and the cached tokens of words. For one thread at a
 * time. ENOMEM_HOST. */
typedef struct tokenizer_encoder tokenizer_encoder;
brim_status tokenizer_encoder_open(const tokenizer *t, tokenizer_encoder **out);
brim_status tokenizer_encoder_run(tokenizer_encoder *e, const char *name, const char *text, size_t bytes,
                                  unsigned flags, tokenizer_take_fn take, void *context);
void tokenizer_encoder_close(tokenizer_encoder *e); /* NULL: a no-op */

/* [any thread] Returns the bytes of a token in the middle of a text, which may be part of a character; 0 bytes for an
 * id that is not in the vocabulary. They live as long as t. */
const char *tokenizer_piece(const tokenizer *t, int32_t id, size_t *bytes);
#endif
