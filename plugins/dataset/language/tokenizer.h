/* Tokenizers of language models, as Hugging Face's library `tokenizers` defines them: they give the same ids for the
 * same text.
 *
 * A tokenizer is read from
 *     tokenizer.json                 Hugging Face
 *     vocab.json and merges.txt      Hugging Face, byte-pair encoding as in GPT-2
 *     encoder.json and vocab.bpe     OpenAI, the same encoding
 *     a file that ends in .gguf      llama.cpp; the tokenizer is in its metadata
 * tokenizer_config.json in the same folder names the token that ends a text.
 *
 * Text becomes tokens in the steps of tokenizer.json. Added tokens are cut out. The rest is normalized and split into
 * pieces. The model (byte-pair encoding or Unigram) makes the tokens of each piece. A template adds tokens before and
 * after all of them. If this library does not know a step or an option of a step, it refuses the file; the message has
 * the name and the place. */
#ifndef TOKENIZER_H
#define TOKENIZER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

typedef struct tokenizer tokenizer;

/* Opens a tokenizer. `path`: a folder, a tokenizer.json, or a GGUF file. If a folder has several kinds of files and
 * `prefer_json` is set, tokenizer.json is read. Returns ELOAD with the file, the place and the error. */
brim_status tokenizer_open(const char *path, bool prefer_json, tokenizer **out);
/* The contents of a file; the name is used in messages. tokenizer_build is tokenizer_open without reading files:
 * `vocabulary` is a tokenizer.json if `merges` is NULL; `config` is a tokenizer_config.json, or NULL. */
typedef struct tokenizer_source {
  const char *name, *bytes;
  size_t count;
} tokenizer_source;
brim_status tokenizer_build(const tokenizer_source *vocabulary, const tokenizer_source *merges,
                            const tokenizer_source *config, tokenizer **out);
void tokenizer_free(tokenizer *t); /* NULL: a no-op */

/* Returns the greatest id plus one, which is the minimum number of rows of a model's table of embeddings. */
int64_t tokenizer_rows(const tokenizer *t);
/* Returns the id of a token by its text in the vocabulary, or -1. */
int32_t tokenizer_id(const tokenizer *t, const char *token, size_t bytes);
/* Returns the token that ends a text: tokenizer_config.json's eos_token, or else the first of "<|endoftext|>",
 * "<|end_of_text|>", "</s>" and "<eos>" in the vocabulary, or -1. */
int32_t tokenizer_end_of_text(const tokenizer *t);
/* Returns whether the id is an added token that is marked as special. */
bool tokenizer_is_special(const tokenizer *t, int32_t id);
/* Returns whether the tokenizer has the steps of GPT-2's: bytes, GPT-2's regular expression, byte-pair encoding. */
bool tokenizer_is_gpt2(const tokenizer *t);
/* Returns a hash of the contents of the files. */
uint64_t tokenizer_hash(const tokenizer *t);
/* Writes the rows and the hash as the JSON that a dataset's keep() returns, because the same ids mean other texts in
 * another vocabulary. Returns `out`. */
#define TOKENIZER_IDENTITY_ROOM 128
const char *tokenizer_identity(int64_t rows, uint64_t hash, char out[TOKENIZER_IDENTITY_ROOM]);

enum {
  TOKENIZER_BEGIN = 1, /* add the tokens that the post-processor puts before a text */
  TOKENIZER_END = 2,   /* add the tokens that the post-processor puts after a text */
  TOKENIZER_TEMPLATE = TOKENIZER_BEGIN | TOKENIZER_END,
  TOKENIZER_PLAIN = 4 /* treat special tokens that occur in the text as ordinary text */
};
/* Receives the tokens of a text, piece by piece. */
typedef brim_status (*tokenizer_take_fn)(void *context, const int32_t *tokens, size_t count);
/* [any thread] Encodes a text. Returns ELOAD with `name` and the byte if the text is not UTF-8 (invalid text is never
 * repaired), ENOMEM_HOST, or the error of `take`. */
brim_status tokenizer_encode(const tokenizer *t, const char *name, const char *text, size_t bytes, unsigned flags,
                             tokenizer_take_fn take, void *context);
/* [any thread] Encodes a text into an array of *count tokens, and sets *count to their number. Also returns ELOAD if
 * there are more tokens. */
brim_status tokenizer_encode_into(const tokenizer *t, const char *text, size_t bytes, unsigned flags, int32_t *tokens,
                                  size_t *count);
/* Does the same as tokenizer_encode for many texts, but keeps its memory and a cache of the tokens of words. Only one
 * thread may use an encoder at a time. Returns ENOMEM_HOST if there is no memory. */
typedef struct tokenizer_encoder tokenizer_encoder;
brim_status tokenizer_encoder_open(const tokenizer *t, tokenizer_encoder **out);
brim_status tokenizer_encoder_run(tokenizer_encoder *e, const char *name, const char *text, size_t bytes,
                                  unsigned flags, tokenizer_take_fn take, void *context);
void tokenizer_encoder_close(tokenizer_encoder *e); /* NULL: a no-op */

/* [any thread] Returns the bytes that a token has in the middle of a text, which may be part of a character; 0 bytes
 * for an id that is not in the vocabulary. The bytes live as long as t. */
const char *tokenizer_piece(const tokenizer *t, int32_t id, size_t *bytes);
#endif
