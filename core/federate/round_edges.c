/* See round_edges.h. */
#include "federate/round_edges.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/convert.h"
#include "base/log.h"
#include "federate/edges.h"
#include "federate/fold.h"
#include "federate/round_parts.h"
#include "graph/federate.h"

#define NO_RANK (-1)

struct brim_edges {
  brim_arena arena; /* owns all arrays */
  int64_t edges, rounds;
  double *load;  /* [edges] samples of the edge's clients in the round */
  int32_t *rank; /* [edges] the rank that trains the edge's clients; NO_RANK: not assigned yet */
  /* set when a plan has been placed */
  char *start;               /* the global model of the round */
  double *total;             /* the sum of the edges' weighted changes */
  double *sum, *own, *begin; /* room for the largest parameter */
};

brim_status brim_edges_open(const brim_setup *setup, brim_edges **out)
{
  const brim_federate_settings *s = &setup->settings->federate;
  *out = NULL;
  if (s->edge_rounds == 1 || !s->train) return BRIM_OK;
  brim_edges *e = brim_try_calloc(1, sizeof *e);
  if (!e) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for edges");
  *e = (brim_edges){.edges = s->edges, .rounds = s->edge_rounds};
  if (BRIM_ARENA_TRY(&e->arena, e->load, s->edges) && BRIM_ARENA_TRY(&e->arena, e->rank, s->edges)) {
    *out = e;
    return BRIM_OK;
  }
  brim_edges_close(e);
  return brim_fail(BRIM_ENOMEM_HOST, "no host memory for %lld edges", (long long)s->edges);
}

void brim_edges_close(brim_edges *e)
{
  if (!e) return;
  brim_arena_release(&e->arena);
  free(e);
}

brim_status brim_edges_place(brim_federation *f)
{
  brim_edges *e = f->edges;
  if (!e || e->start) return BRIM_OK;
  const brim_graph *g = brim_federation_serve(f)->graph;
  const size_t largest = (size_t)brim_graph_largest(g, true), values = (size_t)brim_graph_sent(g, true);
  if (BRIM_ARENA_TRY(&e->arena, e->sum, largest) && BRIM_ARENA_TRY(&e->arena, e->own, largest) &&
      BRIM_ARENA_TRY(&e->arena, e->begin, largest) && BRIM_ARENA_TRY(&e->arena, e->total, values) &&
      BRIM_ARENA_TRY(&e->arena, e->start, values * brim_dtype_bytes(g->real)))
    return BRIM_OK;
  return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the models of edges");
}

/* ---- ranks ---- */

static int64_t edge_of(const brim_federation *f, int64_t place)
{
  return f->selected[place] % f->edges->edges;
}

/* Assigns edges in the order of their largest clients, each to the rank that would finish first. */
void brim_edges_distribute(brim_federation *f)
{
  brim_edges *e = f->edges;
  const int32_t ranks = f->setup->world.ranks;
  double *load = f->load;
  memset(load, 0, (size_t)ranks * sizeof *load);
  for (int64_t k = 0; k < f->clients; k++) {
    e->load[edge_of(f, k)] = 0;
    e->rank[edge_of(f, k)] = NO_RANK;
  }
  for (int64_t k = 0; k < f->clients; k++) e->load[edge_of(f, k)] += f->client[k].load;
  for (int64_t i = 0; i < f->clients; i++) {
    const int64_t k = f->order[i], edge = edge_of(f, k);
    int32_t first = 0;
    for (int32_t r = 1; r < ranks && e->rank[edge] == NO_RANK; r++)
      if ((load[r] + e->load[edge]) / f->speed[r] < (load[first] + e->load[edge]) / f->speed[first]) first = r;
    if (e->rank[edge] == NO_RANK) {
      load[first] += e->load[edge];
      e->rank[edge] = first;
    }
    f->rank[k] = e->rank[edge];
  }
}

/* ---- a pass over the parameters that clients send ---- */

typedef struct pass {
  brim_federation *federation;
  double weight;     /* weight of the edge's clients */
  bool has_diverged; /* a parameter of the edge has moved too far, or is not finite */
} pass;

/* Handles a parameter whose values begin at value `first` of the model; `sum`: the clients' sum for it. */
typedef brim_status (*parameter_fn)(pass *p, const brim_tensor *value, const brim_tensor *sum, int64_t first);

static brim_status for_each_parameter(pass *p, parameter_fn handle)
{
  const brim_graph *g = brim_federation_serve(p->federation)->graph;
  int64_t first = 0;
  for (size_t i = 0; i < g->parameter_count; i++) {
    if (!brim_parameter_is_sent(&g->parameter[i])) continue;
    const brim_tensor *sum = brim_graph_sum_of(g, i);
    if (!sum) return brim_fail(BRIM_EINTERNAL, "the server has no sum for '%s'", g->parameter[i].value->name);
    BRIM_TRY(handle(p, g->parameter[i].value, sum, first));
    first += brim_shape_count(&g->parameter[i].value->shape);
  }
  return BRIM_OK;
}

static char *start_of(const pass *p, const brim_tensor *value, int64_t first)
{
  return p->federation->edges->start + (size_t)first * brim_dtype_bytes(value->dtype);
}

static brim_status keep_start(pass *p, const brim_tensor *value, const brim_tensor *sum, int64_t first)
{
  (void)sum;
  return brim_exec_read(p->federation->exec, brim_federation_serve(p->federation), value, start_of(p, value, first));
}

static brim_status put_start(pass *p, const brim_tensor *value, const brim_tensor *sum, int64_t first)
{
  (void)sum;
  return brim_exec_write(p->federation->exec, brim_federation_serve(p->federation), value, start_of(p, value, first));
}

/* Makes the edge's model the mean of its clients' models. */
static brim_status average(pass *p, const brim_tensor *value, const brim_tensor *sum, int64_t first)
{
  const brim_federation *f = p->federation;
  const brim_edges *e = f->edges;
  const int64_t count = brim_shape_count(&value->shape);
  (void)first;
  BRIM_TRY(brim_exec_read(f->exec, brim_federation_serve(f), sum, e->sum));
  BRIM_TRY(brim_exec_read_as(f->exec, brim_federation_serve(f), value, BRIM_DTYPE_F64, e->own));
  for (int64_t i = 0; i < count; i++) e->own[i] += e->sum[i] / p->weight;
  return brim_exec_write_as(f->exec, brim_federation_serve(f), value, BRIM_DTYPE_F64, e->own);
}

static brim_status read_change(const pass *p, const brim_tensor *value, int64_t first)
{
  const brim_federation *f = p->federation;
  const brim_edges *e = f->edges;
  const int64_t count = brim_shape_count(&value->shape);
  BRIM_TRY(brim_exec_read_as(f->exec, brim_federation_serve(f), value, BRIM_DTYPE_F64, e->own));
  brim_convert(BRIM_DTYPE_F64, e->begin, value->dtype, start_of(p, value, first), (size_t)count);
  for (int64_t i = 0; i < count; i++) e->own[i] -= e->begin[i];
  return BRIM_OK;
}

static brim_status check_change(pass *p, const brim_tensor *value, const brim_tensor *sum, int64_t first)
{
  (void)sum;
  BRIM_TRY(read_change(p, value, first));
  for (int64_t i = 0; i < brim_shape_count(&value->shape); i++)
    if (!(fabs(p->federation->edges->own[i]) < BRIM_FOLD_MOST)) p->has_diverged = true;
  return BRIM_OK;
}

/* Adds as fold in brim/ops.h does, so that the sum does not depend on the order of edges and ranks. */
static brim_status add_change(pass *p, const brim_tensor *value, const brim_tensor *sum, int64_t first)
{
  const brim_edges *e = p->federation->edges;
  (void)sum;
  BRIM_TRY(read_change(p, value, first));
  for (int64_t i = 0; i < brim_shape_count(&value->shape); i++)
    e->total[first + i] += rint(e->own[i] * p->weight / BRIM_FOLD_GRID) * BRIM_FOLD_GRID;
  return BRIM_OK;
}

static brim_status put_total(pass *p, const brim_tensor *value, const brim_tensor *sum, int64_t first)
{
  (void)value;
  return brim_exec_write(p->federation->exec, brim_federation_serve(p->federation), sum,
                         p->federation->edges->total + first);
}

/* ---- an edge ---- */

/* Lists the clients of this rank's edge that still take part. */
static void list_turns(brim_federation *f, int64_t edge)
{
  f->turns = 0;
  for (int64_t i = 0; i < f->clients; i++)
    if (edge_of(f, f->order[i]) == edge && !f->client[f->order[i]].is_done) f->turn[f->turns++] = f->order[i];
}

/* Adds a client's figures of the edge's earlier rounds to those of the current round; for norm and sketch, the last
 * values count. */
static void add_figures(brim_client_result *now, const brim_client_result *before)
{
  now->samples += before->samples;
  now->loss += before->loss;
  now->correct += before->correct;
  now->squares += before->squares;
  now->counted += before->counted;
  now->tokens += before->tokens;
}

/* Makes a round of the edge: trains its clients from its model. Clients that diverge take no further part. */
static brim_status make_edge_round(brim_federation *f, int64_t round, brim_client_result *before)
{
  for (int32_t i = 0; i < f->lanes; i++) BRIM_TRY(brim_exec_wait(f->worker[i].lane.exec));
  BRIM_TRY(brim_exec_zero_gradients(f->exec));
  BRIM_TRY(brim_exec_wait(f->exec));
  for (int64_t i = 0; i < f->turns; i++) {
    brim_client_result *c = &f->client[f->turn[i]];
    before[i] = *c;
    c->number = f->round * f->edges->rounds + round;
    c->samples = 0;
    c->counted = c->tokens = 0;
  }
  BRIM_TRY(brim_federation_work(f));
  for (int64_t i = 0; i < f->turns && round > 0; i++) add_figures(&f->client[f->turn[i]], &before[i]);
  return BRIM_OK;
}

/* Returns the weight of the clients that still take part; all others have diverged. */
static double count_weight(const brim_federation *f)
{
  double weight = 0;
  for (int64_t i = 0; i < f->turns; i++)
    if (f->client[f->turn[i]].arrived) weight += f->client[f->turn[i]].weight;
  return weight;
}

/* Between the rounds of an edge: marks the clients that take part in its next round as not done. */
static void go_on(brim_federation *f)
{
  for (int64_t i = 0; i < f->turns; i++) {
    brim_client_result *c = &f->client[f->turn[i]];
    if (c->arrived) c->is_done = c->arrived = false;
  }
}

static brim_status train_edge(brim_federation *f, int64_t edge, brim_client_result *before)
{
  pass p = {.federation = f};
  for (int64_t round = 0; round < f->edges->rounds; round++) {
    if (round > 0) go_on(f);
    list_turns(f, edge);
    if (f->turns == 0) return BRIM_OK; /* all have diverged */
    BRIM_TRY(make_edge_round(f, round, before));
    p.weight = count_weight(f);
    if (p.weight > 0) BRIM_TRY(for_each_parameter(&p, average));
  }
  if (!(p.weight > 0)) return BRIM_OK;
  BRIM_TRY(for_each_parameter(&p, check_change));
  if (!p.has_diverged) return for_each_parameter(&p, add_change);
  for (int64_t i = 0; i < f->turns; i++) f->client[f->turn[i]].arrived = false;
  brim_log(BRIM_LOG_WARN, "round %lld: edge %lld has diverged; its clients' updates are left out",
           (long long)f->round + 1, (long long)edge);
  return BRIM_OK;
}

/* Returns an edge of this rank with clients that still have to train; -1: there is none. */
static int64_t next_edge(const brim_federation *f)
{
  for (int64_t i = 0; i < f->clients; i++)
    if (f->rank[i] == f->setup->world.rank && !f->client[i].is_done) return edge_of(f, i);
  return -1;
}

static brim_status train_edges(brim_federation *f, brim_client_result *before)
{
  pass p = {.federation = f};
  memset(f->edges->total, 0, (size_t)brim_graph_sent(brim_federation_serve(f)->graph, true) * sizeof *f->edges->total);
  BRIM_TRY(for_each_parameter(&p, keep_start));
  brim_status status = BRIM_OK;
  for (int64_t edge = next_edge(f); edge >= 0 && status == BRIM_OK; edge = next_edge(f)) {
    status = train_edge(f, edge, before);
    brim_error error;
    if (status != BRIM_OK) brim_error_take(&error);
    for (int32_t i = 0; i < f->lanes; i++) (void)brim_exec_wait(f->worker[i].lane.exec);
    const brim_status restored = for_each_parameter(&p, put_start);
    f->is_model_lost = restored != BRIM_OK;
    if (restored != BRIM_OK) return restored;
    if (status != BRIM_OK) brim_error_put(&error);
  }
  BRIM_TRY(status);
  BRIM_TRY(for_each_parameter(&p, put_total));
  return brim_exec_wait(f->exec);
}

brim_status brim_edges_train(brim_federation *f)
{
  if (next_edge(f) < 0) return BRIM_OK; /* this rank has nothing to do, or only another rank repeats its part */
  brim_client_result *before = brim_try_calloc((size_t)f->clients, sizeof *before);
  if (!before) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the clients of edges");
  const brim_status status = train_edges(f, before);
  free(before);
  return status;
}
