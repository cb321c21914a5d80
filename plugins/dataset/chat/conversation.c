/* Reads rows of conversations. See conversation.h. */
#include "conversation.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FORMS                                                                                                          \
  "brim reads rows with \"messages\"; \"conversations\"; \"instruction\" and \"output\"; \"prompt\" and "              \
  "\"completion\"; or \"text\""

/* The forms, each with the keys that a row must have. The first form that fits is used. */
static const struct {
  enum chat_form form;
  const char *key[2];
} forms[] = {{CHAT_FORM_MESSAGES, {"messages", NULL}},
             {CHAT_FORM_SHAREGPT, {"conversations", NULL}},
             {CHAT_FORM_ALPACA, {"instruction", "output"}},
             {CHAT_FORM_COMPLETION, {"prompt", "completion"}},
             {CHAT_FORM_TEXT, {"text", NULL}}};
#define FORMS_COUNT (sizeof forms / sizeof forms[0])

static brim_status fail_at(const chat_file *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
static brim_status fail_at(const chat_file *f, const char *format, ...)
{
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return brim_fail(BRIM_ELOAD, "%s:%" PRId64 ": %s", f->name, f->line, text);
}

static brim_status fail_memory(const chat_file *f)
{
  return brim_fail(BRIM_ENOMEM_HOST, "no memory for line %" PRId64 " of '%s'", f->line, f->name);
}

/* ---- messages ---- */

static const struct {
  const char *name, *role;
} roles[] = {
    {"system", "system"},       {"developer", "system"}, {"user", "user"},         {"human", "user"},
    {"assistant", "assistant"}, {"gpt", "assistant"},    {"chatgpt", "assistant"}, {"bot", "assistant"},
    {"model", "assistant"},     {"tool", "tool"},        {"observation", "tool"},  {"function_response", "tool"},
};

const char *chat_role(const char *name)
{
  for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
    if (strcmp(roles[i].name, name) == 0) return roles[i].role;
  return NULL;
}

static bool is_blank(const char *text)
{
  return text[strspn(text, " \t\r\n")] == '\0';
}

/* Checks that content is a text or a list of parts that are texts. Sets *blank if they have only spaces. */
static brim_status check_content(const chat_file *f, size_t number, const json_t *content, bool *blank)
{
  *blank = true;
  if (!content || json_is_null(content)) return BRIM_OK;
  if (json_is_string(content)) {
    *blank = is_blank(json_string_value(content));
    return BRIM_OK;
  }
  if (!json_is_array(content)) return fail_at(f, "message %zu: its content is not a text", number);
  for (size_t i = 0; i < json_array_size(content); i++) {
    const json_t *part = json_array_get(content, i);
    const char *type = json_string_value(json_object_get(part, "type"));
    const char *text = json_string_value(json_object_get(part, "text"));
    if (!type || strcmp(type, "text") != 0 || !text)
      return fail_at(f, "message %zu: a part of type '%.40s' is not supported, only text", number,
                     type ? type : "(none)");
    *blank = *blank && is_blank(text);
  }
  return BRIM_OK;
}

/* For each role, the roles that may come before it. "" stands for the start of the conversation. */
static const struct {
  const char *role, *after[4];
} order[] = {{"system", {""}},
             {"user", {"", "system", "assistant"}},
             {"assistant", {"user", "tool"}},
             {"tool", {"assistant", "tool"}}};

static bool may_follow(const char *role, const char *before)
{
  for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
    for (size_t k = 0; k < 4 && order[i].after[k]; k++)
      if (strcmp(order[i].role, role) == 0 && strcmp(order[i].after[k], before) == 0) return true;
  return false;
}

static bool has_items(const json_t *message, const char *key)
{
  const json_t *value = json_object_get(message, key);
  return json_array_size(value) > 0 || json_object_size(value) > 0;
}

static brim_status check_message(const chat_file *f, size_t number, const json_t *message, const char **before)
{
  bool blank;
  const char *role = json_string_value(json_object_get(message, "role"));
  BRIM_TRY(check_content(f, number, json_object_get(message, "content"), &blank));
  if (!may_follow(role, *before))
    return **before ? fail_at(f, "roles out of order: message %zu is of '%s' after one of '%s'", number, role, *before)
                    : fail_at(f, "roles out of order: the first message is of '%s'", role);
  if (strcmp(role, "assistant") == 0 && blank && !has_items(message, "tool_calls"))
    return fail_at(f, "message %zu is an empty answer", number);
  *before = role;
  return BRIM_OK;
}

/* Adds a message, with the usual name of its role. Its other keys stay, because templates may use them. */
static brim_status add_message(const chat_file *f, chat_conversation *c, const json_t *from, const char *role_key,
                               const char *content_key)
{
  const size_t number = json_array_size(c->messages) + 1;
  const char *name = json_string_value(json_object_get(from, role_key));
  const json_t *content = json_object_get(from, content_key);
  if (!name) return fail_at(f, "message %zu has no \"%s\"", number, role_key);
  if ((!content || json_is_null(content)) && !has_items(from, "tool_calls"))
    return fail_at(f, "message %zu has no \"%s\"", number, content_key);
  const char *role = chat_role(name);
  if (!role) return fail_at(f, "message %zu is of the unknown role '%.40s'", number, name);
  json_t *copy = json_copy((json_t *)(uintptr_t)from);
  if (strcmp(role_key, "role") != 0) json_object_del(copy, role_key);
  if (strcmp(content_key, "content") != 0) json_object_del(copy, content_key);
  int failed = json_object_set_new(copy, "role", json_string(role));
  failed |= json_object_set(copy, "content", content ? (json_t *)(uintptr_t)content : json_null());
  return json_array_append_new(c->messages, copy) | failed ? fail_memory(f) : BRIM_OK;
}

static brim_status add_text(const chat_file *f, chat_conversation *c, const char *role, json_t *content)
{
  json_t *message = json_pack("{s:s, s:o}", "role", role, "content", content);
  return message && json_array_append_new(c->messages, message) == 0 ? BRIM_OK : fail_memory(f);
}

static brim_status fail_other_form(const chat_file *f, const char *key)
{
  const brim_status status = fail_at(f, "the row has no \"%s\"", key);
  return brim_fail_add(status,
                       "all rows of a file have the form of its first row; dataset.path=[a.jsonl,b.jsonl] reads "
                       "files of several forms");
}

static brim_status add_list(const chat_file *f, chat_conversation *c, const json_t *list, const char *key)
{
  if (!list) return fail_other_form(f, key);
  if (!json_is_array(list)) return fail_at(f, "\"%s\" is not a list", key);
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *message = json_array_get(list, i);
    const bool is_sharegpt = !json_object_get(message, "role") && json_object_get(message, "from");
    if (!json_is_object(message)) return fail_at(f, "message %zu is not an object", i + 1);
    BRIM_TRY(add_message(f, c, message, is_sharegpt ? "from" : "role", is_sharegpt ? "value" : "content"));
  }
  return BRIM_OK;
}

/* Rows of ShareGPT and Alpaca may have the system message in a separate key. */
static brim_status add_system(const chat_file *f, chat_conversation *c)
{
  const char *system = json_string_value(json_object_get(c->row, "system"));
  return system && !is_blank(system) ? add_text(f, c, "system", json_string(system)) : BRIM_OK;
}

/* ---- rows ---- */

/* Gets the value of a key. Returns ELOAD if it is not a text. */
static brim_status get_text(const chat_file *f, const json_t *row, const char *key, const char **text, size_t *bytes)
{
  const json_t *value = json_object_get(row, key);
  *text = json_string_value(value);
  *bytes = json_string_length(value);
  if (!value) return fail_other_form(f, key);
  return *text ? BRIM_OK : fail_at(f, "\"%s\" is not a text", key);
}

static brim_status read_alpaca(const chat_file *f, chat_conversation *c)
{
  const char *instruction, *output;
  size_t bytes, output_bytes;
  const char *input = json_string_value(json_object_get(c->row, "input"));
  BRIM_TRY(get_text(f, c->row, "instruction", &instruction, &bytes));
  BRIM_TRY(get_text(f, c->row, "output", &output, &output_bytes));
  BRIM_TRY(add_system(f, c));
  const bool has_input = input && !is_blank(input);
  BRIM_TRY(add_text(f, c, "user",
                    has_input ? json_sprintf("%s\n\n%s", instruction, input) : json_stringn(instruction, bytes)));
  return add_text(f, c, "assistant", json_stringn(output, output_bytes));
}

static brim_status read_completion(const chat_file *f, chat_conversation *c)
{
  const json_t *prompt = json_object_get(c->row, "prompt"), *completion = json_object_get(c->row, "completion");
  if (json_is_array(prompt) && json_is_array(completion)) {
    BRIM_TRY(add_list(f, c, prompt, "prompt"));
    c->given = json_array_size(c->messages);
    return add_list(f, c, completion, "completion");
  }
  BRIM_TRY(get_text(f, c->row, "prompt", &c->prompt, &c->prompt_bytes));
  return get_text(f, c->row, "completion", &c->answer, &c->answer_bytes);
}

static brim_status read_tools(const chat_file *f, chat_conversation *c)
{
  json_t *tools = json_object_get(c->row, "tools");
  if (!tools || json_is_null(tools)) return BRIM_OK;
  if (json_is_string(tools) && is_blank(json_string_value(tools))) return BRIM_OK;
  c->tools = json_is_string(tools) ? json_loads(json_string_value(tools), 0, NULL) : json_incref(tools);
  return json_is_array(c->tools) ? BRIM_OK : fail_at(f, "\"tools\" is not a list");
}

static brim_status read_row(const chat_file *f, chat_conversation *c)
{
  brim_status status = BRIM_OK;
  c->messages = json_array();
  if (!c->messages) return fail_memory(f);
  if (f->form == CHAT_FORM_SHAREGPT) status = add_system(f, c);
  if (f->form == CHAT_FORM_MESSAGES || f->form == CHAT_FORM_SHAREGPT) {
    const char *key = f->form == CHAT_FORM_MESSAGES ? "messages" : "conversations";
    if (status == BRIM_OK) status = add_list(f, c, json_object_get(c->row, key), key);
  } else if (f->form == CHAT_FORM_ALPACA) {
    status = read_alpaca(f, c);
  } else if (f->form == CHAT_FORM_COMPLETION) {
    status = read_completion(f, c);
  } else {
    c->prompt = "";
    status = get_text(f, c->row, "text", &c->answer, &c->answer_bytes);
  }
  BRIM_TRY(status);
  if (!c->answer) {
    BRIM_TRY(read_tools(f, c));
    const char *before = "";
    bool answered = false;
    for (size_t i = 0; i < json_array_size(c->messages); i++) {
      BRIM_TRY(check_message(f, i + 1, json_array_get(c->messages, i), &before));
      answered = answered || (i >= c->given && strcmp(before, "assistant") == 0);
    }
    return answered ? BRIM_OK : fail_at(f, "the %s has no answer", c->given > 0 ? "completion" : "conversation");
  }
  json_decref(c->messages);
  c->messages = NULL;
  return is_blank(c->answer) ? fail_at(f, f->form == CHAT_FORM_TEXT ? "an empty text" : "an empty answer") : BRIM_OK;
}

static brim_status find_form(chat_file *f, const json_t *row)
{
  for (size_t i = 0; i < FORMS_COUNT; i++) {
    bool fits = true;
    for (size_t k = 0; k < 2 && forms[i].key[k]; k++) fits = fits && json_object_get(row, forms[i].key[k]);
    if (!fits) continue;
    f->form = forms[i].form;
    f->knows_form = true;
    return BRIM_OK;
  }
  if (json_object_get(row, "chosen") && json_object_get(row, "rejected"))
    return fail_at(f, "rows with \"chosen\" and \"rejected\" are for learning from preferences, which brim does not "
                      "do");
  const char *key = json_object_iter_key(json_object_iter((json_t *)(uintptr_t)row));
  const brim_status status = fail_at(f, "the form of the rows is unknown: the first key is \"%.60s\"", key ? key : "");
  return brim_fail_add(status, FORMS);
}

/* Finds the next line that is not blank. */
static bool next_line(chat_file *f, const char **line, size_t *bytes)
{
  while (f->at < f->bytes) {
    *line = f->text + f->at;
    const char *end = memchr(*line, '\n', f->bytes - f->at);
    *bytes = end ? (size_t)(end - *line) : f->bytes - f->at;
    f->at += *bytes + (end != NULL);
    f->line++;
    size_t blank = 0;
    while (blank < *bytes && (*line)[blank] && strchr(" \t\r", (*line)[blank])) blank++;
    if (blank < *bytes) return true;
  }
  return false;
}

/* jansson sees only one line, so its messages call the end of the line the end of the file. */
static brim_status fail_json(const chat_file *f, const json_error_t *error)
{
  const char *end = strstr(error->text, " near end of file");
  const int bytes = end ? (int)(end - error->text) : (int)strlen(error->text);
  const brim_status status = brim_fail(BRIM_ELOAD, "%s:%" PRId64 ":%d: not JSON: %.*s%s", f->name, f->line,
                                       error->column, bytes, error->text, end ? " at the end of the line" : "");
  return f->knows_form ? status : brim_fail_add(status, "each line must be a JSON object\n" FORMS);
}

static brim_status parse(chat_file *f, const char *line, size_t bytes, chat_conversation *c)
{
  json_error_t error;
  c->line = f->line;
  c->row = json_loadb(line, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
  if (!c->row && line[strspn(line, " \t")] == '[' && f->line == 1) {
    const brim_status status = fail_at(f, "a list that spans lines, but each line must be a row");
    return brim_fail_add(status, "convert it: jq -c '.[]' %s > rows.jsonl", f->name);
  }
  if (!c->row) return fail_json(f, &error);
  if (json_is_array(c->row)) {
    const brim_status status = fail_at(f, "a list, but each line must be a row");
    return brim_fail_add(status, "convert it: jq -c '.[]' %s > rows.jsonl", f->name);
  }
  if (!json_is_object(c->row)) return fail_at(f, "the row is not an object");
  if (!f->knows_form) BRIM_TRY(find_form(f, c->row));
  return read_row(f, c);
}

brim_status chat_file_next(chat_file *f, bool use, chat_conversation *out, bool *more)
{
  const char *line;
  size_t bytes;
  *out = (chat_conversation){0};
  *more = next_line(f, &line, &bytes);
  if (!*more || !use) return BRIM_OK;
  const brim_status status = parse(f, line, bytes, out);
  if (status != BRIM_OK) chat_conversation_release(out);
  return status;
}

void chat_conversation_release(chat_conversation *c)
{
  json_decref(c->messages);
  json_decref(c->tools);
  json_decref(c->row);
  *c = (chat_conversation){0};
}

/* ---- files ---- */

static brim_status map(int fd, chat_file *f)
{
  struct stat st;
  if (fstat(fd, &st) != 0) return brim_fail(BRIM_ELOAD, "cannot read '%s': %s", f->name, strerror(errno));
  if (S_ISDIR(st.st_mode)) return brim_fail(BRIM_ELOAD, "'%s' is a folder, not a file of JSON lines", f->name);
  if (!S_ISREG(st.st_mode)) return brim_fail(BRIM_ELOAD, "'%s' is not a file of JSON lines", f->name);
  if (st.st_size == 0) return brim_fail(BRIM_ELOAD, "'%s' is empty", f->name);
  void *text = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (text == MAP_FAILED) return brim_fail(BRIM_ELOAD, "cannot map '%s': %s", f->name, strerror(errno));
  f->text = text;
  f->bytes = (size_t)st.st_size;
  if (f->bytes >= 3 && memcmp(f->text, "\xef\xbb\xbf", 3) == 0) f->at = 3; /* skips UTF-8's byte order mark */
  return BRIM_OK;
}

brim_status chat_file_open(const char *name, chat_file *out)
{
  *out = (chat_file){.name = name};
  const int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return brim_fail(BRIM_ELOAD, "cannot open '%s': %s", name, strerror(errno));
  const brim_status status = map(fd, out);
  close(fd);
  return status;
}

void chat_file_close(chat_file *f)
{
  if (f->text) munmap((void *)(uintptr_t)f->text, f->bytes);
  *f = (chat_file){0};
}
