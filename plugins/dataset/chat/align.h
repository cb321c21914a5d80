/* Finds the place of each token in the text that the tokens encode. */
#ifndef CHAT_ALIGN_H
#define CHAT_ALIGN_H
#include <stdbool.h>

#include "tokenizer.h"

/* Writes to start[i] the byte of the text at which token i begins, and to start[count] the end of the last token.
 * Returns false if the bytes of the tokens are not those of the text, because the tokenizer's normalizer has changed
 * the text. */
bool chat_align(const tokenizer *t, const int32_t *token, size_t count, const char *text, size_t bytes,
                uint32_t *start);
#endif
