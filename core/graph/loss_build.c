/* Builds the graph of a loss plugin (brim/loss.h), after the model's output. */
#include <stdio.h>

#include "base/long_call.h"
#include "graph/loss_build.h"

/* Makes a target of real numbers, in the output's shape. */
static brim_tensor *new_target(brim_graph *g, const brim_graph_options *o)
{
  if (g->label->dtype != BRIM_DTYPE_I32) return g->label;
  return brim_graph_apply(g, "one_hot", "target", &g->label, 1, &(brim_attr){.loss = o->loss.attr});
}

/* Whether the result depends on the model's output. */
static bool reaches(const brim_graph *g, size_t first_node, const brim_tensor *result)
{
  brim_arena arena = {0};
  bool *reached = BRIM_ARENA_NEW(&arena, bool, g->tensor_count);
  reached[g->output->id] = true;
  for (size_t i = first_node; i < g->node_count; i++) {
    const brim_node *n = g->node[i];
    bool any = false;
    for (uint32_t k = 0; k < n->in_count; k++) any = any || reached[n->in[k]->id];
    for (uint32_t k = 0; k < n->out_count; k++) reached[n->out[k]->id] = any;
  }
  const bool is_reached = reached[result->id];
  brim_arena_release(&arena);
  return is_reached;
}

static brim_status check_result(brim_graph *g, const brim_graph_options *o, size_t first_node, size_t parameters,
                                const brim_tensor *result)
{
  brim_shape wanted = g->label->shape;
  char text[160], wanted_text[160];
  if (g->label->dtype != BRIM_DTYPE_I32) wanted.rank--;
  if (!result) return brim_graph_fail(g, "loss", o->loss.id, "the plugin returned no tensor and gave no reason");
  if (g->parameter_count != parameters)
    return brim_graph_fail(g, "loss", o->loss.id, "it makes the parameter '%s': only models may make parameters",
                           g->parameter[parameters].value->name);
  if (result->dtype != g->real || !brim_shape_equal(&result->shape, &wanted))
    return brim_graph_fail(g, "loss", o->loss.id, "it must return one real number %s, %s; got '%s' %s %s",
                           wanted.rank > 1 ? "for each position" : "for each sample",
                           brim_shape_format(wanted_text, sizeof wanted_text, &wanted), result->name,
                           brim_dtype_name(result->dtype), brim_shape_format(text, sizeof text, &result->shape));
  if (!reaches(g, first_node, result))
    return brim_graph_fail(g, "loss", o->loss.id, "'%s' does not depend on the model's output", result->name);
  return BRIM_OK;
}

brim_status brim_graph_build_loss(brim_graph *g, const brim_graph_options *o)
{
  const size_t parameters = g->parameter_count, first_node = g->node_count;
  brim_shape wanted = g->label->shape;
  brim_long_call call;
  if (g->label->dtype == BRIM_DTYPE_I32) wanted.dim[wanted.rank++] = g->classes;
  if (!brim_shape_equal(&g->output->shape, &wanted))
    return brim_graph_fail_output(g, &(brim_node){.op = "loss", .name = o->loss.id}, &g->output->shape);
  brim_tensor *target = new_target(g, o);
  if (!target) return g->status;
  g->builds_loss = true;
  g->file = ""; /* the position is still the model's; the loss has built nothing yet */
  brim_graph_lock_plugins();
  brim_long_call_begin(&call, "the loss's build", (const void *)(uintptr_t)o->loss.built->build);
  brim_tensor *result = o->loss.built->build(o->loss.self, g, g->output, target);
  brim_long_call_end(&call);
  brim_graph_unlock_plugins();
  if (g->status != BRIM_OK) return brim_fail_add(brim_fail(g->status, "%s", g->error), "in loss '%s'", o->loss.id);
  BRIM_TRY(check_result(g, o, first_node, parameters, result));
  const bool by_label = g->label->dtype == BRIM_DTYPE_I32;
  brim_tensor *const in[] = {result, g->label, g->class_weight};
  g->loss = brim_graph_apply(g, "sample_loss", "loss", in,
                             !by_label         ? 1
                             : g->class_weight ? 3
                                               : 2,
                             &(brim_attr){.loss = o->loss.attr});
  return g->status;
}

brim_status brim_graph_check_loss(brim_graph *g, const brim_graph_options *o)
{
  if (!g->builds_loss || brim_autodiff_gradient(g, g->output)) return BRIM_OK;
  return brim_graph_fail(g, "loss", o->loss.id, "no gradient flows from it to the model's output");
}
