/* Splits a fused node into the two nodes that it replaces, if recompute may treat them separately. For example, every
 * later block of a transformer needs a residual sum, but the norm that is fused with it is cheap to recompute from the
 * sum. */
#include <string.h>

#include "graph/recompute_walk.h"

/* Whether the backend has both operations, because it may have only the fused one. */
static bool offers_both(const brim_graph *g, const brim_node half[2])
{
  return brim_graph_offers(g, half[0].op) && brim_graph_offers(g, half[1].op);
}

static void append(brim_graph *g, uint32_t *of, const brim_node *n, uint32_t source, brim_arena *arena)
{
  brim_node *copy = brim_arena_copy(arena, n, sizeof *n);
  of[g->node_count] = source;
  copy->index = (uint32_t)g->node_count;
  g->node[g->node_count++] = copy;
}

const brim_graph *brim_walk_halve(const brim_graph *whole, brim_arena *arena, uint32_t **of)
{
  brim_graph *g = brim_arena_copy(arena, whole, sizeof *whole);
  const size_t most = whole->node_count + whole->forward_count + 1;
  g->node = BRIM_ARENA_NEW(arena, brim_node *, most);
  *of = BRIM_ARENA_NEW(arena, uint32_t, most);
  g->node_count = g->forward_count = 0;
  for (uint32_t i = 0; i < whole->node_count; i++) {
    const brim_node *n = whole->node[i];
    brim_node half[2];
    const bool halves = i < whole->forward_count && n->descriptor->halve && n->descriptor->halve(n, arena, half) &&
                        offers_both(whole, half);
    append(g, *of, halves ? &half[0] : n, i, arena);
    if (halves) append(g, *of, &half[1], i, arena);
    if (i < whole->forward_count) g->forward_count = g->node_count;
  }
  return g;
}
