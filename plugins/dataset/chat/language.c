/* Opens a model's tokenizer and template. See language.h. */
#include "language.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "brim/host.h"

#define NAME_ROOM 4096

/* Reads a file of at most `most` bytes into memory that the caller frees; *text is NULL if there is none. */
static brim_status read_file(const char *name, size_t most, char **text, size_t *bytes)
{
  struct stat st;
  *text = NULL;
  const int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return errno == ENOENT ? BRIM_OK : brim_fail(BRIM_ELOAD, "cannot open '%s': %s", name, strerror(errno));
  brim_status status = BRIM_OK;
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || (size_t)st.st_size > most)
    status = brim_fail(BRIM_ELOAD, "'%s' is not a file of at most %zu bytes", name, most);
  if (status == BRIM_OK && !(*text = brim_try_calloc((size_t)st.st_size + 1, 1)))
    status = brim_fail(BRIM_ENOMEM_HOST, "no memory for '%s'", name);
  *bytes = status == BRIM_OK ? (size_t)st.st_size : 0;
  if (status == BRIM_OK) status = brim_read_whole(name, fd, *bytes, *text);
  close(fd);
  return status;
}

/* The name of a file beside the tokenizer. */
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
  BRIM_TRY(name_beside(path, "tokenizer_config.json", name));
  brim_status status = read_file(name, (size_t)64 << 20, &text, &bytes);
  if (status == BRIM_OK && text) {
    *out = json_loadb(text, bytes, JSON_DECODE_INT_AS_REAL, &error);
    if (!*out)
      status =
          brim_fail(BRIM_ELOAD, "'%s' is not JSON: line %d, column %d: %s", name, error.line, error.column, error.text);
  }
  free(text);
  return status;
}

/* The variables that transformers gives to a template: special tokens by their names. */
static brim_status take_variables(const json_t *config, json_t **out)
{
  static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                      "pad_token", "cls_token", "mask_token"};
  *out = json_object();
  for (size_t i = 0; *out && i < sizeof names / sizeof names[0]; i++) {
    json_t *value = json_object_get(config, names[i]);
    if (json_is_object(value)) value = json_object_get(value, "content");
    if (json_is_string(value)) (void)json_object_set(*out, names[i], value);
  }
  return *out ? BRIM_OK : brim_fail(BRIM_ENOMEM_HOST, "no memory for the special tokens");
}

/* "chat_template" is a text, or a list of texts with names, of which "default" is for conversations. */
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

static brim_status open_template(const char *tokenizer_path, const char *path, const json_t *config, template **out)
{
  char name[NAME_ROOM], *text = NULL;
  size_t bytes = 0;
  if (path[0])
    snprintf(name, sizeof name, "%s", path);
  else
    BRIM_TRY(name_beside(tokenizer_path, "chat_template.jinja", name));
  BRIM_TRY(read_file(name, TEMPLATE_BYTES_MAX, &text, &bytes));
  if (!text && path[0]) return brim_fail(BRIM_ELOAD, "cannot open dataset.template '%s': no such file", path);
  const json_t *inside = text ? NULL : template_in(config);
  brim_status status = BRIM_OK;
  if (text)
    status = template_read(name, text, bytes, out);
  else if (inside)
    status = template_read("chat_template of tokenizer_config.json", json_string_value(inside),
                           json_string_length(inside), out);
  free(text);
  return status;
}

brim_status chat_language_open(const char *tokenizer_path, const char *template_path, chat_language *out)
{
  json_t *config = NULL;
  *out = (chat_language){0};
  brim_status status = tokenizer_open(tokenizer_path, true, &out->vocabulary);
  if (status == BRIM_OK) status = read_config(tokenizer_path, &config);
  if (status == BRIM_OK) status = take_variables(config, &out->variables);
  if (status == BRIM_OK) status = open_template(tokenizer_path, template_path, config, &out->template);
  json_decref(config);
  if (status != BRIM_OK) chat_language_close(out);
  return status;
}

void chat_language_close(chat_language *l)
{
  tokenizer_free(l->vocabulary);
  template_free(l->template);
  json_decref(l->variables);
  *l = (chat_language){0};
}
