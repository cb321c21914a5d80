/* Four properties make the search fast:
 *   - Placed buffers are kept by offset, in chunks. A chunk whose buffers all end below the searched range, or live at
 *     other times, is skipped at once.
 *   - A chunk has an array for each property, so the compiler compares many lives at a time.
 *   - Most buffers live for a few nodes, as a layer's temporary ones do. For such a buffer the search visits only
 * buffers that live in the same blocks of nodes, and long-lived buffers.
 *   - Each node has a floor: everything below it is occupied while the node runs. The search starts at the highest
 *     floor of the buffer's life. Activations that wait for the backward pass are stacked from offset 0, so most
 *     searches start near the top of the stack. */
#include "graph/room.h"

#include <string.h>

/* A full chunk is split in two. */
#define CHUNK 128
/* With at most this many placed buffers, scanning them is faster than finding the floor. */
#define FEW (2 * CHUNK)
#define BLOCK 64 /* nodes */
#define LEAF 32  /* nodes */

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

/* Some of the placed buffers. */
typedef struct shelf {
  chunk *chunk; /* sorted by offset */
  size_t count, room;
} shelf;

struct brim_room {
  brim_arena *arena;
  items **spare; /* chunks; those from `used` on are free */
  size_t used, spares, spare_room;
  shelf all;
  shelf lasting; /* the buffers that live in more than two blocks */
  shelf *brief;  /* by block: the short-lived buffers in it; NULL: there are so few buffers that searching `all` is
                    fastest */
  size_t blocks;
  /* A binary tree over leaves of LEAF nodes of the program: 1 is the root, 2 i and 2 i + 1 are the children of i, and
   * the leaves begin at `leaves`. Each entry is the highest floor of the nodes below it. */
  uint64_t *floor;
  size_t leaves;
  uint64_t *of_node; /* floors by node, once settled */
  uint64_t *settled; /* by leaf: the highest floor of the leaf's nodes */
};

/* ---- floors ---- */

/* A part of the nodes: the first one and their number, below the tree index `at`. */
typedef struct part {
  size_t at, begin, size;
} part;

/* Applies raise_floor's postponed change to the children: a child with the highest floor gets the value of this
 * node. */
static void push_down(brim_room *r, size_t at)
{
  uint64_t *below = &r->floor[2 * at];
  const uint64_t highest = below[0] > below[1] ? below[0] : below[1];
  for (int k = 0; k < 2; k++)
    if (below[k] == highest) below[k] = r->floor[at];
}

/* Stores the floors of the nodes of a leaf, and their highest. Returns the floors. */
static uint64_t *settle(brim_room *r, part p)
{
  uint64_t *floor = &r->of_node[p.begin], *settled = &r->settled[p.at - r->leaves];
  if (*settled == r->floor[p.at]) return floor;
  for (size_t i = 0; i < LEAF; i++)
    if (floor[i] == *settled) floor[i] = r->floor[p.at];
  *settled = r->floor[p.at];
  return floor;
}

/* The nodes of a leaf that are in [first, last]. */
static void narrow(part p, size_t *first, size_t *last)
{
  *first = *first > p.begin ? *first - p.begin : 0;
  *last = *last < p.begin + LEAF ? *last - p.begin : LEAF - 1;
}

static uint64_t highest_in_leaf(brim_room *r, part p, size_t first, size_t last)
{
  const uint64_t *floor = settle(r, p);
  uint64_t highest = 0;
  narrow(p, &first, &last);
  for (size_t i = first; i <= last; i++)
    if (floor[i] > highest) highest = floor[i];
  return highest;
}

static uint64_t highest_floor(brim_room *r, part p, size_t first, size_t last)
{
  if (first <= p.begin && p.begin + p.size - 1 <= last) return r->floor[p.at];
  if (p.size == LEAF) return highest_in_leaf(r, p, first, last);
  push_down(r, p.at);
  const size_t half = p.size / 2, middle = p.begin + half;
  const uint64_t low = first < middle ? highest_floor(r, (part){2 * p.at, p.begin, half}, first, last) : 0;
  const uint64_t high = last >= middle ? highest_floor(r, (part){2 * p.at + 1, middle, half}, first, last) : 0;
  return low > high ? low : high;
}

static void raise_in_leaf(brim_room *r, part p, size_t first, size_t last, uint64_t from, uint64_t to)
{
  uint64_t *floor = settle(r, p), *highest = &r->floor[p.at];
  narrow(p, &first, &last);
  for (size_t i = first; i <= last; i++) {
    if (floor[i] != from) continue;
    floor[i] = to;
    if (to > *highest) *highest = r->settled[p.at - r->leaves] = to;
  }
}

/* A buffer takes [from, to) from node `first` to `last`: floors equal to `from` become `to`. No floor in its life is
 * above `from`, so these are the highest. */
static void raise_floor(brim_room *r, part p, size_t first, size_t last, uint64_t from, uint64_t to)
{
  if (r->floor[p.at] < from) return;
  if (first <= p.begin && p.begin + p.size - 1 <= last) {
    r->floor[p.at] = to;
    return;
  }
  if (p.size == LEAF) {
    raise_in_leaf(r, p, first, last, from, to);
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

static items *take_items(brim_room *r)
{
  if (r->used == r->spares) {
    r->spare = brim_arena_grow(r->arena, r->spare, r->spares, &r->spare_room, sizeof *r->spare);
    r->spare[r->spares++] = BRIM_ARENA_NEW(r->arena, items, 1);
  }
  return r->spare[r->used++];
}

/* Makes room for a chunk before index `at`. */
static chunk *add_chunk(brim_room *r, shelf *s, size_t at)
{
  s->chunk = brim_arena_grow(r->arena, s->chunk, s->count, &s->room, sizeof *s->chunk);
  memmove(&s->chunk[at + 1], &s->chunk[at], (s->count++ - at) * sizeof *s->chunk);
  s->chunk[at] = (chunk){.item = take_items(r)};
  return &s->chunk[at];
}

static void split(brim_room *r, shelf *s, size_t at)
{
  items *to = add_chunk(r, s, at + 1)->item;
  const items *from = s->chunk[at].item;
  memcpy(to->offset, from->offset + CHUNK / 2, CHUNK / 2 * sizeof *to->offset);
  memcpy(to->end, from->end + CHUNK / 2, CHUNK / 2 * sizeof *to->end);
  memcpy(to->first, from->first + CHUNK / 2, CHUNK / 2 * sizeof *to->first);
  memcpy(to->last, from->last + CHUNK / 2, CHUNK / 2 * sizeof *to->last);
  s->chunk[at].count = s->chunk[at + 1].count = CHUNK / 2;
  sum_up(&s->chunk[at]);
  sum_up(&s->chunk[at + 1]);
}

/* Inserts a value; `count` includes it. */
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

static void insert(brim_room *r, shelf *s, const placed *p)
{
  if (s->count == 0) sum_up(add_chunk(r, s, 0));
  size_t at = s->count - 1;
  while (at > 0 && s->chunk[at].offset > p->offset) at--;
  chunk *c = &s->chunk[at];
  size_t i = c->count++;
  while (i > 0 && c->item->offset[i - 1] > p->offset) i--;
  put_offset(c->item->offset, i, c->count, p->offset);
  put_offset(c->item->end, i, c->count, p->end);
  put_node(c->item->first, i, c->count, p->first);
  put_node(c->item->last, i, c->count, p->last);
  widen(c, p);
  if (c->count == CHUNK) split(r, s, at);
}

/* Finds room among the buffers of a chunk, as find_room does. */
static uint64_t find_in_chunk(const chunk *c, uint64_t at, uint64_t bytes, int32_t first, int32_t last)
{
  const items *p = c->item;
  uint8_t together[CHUNK] = {0}; /* by buffer: whether it lives at the same time as the new one */
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

/* Returns the lowest offset from `at` on that no buffer of a shelf occupies. */
static uint64_t find_room(const shelf *s, uint64_t at, uint64_t bytes, int32_t first, int32_t last)
{
  for (const chunk *c = s->chunk; c < s->chunk + s->count && c->offset < at + bytes; c++) {
    if (c->end <= at || c->first > last || c->last < first) continue;
    at = find_in_chunk(c, at, bytes, first, last);
  }
  return at;
}

/* ---- blocks ---- */

static bool is_brief(const brim_room *r, int32_t first, int32_t last)
{
  return r->brief && last / BLOCK <= first / BLOCK + 1;
}

/* Finds room in all shelves for a short-lived buffer. */
static uint64_t find_brief_room(const brim_room *r, uint64_t at, uint64_t bytes, int32_t first, int32_t last)
{
  const shelf *s[] = {&r->lasting, &r->brief[first / BLOCK], &r->brief[last / BLOCK]};
  const size_t count = first / BLOCK == last / BLOCK ? 2 : 3;
  /* free: number of consecutive shelves that leave room at `at`. */
  for (size_t i = 0, free = 0; free < count; i = (i + 1) % count) {
    const uint64_t before = at;
    at = find_room(s[i], at, bytes, first, last);
    free = at == before ? free + 1 : 1;
  }
  return at;
}

static void put_in_blocks(brim_room *r, const placed *p)
{
  if (!r->brief) return;
  if (!is_brief(r, p->first, p->last)) {
    insert(r, &r->lasting, p);
    return;
  }
  for (int32_t i = p->first / BLOCK; i <= p->last / BLOCK; i++) insert(r, &r->brief[i], p);
}

/* ---- the interface ---- */

brim_room *brim_room_create(size_t count, int32_t last, brim_arena *arena)
{
  brim_room *r = BRIM_ARENA_NEW(arena, brim_room, 1);
  r->arena = arena;
  r->leaves = 1;
  while (r->leaves * LEAF <= (size_t)last) r->leaves *= 2;
  if (count > FEW) {
    r->floor = BRIM_ARENA_NEW(arena, uint64_t, 2 * r->leaves);
    r->settled = BRIM_ARENA_NEW(arena, uint64_t, r->leaves);
    r->of_node = BRIM_ARENA_NEW(arena, uint64_t, r->leaves * LEAF);
    r->blocks = (size_t)last / BLOCK + 1;
    r->brief = BRIM_ARENA_NEW(arena, shelf, r->blocks);
  }
  return r;
}

void brim_room_clear(brim_room *r)
{
  r->used = r->all.count = r->lasting.count = 0;
  for (size_t i = 0; i < r->blocks; i++) r->brief[i].count = 0;
  if (!r->floor) return;
  memset(r->floor, 0, 2 * r->leaves * sizeof *r->floor);
  memset(r->settled, 0, r->leaves * sizeof *r->settled);
  memset(r->of_node, 0, r->leaves * LEAF * sizeof *r->of_node);
}

uint64_t brim_room_take(brim_room *r, uint64_t bytes, int32_t first, int32_t last)
{
  const part all = {1, 0, r->leaves * LEAF};
  const uint64_t floor = r->floor ? highest_floor(r, all, (size_t)first, (size_t)last) : 0;
  const uint64_t at = is_brief(r, first, last) ? find_brief_room(r, floor, bytes, first, last)
                                               : find_room(&r->all, floor, bytes, first, last);
  if (r->floor) raise_floor(r, all, (size_t)first, (size_t)last, at, at + bytes);
  const placed p = {at, at + bytes, first, last};
  insert(r, &r->all, &p);
  put_in_blocks(r, &p);
  return at;
}
