/* Sharded gradients (dist.shard=gradients). The gradients of a bucket share one buffer, which is zeroed right before
 * the first node that adds to any of them. After the last such node a collective scatters the sum over all ranks
 * (graph/collectives.h), and a node adds this rank's part to the stored one. That node comes after the last node of the
 * next bucket, so that a device keeps working while ranks communicate; two buckets exist at a time.
 *
 * Gradients of further uses of a parameter have separate buffers, and are added to the parameter's when they are
 * complete. */
#include <string.h>

#include "graph/shard.h"

#define NONE SIZE_MAX

typedef struct rewriting {
  brim_graph *g;
  const brim_shards *shards;
  brim_arena scratch;
  size_t tensors;
  size_t *bucket;  /* by tensor: the bucket of the gradient that it is, or to which it is added; or NONE */
  size_t *further; /* by tensor: its index among gradients of further uses; or NONE */
  size_t *last;    /* by tensor: the last node that adds to it */
  size_t *ready;   /* by bucket: the last node that adds to this bucket or to earlier ones */
  bool *begun;     /* by tensor, including tensors added later: whether it has been zeroed */
  size_t closed;   /* buckets that are complete */
} rewriting;

static void lay_within(brim_graph *g, const brim_tensor *t, const brim_tensor *of, uint64_t elements)
{
  g->within[t->id] = (brim_within){of, elements * brim_dtype_bytes(g->real)};
}

static void add_bucket(rewriting *r, size_t k)
{
  brim_graph *g = r->g;
  const brim_shard_bucket *b = &r->shards->bucket[k];
  const brim_shape all = {1, {(int64_t)(b->part * (uint64_t)r->shards->world.ranks)}}, part = {1, {(int64_t)b->part}};
  const char *name = brim_arena_printf(&g->arena, "gradients.%zu", k);
  brim_gradient_shard *shard = &g->shard[g->shard_count++];
  shard->all = brim_graph_tensor(g, BRIM_ROLE_GRADIENT, g->real, &all, name);
  shard->part = brim_graph_tensor(g, BRIM_ROLE_GRADIENT, g->real, &part, name);
  shard->own = brim_graph_tensor(g, BRIM_ROLE_GRADIENT, g->real, &part, name);
  lay_within(g, shard->all, shard->all, 0);
  lay_within(g, shard->part, shard->all, b->part * (uint64_t)r->shards->world.rank);
}

/* Makes the buckets' tensors, and assigns every gradient its place. */
static void lay_out(rewriting *r)
{
  brim_graph *g = r->g;
  for (size_t k = 0; k < r->shards->bucket_count; k++) add_bucket(r, k);
  for (size_t i = 0; i < g->tensor_count; i++) r->bucket[i] = r->further[i] = r->last[i] = NONE;
  for (size_t i = 0; i < g->parameter_count; i++) {
    const size_t k = r->shards->bucket_of[i];
    const brim_tensor *gradient = g->parameter[i].gradient;
    if (k == NONE) continue;
    r->bucket[gradient->id] = k;
    lay_within(g, gradient, g->shard[k].all, r->shards->value_at[i] - r->shards->bucket[k].first);
  }
  for (size_t i = 0; i < g->further_count; i++) {
    const brim_tensor *gradient = g->further[i].gradient;
    if (g->further[i].of) continue; /* exists for the whole step; every rank has it whole */
    r->bucket[gradient->id] = r->shards->bucket_of[g->further[i].parameter];
    r->further[gradient->id] = i;
    lay_within(g, gradient, gradient, 0);
  }
}

static void find_ready(rewriting *r)
{
  const brim_graph *g = r->g;
  for (size_t k = 0; k < g->shard_count; k++) r->ready[k] = g->forward_count;
  for (size_t i = g->forward_count; i < g->node_count; i++)
    for (uint32_t k = 0; k < g->node[i]->out_count; k++) {
      const size_t id = g->node[i]->out[k]->id;
      if (r->bucket[id] == NONE) continue;
      r->last[id] = i;
      r->ready[r->bucket[id]] = i;
    }
  for (size_t k = 1; k < g->shard_count; k++)
    if (r->ready[k] < r->ready[k - 1]) r->ready[k] = r->ready[k - 1];
}

static void begin(rewriting *r, brim_tensor *t)
{
  if (r->begun[t->id]) return;
  r->begun[t->id] = true;
  brim_graph_node_into(r->g, "zero", t->name, NULL, 0, &t, 1, NULL);
}

/* Called before a node that adds to a gradient: zeroes its buffer. */
static void begin_gradient(rewriting *r, brim_tensor *gradient)
{
  if (gradient->id >= r->tensors || r->bucket[gradient->id] == NONE) return;
  begin(r, r->further[gradient->id] == NONE ? r->g->shard[r->bucket[gradient->id]].all : gradient);
}

/* Called after the last node that adds to a further gradient: adds it to the parameter's. */
static void add_further(rewriting *r, brim_tensor *gradient, size_t node)
{
  if (r->further[gradient->id] == NONE || r->last[gradient->id] != node) return;
  brim_tensor *to = r->g->parameter[r->g->further[r->further[gradient->id]].parameter].gradient;
  begin_gradient(r, to);
  brim_graph_node_into(r->g, "accumulate", to->name, &gradient, 1, &to, 1, NULL);
}

static void keep(rewriting *r, size_t bucket)
{
  const brim_gradient_shard *shard = &r->g->shard[bucket];
  brim_tensor *part = shard->part, *own = shard->own;
  brim_graph_node_into(r->g, "accumulate", own->name, &part, 1, &own, 1, NULL);
}

/* A parameter without any gradient contributes zeros to the sum. */
static void close_buckets(rewriting *r, size_t node)
{
  for (; r->closed < r->g->shard_count && r->ready[r->closed] <= node; r->closed++) {
    begin(r, r->g->shard[r->closed].all);
    if (r->closed > 0) keep(r, r->closed - 1);
  }
}

static void rewrite(rewriting *r)
{
  brim_graph *g = r->g;
  const size_t nodes = g->node_count;
  brim_node **node = BRIM_ARENA_NEW(&r->scratch, brim_node *, nodes);
  memcpy(node, g->node, nodes * sizeof *node);
  brim_graph_cut_backward(g);
  for (size_t i = g->forward_count; i < nodes; i++) {
    for (uint32_t k = 0; k < node[i]->out_count; k++) begin_gradient(r, node[i]->out[k]);
    brim_graph_append(g, node[i]);
    for (uint32_t k = 0; k < node[i]->out_count; k++) add_further(r, node[i]->out[k], i);
    close_buckets(r, i);
  }
  close_buckets(r, NONE);
  if (g->shard_count > 0) keep(r, g->shard_count - 1);
}

brim_status brim_graph_shard_gradients(brim_graph *g, const brim_shards *shards)
{
  const size_t tensors = g->tensor_count + 3 * shards->bucket_count;
  rewriting r = {.g = g, .shards = shards, .tensors = tensors};
  g->shard = BRIM_ARENA_NEW(&g->arena, brim_gradient_shard, shards->bucket_count);
  g->within = BRIM_ARENA_NEW(&g->arena, brim_within, tensors);
  g->within_count = tensors;
  r.bucket = BRIM_ARENA_NEW(&r.scratch, size_t, tensors);
  r.further = BRIM_ARENA_NEW(&r.scratch, size_t, tensors);
  r.last = BRIM_ARENA_NEW(&r.scratch, size_t, tensors);
  r.ready = BRIM_ARENA_NEW(&r.scratch, size_t, shards->bucket_count);
  r.begun = BRIM_ARENA_NEW(&r.scratch, bool, tensors);
  lay_out(&r);
  find_ready(&r);
  rewrite(&r);
  brim_arena_release(&r.scratch);
  return g->status;
}
