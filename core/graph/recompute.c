/* The backward pass is walked in order: before a node that needs a dropped tensor come the clones that make it, in the
 * order of the forward pass, back to tensors that are kept. Walking is the same for estimating lifetimes and for
 * rewriting the graph.
 *
 * `blocks` keeps what goes from one block to the next: blocks end where a single activation goes on (the articulation
 * points of the graph). Runs of blocks of one node each, as in a chain of layers, are joined by the square root of
 * their number (Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016); `full` joins all blocks so.
 *
 * `auto` goes down from the peak: of the tensors that only wait there for the backward pass, it drops the one that
 * frees most bytes for the work of making it again, looks where the peak is now, and goes on until nothing lowers it.
 */
#include "graph/recompute.h"

#include <stdlib.h>
#include <string.h>

/* What a byte moved counts for beside an operation: machines compute this many times faster than they read. */
#define OPERATIONS_PER_BYTE 8

typedef struct walk {
  const brim_graph *g;
  size_t tensors;  /* of the forward pass, and what came before */
  bool *dropped;   /* by node of the forward pass */
  bool *made;      /* by node: its clone is there */
  uint32_t *stack; /* nodes to be cloned */
  void (*visit)(struct walk *w, const brim_node *n, bool clone);
  /* of estimates: by instance, a tensor or behind all of them its clone */
  int32_t *first, *last, *forward_last;
  int32_t now;
  /* of rewriting */
  brim_graph *into;
  brim_tensor **clone; /* by tensor */
} walk;

static const brim_node *maker_of(const walk *w, const brim_tensor *t)
{
  const bool forward = t->producer >= 0 && (size_t)t->producer < w->g->forward_count;
  return forward ? w->g->node[t->producer] : NULL;
}

static bool is_dropped(const walk *w, const brim_tensor *t)
{
  const brim_node *maker = maker_of(w, t);
  return maker && t->role == BRIM_ROLE_ACTIVATION && w->dropped[maker->index];
}

static int by_index(const void *a, const void *b)
{
  const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

/* Clones what makes a dropped tensor, unless it is there already. */
static void make_again(walk *w, const brim_tensor *t)
{
  size_t count = 0, done = 0;
  const brim_node *maker = maker_of(w, t);
  if (w->made[maker->index]) return;
  w->made[maker->index] = true;
  w->stack[count++] = maker->index;
  for (; done < count; done++) {
    const brim_node *n = w->g->node[w->stack[done]];
    for (uint32_t k = 0; k < n->in_count; k++) {
      if (!is_dropped(w, n->in[k])) continue;
      const brim_node *before = maker_of(w, n->in[k]);
      if (w->made[before->index]) continue;
      w->made[before->index] = true;
      w->stack[count++] = before->index;
    }
  }
  qsort(w->stack, count, sizeof *w->stack, by_index);
  for (size_t i = 0; i < count; i++) w->visit(w, w->g->node[w->stack[i]], true);
}

static void walk_backward(walk *w)
{
  const brim_graph *g = w->g;
  memset(w->made, 0, g->forward_count * sizeof *w->made);
  for (size_t i = g->forward_count; i < g->node_count; i++) {
    for (uint32_t k = 0; k < g->node[i]->in_count; k++)
      if (is_dropped(w, g->node[i]->in[k])) make_again(w, g->node[i]->in[k]);
    w->visit(w, g->node[i], false);
  }
}

static walk make_walk(const brim_graph *g, brim_arena *arena)
{
  walk w = {.g = g};
  for (size_t i = 0; i < g->forward_count; i++)
    for (uint32_t k = 0; k < g->node[i]->out_count; k++)
      if (g->node[i]->out[k]->id >= w.tensors) w.tensors = g->node[i]->out[k]->id + 1;
  w.dropped = BRIM_ARENA_NEW(arena, bool, g->forward_count);
  w.made = BRIM_ARENA_NEW(arena, bool, g->forward_count);
  w.stack = BRIM_ARENA_NEW(arena, uint32_t, g->forward_count);
  return w;
}

/* ---- what may be dropped ---- */

/* A node that adds to something outside, as batch norm to its moving averages, runs once. */
static bool may_run_again(const brim_node *n)
{
  for (uint32_t k = 0; k < n->out_count; k++)
    if (n->out[k]->role != BRIM_ROLE_ACTIVATION) return false;
  return true;
}

static uint64_t work_of(const brim_node *n)
{
  const brim_cost cost = brim_op_cost(n);
  return n->descriptor->view ? 0 : cost.flops + OPERATIONS_PER_BYTE * cost.bytes;
}

/* Which forward tensors the backward pass reads, by id. */
static bool *find_saved(const walk *w, brim_arena *arena)
{
  const brim_graph *g = w->g;
  bool *saved = BRIM_ARENA_NEW(arena, bool, w->tensors);
  for (size_t i = g->forward_count; i < g->node_count; i++)
    for (uint32_t k = 0; k < g->node[i]->in_count; k++)
      if (g->node[i]->in[k]->id < w->tensors) saved[g->node[i]->in[k]->id] = true;
  return saved;
}

/* ---- lifetimes ---- */

/* The tensor whose memory a view's result is. */
static const brim_tensor *root_of(const walk *w, const brim_tensor *t)
{
  for (;;) {
    const brim_node *maker = t->producer >= 0 ? w->g->node[t->producer] : NULL;
    if (!maker || !maker->descriptor->view || maker->in[0]->bytes != t->bytes) return t;
    t = maker->in[0];
  }
}

static void touch(walk *w, const brim_tensor *t, bool clone)
{
  const brim_tensor *root = root_of(w, t);
  const size_t i = root->id + (clone && is_dropped(w, root) ? w->g->tensor_count : 0);
  if (w->first[i] < 0) w->first[i] = w->now;
  w->last[i] = w->now;
}

static void visit_time(walk *w, const brim_node *n, bool clone)
{
  const bool backward = clone || n->index >= w->g->forward_count;
  for (uint32_t k = 0; k < n->in_count; k++) touch(w, n->in[k], backward && is_dropped(w, n->in[k]));
  for (uint32_t k = 0; k < n->out_count; k++) touch(w, n->out[k], clone);
  w->now++;
}

static bool is_transient(const brim_tensor *t)
{
  return t->role == BRIM_ROLE_ACTIVATION || t->role == BRIM_ROLE_WORKSPACE;
}

/* Live bytes at every point of time; returns the most, and when. */
static uint64_t find_peak(const walk *w, int64_t *change, int32_t *when)
{
  const size_t count = w->g->tensor_count;
  int64_t live = 0, most = 0;
  memset(change, 0, (size_t)(w->now + 1) * sizeof *change);
  for (size_t i = 0; i < 2 * count; i++) {
    const brim_tensor *t = w->g->tensor[i % count];
    if (w->first[i] < 0 || !is_transient(t)) continue;
    change[w->first[i]] += (int64_t)t->bytes;
    change[w->last[i] + 1] -= (int64_t)t->bytes;
  }
  for (int32_t t = 0; t < w->now; t++) {
    live += change[t];
    if (live <= most) continue;
    most = live;
    *when = t;
  }
  return (uint64_t)most;
}

typedef struct estimate {
  walk w;
  int64_t *change; /* scratch */
  bool *saved;
} estimate;

static estimate make_estimate(const brim_graph *g, brim_arena *arena)
{
  estimate e = {.w = make_walk(g, arena)};
  e.w.visit = visit_time;
  e.w.first = BRIM_ARENA_NEW(arena, int32_t, 2 * g->tensor_count);
  e.w.last = BRIM_ARENA_NEW(arena, int32_t, 2 * g->tensor_count);
  e.w.forward_last = BRIM_ARENA_NEW(arena, int32_t, g->tensor_count);
  e.change = BRIM_ARENA_NEW(arena, int64_t, g->node_count + g->forward_count + 2);
  e.saved = find_saved(&e.w, arena);
  return e;
}

/* The peak with what is dropped now, and when it is. */
static uint64_t run_estimate(estimate *e, int32_t *when)
{
  walk *w = &e->w;
  w->now = 0;
  memset(w->first, 0xff, 2 * w->g->tensor_count * sizeof *w->first);
  for (size_t i = 0; i < w->g->forward_count; i++) visit_time(w, w->g->node[i], false);
  memcpy(w->forward_last, w->last, w->g->tensor_count * sizeof *w->last);
  walk_backward(w);
  return find_peak(w, e->change, when);
}

/* ---- levels ---- */

/* Drops a node, the views of its results, and what comes before that nothing keeps anyway: adds them to `list`, and
 * returns how much work that is. */
static uint64_t drop(estimate *e, const brim_node *n, uint32_t *list, size_t *count)
{
  walk *w = &e->w;
  uint64_t work = 0;
  const size_t start = *count;
  list[(*count)++] = n->index;
  w->dropped[n->index] = true;
  for (size_t i = start; i < *count; i++) {
    const brim_node *at = w->g->node[list[i]];
    work += work_of(at);
    for (uint32_t k = 0; k < at->in_count; k++) {
      const brim_node *before = maker_of(w, at->in[k]);
      if (!before || w->dropped[before->index] || !may_run_again(before)) continue;
      bool kept = false;
      for (uint32_t o = 0; o < before->out_count; o++) kept = kept || e->saved[before->out[o]->id];
      if (kept) continue;
      w->dropped[before->index] = true;
      list[(*count)++] = before->index;
    }
    for (size_t v = at->index + 1; v < w->g->forward_count && w->g->node[v]->descriptor->view; v++)
      if (!w->dropped[v] && is_dropped(w, w->g->node[v]->in[0])) {
        w->dropped[v] = true;
        list[(*count)++] = (uint32_t)v;
      }
  }
  return work;
}

static void take_back(estimate *e, const uint32_t *list, size_t from, size_t to)
{
  for (size_t i = from; i < to; i++) e->w.dropped[list[i]] = false;
}

/* Bytes of a node's results that wait at a time between the passes, for the backward one. */
static uint64_t waiting_bytes(const estimate *e, const brim_node *n, int32_t when)
{
  const walk *w = &e->w;
  uint64_t bytes = 0;
  for (uint32_t k = 0; k < n->out_count; k++) {
    const brim_tensor *t = root_of(w, n->out[k]);
    if (t != n->out[k] || w->first[t->id] < 0) continue;
    if (w->forward_last[t->id] < when && when < w->last[t->id] && w->first[t->id] < when) bytes += t->bytes;
  }
  return bytes;
}

/* The node whose results free most at the peak for their work; NULL: none. */
static const brim_node *find_best(estimate *e, const bool *refused, int32_t when, uint32_t *list)
{
  const brim_node *best = NULL;
  double most = 0;
  for (size_t i = 0; i < e->w.g->forward_count; i++) {
    const brim_node *n = e->w.g->node[i];
    if (e->w.dropped[i] || refused[i] || !may_run_again(n)) continue;
    const uint64_t bytes = waiting_bytes(e, n, when);
    if (bytes == 0) continue;
    size_t count = 0;
    const uint64_t work = drop(e, n, list, &count);
    take_back(e, list, 0, count);
    const double worth = (double)bytes / (double)(work + 1);
    if (worth <= most) continue;
    most = worth;
    best = n;
  }
  return best;
}

/* Later levels drop more. So many that a plan can be tried for each: several drops in one, if there are more. */
static void number_levels(brim_recompute *out, uint32_t count)
{
  out->levels = count < BRIM_RECOMPUTE_LEVELS_MAX ? count : BRIM_RECOMPUTE_LEVELS_MAX;
  for (size_t i = 0; i < out->nodes; i++)
    if (out->level[i] != UINT32_MAX)
      out->level[i] = (uint32_t)(((uint64_t)out->level[i] * out->levels + count - 1) / count);
}

static void choose_auto(estimate *e, brim_recompute *out, brim_arena *arena)
{
  uint32_t *list = BRIM_ARENA_NEW(arena, uint32_t, e->w.g->forward_count);
  bool *refused = BRIM_ARENA_NEW(arena, bool, e->w.g->forward_count);
  uint32_t level = 0;
  int32_t when = 0;
  uint64_t peak = run_estimate(e, &when);
  for (const brim_node *n; (n = find_best(e, refused, when, list));) {
    size_t count = 0;
    int32_t then = 0;
    drop(e, n, list, &count);
    const uint64_t lower = run_estimate(e, &then);
    if (lower > peak) {
      take_back(e, list, 0, count);
      refused[n->index] = true;
      run_estimate(e, &when);
      continue;
    }
    level++;
    for (size_t i = 0; i < count; i++) out->level[list[i]] = level;
    peak = lower;
    when = then;
  }
  number_levels(out, level);
}

/* ---- blocks ---- */

/* Does one activation alone go on from this node to those behind it? */
static bool *find_ends(const walk *w, brim_arena *arena)
{
  const brim_graph *g = w->g;
  int32_t *last = BRIM_ARENA_NEW(arena, int32_t, w->tensors);
  bool *end = BRIM_ARENA_NEW(arena, bool, g->forward_count);
  for (size_t i = 0; i < g->forward_count; i++)
    for (uint32_t k = 0; k < g->node[i]->in_count; k++) last[root_of(w, g->node[i]->in[k])->id] = (int32_t)i;
  int32_t *change = BRIM_ARENA_NEW(arena, int32_t, g->forward_count + 1);
  for (size_t i = 0; i < g->forward_count; i++)
    for (uint32_t k = 0; k < g->node[i]->out_count; k++) {
      const brim_tensor *t = g->node[i]->out[k];
      if (t->role != BRIM_ROLE_ACTIVATION || root_of(w, t) != t || last[t->id] <= (int32_t)i) continue;
      change[i]++;
      change[last[t->id]]--;
    }
  int32_t going = 0;
  for (size_t i = 0; i < g->forward_count; i++) end[i] = (going += change[i]) == 1;
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

static void choose_blocks(estimate *e, brim_recompute *out, bool full, brim_arena *arena)
{
  const brim_graph *g = e->w.g;
  bool *end = find_ends(&e->w, arena);
  if (full) {
    join_ends(end, 0, g->forward_count);
  } else {
    for (size_t i = 0; i < g->forward_count;) { /* runs of blocks of one node */
      size_t to = i;
      while (to < g->forward_count && end[to]) to++;
      if (to > i) join_ends(end, i, to);
      i = to + 1;
    }
  }
  size_t last = g->forward_count; /* what comes behind the last end is needed at once */
  while (last > 0 && !end[last - 1]) last--;
  for (size_t i = 0; i < last; i++)
    if (!end[i] && may_run_again(g->node[i])) out->level[i] = 1;
  out->levels = 1;
}

void brim_recompute_choose(const brim_graph *g, enum brim_recompute_kind kind, brim_arena *arena, brim_recompute *out)
{
  *out = (brim_recompute){.level = BRIM_ARENA_NEW(arena, uint32_t, g->forward_count), .nodes = g->forward_count};
  memset(out->level, 0xff, g->forward_count * sizeof *out->level);
  if (kind == BRIM_RECOMPUTE_NONE) return;
  brim_arena scratch = {0};
  estimate e = make_estimate(g, &scratch);
  if (kind == BRIM_RECOMPUTE_AUTO)
    choose_auto(&e, out, &scratch);
  else
    choose_blocks(&e, out, kind == BRIM_RECOMPUTE_FULL, &scratch);
  brim_arena_release(&scratch);
}

/* ---- rewriting ---- */

static void append_clone(walk *w, const brim_node *n)
{
  brim_graph *g = w->into;
  brim_node *copy = brim_arena_copy(&g->arena, n, sizeof *n);
  copy->in = BRIM_ARENA_NEW(&g->arena, brim_tensor *, n->in_count);
  copy->out = BRIM_ARENA_NEW(&g->arena, brim_tensor *, n->out_count);
  for (uint32_t k = 0; k < n->in_count; k++) copy->in[k] = is_dropped(w, n->in[k]) ? w->clone[n->in[k]->id] : n->in[k];
  for (uint32_t k = 0; k < n->out_count; k++) {
    const brim_tensor *t = n->out[k];
    copy->out[k] = w->clone[t->id] = brim_graph_tensor(g, t->role, t->dtype, &t->shape, t->name);
    if (!copy->out[k]) return; /* the graph has the error */
  }
  const brim_cost cost = brim_op_cost(n);
  g->recomputed_flops += n->descriptor->view ? 0 : cost.flops;
  g->recomputed_count++;
  brim_graph_append(g, copy);
}

static void visit_rewriting(walk *w, const brim_node *n, bool clone)
{
  if (w->into->status != BRIM_OK) return;
  if (clone) {
    append_clone(w, n);
    return;
  }
  brim_node *same = (brim_node *)n;
  for (uint32_t k = 0; k < n->in_count; k++)
    if (is_dropped(w, n->in[k])) same->in[k] = w->clone[n->in[k]->id];
  brim_graph_append(w->into, same);
}

brim_status brim_recompute_apply(brim_graph *g, const brim_recompute *r, uint32_t level)
{
  brim_arena scratch = {0};
  const brim_graph before = *g;
  walk w = make_walk(&before, &scratch);
  brim_node **node = BRIM_ARENA_NEW(&scratch, brim_node *, g->node_count);
  memcpy(node, g->node, g->node_count * sizeof *node);
  ((brim_graph *)w.g)->node = node; /* the graph's own array is written anew */
  for (size_t i = 0; i < g->forward_count; i++) w.dropped[i] = r->level[i] <= level;
  for (size_t i = g->forward_count; i < g->node_count; i++)
    for (uint32_t k = 0; k < node[i]->out_count; k++)
      if (node[i]->out[k]->producer >= (int32_t)g->forward_count) node[i]->out[k]->producer = -1;
  w.visit = visit_rewriting;
  w.into = g;
  w.clone = BRIM_ARENA_NEW(&scratch, brim_tensor *, w.tensors);
  g->node_count = g->forward_count;
  walk_backward(&w);
  brim_arena_release(&scratch);
  return g->status;
}
