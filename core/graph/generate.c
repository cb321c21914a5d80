/* See generate.h. */
#include "graph/generate.h"

#include "graph/fuse.h"

/* ---- the operation ---- */

/* The operation moves a row and computes nothing. */
static void cost_cache_write(const brim_node *n, brim_cost *out)
{
  const brim_tensor *places = n->in[1], *cache = n->out[0];
  const int64_t values = brim_shape_count(&places->shape) * cache->shape.dim[2];
  *out = (brim_cost){0, 2 * (uint64_t)values * brim_dtype_bytes(cache->dtype) + places->bytes};
}

BRIM_OP(cache_write) = {.name = "cache_write",
                        .kind = BRIM_KIND_COPY,
                        .traits = {.samples_in = BRIM_OP_FROM(0), .samples_out = BRIM_OP_FROM(0), .apart = 1},
                        .signature = "x [N,T,E], places i32 [N,T] -> cache [N,C,F]",
                        .each_token = brim_op_each_token_last,
                        .cost = cost_cache_write};

/* A window's cache is a ring. A program writes all of its tokens before the first of them reads, so the ring must hold
 * the keys of the first token's window and of the tokens after it. */
static int64_t rows_of(const brim_graph *g, int64_t window)
{
  const int64_t ring = window + g->generation.chunk;
  return window > 0 && ring < g->generation.capacity ? ring : g->generation.capacity;
}

brim_tensor *brim_generate_cache(brim_graph *g, const char *name, brim_tensor *x, int64_t window)
{
  const brim_shape shape = {3, {x->shape.dim[0], rows_of(g, window), x->shape.dim[2]}};
  brim_tensor *cache = brim_graph_tensor(g, BRIM_ROLE_CACHE, x->dtype, &shape, name);
  brim_tensor *const in[] = {x, g->places};
  if (cache && !brim_graph_node_into(g, "cache_write", name, in, 2, &cache, 1, NULL)) return NULL;
  return cache;
}

/* ---- which models have caches ---- */

/* Whether x has the tokens of all texts as its first two dimensions. */
static bool has_tokens(const brim_graph *g, const brim_tensor *x)
{
  return x->shape.rank >= 2 && x->shape.dim[0] == g->input->shape.dim[0] && x->shape.dim[1] == g->input->shape.dim[1];
}

/* Whether an input made of parameters alone is the same for all tokens: it may broadcast over tokens, but not differ
 * between them. */
static bool is_same_for_tokens(const brim_tensor *x, const brim_tensor *y)
{
  return x->shape.rank < y->shape.rank - 1 || (x->shape.rank == y->shape.rank - 1 && x->shape.dim[0] == 1) ||
         (x->shape.rank == y->shape.rank && x->shape.dim[1] == 1);
}

static brim_status check_node(const brim_graph *g, const brim_node *n)
{
  bool good = n->descriptor->each_token && n->descriptor->each_token(n);
  if (n->out[0]->role == BRIM_ROLE_ACTIVATION) good = good && has_tokens(g, n->out[0]);
  for (uint32_t k = 0; k < n->in_count && good && n->descriptor->traits.broadcasts; k++)
    good = brim_graph_has_samples(g, n->in[k]) ? has_tokens(g, n->in[k]) : is_same_for_tokens(n->in[k], n->out[0]);
  if (good) return BRIM_OK;
  return brim_fail(BRIM_ENOTSUP, "%s '%s' lets tokens affect each other by other means than causal attention", n->op,
                   n->name);
}

brim_status brim_generate_check(const brim_graph *g)
{
  const brim_shape answers = {3, {g->batch, g->generation.tokens, g->classes}};
  bool any = false;
  for (size_t i = 0; i < g->node_count; i++) {
    any = any || g->node[i]->out[0]->role == BRIM_ROLE_CACHE;
    if (g->node[i]->out[0]->role == BRIM_ROLE_CACHE || brim_node_has_samples(g, g->node[i]))
      BRIM_TRY(check_node(g, g->node[i]));
  }
  if (any && brim_shape_equal(&g->output->shape, &answers)) return BRIM_OK;
  return brim_fail(BRIM_ENOTSUP, "the model has no causal attention");
}

bool brim_generate_is_alike(const brim_graph *a, const brim_graph *b)
{
  size_t i = 0, k = 0;
  for (;; i++, k++) {
    while (i < a->tensor_count && a->tensor[i]->role != BRIM_ROLE_CACHE) i++;
    while (k < b->tensor_count && b->tensor[k]->role != BRIM_ROLE_CACHE) k++;
    if (i == a->tensor_count || k == b->tensor_count) return i == a->tensor_count && k == b->tensor_count;
    if (!brim_shape_equal(&a->tensor[i]->shape, &b->tensor[k]->shape)) return false;
  }
}

/* ---- pruning ---- */

void brim_generate_prune(brim_graph *g)
{
  bool *needed = BRIM_ARENA_NEW(&g->arena, bool, g->tensor_count);
  bool *gone = BRIM_ARENA_NEW(&g->arena, bool, g->tensor_count);
  bool *keeps = BRIM_ARENA_NEW(&g->arena, bool, g->node_count);
  if (g->kept) needed[g->kept->id] = true;
  for (size_t i = g->node_count; i-- > 0;) {
    const brim_node *n = g->node[i];
    for (uint32_t k = 0; k < n->out_count; k++)
      keeps[i] = keeps[i] || needed[n->out[k]->id] || n->out[k]->role == BRIM_ROLE_CACHE;
    for (uint32_t k = 0; k < n->in_count; k++) needed[n->in[k]->id] = needed[n->in[k]->id] || keeps[i];
  }
  size_t count = 0;
  for (size_t i = 0; i < g->node_count; i++) {
    for (uint32_t k = 0; k < g->node[i]->out_count && !keeps[i]; k++) gone[g->node[i]->out[k]->id] = true;
    if (keeps[i]) g->node[count++] = g->node[i];
  }
  g->node_count = count;
  if (!g->kept) g->output = NULL;
  brim_graph_drop_tensors(g, gone);
}
