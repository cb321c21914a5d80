/* Fuzzes files of conversations: every row is refused with the file, the line and a text, or it has messages of known
 * roles that begin with a question and contain an answer, or a text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../plugins/dataset/chat/conversation.h"
#include "memory_file.h"

#define INPUT_BYTES_MAX ((size_t)1 << 18)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int condition, const char *what)
{
  if (condition) return;
  fprintf(stderr, "fuzz_conversation: %s\n", what);
  abort();
}

static void check_messages(const chat_conversation *c)
{
  int answers = 0;
  for (size_t i = 0; i < json_array_size(c->messages); i++) {
    const char *role = json_string_value(json_object_get(json_array_get(c->messages, i), "role"));
    check(role && chat_role(role) && strcmp(chat_role(role), role) == 0, "a role of another form");
    check(i > 0 || strcmp(role, "user") == 0 || strcmp(role, "system") == 0, "another role begins");
    answers += strcmp(role, "assistant") == 0;
  }
  check(answers > 0, "no answer");
}

static void check_row(const chat_conversation *c)
{
  check(c->row && c->line > 0, "a row without JSON or line");
  check(!c->messages == !!c->answer, "neither messages nor a text");
  if (c->messages) check_messages(c);
  if (c->answer) check(strlen(c->answer) == c->answer_bytes && strlen(c->prompt) == c->prompt_bytes, "lengths");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  char name[32];
  chat_file file;
  bool more = true;
  if (size > INPUT_BYTES_MAX) return 0;
  const int fd = memory_file(data, size, name);
  brim_status status = chat_file_open(name, &file);
  for (int64_t row = 0; status == BRIM_OK && more; row++) {
    chat_conversation c;
    const bool use = row % 5 != 4;
    status = chat_file_next(&file, use, &c, &more);
    if (status == BRIM_OK && more && use) {
      check_row(&c);
      chat_conversation_release(&c);
    }
    check(status == BRIM_OK || strstr(brim_error_text(), name), "refused without the file");
  }
  chat_file_close(&file);
  close(fd);
  return 0;
}
