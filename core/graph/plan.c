/* Makes plans: the backend prepares programs (layouts, scratch); then they are laid out and placed after the persistent
 * part. */
#include "graph/plan.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "graph/buckets.h"
#include "graph/collectives.h"
#include "graph/counts.h"
#include "graph/federate.h"
#include "graph/fuse.h"
#include "graph/generate.h"
#include "graph/layout.h"
#include "graph/offload.h"
#include "graph/overwritten.h"
#include "graph/place.h"

const char *brim_role_name(uint32_t role)
{
  static const char *const names[] = {
#define X(name, value, text) [value] = text,
      BRIM_ROLE_MAP(X)
#undef X
  };
  return role < BRIM_ROLE_COUNT ? names[role] : "?";
}

static const brim_kernel *find_kernel(const brim_backend_ops *backend, const char *op)
{
  for (const brim_kernel *const *k = backend->kernels; k < backend->kernels_end; k++)
    if ((*k)->op[0] == op[0] && strcmp((*k)->op, op) == 0) return *k;
  return NULL;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
  return a > b ? a : b;
}

static bool offers(const void *backend, const char *op)
{
  return find_kernel(backend, op) != NULL;
}

/* Returns a node's kernel. An earlier node often has the same, because layers repeat. */
static const brim_kernel *kernel_of(const brim_program *p, const brim_backend_ops *backend, const brim_node *n)
{
  for (size_t back = 1; back <= 32 && back <= n->index; back++)
    if (p->graph->node[n->index - back]->descriptor == n->descriptor) return p->kernel[n->index - back];
  return find_kernel(backend, n->op);
}

/* Lets the backend choose layouts and scratch, node by node. */
static brim_status prepare_nodes(const brim_plan *plan, brim_program *p)
{
  brim_graph *g = p->graph;
  const brim_backend_ops *backend = plan->request.backend;
  p->kernel = BRIM_ARENA_NEW(&g->arena, const brim_kernel *, g->node_count);
  p->state = BRIM_ARENA_NEW(&g->arena, void *, g->node_count);
  p->need = BRIM_ARENA_NEW(&g->arena, brim_kernel_need, g->node_count);
  for (size_t i = 0; i < g->node_count; i++) {
    const brim_node *n = g->node[i];
    p->kernel[i] = kernel_of(p, backend, n);
    if (!p->kernel[i]) return brim_fail(BRIM_ENOTSUP, "the backend has no operation '%s' (node '%s')", n->op, n->name);
    if (p->kernel[i]->prepare)
      BRIM_TRY(p->kernel[i]->prepare(plan->request.backend_self, &p->info, n, &p->need[i], &p->state[i]));
    const brim_cost cost = brim_op_cost(n);
    p->cost.flops += cost.flops;
    p->cost.bytes += cost.bytes;
  }
  return BRIM_OK;
}

/* Finds the peak of a federation: that of all lanes together, unless the server's own programs need more. */
static bool find_peak_of_lanes(brim_plan *plan, uint64_t transient, uint64_t live)
{
  const brim_plan *lane = plan->lane[0];
  const uint64_t lanes = (uint64_t)plan->request.lanes, all = lanes * plan->lane_bytes;
  if (transient > all) return false;
  plan->peak_bytes = plan->persistent_bytes + all;
  plan->lower_bound_bytes = plan->persistent_bytes + larger(live, lanes * lane->lower_bound_bytes);
  for (uint32_t r = 0; r < BRIM_ROLE_COUNT; r++) plan->class_bytes[r] += lanes * lane->class_bytes[r];
  plan->peak_op = lane->peak_op;
  return true;
}

/* The peak is that of the program with the largest transient part. */
static void find_peak(brim_plan *plan)
{
  uint64_t live = 0, transient = brim_place_most_transient(plan);
  for (size_t i = 0; i < plan->program_count; i++) {
    const brim_program *p = &plan->program[i];
    if (p->live_bytes > live) {
      live = p->live_bytes;
      plan->peak_program = i;
    }
  }
  const brim_program *peak = &plan->program[plan->peak_program];
  if (plan->lane_count > 0 && find_peak_of_lanes(plan, transient, live)) return;
  plan->peak_bytes = plan->persistent_bytes + transient;
  plan->lower_bound_bytes = plan->persistent_bytes + live;
  for (uint32_t r = 0; r < BRIM_ROLE_COUNT; r++) plan->class_bytes[r] += peak->live_class[r];
  if (peak->graph->node_count == 0) return;
  const brim_node *n = peak->graph->node[peak->live_node];
  plan->peak_op = brim_arena_printf(&plan->arena, "%s '%s'", n->op, n->name);
}

/* Whether states are copied while kernels run. */
static bool copies_ahead(const brim_plan *plan)
{
  return BRIM_HAS(brim_backend_ops, plan->request.backend, wait);
}

/* Prepares a program for a graph, and finds its buffers. Takes ownership of the graph, even on failure. */
static brim_status compile_program(const brim_plan *plan, brim_program *p, enum brim_program_kind kind, int64_t batch,
                                   brim_graph *graph)
{
  *p = (brim_program){.kind = kind, .graph = graph, .window_last = -1};
  p->info = (brim_program_info){batch, plan->request.grain, kind == BRIM_PROGRAM_TRAIN};
  BRIM_TRY(prepare_nodes(plan, p));
  brim_offload_find_groups(p, plan->request.backend->alignment, copies_ahead(plan));
  brim_layout_find(p, plan->request.backend->alignment);
  return BRIM_OK;
}

static brim_status add_program(brim_plan *plan, enum brim_program_kind kind, int64_t batch, brim_graph *graph)
{
  return compile_program(plan, &plan->program[plan->program_count++], kind, batch, graph);
}

static void release_kernels(const brim_plan *plan, brim_program *p)
{
  for (size_t n = 0; p->state && n < p->graph->node_count; n++)
    if (p->state[n] && p->kernel[n]->release) p->kernel[n]->release(plan->request.backend_self, p->state[n]);
  p->state = NULL;
}

static void release_program(const brim_plan *plan, brim_program *p)
{
  release_kernels(plan, p);
  brim_graph_free(p->graph);
  *p = (brim_program){0};
}

/* Whether the shards fit this graph's gradients. If they do not, check_alike reports that the gradients differ from the
 * first graph's. */
static bool is_like_shards(const brim_shards *s, const brim_graph *g)
{
  return s && s->gradients && s->parameter_count == g->parameter_count && s->further_count == g->further_count;
}

/* Builds the graph of a batch shape. merges_loss: merges a loss that includes its product with its gradient
 * (brim_graph_fuse_loss), which recompute must treat separately. */
static brim_status build_graph(const brim_plan *plan, const brim_batch_shape *shape, bool merges_loss, brim_graph **out)
{
  brim_graph_options options = plan->request.graph;
  options.batch = shape->batch;
  options.training = shape->kind == BRIM_PROGRAM_TRAIN;
  if (plan->request.keep_answers && !options.training) options.keep_output = true;
  if (plan->request.keep_token_losses && !options.training) options.keep_token_losses = true;
  options.generation.tokens = shape->tokens;
  options.folds_later = plan->request.update.op && !plan->request.update.in_backward;
  options.offers = offers;
  options.offers_arg = plan->request.backend;
  const enum brim_recompute_kind kind = plan->request.recompute;
  const bool blocks = kind == BRIM_RECOMPUTE_BLOCKS || kind == BRIM_RECOMPUTE_FULL;
  /* If a whole block is recomputed, its end needs less memory as separate nodes: relu's gradient frees its operands
   * before the gradient of the norm needs x. */
  if (options.training && blocks) options.fuse &= ~(uint64_t)BRIM_FUSE_NORM_ADD;
  brim_count(BRIM_COUNTED_GRAPHS);
  BRIM_TRY(brim_graph_build(&options, out));
  if (options.training && merges_loss) brim_graph_fuse_loss(*out);
  if (!options.training || !plan->request.update.op) return BRIM_OK;
  brim_status status = BRIM_OK;
  if (plan->request.update.in_backward) status = brim_graph_update_in_backward(*out, &plan->request.update);
  if (is_like_shards(plan->shards, *out)) status = brim_graph_shard_gradients(*out, plan->shards);
  if (status != BRIM_OK) brim_graph_free(*out);
  return status;
}

/* Makes the shards from the first training graph, whose gradients are whole until then. */
static brim_status share_out(brim_plan *plan, brim_graph *train)
{
  const brim_plan_request *r = &plan->request;
  if (r->shard == BRIM_SHARD_NONE || r->world.ranks <= 1 || !r->update.op || plan->shards) return BRIM_OK;
  if (r->update.in_backward)
    return brim_fail(
        BRIM_ECONFIG,
        "dist.shard cannot be combined with optimizer.update=fused_backward: a rank can update its part of the "
        "parameters only after the gradients of all ranks are added up\nset dist.shard=none or optimizer.update=step");
  assert(BRIM_SHARD_ELEMENTS * brim_dtype_bytes(train->real) % r->backend->alignment == 0);
  const bool gradients = r->shard == BRIM_SHARD_GRADIENTS;
  uint64_t bucket_bytes = brim_buckets_size(train, r->bucket_bytes);
  if (gradients) bucket_bytes = brim_shards_bucket_bytes(train, bucket_bytes);
  plan->shards = brim_shards_make(&plan->arena, train, &r->world, gradients, bucket_bytes);
  plan->request.update.shards = plan->shards;
  return gradients ? brim_graph_shard_gradients(train, plan->shards) : BRIM_OK;
}

/* ---- recompute ---- */

/* Replaces the program by one whose graph drops nothing and has no node that recompute cannot divide. The new program
 * computes logits twice. */
static brim_status rebuild(const brim_plan *plan, brim_program *p)
{
  const brim_batch_shape shape = {p->kind, p->info.batch};
  brim_graph *g = NULL;
  BRIM_TRY(build_graph(plan, &shape, false, &g));
  release_program(plan, p);
  return compile_program(plan, p, shape.kind, shape.batch, g);
}

/* Drops the tensors of a recompute level, instead of those of another level. */
static brim_status use_level(const brim_plan *plan, brim_program *p, const brim_recompute *r, uint32_t level)
{
  brim_graph *g = p->graph;
  release_kernels(plan, p);
  if (brim_recompute_apply(g, r, level) != BRIM_OK) return brim_fail(g->status, "%s", g->error);
  if (g->passes) BRIM_TRY(brim_graph_check_updates(g));
  return compile_program(plan, p, p->kind, p->info.batch, g);
}

/* Whether the program fits into `room`; places it only if it might. */
static bool fits(brim_program *p, uint64_t room)
{
  if (p->live_bytes > room) return false;
  brim_layout_place(p);
  return p->transient_bytes <= room;
}

/* Uses the first level that keeps the transient part within `room`; skips levels whose bytes alone exceed it. */
static brim_status use_fitting(const brim_plan *plan, brim_program *p, const brim_recompute *r, uint64_t room)
{
  for (uint32_t level = 0; level <= r->levels && !fits(p, room); level++)
    if (r->bytes[level] <= room) BRIM_TRY(use_level(plan, p, r, level));
  return BRIM_OK;
}

/* Uses the level that needs the least memory. A level before the last may need less because of gaps between buffers,
 * but never less than its own bytes. */
static brim_status use_least(const brim_plan *plan, brim_program *p, const brim_recompute *r)
{
  uint64_t least = UINT64_MAX;
  uint32_t best = 0, at = 0;
  for (uint32_t level = r->levels + 1; level-- > 0 && r->bytes[level] < least;) {
    BRIM_TRY(use_level(plan, p, r, at = level));
    if (!fits(p, least - 1)) continue;
    least = p->transient_bytes;
    best = level;
  }
  return at == best ? BRIM_OK : use_level(plan, p, r, best);
}

static brim_status recompute_program(const brim_plan *plan, brim_program *p, uint64_t room)
{
  const enum brim_recompute_kind kind = plan->request.recompute;
  if (kind == BRIM_RECOMPUTE_AUTO && fits(p, room)) return BRIM_OK;
  if (p->graph->merges_loss) BRIM_TRY(rebuild(plan, p));
  if (kind == BRIM_RECOMPUTE_AUTO && fits(p, room)) return BRIM_OK;
  brim_recompute_cache own = {0};
  const brim_recompute *r = brim_recompute_levels(plan->request.levels ? plan->request.levels : &own, p, kind);
  brim_status status = BRIM_OK;
  if (kind == BRIM_RECOMPUTE_AUTO) {
    status = use_fitting(plan, p, r, room);
    if (status == BRIM_OK && !fits(p, room)) status = use_least(plan, p, r);
  } else {
    status = use_level(plan, p, r, 1);
  }
  brim_recompute_cache_release(&own);
  return status;
}

/* Returns the bytes that a budget leaves for the transient part. */
static uint64_t transient_room(const brim_plan *plan, uint64_t budget)
{
  const uint64_t persistent = plan->persistent_bytes;
  return budget == 0 ? UINT64_MAX : budget > persistent ? budget - persistent : 0;
}

static brim_status recompute(brim_plan *plan)
{
  const brim_plan_request *r = &plan->request;
  const uint64_t room = transient_room(plan, r->budget_bytes);
  if (r->recompute == BRIM_RECOMPUTE_NONE) return BRIM_OK;
  for (size_t i = 0; i < plan->program_count; i++)
    if (plan->program[i].kind == BRIM_PROGRAM_TRAIN) BRIM_TRY(recompute_program(plan, &plan->program[i], room));
  return BRIM_OK;
}

static bool same_shapes(brim_tensor *const *a, brim_tensor *const *b, uint32_t count)
{
  for (uint32_t k = 0; k < count; k++)
    if (!brim_shape_equal(&a[k]->shape, &b[k]->shape)) return false;
  return true;
}

/* Returns the next forward node without samples from index i on, or NULL. */
static const brim_node *next_without_samples(const brim_graph *g, size_t *i)
{
  while (*i < g->forward_count && brim_node_has_samples(g, g->node[*i])) ++*i;
  return *i < g->forward_count ? g->node[(*i)++] : NULL;
}

/* Whether two training graphs have the same sums of gradients, and the same nodes on parameters alone. */
static bool uses_alike(const brim_graph *a, const brim_graph *b)
{
  if (a->further_count != b->further_count) return false;
  for (size_t i = 0; i < a->further_count; i++)
    if (a->further[i].parameter != b->further[i].parameter ||
        !brim_shape_equal(&a->further[i].gradient->shape, &b->further[i].gradient->shape))
      return false;
  size_t at_a = 0, at_b = 0;
  for (;;) {
    const brim_node *x = next_without_samples(a, &at_a), *y = next_without_samples(b, &at_b);
    if (!x || !y) return !x && !y;
    /* Attributes are compared byte by byte, like their hashes. NOLINTBEGIN(bugprone-suspicious-memory-comparison) */
    if (x->descriptor != y->descriptor || x->in_count != y->in_count || x->out_count != y->out_count ||
        memcmp(&x->attr, &y->attr, sizeof x->attr) != 0 || !same_shapes(x->in, y->in, x->in_count) ||
        !same_shapes(x->out, y->out, x->out_count))
      return false;
    /* NOLINTEND(bugprone-suspicious-memory-comparison) */
  }
}

/* Checks that parameters and gradients have the same places in every program. `train`: a training graph before g, or
 * NULL. */
static brim_status check_alike(const brim_graph *first, const brim_graph *train, const brim_graph *g)
{
  if (brim_graph_hash(g) != brim_graph_hash(first))
    return brim_fail(BRIM_EINVAL,
                     "the model builds different parameters for N = %lld and N = %lld: no parameter's name or shape "
                     "may depend on the first dimension",
                     (long long)g->batch, (long long)first->batch);
  if (!train || !g->training) return BRIM_OK;
  if (uses_alike(train, g)) return BRIM_OK;
  return brim_fail(BRIM_EINVAL,
                   "the model uses its parameters differently for N = %lld and N = %lld: how often each is used, and "
                   "which tensors are computed from parameters alone, must not depend on the first dimension",
                   (long long)g->batch, (long long)train->batch);
}

/* ---- federations ---- */

/* Adds a client's programs other than training to its plan. */
static brim_status add_client_programs(brim_plan *plan, const brim_graph *train)
{
  static const struct {
    enum brim_program_kind kind;
    brim_status (*build)(const brim_graph *like, brim_graph **out);
  } programs[] = {{BRIM_PROGRAM_ADOPT, brim_graph_build_adopt},
                  {BRIM_PROGRAM_DISTANCE, brim_graph_build_distance},
                  {BRIM_PROGRAM_FOLD, brim_graph_build_fold},
                  {BRIM_PROGRAM_FOLD_CONTROL, brim_graph_build_fold_control}};
  for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
    brim_graph *g = NULL;
    if (programs[i].kind == BRIM_PROGRAM_FOLD_CONTROL && !plan->request.update.controlled) continue;
    BRIM_TRY(programs[i].build(train, &g));
    BRIM_TRY(add_program(plan, programs[i].kind, 0, g));
  }
  return BRIM_OK;
}

/* Plans a lane for each client that trains at the same time, one after another in the arena. */
static brim_status add_lanes(brim_plan *plan)
{
  const brim_plan_request *r = &plan->request;
  const int32_t count = r->plans_one_lane || r->lanes == 0 ? 1 : r->lanes;
  assert(r->lanes <= 1 || BRIM_HAS(brim_backend_ops, r->backend, lane));
  plan->lane = BRIM_ARENA_NEW(&plan->arena, brim_plan *, count);
  for (; plan->lane_count < count; plan->lane_count++) {
    brim_plan_request client = *r->client;
    client.server = plan;
    if (client.budget_bytes > 0 && r->lanes > 0) { /* the budget covers all lanes and the server */
      const uint64_t all = larger(client.budget_bytes, plan->persistent_bytes) - plan->persistent_bytes;
      client.budget_bytes = larger(all / (uint64_t)r->lanes, 1); /* 0 would be no limit */
    }
    client.backend_self = r->backend_self;
    if (r->lanes > 1) BRIM_TRY(r->backend->lane(r->backend_self, r->lanes, &client.backend_self));
    const brim_status status = brim_plan_create(&client, &plan->lane[plan->lane_count]);
    if (status != BRIM_OK) {
      if (r->lanes > 1) r->backend->drop_lane(r->backend_self, client.backend_self);
      return status;
    }
  }
  plan->lane_bytes = brim_round_up(plan->lane[0]->peak_bytes, r->backend->alignment);
  for (int32_t i = 1; i < count; i++)
    if (plan->lane[i]->peak_bytes != plan->lane[0]->peak_bytes)
      return brim_fail(BRIM_EINTERNAL, "lanes of a federation differ: %llu bytes and %llu bytes",
                       (unsigned long long)plan->lane[0]->peak_bytes, (unsigned long long)plan->lane[i]->peak_bytes);
  return BRIM_OK;
}

static void free_lanes(brim_plan *plan)
{
  const brim_plan_request *r = &plan->request;
  for (int32_t i = 0; i < plan->lane_count; i++) {
    void *self = plan->lane[i]->request.backend_self;
    brim_plan_free(plan->lane[i]);
    if (self != r->backend_self) r->backend->drop_lane(r->backend_self, self);
  }
}

static brim_status create(brim_plan *plan)
{
  const brim_plan_request *r = &plan->request;
  assert(r->shape_count >= 1 && r->shape_count <= BRIM_PROGRAMS_MAX);
  const brim_graph *train = NULL, *eval = NULL;
  for (size_t i = 0; i < r->shape_count; i++) {
    brim_graph *g = NULL;
    const bool merges_loss = r->recompute == BRIM_RECOMPUTE_NONE || r->recompute == BRIM_RECOMPUTE_AUTO;
    BRIM_TRY(build_graph(plan, &r->shape[i], merges_loss, &g));
    const brim_status status = g->training ? share_out(plan, g) : BRIM_OK;
    if (status != BRIM_OK) {
      brim_graph_free(g);
      return status;
    }
    BRIM_TRY(add_program(plan, r->shape[i].kind, r->shape[i].batch, g));
    BRIM_TRY(check_alike(plan->program[0].graph, train, g));
    if (g->generation.capacity > 0 && !brim_generate_is_alike(plan->program[0].graph, g))
      return brim_fail(BRIM_EINVAL, "the model has other caches of attention for %lld tokens than for %lld",
                       (long long)r->shape[i].tokens, (long long)r->shape[0].tokens);
    if (g->training) train = g;
    if (!g->training) eval = g;
  }
  brim_graph *update = NULL;
  if (train && r->update.op && r->update.checked) {
    brim_graph *check = NULL;
    BRIM_TRY(brim_graph_build_check(train, plan->shards, &check));
    BRIM_TRY(add_program(plan, BRIM_PROGRAM_CHECK, 0, check));
  }
  if (train && r->update.op) {
    BRIM_TRY(brim_graph_build_update(train, &r->update, &update));
    BRIM_TRY(add_program(plan, BRIM_PROGRAM_UPDATE, 0, update));
  }
  if (r->server) BRIM_TRY(add_client_programs(plan, train));
  if (r->client) {
    BRIM_TRY(brim_graph_build_serve(eval, &r->update, &update));
    BRIM_TRY(add_program(plan, BRIM_PROGRAM_UPDATE, 0, update));
  }
  brim_place_persistent(plan, train, eval, update);
  BRIM_TRY(recompute(plan));
  for (size_t i = 0; i < plan->program_count; i++)
    if (BRIM_HAS(brim_backend_ops, r->backend, run_program))
      brim_layout_place_casts_first(&plan->program[i]);
    else
      brim_layout_place(&plan->program[i]);
  if (r->accumulates) brim_layout_keep_casts(plan);
  for (size_t i = 0; i < plan->program_count; i++) brim_place_tensors(plan, &plan->program[i]);
  brim_overwritten_find(plan);
  brim_buckets_make(plan);
  for (size_t i = 0; i < plan->program_count; i++)
    if (plan->program[i].kind == BRIM_PROGRAM_TRAIN) brim_buckets_find_ready(plan, &plan->program[i]);
  for (size_t i = 0; i < plan->program_count; i++) brim_collectives_find(plan, &plan->program[i]);
  if (plan->host_bytes > 0 && copies_ahead(plan)) brim_offload_find_window(plan);
  brim_buckets_cut(plan);
  if (r->client) BRIM_TRY(add_lanes(plan));
  find_peak(plan);
  return BRIM_OK;
}

brim_status brim_plan_create(const brim_plan_request *request, brim_plan **out)
{
  brim_plan *plan = brim_xcalloc(1, sizeof *plan);
  plan->request = *request;
  brim_count(BRIM_COUNTED_PLANS);
  const brim_status status = create(plan);
  if (status != BRIM_OK) {
    brim_plan_free(plan);
    return status;
  }
  assert(brim_plan_check(plan) == BRIM_OK);
  *out = plan;
  return BRIM_OK;
}

brim_plan *brim_plan_share(brim_plan *plan)
{
  plan->sharers++;
  return plan;
}

void brim_plan_free(brim_plan *plan)
{
  if (!plan || plan->sharers-- > 0) return;
  free_lanes(plan);
  for (size_t i = 0; i < plan->program_count; i++) release_program(plan, &plan->program[i]);
  brim_arena_release(&plan->arena);
  free(plan);
}

/* recompute=auto takes the first level that fits. So a smaller budget gives the same level if that level's plan still
 * fits. If no level fits, none fits a smaller budget either. */
bool brim_plan_is_same_within(const brim_plan *plan, uint64_t budget)
{
  const uint64_t was = transient_room(plan, plan->request.budget_bytes), room = transient_room(plan, budget);
  if (plan->request.recompute != BRIM_RECOMPUTE_AUTO || room == was) return true;
  for (size_t i = 0; i < plan->program_count; i++) {
    const uint64_t bytes = plan->program[i].transient_bytes;
    if (plan->program[i].kind == BRIM_PROGRAM_TRAIN && (room > was || (bytes <= was && bytes > room))) return false;
  }
  return true;
}

const brim_program *brim_plan_program(const brim_plan *plan, enum brim_program_kind kind, int64_t batch)
{
  for (size_t i = 0; i < plan->program_count; i++)
    if (plan->program[i].kind == kind && (kind >= BRIM_PROGRAM_CHECK || plan->program[i].info.batch == batch))
      return &plan->program[i];
  return NULL;
}

const brim_program *brim_plan_generation(const brim_plan *plan, int64_t tokens)
{
  for (size_t i = 0; i < plan->program_count; i++)
    if (plan->program[i].kind == BRIM_PROGRAM_GENERATE && plan->program[i].graph->generation.tokens == tokens)
      return &plan->program[i];
  return NULL;
}

uint64_t brim_plan_trained(const brim_plan *plan)
{
  const brim_graph *g = plan->program[0].graph;
  uint64_t count = 0;
  for (size_t i = 0; i < g->parameter_count; i++)
    if (brim_parameter_is_trained(&g->parameter[i])) count += (uint64_t)brim_shape_count(&g->parameter[i].value->shape);
  return count;
}

uint64_t brim_plan_parameters(const brim_plan *plan)
{
  const brim_graph *g = plan->program[0].graph;
  uint64_t count = 0;
  for (size_t i = 0; i < g->parameter_count; i++)
    if (!g->parameter[i].is_buffer) count += (uint64_t)brim_shape_count(&g->parameter[i].value->shape);
  return count;
}

brim_status brim_plan_check(const brim_plan *plan)
{
  for (size_t i = 0; i < plan->program_count; i++) {
    const brim_program *p = &plan->program[i];
    BRIM_TRY(brim_collectives_check(plan, p));
    for (size_t a = 0; a < p->buffer_count; a++) {
      const brim_buffer *x = &p->buffer[a];
      if (x->offset < plan->persistent_bytes || x->offset + x->bytes > plan->peak_bytes)
        return brim_fail(BRIM_EINTERNAL, "program %zu: buffer %zu lies outside the arena", i, a);
      for (size_t b = a + 1; b < p->buffer_count; b++) {
        const brim_buffer *y = &p->buffer[b];
        const bool together = x->first <= y->last && y->first <= x->last;
        const bool overlap = x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes;
        if (together && overlap) return brim_fail(BRIM_EINTERNAL, "program %zu: buffers %zu and %zu overlap", i, a, b);
      }
    }
  }
  return BRIM_OK;
}
