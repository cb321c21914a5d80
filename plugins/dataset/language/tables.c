/* The tables of a tokenizer: names, merges, tries. See parts.h. */
#include <stdlib.h>
#include <string.h>

#include "brim/host.h"
#include "parts.h"

brim_status names_reserve(tokenizer *t, size_t count)
{
  size_t places = 16;
  while (places < 2 * count) places *= 2;
  t->names.entry = brim_try_calloc(places, sizeof *t->names.entry);
  if (!t->names.entry) return brim_fail(BRIM_ENOMEM_HOST, "no memory for %zu tokens", count);
  for (size_t i = 0; i < places; i++) t->names.entry[i].id = -1;
  t->names.mask = places - 1;
  return BRIM_OK;
}

/* Returns the place of the text in the table, or a free place for it. */
static size_t names_place(const tokenizer *t, const char *text, size_t bytes, uint32_t hash)
{
  size_t at = hash & t->names.mask;
  for (;; at = (at + 1) & t->names.mask) {
    const int32_t id = t->names.entry[at].id;
    if (id < 0) return at;
    if (t->names.entry[at].hash == hash && t->token[id].bytes == bytes && memcmp(t->token[id].text, text, bytes) == 0)
      return at;
  }
}

bool names_add(tokenizer *t, int32_t id)
{
  const slice token = t->token[id];
  const uint32_t hash = (uint32_t)hash_bytes(token.text, token.bytes);
  const size_t at = names_place(t, token.text, token.bytes, hash);
  if (t->names.entry[at].id >= 0) return false;
  t->names.entry[at].hash = hash;
  t->names.entry[at].id = id;
  return true;
}

int32_t tokenizer_id(const tokenizer *t, const char *token, size_t bytes)
{
  return t->names.entry[names_place(t, token, bytes, (uint32_t)hash_bytes(token, bytes))].id;
}

void names_find(const tokenizer *t, const slice *text, size_t count, int32_t *id)
{
  const names *n = &t->names;
  uint32_t hash[NAMES_TOGETHER];
  for (size_t i = 0; i < count; i++) {
    hash[i] = (uint32_t)hash_bytes(text[i].text, text[i].bytes);
    __builtin_prefetch(&n->entry[hash[i] & n->mask]);
  }
  for (size_t i = 0; i < count; i++) {
    id[i] = n->entry[hash[i] & n->mask].id;
    if (id[i] >= 0) __builtin_prefetch(&t->token[id[i]]);
  }
  for (size_t i = 0; i < count; i++)
    if (id[i] >= 0) __builtin_prefetch(t->token[id[i]].text);
  for (size_t i = 0; i < count; i++) id[i] = n->entry[names_place(t, text[i].text, text[i].bytes, hash[i])].id;
}

static uint64_t mixed(uint32_t left, uint32_t right)
{
  uint64_t x = (uint64_t)left << 32 | right;
  x = (x ^ x >> 31) * 0x9E3779B97F4A7C15u;
  return x ^ x >> 29;
}

void merge_prefetch(const tokenizer *t, int32_t left, int32_t right)
{
  __builtin_prefetch(&t->merge[mixed((uint32_t)left, (uint32_t)right) & t->merge_mask], 1);
}

bpe_merge *merge_place(const tokenizer *t, int32_t left, int32_t right)
{
  size_t at = mixed((uint32_t)left, (uint32_t)right) & t->merge_mask;
  while (t->merge[at].left >= 0 && (t->merge[at].left != left || t->merge[at].right != right))
    at = (at + 1) & t->merge_mask;
  return &t->merge[at];
}

/* ---- tries ---- */

static struct trie_edge *edge_place(const trie *t, uint32_t node, unsigned char byte)
{
  size_t at = mixed(node, byte) & t->mask;
  while (t->edge[at].to && (t->edge[at].from != node || t->edge[at].byte != byte)) at = (at + 1) & t->mask;
  return &t->edge[at];
}

uint32_t trie_next(const trie *t, uint32_t node, unsigned char byte)
{
  return t->edge ? edge_place(t, node, byte)->to : 0;
}

/* Makes room for more nodes. Every node except the root has one edge. */
static brim_status trie_reserve(trie *t, size_t more)
{
  if (t->edge && t->nodes + more <= t->room) return BRIM_OK;
  size_t room = t->room ? t->room : 64;
  while (room < t->nodes + more + 1) room *= 2;
  trie grown = {.edge = brim_try_calloc(2 * room, sizeof *grown.edge),
                .value = brim_try_calloc(room, sizeof *grown.value),
                .mask = 2 * room - 1,
                .nodes = t->nodes ? t->nodes : 1,
                .room = room};
  if (!grown.edge || !grown.value) {
    trie_free(&grown);
    return brim_fail(BRIM_ENOMEM_HOST, "no memory for %zu parts of tokens", room);
  }
  for (size_t i = 0; i < room; i++) grown.value[i] = i < t->nodes ? t->value[i] : -1;
  for (size_t i = 0; t->edge && i <= t->mask; i++)
    if (t->edge[i].to) *edge_place(&grown, t->edge[i].from, t->edge[i].byte) = t->edge[i];
  trie_free(t);
  *t = grown;
  return BRIM_OK;
}

brim_status trie_add(trie *t, const char *text, size_t bytes, int32_t value)
{
  uint32_t node = 0;
  BRIM_TRY(trie_reserve(t, bytes));
  for (size_t i = 0; i < bytes; i++) {
    struct trie_edge *e = edge_place(t, node, (unsigned char)text[i]);
    if (!e->to) *e = (struct trie_edge){node, (uint32_t)t->nodes++, (unsigned char)text[i]};
    node = e->to;
  }
  t->value[node] = value;
  return BRIM_OK;
}

void trie_free(trie *t)
{
  free(t->edge);
  free(t->value);
  *t = (trie){0};
}
