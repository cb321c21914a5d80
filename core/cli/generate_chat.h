/* brim generate --chat: a conversation with a language model, turn by turn. */
#ifndef BRIM_CLI_GENERATE_CHAT_H
#define BRIM_CLI_GENERATE_CHAT_H
#include <jansson.h>

#include "data/data.h"
#include "train/generate.h"

typedef struct brim_generate_chat {
  const brim_data *data;
  brim_generator *generator;
  brim_generate_options how; /* take and context are set here */
  int64_t limit;             /* tokens that the model sees at most */
  bool quiet;                /* print nothing but errors: the conversation is printed as JSON afterwards */
  json_t *messages;
  brim_text bytes, shown, answer; /* of the current answer: an incomplete character; not printed yet; all */
  uint32_t turn;
} brim_generate_chat;

/* ECONFIG if the data know no conversations, or have no chat template. */
brim_status brim_generate_chat_check(const brim_data *data);
/* Begins a conversation; `system` may be NULL. */
void brim_generate_chat_begin(brim_generate_chat *chat, const char *system);
/* One turn: adds the user's text, prints the answer as it is drawn, and adds it. When the conversation is longer than
 * the model's context, the oldest turns are left out. */
brim_status brim_generate_chat_say(brim_generate_chat *chat, const char *text, size_t bytes);
/* Turns from standard input, a line each, until it ends; asks for them at a terminal. */
brim_status brim_generate_chat_read(brim_generate_chat *chat);
void brim_generate_chat_release(brim_generate_chat *chat);
#endif
