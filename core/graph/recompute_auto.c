/* Chooses the nodes to drop for each memory size: for every 64th of the peak without recompute, the set of nodes with
 * the least work that the search found.
 *
 * One method solves the blocks of the graph for one budget after another (recompute_blocks.c). The other, a descent,
 * handles graphs that are not chains of blocks. A descent starts at the peak: of the results that are alive there for
 * the backward pass, it first drops those that free most bytes per work of recomputing them. Then it finds the new
 * peak, and continues until nothing lowers it. A single descent would recompute a long run of layers at once, and their
 * results would cause a new peak. So in small graphs one descent may drop everything, and others keep every end of a
 * block, every second, third, fourth, sixth and so on. The search keeps a set if it is the best so far for its memory,
 * and then stops dropping nodes that the set need not drop. */
#include "graph/recompute_auto.h"

#include <string.h>

#include "graph/counts.h"
#include "graph/recompute_blocks.h"

/* The number of operations that cost as much as moving one byte: machines compute about this many times faster than
 * they read memory. */
#define OPERATIONS_PER_BYTE 8
/* A descent ends after this many consecutive steps without progress. */
#define STALLS_MAX 8
/* In a large graph a descent also stops after this many steps in one slot, if the blocks have found less memory. */
#define STEPS_MAX 32
/* Limit for attempts to keep a node again, over all levels, in a graph of a thousand nodes; smaller graphs get more. */
#define TRIES_MAX 256
/* Larger graphs get only one descent, because further descents find little that the blocks do not. */
#define DESCENTS_NODES_MAX 200
/* Limit for solving the blocks for one budget. */
#define SOLVES_MAX 3
/* Budgets that are tried below the smallest 64th for which the blocks have a solution. */
#define LEAST_SOLVES_MAX 4
/* Limit for the sum of the sizes of all solutions. */
#define SOLVES_SIZE_MAX (56 << 20)

enum { SLOTS = BRIM_RECOMPUTE_LEVELS_MAX - 1 }; /* the last level, with the least memory possible, has no slot */

typedef struct found {
  uint64_t bytes, work, flops; /* bytes 0: none */
  bool *dropped, of_blocks;    /* of_blocks: solved, not found by a descent */
} found;

typedef struct worth {
  double value; /* bytes freed per work */
  uint64_t bytes;
  uint32_t node;
} worth;

typedef struct search {
  brim_estimate e;
  size_t nodes;
  bool *keeps;                         /* by node: whether the backward pass reads its results */
  bool *repeats, *refused;             /* by node */
  int32_t *first_view, *next_view;     /* by node: first and next view of its results; -1: none */
  uint64_t *work, *flops, start_bytes; /* flops 0: a view */
  worth *ranked;                       /* see rank */
  size_t rank_count, heap;             /* sizes of `ranked` and of the heap in it */
  uint32_t *list;                      /* nodes dropped in a step */
  bool solves;                         /* the search now solves the blocks */
  found slot[BRIM_RECOMPUTE_LEVELS_MAX];
} search;

uint64_t brim_recompute_work(const brim_node *n)
{
  const brim_cost cost = brim_op_cost(n);
  return n->descriptor->traits.view ? 0 : cost.flops + OPERATIONS_PER_BYTE * cost.bytes;
}

static void index_views(search *s, brim_arena *arena)
{
  const brim_graph *g = s->e.w.g;
  s->first_view = BRIM_ARENA_NEW(arena, int32_t, s->nodes);
  s->next_view = BRIM_ARENA_NEW(arena, int32_t, s->nodes);
  memset(s->first_view, 0xff, s->nodes * sizeof *s->first_view);
  for (size_t i = s->nodes; i-- > 0;) {
    const int32_t of = g->node[i]->descriptor->traits.view ? s->e.w.maker[g->node[i]->in[0]->id] : -1;
    if (of < 0) continue;
    s->next_view[i] = s->first_view[of];
    s->first_view[of] = (int32_t)i;
  }
}

static void init_search(search *s, const brim_program *p, brim_arena *arena)
{
  brim_estimate_init(&s->e, p, arena);
  const brim_graph *g = s->e.w.g;
  s->nodes = g->forward_count;
  s->keeps = BRIM_ARENA_NEW(arena, bool, s->nodes);
  for (size_t i = g->forward_count; i < g->node_count; i++)
    for (uint32_t k = 0; k < g->node[i]->in_count; k++) {
      const int32_t maker = s->e.w.maker[g->node[i]->in[k]->id];
      if (maker >= 0) s->keeps[maker] = true;
    }
  s->repeats = BRIM_ARENA_NEW(arena, bool, s->nodes);
  s->refused = BRIM_ARENA_NEW(arena, bool, s->nodes);
  s->work = BRIM_ARENA_NEW(arena, uint64_t, s->nodes);
  s->flops = BRIM_ARENA_NEW(arena, uint64_t, s->nodes);
  for (size_t i = 0; i < s->nodes; i++) {
    s->repeats[i] = brim_walk_repeats(g, g->node[i]);
    s->work[i] = brim_recompute_work(g->node[i]);
    s->flops[i] = g->node[i]->descriptor->traits.view ? 0 : brim_op_cost(g->node[i]).flops;
  }
  index_views(s, arena);
  s->ranked = BRIM_ARENA_NEW(arena, worth, s->nodes);
  s->list = BRIM_ARENA_NEW(arena, uint32_t, s->nodes);
  for (size_t i = 0; i < BRIM_RECOMPUTE_LEVELS_MAX; i++) s->slot[i].dropped = BRIM_ARENA_NEW(arena, bool, s->nodes);
}

/* ---- dropping ---- */

static void add_to(search *s, uint32_t node, size_t *count)
{
  s->e.w.dropped[node] = true;
  s->list[(*count)++] = node;
}

/* Drops a node, the views of its results, and earlier nodes whose results no other node needs. Adds them to the list,
 * and returns their work. */
static uint64_t drop(search *s, uint32_t node, size_t *count)
{
  const brim_graph *g = s->e.w.g;
  uint64_t work = 0;
  size_t at = *count;
  add_to(s, node, count);
  for (; at < *count; at++) {
    const brim_node *n = g->node[s->list[at]];
    work += s->work[n->index];
    for (uint32_t k = 0; k < n->in_count; k++) {
      const int32_t before = s->e.w.maker[n->in[k]->id];
      if (before < 0 || s->e.w.dropped[before] || !s->repeats[before] || s->keeps[before]) continue;
      add_to(s, (uint32_t)before, count);
    }
    for (int32_t v = s->first_view[n->index]; v >= 0; v = s->next_view[v])
      if (!s->e.w.dropped[v]) add_to(s, (uint32_t)v, count);
  }
  return work;
}

static void take_back(search *s, size_t count)
{
  for (size_t i = 0; i < count; i++) s->e.w.dropped[s->list[i]] = false;
}

/* Bytes of a node's results that are kept at the peak for the backward pass. */
static uint64_t waiting_bytes(const search *s, const brim_node *n)
{
  const brim_estimate *e = &s->e;
  uint64_t bytes = 0;
  for (uint32_t k = 0; k < n->out_count; k++) {
    const brim_tensor *t = n->out[k];
    if (t->role != BRIM_ROLE_ACTIVATION || e->root[t->id] != t->id) continue;
    if (brim_estimate_waits(e, t)) bytes += t->bytes;
  }
  return bytes;
}

static bool is_better(const worth *x, const worth *y)
{
  return x->value != y->value ? x->value > y->value : x->node < y->node;
}

/* ---- ranking ----
 *
 * Most often only the best few of a thousand nodes are looked at, so they are in a heap: the best is ranked[0]. The
 * best ones that were looked at follow the heap, from the end of the list. */

static void sift_down(search *s, size_t at)
{
  const worth moved = s->ranked[at];
  for (size_t child; (child = 2 * at + 1) < s->heap; at = child) {
    if (child + 1 < s->heap && is_better(&s->ranked[child + 1], &s->ranked[child])) child++;
    if (!is_better(&s->ranked[child], &moved)) break;
    s->ranked[at] = s->ranked[child];
  }
  s->ranked[at] = moved;
}

static void rank(search *s, size_t count)
{
  s->rank_count = s->heap = count;
  for (size_t i = count / 2; i-- > 0;) sift_down(s, i);
}

/* Returns the node with this rank, from 0. */
static const worth *ranked(search *s, size_t index)
{
  while (s->rank_count - s->heap <= index) {
    const worth best = s->ranked[0];
    s->ranked[0] = s->ranked[--s->heap];
    if (s->heap > 0) sift_down(s, 0);
    s->ranked[s->heap] = best;
  }
  return &s->ranked[s->rank_count - 1 - index];
}

/* Ranks the nodes that may be dropped. */
static size_t rank_nodes(search *s)
{
  size_t listed = 0;
  for (uint32_t i = 0; i < s->nodes; i++) {
    if (s->e.w.dropped[i] || s->refused[i] || !s->repeats[i]) continue;
    const uint64_t bytes = waiting_bytes(s, s->e.w.g->node[i]);
    if (bytes == 0) continue;
    size_t count = 0;
    const uint64_t work = drop(s, i, &count);
    take_back(s, count);
    s->ranked[listed++] = (worth){(double)bytes / (double)(work + 1), bytes, i};
  }
  rank(s, listed);
  return listed;
}

/* ---- descents ---- */

/* Stores the set for which the estimate last ran, without dropped nodes that no node needs, because they are not
 * recomputed. */
static void put(const search *s, found *into, uint64_t bytes, uint64_t work)
{
  into->bytes = bytes;
  into->work = work;
  into->of_blocks = s->solves;
  into->flops = 0;
  memcpy(into->dropped, s->e.w.dropped, s->nodes * sizeof *into->dropped);
  for (size_t i = 0; i < s->nodes; i++)
    if (s->e.w.made[i]) into->flops += s->flops[i];
}

static uint64_t work_made(const search *s)
{
  uint64_t work = 0;
  for (size_t i = 0; i < s->nodes; i++) work += s->e.w.made[i] ? s->work[i] : 0;
  return work;
}

static found *slot_of(search *s, uint64_t bytes)
{
  return &s->slot[bytes * SLOTS / (s->start_bytes + 1)];
}

/* Whether the current set is better than another one. Of two equally good sets, one from a descent is better than one
 * from the blocks. */
static bool is_best(const search *s, const found *f, uint64_t cost, uint64_t other)
{
  return f->bytes == 0 || cost < other || (cost == other && f->of_blocks && !s->solves);
}

/* Keeps the current set if it is the best so far for `bytes`. */
static void offer(search *s, uint64_t bytes)
{
  const uint64_t work = work_made(s);
  found *slot = slot_of(s, bytes), *least = &s->slot[SLOTS];
  if (is_best(s, slot, work, slot->work)) put(s, slot, bytes, work);
  if (is_best(s, least, bytes, least->bytes)) put(s, least, bytes, work);
}

/* Drops ranked nodes, beginning with number `from`, until about `bytes` are free; at least one node. False, with
 * everything restored, if the peak would rise. */
static bool try_drops(search *s, size_t from, uint64_t bytes, uint64_t *peak)
{
  uint64_t freed = 0;
  size_t count = 0;
  for (size_t i = from; i < s->rank_count && (i == from || freed + ranked(s, i)->bytes <= bytes); i++) {
    const worth *r = ranked(s, i);
    if (s->e.w.dropped[r->node]) continue; /* dropped with an earlier one */
    drop(s, r->node, &count);
    freed += r->bytes;
  }
  const uint64_t then = brim_estimate_run(&s->e);
  if (then > *peak) {
    take_back(s, count);
    return false;
  }
  *peak = then;
  return true;
}

/* Drops the best nodes together. If that raises the peak, drops the first of the STALLS_MAX best nodes that alone does
 * not raise it. False if none was dropped. */
static bool step_down(search *s, uint64_t bytes, uint64_t *peak)
{
  const size_t count = rank_nodes(s);
  if (count > 0 && try_drops(s, 0, bytes, peak)) return true;
  for (size_t i = 0; i < count && i < STALLS_MAX; i++) {
    if (try_drops(s, i, 0, peak)) return true;
    s->refused[ranked(s, i)->node] = true;
  }
  return false;
}

/* Starts with no node dropped; never drops nodes that it must not drop. As work only grows, further sets in a slot
 * matter only if the descent finds the least memory, or reaches another slot. */
static void descend(search *s)
{
  const found *least = &s->slot[SLOTS], *slot = NULL;
  memset(s->e.w.dropped, 0, s->nodes * sizeof *s->e.w.dropped);
  uint64_t peak = brim_estimate_run(&s->e);
  for (int stalls = 0, steps = 0; stalls < STALLS_MAX; stalls++) {
    const uint64_t before = peak;
    if (!step_down(s, s->start_bytes / SLOTS, &peak)) return;
    if (peak == before) continue;
    offer(s, peak);
    stalls = 0;
    if (slot_of(s, peak) != slot) steps = 0;
    slot = slot_of(s, peak);
    if (s->nodes > DESCENTS_NODES_MAX && least->of_blocks && ++steps == STEPS_MAX) return;
  }
}

/* The ends of blocks that a descent keeps: one of every `every`; `gone`: the number that counts as dropped before the
 * first. A different `gone` keeps other ends, which matters if some ends lie within layers and some between them. */
static const struct {
  size_t every, gone;
} kept[] = {{1, 0}, {2, 0}, {3, 0}, {4, 0}, {6, 0}, {6, 3}, {8, 0}, {8, 5}, {12, 0}, {16, 0}, {24, 0}};

/* Solves for a budget, and again for a smaller one if the peak exceeds the budget, because the blocks predict the peak
 * only approximately. False if that memory cannot be reached. */
static bool solve_within(search *s, brim_blocks *blocks, uint64_t bytes)
{
  uint64_t room = bytes;
  for (int tries = 0; tries < SOLVES_MAX; tries++) {
    if (!brim_blocks_solve(blocks, room)) return tries > 0;
    const uint64_t peak = brim_estimate_run(&s->e);
    if (peak < s->start_bytes) offer(s, peak);
    if (peak <= bytes || peak - bytes >= room) return true;
    room -= peak - bytes;
  }
  return true;
}

/* Looks for solutions with less memory than `solved`, for which a solution is known, down to `unsolved`. */
static void solve_least(search *s, brim_blocks *blocks, uint64_t unsolved, uint64_t solved)
{
  for (int tries = 0; tries < LEAST_SOLVES_MAX; tries++) {
    const uint64_t middle = unsolved + (solved - unsolved) / 2;
    *(solve_within(s, blocks, middle) ? &solved : &unsolved) = middle;
  }
}

static void solve_blocks(search *s, const bool *end, brim_arena *arena)
{
  const brim_blocks_given given = {end, s->repeats, s->work};
  brim_blocks *blocks = brim_blocks_create(&s->e, &given, arena);
  const uint64_t size = brim_blocks_size(blocks);
  uint64_t step = 1 + SLOTS * size / SOLVES_SIZE_MAX;
  for (uint64_t slot = SLOTS - 1; slot > 0;) {
    if (solve_within(s, blocks, slot * s->start_bytes / SLOTS)) {
      slot -= step < slot ? step : slot;
      continue;
    }
    if (step == 1) {
      solve_least(s, blocks, slot * s->start_bytes / SLOTS, (slot + 1) * s->start_bytes / SLOTS);
      return;
    }
    slot += step - 1; /* the least memory lies between */
    step = 1;
  }
}

static void descend_all(search *s, const bool *end)
{
  size_t ends = 0;
  for (size_t i = 0; i < s->nodes; i++) ends += end[i];
  descend(s);
  if (s->nodes > DESCENTS_NODES_MAX) return;
  for (size_t k = 0; k < sizeof kept / sizeof kept[0] && kept[k].every * kept[k].every <= 2 * ends; k++) {
    size_t seen = kept[k].gone;
    for (size_t i = 0; i < s->nodes; i++) s->refused[i] = end[i] && ++seen % kept[k].every == 0;
    descend(s);
  }
}

/* ---- keeping nodes again ---- */

/* A descent drops the best node at each step, which later drops may make unnecessary. So this keeps nodes again, those
 * with most work first, as long as the peak does not rise. */
static void keep_again(search *s, found *f, size_t tries)
{
  size_t count = 0;
  memcpy(s->e.w.dropped, f->dropped, s->nodes * sizeof *f->dropped);
  for (uint32_t i = 0; i < s->nodes; i++)
    if (f->dropped[i] && s->work[i] > 0) s->ranked[count++] = (worth){(double)s->work[i], 0, i};
  rank(s, count);
  for (size_t i = 0; i < count && i < tries; i++) {
    const uint32_t node = ranked(s, i)->node;
    s->e.w.dropped[node] = false;
    if (brim_estimate_run(&s->e) > f->bytes) s->e.w.dropped[node] = true;
  }
  put(s, f, brim_estimate_run(&s->e), work_made(s));
}

static void keep_all_again(search *s)
{
  size_t levels = 0;
  for (size_t i = 0; i <= SLOTS; i++) levels += s->slot[i].bytes > 0;
  for (size_t i = 0; i <= SLOTS; i++)
    if (s->slot[i].bytes > 0) keep_again(s, &s->slot[i], 1000 * TRIES_MAX / (s->nodes + 1) / levels);
}

/* ---- levels ---- */

/* Lists levels from most memory to least, without levels for which a later one has no more work. */
static void list_levels(const search *s, brim_arena *arena, brim_recompute *out)
{
  const found *level[BRIM_RECOMPUTE_LEVELS_MAX];
  const found *last = &s->slot[SLOTS];
  size_t count = 0;
  out->bytes[0] = s->start_bytes;
  if (last->bytes == 0 || last->bytes >= s->start_bytes) return;
  level[count++] = last;
  for (size_t i = 0; i < SLOTS; i++) {
    const found *f = &s->slot[i], *before = level[count - 1];
    if (f->bytes == 0 || f->bytes <= before->bytes || f->bytes >= s->start_bytes) continue;
    if (f->work < before->work && f->flops < before->flops) level[count++] = f;
  }
  while (count > 0) {
    const found *f = level[--count];
    out->levels++;
    out->bytes[out->levels] = f->bytes;
    out->dropped[out->levels] = brim_arena_copy(arena, f->dropped, s->nodes * sizeof *f->dropped);
  }
}

void brim_recompute_search(const brim_program *p, const bool *end, brim_arena *arena, brim_recompute *out)
{
  brim_arena scratch = {0};
  search s = {0};
  brim_count(BRIM_COUNTED_SEARCHES);
  init_search(&s, p, &scratch);
  s.start_bytes = brim_estimate_run(&s.e);
  s.solves = true;
  solve_blocks(&s, end, &scratch);
  s.solves = false;
  descend_all(&s, end);
  keep_all_again(&s);
  list_levels(&s, arena, out);
  brim_arena_release(&scratch);
}
