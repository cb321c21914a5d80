/* From a model to a whole graph: its forward pass, the loss, the metrics, fusion, and the backward pass; and the graph
 * of an optimizer's update. */
#include <stdio.h>
#include <string.h>

#include "graph/fuse.h"
#include "graph/lower.h"

#undef brim_output

brim_graph *brim_at(brim_graph *g, const char *file, int line)
{
  const char *slash = strrchr(file, '/');
  g->file = slash ? slash + 1 : file;
  g->line = line;
  return g;
}

brim_tensor *brim_input(brim_graph *g)
{
  return g->input;
}
int64_t brim_classes(const brim_graph *g)
{
  return g->classes;
}

brim_shape brim_shape_of(const brim_tensor *x)
{
  return x ? x->shape : (brim_shape){0};
}

void brim_output(brim_graph *g, brim_tensor *logits)
{
  if (!brim_graph_accepts(g, "output", NULL, logits)) return;
  if (g->output) {
    brim_graph_fail(g, "output", NULL, "the model's output was named twice");
    return;
  }
  g->output = logits;
}

/* Fewer classes are not worth making the logits a second time. */
#define LINEAR_LOSS_CLASSES_MIN 4096

/* Can the loss be computed with the product that makes the output inside? In training, where nothing else needs the
 * logits: the last node is a linear without bias, so nobody behind it reads them. Not where a class does not count,
 * since the rank of its samples is not to be had, but their answers are. */
static bool can_hold_product(const brim_graph *g, const brim_graph_options *o)
{
  const brim_node *n = g->node_count ? g->node[g->node_count - 1] : NULL;
  const bool wanted = o->training && (o->fuse & BRIM_FUSE_LINEAR_LOSS) && !o->keep_output && !o->class_weights;
  if (!wanted || g->classes < LINEAR_LOSS_CLASSES_MIN || strcmp(o->loss_op, "softmax_cross_entropy") != 0) return false;
  if (o->loss.ignores && o->loss.ignore_index >= 0 && o->loss.ignore_index < g->classes) return false;
  if (!n || strcmp(n->op, "linear") != 0 || n->in_count != 2 || n->out[0] != g->output) return false;
  return brim_shape_equal(&g->output->shape, &(brim_shape){2, {g->batch, g->classes}}) &&
         g->output->id + 1 == g->tensor_count && (!o->offers || o->offers(o->offers_arg, "linear_cross_entropy"));
}

/* Takes out the last product and its result, whose place the loss takes. */
static brim_status add_linear_loss(brim_graph *g, const brim_graph_options *o)
{
  const brim_node *product = g->node[--g->node_count];
  g->tensor_count--;
  g->output = NULL;
  brim_tensor *const in[] = {product->in[0], product->in[1], g->label};
  const brim_node *loss =
      brim_graph_node(g, "linear_cross_entropy", product->name, in, 3, &(brim_attr){.loss = o->loss});
  if (!loss) return g->status;
  const brim_shape metrics_shape = {1, {2}};
  g->loss = loss->out[0];
  g->metrics = brim_graph_tensor(g, BRIM_ROLE_DATA, BRIM_DTYPE_F64, &metrics_shape, "metrics");
  brim_graph_node_into(g, "rank_metrics", "metrics", loss->out, 2, &g->metrics, 1, NULL);
  return g->status;
}

/* Metrics: sum of losses, right answers; in evaluation also the confusion matrix, and answers right among the first k.
 */
static brim_status add_loss(brim_graph *g, const brim_graph_options *o)
{
  if (can_hold_product(g, o)) return add_linear_loss(g, o);
  const int64_t evaluation = g->classes * g->classes + (o->top_k > 0);
  const brim_shape metrics_shape = {1, {2 + (g->training ? 0 : evaluation)}};
  const brim_attr attr = {.metrics = {!g->training, g->training ? 0 : o->top_k}};
  const brim_shape weight_shape = {1, {g->classes}};
  if (o->class_weights) g->class_weight = brim_graph_tensor(g, BRIM_ROLE_DATA, g->real, &weight_shape, "class_weight");
  brim_tensor *const in[] = {g->output, g->label, g->class_weight};
  brim_node *loss = brim_graph_node(g, o->loss_op, "loss", in, o->class_weights ? 3 : 2, &(brim_attr){.loss = o->loss});
  if (!loss) return g->status;
  g->loss = loss->out[0];
  g->metrics = brim_graph_tensor(g, BRIM_ROLE_DATA, BRIM_DTYPE_F64, &metrics_shape, "metrics");
  brim_tensor *const metrics_in[] = {g->loss, g->output, g->label};
  brim_graph_node_into(g, "classification_metrics", "metrics", metrics_in, 3, &g->metrics, 1, &attr);
  return g->status;
}

static brim_status build(const brim_graph_options *o, brim_graph *g)
{
  brim_shape input = {o->sample.rank + 1, {o->batch}};
  for (int32_t d = 0; d < o->sample.rank; d++) input.dim[d + 1] = o->sample.dim[d];
  const brim_shape label = {1, {o->batch}};
  g->classes = o->classes;
  g->input = brim_graph_tensor(g, BRIM_ROLE_DATA, o->real, &input, "input");
  g->label = brim_graph_tensor(g, BRIM_ROLE_DATA, BRIM_DTYPE_I32, &label, "label");
  brim_fail(BRIM_OK, "%s", ""); /* so that the reason, if there is one, is known to be of this build */
  const brim_status status = o->model->build(o->model_self, g);
  if (g->status != BRIM_OK) return brim_fail(g->status, "%s", g->error);
  if (status != BRIM_OK && brim_error_text()[0]) return status;
  if (status != BRIM_OK)
    return brim_graph_fail(g, "build", NULL, "the model returned %s without a reason (brim_fail gives one)",
                           brim_status_name(status));
  if (!g->output) return brim_graph_fail(g, "output", NULL, "the model named no output (brim_output)");
  if (o->keep_output) g->kept = g->output;
  BRIM_TRY(add_loss(g, o));
  brim_graph_fuse(g, o->fuse, o->offers, o->offers_arg);
  if (o->activations) brim_graph_lower(g, o->activations);
  if (o->training) {
    if (g->parameter_count == 0) return brim_graph_fail(g, "output", NULL, "the model has no parameters to train");
    return brim_autodiff_run(g, g->loss, NULL);
  }
  g->forward_count = g->node_count;
  return g->status;
}

brim_status brim_graph_build(const brim_graph_options *options, brim_graph **out)
{
  brim_graph *g = brim_graph_create(options->real, options->batch, options->training);
  if (options->norm_group > 0) g->norm_group = options->norm_group;
  const brim_status status = build(options, g);
  if (status != BRIM_OK) {
    brim_graph_free(g);
    return status;
  }
  g->file = "";
  *out = g;
  return BRIM_OK;
}

/* The nodes before the updates: the norm of all gradients (buffers have none), and their factor. */
static void add_gradient_scale(brim_graph *g, const brim_update_options *options)
{
  const brim_shape one = {1, {1}}, two = {1, {2}};
  const brim_attr attr = {.clip = {options->max_norm}};
  brim_tensor *sum = NULL;
  for (size_t i = 0; options->max_norm > 0 && i < g->parameter_count; i++) {
    if (g->parameter[i].is_buffer) continue;
    brim_tensor *const in[] = {g->parameter[i].gradient, sum};
    sum = brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, BRIM_DTYPE_F64, &one, "gradient_norm");
    brim_graph_node_into(g, "squared_norm", g->parameter[i].value->name, in, in[1] ? 2 : 1, &sum, 1, NULL);
  }
  g->gradient_scale = brim_graph_tensor(g, BRIM_ROLE_OPTIMIZER, BRIM_DTYPE_F64, &two, "gradient_scale");
  brim_graph_node_into(g, "gradient_scale", "gradient_scale", &sum, sum ? 1 : 0, &g->gradient_scale, 1, &attr);
}

static void add_update(brim_graph *g, const brim_update_options *options, const brim_parameter *p)
{
  brim_tensor *in[3 + BRIM_OPTIMIZER_STATES_MAX] = {p->value, p->gradient};
  brim_tensor *out[1 + BRIM_OPTIMIZER_STATES_MAX] = {p->value};
  brim_attr attr = {0};
  if (p->is_buffer) {
    attr.moving_average.momentum = p->momentum;
    brim_graph_node_into(g, "moving_average", p->value->name, in, 2, out, 1, &attr);
    return;
  }
  uint32_t inputs = 2, outputs = 1;
  if (options->attr) options->attr(options->params, p->value, &attr.update);
  while (outputs <= options->state_count) {
    brim_tensor *state = brim_graph_tensor(g, BRIM_ROLE_OPTIMIZER, g->real, &p->value->shape,
                                           brim_arena_printf(&g->arena, "%s.%u", p->value->name, outputs - 1));
    in[inputs++] = out[outputs++] = state;
  }
  attr.update.scaled = g->gradient_scale != NULL;
  if (g->gradient_scale) in[inputs++] = g->gradient_scale;
  brim_graph_node_into(g, options->op, p->value->name, in, inputs, out, outputs, &attr);
}

/* Buffers are averages already: they are copied. */
static void add_average(brim_graph *g, double decay, const brim_parameter *p)
{
  const brim_attr attr = {.ema = {p->is_buffer ? 0 : decay}};
  brim_tensor *parameter = p->value;
  brim_tensor *average = brim_graph_tensor(g, BRIM_ROLE_OPTIMIZER, g->real, &parameter->shape,
                                           brim_arena_printf(&g->arena, "%s.average", parameter->name));
  brim_tensor *const in[] = {parameter, average};
  brim_graph_node_into(g, "ema", parameter->name, in, 2, &average, 1, &attr);
}

/* The same parameter in the graph of the update. */
static void add_like(brim_graph *g, const brim_parameter *p)
{
  if (p->is_buffer)
    brim_graph_buffer(g, p->value->name, &p->value->shape, p->init, p->momentum);
  else
    brim_graph_parameter(g, p->value->name, &p->value->shape, p->init);
}

/* What comes from the further uses of parameters, added to their gradients. */
static void add_further(brim_graph *g, const brim_graph *like)
{
  for (size_t i = 0; i < like->further_count; i++) {
    const brim_tensor *t = like->further[i].gradient;
    const brim_parameter *p = &g->parameter[like->further[i].parameter];
    brim_tensor *from = brim_graph_tensor(g, BRIM_ROLE_GRADIENT, t->dtype, &t->shape, t->name), *to = p->gradient;
    brim_graph_node_into(g, "accumulate", p->value->name, &from, 1, &to, 1, NULL);
  }
}

brim_status brim_graph_build_update(const brim_graph *like, const brim_update_options *options, brim_graph **out)
{
  brim_graph *g = brim_graph_create(like->real, like->batch, true);
  for (size_t i = 0; i < like->parameter_count; i++) add_like(g, &like->parameter[i]);
  add_further(g, like);
  if (options->scaled) add_gradient_scale(g, options);
  g->first_update = g->node_count;
  for (size_t i = 0; i < g->parameter_count; i++) add_update(g, options, &g->parameter[i]);
  g->first_average = g->node_count; /* the averages' memory comes last, one after the other: see brim_plan */
  for (size_t i = 0; options->ema_decay > 0 && i < g->parameter_count; i++)
    add_average(g, options->ema_decay, &g->parameter[i]);
  g->forward_count = g->node_count;
  *out = g;
  return BRIM_OK;
}
