#include "graph/buckets.h"

#include <string.h>

static uint64_t round_up(uint64_t bytes, uint64_t alignment)
{
  return (bytes + alignment - 1) / alignment * alignment;
}

static const brim_graph *training_graph(const brim_plan *plan)
{
  for (size_t i = 0; i < plan->program_count; i++)
    if (plan->program[i].kind == BRIM_PROGRAM_TRAIN) return plan->program[i].graph;
  return NULL;
}

/* Gradients lie in the order of their tensors; a bucket takes them from the end. */
void brim_buckets_make(brim_plan *plan)
{
  const brim_plan_request *r = &plan->request;
  const brim_graph *g = training_graph(plan);
  const uint32_t element = brim_dtype_bytes(r->backend->real);
  uint64_t end = plan->gradient_offset + plan->gradient_bytes, from = end;
  if (r->world.ranks <= 1 || !g || plan->gradient_bytes == 0) return;
  plan->bucket = BRIM_ARENA_NEW(&plan->arena, brim_gradient_bucket, g->tensor_count);
  for (size_t i = g->tensor_count; i-- > 0;) {
    const brim_tensor *t = g->tensor[i];
    if (t->role != BRIM_ROLE_GRADIENT || brim_graph_passes(g, t)) continue;
    from -= round_up(t->bytes, r->backend->alignment);
    if (end - from < r->bucket_bytes && from > plan->gradient_offset) continue;
    plan->bucket[plan->bucket_count++] = (brim_gradient_bucket){from, (end - from) / element, BRIM_ALL_REDUCE};
    end = from;
  }
}

/* A node that writes a gradient is one of its bucket's; what lies outside all buckets is none's. */
static void note_output(const brim_plan *plan, brim_program *p, const brim_tensor *t, int32_t node)
{
  const uint32_t element = brim_dtype_bytes(plan->request.backend->real);
  const uint64_t at = p->tensor_offset[t->id];
  for (size_t k = 0; k < plan->bucket_count; k++) {
    const brim_gradient_bucket *b = &plan->bucket[k];
    if (at >= b->offset && at < b->offset + b->count * element && p->bucket_ready[k] < node) p->bucket_ready[k] = node;
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
  for (size_t k = 1; k < plan->bucket_count; k++) /* they are added up in their order */
    if (p->bucket_ready[k] < p->bucket_ready[k - 1]) p->bucket_ready[k] = p->bucket_ready[k - 1];
}
