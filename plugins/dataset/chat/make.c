/* Makes packed documents from files of conversations. See make.h. */
#include "make.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "brim/host.h"
#include "pack.h"

typedef struct document {
  uint64_t start; /* the first of its tokens, among the tokens of all documents */
  uint32_t places, line, file;
} document;

/* The documents of a split before packing. */
typedef struct made {
  const chat_options *options;
  int32_t *token;
  uint8_t *counts;
  size_t tokens, token_room;
  document *document;
  size_t documents, document_room;
  uint32_t *length; /* tokens of each conversation, including conversations that are left out */
  size_t lengths, length_room;
  size_t counted;
  chat_facts facts;
} made;

/* Makes room for `more` items. Returns false if there is no memory. */
static bool reserve(void **items, size_t count, size_t more, size_t *room, size_t bytes)
{
  if (more <= *room - count) return true;
  size_t wanted = *room ? *room : 1024;
  while (wanted - count < more) wanted *= 2;
  void *grown = brim_fault_hit(BRIM_FAULT_ALLOC, NULL) ? NULL : realloc(*items, wanted * bytes);
  if (!grown) return false;
  *items = grown;
  *room = wanted;
  return true;
}

static brim_status fail_memory(void)
{
  return brim_fail(BRIM_ENOMEM_HOST, "no memory for the tokens of the conversations");
}

/* ---- a conversation ---- */

/* Drops the tokens that do not fit into a row. Returns false if nothing to learn is left. */
static bool cut(made *m, chat_tokens *t)
{
  size_t count = (size_t)m->options->context + 1;
  m->facts.cut_tokens += (int64_t)(t->count - count);
  while (count > 1 && !t->counts[count - 1]) count--;
  t->count = count;
  return count > 1;
}

static brim_status add_document(made *m, const chat_tokens *t, uint32_t file, int64_t line)
{
  size_t room = m->token_room;
  if (!reserve((void **)&m->token, m->tokens, t->count, &m->token_room, sizeof *m->token) ||
      !reserve((void **)&m->counts, m->tokens, t->count, &room, sizeof *m->counts) ||
      !reserve((void **)&m->document, m->documents, 1, &m->document_room, sizeof *m->document))
    return fail_memory();
  memcpy(m->token + m->tokens, t->token, t->count * sizeof *t->token);
  memcpy(m->counts + m->tokens, t->counts, t->count);
  for (size_t i = 1; i < t->count; i++) m->counted += t->counts[i];
  m->document[m->documents++] = (document){m->tokens, (uint32_t)(t->count - 1), (uint32_t)line, file};
  m->tokens += t->count;
  if (m->documents >= UINT32_MAX) return brim_fail(BRIM_ELOAD, "more than %u conversations", UINT32_MAX - 1);
  return BRIM_OK;
}

static brim_status add(made *m, chat_tokens *t, uint32_t file, int64_t line)
{
  chat_facts *f = &m->facts;
  if (!reserve((void **)&m->length, m->lengths, 1, &m->length_room, sizeof *m->length)) return fail_memory();
  m->length[m->lengths++] = (uint32_t)t->count;
  f->conversations++;
  f->tail_tokens += (int64_t)(t->all - t->count);
  f->unanswered += t->unanswered;
  if ((int64_t)t->count > f->longest) {
    f->longest = (int64_t)t->count;
    f->longest_file = file;
    f->longest_line = line;
  }
  if ((int64_t)t->count > m->options->context + 1) {
    f->too_long++;
    const bool keeps = m->options->too_long == CHAT_TOO_LONG_CUT && cut(m, t);
    f->cut += keeps;
    f->skipped += !keeps;
    if (!keeps) return BRIM_OK;
  }
  return add_document(m, t, file, line);
}

/* ---- files ---- */

/* Returns whether row `i`, counted over all files, belongs to the split. The rows of the test split are evenly
 * spread. */
static bool belongs(const chat_source *s, int64_t i)
{
  if (s->share == 0) return true;
  const bool is_test = floor((double)(i + 1) * s->share) > floor((double)i * s->share);
  return is_test != s->is_rest;
}

static brim_status read_file(chat_maker *maker, const chat_source *s, uint32_t file, int64_t *row, chat_tokens *t,
                             made *m)
{
  chat_file f;
  bool more = true;
  brim_status status = chat_file_open(s->file[file], &f);
  while (status == BRIM_OK && more) {
    chat_conversation c;
    const bool use = belongs(s, *row);
    if (brim_stop_wanted()) status = brim_fail(BRIM_EINTERRUPTED, "interrupted while reading conversations");
    if (status == BRIM_OK) status = chat_file_next(&f, use, &c, &more);
    if (status != BRIM_OK || !more) break;
    ++*row;
    if (!use) continue;
    status = chat_tokens_make(maker, s->file[file], &c, t);
    if (status == BRIM_OK) status = add(m, t, file, c.line);
    chat_conversation_release(&c);
  }
  chat_file_close(&f);
  return status;
}

static brim_status read_files(chat_maker *maker, const chat_source *s, made *m)
{
  chat_tokens t = {0};
  int64_t row = 0;
  brim_status status = BRIM_OK;
  for (uint32_t i = 0; i < s->files && status == BRIM_OK; i++) status = read_file(maker, s, i, &row, &t, m);
  chat_tokens_free(&t);
  return status;
}

/* ---- all ---- */

static int compare(const void *a, const void *b)
{
  const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

/* Fails if conversations are too long and may be neither cut nor skipped. The message has the figures of the longest
 * one, which the user needs to choose a context. */
static brim_status check(const chat_source *s, const made *m)
{
  const chat_facts *f = &m->facts;
  if (f->conversations == 0) return brim_fail(BRIM_ELOAD, "'%s' has no row for this split", s->file[0]);
  if (f->too_long > 0 && m->options->too_long == CHAT_TOO_LONG_REFUSE) {
    const brim_status status =
        brim_fail(BRIM_ELOAD,
                  "%" PRId64 " of %" PRId64 " conversations have more tokens than dataset.context=%" PRId64
                  " has room for; the longest needs %" PRId64 " (%s:%" PRId64 "), and 99 %% need at most %" PRId64,
                  f->too_long, f->conversations, m->options->context, f->longest - 1, s->file[f->longest_file],
                  f->longest_line, f->length[3] - 1);
    return brim_fail_add(status,
                         "set dataset.context=%" PRId64 ", or dataset.too_long=cut, which drops their last "
                         "tokens, or dataset.too_long=skip, which leaves them out",
                         f->longest - 1);
  }
  if (m->documents == 0)
    return brim_fail(BRIM_ELOAD, "no conversation of '%s' fits into dataset.context=%" PRId64, s->file[0],
                     m->options->context);
  return BRIM_OK;
}

static void copy_documents(const made *m, chat_set *out)
{
  uint64_t *start = (uint64_t *)(uintptr_t)out->start;
  uint32_t *line = (uint32_t *)(uintptr_t)out->line, *file = (uint32_t *)(uintptr_t)out->file;
  for (size_t i = 0; i < m->documents; i++) {
    start[i] = m->document[i].start;
    line[i] = m->document[i].line;
    file[i] = m->document[i].file;
  }
  start[m->documents] = m->tokens;
}

static void copy_tokens(const made *m, chat_set *out)
{
  uint16_t *narrow = (uint16_t *)(uintptr_t)out->tokens;
  uint32_t *wide = (uint32_t *)(uintptr_t)out->tokens;
  uint8_t *counts = (uint8_t *)(uintptr_t)out->counts;
  for (size_t i = 0; i < m->tokens; i++) {
    if (out->head->width == 2)
      narrow[i] = (uint16_t)m->token[i];
    else
      wide[i] = (uint32_t)m->token[i];
    counts[i / 8] = (uint8_t)(counts[i / 8] | m->counts[i] << i % 8);
  }
}

static brim_status pack(const made *m, const tokenizer *vocabulary, chat_set *out)
{
  const uint32_t count = (uint32_t)m->documents;
  chat_packs packs;
  uint32_t *places = brim_try_calloc(count, sizeof *places);
  if (!places) return fail_memory();
  for (uint32_t i = 0; i < count; i++) places[i] = m->document[i].places;
  brim_status status = chat_pack(places, count, (uint32_t)m->options->context, m->options->apart, &packs);
  free(places);
  BRIM_TRY(status);
  const chat_head head = {.key = m->options->key,
                          .vocabulary_hash = tokenizer_hash(vocabulary),
                          .vocabulary = tokenizer_rows(vocabulary),
                          .tokens = (int64_t)m->tokens,
                          .documents = (int64_t)m->documents,
                          .rows = packs.rows,
                          .context = m->options->context,
                          .counted = (int64_t)m->counted,
                          .width = tokenizer_rows(vocabulary) <= UINT16_MAX + 1 ? 2 : 4,
                          .facts = m->facts};
  status = chat_set_create(&head, out);
  if (status == BRIM_OK) {
    copy_documents(m, out);
    copy_tokens(m, out);
    memcpy((uint32_t *)(uintptr_t)out->first, packs.first, ((size_t)packs.rows + 1) * sizeof *packs.first);
    memcpy((uint32_t *)(uintptr_t)out->document, packs.document, count * sizeof *packs.document);
    chat_set_seal(out);
  }
  chat_packs_free(&packs);
  return status;
}

brim_status chat_make(chat_maker *maker, const chat_source *source, const chat_options *options, chat_set *out)
{
  made m = {.options = options};
  *out = (chat_set){0};
  brim_status status = read_files(maker, source, &m);
  if (status == BRIM_OK && m.lengths > 0) {
    static const double share[] = {0, 0.5, 0.9, 0.99, 1};
    qsort(m.length, m.lengths, sizeof *m.length, compare);
    for (size_t i = 0; i < sizeof share / sizeof share[0]; i++)
      m.facts.length[i] = m.length[(size_t)(share[i] * (double)(m.lengths - 1))];
  }
  if (status == BRIM_OK) status = check(source, &m);
  if (status == BRIM_OK) status = pack(&m, maker->vocabulary, out);
  free(m.token);
  free(m.counts);
  free(m.document);
  free(m.length);
  return status;
}
