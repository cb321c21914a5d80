/* The rows of a file of conversations. Each line has one JSON object. The keys of the first row determine the form:
 *
 *     {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}
 *     {"conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}            ShareGPT
 *     {"instruction": "...", "input": "...", "output": "..."}                                            Alpaca
 *     {"prompt": "...", "completion": "..."}                     texts, or lists of messages
 *     {"text": "..."}
 *
 * Other keys are ignored, except "tools" (a list of functions that the model may call), and "system" of ShareGPT and
 * Alpaca, which becomes the first message. */
#ifndef CHAT_CONVERSATION_H
#define CHAT_CONVERSATION_H
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

enum chat_form { CHAT_FORM_MESSAGES, CHAT_FORM_SHAREGPT, CHAT_FORM_ALPACA, CHAT_FORM_COMPLETION, CHAT_FORM_TEXT };

typedef struct chat_conversation {
  /* Messages, whose roles are system, user, assistant and tool. NULL if the row is a text. */
  json_t *messages, *tools; /* owned; tools may be NULL */
  size_t given;             /* number of first messages that are a prompt: their answers do not count */
  /* If the row is a text: the part before the answer, which may be empty, and the answer. */
  const char *prompt, *answer; /* parts of `row` */
  size_t prompt_bytes, answer_bytes;
  json_t *row; /* owned */
  int64_t line;
} chat_conversation;

typedef struct chat_file {
  const char *name; /* owned by the caller */
  const char *text;
  size_t bytes, at;
  int64_t line; /* the line of the last row that was read, from 1 */
  bool knows_form;
  enum chat_form form;
} chat_file;

/* [init] Maps a file. Returns ELOAD if that fails. */
brim_status chat_file_open(const char *name, chat_file *out);
void chat_file_close(chat_file *f);
/* [init] Reads the next row. Sets *more to false at the end of the file. If `use` is false, skips the row without
 * reading its JSON. Returns ELOAD with the file, the line and the error: JSON that is not valid, missing keys, roles
 * out of order, an empty answer, no answer, or parts that are not text. The caller releases *out. */
brim_status chat_file_next(chat_file *f, bool use, chat_conversation *out, bool *more);
void chat_conversation_release(chat_conversation *c);
/* Returns "system", "user" and so on for the name of a role in any of the forms; NULL for other names. */
const char *chat_role(const char *name);
#endif
