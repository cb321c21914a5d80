/* Computes the place of everything in the arena. See place.h. */
#include "graph/place.h"

#include "base/align.h"
#include "graph/federate.h"

/* The bytes of a client's largest micro-batch; its graphs are not built yet. */
static uint64_t client_feed_bytes(const brim_plan *plan)
{
  const brim_plan_request *r = plan->request.client;
  const uint64_t a = r->backend->alignment;
  const brim_graph *g = plan->program[0].graph; /* an evaluation graph: its samples have the same size */
  uint64_t most = 0;
  for (size_t i = 0; i < r->shape_count; i++) {
    const uint64_t n = (uint64_t)r->shape[i].batch, of = (uint64_t)g->batch;
    const uint64_t bytes = (g->input ? brim_round_up(g->input->bytes / of * n, a) : 0) +
                           (g->label ? brim_round_up(g->label->bytes / of * n, a) : 0);
    if (bytes > most) most = bytes;
  }
  return most;
}

/* Reserves the bytes of a micro-batch, and the backend's memory for loading it while it works on the previous one. */
static void reserve(brim_plan *plan)
{
  /* A backend instance has one such area. A single lane uses the server's instance, and so its area. */
  if (plan->request.server && plan->request.server->request.lanes <= 1) return;
  const brim_backend_ops *backend = plan->request.backend;
  for (size_t i = 0; i < plan->program_count; i++) {
    const brim_graph *g = plan->program[i].graph;
    uint64_t bytes = 0;
    if (g->input) bytes += brim_round_up(g->input->bytes, backend->alignment);
    if (g->label) bytes += brim_round_up(g->label->bytes, backend->alignment);
    if (g->places) bytes += brim_round_up(g->places->bytes, backend->alignment);
    if (bytes > plan->feed_bytes) plan->feed_bytes = bytes;
  }
  if (plan->request.client && client_feed_bytes(plan) > plan->feed_bytes) plan->feed_bytes = client_feed_bytes(plan);
  if (!BRIM_HAS(brim_backend_ops, backend, reserve_bytes)) return;
  brim_graph_lock_plugins();
  plan->reserved_bytes = backend->reserve_bytes(plan->request.backend_self, plan->feed_bytes);
  brim_graph_unlock_plugins();
}

/* Places the states that live in host memory. */
static void place_in_host(brim_plan *plan, const brim_graph *update)
{
  const uint64_t a = plan->request.backend->alignment;
  if (!update->offloads) return;
  plan->host_offset = BRIM_ARENA_NEW(&plan->arena, uint64_t, update->state_count);
  for (size_t i = 0; i < update->state_count; i++) {
    plan->host_offset[i] = plan->host_bytes;
    plan->host_bytes += brim_round_up(update->state[i].tensor->bytes, a);
  }
}

/* Bytes of trained parameters with buffers, and of gradients; they are in the order of the parameters, or as shards
 * require. */
static uint64_t parameter_bytes(const brim_plan *plan, const brim_graph *g)
{
  uint64_t bytes = 0;
  if (plan->shards) return plan->shards->value_count * brim_dtype_bytes(g->real);
  for (size_t i = 0; i < g->parameter_count; i++)
    if (!g->parameter[i].is_frozen)
      bytes += brim_round_up(g->parameter[i].value->bytes, plan->request.backend->alignment);
  return bytes;
}

static uint64_t frozen_bytes(const brim_plan *plan, const brim_graph *g)
{
  uint64_t bytes = 0;
  if (plan->request.server) return 0; /* the server's arena holds them */
  for (size_t i = 0; i < g->parameter_count; i++)
    if (g->parameter[i].is_frozen)
      bytes += brim_round_up(g->parameter[i].value->bytes, plan->request.backend->alignment);
  return bytes;
}

static uint64_t gradient_bytes(const brim_plan *plan, const brim_graph *train)
{
  uint64_t bytes = 0;
  if (plan->shards) return plan->shards->gradient_count * brim_dtype_bytes(train->real);
  for (size_t i = 0; train && i < train->tensor_count; i++)
    if (train->tensor[i]->role == BRIM_ROLE_GRADIENT && !brim_graph_is_brief(train, train->tensor[i]))
      bytes += brim_round_up(train->tensor[i]->bytes, plan->request.backend->alignment);
  return bytes;
}

/* Bytes of the caches of a plan that generates; its programs have the same ones. */
static uint64_t cache_bytes(const brim_plan *plan, const brim_graph *g)
{
  uint64_t bytes = 0;
  for (size_t i = 0; i < g->tensor_count; i++)
    if (g->tensor[i]->role == BRIM_ROLE_CACHE)
      bytes += brim_round_up(g->tensor[i]->bytes, plan->request.backend->alignment);
  return bytes;
}

/* Bytes of moving averages, which are the last of the optimizer's states, in the order of the parameters. */
static uint64_t average_bytes(const brim_plan *plan, const brim_graph *update)
{
  uint64_t bytes = 0;
  for (size_t i = update->first_average; i < update->node_count; i++)
    bytes += brim_round_up(update->node[i]->out[0]->bytes, plan->request.backend->alignment);
  return bytes;
}

/* Every program has the same persistent part: parameters, gradients and states in the order of the parameters. */
void brim_place_persistent(brim_plan *plan, const brim_graph *train, const brim_graph *eval, const brim_graph *update)
{
  const uint64_t a = plan->request.backend->alignment;
  const brim_graph *any = train ? train : eval;
  reserve(plan);
  uint64_t at = plan->reserved_bytes;
  plan->frozen_offset = at;
  plan->parameter_offset = at += frozen_bytes(plan, any);
  plan->gradient_offset = at += parameter_bytes(plan, any);
  plan->class_bytes[BRIM_ROLE_PARAMETER] = at - plan->frozen_offset;
  plan->optimizer_offset = at += plan->gradient_bytes = gradient_bytes(plan, plan->request.client ? update : train);
  plan->class_bytes[BRIM_ROLE_GRADIENT] = plan->gradient_bytes;
  for (size_t i = 0; update && i < update->tensor_count; i++)
    if (update->tensor[i]->role == BRIM_ROLE_OPTIMIZER && brim_graph_offloaded(update, update->tensor[i]) < 0)
      at += brim_round_up(update->tensor[i]->bytes, a);
  plan->class_bytes[BRIM_ROLE_OPTIMIZER] = at - plan->optimizer_offset;
  plan->evaluated_offset = plan->parameter_offset;
  if (update && brim_update_has_averages(&plan->request.update))
    plan->evaluated_offset = at - average_bytes(plan, update);
  plan->metrics_offset = at;
  for (size_t i = 0; i < plan->program_count; i++) {
    const brim_tensor *m = plan->program[i].graph->metrics;
    if (m && brim_round_up(m->bytes, a) > plan->metrics_bytes) plan->metrics_bytes = brim_round_up(m->bytes, a);
  }
  plan->squares_offset = at + plan->metrics_bytes;
  if (any->squares) plan->metrics_bytes += brim_round_up(any->squares->bytes, a);
  plan->class_weight_offset = at += plan->metrics_bytes;
  if (any->class_weight) at += brim_round_up(any->class_weight->bytes, a);
  plan->proof_offset = at;
  if (update && plan->request.update.checked) at += brim_round_up(sizeof(double), a);
  plan->class_bytes[BRIM_ROLE_DATA] = plan->reserved_bytes + at - plan->metrics_offset;
  plan->cache_offset = at;
  at += plan->class_bytes[BRIM_ROLE_CACHE] = cache_bytes(plan, any);
  plan->persistent_bytes = at;
  if (update) place_in_host(plan, update);
}

uint64_t brim_place_most_transient(const brim_plan *plan)
{
  uint64_t most = 0;
  for (size_t i = 0; i < plan->program_count; i++)
    if (plan->program[i].transient_bytes > most) most = plan->program[i].transient_bytes;
  return most;
}

/* The start of a program's transient part. If states are copied in for an update, the update's transient part lies as
 * high as possible: training uses that memory only near its peak, so it is free early for the next update's copies. */
static uint64_t transient_offset(const brim_plan *plan, const brim_program *p)
{
  const bool high = p->kind == BRIM_PROGRAM_UPDATE && p->ahead;
  return plan->persistent_bytes + (high ? brim_place_most_transient(plan) - p->transient_bytes : 0);
}

/* Whether shards place this persistent tensor. They do not place averages that evaluation uses instead of
 * parameters. */
static bool is_sharded(const brim_plan *plan, const brim_program *p, const brim_tensor *t)
{
  const bool averages = brim_program_evaluates(p) && plan->evaluated_offset != plan->parameter_offset;
  if (!plan->shards || t->role == BRIM_ROLE_GRADIENT) return plan->shards != NULL;
  return t->role == BRIM_ROLE_PARAMETER && !averages && !brim_graph_is_frozen(p->graph, t);
}

static void resolve_shards(const brim_plan *plan, brim_program *p)
{
  const brim_graph *g = p->graph;
  const uint64_t starts[BRIM_ROLE_COUNT] = {
      [BRIM_ROLE_PARAMETER] = plan->parameter_offset, [BRIM_ROLE_GRADIENT] = plan->gradient_offset};
  uint64_t *at = BRIM_ARENA_NEW(&p->graph->arena, uint64_t, g->tensor_count);
  brim_shards_find_places(plan->shards, g, at);
  for (size_t i = 0; i < g->tensor_count; i++)
    if (p->tensor_buffer[i] < 0 && is_sharded(plan, p, g->tensor[i]))
      p->tensor_offset[i] = starts[g->tensor[i]->role] + at[i] * brim_dtype_bytes(g->real);
}

/* Sets the offsets of a program's tensors: persistent ones by their order, the others by their buffers. */
void brim_place_tensors(const brim_plan *plan, brim_program *p)
{
  const brim_graph *g = p->graph;
  const uint64_t a = plan->request.backend->alignment;
  uint64_t at[BRIM_ROLE_COUNT] = {[BRIM_ROLE_PARAMETER] = plan->parameter_offset,
                                  [BRIM_ROLE_GRADIENT] = plan->gradient_offset,
                                  [BRIM_ROLE_OPTIMIZER] = plan->optimizer_offset,
                                  [BRIM_ROLE_CACHE] = plan->cache_offset};
  if (brim_program_evaluates(p)) at[BRIM_ROLE_PARAMETER] = plan->evaluated_offset;
  const brim_plan *server = plan->request.server;
  uint64_t frozen_at = server ? server->frozen_offset : plan->frozen_offset;
  /* A client's plan without a server is only timed, so its own parameters serve as the global model. */
  uint64_t shared_at[BRIM_ROLE_COUNT] = {[BRIM_ROLE_PARAMETER] = (server ? server : plan)->parameter_offset,
                                         [BRIM_ROLE_GRADIENT] = server ? server->gradient_offset : 0};
  for (size_t i = 0; i < p->buffer_count; i++) p->buffer[i].offset += transient_offset(plan, p);
  for (size_t i = 0; i < g->tensor_count; i++) {
    const brim_tensor *t = g->tensor[i];
    const int32_t buffer = p->tensor_buffer[i];
    if (t == g->metrics)
      p->tensor_offset[i] = plan->metrics_offset;
    else if (t == g->squares)
      p->tensor_offset[i] = plan->squares_offset;
    else if (t == g->class_weight)
      p->tensor_offset[i] = plan->class_weight_offset;
    else if (t == g->proof)
      p->tensor_offset[i] = plan->proof_offset;
    else if (brim_graph_is_shared(g, t)) {
      p->tensor_offset[i] = shared_at[t->role];
      shared_at[t->role] += brim_round_up(t->bytes, a);
    } else if (buffer >= 0)
      p->tensor_offset[i] = p->buffer[buffer].offset + (brim_graph_within(g, t) ? g->within[i].at : 0);
    else if (brim_graph_is_frozen(g, t)) {
      p->tensor_offset[i] = frozen_at;
      frozen_at += brim_round_up(t->bytes, a);
    } else if (brim_graph_offloaded(g, t) < 0) { /* no node of this program uses an offloaded tensor without a buffer */
      p->tensor_offset[i] = at[t->role];
      at[t->role] += brim_round_up(t->bytes, a);
    }
  }
  if (plan->shards) resolve_shards(plan, p);
}
