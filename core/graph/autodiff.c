/* Reverse-mode differentiation of a graph: walks the forward nodes backwards and lets each operation's gradient rule
 * append the nodes that compute its inputs' gradients. A tensor used several times gets the sum of what its users
 * send back; a parameter's gradient is persistent and kernels add into it. */
#include <assert.h>
#include <string.h>

#include "graph/graph.h"

struct brim_autodiff {
  brim_graph *g;
  brim_tensor **gradient; /* by tensor id */
  bool *needed;           /* by tensor id: a parameter or a wanted tensor lies behind it */
  size_t count;           /* forward tensors */
};

void brim_autodiff_want(brim_graph *g, brim_tensor *x)
{
  if (!x) return;
  if (g->want_count <= x->id) {
    bool *want = BRIM_ARENA_NEW(&g->arena, bool, x->id + 64);
    if (g->want_count) memcpy(want, g->want, g->want_count * sizeof *want);
    g->want = want;
    g->want_count = x->id + 64;
  }
  g->want[x->id] = true;
}

brim_tensor *brim_autodiff_gradient(const brim_graph *g, const brim_tensor *x)
{
  return x->id < g->gradient_count ? g->gradient[x->id] : NULL;
}

brim_tensor *brim_autodiff_of(brim_autodiff *ad, const brim_tensor *output)
{
  assert(output->id < ad->count);
  return ad->gradient[output->id];
}

bool brim_autodiff_needs(const brim_autodiff *ad, const brim_tensor *input)
{
  return input->id < ad->count && ad->needed[input->id];
}

brim_status brim_autodiff_emit(brim_autodiff *ad, const char *op, const brim_node *like, brim_tensor *const *in,
                               uint32_t in_count, const brim_tensor *shape_of)
{
  brim_graph *g = ad->g;
  brim_tensor *out = brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, shape_of->dtype, &shape_of->shape,
                                       brim_arena_printf(&g->arena, "%s.grad", shape_of->name));
  if (!out) return g->status;
  g->file = like->file;
  g->line = like->line;
  if (!brim_graph_node_into(g, op, like->name, in, in_count, &out, 1, &like->attr)) return g->status;
  brim_tensor **slot = &ad->gradient[shape_of->id];
  if (!*slot) {
    *slot = out;
    return BRIM_OK;
  }
  brim_tensor *const both[] = {*slot, out};
  brim_node *sum = brim_graph_node(g, "add", like->name, both, 2, NULL);
  if (!sum) return g->status;
  *slot = sum->out[0];
  return BRIM_OK;
}

brim_status brim_autodiff_emit_parameters(brim_autodiff *ad, const char *op, const brim_node *like,
                                          brim_tensor *const *in, uint32_t in_count, brim_tensor *const *parameter,
                                          uint32_t parameter_count)
{
  brim_graph *g = ad->g;
  brim_tensor *out[BRIM_NODE_OUTPUTS_MAX];
  assert(parameter_count <= BRIM_NODE_OUTPUTS_MAX);
  for (uint32_t i = 0; i < parameter_count; i++) {
    out[i] = NULL;
    for (size_t p = 0; p < g->parameter_count; p++)
      if (g->parameter[p].value == parameter[i]) out[i] = g->parameter[p].gradient;
    if (!out[i])
      return brim_graph_fail(g, like->op, like->name, "'%s' must be a parameter: its gradient is computed by '%s'",
                             parameter[i]->name, op);
  }
  g->file = like->file;
  g->line = like->line;
  return brim_graph_node_into(g, op, like->name, in, in_count, out, parameter_count, &like->attr) ? BRIM_OK : g->status;
}

/* A tensor's gradient is needed if it is a parameter, is wanted, or comes from a node with such an input. */
static void find_needed(brim_autodiff *ad)
{
  const brim_graph *g = ad->g;
  for (size_t i = 0; i < ad->count; i++)
    ad->needed[i] = g->tensor[i]->role == BRIM_ROLE_PARAMETER || (i < g->want_count && g->want[i]);
  for (size_t i = 0; i < g->forward_count; i++) {
    const brim_node *n = g->node[i];
    bool any = false;
    for (uint32_t k = 0; k < n->in_count; k++) any = any || ad->needed[n->in[k]->id];
    for (uint32_t k = 0; any && k < n->out_count; k++) ad->needed[n->out[k]->id] = true;
  }
}

brim_status brim_autodiff_run(brim_graph *g, brim_tensor *loss, brim_tensor *seed)
{
  if (g->status != BRIM_OK) return brim_fail(g->status, "%s", g->error);
  g->forward_count = g->node_count;
  brim_autodiff ad = {.g = g, .count = g->tensor_count};
  ad.gradient = BRIM_ARENA_NEW(&g->arena, brim_tensor *, ad.count);
  ad.needed = BRIM_ARENA_NEW(&g->arena, bool, ad.count);
  find_needed(&ad);
  ad.gradient[loss->id] = seed;
  for (size_t i = g->forward_count; i-- > 0;) {
    const brim_node *n = g->node[i];
    const brim_op *op = brim_op_find(n->op);
    bool reached = false;
    for (uint32_t k = 0; k < n->out_count; k++) reached = reached || ad.gradient[n->out[k]->id] || n->out[k] == loss;
    bool needed = false;
    for (uint32_t k = 0; k < n->in_count; k++) needed = needed || ad.needed[n->in[k]->id];
    if (!reached || !needed || !op->gradient) continue;
    if (op->gradient(&ad, n) != BRIM_OK) return g->status;
  }
  g->gradient = ad.gradient;
  g->gradient_count = ad.count;
  g->file = "";
  return g->status;
}
