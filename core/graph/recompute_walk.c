#include "graph/recompute_walk.h"

#include <stdlib.h>
#include <string.h>

/* ---- walking ---- */

#define FEW 48 /* up to this many numbers are sorted without a call for each comparison */

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

/* Sorts the nodes to clone, which usually are few and almost in the opposite order. */
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

/* Clones the nodes that make a dropped tensor, back to tensors that are kept. */
static void make_again(brim_walk *w, uint32_t tensor)
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
    w->visit(w, node, true);
  }
  w->together = false;
}

void brim_walk_backward(brim_walk *w)
{
  const brim_graph *g = w->g;
  memset(w->made, 0, g->forward_count * sizeof *w->made);
  for (uint32_t i = (uint32_t)g->forward_count; i < g->node_count; i++) {
    for (uint32_t k = w->in.begin[i]; k < w->in.begin[i + 1]; k++) make_again(w, w->in.id[k]);
    w->visit(w, i, false);
  }
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

/* False for nodes that add to gradients of parameters or to the metrics. Batch norm may run again, because a clone
 * writes the sums for its moving averages to scratch memory. */
bool brim_walk_repeats(const brim_graph *g, const brim_node *n)
{
  for (uint32_t k = 0; k < n->out_count; k++)
    if (n->out[k]->role != BRIM_ROLE_ACTIVATION && !is_gradient_of_buffer(g, n->out[k])) return false;
  return true;
}
