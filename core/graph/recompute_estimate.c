/* See recompute_estimate.h. If a set differs from the previous one in some nodes, these change:
 *   1. the nodes of the backward pass before which clones run, which depend on the first reader of the clones' results;
 *   2. the order of the clones before these nodes;
 *   3. the lifetimes of the tensors that these clones, or readers of the nodes' results, use.
 * Events are the forward steps, the nodes of the backward pass, and the clones; each has the bytes whose lives begin
 * and end there. Each chunk of events stores its net bytes and its peak, and only changed chunks are summed again. */
#include "graph/recompute_estimate.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NODE_BITS 22
#define INPUT_BITS 20
#define NODE_MASK (((uint64_t)1 << NODE_BITS) - 1)
#define BACKWARD_SHIFT (NODE_BITS + INPUT_BITS)
#define NOWHERE UINT32_MAX
#define CHUNK 32 /* events in a chunk: forward steps, or nodes of the backward pass with their clones */
#define FEW 48   /* up to this many numbers are sorted without visiting all nodes between them */

/* A use of a tensor's memory: a node reads or writes the tensor or a view of it. */
typedef struct use {
  uint32_t node, tensor;
  bool writes;
} use;

/* The events between which a tensor's memory lives; first NOWHERE: the memory is not used. */
typedef struct events {
  uint32_t first, last;
} events;

/* Consecutive clones that now run before another node of the backward pass. */
typedef struct move {
  uint32_t from, to;
  brim_moment batch; /* the moment of a clone, without its node */
} move;

typedef struct chunk {
  int64_t net, peak;
  brim_moment when;
  bool changed;
} chunk;

/* Numbers by node, in one array. */
typedef struct lists {
  uint32_t *begin; /* where each node's numbers begin, and one more for the end */
  uint32_t *item;
} lists;

struct brim_alive {
  /* Facts of the graph. */
  size_t nodes, forward;
  lists reader;            /* by forward node: forward nodes that read its results */
  uint32_t *need;          /* by forward node: the first node of the backward pass that reads its results */
  uint32_t *use_begin;     /* by tensor that owns memory */
  use *use;                /* the uses by nodes of the forward pass, then by those of the backward pass */
  brim_life *forward_life; /* by tensor: its life in the forward pass, in steps */
  int64_t *here;           /* by node: bytes of workspace, minus those of results that may be in place */
  int64_t *both;           /* by node: like `here`, for a half of a node that runs together with the other half */
  /* Facts of the present set of dropped nodes. */
  bool *was;              /* by forward node: dropped */
  uint32_t *before;       /* by forward node: the node of the backward pass before which its clone runs; or NOWHERE */
  brim_moment *at;        /* by forward node: its clone's moment */
  bool *paired;           /* by forward node: whether its clone runs together with the other half of a node */
  int32_t *head, *next;   /* the clones before a node of the backward pass, as lists in order; -1: the end */
  events *life;           /* by tensor: the first lives, then the second lives */
  int64_t *begins, *ends; /* by event: bytes */
  int64_t *work;          /* by event: a node's memory besides its tensors */
  chunk *chunk;
  size_t chunk_count, forward_chunks;
  /* For changes. */
  uint64_t *todo; /* bits by forward node */
  size_t words;
  uint32_t *listed, stamp;      /* by forward node: the last stamp when it was listed */
  uint32_t *list, list_count;   /* nodes of the backward pass whose clones have changed */
  uint32_t *moved, moved_count; /* forward nodes with another moment */
  move *move;
  uint32_t move_count;
  uint32_t *tensor, tensor_count;
  bool *is_listed, *is_moved, *is_marked; /* by node, forward node, tensor */
};

/* ---- moments and events ---- */

static brim_moment moment_of_node(uint32_t node)
{
  return (uint64_t)node << BACKWARD_SHIFT | (((uint64_t)1 << BACKWARD_SHIFT) - 1);
}

static brim_moment moment_of_clone(uint32_t before, uint32_t input, uint32_t node)
{
  return (uint64_t)before << BACKWARD_SHIFT | (uint64_t)input << NODE_BITS | node;
}

/* Forward steps and nodes of the backward pass have their indices; clones follow. */
static uint32_t event_of(const struct brim_alive *a, brim_moment m)
{
  const uint64_t before = m >> BACKWARD_SHIFT, node = m & NODE_MASK;
  return (uint32_t)(before == 0 ? m : node == NODE_MASK ? before : a->nodes + node);
}

static brim_moment moment_of(const struct brim_alive *a, uint32_t event)
{
  if (event < a->forward) return event;
  return event < a->nodes ? moment_of_node(event) : a->at[event - a->nodes];
}

/* Returns an event's chunk; NULL for a clone that does not run. */
static chunk *chunk_of(const struct brim_alive *a, uint32_t event)
{
  if (event < a->forward) return &a->chunk[event / CHUNK];
  const uint32_t node = event < a->nodes ? event : a->before[event - a->nodes];
  return node == NOWHERE ? NULL : &a->chunk[a->forward_chunks + (node - a->forward) / CHUNK];
}

static void change_chunk(const struct brim_alive *a, uint32_t event)
{
  chunk *c = chunk_of(a, event);
  if (c) c->changed = true;
}

/* Whether a clone is the first or the second half of a node whose halves run together. */
static bool is_first(const brim_estimate *e, uint32_t node)
{
  return node + 1 < e->alive->forward && brim_walk_is_second(&e->w, node + 1) &&
         e->alive->at[node + 1] == e->alive->at[node] + 1;
}
static bool is_second(const brim_estimate *e, uint32_t node)
{
  return brim_walk_is_second(&e->w, node) && e->alive->at[node] == e->alive->at[node - 1] + 1;
}

/* ---- lifetimes ---- */

static void add_bytes(struct brim_alive *a, const events *life, int64_t bytes)
{
  if (life->first == NOWHERE) return;
  a->begins[life->first] += bytes;
  a->ends[life->last] += bytes;
  change_chunk(a, life->first);
  change_chunk(a, life->last);
}

static void set_life(struct brim_alive *a, events *life, int64_t bytes, brim_life found)
{
  events now = {NOWHERE, NOWHERE};
  if (found.first != BRIM_MOMENT_NEVER) now = (events){event_of(a, found.first), event_of(a, found.last)};
  if (life->first == now.first && life->last == now.last) return;
  add_bytes(a, life, -bytes);
  add_bytes(a, &now, bytes);
  *life = now;
}

static void touch(brim_life *life, brim_moment first, brim_moment last)
{
  if (life->first == BRIM_MOMENT_NEVER) life->last = last;
  if (first < life->first) life->first = first;
  if (last > life->last) life->last = last;
}

/* If one kernel computes two halves, they count as two steps, in which everything of both is alive. */
static void touch_use(const brim_estimate *e, const use *u, brim_life *life)
{
  const struct brim_alive *a = e->alive;
  if (u->node >= a->forward) {
    touch(life, moment_of_node(u->node), moment_of_node(u->node));
    return;
  }
  const brim_moment m = a->at[u->node];
  touch(life, m - (u->writes && is_second(e, u->node)), m + (!u->writes && is_first(e, u->node)));
}

/* Finds both lives of a tensor's memory. Clones, and nodes that read clones' results, belong to the second. */
static void find_lives(brim_estimate *e, uint32_t root)
{
  struct brim_alive *a = e->alive;
  const brim_walk *w = &e->w;
  const bool dropped = brim_walk_drops(w, root);
  brim_life kept = a->forward_life[root], again = {BRIM_MOMENT_NEVER, 0};
  for (const use *u = &a->use[a->use_begin[root]]; u < &a->use[a->use_begin[root + 1]]; u++) {
    if (u->node < a->forward && a->at[u->node] == BRIM_MOMENT_NEVER) continue;
    const bool reads_again = u->writes ? u->node < a->forward : brim_walk_drops(w, u->tensor);
    touch_use(e, u, dropped && reads_again ? &again : &kept);
  }
  set_life(a, &a->life[root], e->bytes[root], kept);
  set_life(a, &a->life[root + w->g->tensor_count], e->bytes[root], again);
}

/* ---- changes ---- */

static void note(uint32_t *list, uint32_t *count, bool *is_noted, uint32_t item)
{
  if (is_noted[item]) return;
  is_noted[item] = true;
  list[(*count)++] = item;
}

/* Returns the node of the backward pass before which a node's clone runs. */
static uint32_t find_before(const brim_estimate *e, uint32_t node)
{
  const struct brim_alive *a = e->alive;
  if (!e->w.dropped[node]) return NOWHERE;
  uint32_t before = a->need[node];
  for (uint32_t i = a->reader.begin[node]; i < a->reader.begin[node + 1]; i++)
    if (a->before[a->reader.item[i]] < before) before = a->before[a->reader.item[i]];
  return before;
}

static void note_makers(brim_estimate *e, uint32_t node)
{
  for (uint32_t k = e->w.in.begin[node]; k < e->w.in.begin[node + 1]; k++) {
    const int32_t maker = e->w.maker[e->w.in.id[k]];
    if (maker >= 0 && e->w.dropped[maker]) e->alive->todo[maker / 64] |= (uint64_t)1 << maker % 64;
  }
}

static void move_clone(brim_estimate *e, uint32_t node, uint32_t before)
{
  struct brim_alive *a = e->alive;
  if (a->before[node] != NOWHERE) note(a->list, &a->list_count, a->is_listed, a->before[node]);
  if (before != NOWHERE) note(a->list, &a->list_count, a->is_listed, before);
  a->before[node] = before;
  e->w.made[node] = before != NOWHERE;
  note_makers(e, node);
  if (before != NOWHERE) return; /* list_clones finds its moment */
  a->at[node] = BRIM_MOMENT_NEVER;
  note(a->moved, &a->moved_count, a->is_moved, node);
}

/* Goes from the last node to the first, because readers come after the nodes that they read. */
static void move_clones(brim_estimate *e)
{
  struct brim_alive *a = e->alive;
  for (size_t word = a->words; word-- > 0;)
    while (a->todo[word]) {
      const int bit = 63 - __builtin_clzll(a->todo[word]);
      const uint32_t node = (uint32_t)(word * 64) + (uint32_t)bit;
      a->todo[word] &= ~((uint64_t)1 << bit);
      const uint32_t before = find_before(e, node);
      if (before != a->before[node]) move_clone(e, node, before);
    }
}

/* Sorts the nodes that were listed with the present stamp. */
static void sort_listed(const brim_estimate *e, size_t count)
{
  const struct brim_alive *a = e->alive;
  uint32_t *node = e->w.stack, first = UINT32_MAX, last = 0;
  if (count <= FEW) {
    for (size_t i = 1; i < count; i++) {
      const uint32_t moved = node[i];
      size_t to = i;
      for (; to > 0 && node[to - 1] > moved; to--) node[to] = node[to - 1];
      node[to] = moved;
    }
    return;
  }
  for (size_t i = 0; i < count; i++) {
    if (node[i] < first) first = node[i];
    if (node[i] > last) last = node[i];
  }
  size_t at = 0;
  for (uint32_t i = first; i <= last; i++)
    if (a->listed[i] == a->stamp) node[at++] = i;
}

/* Pushes a tensor's maker onto the stack if its clone runs before this node, and is not listed yet. */
static void ask_for(brim_estimate *e, uint32_t before, uint32_t tensor, uint32_t start, size_t *count)
{
  struct brim_alive *a = e->alive;
  const int32_t maker = e->w.maker[tensor];
  if (maker < 0 || a->before[maker] != before || a->listed[maker] > start) return;
  a->listed[maker] = a->stamp;
  e->w.stack[(*count)++] = (uint32_t)maker;
}

/* Whether a clone runs together with the clone before or after it in its batch. */
static bool is_paired(const brim_estimate *e, const uint32_t *batch, size_t index, size_t count)
{
  const uint32_t node = batch[index];
  return brim_walk_is_second(&e->w, node)
             ? index > 0 && batch[index - 1] == node - 1
             : index + 1 < count && batch[index + 1] == node + 1 && brim_walk_is_second(&e->w, node + 1);
}

/* If a run of layers is recomputed before another node than before, its clones keep their order. For a large batch,
 * returns the batch from which most of the moved clones may come, for a `move`; otherwise `now`. */
static brim_moment find_origin(const struct brim_alive *a, const uint32_t *batch, size_t count, brim_moment now)
{
  for (size_t i = 0; i < count && count > FEW; i++) {
    const brim_moment was = a->at[batch[i]];
    if (was == BRIM_MOMENT_NEVER || was == (now | batch[i])) continue;
    const int64_t from = (int64_t)(was >> BACKWARD_SHIFT), to = (int64_t)(now >> BACKWARD_SHIFT);
    return (size_t)llabs(to - from) < count ? was & ~NODE_MASK : now;
  }
  return now;
}

/* Appends a batch to the list that ends with `link`; returns the new end. */
static int32_t *add_batch(brim_estimate *e, int32_t *link, const uint32_t *batch, size_t count, brim_moment now)
{
  struct brim_alive *a = e->alive;
  const brim_moment origin = find_origin(a, batch, count, now);
  for (size_t i = 0; i < count; i++) {
    const uint32_t node = batch[i];
    const bool follows = a->at[node] == (now | node) || a->at[node] == (origin | node);
    if (!follows || is_paired(e, batch, i, count) != a->paired[node])
      note(a->moved, &a->moved_count, a->is_moved, node);
    a->at[node] = now | node;
    *link = (int32_t)node;
    link = &a->next[node];
  }
  if (origin != now)
    a->move[a->move_count++] = (move){(uint32_t)(origin >> BACKWARD_SHIFT), (uint32_t)(now >> BACKWARD_SHIFT), now};
  return link;
}

/* Lists the clones before a node of the backward pass, as brim_walk_backward visits them. */
static void list_clones(brim_estimate *e, uint32_t node)
{
  struct brim_alive *a = e->alive;
  const brim_walk_ids *in = &e->w.in;
  const uint32_t start = a->stamp, *stack = e->w.stack;
  int32_t *link = &a->head[node - a->forward];
  for (uint32_t k = in->begin[node]; k < in->begin[node + 1]; k++) {
    size_t count = 0;
    a->stamp++;
    ask_for(e, node, in->id[k], start, &count);
    for (size_t done = 0; done < count; done++)
      for (uint32_t n = in->begin[stack[done]]; n < in->begin[stack[done] + 1]; n++)
        ask_for(e, node, in->id[n], start, &count);
    sort_listed(e, count);
    link = add_batch(e, link, stack, count, moment_of_clone(node, k - in->begin[node], 0));
  }
  *link = -1;
  change_chunk(a, node);
}

static void mark_tensor(brim_estimate *e, uint32_t tensor)
{
  const uint32_t root = e->root[tensor];
  if (e->bytes[root] != 0) note(e->alive->tensor, &e->alive->tensor_count, e->alive->is_marked, root);
}

static void mark_outputs(brim_estimate *e, uint32_t node)
{
  for (uint32_t k = e->w.out.begin[node]; k < e->w.out.begin[node + 1]; k++) mark_tensor(e, e->w.out.id[k]);
}

static void mark_all(brim_estimate *e, uint32_t node)
{
  for (uint32_t k = e->w.in.begin[node]; k < e->w.in.begin[node + 1]; k++) mark_tensor(e, e->w.in.id[k]);
  mark_outputs(e, node);
}

/* Called for a clone that has moved, or that runs together with one that has. */
static void change_clone(brim_estimate *e, uint32_t node)
{
  struct brim_alive *a = e->alive;
  mark_all(e, node);
  a->paired[node] = is_first(e, node) || is_second(e, node);
  a->work[a->nodes + node] = a->paired[node] ? a->both[node] : a->here[node];
  change_chunk(a, (uint32_t)a->nodes + node);
}

/* If a moved batch and the clones that it passes share tensors, the lives of these tensors may change. */
static void pass_by(brim_estimate *e, const move *m)
{
  const struct brim_alive *a = e->alive;
  const uint32_t first = m->from < m->to ? m->from : m->to, last = m->from < m->to ? m->to : m->from;
  for (uint32_t node = first; node <= last; node++) {
    mark_all(e, node);
    for (int32_t k = a->head[node - a->forward]; k >= 0; k = a->next[k])
      if ((a->at[k] & ~NODE_MASK) != m->batch) mark_all(e, (uint32_t)k);
  }
}

static void change_clones(brim_estimate *e)
{
  struct brim_alive *a = e->alive;
  for (uint32_t i = 0; i < a->moved_count; i++) {
    const uint32_t node = a->moved[i];
    change_clone(e, node);
    if (brim_walk_is_second(&e->w, node)) change_clone(e, node - 1);
    if (node + 1 < a->forward && brim_walk_is_second(&e->w, node + 1)) change_clone(e, node + 1);
    a->is_moved[node] = false;
  }
  a->moved_count = 0;
}

static void change_drop(brim_estimate *e, uint32_t node)
{
  struct brim_alive *a = e->alive;
  a->was[node] = e->w.dropped[node];
  a->todo[node / 64] |= (uint64_t)1 << node % 64;
  mark_outputs(e, node);
}

static void follow_changes(brim_estimate *e)
{
  struct brim_alive *a = e->alive;
  for (size_t i = 0; i < a->forward; i += CHUNK) {
    const size_t end = i + CHUNK < a->forward ? i + CHUNK : a->forward;
    if (memcmp(&a->was[i], &e->w.dropped[i], end - i) == 0) continue;
    for (size_t k = i; k < end; k++)
      if (a->was[k] != e->w.dropped[k]) change_drop(e, (uint32_t)k);
  }
  move_clones(e);
  for (uint32_t i = 0; i < a->list_count; i++) {
    list_clones(e, a->list[i]);
    a->is_listed[a->list[i]] = false;
  }
  change_clones(e);
  for (uint32_t i = 0; i < a->move_count; i++) pass_by(e, &a->move[i]);
  for (uint32_t i = 0; i < a->tensor_count; i++) {
    find_lives(e, a->tensor[i]);
    a->is_marked[a->tensor[i]] = false;
  }
  a->list_count = a->tensor_count = a->move_count = 0;
}

/* ---- the peak ---- */

static void pass_event(const struct brim_alive *a, chunk *c, size_t event, brim_moment m)
{
  c->net += a->begins[event];
  const int64_t alive = c->net + a->work[event];
  c->net -= a->ends[event];
  if (alive <= c->peak) return;
  c->peak = alive;
  c->when = m;
}

static void add_up(const struct brim_alive *a, size_t index)
{
  chunk *c = &a->chunk[index];
  *c = (chunk){.peak = INT64_MIN};
  if (index < a->forward_chunks) {
    for (size_t i = index * CHUNK; i < (index + 1) * CHUNK && i < a->forward; i++) pass_event(a, c, i, i);
    return;
  }
  const size_t first = a->forward + (index - a->forward_chunks) * CHUNK;
  for (size_t i = first; i < first + CHUNK && i < a->nodes; i++) {
    for (int32_t k = a->head[i - a->forward]; k >= 0; k = a->next[k]) pass_event(a, c, a->nodes + (size_t)k, a->at[k]);
    pass_event(a, c, i, moment_of_node((uint32_t)i));
  }
}

uint64_t brim_estimate_run(brim_estimate *e)
{
  struct brim_alive *a = e->alive;
  int64_t alive = 0, most = 0;
  follow_changes(e);
  e->when = 0;
  for (size_t i = 0; i < a->chunk_count; i++) {
    if (a->chunk[i].changed) add_up(a, i);
    if (alive + a->chunk[i].peak > most) {
      most = alive + a->chunk[i].peak;
      e->when = a->chunk[i].when;
    }
    alive += a->chunk[i].net;
  }
  return (uint64_t)most;
}

bool brim_estimate_waits(const brim_estimate *e, const brim_tensor *t)
{
  const struct brim_alive *a = e->alive;
  return a->forward_life[t->id].last < e->when && e->when < moment_of(a, a->life[t->id].last);
}

void brim_estimate_list(const brim_estimate *e, int64_t *during, int64_t *before)
{
  const struct brim_alive *a = e->alive;
  int64_t alive = 0;
  for (size_t i = 0; i < a->nodes; i++) {
    before[i] = alive;
    during[i] = (alive += a->begins[i]) + a->work[i];
    alive -= a->ends[i];
  }
}

int64_t brim_estimate_work(const brim_estimate *e, uint32_t node)
{
  return e->alive->here[node];
}

/* ---- preparation ---- */

/* Whether out[k] may take the memory of an input, so that this memory counts only once. */
static bool may_take_over(const brim_node *n, uint32_t k, const brim_kernel_need *need)
{
  const brim_op *op = n->descriptor;
  const uint32_t inputs = k == 0 ? op->inplace : k == 1 ? op->inplace_second : 0;
  if (op->traits.view || inputs == 0 || need->no_inplace) return false;
  if (k == 1 && n->out[0]->bytes == n->out[1]->bytes) return true;
  for (uint32_t i = 0; i < n->in_count && i < 32; i++)
    if (inputs & BRIM_OP_INPLACE(i) && n->in[i]->bytes == n->out[k]->bytes) return true;
  return false;
}

static bool is_transient(const brim_graph *g, const brim_tensor *t)
{
  return t->role == BRIM_ROLE_ACTIVATION || t->role == BRIM_ROLE_WORKSPACE || t == g->input || t == g->label ||
         brim_graph_passes(g, t) || brim_graph_offloaded(g, t) >= 0;
}

/* Returns the node's workspace, minus results that may be in place. */
static int64_t measure_node(const brim_estimate *e, const brim_node *n, const brim_kernel_need *need)
{
  int64_t bytes = (int64_t)need->workspace_bytes;
  for (uint32_t k = 0; k < n->out_count; k++)
    if (may_take_over(n, k, need)) bytes -= e->bytes[n->out[k]->id];
  return bytes;
}

/* The second half alone needs little workspace: all existing second halves are elementwise or nearly so. */
static void measure(brim_estimate *e, const brim_program *p, brim_arena *arena)
{
  static const brim_kernel_need nothing;
  const brim_graph *g = e->w.g;
  struct brim_alive *a = e->alive;
  e->root = BRIM_ARENA_NEW(arena, uint32_t, g->tensor_count);
  e->bytes = BRIM_ARENA_NEW(arena, int64_t, g->tensor_count);
  a->here = BRIM_ARENA_NEW(arena, int64_t, g->node_count);
  a->both = BRIM_ARENA_NEW(arena, int64_t, g->node_count);
  for (size_t i = 0; i < g->tensor_count; i++) {
    e->root[i] = brim_walk_root(e->w.whole, g->tensor[i])->id;
    e->bytes[i] = is_transient(g, g->tensor[i]) ? (int64_t)g->tensor[i]->bytes : 0;
  }
  for (uint32_t i = 0; i < g->node_count; i++) {
    const brim_kernel_need *need = &p->need[e->w.of[i]];
    a->here[i] = measure_node(e, g->node[i], brim_walk_is_second(&e->w, i) ? &nothing : need);
    a->both[i] = measure_node(e, p->graph->node[e->w.of[i]], need);
  }
}

/* Finds the readers of each forward node's results. */
static void find_readers(brim_estimate *e, brim_arena *arena)
{
  struct brim_alive *a = e->alive;
  const brim_walk *w = &e->w;
  a->need = BRIM_ARENA_NEW(arena, uint32_t, a->forward);
  memset(a->need, 0xff, a->forward * sizeof *a->need);
  a->reader.begin = BRIM_ARENA_NEW(arena, uint32_t, a->forward + 2);
  for (uint32_t k = w->in.begin[0]; k < w->in.begin[a->forward]; k++)
    if (w->maker[w->in.id[k]] >= 0) a->reader.begin[w->maker[w->in.id[k]] + 2]++;
  for (size_t i = 0; i < a->forward; i++) a->reader.begin[i + 2] += a->reader.begin[i + 1];
  a->reader.item = BRIM_ARENA_NEW(arena, uint32_t, a->reader.begin[a->forward + 1]);
  for (uint32_t i = 0; i < a->nodes; i++)
    for (uint32_t k = w->in.begin[i]; k < w->in.begin[i + 1]; k++) {
      const int32_t maker = w->maker[w->in.id[k]];
      if (maker < 0) continue;
      if (i < a->forward)
        a->reader.item[a->reader.begin[maker + 1]++] = i;
      else if (i < a->need[maker])
        a->need[maker] = i;
    }
}

static void count_uses(const brim_estimate *e, const brim_walk_ids *ids)
{
  for (uint32_t k = 0; k < ids->begin[e->alive->nodes]; k++) {
    const uint32_t root = e->root[ids->id[k]];
    if (e->bytes[root] != 0) e->alive->use_begin[root + 2]++;
  }
}

static void add_uses(const brim_estimate *e, const brim_walk_ids *ids, uint32_t node, bool writes)
{
  struct brim_alive *a = e->alive;
  for (uint32_t k = ids->begin[node]; k < ids->begin[node + 1]; k++) {
    const uint32_t root = e->root[ids->id[k]];
    if (e->bytes[root] != 0) a->use[a->use_begin[root + 1]++] = (use){node, ids->id[k], writes};
  }
}

/* Lists the uses of each tensor's memory by the nodes. */
static void find_uses(brim_estimate *e, brim_arena *arena)
{
  struct brim_alive *a = e->alive;
  const size_t tensors = e->w.g->tensor_count;
  a->use_begin = BRIM_ARENA_NEW(arena, uint32_t, tensors + 2);
  count_uses(e, &e->w.in);
  count_uses(e, &e->w.out);
  for (size_t i = 0; i < tensors; i++) a->use_begin[i + 2] += a->use_begin[i + 1];
  a->use = BRIM_ARENA_NEW(arena, use, a->use_begin[tensors + 1]);
  for (uint32_t i = 0; i < a->nodes; i++) {
    add_uses(e, &e->w.in, i, false);
    add_uses(e, &e->w.out, i, true);
  }
}

/* Computed once, because the forward pass does not depend on the dropped nodes. */
static void pass_forward(brim_estimate *e)
{
  struct brim_alive *a = e->alive;
  const brim_walk *w = &e->w;
  if (w->g->input) touch(&a->forward_life[e->root[w->g->input->id]], 0, 0);
  if (w->g->label) touch(&a->forward_life[e->root[w->g->label->id]], 0, 0);
  for (uint32_t i = 0; i < a->forward; i++) {
    const bool second = brim_walk_is_second(w, i), first = i + 1 < a->forward && brim_walk_is_second(w, i + 1);
    for (uint32_t k = w->in.begin[i]; k < w->in.begin[i + 1]; k++)
      touch(&a->forward_life[e->root[w->in.id[k]]], i, i + first);
    for (uint32_t k = w->out.begin[i]; k < w->out.begin[i + 1]; k++)
      touch(&a->forward_life[e->root[w->out.id[k]]], i - second, i);
    a->work[i] = first || second ? a->both[i] : a->here[i];
  }
}

static void create_lists(struct brim_alive *a, size_t tensors, brim_arena *arena)
{
  const size_t backward = a->nodes - a->forward, all = a->nodes + a->forward;
  a->was = BRIM_ARENA_NEW(arena, bool, a->forward);
  a->before = BRIM_ARENA_NEW(arena, uint32_t, a->forward);
  a->at = BRIM_ARENA_NEW(arena, brim_moment, a->forward);
  a->head = BRIM_ARENA_NEW(arena, int32_t, backward);
  a->next = BRIM_ARENA_NEW(arena, int32_t, a->forward);
  a->paired = BRIM_ARENA_NEW(arena, bool, a->forward);
  memset(a->before, 0xff, a->forward * sizeof *a->before);
  memset(a->at, 0xff, a->forward * sizeof *a->at);
  memset(a->head, 0xff, backward * sizeof *a->head);
  a->forward_life = BRIM_ARENA_NEW(arena, brim_life, tensors);
  a->life = BRIM_ARENA_NEW(arena, events, 2 * tensors);
  memset(a->life, 0xff, 2 * tensors * sizeof *a->life);
  for (size_t i = 0; i < tensors; i++) a->forward_life[i].first = BRIM_MOMENT_NEVER;
  a->begins = BRIM_ARENA_NEW(arena, int64_t, all);
  a->ends = BRIM_ARENA_NEW(arena, int64_t, all);
  a->work = BRIM_ARENA_NEW(arena, int64_t, all);
  a->forward_chunks = (a->forward + CHUNK - 1) / CHUNK;
  a->chunk_count = a->forward_chunks + (backward + CHUNK - 1) / CHUNK;
  a->chunk = BRIM_ARENA_NEW(arena, chunk, a->chunk_count);
  for (size_t i = 0; i < a->chunk_count; i++) a->chunk[i].changed = true;
  a->words = (a->forward + 63) / 64;
  a->todo = BRIM_ARENA_NEW(arena, uint64_t, a->words);
  a->listed = BRIM_ARENA_NEW(arena, uint32_t, a->forward);
  a->list = BRIM_ARENA_NEW(arena, uint32_t, backward);
  a->is_listed = BRIM_ARENA_NEW(arena, bool, a->nodes);
  a->moved = BRIM_ARENA_NEW(arena, uint32_t, a->forward);
  a->is_moved = BRIM_ARENA_NEW(arena, bool, a->forward);
  a->move = BRIM_ARENA_NEW(arena, move, 2 * a->forward / FEW + 1); /* only batches of more than FEW clones are listed */
  a->tensor = BRIM_ARENA_NEW(arena, uint32_t, tensors);
  a->is_marked = BRIM_ARENA_NEW(arena, bool, tensors);
}

void brim_estimate_init(brim_estimate *e, const brim_program *p, brim_arena *arena)
{
  *e = (brim_estimate){.alive = BRIM_ARENA_NEW(arena, struct brim_alive, 1)};
  brim_walk_init(&e->w, p->graph, arena);
  const brim_graph *g = e->w.g;
  struct brim_alive *a = e->alive;
  a->nodes = g->node_count;
  a->forward = g->forward_count;
  assert(a->nodes < NODE_MASK);
  measure(e, p, arena);
  find_readers(e, arena);
  find_uses(e, arena);
  create_lists(a, g->tensor_count, arena);
  pass_forward(e);
  memcpy(a->work + a->forward, a->here + a->forward, (a->nodes - a->forward) * sizeof *a->work);
  for (uint32_t i = 0; i < g->tensor_count; i++)
    if (e->bytes[i] != 0) find_lives(e, i);
}
