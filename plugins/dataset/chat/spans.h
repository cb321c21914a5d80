/* Makes the tokens of a conversation, and marks those that the model learns. */
#ifndef CHAT_SPANS_H
#define CHAT_SPANS_H
#include <stdbool.h>

#include "conversation.h"
#include "template.h"
#include "tokenizer.h"

enum chat_learn { CHAT_LEARN_ANSWERS, CHAT_LEARN_LAST, CHAT_LEARN_ALL };

/* A range of bytes of a text. */
typedef struct chat_range {
  size_t first, end;
  bool is_open; /* the range does not include a token that reaches beyond its end */
} chat_range;

/* The memory in which tokens are made. It is used again for the next conversation. */
typedef struct chat_maker {
  const tokenizer *vocabulary;
  tokenizer_encoder *encoder;
  enum chat_learn learn;
  const template *template; /* NULL if the model has no template */
  const json_t *variables;  /* variables of the template: the special tokens */
  int64_t clock;            /* the time that the template sees */
  chat_range *range;
  size_t range_count, range_room;
  uint32_t *start; /* for each token, its first byte in the text */
  size_t start_room;
} chat_maker;

/* The tokens of a conversation. */
typedef struct chat_tokens {
  int32_t *token;
  uint8_t *counts; /* for each token, 1 if the model learns it */
  size_t count, room;
  size_t all;      /* the number of tokens, including those that were dropped after the last one that counts */
  bool unanswered; /* messages after the last answer were dropped */
} chat_tokens;

/* [init] Makes the tokens of a conversation, up to the last one that counts. `file` is used in messages. Returns ELOAD
 * with file and line, or ECONFIG: there is no template, the template refuses the conversation, the answers cannot be
 * found, or the model would not learn the end of an answer. */
brim_status chat_tokens_make(chat_maker *m, const char *file, const chat_conversation *c, chat_tokens *out);
void chat_tokens_free(chat_tokens *t);
void chat_maker_release(chat_maker *m);
#endif
