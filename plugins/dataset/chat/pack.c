/* Packs documents by best fit decreasing. See pack.h. */
#include "pack.h"

#include <stdbool.h>
#include <stdlib.h>

#include "brim/host.h"

#define NONE UINT32_MAX
#define LEVELS 5 /* 64^5 is more than any context */

/* The rows, sorted by their room: for each room a list of rows, and a set of the rooms that have a row. A bit of level
 * k stands for 64 bits of level k - 1. */
typedef struct rooms {
  uint32_t *head; /* for each room, its first row or NONE */
  uint32_t *next; /* for each row, the next row in its list */
  uint64_t *bits[LEVELS];
} rooms;

static bool rooms_open(rooms *r, uint32_t context, uint32_t rows)
{
  size_t words = (size_t)context + 1;
  r->head = brim_try_calloc(words, sizeof *r->head);
  r->next = brim_try_calloc((size_t)rows + 1, sizeof *r->next);
  bool good = r->head && r->next;
  for (uint32_t i = 0; good && i <= context; i++) r->head[i] = NONE;
  for (int k = 0; good && k < LEVELS; k++) {
    words = (words + 63) / 64;
    r->bits[k] = brim_try_calloc(words, sizeof *r->bits[k]);
    good = r->bits[k] != NULL;
  }
  return good;
}

static void rooms_add(rooms *r, uint32_t room, uint32_t row)
{
  r->next[row] = r->head[room];
  r->head[room] = row;
  for (int k = 0; k < LEVELS; k++, room /= 64) r->bits[k][room / 64] |= (uint64_t)1 << room % 64;
}

static uint32_t rooms_take(rooms *r, uint32_t room)
{
  const uint32_t row = r->head[room];
  r->head[room] = r->next[row];
  bool empty = r->head[room] == NONE;
  for (int k = 0; k < LEVELS && empty; k++, room /= 64) {
    r->bits[k][room / 64] &= ~((uint64_t)1 << room % 64);
    empty = r->bits[k][room / 64] == 0;
  }
  return row;
}

/* Returns the smallest room that a row has and that is at least `least`, or NONE. */
static uint32_t rooms_find(const rooms *r, uint32_t least, uint32_t context)
{
  uint32_t at = least;
  int k = 0;
  for (; k < LEVELS; k++) { /* goes up until a word has a bit at or after `at` */
    if (at / 64 > (k == 0 ? context : (context >> 6 * k)) / 64) return NONE;
    const uint64_t word = r->bits[k][at / 64] & UINT64_MAX << at % 64;
    if (word) {
      at = at / 64 * 64 + (uint32_t)__builtin_ctzll(word);
      break;
    }
    at = at / 64 + 1;
  }
  if (k == LEVELS) return NONE;
  /* Goes down to the first room below that bit. */
  while (k-- > 0) at = at * 64 + (uint32_t)__builtin_ctzll(r->bits[k][at]);
  return at;
}

/* Sorts the documents by their number of places, the longest first; the sort is stable. */
static bool sort(const uint32_t *places, uint32_t count, uint32_t context, uint32_t *order)
{
  uint32_t *start = brim_try_calloc((size_t)context + 2, sizeof *start);
  if (!start) return false;
  for (uint32_t i = 0; i < count; i++) start[context - places[i] + 1]++;
  for (uint32_t i = 0; i <= context; i++) start[i + 1] += start[i];
  for (uint32_t i = 0; i < count; i++) order[start[context - places[i]]++] = i;
  free(start);
  return true;
}

/* Writes the row of each document to row_of; returns the number of rows. */
static uint32_t fill(const uint32_t *places, uint32_t count, uint32_t context, const uint32_t *order, rooms *r,
                     uint32_t *row_of)
{
  uint32_t rows = 0;
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t d = order[i], best = rooms_find(r, places[d], context);
    const uint32_t room = best == NONE ? context : best, row = best == NONE ? rows++ : rooms_take(r, best);
    row_of[d] = row;
    if (room > places[d]) rooms_add(r, room - places[d], row);
  }
  return rows;
}

/* Lists the documents of each row in the order in which they were put into it. */
static void list(chat_packs *p, uint32_t count, const uint32_t *order, const uint32_t *row_of)
{
  for (uint32_t d = 0; d < count; d++) p->first[row_of[d] + 2]++;
  for (uint32_t r = 0; r < p->rows; r++) p->first[r + 2] += p->first[r + 1];
  for (uint32_t i = 0; i < count; i++) p->document[p->first[row_of[order[i]] + 1]++] = order[i];
}

brim_status chat_pack(const uint32_t *places, uint32_t count, uint32_t context, int apart, chat_packs *out)
{
  rooms r = {0};
  uint32_t *order = brim_try_calloc((size_t)count + 1, sizeof *order);
  uint32_t *row_of = brim_try_calloc((size_t)count + 1, sizeof *row_of);
  *out = (chat_packs){.first = brim_try_calloc((size_t)count + 3, sizeof *out->first),
                      .document = brim_try_calloc((size_t)count + 1, sizeof *out->document)};
  bool good = order && row_of && out->first && out->document && rooms_open(&r, context, count);
  for (uint32_t i = 0; good && i < count; i++) order[i] = row_of[i] = i;
  if (good && !apart) good = sort(places, count, context, order);
  if (good) {
    out->rows = apart ? count : fill(places, count, context, order, &r, row_of);
    list(out, count, order, row_of);
  }
  for (int k = 0; k < LEVELS; k++) free(r.bits[k]);
  free(r.head);
  free(r.next);
  free(order);
  free(row_of);
  if (good) return BRIM_OK;
  chat_packs_free(out);
  return brim_fail(BRIM_ENOMEM_HOST, "no memory to pack %u documents", count);
}

void chat_packs_free(chat_packs *packs)
{
  free(packs->first);
  free(packs->document);
  *packs = (chat_packs){0};
}
