/* Converts the tokenizer in a GGUF file (tokenizer.ggml.*) to Hugging Face's tokenizer.json and
 * tokenizer_config.json. */
#ifndef BRIM_STORE_GGUF_TOKENIZER_H
#define BRIM_STORE_GGUF_TOKENIZER_H
#include "base/gguf.h"

/* Appends the texts of both files. ELOAD for a tokenizer that brim does not know: tokenizer.ggml.model must be gpt2
 * (byte-pair encoding of bytes) or llama (SentencePiece's), and for gpt2 tokenizer.ggml.pre must be a name from the
 * table in gguf_pre.c. */
brim_status brim_gguf_tokenizer_text(const brim_gguf *file, brim_text *tokenizer, brim_text *config);

/* The rules by which text is split into words before byte-pair encoding, by llama.cpp's names (tokenizer.ggml.pre). */
typedef struct brim_gguf_pre {
  const char *name;
  const char *normalizer; /* JSON; NULL: none */
  const char *steps;      /* steps of the pre-tokenizer: JSON texts, separated by commas */
  bool ignore_merges, add_bos;
} brim_gguf_pre;
/* Returns NULL for an unknown name. */
const brim_gguf_pre *brim_gguf_pre_named(const char *name);
/* Returns the first name whose pre-tokenizer equals this JSON, as jansson compares values; NULL: none. */
const char *brim_gguf_pre_of(const char *pre_tokenizer_json);
void brim_gguf_pre_list(brim_text *out);
#endif
