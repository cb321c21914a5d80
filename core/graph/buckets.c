#include "graph/buckets.h"

#include <string.h>

#include "base/align.h"

/* Returns the graph with the gradients. A federation's server has the sums in its update instead. */
static const brim_graph *graph_of_gradients(const brim_plan *plan)
{
  const uint32_t kind = plan->request.client ? BRIM_PROGRAM_UPDATE : BRIM_PROGRAM_TRAIN;
  for (size_t i = 0; i < plan->program_count; i++)
    if (plan->program[i].kind == kind) return plan->program[i].graph;
  return NULL;
}

/* A federation's server adds in double precision, in which its sums are exact. */
static uint32_t dtype_of_gradients(const brim_plan *plan)
{
  return plan->request.client ? BRIM_DTYPE_F64 : plan->request.backend->real;
}

static void add_bucket(brim_plan *plan, uint64_t first, uint64_t count, uint32_t kind)
{
  const uint32_t dtype = dtype_of_gradients(plan);
  const uint64_t offset = plan->gradient_offset + first * brim_dtype_bytes(dtype);
  plan->bucket[plan->bucket_count++] = (brim_gradient_bucket){offset, count, dtype, kind};
}

/* For shards: makes the buckets to scatter, unless programs scatter them, and one bucket for the sums that every rank
 * gets whole. These are the sums for moving averages, which are complete after the forward pass, and the gradients of
 * further uses. */
static void make_sharded(brim_plan *plan)
{
  const brim_shards *s = plan->shards;
  plan->bucket = BRIM_ARENA_NEW(&plan->arena, brim_gradient_bucket, s->bucket_count + 1);
  for (size_t k = 0; !s->gradients && k < s->bucket_count; k++)
    add_bucket(plan, s->bucket[k].first, s->bucket[k].part * (uint64_t)s->world.ranks, BRIM_REDUCE_SCATTER);
  if (s->gradient_count > s->replicated_at)
    add_bucket(plan, s->replicated_at, s->gradient_count - s->replicated_at, BRIM_ALL_REDUCE);
}

#define BUCKETS 4
#define SIZE_LEAST 65536u /* bytes */

uint64_t brim_buckets_size(const brim_graph *g, uint64_t most)
{
  uint64_t all = 0;
  for (size_t i = 0; i < g->parameter_count; i++)
    if (!g->parameter[i].is_frozen) all += g->parameter[i].value->bytes;
  const uint64_t size = all / BUCKETS > SIZE_LEAST ? all / BUCKETS : SIZE_LEAST;
  return most < size ? most : size;
}

/* Gradients lie in the order of their tensors; buckets begin with the last ones. */
void brim_buckets_make(brim_plan *plan)
{
  const brim_plan_request *r = &plan->request;
  const brim_graph *g = graph_of_gradients(plan);
  const uint32_t element = brim_dtype_bytes(dtype_of_gradients(plan));
  uint64_t end = plan->gradient_bytes, from = end;
  if (plan->shards) make_sharded(plan);
  if (r->world.ranks <= 1 || !g || plan->gradient_bytes == 0 || plan->shards) return;
  const uint64_t size = brim_buckets_size(g, r->bucket_bytes);
  plan->bucket = BRIM_ARENA_NEW(&plan->arena, brim_gradient_bucket, g->tensor_count);
  for (size_t i = g->tensor_count; i-- > 0;) {
    const brim_tensor *t = g->tensor[i];
    if (t->role != BRIM_ROLE_GRADIENT || brim_graph_is_brief(g, t)) continue;
    from -= brim_round_up(t->bytes, r->backend->alignment);
    if (end - from < size && from > 0) continue;
    add_bucket(plan, from / element, (end - from) / element, BRIM_ALL_REDUCE);
    end = from;
  }
}

/* Records a node that writes a gradient in its bucket, if the gradient is in one. */
static void note_output(const brim_plan *plan, brim_program *p, const brim_tensor *t, int32_t node)
{
  const uint64_t at = p->tensor_offset[t->id];
  for (size_t k = 0; k < plan->bucket_count; k++) {
    const brim_gradient_bucket *b = &plan->bucket[k];
    const uint64_t end = b->offset + b->count * brim_dtype_bytes(b->dtype);
    if (at >= b->offset && at < end && p->bucket_ready[k] < node) p->bucket_ready[k] = node;
  }
}

void brim_buckets_find_ready(const brim_plan *plan, brim_program *p)
{
  const brim_graph *g = p->graph;
  p->bucket_ready = BRIM_ARENA_NEW(&p->graph->arena, int32_t, plan->bucket_count);
  for (size_t k = 0; k < plan->bucket_count; k++) p->bucket_ready[k] = -1;
  for (size_t i = 0; i < g->node_count; i++)
    for (uint32_t k = 0; k < g->node[i]->out_count; k++)
      if (g->node[i]->out[k]->role == BRIM_ROLE_GRADIENT) note_output(plan, p, g->node[i]->out[k], (int32_t)i);
  /* Ranks may have different numbers of micro-batches, or fail in between, so on every rank the program's own
   * collectives come first. */
  for (size_t k = 0; plan->shards && plan->shards->gradients && k < plan->bucket_count; k++)
    p->bucket_ready[k] = (int32_t)g->node_count - 1;
  for (size_t k = 1; k < plan->bucket_count; k++) /* buckets are summed in order */
    if (p->bucket_ready[k] < p->bucket_ready[k - 1]) p->bucket_ready[k] = p->bucket_ready[k - 1];
}

static void cut_before(brim_program *p, int32_t node)
{
  if (node >= 0 && node < (int32_t)p->graph->node_count) p->cut[node] = true;
}

static void cut(const brim_plan *plan, brim_program *p)
{
  if (!p->cut) p->cut = BRIM_ARENA_NEW(&p->graph->arena, bool, p->graph->node_count + 1);
  for (size_t k = 0; p->bucket_ready && k < plan->bucket_count; k++) cut_before(p, p->bucket_ready[k] + 1);
  for (size_t i = 0; i < p->collective_count; i++) {
    cut_before(p, p->collective[i].start);
    cut_before(p, p->collective[i].finish);
  }
}

void brim_buckets_cut(brim_plan *plan)
{
  if (plan->request.world.ranks <= 1 || !BRIM_HAS(brim_backend_ops, plan->request.backend, run_program)) return;
  for (size_t i = 0; i < plan->program_count; i++) cut(plan, &plan->program[i]);
}
