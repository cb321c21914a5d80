/* See collectives.h. */
#include "graph/collectives.h"

#include <string.h>

static void add(brim_program *p, brim_program_collective c)
{
  if (p->collective_count > 0) { /* collectives must also finish in order */
    const brim_program_collective *before = &p->collective[p->collective_count - 1];
    if (c.start < before->start) c.start = before->start;
    if (c.finish < before->finish) c.finish = before->finish;
  }
  if (c.finish < c.start) c.finish = c.start;
  p->collective[p->collective_count++] = c;
}

/* ---- training ---- */

static size_t shard_of(const brim_graph *g, const brim_tensor *all)
{
  size_t k = 0;
  while (k < g->shard_count && g->shard[k].all != all) k++;
  return k;
}

/* The last node that adds to each bucket; if several buckets are complete at one node, the first bucket comes first. */
static int32_t *find_last(const brim_graph *g, brim_arena *scratch)
{
  int32_t *last = BRIM_ARENA_NEW(scratch, int32_t, g->shard_count);
  for (size_t i = g->forward_count; i < g->node_count; i++)
    for (uint32_t k = 0; k < g->node[i]->out_count; k++) {
      const brim_tensor *all = brim_graph_within(g, g->node[i]->out[k]);
      const size_t shard = all ? shard_of(g, all) : g->shard_count;
      if (shard < g->shard_count) last[shard] = (int32_t)i;
    }
  return last;
}

static int32_t find_reader(const brim_graph *g, const brim_tensor *t)
{
  for (size_t i = g->forward_count; i < g->node_count; i++)
    for (uint32_t k = 0; k < g->node[i]->in_count; k++)
      if (g->node[i]->in[k] == t) return (int32_t)i;
  return (int32_t)g->node_count;
}

static void find_scattered(brim_program *p)
{
  const brim_graph *g = p->graph;
  brim_arena scratch = {0};
  const int32_t *last = find_last(g, &scratch);
  for (size_t k = 0; k < g->shard_count; k++) {
    const brim_tensor *all = g->shard[k].all;
    add(p, (brim_program_collective){.start = last[k] + 1,
                                     .finish = find_reader(g, g->shard[k].part),
                                     .kind = BRIM_REDUCE_SCATTER,
                                     .dtype = all->dtype,
                                     .offset = p->tensor_offset[all->id],
                                     .count = (uint64_t)brim_shape_count(&all->shape)});
  }
  brim_arena_release(&scratch);
}

/* ---- check and update ---- */

static void add_sum(brim_program *p, int32_t node, uint64_t offset)
{
  add(p, (brim_program_collective){node, node, BRIM_ALL_REDUCE, BRIM_DTYPE_F64, offset, 1});
}

static void find_squares(brim_program *p)
{
  const brim_graph *g = p->graph;
  for (size_t i = 0; i < g->first_update; i++)
    if (g->node[i]->in_count > 0 && g->node[i]->out[0] == g->gradient_scale)
      add_sum(p, (int32_t)i, p->tensor_offset[g->node[i]->in[0]->id]);
}

/* Per bucket, the node after the last update of the rank's part. */
static int32_t *find_updated(const brim_graph *g, const brim_shards *s, brim_arena *scratch)
{
  size_t *bucket = BRIM_ARENA_NEW(scratch, size_t, g->tensor_count); /* by tensor, plus 1 */
  int32_t *updated = BRIM_ARENA_NEW(scratch, int32_t, s->bucket_count);
  for (size_t i = 0; i < g->parameter_count; i++)
    if (g->slice[i].value) bucket[g->slice[i].value->id] = s->bucket_of[i] + 1;
  for (size_t n = g->first_update; n < g->first_average; n++) {
    const size_t k = bucket[g->node[n]->out[0]->id];
    if (k > 0) updated[k - 1] = (int32_t)n + 1;
  }
  return updated;
}

/* Goes from the last bucket to the first: the last has the first parameters, which are updated first. */
static void find_gathered(const brim_plan *plan, brim_program *p)
{
  const brim_graph *g = p->graph;
  const brim_shards *s = plan->shards;
  brim_arena scratch = {0};
  const int32_t *updated = find_updated(g, s, &scratch);
  for (size_t k = s->bucket_count; k-- > 0;)
    add(p, (brim_program_collective){.start = updated[k],
                                     .finish = (int32_t)g->first_average,
                                     .kind = BRIM_ALL_GATHER,
                                     .dtype = g->real,
                                     .offset = plan->parameter_offset + s->bucket[k].first * brim_dtype_bytes(g->real),
                                     .count = s->bucket[k].part * (uint64_t)s->world.ranks});
  brim_arena_release(&scratch);
}

bool brim_collectives_need(const brim_graph *g, const brim_node *node)
{
  for (size_t k = 0; k < g->shard_count; k++) {
    const brim_gradient_shard *s = &g->shard[k];
    if (node->in_count == 0 && node->out[0] == s->all) return true;
    if (node->in_count == 1 && node->in[0] == s->part) return true;
  }
  return false;
}

void brim_collectives_find(const brim_plan *plan, brim_program *p)
{
  if (!plan->shards) return;
  p->collective = BRIM_ARENA_NEW(&p->graph->arena, brim_program_collective, plan->shards->bucket_count + 1);
  if (p->kind == BRIM_PROGRAM_TRAIN && plan->shards->gradients) find_scattered(p);
  if (p->kind == BRIM_PROGRAM_CHECK) add_sum(p, (int32_t)p->graph->node_count, plan->proof_offset);
  if (p->kind != BRIM_PROGRAM_UPDATE) return;
  find_squares(p);
  find_gathered(plan, p);
}

/* ---- checking ---- */

static brim_status check_alive(const brim_program *p, const brim_program_collective *c, uint64_t bytes)
{
  for (size_t b = 0; b < p->buffer_count; b++) {
    const brim_buffer *x = &p->buffer[b];
    const bool inside = c->offset >= x->offset && c->offset + bytes <= x->offset + x->bytes;
    if (inside && x->first < c->start && c->finish <= x->last) return BRIM_OK;
  }
  return brim_fail(BRIM_EINTERNAL, "a collective before node %d works on memory that is not a buffer's until node %d",
                   (int)c->start, (int)c->finish);
}

brim_status brim_collectives_check(const brim_plan *plan, const brim_program *p)
{
  const int32_t nodes = (int32_t)p->graph->node_count;
  for (size_t i = 0; i < p->collective_count; i++) {
    const brim_program_collective *c = &p->collective[i];
    const uint64_t bytes = c->count * brim_dtype_bytes(c->dtype);
    if (c->start > c->finish || c->finish > nodes || (i > 0 && (c->start < c[-1].start || c->finish < c[-1].finish)))
      return brim_fail(BRIM_EINTERNAL, "collective %zu between nodes %d and %d is out of order", i, (int)c->start,
                       (int)c->finish);
    if (c->offset < plan->reserved_bytes || c->offset + bytes > plan->peak_bytes)
      return brim_fail(BRIM_EINTERNAL, "collective %zu lies outside the arena", i);
    if (c->offset >= plan->persistent_bytes) BRIM_TRY(check_alive(p, c, bytes));
  }
  return BRIM_OK;
}
