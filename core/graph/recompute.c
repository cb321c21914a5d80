/* `blocks` keeps what goes from one block to the next: blocks end where the results of a single node go on (the
 * articulation points of the graph). Runs of blocks of one node each, as in a chain of layers, are joined by the square
 * root of their number (Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016); `full` joins all blocks so.
 * What `auto` does, recompute_auto.c tells.
 */
#include "graph/recompute.h"

#include <string.h>

#include "graph/recompute_auto.h"
#include "graph/recompute_walk.h"

const char *brim_recompute_name(enum brim_recompute_kind kind)
{
  static const char *const names[] = {"none", "blocks", "full", "auto"};
  return names[kind];
}

double brim_recompute_share(const brim_program *p)
{
  const uint64_t again = p->graph->recomputed_flops;
  return again == 0 ? 0 : (double)again / (double)(p->cost.flops - again);
}

/* ---- blocks ---- */

/* Do the results of this node alone go on to those behind it? */
static bool *find_ends(const brim_graph *g, brim_arena *arena)
{
  brim_walk w;
  brim_walk_init(&w, g, arena);
  int32_t *last = BRIM_ARENA_NEW(arena, int32_t, g->forward_count); /* that reads a node's results */
  bool *end = BRIM_ARENA_NEW(arena, bool, g->forward_count);
  for (size_t i = 0; i < g->forward_count; i++)
    for (uint32_t k = 0; k < g->node[i]->in_count; k++) {
      const int32_t maker = w.maker[brim_walk_root(g, g->node[i]->in[k])->id];
      if (maker >= 0) last[maker] = (int32_t)i;
    }
  int32_t *change = BRIM_ARENA_NEW(arena, int32_t, g->forward_count + 1);
  for (size_t i = 0; i < g->forward_count; i++) {
    if (last[i] <= (int32_t)i) continue;
    change[i]++;
    change[last[i]]--;
  }
  int32_t going = 0;
  for (size_t i = 0; i < g->forward_count; i++) {
    going += change[i];
    end[i] = going == 1 && last[i] > (int32_t)i;
  }
  return end;
}

/* Joins runs of blocks: of every `join` ends that follow each other, the last stays one. */
static void join_ends(bool *end, size_t from, size_t to)
{
  size_t blocks = 0, join = 1;
  for (size_t i = from; i < to; i++) blocks += end[i];
  while ((join + 1) * (join + 1) <= blocks) join++;
  size_t seen = 0;
  for (size_t i = from; i < to; i++) {
    if (!end[i]) continue;
    seen++;
    if (seen % join != 0) end[i] = false;
  }
}

static void join_blocks(bool *end, size_t nodes, bool full)
{
  if (full) {
    join_ends(end, 0, nodes);
    return;
  }
  for (size_t i = 0; i < nodes; i++) { /* runs of blocks of one node */
    size_t to = i;
    while (to < nodes && end[to]) to++;
    if (to > i) join_ends(end, i, to);
    i = to;
  }
}

/* All but the ends. What comes behind the last is needed at once. */
static void drop_blocks(const brim_program *p, const bool *end, brim_arena *arena, brim_recompute *out)
{
  const brim_graph *g = p->graph;
  bool *dropped = BRIM_ARENA_NEW(arena, bool, g->forward_count);
  size_t last = g->forward_count;
  while (last > 0 && !end[last - 1]) last--;
  for (size_t i = 0; i < last; i++) dropped[i] = !end[i] && brim_walk_repeats(g, g->node[i]);
  out->levels = 1;
  out->dropped[1] = dropped;
}

void brim_recompute_choose(const brim_program *p, enum brim_recompute_kind kind, brim_arena *arena, brim_recompute *out)
{
  *out = (brim_recompute){.dropped = {BRIM_ARENA_NEW(arena, bool, p->graph->forward_count)}};
  if (kind == BRIM_RECOMPUTE_NONE) return;
  bool *end = find_ends(p->graph, arena);
  if (kind == BRIM_RECOMPUTE_AUTO) {
    brim_recompute_search(p, end, arena, out);
    return;
  }
  join_blocks(end, p->graph->forward_count, kind == BRIM_RECOMPUTE_FULL);
  drop_blocks(p, end, arena, out);
}

/* ---- rewriting ---- */

typedef struct rewriting {
  brim_walk w; /* the first: visits are given it */
  brim_graph *into;
  brim_tensor **clone; /* by tensor */
} rewriting;

static void append_clone(rewriting *r, const brim_node *n)
{
  brim_graph *g = r->into;
  brim_node *copy = brim_arena_copy(&g->arena, n, sizeof *n);
  copy->in = BRIM_ARENA_NEW(&g->arena, brim_tensor *, n->in_count);
  copy->out = BRIM_ARENA_NEW(&g->arena, brim_tensor *, n->out_count);
  for (uint32_t k = 0; k < n->in_count; k++)
    copy->in[k] = brim_walk_drops(&r->w, n->in[k]) ? r->clone[n->in[k]->id] : n->in[k];
  for (uint32_t k = 0; k < n->out_count; k++) {
    const brim_tensor *t = n->out[k];
    copy->out[k] = brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, t->dtype, &t->shape, t->name);
    if (!copy->out[k]) return; /* the graph has the error */
    if (t->role == BRIM_ROLE_ACTIVATION) r->clone[t->id] = copy->out[k];
  }
  g->recomputed_flops += n->descriptor->view ? 0 : brim_op_cost(n).flops;
  g->recomputed_count++;
  brim_graph_append(g, copy);
}

static void visit_rewriting(brim_walk *w, const brim_node *n, bool clone)
{
  rewriting *r = (rewriting *)w;
  if (r->into->status != BRIM_OK) return;
  if (clone) {
    append_clone(r, n);
    return;
  }
  brim_node *same = (brim_node *)n;
  for (uint32_t k = 0; k < n->in_count; k++)
    if (brim_walk_drops(w, n->in[k])) same->in[k] = r->clone[n->in[k]->id];
  brim_graph_append(r->into, same);
}

brim_status brim_recompute_apply(brim_graph *g, const brim_recompute *r, uint32_t level)
{
  brim_arena scratch = {0};
  brim_graph before = *g; /* the graph's own array is written anew */
  before.node = BRIM_ARENA_NEW(&scratch, brim_node *, g->node_count);
  memcpy(before.node, g->node, g->node_count * sizeof *g->node);
  rewriting to = {.into = g};
  brim_walk_init(&to.w, &before, &scratch);
  to.w.visit = visit_rewriting;
  to.clone = BRIM_ARENA_NEW(&scratch, brim_tensor *, to.w.tensors);
  memcpy(to.w.dropped, r->dropped[level], g->forward_count * sizeof *to.w.dropped);
  for (size_t i = before.forward_count; i < before.node_count; i++)
    for (uint32_t k = 0; k < before.node[i]->out_count; k++)
      if (before.node[i]->out[k]->producer >= (int32_t)before.forward_count) before.node[i]->out[k]->producer = -1;
  g->node_count = g->forward_count;
  brim_walk_backward(&to.w);
  brim_arena_release(&scratch);
  return g->status;
}
