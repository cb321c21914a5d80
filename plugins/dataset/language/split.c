/* Pre-tokenizers, which split a text into pieces. See parts.h.
 *
 * Every pre-tokenizer is a step. First, a piece may get a prefix and its spaces may be replaced. Then it is split where
 * a pattern matches. A part that the pattern matches, or that lies between two matches, becomes a piece or joins a
 * neighbour, according to the five behaviours of the library `tokenizers`. Each piece goes to the next step as soon as
 * it is found, so no list of pieces is needed. */
#include <string.h>

#include "brim/host.h"
#include "parts.h"

static brim_status fail_match(const encoder *e, int error)
{
  if (error == PCRE2_ERROR_NOMEMORY || error == PCRE2_ERROR_HEAPLIMIT)
    return brim_fail(BRIM_ENOMEM_HOST, "no memory to cut '%s' into words", e->name);
  PCRE2_UCHAR text[160];
  pcre2_get_error_message(error, text, sizeof text);
  return brim_fail(BRIM_ELOAD, "'%s' cannot be cut into words by the tokenizer's regular expression: %s", e->name,
                   (const char *)text);
}

brim_status pattern_find(encoder *e, const pattern *p, const char *text, size_t bytes, size_t at, size_t range[2],
                         bool *found)
{
  if (!p->regex) {
    const char *place = at < bytes ? memmem(text + at, bytes - at, p->literal.text, p->literal.bytes) : NULL;
    *found = place != NULL;
    range[0] = place ? (size_t)(place - text) : 0;
    range[1] = range[0] + p->literal.bytes;
    return BRIM_OK;
  }
  const int status = pcre2_match(p->regex, (PCRE2_SPTR)text, bytes, at, PCRE2_NO_UTF_CHECK, e->match, e->limits);
  *found = status >= 0;
  if (status < 0) return status == PCRE2_ERROR_NOMATCH ? BRIM_OK : fail_match(e, status);
  memcpy(range, pcre2_get_ovector_pointer(e->match), 2 * sizeof *range);
  return BRIM_OK;
}

typedef struct cutting {
  encoder *e;
  size_t next; /* the number of the next step */
  enum split_behavior behavior;
  const char *text;
  bool first; /* this piece is the beginning of the whole text */
  bool holds, last_matches;
  size_t from, to; /* the part that may still grow by joining */
} cutting;

static brim_status flush(cutting *c)
{
  if (!c->holds || c->from == c->to) return BRIM_OK;
  return split(c->e, c->next, c->text + c->from, c->to - c->from, c->first && c->from == 0);
}

/* Returns whether a part joins the part before it. */
static bool joins(const cutting *c, bool matches)
{
  switch (c->behavior) {
  case SPLIT_CONTIGUOUS:
    return matches == c->last_matches;
  case SPLIT_PREVIOUS:
    return matches && !c->last_matches;
  case SPLIT_NEXT:
    return !matches && c->last_matches;
  default:
    return false;
  }
}

static brim_status add_part(cutting *c, size_t from, size_t to, bool matches)
{
  if (c->holds && joins(c, matches)) {
    c->to = to;
  } else {
    BRIM_TRY(flush(c));
    c->from = from;
    c->to = to;
    c->holds = !(matches && c->behavior == SPLIT_REMOVED);
  }
  c->last_matches = matches;
  return BRIM_OK;
}

static brim_status cut(encoder *e, size_t k, const char *text, size_t bytes, bool first)
{
  const split_step *s = &e->t->split[k];
  cutting c = {.e = e, .next = k + 1, .behavior = s->behavior, .text = text, .first = first};
  size_t at = 0, done = 0;
  while (at <= bytes) {
    size_t range[2];
    bool found = false;
    BRIM_TRY(pattern_find(e, &s->find, text, bytes, at, range, &found));
    if (!found) break;
    at = range[1];
    if (range[1] == range[0]) at += at < bytes ? (size_t)utf8_length(text + at, bytes - at) : 1;
    if (range[1] == range[0] && range[0] == done && done > 0)
      continue; /* an empty match directly after a match does not count */
    if (range[0] > done) BRIM_TRY(add_part(&c, done, range[0], s->invert));
    BRIM_TRY(add_part(&c, range[0], range[1], !s->invert));
    done = range[1];
  }
  if (done < bytes) BRIM_TRY(add_part(&c, done, bytes, s->invert));
  return flush(&c);
}

/* Replaces spaces, and adds the prefix. */
static brim_status prepare(encoder *e, size_t k, slice *text, bool first)
{
  const split_step *s = &e->t->split[k];
  const bool begins = text->bytes >= s->space.bytes && memcmp(text->text, s->space.text, s->space.bytes) == 0;
  const bool spaces = !(s->space.bytes == 1 && s->space.text[0] == ' ') && memchr(text->text, ' ', text->bytes);
  const bool prefix = !begins && !(spaces && text->text[0] == ' ') &&
                      (s->prefix == PREFIX_ALWAYS || (s->prefix == PREFIX_FIRST && first));
  if (!spaces && !prefix) return BRIM_OK;
  const pattern space = {.literal = {" ", 1}};
  buffer *out = &e->step[k];
  out->count = 0;
  if (prefix) BRIM_TRY(buffer_add(out, s->space.text, s->space.bytes));
  if (spaces)
    BRIM_TRY(pattern_replace(e, &space, *text, s->space, out));
  else
    BRIM_TRY(buffer_add(out, text->text, text->bytes));
  *text = (slice){out->data, out->count};
  return BRIM_OK;
}

brim_status split(encoder *e, size_t k, const char *text, size_t bytes, bool first)
{
  const tokenizer *t = e->t;
  slice piece = {text, bytes};
  if (bytes == 0) return BRIM_OK;
  if (k == t->split_count) return t->model == MODEL_BPE ? bpe_encode(e, text, bytes) : unigram_encode(e, text, bytes);
  if (t->split[k].space.bytes) BRIM_TRY(prepare(e, k, &piece, first));
  return t->split[k].splits ? cut(e, k, piece.text, piece.bytes, first)
                            : split(e, k + 1, piece.text, piece.bytes, first);
}
