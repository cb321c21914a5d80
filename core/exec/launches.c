/* See launches.h. */
#include "exec/launches.h"

#include "graph/federate.h"

void *brim_launches_pointer(const brim_program *program, const brim_bases *bases, const brim_tensor *tensor)
{
  const brim_graph *g = program->graph;
  const bool is_shared = bases->server && (brim_graph_is_shared(g, tensor) || brim_graph_is_frozen(g, tensor));
  return (is_shared ? bases->server : bases->own) + program->tensor_offset[tensor->id];
}

brim_launch *brim_launches_make(const brim_program *p, const brim_bases *bases, brim_arena *arena)
{
  const brim_graph *g = p->graph;
  brim_launch *launch = BRIM_ARENA_NEW(arena, brim_launch, g->node_count);
  for (size_t i = 0; i < g->node_count; i++) {
    const brim_node *n = g->node[i];
    void **in = BRIM_ARENA_NEW(arena, void *, n->in_count);
    void **out = BRIM_ARENA_NEW(arena, void *, n->out_count);
    for (uint32_t k = 0; k < n->in_count; k++) in[k] = brim_launches_pointer(p, bases, n->in[k]);
    for (uint32_t k = 0; k < n->out_count; k++) out[k] = brim_launches_pointer(p, bases, n->out[k]);
    const int32_t workspace = p->workspace_buffer[i];
    launch[i] = (brim_launch){.node = n,
                              .state = p->state[i],
                              .in = in,
                              .out = out,
                              .workspace = workspace < 0 ? NULL : bases->own + p->buffer[workspace].offset};
  }
  return launch;
}

bool brim_launches_begin_piece(const brim_program *program, size_t i)
{
  if (i == 0 || (brim_launches_halves(program) == 2 && i == brim_graph_to_loss(program->graph))) return true;
  return program->cut && program->cut[i];
}

/* ---- counting ---- */

/* An address that the arena could have; nothing is read or written there. */
#define NOWHERE ((uint8_t *)((uintptr_t)1 << 40))

bool brim_launches_is_view(const brim_program *p, const brim_node *n)
{
  return n->descriptor->traits.view && p->tensor_offset[n->in[0]->id] == p->tensor_offset[n->out[0]->id];
}

static brim_status count_pieces(const brim_plan *plan, const brim_program *p, const brim_launch *launch, size_t first,
                                uint32_t *out)
{
  const size_t count = p->graph->node_count;
  uint32_t others = 0;
  for (size_t from = first, to; from < count; from = to) {
    for (to = from + 1; to < count && !brim_launches_begin_piece(p, to);) to++;
    const brim_program_run run = {.launch = launch + from, .kernel = p->kernel + from, .count = to - from};
    BRIM_TRY(plan->request.backend->count_launches(plan->request.backend_self, &run, out + from));
    /* The backend counts launches that belong to no node in this entry, which the next piece overwrites. */
    others += out[to];
  }
  out[count] = others;
  return BRIM_OK;
}

brim_status brim_launches_count(const brim_plan *plan, const brim_program *p, size_t first, uint32_t *out)
{
  const brim_backend_ops *backend = plan->request.backend;
  if (!BRIM_HAS(brim_backend_ops, backend, count_launches)) {
    const brim_graph *g = p->graph;
    for (size_t i = 0; i < g->node_count; i++) out[i] = !brim_launches_is_view(p, g->node[i]);
    out[g->node_count] = 0;
    return BRIM_OK;
  }
  brim_arena arena = {0};
  const brim_bases bases = {NOWHERE, NULL};
  const brim_status status = count_pieces(plan, p, brim_launches_make(p, &bases, &arena), first, out);
  brim_arena_release(&arena);
  return status;
}
