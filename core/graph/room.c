/* Three things make it fast:
 *   - Placed buffers are kept by offset, in chunks. A chunk whose buffers all end below the searched range, or live at
 *     other times, is skipped at once.
 *   - A chunk has an array for each property, so the compiler compares many lives at a time.
 *   - Each node has a floor: everything below it is occupied while the node runs. The search starts at the highest
 *     floor of the buffer's life. Activations that wait for the backward pass are stacked from offset 0, so most
 *     searches start near the top of the stack. */
#include "graph/room.h"

#include <string.h>

/* A full chunk is split in two. */
#define CHUNK 128
/* With at most this many placed buffers, scanning them is faster than finding the floor. */
#define FEW (2 * CHUNK)

typedef struct placed {
  uint64_t offset, end;
  int32_t first, last;
} placed;

/* By offset. */
typedef struct items {
  uint64_t offset[CHUNK], end[CHUNK];
  int32_t first[CHUNK], last[CHUNK];
} items;

typedef struct chunk {
  items *item;
  size_t count;
  uint64_t offset;     /* the lowest offset */
  uint64_t end;        /* the highest end */
  int32_t first, last; /* all buffers live within these nodes */
} chunk;

struct brim_room {
  chunk *chunk; /* by offset */
  size_t chunk_count;
  items *item; /* of all chunks */
  /* A binary tree over the nodes of the program: 1 is the root, 2 i and 2 i + 1 are the children of i, and the leaves
   * begin at `leaves`. Each entry is the highest floor of the nodes below it. */
  uint64_t *floor;
  size_t leaves;
};

/* ---- floors ---- */

/* The first node and the number of nodes below tree index `at`. */
typedef struct part {
  size_t at, begin, size;
} part;

/* Applies raise_floor's postponed change to the children: those that had the highest floor get the value of this
 * node. */
static void push_down(brim_room *r, size_t at)
{
  uint64_t *below = &r->floor[2 * at];
  const uint64_t highest = below[0] > below[1] ? below[0] : below[1];
  for (int k = 0; k < 2; k++)
    if (below[k] == highest) below[k] = r->floor[at];
}

static uint64_t highest_floor(brim_room *r, part p, size_t first, size_t last)
{
  if (first <= p.begin && p.begin + p.size - 1 <= last) return r->floor[p.at];
  push_down(r, p.at);
  const size_t half = p.size / 2, middle = p.begin + half;
  const uint64_t low = first < middle ? highest_floor(r, (part){2 * p.at, p.begin, half}, first, last) : 0;
  const uint64_t high = last >= middle ? highest_floor(r, (part){2 * p.at + 1, middle, half}, first, last) : 0;
  return low > high ? low : high;
}

/* A buffer takes [from, to) from node `first` to `last`: floors equal to `from` become `to`. No floor of its life is
 * above `from`, so those are the highest. */
static void raise_floor(brim_room *r, part p, size_t first, size_t last, uint64_t from, uint64_t to)
{
  if (r->floor[p.at] < from) return;
  if (first <= p.begin && p.begin + p.size - 1 <= last) {
    r->floor[p.at] = to;
    return;
  }
  push_down(r, p.at);
  const size_t half = p.size / 2, middle = p.begin + half;
  if (first < middle) raise_floor(r, (part){2 * p.at, p.begin, half}, first, last, from, to);
  if (last >= middle) raise_floor(r, (part){2 * p.at + 1, middle, half}, first, last, from, to);
  const uint64_t *below = &r->floor[2 * p.at];
  r->floor[p.at] = below[0] > below[1] ? below[0] : below[1];
}

/* ---- chunks ---- */

static void widen(chunk *c, const placed *p)
{
  if (p->offset < c->offset) c->offset = p->offset;
  if (p->end > c->end) c->end = p->end;
  if (p->first < c->first) c->first = p->first;
  if (p->last > c->last) c->last = p->last;
}

static void sum_up(chunk *c)
{
  c->offset = UINT64_MAX;
  c->end = 0;
  c->first = INT32_MAX;
  c->last = -1;
  for (size_t i = 0; i < c->count; i++)
    widen(c, &(placed){c->item->offset[i], c->item->end[i], c->item->first[i], c->item->last[i]});
}

static void split(brim_room *r, size_t at)
{
  chunk *c = &r->chunk[at];
  memmove(c + 1, c, (r->chunk_count - at) * sizeof *c);
  c[1].item = r->item + r->chunk_count++;
  c[1].count = c->count = CHUNK / 2;
  const items *from = c->item;
  items *to = c[1].item;
  memcpy(to->offset, from->offset + CHUNK / 2, CHUNK / 2 * sizeof *to->offset);
  memcpy(to->end, from->end + CHUNK / 2, CHUNK / 2 * sizeof *to->end);
  memcpy(to->first, from->first + CHUNK / 2, CHUNK / 2 * sizeof *to->first);
  memcpy(to->last, from->last + CHUNK / 2, CHUNK / 2 * sizeof *to->last);
  sum_up(c);
  sum_up(c + 1);
}

/* Inserts into an array that has `count` values with the new one. */
static void put_offset(uint64_t *array, size_t at, size_t count, uint64_t value)
{
  memmove(&array[at + 1], &array[at], (count - 1 - at) * sizeof *array);
  array[at] = value;
}

static void put_node(int32_t *array, size_t at, size_t count, int32_t value)
{
  memmove(&array[at + 1], &array[at], (count - 1 - at) * sizeof *array);
  array[at] = value;
}

static void insert(brim_room *r, const placed *p)
{
  size_t at = r->chunk_count - 1;
  while (at > 0 && r->chunk[at].offset > p->offset) at--;
  chunk *c = &r->chunk[at];
  size_t i = c->count++;
  while (i > 0 && c->item->offset[i - 1] > p->offset) i--;
  put_offset(c->item->offset, i, c->count, p->offset);
  put_offset(c->item->end, i, c->count, p->end);
  put_node(c->item->first, i, c->count, p->first);
  put_node(c->item->last, i, c->count, p->last);
  widen(c, p);
  if (c->count == CHUNK) split(r, at);
}

/* The same as find_room for the buffers of a chunk. */
static uint64_t find_in_chunk(const chunk *c, uint64_t at, uint64_t bytes, int32_t first, int32_t last)
{
  const items *p = c->item;
  uint8_t together[CHUNK] = {0}; /* whether a buffer lives at the same time */
  for (size_t i = 0; i < c->count; i++) together[i] = (p->first[i] <= last) & (first <= p->last[i]);
  for (size_t i = 0; i < c->count; i++) {
    uint64_t eight;
    memcpy(&eight, &together[i & ~(size_t)7], sizeof eight);
    if (eight == 0) i |= 7; /* most do not */
    if (!together[i]) continue;
    if (p->offset[i] >= at + bytes) return at;
    if (p->end[i] > at) at = p->end[i];
  }
  return at;
}

/* The lowest offset from `at` on that is free. */
static uint64_t find_room(const brim_room *r, uint64_t at, uint64_t bytes, int32_t first, int32_t last)
{
  for (const chunk *c = r->chunk; c < r->chunk + r->chunk_count && c->offset < at + bytes; c++) {
    if (c->end <= at || c->first > last || c->last < first) continue;
    at = find_in_chunk(c, at, bytes, first, last);
  }
  return at;
}

/* ---- the interface ---- */

brim_room *brim_room_create(size_t count, int32_t last, brim_arena *arena)
{
  brim_room *r = BRIM_ARENA_NEW(arena, brim_room, 1);
  const size_t most = count / (CHUNK / 2) + 1; /* a split chunk keeps half */
  r->chunk = BRIM_ARENA_NEW(arena, chunk, most);
  r->item = BRIM_ARENA_NEW(arena, items, most);
  r->leaves = 1;
  while (r->leaves <= (size_t)last) r->leaves *= 2;
  r->floor = count > FEW ? BRIM_ARENA_NEW(arena, uint64_t, 2 * r->leaves) : NULL;
  brim_room_clear(r);
  return r;
}

void brim_room_clear(brim_room *r)
{
  r->chunk[0] = (chunk){.item = r->item};
  sum_up(&r->chunk[0]);
  r->chunk_count = 1;
  if (r->floor) memset(r->floor, 0, 2 * r->leaves * sizeof *r->floor);
}

uint64_t brim_room_take(brim_room *r, uint64_t bytes, int32_t first, int32_t last)
{
  const part all = {1, 0, r->leaves};
  const uint64_t floor = r->floor ? highest_floor(r, all, (size_t)first, (size_t)last) : 0;
  const uint64_t at = find_room(r, floor, bytes, first, last);
  if (r->floor) raise_floor(r, all, (size_t)first, (size_t)last, at, at + bytes);
  insert(r, &(placed){at, at + bytes, first, last});
  return at;
}
