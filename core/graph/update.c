/* The graph of an optimizer's update: what it keeps of the parameters, and the nodes that work on them. */
#include "graph/update.h"

#include <stdio.h>

/* The nodes before the updates: the norm of all gradients (buffers have none). Returns the sum of their squares. */
static brim_tensor *add_squares(brim_graph *g, const brim_update_options *options)
{
  const brim_shape one = {1, {1}};
  brim_tensor *sum = NULL;
  for (size_t i = 0; options->max_norm > 0 && i < g->parameter_count; i++) {
    if (g->parameter[i].is_buffer) continue;
    brim_tensor *const in[] = {g->parameter[i].gradient, sum};
    sum = brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, BRIM_DTYPE_F64, &one, "gradient_norm");
    brim_graph_node_into(g, "squared_norm", g->parameter[i].value->name, in, in[1] ? 2 : 1, &sum, 1, NULL);
  }
  return sum;
}

void brim_update_add_scale(brim_graph *g, const brim_update_options *options)
{
  const brim_attr attr = {.clip = {options->max_norm}};
  brim_tensor *sum = add_squares(g, options);
  brim_graph_node_into(g, "gradient_scale", "gradient_scale", &sum, sum ? 1 : 0, &g->gradient_scale, 1, &attr);
}

/* ---- states ---- */

static brim_update_form form_of(const brim_update_options *options, const brim_tensor *parameter)
{
  brim_update_form form = {.op = options->op, .state_count = options->state_count};
  for (uint32_t k = 0; k < form.state_count; k++) {
    form.state[k].name = options->state_name ? options->state_name[k] : NULL;
    form.state[k].dtype = parameter->dtype;
    form.state[k].shape = parameter->shape;
  }
  if (options->form) options->form(options->params, parameter, &form);
  return form;
}

static void add_state(brim_graph *g, size_t parameter, const brim_update_form *form, uint32_t k)
{
  const char *name = g->parameter[parameter].value->name;
  char number[16];
  snprintf(number, sizeof number, "%u", k);
  brim_tensor *t = brim_graph_tensor(
      g, BRIM_ROLE_OPTIMIZER, form->state[k].dtype, &form->state[k].shape,
      brim_arena_printf(&g->arena, "%s.%s", name, form->state[k].name ? form->state[k].name : number));
  g->state[g->state_count++] = (brim_state){t, parameter};
}

void brim_update_add_states(brim_graph *g, const brim_update_options *options)
{
  const brim_shape two = {1, {2}};
  if (options->scaled)
    g->gradient_scale = brim_graph_tensor(g, BRIM_ROLE_OPTIMIZER, BRIM_DTYPE_F64, &two, "gradient_scale");
  g->state = BRIM_ARENA_NEW(&g->arena, brim_state, g->parameter_count * BRIM_OPTIMIZER_STATES_MAX);
  g->offloads = options->offloaded;
  for (size_t i = 0; i < g->parameter_count; i++) {
    if (g->parameter[i].is_buffer) continue; /* no optimizer works on it */
    const brim_update_form form = form_of(options, g->parameter[i].value);
    for (uint32_t k = 0; k < form.state_count; k++) add_state(g, i, &form, k);
  }
}

/* ---- nodes ---- */

static void add_moving_average(brim_graph *g, const brim_parameter *p)
{
  const brim_attr attr = {.moving_average = {p->momentum}};
  brim_tensor *const in[] = {p->value, p->gradient}, *value = p->value;
  brim_graph_node_into(g, "moving_average", p->value->name, in, 2, &value, 1, &attr);
}

void brim_update_add_node(brim_graph *g, const brim_update_options *options, size_t parameter)
{
  const brim_parameter *p = &g->parameter[parameter];
  const brim_update_form form = form_of(options, p->value);
  brim_tensor *in[3 + BRIM_OPTIMIZER_STATES_MAX] = {p->value, p->gradient};
  brim_tensor *out[1 + BRIM_OPTIMIZER_STATES_MAX] = {p->value};
  brim_attr attr = {0};
  uint32_t inputs = 2, outputs = 1;
  if (options->attr) options->attr(options->params, p->value, &attr.update);
  for (size_t i = 0; i < g->state_count; i++)
    if (g->state[i].parameter == parameter) in[inputs++] = out[outputs++] = g->state[i].tensor;
  attr.update.scaled = g->gradient_scale != NULL;
  if (g->gradient_scale) in[inputs++] = g->gradient_scale;
  brim_graph_node_into(g, form.op, p->value->name, in, inputs, out, outputs, &attr);
}

void brim_update_add_further(brim_graph *g, size_t parameter)
{
  const brim_parameter *p = &g->parameter[parameter];
  brim_tensor *to = p->gradient;
  for (size_t i = 0; i < g->further_count; i++)
    if (g->further[i].parameter == parameter)
      brim_graph_node_into(g, "accumulate", p->value->name, &g->further[i].gradient, 1, &to, 1, NULL);
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

/* ---- the graph ---- */

/* The same parameter in the graph of the update; with a gradient if it is still there then. */
static void add_like(brim_graph *g, const brim_parameter *p, bool in_backward)
{
  g->training = p->is_buffer || !in_backward;
  if (p->is_buffer)
    brim_graph_buffer(g, p->value->name, &p->value->shape, p->init, p->momentum);
  else
    brim_graph_parameter(g, p->value->name, &p->value->shape, p->init);
  g->training = true;
}

/* What comes from the further uses of parameters. */
static void add_further_gradients(brim_graph *g, const brim_graph *like)
{
  g->further = brim_xcalloc(like->further_count + 1, sizeof *g->further);
  for (size_t i = 0; i < like->further_count; i++) {
    const brim_tensor *t = like->further[i].gradient;
    brim_tensor *same = brim_graph_tensor(g, BRIM_ROLE_GRADIENT, t->dtype, &t->shape, t->name);
    g->further[g->further_count++] = (brim_further){same, like->further[i].parameter};
  }
  for (size_t i = 0; i < g->parameter_count; i++) brim_update_add_further(g, i);
}

brim_status brim_graph_build_update(const brim_graph *like, const brim_update_options *options, brim_graph **out)
{
  brim_graph *g = brim_graph_create(like->real, like->batch, true);
  const bool all = !options->in_backward;
  for (size_t i = 0; i < like->parameter_count; i++) add_like(g, &like->parameter[i], options->in_backward);
  if (all) add_further_gradients(g, like);
  brim_update_add_states(g, options);
  if (all && options->scaled) brim_update_add_scale(g, options);
  g->first_update = g->node_count;
  for (size_t i = 0; i < g->parameter_count; i++)
    if (g->parameter[i].is_buffer)
      add_moving_average(g, &g->parameter[i]);
    else if (all)
      brim_update_add_node(g, options, i);
  g->first_average = g->node_count; /* the averages' memory comes last, one after the other: see brim_plan */
  for (size_t i = 0; options->ema_decay > 0 && i < g->parameter_count; i++)
    add_average(g, options->ema_decay, &g->parameter[i]);
  g->forward_count = g->node_count;
  *out = g;
  return BRIM_OK;
}

/* The sum goes on from the losses, the first of the metrics; the last node's result is the proof. */
brim_status brim_graph_build_check(const brim_graph *like, brim_graph **out)
{
  const brim_shape one = {1, {1}};
  brim_graph *g = brim_graph_create(like->real, like->batch, true);
  for (size_t i = 0; i < like->parameter_count; i++) add_like(g, &like->parameter[i], false);
  brim_tensor *sum = g->metrics =
      brim_graph_tensor(g, BRIM_ROLE_DATA, BRIM_DTYPE_F64, &like->metrics->shape, "metrics");
  for (size_t i = 0; i < g->parameter_count + like->further_count; i++) {
    const brim_tensor *further = i < g->parameter_count ? NULL : like->further[i - g->parameter_count].gradient;
    brim_tensor *const in[] = {
        further ? brim_graph_tensor(g, BRIM_ROLE_GRADIENT, further->dtype, &further->shape, further->name)
                : g->parameter[i].gradient,
        sum};
    const bool last = i + 1 == g->parameter_count + like->further_count;
    sum = brim_graph_tensor(g, last ? BRIM_ROLE_DATA : BRIM_ROLE_ACTIVATION, BRIM_DTYPE_F64, &one, "proof");
    if (last) g->proof = sum;
    brim_graph_node_into(g, "squared_norm", in[0]->name, in, 2, &sum, 1, NULL);
  }
  g->forward_count = g->node_count;
  *out = g;
  return BRIM_OK;
}
