/* A model's tokenizer, its chat template and the template's variables, which together render conversations. */
#ifndef CHAT_MODEL_H
#define CHAT_MODEL_H
#include <jansson.h>

#include "brim/dataset.h"
#include "template.h"
#include "tokenizer.h"

typedef struct chat_model {
  tokenizer *vocabulary;
  template *template; /* NULL if the model has no template */
  json_t *variables;  /* variables of the template: the special tokens, such as bos_token */
  /* The text and the tokens of the last conversation. */
  template_output text;
  int32_t *tokens;
  size_t count, room;
  int32_t ends[2];
} chat_model;

/* [init] Opens a model. `tokenizer_path`: a folder, a tokenizer.json or a GGUF file. `choice`: a template that comes
 * with brim (template_shipped), or a file. If it is empty, the model's own template is used: chat_template.jinja or
 * chat_template.json in the folder, or else chat_template in its tokenizer_config.json. Returns ELOAD or ECONFIG. */
brim_status chat_model_open(const char *tokenizer_path, const char *choice, chat_model *out);
void chat_model_close(chat_model *m);
/* [init] The converse() of a dataset (brim_dataset_ops). */
brim_status chat_model_converse(chat_model *m, const char *json, brim_conversation *out);
/* Returns ECONFIG, because the model has no template. The message says how to choose one and begins with `what`:
 * "'a.jsonl' has conversations". */
brim_status chat_model_fail_no_template(const char *what);
#endif
