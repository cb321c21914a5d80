/* A block ends where later nodes read only one node's results, and a graph that consists of such blocks is a chain.
 * Dropping divides the chain into segments of one or more blocks, and keeps only the end of a segment's last block.
 * When the backward pass reaches a segment, it recomputes everything that is dropped on the path to the segment's end,
 * which lives until it has been used. The segment then needs as many bytes as if nothing were dropped in it, except for
 * dropped tensors that are not on that path, which are recomputed later, block by block. Meanwhile the bytes that
 * earlier segments keep stay in memory.
 *
 * So each choice for a block has bytes kept, bytes alive when its segment is recomputed, and work. The search tries all
 * subsets of a block's nodes, and keeps those that are best at some price per byte. It combines blocks to segments, and
 * again keeps the best at some price. A dynamic program then combines segments to the whole chain, from the start: it
 * finds the least work for the bytes kept so far, with each segment within the budget. */
#include "graph/recompute_blocks.h"

#include <string.h>

#include "graph/recompute_choices.h"

#define MANY 40        /* with this many blocks or more, not all segment lengths are tried */
#define PLACES_MAX 128 /* steps in which bytes kept so far are counted; half as many if there are many blocks */

#define IMPOSSIBLE INT64_MAX /* the work of a choice that is not possible */

/* The least work for about this many bytes kept before a block. */
typedef struct place {
  int64_t kept, work;
  int16_t length; /* length of the preceding segment, in blocks */
  int16_t choice, from;
} place;

struct brim_blocks {
  brim_estimate *e;
  const brim_blocks_given *given;
  brim_chain chain;
  int32_t *reader;    /* by tensor */
  uint32_t *block_of; /* by node that is in an atom */
  int16_t *atom;      /* by node: its atom in its block; -1: none */
  size_t places;
  int64_t rest_peak;    /* peak of the nodes after the last block, besides the bytes kept for the backward pass */
  int64_t start_bytes;  /* the peak when nothing is dropped */
  double places_a_byte; /* steps per byte of the budget */
  place *place;         /* [count + 1][places] */
};

/* ---- blocks of the graph ---- */

/* Returns the node that owns a tensor's memory; -1: none in the forward pass. */
static int32_t maker_of(const brim_blocks *b, const brim_tensor *t)
{
  return b->e->w.maker[b->e->root[t->id]];
}

/* Bytes of a node's results; `read`: only those that the backward pass reads. */
static int64_t bytes_of(const brim_blocks *b, const brim_node *n, bool read)
{
  int64_t bytes = 0;
  for (uint32_t k = 0; k < n->out_count; k++) {
    const brim_tensor *t = n->out[k];
    if (maker_of(b, t) == (int32_t)n->index && (!read || b->reader[t->id] >= 0)) bytes += b->e->bytes[t->id];
  }
  return bytes;
}

/* Finds, by tensor, the last node of the backward pass that reads it or a view of it; -1: none. */
static void find_readers(brim_blocks *b)
{
  const brim_graph *g = b->e->w.g;
  b->reader = BRIM_ARENA_NEW(b->chain.arena, int32_t, g->tensor_count);
  memset(b->reader, 0xff, g->tensor_count * sizeof *b->reader);
  for (size_t i = g->forward_count; i < g->node_count; i++)
    for (uint32_t k = 0; k < g->node[i]->in_count; k++) b->reader[b->e->root[g->node[i]->in[k]->id]] = (int32_t)i;
}

static bool is_atom(const brim_blocks *b, const brim_node *n)
{
  return b->given->repeats[n->index] && !n->descriptor->traits.view && bytes_of(b, n, false) > 0;
}

/* ---- atoms of a block ----
 *
 * All subsets of a block's atoms are tried, so there are few, each a set of nodes. A node whose results the backward
 * pass does not read is in the atom of the first node that reads them. If that leaves too many, neighbors are joined:
 * those where this matters least. */

typedef struct draft {
  uint32_t first; /* the first of its nodes that is not only needed by the others */
  int64_t waits, others;
  uint64_t work;
} draft;

typedef struct drafts {
  draft *item;
  size_t count;
  int32_t *of; /* by node, from the block's first: its draft; -1: none */
} drafts;

/* The number of bytes at which joining a draft to the next one would give a wrong price. */
static double loss_of(const draft *d)
{
  const double x = (double)d[0].work * (double)d[1].waits, y = (double)d[1].work * (double)d[0].waits;
  const double few = (double)(d[0].waits < d[1].waits ? d[0].waits : d[1].waits);
  return x == y ? 0 : few * (1 - (x < y ? x / y : y / x));
}

static void join(const brim_chain_block *k, drafts *d, size_t at)
{
  draft *into = &d->item[at];
  into->waits += into[1].waits;
  into->others += into[1].others;
  into->work += into[1].work;
  d->count--;
  memmove(into + 1, into + 2, (d->count - at - 1) * sizeof *into);
  for (uint32_t i = 0; i <= k->end - k->first; i++)
    if (d->of[i] > (int32_t)at) d->of[i]--;
}

/* Returns the block's first node that reads a node's results, if that node is an atom; else the node itself. */
static uint32_t first_reader(const brim_blocks *b, const brim_chain_block *k, uint32_t node)
{
  const brim_graph *g = b->e->w.g;
  for (uint32_t i = node + 1; i < k->end; i++)
    for (uint32_t in = 0; in < g->node[i]->in_count; in++)
      if (maker_of(b, g->node[i]->in[in]) == (int32_t)node && !g->node[i]->descriptor->traits.view)
        return is_atom(b, g->node[i]) ? i : node;
  return node;
}

/* Makes a draft for each node, in order. The end of the block has a separate draft. */
static void draft_nodes(const brim_blocks *b, const brim_chain_block *k, drafts *d)
{
  const brim_graph *g = b->e->w.g;
  const uint32_t count = k->end - k->first + 1;
  uint32_t *with = BRIM_ARENA_NEW(b->chain.arena, uint32_t, count);
  d->of = BRIM_ARENA_NEW(b->chain.arena, int32_t, count);
  d->item = BRIM_ARENA_NEW(b->chain.arena, draft, count + 1);
  for (uint32_t i = count; i-- > 0;) {
    const uint32_t node = k->first + i;
    const bool waits = bytes_of(b, g->node[node], true) > 0;
    with[i] = waits || node == k->end ? i : first_reader(b, k, node) - k->first;
    if (with[i] != i) with[i] = with[with[i]];
  }
  for (uint32_t i = 0; i < count; i++) {
    d->of[i] = -1;
    if (!is_atom(b, g->node[k->first + i]) || with[i] != i) continue;
    d->of[i] = (int32_t)d->count;
    d->item[d->count++].first = k->first + i;
  }
  for (uint32_t i = 0; i < count; i++) {
    const brim_node *n = g->node[k->first + i];
    if (!is_atom(b, n)) continue;
    draft *into = &d->item[d->of[i] = d->of[with[i]]];
    const int64_t waits = bytes_of(b, n, true);
    into->waits += waits;
    into->others += with[i] == i ? bytes_of(b, n, false) - waits : 0;
    into->work += b->given->work[n->index];
  }
}

static void add_reads(const brim_blocks *b, brim_chain_block *k, const brim_node *n)
{
  const uint32_t a = (uint32_t)b->atom[n->index];
  for (uint32_t in = 0; in < n->in_count; in++) {
    const int32_t maker = maker_of(b, n->in[in]);
    if (maker >= 0 && (uint32_t)maker < k->first) k->outside |= 1u << a;
    if (maker < (int32_t)k->first || b->atom[maker] < 0 || b->atom[maker] == (int16_t)a) continue;
    k->reads[a] |= 1u << b->atom[maker];
  }
}

static void find_atoms(const brim_blocks *b, brim_chain_block *k)
{
  const brim_graph *g = b->e->w.g;
  drafts d = {0};
  draft_nodes(b, k, &d);
  k->end_drops = is_atom(b, g->node[k->end]);
  while (d.count > BRIM_ATOMS_MAX) {
    size_t best = 0;
    for (size_t i = 1; i + 1 + k->end_drops < d.count; i++)
      if (loss_of(&d.item[i]) < loss_of(&d.item[best])) best = i;
    join(k, &d, best);
  }
  k->atoms = (uint32_t)d.count;
  for (uint32_t a = 0; a < k->atoms; a++) {
    k->waits_of[a] = d.item[a].waits;
    k->others_of[a] = d.item[a].others;
    k->work_of[a] = d.item[a].work;
  }
  for (uint32_t i = k->first; i <= k->end; i++) {
    b->atom[i] = (int16_t)d.of[i - k->first];
    b->block_of[i] = (uint32_t)(k - b->chain.block);
    k->waits += bytes_of(b, g->node[i], true);
  }
  for (uint32_t i = k->first; i <= k->end; i++)
    if (b->atom[i] >= 0) add_reads(b, k, g->node[i]);
}

static bool reads_before(const brim_blocks *b, const brim_node *n, size_t first)
{
  for (uint32_t k = 0; k < n->in_count; k++) {
    const int32_t maker = maker_of(b, n->in[k]);
    if (maker >= 0 && (size_t)maker < first) return true;
  }
  return false;
}

/* Finds when the results of the atoms are read, and the workspace for computing them. */
static void find_readers_of_atoms(const brim_blocks *b)
{
  const brim_graph *g = b->e->w.g;
  for (size_t i = 0; i < b->chain.count; i++)
    for (uint32_t a = 0; a < b->chain.block[i].atoms; a++) b->chain.block[i].wanted[a] = UINT32_MAX;
  for (uint32_t i = (uint32_t)g->node_count; i-- > 0;)
    for (uint32_t n = 0; n < g->node[i]->in_count; n++) {
      const int32_t maker = maker_of(b, g->node[i]->in[n]), a = maker < 0 ? -1 : b->atom[maker];
      if (a < 0) continue;
      brim_chain_block *k = &b->chain.block[b->block_of[maker]];
      if (i >= g->forward_count)
        k->wanted[a] = i;
      else if (i > k->used[a])
        k->used[a] = i;
    }
  for (uint32_t i = 0; i < g->forward_count; i++) {
    const int64_t work = brim_estimate_work(b->e, i);
    int64_t *most = b->atom[i] < 0 ? NULL : &b->chain.block[b->block_of[i]].scratch_of[b->atom[i]];
    if (most && work > *most) *most = work;
  }
}

/* The last node of the backward pass that reads results of these forward nodes, from the last one on; -1: none. */
static int32_t last_reader(const brim_blocks *b, size_t first, size_t end)
{
  const brim_graph *g = b->e->w.g;
  int32_t last = -1;
  for (size_t i = first; i < end; i++)
    for (uint32_t o = 0; o < g->node[i]->out_count; o++) {
      const int32_t reader = b->reader[b->e->root[g->node[i]->out[o]->id]];
      if (reader > last) last = reader;
    }
  return last;
}

/* Divides the nodes of the backward pass among the blocks. Step and node are the same number as long as nothing is
 * dropped. */
static void find_steps(brim_blocks *b)
{
  const brim_graph *g = b->e->w.g;
  const size_t count = b->chain.count, rest = count > 0 ? b->chain.block[count - 1].end + 1 : 0;
  b->chain.during = BRIM_ARENA_NEW(b->chain.arena, int64_t, g->node_count);
  b->chain.before = BRIM_ARENA_NEW(b->chain.arena, int64_t, g->node_count);
  brim_estimate_list(b->e, b->chain.during, b->chain.before);
  int64_t waits = 0;
  for (size_t i = 0; i < count; i++) {
    b->chain.block[i].before = waits;
    waits += b->chain.block[i].waits;
  }
  uint32_t step = (uint32_t)g->forward_count;
  const int32_t last_of_rest = count > 0 ? last_reader(b, rest, g->forward_count) : (int32_t)g->node_count;
  for (; step < g->node_count && (int32_t)step <= last_of_rest; step++) {
  }
  for (size_t i = rest; i < step; i++)
    if (b->chain.during[i] - waits > b->rest_peak) b->rest_peak = b->chain.during[i] - waits;
  for (size_t i = count; i-- > 0;) {
    brim_chain_block *k = &b->chain.block[i];
    const int32_t last = last_reader(b, k->first, k->end + 1);
    k->from = step;
    while (step < g->node_count && ((int32_t)step <= last || i == 0)) step++;
    k->to = k->asks = step;
    for (uint32_t s = k->to; s-- > k->from;)
      if (reads_before(b, g->node[s], k->first)) k->asks = s;
    for (uint32_t a = 0; a < k->atoms; a++)
      if (k->wanted[a] > k->to) k->wanted[a] = k->to;
  }
}

/* The prices, from the lowest work per byte of any node to the highest. */
static void find_prices(brim_blocks *b)
{
  double least = 0, most = 0;
  for (size_t i = 0; i < b->chain.count; i++)
    for (uint32_t a = 0; a < b->chain.block[i].atoms; a++) {
      const double price = (double)b->chain.block[i].work_of[a] /
                           (double)(b->chain.block[i].waits_of[a] + b->chain.block[i].others_of[a]);
      if (price > 0 && (least == 0 || price < least)) least = price;
      if (price > most) most = price;
    }
  double price = least / 2, factor = 1;
  for (int p = 0; p < BRIM_PRICES; p++, price *= factor) {
    b->chain.price[p] = price;
    double sixth = 1; /* the sixth root of the range of prices, by halving */
    while (sixth * sixth * sixth * sixth * sixth * sixth < 4 * most / (least > 0 ? least : 1)) sixth *= 1.05;
    factor = sixth;
  }
}

/* It is never worthwhile to keep a block's result that the backward pass does not read, so such blocks are joined. */
static bool is_boundary(const brim_blocks *b, const brim_node *n)
{
  return b->given->end[n->index] && !n->descriptor->traits.view && bytes_of(b, n, true) > 0;
}

brim_blocks *brim_blocks_create(brim_estimate *e, const brim_blocks_given *given, brim_arena *arena)
{
  const brim_graph *g = e->w.g;
  brim_blocks *b = BRIM_ARENA_NEW(arena, brim_blocks, 1);
  *b = (brim_blocks){.e = e, .given = given, .chain = {.arena = arena}};
  b->chain.block = BRIM_ARENA_NEW(arena, brim_chain_block, g->forward_count + 1);
  b->atom = BRIM_ARENA_NEW(arena, int16_t, g->forward_count);
  b->block_of = BRIM_ARENA_NEW(arena, uint32_t, g->forward_count);
  memset(b->atom, 0xff, g->forward_count * sizeof *b->atom);
  find_readers(b);
  uint32_t first = 0;
  for (uint32_t i = 0; i < g->forward_count; i++) {
    if (!is_boundary(b, g->node[i])) continue;
    brim_chain_block *k = &b->chain.block[b->chain.count++];
    k->first = first;
    k->end = i;
    find_atoms(b, k);
    first = i + 1;
  }
  b->start_bytes = (int64_t)brim_estimate_run(e);
  find_readers_of_atoms(b);
  find_steps(b);
  find_prices(b);
  for (size_t i = b->chain.count; i-- > 0;) {
    size_t alike = 0;
    const size_t period = brim_choices_find_period(&b->chain, i, &alike);
    if (alike > 0)
      memcpy(b->chain.block[i].inside, b->chain.block[i + period].inside, sizeof b->chain.block[i].inside);
    else
      brim_choices_find_inside(&b->chain, &b->chain.block[i]);
    brim_choices_find_segments(&b->chain, i, alike > 0 ? &b->chain.block[i + period] : NULL, alike);
  }
  b->places = b->chain.count < MANY ? PLACES_MAX : PLACES_MAX / 2;
  b->place = BRIM_ARENA_NEW(arena, place, (b->chain.count + 1) * b->places);
  return b;
}

/* ---- the whole chain ---- */

/* Short segments are always tried; with little memory, few long ones fit. */
static bool is_tried(const brim_blocks *b, size_t length, int64_t room)
{
  return b->chain.count < MANY || length < 5 || length % 8 == 0 ||
         (b->chain.count < 4 * MANY && room < b->start_bytes / 4);
}

static size_t place_of(const brim_blocks *b, int64_t kept)
{
  return (size_t)(int64_t)((double)kept * b->places_a_byte);
}

/* The places from which the search continues: their work is less than that of all places with fewer bytes kept. */
typedef struct sources {
  const place *place[PLACES_MAX];
  bool has_ended[PLACES_MAX]; /* longer segments do not fit */
  size_t count;
} sources;

static void list_sources(const brim_blocks *b, size_t at, sources *out)
{
  int64_t least = IMPOSSIBLE;
  out->count = 0;
  for (const place *p = &b->place[at * b->places]; p < &b->place[(at + 1) * b->places]; p++) {
    if (p->work >= least) continue;
    least = p->work;
    out->has_ended[out->count] = false;
    out->place[out->count++] = p;
  }
}

/* The place to which a segment leads. The search drops a place if another place has no more bytes kept and less
 * work. */
typedef struct target {
  place *place;
  int64_t least[PLACES_MAX]; /* by place: the least work up to it, before these segments */
} target;

static void find_target(const brim_blocks *b, size_t at, target *out)
{
  int64_t least = IMPOSSIBLE;
  out->place = &b->place[at * b->places];
  for (size_t i = 0; i < b->places; i++) {
    if (out->place[i].work < least) least = out->place[i].work;
    out->least[i] = least;
  }
}

/* Whether the first of two places with equal work is better: it keeps less, or is an earlier choice of the segment. */
static bool is_better(const place *x, const place *y)
{
  return x->kept != y->kept ? x->kept < y->kept : x->from == y->from && x->length == y->length && x->choice < y->choice;
}

/* Tries the choices of a segment of n blocks after a place. `most`: the work above which nothing is better. */
static void extend(const brim_blocks *b, const place *from, size_t n, const brim_choices *with, int64_t room,
                   const target *to, int64_t most)
{
  const int64_t left = room - from->kept;
  const size_t index = (size_t)(from - b->place) % b->places;
  for (const brim_choice_need *c = with->need; c < with->need + with->count && c->needs <= left; c++) {
    const int64_t kept = from->kept + c->kept, work = from->work + c->work;
    if (work > most) continue;
    const size_t at = place_of(b, kept);
    if (to->least[at] < work) continue;
    place *p = &to->place[at];
    const place now = {kept, work, (int16_t)n, c->index, (int16_t)index};
    if (p->work > work || (p->work == work && is_better(&now, p))) *p = now;
  }
}

static void extend_all(const brim_blocks *b, size_t at, int64_t room)
{
  sources from;
  target to;
  list_sources(b, at, &from);
  for (size_t n = 1; n <= BRIM_SEGMENT_MAX && at + n <= b->chain.count; n++) {
    if (!is_tried(b, n, room)) continue;
    const brim_choices *with = &b->chain.block[at].closed[n];
    find_target(b, at + n, &to);
    for (size_t i = 0; i < from.count; i++) {
      const place *p = from.place[i];
      if (from.has_ended[i]) continue;
      if (with->count == 0 || with->least.needs > room - p->kept) {
        from.has_ended[i] = n > 1;
        continue;
      }
      const int64_t most = to.least[place_of(b, p->kept + with->least.kept)];
      if (most >= p->work + with->least.work) extend(b, p, n, with, room, &to, most);
    }
  }
}

static void drop_choice(brim_blocks *b, size_t first, size_t n, int at)
{
  bool open = false;
  for (; n > 0; n--) {
    const brim_choice *c = open ? &b->chain.block[first].open[n].item[at] : &b->chain.block[first].closed[n].item[at];
    const brim_chain_block *k = &b->chain.block[first + n - 1];
    const uint32_t atoms = k->inside[open].item[c->last].atoms;
    for (uint32_t i = k->first; i <= k->end; i++)
      if (b->atom[i] >= 0) b->e->w.dropped[i] = atoms >> b->atom[i] & 1;
    at = c->before;
    open = true;
  }
}

/* Drops a view if the tensor that it views is dropped. */
static void drop_views(brim_blocks *b)
{
  const brim_graph *g = b->e->w.g;
  for (size_t i = 0; i < g->forward_count; i++) {
    if (!g->node[i]->descriptor->traits.view) continue;
    const int32_t maker = b->e->w.maker[g->node[i]->in[0]->id];
    b->e->w.dropped[i] = maker >= 0 && b->e->w.dropped[maker] && b->given->repeats[i];
  }
}

size_t brim_blocks_size(const brim_blocks *b)
{
  size_t size = 0;
  for (size_t i = 0; i < b->chain.count; i++)
    for (size_t n = 1; n <= BRIM_SEGMENT_MAX && i + n <= b->chain.count; n++)
      if (is_tried(b, n, b->start_bytes)) size += (4 + (size_t)b->chain.block[i].closed[n].count) * b->places;
  return size;
}

bool brim_blocks_solve(brim_blocks *b, uint64_t bytes)
{
  const int64_t room = (int64_t)bytes;
  b->places_a_byte = ((double)b->places - 0.001) / (double)(room + 1);
  for (size_t i = 0; i < (b->chain.count + 1) * b->places; i++) b->place[i].work = IMPOSSIBLE;
  b->place[0] = (place){0};
  for (size_t at = 0; at < b->chain.count; at++) extend_all(b, at, room);
  const place *best = NULL;
  for (size_t i = 0; i < b->places; i++) {
    const place *p = &b->place[b->chain.count * b->places + i];
    if (p->work != IMPOSSIBLE && p->kept + b->rest_peak <= room && (!best || p->work < best->work)) best = p;
  }
  if (!best) return false;
  memset(b->e->w.dropped, 0, b->e->w.g->forward_count * sizeof *b->e->w.dropped);
  for (size_t at = b->chain.count; at > 0;) {
    const size_t first = at - (size_t)best->length;
    drop_choice(b, first, (size_t)best->length, best->choice);
    best = &b->place[first * b->places + (size_t)best->from];
    at = first;
  }
  drop_views(b);
  return true;
}
