#include "graph/recompute_walk.h"

#include <stdlib.h>
#include <string.h>

/* ---- walking ---- */

#define FEW 48 /* numbers that are sorted without a call for each comparison */

static void list_ids(brim_walk *w, brim_arena *arena)
{
  const brim_graph *g = w->g;
  size_t ins = 0, outs = 0;
  for (size_t i = 0; i < g->node_count; i++) {
    ins += g->node[i]->in_count;
    outs += g->node[i]->out_count;
  }
  w->in = (brim_walk_ids){BRIM_ARENA_NEW(arena, uint32_t, g->node_count + 1), BRIM_ARENA_NEW(arena, uint32_t, ins)};
  w->out = (brim_walk_ids){BRIM_ARENA_NEW(arena, uint32_t, g->node_count + 1), BRIM_ARENA_NEW(arena, uint32_t, outs)};
  for (size_t i = 0; i < g->node_count; i++) {
    const brim_node *n = g->node[i];
    uint32_t *in = w->in.id + w->in.begin[i], *out = w->out.id + w->out.begin[i];
    for (uint32_t k = 0; k < n->in_count; k++) in[k] = n->in[k]->id;
    for (uint32_t k = 0; k < n->out_count; k++) out[k] = n->out[k]->id;
    w->in.begin[i + 1] = w->in.begin[i] + n->in_count;
    w->out.begin[i + 1] = w->out.begin[i] + n->out_count;
  }
}

void brim_walk_init(brim_walk *w, const brim_graph *whole, brim_arena *arena)
{
  *w = (brim_walk){.whole = whole};
  const brim_graph *g = w->g = brim_walk_halve(whole, arena, &w->of);
  list_ids(w, arena);
  w->maker = BRIM_ARENA_NEW(arena, int32_t, g->tensor_count);
  memset(w->maker, 0xff, g->tensor_count * sizeof *w->maker);
  for (size_t i = 0; i < g->forward_count; i++)
    for (uint32_t k = 0; k < g->node[i]->out_count; k++) {
      const brim_tensor *t = g->node[i]->out[k];
      if (t->id >= w->tensors) w->tensors = t->id + 1;
      if (t->role == BRIM_ROLE_ACTIVATION && w->maker[t->id] < 0) w->maker[t->id] = (int32_t)i;
    }
  w->dropped = BRIM_ARENA_NEW(arena, bool, g->forward_count);
  w->made = BRIM_ARENA_NEW(arena, bool, g->forward_count);
  w->stack = BRIM_ARENA_NEW(arena, uint32_t, g->forward_count);
}

static int by_index(const void *a, const void *b)
{
  const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

/* Sorts the nodes to clone. Most often there are a few, in nearly the opposite order. */
static void sort_nodes(uint32_t *node, size_t count)
{
  if (count > FEW) {
    qsort(node, count, sizeof *node, by_index);
    return;
  }
  for (size_t i = 1; i < count; i++) {
    const uint32_t moved = node[i];
    size_t to = i;
    for (; to > 0 && node[to - 1] > moved; to--) node[to] = node[to - 1];
    node[to] = moved;
  }
}

/* Pushes the maker of a dropped tensor onto the stack, unless it has been cloned already. */
static void ask_for(brim_walk *w, uint32_t tensor, size_t *count)
{
  const int32_t maker = w->maker[tensor];
  if (maker < 0 || !w->dropped[maker] || w->made[maker]) return;
  w->made[maker] = true;
  w->stack[(*count)++] = (uint32_t)maker;
}

typedef void (*visit_fn)(brim_walk *w, uint32_t node, bool clone);

/* Clones the nodes that make a dropped tensor, back to tensors that are kept. */
static inline void make_again(brim_walk *w, uint32_t tensor, visit_fn visit)
{
  size_t count = 0;
  ask_for(w, tensor, &count);
  for (size_t done = 0; done < count; done++) {
    const uint32_t *begin = &w->in.begin[w->stack[done]];
    for (uint32_t k = begin[0]; k < begin[1]; k++) ask_for(w, w->in.id[k], &count);
  }
  sort_nodes(w->stack, count);
  for (size_t i = 0; i < count; i++) {
    const uint32_t node = w->stack[i];
    const bool first = i + 1 < count && w->stack[i + 1] == node + 1 && brim_walk_is_second(w, node + 1);
    w->together = first || (i > 0 && w->stack[i - 1] + 1 == node && brim_walk_is_second(w, node));
    visit(w, node, true);
  }
  w->together = false;
}

/* Inlined with its `visit`: a search makes thousands of walks, each of all nodes. */
static inline __attribute__((always_inline)) void walk_backward(brim_walk *w, visit_fn visit)
{
  const brim_graph *g = w->g;
  memset(w->made, 0, g->forward_count * sizeof *w->made);
  for (uint32_t i = (uint32_t)g->forward_count; i < g->node_count; i++) {
    for (uint32_t k = w->in.begin[i]; k < w->in.begin[i + 1]; k++)
      if (brim_walk_drops(w, w->in.id[k])) make_again(w, w->in.id[k], visit);
    visit(w, i, false);
  }
}

void brim_walk_backward(brim_walk *w)
{
  walk_backward(w, w->visit);
}

const brim_tensor *brim_walk_root(const brim_graph *g, const brim_tensor *t)
{
  for (;;) {
    const brim_node *maker = t->producer >= 0 ? g->node[t->producer] : NULL;
    if (!maker || !maker->descriptor->traits.view || maker->in[0]->bytes != t->bytes) return t;
    t = maker->in[0];
  }
}

static bool is_gradient_of_buffer(const brim_graph *g, const brim_tensor *t)
{
  for (size_t i = 0; i < g->parameter_count; i++)
    if (g->parameter[i].gradient == t) return g->parameter[i].is_buffer;
  return false;
}

/* Nodes that add to gradients of parameters or to the metrics must run only once. The sums that batch norm adds to its
 * moving averages go to scratch memory in a clone. */
bool brim_walk_repeats(const brim_graph *g, const brim_node *n)
{
  for (uint32_t k = 0; k < n->out_count; k++)
    if (n->out[k]->role != BRIM_ROLE_ACTIVATION && !is_gradient_of_buffer(g, n->out[k])) return false;
  return true;
}

/* ---- lifetimes ---- */

/* Extends a tensor's lifetime to the current step. `clone`: its second instance, if it is dropped. */
static void touch(brim_estimate *e, uint32_t tensor, bool clone)
{
  const uint32_t root = e->root[tensor];
  const size_t i = root + (clone && brim_walk_drops(&e->w, root) ? e->w.g->tensor_count : 0);
  if (e->first[i] < 0) e->first[i] = e->now;
  e->last[i] = e->now;
}

static void touch_inputs(brim_estimate *e, uint32_t node, bool backward)
{
  const brim_walk_ids *in = &e->w.in;
  for (uint32_t k = in->begin[node]; k < in->begin[node + 1]; k++)
    touch(e, in->id[k], backward && brim_walk_drops(&e->w, in->id[k]));
}

static void touch_outputs(brim_estimate *e, uint32_t node, bool clone)
{
  const brim_walk_ids *out = &e->w.out;
  for (uint32_t k = out->begin[node]; k < out->begin[node + 1]; k++) touch(e, out->id[k], clone);
}

/* Two halves that one kernel computes are two steps with everything of both alive. */
static void visit_time(brim_walk *w, uint32_t node, bool clone)
{
  brim_estimate *e = (brim_estimate *)w;
  const bool backward = clone || node >= w->g->forward_count;
  if (w->together && brim_walk_is_second(w, node)) {
    e->now--;
    touch_outputs(e, node, clone);
    e->now++;
    touch_inputs(e, node - 1, backward);
  }
  touch_inputs(e, node, backward);
  touch_outputs(e, node, clone);
  e->live[e->now++] = w->together ? e->both[node] : e->here[node];
}

/* Whether out[k] may take the memory of an input, so that it counts once for both. */
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

/* Workspace, less results that may be in place. */
static int64_t measure_node(const brim_estimate *e, const brim_node *n, const brim_kernel_need *need)
{
  int64_t bytes = (int64_t)need->workspace_bytes;
  for (uint32_t k = 0; k < n->out_count; k++)
    if (may_take_over(n, k, need)) bytes -= e->bytes[n->out[k]->id];
  return bytes;
}

/* A second half needs little workspace alone: the existing ones are elementwise or nearly so. */
static void measure(brim_estimate *e, const brim_program *p, brim_arena *arena)
{
  static const brim_kernel_need nothing;
  const brim_graph *g = e->w.g;
  e->root = BRIM_ARENA_NEW(arena, uint32_t, g->tensor_count);
  e->bytes = BRIM_ARENA_NEW(arena, int64_t, g->tensor_count);
  e->here = BRIM_ARENA_NEW(arena, int64_t, g->node_count);
  e->both = BRIM_ARENA_NEW(arena, int64_t, g->node_count);
  for (size_t i = 0; i < g->tensor_count; i++) {
    e->root[i] = brim_walk_root(e->w.whole, g->tensor[i])->id;
    e->bytes[i] = is_transient(g, g->tensor[i]) ? (int64_t)g->tensor[i]->bytes : 0;
  }
  for (uint32_t i = 0; i < g->node_count; i++) {
    const brim_kernel_need *need = &p->need[e->w.of[i]];
    e->here[i] = measure_node(e, g->node[i], brim_walk_is_second(&e->w, i) ? &nothing : need);
    e->both[i] = measure_node(e, p->graph->node[e->w.of[i]], need);
  }
}

/* Runs once, because the forward pass does not depend on the dropped nodes. */
static void run_forward(brim_estimate *e)
{
  const brim_graph *g = e->w.g;
  memset(e->first, 0xff, 2 * g->tensor_count * sizeof *e->first);
  if (g->input) touch(e, g->input->id, false);
  if (g->label) touch(e, g->label->id, false);
  for (uint32_t i = 0; i < g->forward_count; i++) {
    e->w.together = brim_walk_is_second(&e->w, i) || (i + 1 < g->forward_count && brim_walk_is_second(&e->w, i + 1));
    visit_time(&e->w, i, false);
  }
  e->w.together = false;
  memcpy(e->forward_first, e->first, g->tensor_count * sizeof *e->first);
  memcpy(e->forward_last, e->last, g->tensor_count * sizeof *e->last);
}

void brim_estimate_init(brim_estimate *e, const brim_program *p, brim_arena *arena)
{
  *e = (brim_estimate){0};
  brim_walk_init(&e->w, p->graph, arena);
  const brim_graph *g = e->w.g;
  e->w.visit = visit_time;
  measure(e, p, arena);
  e->first = BRIM_ARENA_NEW(arena, int32_t, 2 * g->tensor_count);
  e->last = BRIM_ARENA_NEW(arena, int32_t, 2 * g->tensor_count);
  e->forward_first = BRIM_ARENA_NEW(arena, int32_t, g->tensor_count);
  e->forward_last = BRIM_ARENA_NEW(arena, int32_t, g->tensor_count);
  e->live = BRIM_ARENA_NEW(arena, int64_t, 2 * (g->node_count + g->forward_count + 1));
  e->total = BRIM_ARENA_NEW(arena, int64_t, g->node_count + g->forward_count + 1);
  run_forward(e);
}

static uint64_t find_peak(brim_estimate *e)
{
  const size_t tensors = e->w.g->tensor_count;
  int64_t *change = e->live + e->now, waiting = 0, most = 0;
  memset(change, 0, (size_t)(e->now + 1) * sizeof *change);
  for (size_t i = 0; i < tensors + e->w.tensors; i++) {
    const int64_t bytes = e->bytes[i < tensors ? i : i - tensors];
    if (bytes == 0 || e->first[i] < 0) continue;
    change[e->first[i]] += bytes;
    change[e->last[i] + 1] -= bytes;
  }
  for (int32_t t = 0; t < e->now; t++) {
    waiting += change[t];
    e->total[t] = waiting + e->live[t];
    if (e->total[t] <= most) continue;
    most = e->total[t];
    e->when = t;
  }
  return (uint64_t)most;
}

uint64_t brim_estimate_run(brim_estimate *e)
{
  const brim_graph *g = e->w.g;
  e->now = (int32_t)g->forward_count;
  e->when = 0;
  memset(e->first + g->tensor_count, 0xff, e->w.tensors * sizeof *e->first); /* clones of the forward pass's tensors */
  memcpy(e->first, e->forward_first, g->tensor_count * sizeof *e->first);
  memcpy(e->last, e->forward_last, g->tensor_count * sizeof *e->last);
  walk_backward(&e->w, visit_time);
  return find_peak(e);
}
