/* The tokens of a text: its bytes, or the tokens of a vocabulary. Tokenizing takes time, so the tokens are cached in a
 * file in llm.c's format, whose name is made of the text's files (see text_files.h) and of the vocabulary. */
#ifndef TEXT_TOKENS_H
#define TEXT_TOKENS_H
#include <stdbool.h>

#include "../tokens/token_file.h"
#include "text_files.h"
#include "tokenizer.h"

typedef struct text_source {
  const text_files *files;
  const tokenizer *vocabulary; /* NULL: bytes are tokens */
  unsigned flags;              /* of tokenizer_encode */
  const char *cache_folder;    /* empty: $XDG_CACHE_HOME/brim, or ~/.cache/brim */
} text_source;

/* Returns the bytes of a token in memory and in the cache; vocabulary is NULL if bytes are tokens. */
int32_t text_token_width(const tokenizer *vocabulary);
/* Returns whether the number of tokens is known without reading the text, and sets *count to it. */
bool text_tokens_count(const text_source *source, int64_t *count);
/* Maps the tokens, or makes them and caches them if the cache is writable. Texts follow each other, separated by the
 * vocabulary's end of text if it has one and the text does not end in it. ELOAD, ENOMEM_HOST. */
brim_status text_tokens_open(const text_source *source, token_file *out);
#endif
