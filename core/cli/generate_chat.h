/* brim generate --chat: a conversation with a language model, turn by turn. */
#ifndef BRIM_CLI_GENERATE_CHAT_H
#define BRIM_CLI_GENERATE_CHAT_H
#include <jansson.h>

#include "data/data.h"
#include "train/generate.h"

typedef struct brim_generate_chat {
  const brim_data *data;
  brim_generator *generator;
  brim_generate_options how; /* this file sets `take` and `context` */
  int64_t limit;             /* most tokens that the model sees */
  bool quiet;                /* print only errors, because the conversation is printed as JSON afterwards */
  json_t *messages;
  brim_text bytes, shown, answer; /* bytes of an incomplete character; characters of the current answer that are not
                                     printed yet; all of the answer */
  uint32_t turn;
} brim_generate_chat;

/* ECONFIG if the dataset has no conversations, or no chat template. */
brim_status brim_generate_chat_check(const brim_data *data);
/* Begins a conversation; `system` may be NULL. */
void brim_generate_chat_begin(brim_generate_chat *chat, const char *system);
/* Runs one turn: adds the user's text, prints the answer while the model generates it, and adds the answer. If the
 * conversation is longer than the model's context, leaves out the oldest turns. */
brim_status brim_generate_chat_say(brim_generate_chat *chat, const char *text, size_t bytes);
/* Runs a turn for each line of standard input, until it ends; at a terminal, prompts for the lines. */
brim_status brim_generate_chat_read(brim_generate_chat *chat);
void brim_generate_chat_release(brim_generate_chat *chat);
#endif
