/* The history is rendered again for each answer, because templates may change earlier turns. See generate_chat.h. */
#include "cli/generate_chat.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/characters.h"

#define LINE_BYTES_MAX ((size_t)1 << 20)

/* ---- the history ---- */

static void add_message(json_t *messages, const char *role, const char *text, size_t bytes)
{
  json_array_append_new(messages, json_pack("{s:s, s:s%}", "role", role, "content", text, bytes));
}

/* Removes the oldest turn after the system message; returns whether there was one besides the last. */
static bool drop_turn(json_t *messages)
{
  const char *first = json_string_value(json_object_get(json_array_get(messages, 0), "role"));
  const size_t at = first && strcmp(first, "system") == 0;
  if (json_array_size(messages) < at + 3) return false;
  json_array_remove(messages, at);
  json_array_remove(messages, at);
  return true;
}

static brim_status render(const brim_generate_chat *c, json_t *messages, brim_conversation *out)
{
  json_t *conversation = json_pack("{s:O, s:b}", "messages", messages, "add_generation_prompt", 1);
  char *text = conversation ? json_dumps(conversation, JSON_COMPACT) : NULL;
  json_decref(conversation);
  if (!text) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the conversation");
  *out = (brim_conversation){0};
  const brim_status status = c->data->ops->converse(c->data->self, text, out);
  free(text);
  return status;
}

/* Renders as many of the last turns as leave room for an answer. */
static brim_status render_last(const brim_generate_chat *c, brim_conversation *out)
{
  json_t *messages = json_copy(c->messages);
  const int64_t room = c->how.tokens < c->limit / 2 ? c->how.tokens : c->limit / 2;
  int64_t dropped = 0;
  brim_status status = render(c, messages, out);
  while (status == BRIM_OK && (int64_t)out->count + room > c->limit && drop_turn(messages)) {
    dropped++;
    status = render(c, messages, out);
  }
  json_decref(messages);
  if (status == BRIM_OK && (int64_t)out->count >= c->limit)
    return brim_fail(BRIM_ECONFIG,
                     "the conversation has %zu tokens, but the model sees %" PRId64
                     "\n--context sets how many, if the model allows more",
                     out->count, c->limit);
  if (dropped > 0)
    brim_log(BRIM_LOG_INFO,
             "brim left out %" PRId64 " of the oldest turns: the model sees %" PRId64 " tokens, of which %" PRId64
             " are reserved for the answer",
             dropped, c->limit, room);
  return status;
}

/* ---- the answer ---- */

static brim_status take(void *context, int64_t index, int32_t token)
{
  brim_generate_chat *c = context;
  const char *text = NULL;
  size_t bytes = 0;
  (void)index;
  BRIM_TRY(c->data->ops->decode(c->data->self, token, &text, &bytes));
  brim_text_add_n(&c->bytes, text, bytes);
  return BRIM_OK;
}

static brim_status show(brim_generate_chat *c, bool last)
{
  brim_characters_take(&c->bytes, last, &c->shown);
  brim_text_add_n(&c->answer, brim_text_str(&c->shown), c->shown.length);
  const bool failed = !c->quiet && (fwrite(brim_text_str(&c->shown), 1, c->shown.length, stdout) != c->shown.length ||
                                    (last && putchar('\n') == EOF) || fflush(stdout) != 0);
  brim_text_clear(&c->shown);
  return failed ? brim_fail(BRIM_EIO, "cannot write to standard output: %s", strerror(errno)) : BRIM_OK;
}

static brim_status take_and_show(void *context, int64_t index, int32_t token)
{
  BRIM_TRY(take(context, index, token));
  return show(context, false);
}

brim_status brim_generate_chat_say(brim_generate_chat *c, const char *text, size_t bytes)
{
  brim_conversation conversation;
  add_message(c->messages, "user", text, bytes);
  BRIM_TRY(render_last(c, &conversation));
  for (size_t i = 0; i < conversation.end_count && c->how.stops.count < BRIM_STOPS_MAX; i++)
    if (!brim_stops_have(&c->how.stops, conversation.ends[i]))
      c->how.stops.token[c->how.stops.count++] = conversation.ends[i];
  brim_text_clear(&c->answer);
  c->how.take = take_and_show;
  c->how.end = NULL;
  c->how.context = c;
  const brim_generate_text prompt = {conversation.tokens, (int64_t)conversation.count, c->turn++};
  const brim_status status = brim_generator_run(c->generator, &prompt, 1, &c->how);
  /* An interrupted answer is completed like others. */
  const bool whole = status == BRIM_OK || status == BRIM_EINTERRUPTED;
  const brim_status shown = whole ? show(c, true) : BRIM_OK;
  if (whole) add_message(c->messages, "assistant", brim_text_str(&c->answer), c->answer.length);
  return status == BRIM_OK ? shown : status;
}

/* ---- turns ---- */

brim_status brim_generate_chat_check(const brim_data *data)
{
  static const char hello[] =
      "{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}], \"add_generation_prompt\": true}";
  brim_conversation conversation = {0};
  if (BRIM_HAS(brim_dataset_ops, data->ops, converse)) return data->ops->converse(data->self, hello, &conversation);
  return brim_fail(BRIM_ECONFIG, "--chat needs a dataset with chat templates: dataset=chat, or dataset=text with "
                                 "dataset.tokens=hf");
}

void brim_generate_chat_begin(brim_generate_chat *c, const char *system)
{
  c->messages = json_array();
  if (system) add_message(c->messages, "system", system, strlen(system));
}

static brim_status say_line(brim_generate_chat *c, char *line, size_t bytes)
{
  if (bytes > 0 && line[bytes - 1] == '\n') bytes--;
  if (strspn(line, " \t\r\n") >= bytes) return BRIM_OK;
  if (bytes > LINE_BYTES_MAX) return brim_fail(BRIM_ELOAD, "a line has %zu bytes, at most %zu", bytes, LINE_BYTES_MAX);
  return brim_generate_chat_say(c, line, bytes);
}

brim_status brim_generate_chat_read(brim_generate_chat *c)
{
  const bool asks = isatty(STDIN_FILENO) && !c->quiet;
  brim_status status = BRIM_OK;
  char *line = NULL;
  size_t room = 0;
  while (status == BRIM_OK) {
    if (asks && (fputs("> ", stdout) == EOF || fflush(stdout) != 0)) break;
    errno = 0;
    const ssize_t bytes = getline(&line, &room, stdin);
    if (bytes < 0 && errno && ferror(stdin))
      status = brim_fail(BRIM_EIO, "cannot read standard input: %s", strerror(errno));
    if (bytes < 0) break;
    status = say_line(c, line, (size_t)bytes);
  }
  if (asks) putchar('\n');
  free(line);
  return status;
}

void brim_generate_chat_release(brim_generate_chat *c)
{
  json_decref(c->messages);
  brim_text_release(&c->bytes);
  brim_text_release(&c->shown);
  brim_text_release(&c->answer);
  c->messages = NULL;
}
