/* Finds the tokens of a conversation that the loss counts. See spans.h.
 *
 * If the template marks answers with {% generation %}, brim uses the marks. Otherwise it renders the conversation
 * twice: up to the answer, including the start of the answer (add_generation_prompt), and with the answer. The
 * difference is the answer. The longer text must begin with the shorter one, and the whole conversation must begin with
 * both. So brim refuses a template that renders earlier turns in another way when later ones follow (Qwen3 drops old
 * thoughts), unless only the last answer counts. */
#include "spans.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "align.h"
#include "brim/host.h"
#include "chat_model.h"

void chat_tokens_free(chat_tokens *t)
{
  free(t->token);
  free(t->counts);
  *t = (chat_tokens){0};
}

void chat_maker_release(chat_maker *m)
{
  tokenizer_encoder_close(m->encoder);
  free(m->range);
  free(m->start);
  *m = (chat_maker){0};
}

static brim_status fail_memory(void)
{
  return brim_fail(BRIM_ENOMEM_HOST, "no memory for the tokens of a conversation");
}

static void *grow(void *memory, size_t count, size_t bytes)
{
  return brim_fault_hit(BRIM_FAULT_ALLOC, NULL) ? NULL : realloc(memory, count * bytes);
}

static brim_status add_range(chat_maker *m, chat_range range)
{
  if (m->range_count == m->range_room) {
    const size_t room = m->range_room ? 2 * m->range_room : 64;
    chat_range *grown = grow(m->range, room, sizeof *grown);
    if (!grown) return fail_memory();
    m->range = grown;
    m->range_room = room;
  }
  m->range[m->range_count++] = range;
  return BRIM_OK;
}

/* ---- answers in the rendered text ---- */

typedef struct finding {
  chat_maker *m;
  const char *file;
  const chat_conversation *c;
  template_output whole; /* the conversation up to the last answer */
  size_t messages;       /* number of messages in `whole` */
} finding;

static bool is_answer(const json_t *message)
{
  return strcmp(json_string_value(json_object_get(message, "role")), "assistant") == 0;
}

/* Renders the first `messages` messages and, if `prompt`, the start of an answer. */
static brim_status render(const finding *f, size_t messages, bool prompt, template_output *out)
{
  const chat_maker *m = f->m;
  *out = (template_output){0};
  json_t *list = json_array(), *context = json_copy((json_t *)(uintptr_t)m->variables);
  bool good = list && context;
  for (size_t i = 0; good && i < messages; i++) good = json_array_append(list, json_array_get(f->c->messages, i)) == 0;
  good = good && json_object_set(context, "messages", list) == 0 &&
         json_object_set(context, "tools", f->c->tools ? f->c->tools : json_null()) == 0 &&
         json_object_set(context, "documents", json_null()) == 0 &&
         json_object_set(context, "add_generation_prompt", json_boolean(prompt)) == 0;
  brim_status status = good ? template_render(m->template, context, m->clock, out) : fail_memory();
  json_decref(list);
  json_decref(context);
  return status == BRIM_ELOAD ? brim_fail_add(status, "of %s:%" PRId64, f->file, f->c->line) : status;
}

static size_t same_bytes(const template_output *a, const template_output *b)
{
  size_t n = 0;
  while (n < a->bytes && n < b->bytes && a->text[n] == b->text[n]) n++;
  return n;
}

static brim_status fail_rewritten(const finding *f, size_t message)
{
  const brim_status status =
      brim_fail(BRIM_ELOAD,
                "%s:%" PRId64 ": the template renders message %zu in another way when later messages follow, so the "
                "model would learn earlier answers in a form that it will not see",
                f->file, f->c->line, message + 1);
  return brim_fail_add(status,
                       "learn only the last answers (dataset.learn=last), or set dataset.template to a template "
                       "that keeps earlier turns, with {%% generation %%} around answers");
}

/* Finds the start of the answer that is message i. With add_generation_prompt, some templates write text that they
 * leave out if the answer follows, such as "<think>" of DeepSeek R1. The answer then begins where the two texts
 * differ. */
static brim_status find_start(const finding *f, size_t i, size_t *start)
{
  template_output before, plain = {0};
  BRIM_TRY(render(f, i, true, &before));
  *start = same_bytes(&before, &f->whole);
  brim_status status = BRIM_OK;
  if (*start < before.bytes) {
    status = render(f, i, false, &plain);
    if (status == BRIM_OK && same_bytes(&plain, &f->whole) != plain.bytes) status = fail_rewritten(f, i);
  }
  template_output_free(&before);
  template_output_free(&plain);
  return status;
}

/* Returns whether the text between two places has the content of a message. Thoughts in the content are ignored,
 * because templates rewrite or drop them. */
static bool has_content(const finding *f, size_t message, size_t start, size_t end)
{
  const char *content = json_string_value(json_object_get(json_array_get(f->c->messages, message), "content"));
  if (!content) return false;
  for (const char *at; (at = strstr(content, "</think>"));) content = at + strlen("</think>");
  content += strspn(content, " \t\r\n");
  size_t bytes = strlen(content);
  while (bytes > 0 && strchr(" \t\r\n", content[bytes - 1])) bytes--;
  return end > start && memmem(f->whole.text + start, end - start, content, bytes) != NULL;
}

/* Finds the end of the answer that is message i. Some templates write a token after the last answer only (Phi 3). An
 * earlier answer then ends where the two texts differ. */
static brim_status find_end(const finding *f, size_t i, size_t start, chat_range *out)
{
  template_output with;
  *out = (chat_range){start, f->whole.bytes};
  if (i + 1 == f->messages) return BRIM_OK;
  BRIM_TRY(render(f, i + 1, false, &with));
  out->end = same_bytes(&with, &f->whole);
  const bool is_whole = out->end == with.bytes;
  template_output_free(&with);
  if (is_whole) return BRIM_OK;
  out->is_open = true;
  return has_content(f, i, start, out->end) ? BRIM_OK : fail_rewritten(f, i);
}

/* Checks that the template has written the answer: templates for images drop contents that are not lists of parts. */
static brim_status check_written(const finding *f, size_t i, const chat_range *range)
{
  const json_t *content = json_object_get(json_array_get(f->c->messages, i), "content");
  if (!json_is_string(content) || has_content(f, i, range->first, range->end)) return BRIM_OK;
  return brim_fail(BRIM_ELOAD, "%s:%" PRId64 ": the template changes the text of message %zu, an answer", f->file,
                   f->c->line, i + 1);
}

/* Returns the first message that may be an answer that counts. */
static size_t first_learnt(const finding *f)
{
  return f->m->learn == CHAT_LEARN_LAST ? f->messages - 1 : f->c->given;
}

static brim_status find_by_rendering(const finding *f)
{
  for (size_t i = first_learnt(f); i < f->messages; i++) {
    size_t start;
    chat_range range;
    if (!is_answer(json_array_get(f->c->messages, i))) continue;
    BRIM_TRY(find_start(f, i, &start));
    BRIM_TRY(find_end(f, i, start, &range));
    BRIM_TRY(check_written(f, i, &range));
    BRIM_TRY(add_range(f->m, range));
  }
  return BRIM_OK;
}

/* One answer may have several marks. Those of an answer begin after the messages before it. */
static brim_status find_by_marks(const finding *f)
{
  const size_t first = first_learnt(f);
  size_t from = 0;
  if (f->whole.span_count == 0)
    return brim_fail(BRIM_ELOAD, "%s:%" PRId64 ": the template marks no answer in this conversation", f->file,
                     f->c->line);
  if (first > 0) {
    template_output before;
    BRIM_TRY(render(f, first, false, &before));
    const size_t same = same_bytes(&before, &f->whole);
    template_output_free(&before);
    while (from + 1 < f->whole.span_count && f->whole.span[from].end <= same) from++;
  }
  for (size_t i = from; i < f->whole.span_count; i++)
    BRIM_TRY(add_range(f->m, (chat_range){f->whole.span[i].begin, f->whole.span[i].end}));
  return BRIM_OK;
}

/* ---- tokens ---- */

static brim_status take(void *context, const int32_t *tokens, size_t count)
{
  chat_tokens *t = context;
  if (count > t->room - t->count) {
    size_t room = t->room ? 2 * t->room : 4096;
    while (room - t->count < count) room *= 2;
    int32_t *token = grow(t->token, room, sizeof *token);
    if (token) t->token = token;
    uint8_t *counts = token ? grow(t->counts, room, sizeof *counts) : NULL;
    if (counts) t->counts = counts;
    if (!counts) return fail_memory();
    t->room = room;
  }
  memcpy(t->token + t->count, tokens, count * sizeof *tokens);
  memset(t->counts + t->count, 0, count);
  t->count += count;
  return BRIM_OK;
}

/* Receives the tokens of a text's first part, and counts how many of them are also the first tokens of the whole
 * text. */
typedef struct comparison {
  const chat_tokens *with;
  size_t same;
  bool differs;
} comparison;

static brim_status compare(void *context, const int32_t *tokens, size_t count)
{
  comparison *c = context;
  for (size_t i = 0; i < count && !c->differs; i++) {
    c->differs = c->same >= c->with->count || c->with->token[c->same] != tokens[i];
    c->same += !c->differs;
  }
  return BRIM_OK;
}

static brim_status count_before(const chat_maker *m, const char *file, const char *text, size_t bytes, unsigned flags,
                                const chat_tokens *of, size_t *out)
{
  comparison c = {.with = of};
  BRIM_TRY(tokenizer_encoder_run(m->encoder, file, text, bytes, flags, compare, &c));
  *out = c.same;
  return BRIM_OK;
}

static brim_status reserve_starts(chat_maker *m, size_t count)
{
  if (count <= m->start_room) return BRIM_OK;
  uint32_t *grown = grow(m->start, 2 * count, sizeof *grown);
  if (!grown) return fail_memory();
  m->start = grown;
  m->start_room = 2 * count;
  return BRIM_OK;
}

/* Marks the tokens that have a byte in one of the ranges, as transformers does. `skip`: the number of tokens before
 * those of the text. */
static brim_status mark(chat_maker *m, const char *file, const char *text, size_t bytes, size_t skip, chat_tokens *t)
{
  const size_t count = t->count - skip;
  BRIM_TRY(reserve_starts(m, count + 1));
  if (chat_align(m->vocabulary, t->token + skip, count, text, bytes, m->start)) {
    size_t at = 0;
    for (size_t r = 0; r < m->range_count; r++) {
      while (at < count && m->start[at] < m->range[r].first && m->start[at + 1] <= m->range[r].first) at++;
      m->range[r].first = skip + at;
      size_t end = at;
      while (end < count && m->start[end + m->range[r].is_open] < m->range[r].end + m->range[r].is_open) end++;
      m->range[r].end = skip + end;
    }
  } else {
    for (size_t r = 0; r < m->range_count; r++) {
      const unsigned flags = skip ? TOKENIZER_BEGIN : 0;
      chat_range *range = &m->range[r];
      BRIM_TRY(count_before(m, file, text, range->first, flags, t, &range->first));
      if (range->end < bytes)
        BRIM_TRY(count_before(m, file, text, range->end, flags, t, &range->end));
      else
        range->end = t->count;
    }
  }
  return BRIM_OK;
}

static bool is_blank(const tokenizer *v, int32_t token)
{
  size_t bytes;
  const char *piece = tokenizer_piece(v, token, &bytes);
  for (size_t i = 0; i < bytes; i++)
    if (!strchr(" \t\r\n", piece[i]) || !piece[i]) return false;
  return true;
}

static bool ends_turn(const tokenizer *v, int32_t token)
{
  return tokenizer_is_special(v, token) || token == tokenizer_end_of_text(v);
}

/* Checks that the range ends in a token that ends a turn. The model need not learn spaces after that token. */
static brim_status check_end(const chat_maker *m, const char *file, const chat_conversation *c, const chat_tokens *t,
                             chat_range *r)
{
  size_t end = r->end, bytes;
  while (end > r->first && is_blank(m->vocabulary, t->token[end - 1]) && !ends_turn(m->vocabulary, t->token[end - 1]))
    end--;
  if (end > r->first && ends_turn(m->vocabulary, t->token[end - 1])) {
    if (!template_has_generation(m->template)) r->end = end;
    return BRIM_OK;
  }
  const char *piece = end > r->first ? tokenizer_piece(m->vocabulary, t->token[end - 1], &bytes) : "";
  if (end == r->first) bytes = 0;
  const brim_status status =
      brim_fail(BRIM_ELOAD,
                "%s:%" PRId64 ": the end of an answer would not be learnt, so the model would never stop: the last "
                "token that counts is '%.*s', which ends no turn",
                file, c->line, (int)(bytes < 40 ? bytes : 40), piece);
  return brim_fail_add(status, template_has_generation(m->template)
                                   ? "the template's {%% generation %%} must contain the token that ends the turn, and "
                                     "the vocabulary must have it; dataset.template=alpaca needs only an end of text"
                                   : "the template must end each answer with a special token of the vocabulary; "
                                     "dataset.template sets another one");
}

/* Marks the tokens that count, and drops those after the last one of them. */
static brim_status finish(const chat_maker *m, const char *file, const chat_conversation *c, chat_tokens *t)
{
  size_t last = 0;
  for (size_t r = 0; r < m->range_count; r++)
    for (size_t i = m->range[r].first; i < m->range[r].end && i < t->count; i++) t->counts[i] = 1;
  for (size_t i = 1; i < t->count; i++) /* from 1, because nothing predicts the first token */
    if (t->counts[i]) last = i;
  t->all = t->count;
  t->count = last + 1;
  if (last > 0) return BRIM_OK;
  return brim_fail(BRIM_ELOAD, "%s:%" PRId64 ": no token of this row would be learnt", file, c->line);
}

static brim_status make_messages(finding *f, chat_tokens *out)
{
  chat_maker *m = f->m;
  if (!m->template) {
    char what[512];
    snprintf(what, sizeof what, "'%.400s' has conversations", f->file);
    return chat_model_fail_no_template(what);
  }
  BRIM_TRY(render(f, f->messages, false, &f->whole));
  BRIM_TRY(template_has_generation(m->template) ? find_by_marks(f) : find_by_rendering(f));
  BRIM_TRY(tokenizer_encoder_run(m->encoder, f->file, f->whole.text, f->whole.bytes, 0, take, out));
  BRIM_TRY(mark(m, f->file, f->whole.text, f->whole.bytes, 0, out));
  size_t answers = 0; /* that count */
  for (size_t i = first_learnt(f); i < f->messages; i++) answers += is_answer(json_array_get(f->c->messages, i));
  const bool each = !template_has_generation(f->m->template) || f->m->range_count == answers;
  for (size_t r = each ? 0 : f->m->range_count - 1; r < f->m->range_count; r++)
    BRIM_TRY(check_end(f->m, f->file, f->c, out, &f->m->range[r]));
  if (m->learn == CHAT_LEARN_ALL) BRIM_TRY(add_range(m, (chat_range){0, out->count}));
  return finish(m, f->file, f->c, out);
}

/* Makes the tokens of a text without a template: the tokenizer's tokens before a text, the prompt, the answer, and the
 * end of text. */
static brim_status make_text(chat_maker *m, const char *file, const chat_conversation *c, chat_tokens *out)
{
  const int32_t end = tokenizer_end_of_text(m->vocabulary);
  const size_t bytes = c->prompt_bytes + c->answer_bytes;
  if (end < 0)
    return brim_fail(BRIM_ECONFIG,
                     "the vocabulary has no token that ends a text (eos_token), so a model of %s would "
                     "never stop",
                     file);
  char *text = brim_try_calloc(bytes + 1, 1);
  if (!text) return fail_memory();
  memcpy(text, c->prompt, c->prompt_bytes);
  memcpy(text + c->prompt_bytes, c->answer, c->answer_bytes);
  brim_status status = tokenizer_encoder_run(m->encoder, file, "", 0, TOKENIZER_BEGIN, take, out);
  const size_t skip = out->count;
  if (status == BRIM_OK) status = tokenizer_encoder_run(m->encoder, file, text, bytes, 0, take, out);
  if (status == BRIM_OK) status = add_range(m, (chat_range){m->learn == CHAT_LEARN_ALL ? 0 : c->prompt_bytes, bytes});
  if (status == BRIM_OK) status = mark(m, file, text, bytes, skip, out);
  free(text);
  BRIM_TRY(status);
  if (out->count == skip || out->token[out->count - 1] != end) BRIM_TRY(take(out, &end, 1));
  m->range[0].end = out->count;
  return finish(m, file, c, out);
}

brim_status chat_tokens_make(chat_maker *m, const char *file, const chat_conversation *c, chat_tokens *out)
{
  finding f = {.m = m, .file = file, .c = c};
  out->count = 0;
  out->unanswered = false;
  m->range_count = 0;
  if (!c->messages) return make_text(m, file, c, out);
  f.messages = json_array_size(c->messages);
  while (!is_answer(json_array_get(c->messages, f.messages - 1))) f.messages--;
  out->unanswered = f.messages < json_array_size(c->messages);
  const brim_status status = make_messages(&f, out);
  template_output_free(&f.whole);
  return status;
}
