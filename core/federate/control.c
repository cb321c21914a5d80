/* See control.h. */
#include "federate/control.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/convert.h"
#include "federate/fold.h"
#include "graph/federate.h"

/* A parameter with a control. */
typedef struct part {
  size_t parameter; /* the parameter's index, the same in all plans */
  int64_t count;    /* values */
  uint64_t at;      /* place of c_i in a client's state */
  uint32_t dtype;   /* type of c_i */
  int64_t first;    /* index of its first value in `now` and `next` */
  brim_shape shape;
  const char *name; /* name of c in checkpoints */
} part;

struct brim_control {
  brim_arena arena; /* owns names and arrays */
  part *part;
  size_t count;
  int64_t values, clients;
  double share;       /* factor of c in the clients' correction: 1, or 0 for FedDyn */
  double alpha;       /* alpha of FedDyn; else 0 */
  double *now, *next; /* [values] c and c' */
  double *room;       /* FedDyn: memory for the largest part; else NULL */
};

static brim_status open_control(brim_control *c, const brim_graph *like, uint64_t at)
{
  int64_t largest = 1;
  if (!BRIM_ARENA_TRY(&c->arena, c->part, like->parameter_count))
    return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the list of controls");
  for (size_t i = 0; i < like->parameter_count; i++) {
    const brim_tensor *value = like->parameter[i].value;
    if (!brim_parameter_is_controlled(&like->parameter[i])) continue;
    c->part[c->count++] = (part){.parameter = i,
                                 .count = brim_shape_count(&value->shape),
                                 .at = at,
                                 .dtype = value->dtype,
                                 .first = c->values,
                                 .shape = value->shape,
                                 .name = brim_arena_printf(&c->arena, "%s.control", value->name)};
    c->values += brim_shape_count(&value->shape);
    if (brim_shape_count(&value->shape) > largest) largest = brim_shape_count(&value->shape);
    at += value->bytes;
  }
  const bool good = BRIM_ARENA_TRY(&c->arena, c->now, c->values) && BRIM_ARENA_TRY(&c->arena, c->next, c->values) &&
                    (c->alpha == 0 || BRIM_ARENA_TRY(&c->arena, c->room, largest));
  return good ? BRIM_OK : brim_fail(BRIM_ENOMEM_HOST, "no host memory for the server's controls");
}

brim_status brim_control_open(const brim_setup *setup, const brim_graph *like, uint64_t at, brim_control **out)
{
  *out = NULL;
  if (!brim_setup_has_controls(setup)) return BRIM_OK;
  brim_control *c = brim_try_calloc(1, sizeof *c);
  if (!c) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for controls");
  c->clients = setup->partition.clients;
  c->alpha = brim_setup_is_feddyn(setup) ? setup->settings->federate.alpha : 0;
  c->share = brim_setup_is_feddyn(setup) ? 0 : 1;
  const brim_status status = open_control(c, like, at);
  if (status == BRIM_OK)
    *out = c;
  else
    brim_control_close(c);
  return status;
}

void brim_control_close(brim_control *c)
{
  if (!c) return;
  brim_arena_release(&c->arena);
  free(c);
}

/* ---- clients ---- */

/* Reads c_i as doubles; `own` has room for twice as many. */
static brim_status read_own(const part *p, brim_states *states, int64_t client, double *own)
{
  double *raw = own + p->count;
  if (!brim_states_has(states, client)) {
    memset(own, 0, (size_t)p->count * sizeof *own);
    return BRIM_OK;
  }
  BRIM_TRY(brim_states_read(states, client, p->at, raw, (uint64_t)p->count * brim_dtype_bytes(p->dtype)));
  brim_convert(BRIM_DTYPE_F64, own, p->dtype, raw, (size_t)p->count);
  return BRIM_OK;
}

brim_status brim_control_write(const brim_control *c, brim_states *states, const brim_keeping *lane)
{
  double *own = lane->scratch;
  for (const part *p = c->part; p < c->part + c->count; p++) {
    BRIM_TRY(read_own(p, states, lane->client, own));
    for (int64_t i = 0; i < p->count; i++) own[i] = c->share * c->now[p->first + i] - own[i];
    BRIM_TRY(
        brim_exec_write_as(lane->exec, lane->update, lane->update->graph->control[p->parameter], BRIM_DTYPE_F64, own));
  }
  return BRIM_OK;
}

brim_status brim_control_stage(const brim_control *c, brim_states *states, const brim_keeping *lane, double rates)
{
  const brim_graph *g = lane->adopt->graph;
  for (const part *p = c->part; p < c->part + c->count; p++) {
    double *own = lane->scratch, *w = own + p->count, *x = w + p->count;
    BRIM_TRY(read_own(p, states, lane->client, own));
    BRIM_TRY(brim_exec_read_as(lane->exec, lane->adopt, g->parameter[p->parameter].value, BRIM_DTYPE_F64, w));
    BRIM_TRY(brim_exec_read_as(lane->exec, lane->adopt, g->global[p->parameter], BRIM_DTYPE_F64, x));
    for (int64_t i = 0; i < p->count; i++) own[i] += (x[i] - w[i]) / rates - c->share * c->now[p->first + i];
    brim_convert(p->dtype, w, BRIM_DTYPE_F64, own, (size_t)p->count);
    BRIM_TRY(brim_states_write(states, lane->place, p->at, w, (uint64_t)p->count * brim_dtype_bytes(p->dtype)));
  }
  return BRIM_OK;
}

double brim_control_rates(const brim_setup *setup, double sum)
{
  return brim_setup_is_feddyn(setup) ? 1 / setup->settings->federate.alpha : sum;
}

/* ---- the server ---- */

double brim_control_weight(int64_t clients, double rates)
{
  return -ldexp(1 / rates, -brim_fold_exponent((double)clients));
}

brim_status brim_control_learn(brim_control *c, brim_exec *exec, const brim_program *serve, int64_t clients,
                               int64_t arrived)
{
  const int exponent = brim_fold_exponent((double)clients);
  for (const part *p = c->part; p < c->part + c->count; p++) {
    const double *now = c->now + p->first;
    double *next = c->next + p->first;
    BRIM_TRY(brim_exec_read(exec, serve, serve->graph->control[p->parameter], next));
    for (int64_t i = 0; i < p->count; i++)
      next[i] = now[i] + (ldexp(next[i], exponent) - (double)arrived * c->share * now[i]) / (double)c->clients;
  }
  return BRIM_OK;
}

brim_status brim_control_shift(const brim_control *c, brim_exec *exec, const brim_program *serve, double weight)
{
  for (size_t k = 0; k < c->count && c->alpha > 0; k++) {
    const part *p = &c->part[k];
    const brim_tensor *tensor = brim_graph_sum_of(serve->graph, p->parameter);
    double *sum = c->room;
    if (!tensor) return brim_fail(BRIM_EINTERNAL, "the server has no sum for '%s'", p->name);
    BRIM_TRY(brim_exec_read(exec, serve, tensor, sum));
    for (int64_t i = 0; i < p->count; i++) sum[i] -= c->next[p->first + i] / c->alpha * weight;
    BRIM_TRY(brim_exec_write(exec, serve, tensor, sum));
  }
  return BRIM_OK;
}

void brim_control_commit(brim_control *c)
{
  double *const before = c->now;
  c->now = c->next;
  c->next = before;
}

size_t brim_control_tensors(brim_control *c, brim_safetensor *out)
{
  if (!c) return 0;
  for (size_t i = 0; out && i < c->count; i++)
    out[i] = (brim_safetensor){
        .name = c->part[i].name, .dtype = BRIM_DTYPE_F64, .shape = c->part[i].shape, .data = c->now + c->part[i].first};
  return c->count;
}
