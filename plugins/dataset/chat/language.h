/* The tokenizer and the template of a model, opened when they are needed. */
#ifndef CHAT_LANGUAGE_H
#define CHAT_LANGUAGE_H
#include <jansson.h>

#include "template.h"
#include "tokenizer.h"

typedef struct chat_language {
  tokenizer *vocabulary;
  template *template; /* NULL: the model has none */
  json_t *variables;  /* of the template: the special tokens */
} chat_language;

/* [init] `tokenizer_path`: a folder or file; `template_path`: a file, or empty: that of the tokenizer's folder. ELOAD,
 * ECONFIG. */
brim_status chat_language_open(const char *tokenizer_path, const char *template_path, chat_language *out);
void chat_language_close(chat_language *l);
#endif
