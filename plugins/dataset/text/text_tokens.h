/* The tokens of a text: its bytes, or what a vocabulary makes of them. Making takes time, so it is done once, and the
 * tokens are kept in a file of the cache, in llm.c's format, whose name is made of the text's files (see text_files.h)
 * and of the vocabulary. */
#ifndef TEXT_TOKENS_H
#define TEXT_TOKENS_H
#include <stdbool.h>

#include "../tokens/token_file.h"
#include "bpe.h"
#include "text_files.h"

typedef struct text_source {
  const text_files *files;
  const bpe *vocabulary;    /* NULL: bytes are tokens */
  const char *cache_folder; /* empty: $XDG_CACHE_HOME/brim, or ~/.cache/brim */
} text_source;

/* Bytes of a token in memory and in the cache; NULL: bytes are tokens. */
int32_t text_token_width(const bpe *vocabulary);
/* Can the number of tokens be had without reading the text? Then *count is it. */
bool text_tokens_count(const text_source *source, int64_t *count);
/* Maps the tokens, or makes them, and keeps them in the cache if that can be written. Texts follow each other, with the
 * vocabulary's end of text in between if it has one. ELOAD, ENOMEM_HOST. */
brim_status text_tokens_open(const text_source *source, token_file *out);
#endif
