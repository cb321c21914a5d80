/* The graph of an optimizer's update: its states, and the nodes that change parameters. */
#include "graph/update.h"

#include <stdio.h>
#include <string.h>

#include "base/formula.h"
#include "graph/federate.h"
#include "graph/shard.h"

static brim_tensor *add_square(brim_graph *g, const char *name, brim_tensor *gradient, brim_tensor *before)
{
  const brim_shape one = {1, {1}};
  brim_tensor *const in[] = {gradient, before};
  brim_tensor *sum = brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, BRIM_DTYPE_F64, &one, "gradient_norm");
  brim_graph_node_into(g, "squared_norm", name, in, before ? 2 : 1, &sum, 1, NULL);
  return sum;
}

/* Adds the nodes for the norm of all gradients, without buffers, and returns the sum of their squares. With shards, a
 * rank adds only its own parts. */
static brim_tensor *add_squares(brim_graph *g, const brim_update_options *options)
{
  brim_tensor *sum = NULL;
  if (options->max_norm <= 0) return NULL;
  for (size_t i = 0; i < g->shard_count; i++) sum = add_square(g, g->shard[i].own->name, g->shard[i].own, sum);
  for (size_t i = 0; g->shard_count == 0 && i < g->parameter_count; i++)
    if (brim_parameter_is_trained(&g->parameter[i]))
      sum = add_square(g, g->parameter[i].value->name, g->parameter[i].gradient, sum);
  return sum;
}

void brim_update_add_scale(brim_graph *g, const brim_update_options *options)
{
  const brim_attr attr = {.clip = {options->max_norm}};
  brim_tensor *sum = add_squares(g, options);
  brim_graph_node_into(g, "gradient_scale", "gradient_scale", &sum, sum ? 1 : 0, &g->gradient_scale, 1, &attr);
}

/* ---- states ---- */

brim_update_form brim_update_form_of(const brim_update_options *options, const brim_tensor *parameter)
{
  brim_update_form form = {.op = options->op, .formula = options->formula, .state_count = options->state_count};
  for (uint32_t k = 0; k < form.state_count; k++) {
    form.state[k].name = options->state_name ? options->state_name[k] : NULL;
    form.state[k].dtype = parameter->dtype;
    form.state[k].shape = parameter->shape;
  }
  if (options->form) options->form(options->params, parameter, &form);
  form.is_whole = form.is_whole || (options->build && !form.formula);
  return form;
}

/* Kernels read and write states by the parameter's size and type, so this checks a plugin's form. */
static void check_form(brim_graph *g, const brim_update_options *options, const brim_update_form *form,
                       const brim_tensor *parameter)
{
  const char *name = parameter->name;
  if (strcmp(options->op, "formula") != 0) return; /* an optimizer of brim, whose kernel knows its states */
  if (strcmp(form->op, options->op) != 0)
    brim_graph_fail(g, "optimizer", name, "form() sets op, which only brim's own optimizers may");
  else if (!form->formula && !options->build)
    brim_graph_fail(g, "optimizer", name, "form() sets formula to NULL, but ops.build is NULL too");
  else if (form->state_count > BRIM_OPTIMIZER_STATES_MAX || form->number_count > BRIM_OPTIMIZER_NUMBERS_MAX)
    brim_graph_fail(g, "optimizer", name, "form() declares %u states and %u numbers: at most %d and %d are allowed",
                    form->state_count, form->number_count, BRIM_OPTIMIZER_STATES_MAX, BRIM_OPTIMIZER_NUMBERS_MAX);
  for (uint32_t k = 0; k < form->number_count && g->status == BRIM_OK; k++)
    if (!form->number_name[k]) brim_graph_fail(g, "optimizer", name, "form() gives number %u no name", k);
  for (uint32_t k = 0; k < form->state_count && g->status == BRIM_OK; k++) {
    const brim_optimizer_state *state = &form->state[k];
    char shape[2][160];
    if (!state->name)
      brim_graph_fail(g, "optimizer", name, "form() gives state %u no name", k);
    else if (state->dtype != parameter->dtype || state->block != 0)
      brim_graph_fail(g, "optimizer", name, "form() must not change dtype and block of the state '%s'", state->name);
    else if (form->formula && !brim_shape_equal(&state->shape, &parameter->shape))
      brim_graph_fail(g, "optimizer", name,
                      "form() gives the state '%s' the shape %s, but a formula updates states element by element with "
                      "the parameter, whose shape is %s",
                      state->name, brim_shape_format(shape[0], sizeof shape[0], &state->shape),
                      brim_shape_format(shape[1], sizeof shape[1], &parameter->shape));
  }
}

const char *brim_update_state_name(brim_arena *arena, const brim_tensor *parameter, const brim_update_form *form,
                                   uint32_t k)
{
  if (form->state[k].name) return brim_arena_printf(arena, "%s.%s", parameter->name, form->state[k].name);
  return brim_arena_printf(arena, "%s.%u", parameter->name, k);
}

/* Adds the k-th state of a parameter; for a slice, the state of its elements. */
static void add_state(brim_graph *g, size_t parameter, const brim_update_form *form, uint32_t k)
{
  const brim_tensor *whole = g->parameter[parameter].value;
  const int64_t block = form->state[k].block > 0 ? form->state[k].block : 1;
  brim_shape shape = form->state[k].shape;
  int64_t first = 0;
  if (g->slice && !brim_shape_equal(&g->slice[parameter].value->shape, &whole->shape)) {
    shape = (brim_shape){1, {(brim_shape_count(&g->slice[parameter].value->shape) + block - 1) / block}};
    first = g->slice[parameter].first / block;
  }
  brim_tensor *t = brim_graph_tensor(g, BRIM_ROLE_OPTIMIZER, form->state[k].dtype, &shape,
                                     brim_update_state_name(&g->arena, whole, form, k));
  g->state[g->state_count++] = (brim_state){t, parameter, first};
}

/* Whether this rank updates any part of a parameter. Optimizers skip buffers and frozen parameters. */
static bool is_updated(const brim_graph *g, size_t parameter)
{
  return brim_parameter_is_trained(&g->parameter[parameter]) && (!g->slice || g->slice[parameter].value);
}

void brim_update_add_states(brim_graph *g, const brim_update_options *options)
{
  const brim_shape two = {1, {2}};
  if (options->scaled)
    g->gradient_scale = brim_graph_tensor(g, BRIM_ROLE_OPTIMIZER, BRIM_DTYPE_F64, &two, "gradient_scale");
  g->state = BRIM_ARENA_NEW(&g->arena, brim_state, g->parameter_count * BRIM_OPTIMIZER_STATES_MAX);
  g->offloads = options->offloaded;
  for (size_t i = 0; i < g->parameter_count; i++) {
    if (!is_updated(g, i)) continue;
    const brim_update_form form = brim_update_form_of(options, g->parameter[i].value);
    check_form(g, options, &form, g->parameter[i].value);
    for (uint32_t k = 0; k < form.state_count && g->status == BRIM_OK; k++) add_state(g, i, &form, k);
  }
}

/* ---- nodes ---- */

static void add_moving_average(brim_graph *g, const brim_parameter *p)
{
  const brim_attr attr = {.moving_average = {p->momentum}};
  brim_tensor *const in[] = {p->value, p->gradient}, *value = p->value;
  brim_graph_node_into(g, "moving_average", p->value->name, in, 2, &value, 1, &attr);
}

/* States are in the order of their parameters. */
static size_t first_state(const brim_graph *g, size_t parameter)
{
  size_t from = 0, to = g->state_count;
  while (from < to) {
    const size_t middle = from + (to - from) / 2;
    if (g->state[middle].parameter < parameter)
      from = middle + 1;
    else
      to = middle;
  }
  return from;
}

/* ---- formulas ---- */

/* Returns a parameter's formula, which is parsed only once because most parameters share it. NULL, with the error in
 * the graph, if it is not valid. evaluated: the formula for evaluation instead of that for the update. */
static const brim_formula *formula_of(brim_graph *g, const brim_update_options *options, const brim_update_form *form,
                                      bool evaluated)
{
  brim_formula *made = BRIM_ARENA_NEW(&g->arena, brim_formula, 1);
  const brim_status status = evaluated
                                 ? brim_formula_read_evaluated(options->evaluated, form, options->scalars, made)
                                 : brim_formula_read_update(form, options->scalars, g->gradient_scale != NULL, made);
  if (status != BRIM_OK) {
    brim_graph_fail(g, "optimizer", NULL, "%s%s", evaluated ? "evaluated: " : "", brim_error_text());
    return NULL;
  }
  for (size_t i = g->node_count; i-- > 0;) {
    const brim_formula *before = g->node[i]->attr.formula.formula;
    if (strcmp(g->node[i]->op, "formula") == 0 && brim_formula_equal(before, made)) return before;
  }
  return made;
}

/* Adds the parameter's states to list[]; returns their number. */
static uint32_t list_states(const brim_graph *g, size_t parameter, brim_tensor **list)
{
  uint32_t count = 0;
  for (size_t i = first_state(g, parameter); i < g->state_count && g->state[i].parameter == parameter; i++)
    list[count++] = g->state[i].tensor;
  return count;
}

void brim_update_add_node(brim_graph *g, const brim_update_options *options, size_t parameter)
{
  const brim_parameter *p = &g->parameter[parameter];
  const brim_own_slice all = {p->value, p->gradient, 0}, *slice = g->slice ? &g->slice[parameter] : &all;
  const brim_update_form form = brim_update_form_of(options, p->value);
  brim_tensor *in[3 + BRIM_OPTIMIZER_STATES_MAX] = {slice->value, slice->gradient};
  brim_tensor *out[1 + BRIM_OPTIMIZER_STATES_MAX] = {slice->value};
  brim_attr attr = {0};
  if (g->status != BRIM_OK) return;
  uint32_t inputs = 2 + list_states(g, parameter, in + 2);
  const uint32_t outputs = 1 + list_states(g, parameter, out + 1);
  if (g->gradient_scale) in[inputs++] = g->gradient_scale;
  if (form.formula) {
    attr.formula.formula = formula_of(g, options, &form, false);
    brim_graph_node_into(g, "formula", p->value->name, in, inputs, out, outputs, &attr);
  } else if (options->build) {
    brim_update_build(g, options, &form, p->value, in);
  } else {
    if (options->attr) options->attr(options->params, p->value, &attr.update);
    attr.update.scaled = g->gradient_scale != NULL;
    brim_graph_node_into(g, form.op, p->value->name, in, inputs, out, outputs, &attr);
  }
}

void brim_update_add_steer(brim_graph *g, size_t parameter)
{
  const brim_parameter *p = &g->parameter[parameter];
  brim_tensor *control = g->control ? g->control[parameter] : NULL, *gradient = p->gradient;
  brim_tensor *const in[] = {p->value, g->global[parameter], gradient, control};
  if (p->is_local) return;
  brim_graph_node_into(g, "steer", p->value->name, in, control ? 4 : 3, &gradient, 1, NULL);
}

/* Adds a node, slice or reshape, that moves `count` values of x, beginning at `start`, to a flat tensor. */
static brim_tensor *move(brim_graph *g, const char *op, brim_tensor *x, int64_t start, int64_t count)
{
  const brim_shape flat = {1, {count}};
  const brim_attr attr = {.move = {.start = start}};
  brim_tensor *y = brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, x->dtype, &flat, x->name);
  brim_graph_node_into(g, op, x->name, &x, 1, &y, 1, &attr);
  return y;
}

/* Returns the part of a gradient that belongs to the rank's slice. */
static brim_tensor *own_part(brim_graph *g, const brim_own_slice *slice, brim_tensor *gradient)
{
  const int64_t own = brim_shape_count(&slice->gradient->shape), all = brim_shape_count(&gradient->shape);
  if (own == all) return gradient; /* if they differ, the gradient is a slice already */
  return move(g, "slice", move(g, "reshape", gradient, 0, all), slice->first, own);
}

void brim_update_add_further(brim_graph *g, size_t parameter)
{
  const brim_parameter *p = &g->parameter[parameter];
  brim_tensor *to = g->slice ? g->slice[parameter].gradient : p->gradient;
  for (size_t i = 0; i < g->further_count; i++) {
    brim_tensor *more = g->further[i].parameter == parameter ? g->further[i].gradient : NULL;
    if (more && g->slice) more = own_part(g, &g->slice[parameter], more);
    if (more) brim_graph_node_into(g, "accumulate", p->value->name, &more, 1, &to, 1, NULL);
  }
}

/* Adds the value that evaluation uses instead of a parameter. Buffers are averages already, so they are copied. */
static void add_average(brim_graph *g, const brim_update_options *options, size_t parameter)
{
  const brim_parameter *p = &g->parameter[parameter];
  brim_tensor *average = brim_graph_tensor(g, BRIM_ROLE_OPTIMIZER, g->real, &p->value->shape,
                                           brim_arena_printf(&g->arena, "%s.average", p->value->name));
  brim_tensor *in[1 + BRIM_OPTIMIZER_STATES_MAX] = {p->value, average};
  if (!options->evaluated || p->is_buffer) {
    const brim_attr attr = {.ema = {p->is_buffer ? 0 : options->ema_decay}};
    brim_graph_node_into(g, "ema", p->value->name, in, 2, &average, 1, &attr);
    return;
  }
  const brim_update_form form = brim_update_form_of(options, p->value);
  const brim_attr attr = {.formula.formula = formula_of(g, options, &form, true)};
  if (g->status != BRIM_OK) return;
  const uint32_t inputs = 1 + list_states(g, parameter, in + 1);
  brim_graph_node_into(g, "formula", p->value->name, in, inputs, &average, 1, &attr);
}

void brim_update_copy_parameter(brim_graph *g, const brim_parameter *p)
{
  g->freezing = p->is_frozen;
  brim_tensor *value = p->is_buffer ? brim_graph_buffer(g, p->value->name, &p->value->shape, p->init, p->momentum)
                                    : brim_graph_parameter(g, p->value->name, &p->value->shape, p->init);
  value->dtype = p->value->dtype;
  value->bytes = p->value->bytes;
  g->parameter[g->parameter_count - 1].is_local = p->is_local;
  g->freezing = false;
}

/* Adds a parameter to the update's graph, with its gradient if that still exists in the update and is whole. */
static void add_like(brim_graph *g, const brim_parameter *p, bool with_gradient)
{
  g->training = p->is_buffer || with_gradient;
  brim_update_copy_parameter(g, p);
  g->training = true;
}

/* Adds the sums of a step besides those of parameters' first uses, in their order; for slices, the same elements. With
 * sharded gradients, training has already added the sums of further uses. */
static void add_sums(brim_graph *g, const brim_graph *like, const brim_shards *shards)
{
  g->further_room = like->further_count;
  g->further = brim_xcalloc(like->further_count + 1, sizeof *g->further);
  for (size_t i = 0; i < like->further_count; i++) {
    const brim_further *f = &like->further[i];
    const brim_tensor *t = f->gradient, *slice = g->slice && !f->of ? g->slice[f->parameter].gradient : NULL;
    brim_further *same = &g->further[g->further_count++];
    *same = (brim_further){NULL, f->parameter, f->of};
    if (f->of || !shards || !shards->gradients)
      same->gradient = brim_graph_tensor(g, BRIM_ROLE_GRADIENT, t->dtype, slice ? &slice->shape : &t->shape, t->name);
  }
}

/* ---- tensors made of parameters alone ---- */

/* Adds the forward nodes of `like` that have no samples, and assigns the sums to their tensors. */
static void add_nodes_without_samples(brim_graph *g, const brim_graph *like, brim_arena *scratch)
{
  brim_tensor **same = BRIM_ARENA_NEW(scratch, brim_tensor *, like->tensor_count);
  for (size_t i = 0; i < like->parameter_count; i++) same[like->parameter[i].value->id] = g->parameter[i].value;
  for (size_t i = 0; i < like->forward_count; i++) {
    const brim_node *n = like->node[i];
    if (brim_node_has_samples(like, n)) continue;
    brim_tensor **in = BRIM_ARENA_NEW(scratch, brim_tensor *, n->in_count + n->out_count), **out = in + n->in_count;
    for (uint32_t k = 0; k < n->in_count; k++) in[k] = same[n->in[k]->id];
    for (uint32_t k = 0; k < n->out_count; k++) {
      const brim_tensor *t = n->out[k];
      out[k] = same[t->id] = brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, t->dtype, &t->shape, t->name);
    }
    brim_graph_node_into(g, n->op, n->name, in, n->in_count, out, n->out_count, &n->attr);
  }
  for (size_t i = 0; i < g->further_count; i++)
    if (g->further[i].of) g->further[i].of = same[g->further[i].of->id];
}

/* Zeroes the gradients to which add_fold's nodes add; they exist only until the update has used them. */
static void begin_brief(brim_graph *g, size_t sums)
{
  g->within_count = g->tensor_count;
  g->within = BRIM_ARENA_NEW(&g->arena, brim_within, g->tensor_count);
  for (size_t i = sums; i < g->further_count; i++) {
    brim_tensor *t = g->further[i].gradient;
    g->within[t->id] = (brim_within){t, 0};
    brim_graph_node_into(g, "zero", t->name, NULL, 0, &t, 1, NULL);
  }
}

/* Appends all of `count` nodes from `forward` on. Of the nodes before, which are forward nodes without samples, appends
 * those that a later node needs. begin_brief() has appended the nodes that write zeros. */
static void append_needed(brim_graph *g, brim_node *const *node, size_t forward, size_t count, brim_arena *scratch)
{
  bool *read = BRIM_ARENA_NEW(scratch, bool, g->tensor_count), *needed = BRIM_ARENA_NEW(scratch, bool, count);
  for (size_t i = count; i-- > 0;) {
    needed[i] = i >= forward;
    for (uint32_t k = 0; k < node[i]->out_count; k++) needed[i] = needed[i] || read[node[i]->out[k]->id];
    for (uint32_t k = 0; needed[i] && k < node[i]->in_count; k++) read[node[i]->in[k]->id] = true;
  }
  for (size_t i = 0; i < count; i++)
    if (needed[i]) brim_graph_append(g, node[i]);
}

/* Passes a step's sums of gradients of tensors without samples on to their parameters. The update does this once per
 * step, so the result does not depend on micro-batches. */
static void add_fold(brim_graph *g, const brim_graph *like)
{
  brim_arena scratch = {0};
  const size_t sums = g->further_count;
  bool any = false;
  for (size_t i = 0; i < sums; i++) any = any || g->further[i].of;
  if (!any) return;
  /* The numbers of uses continue those of the training graph, and each use gets a gradient of its own. Only the first
   * use of a parameter adds to the parameter's gradient. With slices that gradient does not exist as a whole, so the
   * numbers start at 1. */
  for (size_t i = 0; i < g->parameter_count; i++)
    g->parameter[i].uses = like->parameter[i].uses + (g->slice && like->parameter[i].uses == 0);
  add_nodes_without_samples(g, like, &scratch);
  g->forward_count = g->node_count;
  brim_graph_fold(g);
  const size_t forward = g->forward_count, count = g->node_count;
  brim_node **node = BRIM_ARENA_NEW(&scratch, brim_node *, count);
  memcpy(node, g->node, count * sizeof *node);
  g->forward_count = 0;
  brim_graph_cut_backward(g);
  begin_brief(g, sums);
  append_needed(g, node, forward, count, &scratch);
  brim_arena_release(&scratch);
}

static void add_further_gradients(brim_graph *g, const brim_graph *like, const brim_shards *shards)
{
  add_sums(g, like, shards);
  add_fold(g, like);
  for (size_t i = 0; i < g->parameter_count; i++)
    if (is_updated(g, i)) brim_update_add_further(g, i);
}

/* ---- a rank's part of sharded parameters ---- */

static void add_slice(brim_graph *g, const brim_shards *shards, size_t parameter)
{
  const brim_tensor *whole = g->parameter[parameter].value;
  brim_own_slice *slice = &g->slice[parameter];
  int64_t count = 0;
  if (!brim_shards_own(shards, parameter, &slice->first, &count)) return;
  const brim_shape flat = {1, {count}};
  const brim_shape *shape = count == brim_shape_count(&whole->shape) ? &whole->shape : &flat;
  slice->value = brim_graph_tensor(g, BRIM_ROLE_PARAMETER, g->real, shape, whole->name);
  slice->gradient =
      brim_graph_tensor(g, BRIM_ROLE_GRADIENT, g->real, shape, brim_arena_printf(&g->arena, "%s.grad", whole->name));
}

/* Adds the own parts of all gradients, without the nodes that make them: see graph/shard.h. */
static void add_own_parts(brim_graph *g, const brim_shards *shards)
{
  g->shard = BRIM_ARENA_NEW(&g->arena, brim_gradient_shard, shards->bucket_count);
  for (size_t k = 0; k < shards->bucket_count; k++) {
    const brim_shape shape = {1, {(int64_t)shards->bucket[k].part}};
    g->shard[g->shard_count++].own =
        brim_graph_tensor(g, BRIM_ROLE_GRADIENT, g->real, &shape, brim_arena_printf(&g->arena, "gradients.%zu", k));
  }
}

static brim_status add_slices(brim_graph *g, const brim_update_options *options)
{
  for (size_t i = 0; i < g->parameter_count; i++)
    if (is_updated(g, i) && brim_update_form_of(options, g->parameter[i].value).is_whole)
      return brim_fail(BRIM_ECONFIG,
                       "dist.shard cannot be combined with an optimizer that works on whole rows and columns "
                       "(adafactor, muon): no rank could update a part of '%s' alone\nset dist.shard=none, as the "
                       "state is small, or use another optimizer",
                       g->parameter[i].value->name);
  g->slice = BRIM_ARENA_NEW(&g->arena, brim_own_slice, g->parameter_count);
  for (size_t i = 0; i < g->parameter_count; i++) add_slice(g, options->shards, i);
  add_own_parts(g, options->shards);
  return BRIM_OK;
}

/* ---- the graph ---- */

static void steer_all(brim_graph *g)
{
  brim_graph_add_global(g);
  for (size_t i = 0; i < g->parameter_count; i++)
    if (brim_parameter_is_trained(&g->parameter[i])) brim_update_add_steer(g, i);
}

static void add_nodes(brim_graph *g, const brim_graph *like, const brim_update_options *options)
{
  const bool all = !options->in_backward;
  if (all) add_further_gradients(g, like, options->shards);
  if (options->controlled) brim_graph_add_control(g);
  if (all && options->steered) steer_all(g);
  brim_update_add_states(g, options);
  if (all && options->scaled) brim_update_add_scale(g, options);
  g->first_update = g->node_count;
  for (size_t i = 0; i < g->parameter_count; i++)
    if (g->parameter[i].is_buffer && !g->parameter[i].is_frozen)
      add_moving_average(g, &g->parameter[i]);
    else if (all && is_updated(g, i))
      brim_update_add_node(g, options, i);
  g->first_average = g->node_count; /* the averages' memory comes last: see brim_plan */
  for (size_t i = 0; brim_update_has_averages(options) && i < g->parameter_count; i++)
    if (!g->parameter[i].is_frozen) add_average(g, options, i);
  g->forward_count = g->node_count;
}

brim_status brim_graph_build_update(const brim_graph *like, const brim_update_options *options, brim_graph **out)
{
  brim_graph *g = brim_graph_create(like->real, like->batch, true);
  for (size_t i = 0; i < like->parameter_count; i++)
    add_like(g, &like->parameter[i], !options->in_backward && !options->shards);
  const brim_status status = options->shards ? add_slices(g, options) : BRIM_OK;
  if (status != BRIM_OK) {
    brim_graph_free(g);
    return status;
  }
  add_nodes(g, like, options);
  if (g->status != BRIM_OK) {
    const brim_status failed = brim_fail(g->status, "%s", g->error);
    brim_graph_free(g);
    return failed;
  }
  *out = g;
  return BRIM_OK;
}

/* Returns the gradients that a check covers: with shards this rank's parts, and the sums for buffers, which every rank
 * has. */
static brim_tensor **gradients_to_check(brim_graph *g, const brim_graph *like, const brim_shards *shards, size_t *count)
{
  brim_tensor **list =
      BRIM_ARENA_NEW(&g->arena, brim_tensor *, g->parameter_count + g->shard_count + like->further_count);
  *count = 0;
  for (size_t i = 0; i < g->shard_count; i++) list[(*count)++] = g->shard[i].own;
  for (size_t i = 0; i < g->parameter_count; i++)
    if (g->parameter[i].gradient) list[(*count)++] = g->parameter[i].gradient;
  add_sums(g, like, shards);
  for (size_t i = 0; i < g->further_count; i++)
    if (g->further[i].gradient) list[(*count)++] = g->further[i].gradient;
  return list;
}

/* The sum starts with the step's losses, which are the first metric; the result of the last node is the proof. */
brim_status brim_graph_build_check(const brim_graph *like, const brim_shards *shards, brim_graph **out)
{
  const brim_shape one = {1, {1}};
  brim_graph *g = brim_graph_create(like->real, like->batch, true);
  size_t count = 0;
  for (size_t i = 0; i < like->parameter_count; i++) add_like(g, &like->parameter[i], !shards);
  if (shards) add_own_parts(g, shards);
  brim_tensor *const *list = gradients_to_check(g, like, shards, &count);
  brim_tensor *sum = g->metrics =
      brim_graph_tensor(g, BRIM_ROLE_DATA, BRIM_DTYPE_F64, &like->metrics->shape, "metrics");
  for (size_t i = 0; i < count; i++) {
    brim_tensor *const in[] = {list[i], sum};
    sum = brim_graph_tensor(g, i + 1 == count ? BRIM_ROLE_DATA : BRIM_ROLE_ACTIVATION, BRIM_DTYPE_F64, &one, "proof");
    if (i + 1 == count) g->proof = sum;
    brim_graph_node_into(g, "squared_norm", in[0]->name, in, 2, &sum, 1, NULL);
  }
  g->forward_count = g->node_count;
  *out = g;
  return BRIM_OK;
}
