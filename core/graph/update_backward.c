/* Updates in the backward pass (LOMO: Lv et al., Full Parameter Fine-tuning for Large Language Models with Limited
 * Resources, 2023; here for any optimizer, and with the same bits): a parameter is updated after the last node that
 * uses it or adds to its gradient, and then the gradient's memory is free. So the gradients never all exist at the same
 * time.
 *
 * A gradient starts as zeros, because kernels add to it. A separate node writes the zeros, right before the first node
 * that adds. If the loss and its gradient are one node (brim_graph_fuse_loss), that node runs in the first half of the
 * program. No update comes before the second half, because the loss decides whether the step is committed.
 *
 * This runs before the choice of recompute, which therefore sees these lifetimes. A clone that recompute inserts reads
 * parameters before their gradients are complete, so before their update; brim_graph_check_updates verifies this. */
#include <string.h>

#include "graph/federate.h"
#include "graph/update.h"

#define NONE SIZE_MAX

typedef struct rewriting {
  brim_graph *g;
  const brim_update_options *options;
  brim_arena scratch;
  size_t tensors;
  size_t *
      parameter; /* by tensor: the parameter that it is, of which it is a copy, or of which it is a gradient; or NONE */
  size_t *last;  /* by parameter: the last node that uses any of these tensors */
  bool *begun;   /* by tensor: whether it is a gradient that has been zeroed */
  bool *updated; /* by parameter */
} rewriting;

/* A copy in a smaller type counts as its parameter, because recompute may make it again from the parameter. */
static void find_owners(rewriting *r)
{
  const brim_graph *g = r->g;
  for (size_t i = 0; i < r->tensors; i++) r->parameter[i] = NONE;
  for (size_t i = 0; i < g->parameter_count; i++) {
    if (!brim_parameter_is_trained(&g->parameter[i])) continue;
    r->parameter[g->parameter[i].value->id] = r->parameter[g->parameter[i].gradient->id] = i;
    g->passes[g->parameter[i].gradient->id] = true;
  }
  for (size_t i = 0; i < g->further_count; i++) {
    r->parameter[g->further[i].gradient->id] = g->further[i].parameter;
    g->passes[g->further[i].gradient->id] = true;
  }
  for (size_t i = 0; i < g->node_count; i++) {
    const brim_node *n = g->node[i];
    if (!n->descriptor->converts && !n->descriptor->traits.view) continue;
    if (n->in[0]->role == BRIM_ROLE_PARAMETER) r->parameter[n->out[0]->id] = r->parameter[n->in[0]->id];
  }
}

/* Finds the last node that uses each parameter, at least the node after which the loss is known. */
static void find_last_uses(rewriting *r)
{
  const brim_graph *g = r->g;
  const size_t first = brim_graph_to_loss(g) - 1;
  for (size_t i = 0; i < g->parameter_count; i++) r->last[i] = NONE;
  for (size_t i = g->forward_count; i < g->node_count; i++) {
    const brim_node *n = g->node[i];
    for (uint32_t k = 0; k < n->in_count + n->out_count; k++) {
      const brim_tensor *t = k < n->in_count ? n->in[k] : n->out[k - n->in_count];
      if (r->parameter[t->id] != NONE) r->last[r->parameter[t->id]] = i < first ? first : i;
    }
  }
}

static void begin_gradient(rewriting *r, brim_tensor *gradient)
{
  if (r->begun[gradient->id]) return;
  r->begun[gradient->id] = true;
  brim_graph_node_into(r->g, "zero", gradient->name, NULL, 0, &gradient, 1, NULL);
}

/* Updates a parameter. Without any gradient it gets a gradient of zeros, as in a separate update. */
static void update(rewriting *r, size_t parameter)
{
  r->updated[parameter] = true;
  begin_gradient(r, r->g->parameter[parameter].gradient);
  brim_update_add_further(r->g, parameter);
  if (r->options->steered) brim_update_add_steer(r->g, parameter);
  brim_update_add_node(r->g, r->options, parameter);
}

static void rewrite(rewriting *r)
{
  brim_graph *g = r->g;
  const size_t nodes = g->node_count;
  brim_node **node = BRIM_ARENA_NEW(&r->scratch, brim_node *, nodes);
  memcpy(node, g->node, nodes * sizeof *node);
  brim_graph_cut_backward(g);
  if (r->options->scaled) brim_update_add_scale(g, r->options);
  for (size_t i = g->forward_count; i < nodes; i++) {
    for (uint32_t k = 0; k < node[i]->out_count; k++)
      if (brim_graph_passes(g, node[i]->out[k])) begin_gradient(r, node[i]->out[k]);
    brim_graph_append(g, node[i]);
    for (size_t p = 0; p < g->parameter_count; p++)
      if (r->last[p] == i && brim_parameter_is_trained(&g->parameter[p])) update(r, p);
  }
  for (size_t p = 0; p < g->parameter_count; p++)
    if (!r->updated[p] && brim_parameter_is_trained(&g->parameter[p])) update(r, p);
}

/* Rejects updates with several operations, because their matrices would add to the memory of the backward pass. */
static brim_status refuse_build(const brim_graph *g, const brim_update_options *options)
{
  for (size_t i = 0; options->build && i < g->parameter_count; i++)
    if (brim_parameter_is_trained(&g->parameter[i]) && !brim_update_form_of(options, g->parameter[i].value).formula)
      return brim_fail(BRIM_ECONFIG,
                       "optimizer.update=fused_backward cannot be combined with an optimizer that multiplies matrices "
                       "(muon), as it does those of '%s'\nset optimizer.update=step, or use another optimizer",
                       g->parameter[i].value->name);
  return BRIM_OK;
}

brim_status brim_graph_update_in_backward(brim_graph *g, const brim_update_options *options)
{
  BRIM_TRY(refuse_build(g, options));
  rewriting r = {.g = g, .options = options};
  r.tensors = g->tensor_count;
  g->passes_count = g->tensor_count;
  g->passes = BRIM_ARENA_NEW(&g->arena, bool, g->tensor_count);
  r.parameter = BRIM_ARENA_NEW(&r.scratch, size_t, r.tensors);
  r.last = BRIM_ARENA_NEW(&r.scratch, size_t, g->parameter_count);
  r.begun = BRIM_ARENA_NEW(&r.scratch, bool, r.tensors);
  r.updated = BRIM_ARENA_NEW(&r.scratch, bool, g->parameter_count);
  find_owners(&r);
  find_last_uses(&r);
  if (options->steered) brim_graph_add_global(g);
  if (options->controlled) brim_graph_add_control(g);
  brim_update_add_states(g, options);
  rewrite(&r);
  brim_arena_release(&r.scratch);
  return g->status;
}

brim_status brim_graph_check_updates(const brim_graph *g)
{
  brim_arena scratch = {0};
  const brim_node **update = BRIM_ARENA_NEW(&scratch, const brim_node *, g->tensor_count); /* by parameter's tensor */
  brim_status status = BRIM_OK;
  for (size_t i = g->forward_count; i < g->node_count && status == BRIM_OK; i++) {
    const brim_node *n = g->node[i];
    for (uint32_t k = 0; k < n->in_count && status == BRIM_OK; k++)
      if (update[n->in[k]->id])
        status = brim_fail(BRIM_EINTERNAL, "%s '%s' reads '%s' after its update, node %u", n->op, n->name,
                           n->in[k]->name, update[n->in[k]->id]->index);
    for (uint32_t k = 0; k < n->out_count; k++)
      if (n->out[k]->role == BRIM_ROLE_PARAMETER) update[n->out[k]->id] = n;
  }
  brim_arena_release(&scratch);
  return status;
}
