/* Opens a model's tokenizer and template. See chat_model.h. */
#include "chat_model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "brim/host.h"
#include "parts.h"

/* Reads a file. *text is NULL if the file is missing. */
static brim_status read_if_there(const char *name, size_t most, char **text, size_t *bytes)
{
  *text = NULL;
  *bytes = 0;
  return access(name, F_OK) != 0 && errno == ENOENT ? BRIM_OK : brim_read_file(name, most, text, bytes);
}

/* Makes the name of a file beside the tokenizer. */
static brim_status name_beside(const char *path, const char *file, char out[NAME_ROOM])
{
  struct stat st;
  const char *slash = strrchr(path, '/');
  int folder = (int)strlen(path);
  if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode)) folder = slash ? (int)(slash - path) : 0;
  const int length = snprintf(out, NAME_ROOM, "%.*s%s%s", folder, path, folder ? "/" : "", file);
  return length < NAME_ROOM ? BRIM_OK : brim_fail(BRIM_ECONFIG, "the path '%.100s...' is too long", path);
}

static brim_status read_config(const char *path, json_t **out)
{
  char name[NAME_ROOM], *text = NULL;
  size_t bytes = 0;
  json_error_t error;
  char *vocabulary = NULL;
  brim_status status = BRIM_OK;
  if (tokenizer_is_in_gguf(path)) {
    snprintf(name, sizeof name, "%s", path);
    status = brim_gguf_tokenizer(path, &vocabulary, &text);
    bytes = text ? strlen(text) : 0;
    free(vocabulary);
  } else {
    BRIM_TRY(name_beside(path, "tokenizer_config.json", name));
    status = read_if_there(name, (size_t)64 << 20, &text, &bytes);
  }
  if (status == BRIM_OK && text) {
    *out = json_loadb(text, bytes, JSON_DECODE_INT_AS_REAL, &error);
    if (!*out)
      status =
          brim_fail(BRIM_ELOAD, "'%s' is not JSON: line %d, column %d: %s", name, error.line, error.column, error.text);
  }
  free(text);
  return status;
}

/* Collects the variables that transformers passes to a template: special tokens by their names. */
static brim_status take_variables(const json_t *config, json_t **out)
{
  static const char *const keys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                     "pad_token", "cls_token", "mask_token"};
  *out = json_object();
  for (size_t i = 0; *out && i < sizeof keys / sizeof keys[0]; i++) {
    json_t *value = json_object_get(config, keys[i]);
    if (json_is_object(value)) value = json_object_get(value, "content");
    if (json_is_string(value)) (void)json_object_set(*out, keys[i], value);
  }
  return *out ? BRIM_OK : brim_fail(BRIM_ENOMEM_HOST, "no memory for the special tokens");
}

/* "chat_template" is a text, or a list of texts with keys; the key "default" is for conversations. */
static const json_t *template_in(const json_t *config)
{
  const json_t *value = json_object_get(config, "chat_template");
  for (size_t i = 0; i < json_array_size(value); i++) {
    const json_t *item = json_array_get(value, i);
    const char *name = json_string_value(json_object_get(item, "name"));
    if (name && strcmp(name, "default") == 0) return json_object_get(item, "template");
  }
  return json_is_string(value) ? value : NULL;
}

/* Reads the template from a chat_template.json, an object whose "chat_template" is as in tokenizer_config.json. */
static brim_status read_template_json(const char *name, const char *text, size_t bytes, template **out)
{
  json_error_t error;
  json_t *root = json_loadb(text, bytes, 0, &error);
  const json_t *inside = template_in(root);
  brim_status status;
  if (!root)
    status =
        brim_fail(BRIM_ELOAD, "'%s' is not JSON: line %d, column %d: %s", name, error.line, error.column, error.text);
  else if (!inside)
    status = brim_fail(BRIM_ELOAD, "'%s' has no \"chat_template\"", name);
  else
    status = template_read(name, json_string_value(inside), json_string_length(inside), out);
  json_decref(root);
  return status;
}

/* Reads a template from a text file or a JSON file. *out is NULL if there is no such file. */
static brim_status read_template(const char *name, template **out)
{
  const size_t length = strlen(name);
  char *text = NULL;
  size_t bytes = 0;
  BRIM_TRY(read_if_there(name, 2 * TEMPLATE_BYTES_MAX, &text, &bytes));
  if (!text) return BRIM_OK;
  const bool is_json = length > 5 && strcmp(name + length - 5, ".json") == 0;
  const brim_status status =
      is_json ? read_template_json(name, text, bytes, out) : template_read(name, text, bytes, out);
  free(text);
  return status;
}

static brim_status open_template(const char *tokenizer_path, const char *choice, const json_t *config, template **out)
{
  static const char *const files[] = {"chat_template.jinja", "chat_template.json"};
  char name[NAME_ROOM];
  if (choice[0]) {
    const char *shipped = template_shipped(choice);
    if (shipped) return template_read(choice, shipped, strlen(shipped), out);
    BRIM_TRY(read_template(choice, out));
    if (*out) return BRIM_OK;
    return brim_fail(BRIM_ELOAD, "cannot open dataset.template '%s': no such file\nthese come with brim: %s", choice,
                     TEMPLATE_SHIPPED);
  }
  const json_t *inside = template_in(config);
  for (size_t i = 0; i < 2 && !*out && !tokenizer_is_in_gguf(tokenizer_path); i++) {
    BRIM_TRY(name_beside(tokenizer_path, files[i], name));
    BRIM_TRY(read_template(name, out));
  }
  if (*out || !inside) return BRIM_OK;
  return template_read("chat_template of tokenizer_config.json", json_string_value(inside), json_string_length(inside),
                       out);
}

brim_status chat_model_open(const char *tokenizer_path, const char *choice, chat_model *out)
{
  json_t *config = NULL;
  *out = (chat_model){0};
  brim_status status = tokenizer_open(tokenizer_path, true, &out->vocabulary);
  if (status == BRIM_OK) status = read_config(tokenizer_path, &config);
  if (status == BRIM_OK) status = take_variables(config, &out->variables);
  if (status == BRIM_OK) status = open_template(tokenizer_path, choice, config, &out->template);
  json_decref(config);
  if (status != BRIM_OK) chat_model_close(out);
  return status;
}

void chat_model_close(chat_model *m)
{
  tokenizer_free(m->vocabulary);
  template_free(m->template);
  template_output_free(&m->text);
  json_decref(m->variables);
  free(m->tokens);
  *m = (chat_model){0};
}

/* ---- conversations ---- */

brim_status chat_model_fail_no_template(const char *what)
{
  return brim_fail(BRIM_ECONFIG,
                   "%s, but the model has no chat template, so brim cannot format conversations for it\nset "
                   "dataset.template to one that comes with brim (%s), or to the file of a template: those of many "
                   "models are in the Python package trl (trl/chat_templates)",
                   what, TEMPLATE_SHIPPED);
}

static brim_status take(void *context, const int32_t *tokens, size_t count)
{
  chat_model *m = context;
  if (count > m->room - m->count) {
    const size_t room = 2 * (m->count + count) + 256;
    int32_t *grown = brim_fault_hit(BRIM_FAULT_ALLOC, NULL) ? NULL : realloc(m->tokens, room * sizeof *grown);
    if (!grown) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the tokens of a conversation");
    m->tokens = grown;
    m->room = room;
  }
  memcpy(m->tokens + m->count, tokens, count * sizeof *tokens);
  m->count += count;
  return BRIM_OK;
}

/* Renders the conversation and makes the tokens of the text. */
static brim_status render(chat_model *m, const json_t *conversation)
{
  json_t *context = json_copy(m->variables);
  const bool good = context && json_object_set(context, "tools", json_null()) == 0 &&
                    json_object_set(context, "documents", json_null()) == 0 &&
                    json_object_update(context, (json_t *)(uintptr_t)conversation) == 0;
  template_output_free(&m->text);
  m->count = 0;
  brim_status status = good ? template_render(m->template, context, time(NULL), &m->text)
                            : brim_fail(BRIM_ENOMEM_HOST, "no memory for a conversation");
  json_decref(context);
  if (status == BRIM_OK)
    status = tokenizer_encode(m->vocabulary, "the conversation", m->text.text, m->text.bytes, 0, take, m);
  return status;
}

/* Finds the special token that the template writes after an answer. Returns -1 if there is none. */
static int32_t end_of_answer(chat_model *m)
{
  static const char *const answered =
      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}],"
      " \"add_generation_prompt\": false}";
  json_t *conversation = json_loads(answered, 0, NULL);
  const brim_status status = render(m, conversation);
  json_decref(conversation);
  size_t at = status == BRIM_OK ? m->count : 0;
  bool found = false; /* the search for the answer starts at the end */
  int32_t end = -1;
  for (; at > 0 && !found; at--) {
    size_t bytes;
    const char *piece = tokenizer_piece(m->vocabulary, m->tokens[at - 1], &bytes);
    found = !tokenizer_is_special(m->vocabulary, m->tokens[at - 1]) && memchr(piece, 'b', bytes);
    if (!found && tokenizer_is_special(m->vocabulary, m->tokens[at - 1])) end = m->tokens[at - 1];
  }
  return found ? end : -1;
}

brim_status chat_model_converse(chat_model *m, const char *json, brim_conversation *out)
{
  json_error_t error;
  if (!m->template) return chat_model_fail_no_template("this is a conversation");
  json_t *conversation = json_loads(json, 0, &error);
  if (!json_is_object(conversation)) {
    json_decref(conversation);
    return brim_fail(BRIM_ELOAD, "the conversation is not a JSON object: %s", error.text);
  }
  const int32_t after = end_of_answer(m), end = tokenizer_end_of_text(m->vocabulary);
  const brim_status status = render(m, conversation);
  json_decref(conversation);
  BRIM_TRY(status);
  size_t ends = 0;
  if (after >= 0) m->ends[ends++] = after;
  if (end >= 0 && end != after) m->ends[ends++] = end;
  *out = (brim_conversation){m->text.text, m->text.bytes, m->tokens, m->count, m->ends, ends};
  return BRIM_OK;
}
