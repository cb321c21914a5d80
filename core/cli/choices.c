/* See choices.h. */
#include "cli/choices.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
#include <wctype.h>

#include "base/file.h"
#include "base/text.h"

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define CHOICES_MAX (sizeof LETTERS - 1)
#define LINE_BYTES_MAX ((size_t)16 << 20)

typedef struct reading {
  brim_arena *arena;
  const char *path;
  int64_t line;
  const json_t *root;
} reading;

/* ---- white space ---- */

static const char *const spaces[] = {" ",      "\t",     "\n",       "\v",       "\f",     "\r",     "\x1c",   "\x1d",
                                     "\x1e",   "\x1f",   "\xc2\x85", "\xc2\xa0", "\u1680", "\u2000", "\u2001", "\u2002",
                                     "\u2003", "\u2004", "\u2005",   "\u2006",   "\u2007", "\u2008", "\u2009", "\u200a",
                                     "\u2028", "\u2029", "\u202f",   "\u205f",   "\u3000"};
enum { SPACES = sizeof spaces / sizeof spaces[0] };

size_t brim_without_space(const char *text, size_t bytes)
{
  for (size_t i = 0; i < SPACES; i++) {
    const size_t length = strlen(spaces[i]);
    if (length > bytes || memcmp(text + bytes - length, spaces[i], length) != 0) continue;
    bytes -= length;
    i = SIZE_MAX; /* starts again with the first kind of space */
  }
  return bytes;
}

/* Python's str.strip(). */
static const char *strip(brim_arena *arena, const char *text)
{
  for (size_t i = 0; i < SPACES; i++) {
    if (!brim_starts_with(text, spaces[i])) continue;
    text += strlen(spaces[i]);
    i = SIZE_MAX;
  }
  return brim_arena_printf(arena, "%.*s", (int)brim_without_space(text, strlen(text)), text);
}

/* ---- values ---- */

static brim_status read_text(const reading *r, const json_t *object, const char *key, const char **out)
{
  const json_t *value = json_object_get(object, key);
  if (!value) return brim_fail(BRIM_ELOAD, "%s:%" PRId64 ": the question has no \"%s\"", r->path, r->line, key);
  if (!json_is_string(value))
    return brim_fail(BRIM_ELOAD, "%s:%" PRId64 ": \"%s\" must be a text", r->path, r->line, key);
  *out = brim_arena_string(r->arena, json_string_value(value));
  return BRIM_OK;
}

static brim_status read_texts(const reading *r, const json_t *object, const char *key, const char ***out, size_t *count)
{
  const json_t *value = json_object_get(object, key);
  if (!value) return brim_fail(BRIM_ELOAD, "%s:%" PRId64 ": the question has no \"%s\"", r->path, r->line, key);
  *count = json_array_size(value);
  if (*count < 2 || *count > CHOICES_MAX)
    return brim_fail(BRIM_ELOAD, "%s:%" PRId64 ": \"%s\" must be a list of 2 to %zu texts", r->path, r->line, key,
                     CHOICES_MAX);
  *out = BRIM_ARENA_NEW(r->arena, const char *, *count);
  for (size_t i = 0; i < *count; i++) {
    const json_t *item = json_array_get(value, i);
    if (!json_is_string(item) || json_string_length(item) == 0)
      return brim_fail(BRIM_ELOAD, "%s:%" PRId64 ": \"%s\": item %zu must be a text that is not empty", r->path,
                       r->line, key, i);
    (*out)[i] = brim_arena_string(r->arena, json_string_value(item));
  }
  return BRIM_OK;
}

/* Reads an answer: its index, from 0, as a number or a text, or its letter. */
static brim_status read_answer(const reading *r, const char *key, brim_question *q)
{
  const json_t *value = json_object_get(r->root, key);
  const char *text = json_string_value(value);
  const char *letter = text && text[0] && !text[1] ? strchr(LETTERS, text[0]) : NULL;
  char *end = NULL;
  if (!value) return brim_fail(BRIM_ELOAD, "%s:%" PRId64 ": the question has no \"%s\"", r->path, r->line, key);
  long long index = json_is_integer(value) ? json_integer_value(value) : letter ? letter - LETTERS : -1;
  const bool is_number = json_is_integer(value) || letter;
  if (text && !letter) {
    errno = 0;
    index = strtoll(text, &end, 10);
  }
  if (!is_number && (!text || end == text || *end || errno))
    return brim_fail(BRIM_ELOAD, "%s:%" PRId64 ": \"%s\" must be the index of the right choice, from 0, or its letter",
                     r->path, r->line, key);
  if (index < 0 || (size_t)index >= q->count)
    return brim_fail(BRIM_ELOAD, "%s:%" PRId64 ": \"%s\" is %lld, but the question has %zu choices, 0 to %zu", r->path,
                     r->line, key, index, q->count, q->count - 1);
  q->answer = (size_t)index;
  return BRIM_OK;
}

/* ---- forms ---- */

static brim_status read_arc(const reading *r, brim_question *q)
{
  const char *question = NULL, *right = NULL, **label = NULL;
  const json_t *choices = json_object_get(r->root, "choices");
  size_t labels = 0;
  BRIM_TRY(read_text(r, r->root, "question", &question));
  BRIM_TRY(read_text(r, r->root, "answerKey", &right));
  if (!json_is_object(choices))
    return brim_fail(BRIM_ELOAD, "%s:%" PRId64 ": \"choices\" must have \"text\" and \"label\"", r->path, r->line);
  BRIM_TRY(read_texts(r, choices, "text", &q->choice, &q->count));
  BRIM_TRY(read_texts(r, choices, "label", &label, &labels));
  if (labels != q->count)
    return brim_fail(BRIM_ELOAD, "%s:%" PRId64 ": \"choices\" has %zu texts but %zu labels", r->path, r->line, q->count,
                     labels);
  q->body = brim_arena_printf(r->arena, "Question: %s\nAnswer:", question);
  for (q->answer = 0; q->answer < labels; q->answer++)
    if (strcmp(label[q->answer], right) == 0) return BRIM_OK;
  return brim_fail(BRIM_ELOAD, "%s:%" PRId64 ": \"answerKey\" is \"%s\", which is not one of the labels", r->path,
                   r->line, right);
}

static brim_status read_question(const reading *r, brim_question *q)
{
  const char *question = NULL;
  BRIM_TRY(read_text(r, r->root, "question", &question));
  BRIM_TRY(read_texts(r, r->root, "choices", &q->choice, &q->count));
  q->body = brim_arena_printf(r->arena, "Question: %s\nAnswer:", question);
  return read_answer(r, "answer", q);
}

/* The prompt lists the choices, and their letters are scored. */
static brim_status read_mmlu(const reading *r, brim_question *q)
{
  const char *question = NULL;
  brim_text body = {0};
  BRIM_TRY(read_text(r, r->root, "subject", &q->subject));
  BRIM_TRY(read_text(r, r->root, "question", &question));
  BRIM_TRY(read_texts(r, r->root, "choices", &q->choice, &q->count));
  char *subject = brim_arena_string(r->arena, q->subject);
  for (char *c = subject; *c; c++)
    if (*c == '_') *c = ' ';
  q->head =
      brim_arena_printf(r->arena, "The following are multiple choice questions (with answers) about %s.\n\n", subject);
  brim_text_add(&body, strip(r->arena, question));
  for (size_t i = 0; i < q->count; i++) {
    brim_text_printf(&body, "\n%c. %s", LETTERS[i], q->choice[i]);
    q->choice[i] = brim_arena_printf(r->arena, "%c", LETTERS[i]);
  }
  brim_text_add(&body, "\nAnswer:");
  q->body = brim_arena_string(r->arena, brim_text_str(&body));
  brim_text_release(&body);
  return read_answer(r, "answer", q);
}

/* ---- HellaSwag ---- */

static void replace(brim_arena *arena, const char **text, const char *from, const char *to)
{
  brim_text out = {0};
  for (const char *s = *text; *s;) {
    const bool found = brim_starts_with(s, from);
    brim_text_add_n(&out, found ? to : s, found ? strlen(to) : 1);
    s += found ? strlen(from) : 1;
  }
  *text = brim_arena_string(arena, brim_text_str(&out));
  brim_text_release(&out);
}

/* Removes text in brackets, and puts the rest on one line. */
static const char *remove_brackets(brim_arena *arena, const char *text)
{
  brim_text out = {0};
  for (const char *s = text; *s;) {
    const size_t inside = *s == '[' ? strcspn(s, "]\n") : 0;
    const bool found = inside > 0 && s[inside] == ']';
    if (!found) brim_text_add_n(&out, s, 1);
    s += found ? inside + 1 : 1;
  }
  const char *result = brim_arena_string(arena, brim_text_str(&out));
  brim_text_release(&out);
  return result;
}

/* Turns WikiHow's headings into sentences, as preprocess() in lm-evaluation-harness's hellaswag/utils.py does. */
static const char *clean(brim_arena *arena, const char *text)
{
  text = strip(arena, text);
  replace(arena, &text, " [title]", ". ");
  text = remove_brackets(arena, text);
  replace(arena, &text, "  ", " ");
  return text;
}

/* Makes the first character upper case and the others lower case, as Python's str.capitalize() does. */
static const char *capitalize(brim_arena *arena, const char *text)
{
  const locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
  if (!utf8) return text;
  const locale_t before = uselocale(utf8);
  brim_text out = {0};
  mbstate_t in_state = {0}, out_state = {0};
  const char *end = text + strlen(text);
  for (bool first = true; text < end; first = false) {
    char bytes[MB_LEN_MAX];
    wchar_t c;
    const size_t read = mbrtowc(&c, text, (size_t)(end - text), &in_state);
    if (read == 0 || read > (size_t)(end - text)) break; /* JSON's texts are UTF-8 */
    const size_t written = wcrtomb(bytes, (wchar_t)(first ? towupper((wint_t)c) : towlower((wint_t)c)), &out_state);
    brim_text_add_n(&out, written == SIZE_MAX ? text : bytes, written == SIZE_MAX ? read : written);
    text += read;
  }
  uselocale(before);
  freelocale(utf8);
  const char *result = brim_arena_string(arena, brim_text_str(&out));
  brim_text_release(&out);
  return result;
}

static brim_status read_hellaswag(const reading *r, brim_question *q)
{
  const char *activity = NULL, *a = NULL, *b = NULL;
  BRIM_TRY(read_text(r, r->root, "activity_label", &activity));
  BRIM_TRY(read_text(r, r->root, "ctx_a", &a));
  BRIM_TRY(read_text(r, r->root, "ctx_b", &b));
  BRIM_TRY(read_texts(r, r->root, "endings", &q->choice, &q->count));
  q->body = clean(r->arena, brim_arena_printf(r->arena, "%s: %s %s", activity, a, capitalize(r->arena, b)));
  for (size_t i = 0; i < q->count; i++) {
    q->choice[i] = clean(r->arena, q->choice[i]);
    if (!q->choice[i][0])
      return brim_fail(BRIM_ELOAD, "%s:%" PRId64 ": \"endings\": item %zu is empty", r->path, r->line, i);
  }
  return read_answer(r, "label", q);
}

/* ---- files ---- */

/* The order matters: a question has the form of the first entry whose key it has. */
static const struct form {
  const char *name, *key;
  brim_status (*read)(const reading *r, brim_question *q);
} forms[] = {{"hellaswag", "endings", read_hellaswag},
             {"arc", "answerKey", read_arc},
             {"mmlu", "subject", read_mmlu},
             {"question", "choices", read_question}};

static brim_status read_object(const reading *r, brim_question *q)
{
  for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
    if (json_object_get(r->root, forms[i].key)) {
      *q = (brim_question){.form = forms[i].name, .line = r->line, .head = ""};
      return forms[i].read(r, q);
    }
  return brim_fail(BRIM_ELOAD,
                   "%s:%" PRId64 ": this is no question that brim knows: it needs question, choices and answer (MMLU "
                   "also subject), ARC's question, choices and answerKey, or HellaSwag's activity_label, ctx_a, ctx_b, "
                   "endings and label",
                   r->path, r->line);
}

static brim_status read_line(reading *r, const char *text, size_t bytes, brim_question *q)
{
  json_error_t problem;
  json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &problem);
  if (!root) return brim_fail(BRIM_ELOAD, "%s:%" PRId64 ":%d: %s", r->path, r->line, problem.column, problem.text);
  r->root = root;
  const brim_status status =
      json_is_object(root)
          ? read_object(r, q)
          : brim_fail(BRIM_ELOAD, "%s:%" PRId64 ": a question must be a JSON object", r->path, r->line);
  json_decref(root);
  r->root = NULL;
  return status;
}

static brim_status read_lines(reading *r, FILE *file, brim_questions *out)
{
  char *text = NULL;
  size_t text_room = 0, room = 0;
  brim_status status = BRIM_OK;
  errno = 0;
  for (ssize_t length; status == BRIM_OK && (length = getline(&text, &text_room, file)) >= 0;) {
    r->line++;
    if (text[strspn(text, " \t\r\n")] == '\0' && strlen(text) == (size_t)length) continue;
    if ((size_t)length > LINE_BYTES_MAX)
      status =
          brim_fail(BRIM_ELOAD, "%s:%" PRId64 ": the line has more than %zu bytes", r->path, r->line, LINE_BYTES_MAX);
    else {
      out->item = brim_arena_grow(r->arena, out->item, out->count, &room, sizeof *out->item);
      status = read_line(r, text, (size_t)length, &out->item[out->count]);
      out->count++;
    }
  }
  if (status == BRIM_OK && ferror(file))
    status = brim_fail(BRIM_ELOAD, "cannot read '%s': %s", r->path, strerror(errno));
  free(text);
  return status;
}

brim_status brim_questions_read(brim_arena *arena, const char *path, brim_questions *out)
{
  reading r = {.arena = arena, .path = path};
  *out = (brim_questions){.path = path};
  FILE *file = brim_fopen_to_read(path);
  if (!file) return brim_fail(BRIM_ELOAD, "cannot open '%s': %s", path, brim_open_reason(errno));
  const brim_status status = read_lines(&r, file, out);
  fclose(file);
  if (status == BRIM_OK && out->count == 0) return brim_fail(BRIM_ELOAD, "'%s' has no questions", path);
  return status;
}

/* ---- prompts ---- */

static bool is_example(const brim_question *q, const brim_question *example)
{
  const bool same_subject = !q->subject || (example->subject && strcmp(q->subject, example->subject) == 0);
  return same_subject && strcmp(q->body, example->body) != 0;
}

brim_status brim_question_prompt(brim_arena *arena, const brim_questions *of, const brim_question *q,
                                 const brim_questions *from, int64_t shots, const char **out)
{
  brim_text prompt = {0};
  int64_t taken = 0;
  brim_text_add(&prompt, q->head);
  for (size_t i = 0; taken < shots && i < from->count; i++) {
    const brim_question *e = &from->item[i];
    if (!is_example(q, e)) continue;
    brim_text_printf(&prompt, "%s %s\n\n", e->body, e->choice[e->answer]);
    taken++;
  }
  brim_text_add(&prompt, q->body);
  *out = brim_arena_string(arena, brim_text_str(&prompt));
  brim_text_release(&prompt);
  if (taken == shots) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG, "%s:%" PRId64 ": --shots %" PRId64 ", but '%s' has %" PRId64 " other question%s%s%s",
                   of->path, q->line, shots, from->path, taken, brim_plural(taken),
                   q->subject ? " of the subject " : "", q->subject ? q->subject : "");
}
