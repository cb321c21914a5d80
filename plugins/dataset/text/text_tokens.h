/* The tokens of a text: its bytes, or the tokens of a vocabulary. Tokenizing takes time, so the tokens are cached in a
 * file in llm.c's format. The name of this file depends on the text's files (see text_files.h) and on the
 * vocabulary. */
#ifndef TEXT_TOKENS_H
#define TEXT_TOKENS_H
#include <stdbool.h>

#include "../tokens/token_file.h"
#include "text_files.h"
#include "tokenizer.h"

typedef struct text_source {
  const text_files *files;
  const tokenizer *vocabulary; /* NULL if bytes are tokens */
  unsigned flags;              /* flags of tokenizer_encode */
  const char *cache_folder;    /* if empty: $XDG_CACHE_HOME/brim or ~/.cache/brim */
} text_source;

/* Returns the bytes that a token takes in memory and in the cache. vocabulary is NULL if bytes are tokens. */
int32_t text_token_width(const tokenizer *vocabulary);
/* Returns whether the number of tokens is known without reading the text, and sets *count to it. */
bool text_tokens_count(const text_source *source, int64_t *count);
/* Maps the cached tokens. If there are none, makes them, and caches them if the cache is writable. Texts follow each
 * other, separated by the vocabulary's end of text, if it has one and the text does not end with it. Returns ELOAD or
 * ENOMEM_HOST. */
brim_status text_tokens_open(const text_source *source, token_file *out);
#endif
