/* `blocks` keeps the tensors between blocks: a block ends where only a single node's results are read later (the
 * articulation points of the graph). In a run of n blocks of one node each, as in a chain of layers, sqrt(n)
 * consecutive blocks are joined to one (Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016). `full` joins
 * blocks of every kind; it joins the number of blocks that gives the plan with the least memory. recompute_auto.c
 * explains `auto`. */
#include "graph/recompute.h"

#include <pthread.h>
#include <string.h>

#include "graph/recompute_auto.h"

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

void brim_recompute_print(const brim_program *train, enum brim_recompute_kind kind, brim_text *out)
{
  if (kind == BRIM_RECOMPUTE_NONE) return;
  const size_t count = train->graph->recomputed_count;
  brim_text_printf(out, "recompute=%s: ", brim_recompute_name(kind));
  if (count == 0) {
    brim_text_add(out, "nothing is recomputed");
    return;
  }
  const double percent = 100 * brim_recompute_share(train);
  brim_text_printf(out, "%zu operation%s recomputed, ", count, brim_plural((int64_t)count));
  if (percent < 0.05) brim_text_add(out, "less than 0.1 % more work in a step");
  if (percent >= 0.05) brim_text_printf(out, "%.1f %% more work in a step", percent);
}

/* ---- blocks ---- */

/* Finds, by node, whether later nodes read no earlier results than this node's. */
static bool *find_ends(const brim_walk *w, brim_arena *arena)
{
  const brim_graph *g = w->g;
  int32_t *last = BRIM_ARENA_NEW(arena, int32_t, g->forward_count); /* the last node that reads a node's results */
  bool *end = BRIM_ARENA_NEW(arena, bool, g->forward_count);
  for (size_t i = 0; i < g->forward_count; i++)
    for (uint32_t k = 0; k < g->node[i]->in_count; k++) {
      const int32_t maker = w->maker[brim_walk_root(w->whole, g->node[i]->in[k])->id];
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

/* Finds the ends of blocks that the model marks. False if it marks none. */
static bool find_marked(const brim_walk *w, bool *end)
{
  const brim_graph *g = w->g;
  bool any = false;
  for (size_t i = 0; i < g->block_end_count; i++) {
    const int32_t maker = w->maker[brim_walk_root(w->whole, g->block_end[i])->id];
    if (maker < 0) continue;
    if (!any) memset(end, 0, g->forward_count * sizeof *end);
    any = end[maker] = true;
  }
  return any;
}

static size_t count_ends(const bool *end, size_t from, size_t to)
{
  size_t count = 0;
  for (size_t i = from; i < to; i++) count += end[i];
  return count;
}

/* Keeps every `join`-th end of a sequence. */
static void join_ends(bool *end, size_t from, size_t to, size_t join)
{
  size_t seen = 0;
  for (size_t i = from; i < to; i++)
    if (end[i] && ++seen % join != 0) end[i] = false;
}

/* Joins runs of blocks of one node, as in a chain of layers, into groups of about the square root of their number. */
static void join_runs(bool *end, size_t nodes)
{
  for (size_t i = 0; i < nodes; i++) {
    size_t to = i, join = 1;
    while (to < nodes && end[to]) to++;
    while ((join + 1) * (join + 1) <= to - i) join++;
    if (to > i) join_ends(end, i, to, join);
    i = to;
  }
}

/* Drops all results except those of the ends, and those after the last end, which the backward pass needs at once. */
static void drop_blocks(const brim_graph *g, const bool *end, bool *dropped)
{
  size_t last = g->forward_count;
  while (last > 0 && !end[last - 1]) last--;
  for (size_t i = 0; i < g->forward_count; i++) dropped[i] = i < last && !end[i] && brim_walk_repeats(g, g->node[i]);
}

bool brim_recompute_join(brim_estimate *e, const bool *end, size_t join, bool *joined)
{
  const size_t nodes = e->w.g->forward_count;
  if (join > 1 && join * join > 4 * count_ends(end, 0, nodes)) return false;
  memcpy(joined, end, nodes * sizeof *joined);
  join_ends(joined, 0, nodes, join);
  drop_blocks(e->w.g, joined, e->w.dropped);
  return true;
}

/* Joins as many blocks as give the least memory: about the square root of their number if all are alike and their
 * results are as large as their inner tensors; fewer if their results are small. */
static void drop_joined(const brim_program *p, const bool *end, brim_arena *arena, bool *dropped)
{
  brim_estimate e;
  brim_estimate_init(&e, p, arena);
  const size_t nodes = e.w.g->forward_count;
  bool *joined = BRIM_ARENA_NEW(arena, bool, nodes);
  uint64_t least = UINT64_MAX;
  for (size_t join = 1; brim_recompute_join(&e, end, join, joined); join++) {
    const uint64_t bytes = brim_estimate_run(&e);
    if (bytes >= least) continue;
    least = bytes;
    memcpy(dropped, e.w.dropped, nodes * sizeof *dropped);
  }
}

void brim_recompute_choose(const brim_program *p, enum brim_recompute_kind kind, brim_arena *arena, brim_recompute *out)
{
  brim_arena scratch = {0};
  brim_walk w;
  brim_walk_init(&w, p->graph, &scratch);
  const size_t nodes = w.g->forward_count;
  *out = (brim_recompute){.dropped = {BRIM_ARENA_NEW(arena, bool, nodes)}};
  bool *end = find_ends(&w, &scratch);
  bool *block_end = brim_arena_copy(&scratch, end, nodes * sizeof *end);
  const bool marked = find_marked(&w, block_end);
  if (kind == BRIM_RECOMPUTE_AUTO) {
    brim_recompute_search(p, end, block_end, arena, out);
  } else if (kind != BRIM_RECOMPUTE_NONE) {
    bool *dropped = BRIM_ARENA_NEW(arena, bool, nodes);
    if (kind == BRIM_RECOMPUTE_BLOCKS && !marked) join_runs(block_end, nodes);
    if (kind == BRIM_RECOMPUTE_BLOCKS)
      drop_blocks(w.g, block_end, dropped);
    else
      drop_joined(p, block_end, &scratch, dropped);
    out->levels = 1;
    out->dropped[1] = dropped;
  }
  brim_arena_release(&scratch);
}

/* ---- the cache of choices ---- */

typedef struct brim_recompute_entry {
  brim_arena arena; /* contains the entry */
  enum brim_recompute_kind kind;
  uint64_t key;
  brim_recompute found;
  struct brim_recompute_entry *next;
} brim_recompute_entry;

/* Hashes the sizes in memory of a program's tensors, on which the choice depends for a given model and options. */
static uint64_t key_of(const brim_program *p)
{
  const brim_graph *g = p->graph;
  uint64_t key = brim_hash(BRIM_HASH_START, &p->info.batch, sizeof p->info.batch);
  for (size_t i = 0; i < g->tensor_count; i++) key = brim_hash(key, &g->tensor[i]->bytes, sizeof g->tensor[i]->bytes);
  for (size_t i = 0; i < g->node_count; i++) {
    key = brim_hash(key, &p->need[i].workspace_bytes, sizeof p->need[i].workspace_bytes);
    key = brim_hash(key, &p->need[i].no_inplace, sizeof p->need[i].no_inplace);
  }
  return key;
}

static pthread_mutex_t caches = PTHREAD_MUTEX_INITIALIZER;

static const brim_recompute_entry *find_entry(const brim_recompute_cache *cache, enum brim_recompute_kind kind,
                                              uint64_t key)
{
  pthread_mutex_lock(&caches);
  const brim_recompute_entry *e = cache->first;
  while (e && (e->kind != kind || e->key != key)) e = e->next;
  pthread_mutex_unlock(&caches);
  return e;
}

const brim_recompute *brim_recompute_levels(brim_recompute_cache *cache, const brim_program *p,
                                            enum brim_recompute_kind kind)
{
  const uint64_t key = key_of(p);
  const brim_recompute_entry *known = find_entry(cache, kind, key);
  if (known) return &known->found;
  brim_arena arena = {0};
  brim_recompute_entry *e = BRIM_ARENA_NEW(&arena, brim_recompute_entry, 1);
  brim_recompute_choose(p, kind, &arena, &e->found);
  e->kind = kind;
  e->key = key;
  e->arena = arena;
  pthread_mutex_lock(&caches);
  e->next = cache->first;
  cache->first = e;
  pthread_mutex_unlock(&caches);
  return &e->found;
}

void brim_recompute_cache_release(brim_recompute_cache *cache)
{
  while (cache->first) {
    brim_arena arena = cache->first->arena;
    cache->first = cache->first->next;
    brim_arena_release(&arena);
  }
}

/* ---- rewriting ---- */

typedef struct rewriting {
  brim_walk w; /* must be first: visit() gets a pointer to it */
  brim_graph *into;
  brim_tensor **clone; /* by tensor */
} rewriting;

/* If both halves of a node are recomputed together, the node itself runs again. */
static void append_clone(rewriting *r, const brim_node *n)
{
  brim_graph *g = r->into;
  if (r->w.together && brim_walk_is_second(&r->w, n->index)) return;
  if (r->w.together) n = r->w.whole->node[r->w.of[n->index]];
  brim_node *copy = brim_arena_copy(&g->arena, n, sizeof *n);
  copy->in = BRIM_ARENA_NEW(&g->arena, brim_tensor *, n->in_count);
  copy->out = BRIM_ARENA_NEW(&g->arena, brim_tensor *, n->out_count);
  for (uint32_t k = 0; k < n->in_count; k++)
    copy->in[k] = brim_walk_drops(&r->w, n->in[k]->id) ? r->clone[n->in[k]->id] : n->in[k];
  for (uint32_t k = 0; k < n->out_count; k++) {
    const brim_tensor *t = n->out[k];
    copy->out[k] = brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, t->dtype, &t->shape, t->name);
    if (!copy->out[k]) return; /* the graph has the error */
    if (t->role == BRIM_ROLE_ACTIVATION) r->clone[t->id] = copy->out[k];
  }
  if (!n->descriptor->traits.view) { /* views cost no work */
    g->recomputed_flops += brim_op_cost(n).flops;
    g->recomputed_count++;
  }
  brim_graph_append(g, copy);
}

/* The node itself, or a copy that reads clones' results. */
static brim_node *with_clones(rewriting *r, brim_node *n)
{
  brim_node *copy = NULL;
  for (uint32_t k = 0; k < n->in_count; k++) {
    if (!brim_walk_drops(&r->w, n->in[k]->id)) continue;
    if (!copy) {
      copy = brim_arena_copy(&r->into->arena, n, sizeof *n);
      copy->in = brim_arena_copy(&r->into->arena, n->in, n->in_count * sizeof(brim_tensor *));
    }
    copy->in[k] = r->clone[n->in[k]->id];
  }
  return copy ? copy : n;
}

static void visit_rewriting(brim_walk *w, uint32_t node, bool clone)
{
  rewriting *r = (rewriting *)w;
  const brim_node *n = w->g->node[node];
  if (r->into->status != BRIM_OK) return;
  if (clone) {
    append_clone(r, n);
    return;
  }
  brim_graph_append(r->into, with_clones(r, w->whole->node[w->of[node]]));
}

/* Makes the graph as it was before it had clones and before a backend prepared its nodes. The first call keeps its
 * nodes. */
static void make_plain(brim_graph *g)
{
  if (!g->plain) {
    g->plain = brim_arena_copy(&g->arena, g->node, g->node_count * sizeof(brim_node *));
    g->plain_nodes = g->node_count;
    g->plain_tensors = g->tensor_count;
  }
  brim_graph_cut_backward(g);
  g->tensor_count = g->plain_tensors;
  g->recomputed_count = g->recomputed_flops = 0;
  for (size_t i = 0; i < g->tensor_count; i++) {
    brim_tensor *t = g->tensor[i];
    t->channel_block = 1;
    t->bytes = (uint64_t)brim_shape_count(&t->shape) * brim_dtype_bytes(t->dtype);
  }
}

brim_status brim_recompute_apply(brim_graph *g, const brim_recompute *r, uint32_t level)
{
  brim_arena scratch = {0};
  make_plain(g);
  brim_graph before = *g;
  before.node = g->plain;
  before.node_count = g->plain_nodes;
  rewriting to = {.into = g};
  brim_walk_init(&to.w, &before, &scratch);
  to.w.visit = visit_rewriting;
  to.clone = BRIM_ARENA_NEW(&scratch, brim_tensor *, to.w.tensors);
  memcpy(to.w.dropped, r->dropped[level], to.w.g->forward_count * sizeof *to.w.dropped);
  brim_walk_backward(&to.w);
  brim_arena_release(&scratch);
  return g->status;
}
