#include "graph/federate.h"

#include "graph/update.h"

#define CONTROL_SUM "control_sum"

static brim_graph *begin(const brim_graph *like)
{
  brim_graph *g = brim_graph_create(like->real, like->batch, false);
  for (size_t i = 0; i < like->parameter_count; i++) brim_update_copy_parameter(g, &like->parameter[i]);
  return g;
}

static brim_status finish(brim_graph *g, brim_graph **out)
{
  g->forward_count = g->node_count;
  if (g->status == BRIM_OK) {
    *out = g;
    return BRIM_OK;
  }
  const brim_status status = brim_fail(g->status, "%s", g->error);
  brim_graph_free(g);
  return status;
}

static bool is_there(const brim_parameter *p)
{
  return !p->is_frozen;
}

/* Makes, in order, a tensor for each parameter that has one; returns them by parameter. */
static brim_tensor **add_tensors(brim_graph *g, bool (*has)(const brim_parameter *p), uint32_t role, uint32_t dtype,
                                 const char *what)
{
  brim_tensor **out = BRIM_ARENA_NEW(&g->arena, brim_tensor *, g->parameter_count);
  for (size_t i = 0; i < g->parameter_count; i++) {
    const brim_tensor *value = g->parameter[i].value;
    if (has(&g->parameter[i]))
      out[i] =
          brim_graph_tensor(g, role, dtype, &value->shape, brim_arena_printf(&g->arena, "%s.%s", value->name, what));
  }
  return out;
}

void brim_graph_add_global(brim_graph *g)
{
  g->shared_first = (uint32_t)g->tensor_count;
  g->global = add_tensors(g, is_there, BRIM_ROLE_PARAMETER, g->real, "global");
  g->shared_end = (uint32_t)g->tensor_count;
}

void brim_graph_add_control(brim_graph *g)
{
  g->control = add_tensors(g, brim_parameter_is_controlled, BRIM_ROLE_OPTIMIZER, g->real, "control");
}

brim_status brim_graph_build_adopt(const brim_graph *like, brim_graph **out)
{
  brim_graph *g = begin(like);
  brim_graph_add_global(g);
  for (size_t i = 0; i < g->parameter_count; i++)
    if (g->global[i])
      brim_graph_node_into(g, "adopt", g->parameter[i].value->name, &g->global[i], 1, &g->parameter[i].value, 1, NULL);
  return finish(g, out);
}

brim_status brim_graph_build_distance(const brim_graph *like, brim_graph **out)
{
  const brim_shape two = {1, {2}};
  brim_graph *g = begin(like);
  brim_tensor *distance = NULL;
  brim_graph_add_global(g);
  for (size_t i = 0; i < g->parameter_count; i++) {
    brim_tensor *in[] = {g->parameter[i].value, g->global[i], distance};
    if (!brim_parameter_is_sent(&g->parameter[i])) continue;
    distance = brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, BRIM_DTYPE_F64, &two, "distance");
    brim_graph_node_into(g, "distance", in[0]->name, in, in[2] ? 3 : 2, &distance, 1, NULL);
  }
  g->kept = distance;
  return finish(g, out);
}

brim_status brim_graph_build_fold(const brim_graph *like, brim_graph **out)
{
  brim_graph *g = begin(like);
  brim_graph_add_global(g);
  brim_tensor **sum = add_tensors(g, brim_parameter_is_sent, BRIM_ROLE_GRADIENT, BRIM_DTYPE_F64, "sum");
  g->shared_end = (uint32_t)g->tensor_count;
  for (size_t i = 0; i < g->parameter_count; i++) {
    brim_tensor *const in[] = {g->parameter[i].value, g->global[i], sum[i]};
    if (sum[i]) brim_graph_node_into(g, "fold", in[0]->name, in, 3, &sum[i], 1, NULL);
  }
  return finish(g, out);
}

/* The sum of updates comes first in the server's arena. */
brim_status brim_graph_build_fold_control(const brim_graph *like, brim_graph **out)
{
  brim_graph *g = begin(like);
  brim_graph_add_global(g);
  (void)add_tensors(g, brim_parameter_is_sent, BRIM_ROLE_GRADIENT, BRIM_DTYPE_F64, "sum");
  brim_tensor **sum = add_tensors(g, brim_parameter_is_controlled, BRIM_ROLE_GRADIENT, BRIM_DTYPE_F64, CONTROL_SUM);
  g->shared_end = (uint32_t)g->tensor_count;
  for (size_t i = 0; i < g->parameter_count; i++) {
    brim_tensor *const in[] = {g->parameter[i].value, g->global[i], sum[i]};
    if (sum[i]) brim_graph_node_into(g, "fold", in[0]->name, in, 3, &sum[i], 1, NULL);
  }
  return finish(g, out);
}

/* A buffer has no optimizer, so it gets the mean of the clients' changes. */
brim_status brim_graph_build_serve(const brim_graph *like, const brim_update_options *options, brim_graph **out)
{
  brim_graph *g = begin(like);
  brim_tensor **sum = add_tensors(g, brim_parameter_is_sent, BRIM_ROLE_GRADIENT, BRIM_DTYPE_F64, "sum");
  if (options->controlled)
    g->control = add_tensors(g, brim_parameter_is_controlled, BRIM_ROLE_GRADIENT, BRIM_DTYPE_F64, CONTROL_SUM);
  brim_update_add_states(g, options);
  g->first_update = g->node_count;
  for (size_t i = 0; i < g->parameter_count; i++) {
    brim_parameter *p = &g->parameter[i];
    brim_tensor *const in[] = {sum[i], p->value};
    if (!sum[i]) continue;
    if (p->is_buffer) {
      brim_graph_node_into(g, "serve", p->value->name, in, 2, &p->value, 1, NULL);
      continue;
    }
    p->gradient = brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, g->real, &p->value->shape,
                                    brim_arena_printf(&g->arena, "%s.grad", p->value->name));
    brim_graph_node_into(g, "serve", p->value->name, in, 1, &p->gradient, 1, NULL);
  }
  /* These nodes come after all updates, because a GPU runs nodes of one kind together. */
  for (size_t i = 0; i < g->parameter_count; i++)
    if (sum[i] && brim_parameter_is_trained(&g->parameter[i])) brim_update_add_node(g, options, i);
  g->first_average = g->node_count;
  return finish(g, out);
}

const brim_tensor *brim_graph_sum_of(const brim_graph *serve, size_t parameter)
{
  const brim_parameter *p = &serve->parameter[parameter];
  const brim_tensor *to = p->is_buffer ? p->value : p->gradient;
  for (size_t i = 0; i < serve->node_count && to; i++)
    if (serve->node[i]->out[0] == to) return serve->node[i]->in[0];
  return NULL;
}

int64_t brim_graph_largest(const brim_graph *g, bool sent)
{
  int64_t most = 0;
  for (size_t i = 0; i < g->parameter_count; i++) {
    const brim_parameter *p = &g->parameter[i];
    const int64_t count = (sent ? brim_parameter_is_sent(p) : !p->is_frozen) ? brim_shape_count(&p->value->shape) : 0;
    if (count > most) most = count;
  }
  return most;
}

int64_t brim_graph_sent(const brim_graph *g, bool buffers)
{
  int64_t values = 0;
  for (size_t i = 0; i < g->parameter_count; i++)
    if (brim_parameter_is_sent(&g->parameter[i]) && (buffers || !g->parameter[i].is_buffer))
      values += brim_shape_count(&g->parameter[i].value->shape);
  return values;
}
