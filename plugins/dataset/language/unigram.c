/* Unigram, which chooses the tokens whose scores have the greatest sum (Kudo, "Subword regularization", 2018). See
 * parts.h.
 *
 * The best way to each place of the text follows from the best ways to the places before it. Of ways with the same sum,
 * the first one found wins, as in the library `tokenizers`. */
#include <stdlib.h>
#include <string.h>

#include "brim/host.h"
#include "parts.h"

static brim_status reserve(encoder *e, size_t bytes)
{
  if (bytes + 1 > e->node_room) {
    size_t room = e->node_room ? e->node_room : 256;
    while (room < bytes + 1) room *= 2;
    free(e->node);
    free(e->token);
    e->node = brim_try_calloc(room, sizeof *e->node);
    e->token = brim_try_calloc(room, sizeof *e->token);
    e->node_room = e->node && e->token ? room : 0;
    if (!e->node_room) return brim_fail(BRIM_ENOMEM_HOST, "no memory for a piece of %zu bytes", bytes);
  }
  for (size_t i = 0; i <= bytes; i++) e->node[i] = (struct unigram_node){0, -1, -1};
  return BRIM_OK;
}

static void offer(struct unigram_node *to, double score, int64_t from, int32_t id)
{
  if (to->from < 0 || score > to->score) *to = (struct unigram_node){score, from, id};
}

static void search(encoder *e, const char *text, size_t bytes)
{
  const tokenizer *t = e->t;
  size_t length;
  for (size_t at = 0; at < bytes; at += length) {
    const double score = e->node[at].score;
    bool single = false; /* the character itself is a token */
    uint32_t node = 0;
    length = (size_t)utf8_length(text + at, bytes - at);
    for (size_t end = at; end < bytes && (node = trie_next(&t->pieces_of_model, node, (unsigned char)text[end]));) {
      const int32_t id = t->pieces_of_model.value[node];
      end++;
      if (id < 0) continue;
      offer(&e->node[end], score + t->score[id], (int64_t)at, id);
      single = single || end - at == length;
    }
    if (!single) offer(&e->node[at + length], score + t->unknown_score, (int64_t)at, t->unknown);
  }
}

/* Writes the tokens of a part directly before place `room` of e->token, and returns the new place. Unknown text gets
 * the tokens of its bytes, if they exist. */
static size_t add_before(encoder *e, const char *text, size_t bytes, size_t room)
{
  const tokenizer *t = e->t;
  const int32_t id = tokenizer_id(t, text, bytes);
  bool known = t->byte_fallback && id < 0;
  for (size_t i = 0; i < bytes && known; i++) known = t->byte_token[(unsigned char)text[i]] >= 0;
  if (!known) {
    e->token[--room] = id >= 0 ? id : t->unknown;
    return room;
  }
  for (size_t i = bytes; i > 0; i--) e->token[--room] = t->byte_token[(unsigned char)text[i - 1]];
  return room;
}

/* Consecutive unknown parts become one unknown token. */
brim_status unigram_encode(encoder *e, const char *text, size_t bytes)
{
  cached *c = bytes <= CACHE_BYTES ? &e->cache[hash_bytes(text, bytes) >> (64 - CACHE_BITS)] : NULL;
  if (c && c->bytes == bytes && memcmp(c->text, text, bytes) == 0) return e->take(e->context, c->id, c->count);
  BRIM_TRY(reserve(e, bytes));
  search(e, text, bytes);
  size_t room = bytes;
  for (size_t end = bytes; end > 0;) {
    size_t from = (size_t)e->node[end].from;
    while (e->node[end].id == e->t->unknown && from > 0 && e->node[from].id == e->t->unknown)
      from = (size_t)e->node[from].from;
    room = add_before(e, text + from, end - from, room);
    end = from;
  }
  const size_t count = bytes - room;
  if (c && count <= CACHE_IDS) {
    c->bytes = (uint8_t)bytes;
    c->count = (uint8_t)count;
    memcpy(c->text, text, bytes);
    memcpy(c->id, e->token + room, count * sizeof *e->token);
  }
  return e->take(e->context, e->token + room, count);
}
