/* Mixed precision (Micikevicius et al., ICLR 2018), implemented as a pass over the forward graph: every activation gets
 * the smaller type, except those that the operation's descriptor keeps wide. Data, parameters and tensors made of
 * parameters alone are cast once each, right before the first node that reads them together with samples. The backward
 * pass then has the types of the tensors that it differentiates, and parameters' gradients are summed in the
 * parameters' own type, because autodiff skips casts of parameters. */
#include "graph/lower.h"

#include <assert.h>
#include <string.h>

static brim_status infer_cast(brim_graph *g, brim_node *n)
{
  n->out[0] = brim_graph_like(g, n, &n->in[0]->shape);
  return BRIM_OK;
}

/* Used only for the gradient of the data, if requested, because parameters' gradients skip casts. */
static brim_status gradient_cast(brim_autodiff *ad, const brim_node *n)
{
  brim_tensor *dy = brim_autodiff_of(ad, n->out[0]);
  return brim_autodiff_emit(ad, "cast", n, &(brim_attr){0}, &dy, 1, n->in, 1);
}

BRIM_OP(cast) = {.name = "cast",
                 .kind = BRIM_KIND_COPY,
                 .converts = true,
                 .signature = "x [...] -> y [...]",
                 .infer = infer_cast,
                 .gradient = gradient_cast};

typedef struct pass {
  brim_graph *g;
  uint32_t dtype;     /* type to which values are rounded; g->real: no rounding */
  brim_tensor **copy; /* by tensor id before the pass */
  bool *small;        /* by tensor id: whether it is a frozen weight stored in g->frozen_type */
  bool *of_loss;      /* by tensor id: whether a loss plugin's graph made it */
  size_t count;
} pass;

static void store_as(const brim_graph *g, brim_tensor *t, uint32_t dtype)
{
  if (g->real != BRIM_DTYPE_F32) return; /* only reference backends have a wider type, and they keep values in it */
  t->dtype = dtype;
  t->bytes = (uint64_t)brim_shape_count(&t->shape) * brim_dtype_bytes(dtype);
}
static void store_small(const pass *p, brim_tensor *t)
{
  store_as(p->g, t, p->dtype);
}

static bool is_copied(const pass *p, const brim_tensor *t)
{
  const bool is_activation = t->role == BRIM_ROLE_ACTIVATION && brim_graph_has_samples(p->g, t);
  return t->id < p->count && t->dtype == p->g->real && t != p->g->class_weight && t != p->g->label && !is_activation &&
         t->role != BRIM_ROLE_CACHE;
}

/* Returns the cast of t; appends it if there is none yet. NULL on error. */
static brim_tensor *copy_of(const pass *p, brim_tensor *t)
{
  if (p->copy[t->id]) return p->copy[t->id];
  brim_tensor *y = brim_graph_apply(p->g, "cast", t->name, &t, 1, &(brim_attr){.cast = {p->dtype}});
  if (y) store_small(p, y);
  return p->copy[t->id] = y;
}

/* Returns a frozen weight in a type that this node reads. Each node has its own copy, which lives only until then. NULL
 * on error. */
static brim_tensor *read_small(const pass *p, brim_tensor *t, bool wide)
{
  brim_graph *g = p->g;
  if (!wide && p->dtype == g->frozen_type) return g->real == BRIM_DTYPE_F32 ? t : copy_of(p, t);
  brim_tensor *y = brim_graph_apply(g, "cast", t->name, &t, 1, &(brim_attr){.cast = {g->frozen_type}});
  if (y) store_as(g, y, g->real);
  if (!y || wide) return y;
  y = brim_graph_apply(g, "cast", t->name, &y, 1, &(brim_attr){.cast = {p->dtype}});
  if (y) store_small(p, y);
  return y;
}

/* Whether the node only copies values of a frozen weight that is stored in a smaller type. */
static bool copies_small(const pass *p, const brim_node *n)
{
  for (uint32_t k = 0; k < n->in_count && k < 32; k++)
    if (n->descriptor->traits.copied >> k & 1 && n->in[k]->id < p->count && p->small[n->in[k]->id]) return true;
  return false;
}

/* Handles a node that copies values of a weight. It reads the weight in its stored type, because a wide copy of an
 * embedding table would be large: a new node copies the values, and this node becomes the cast of its result. */
static bool cast_after(const pass *p, brim_node *n)
{
  brim_graph *g = p->g;
  if (p->dtype == g->frozen_type && g->real == BRIM_DTYPE_F32) return true; /* without a smaller type nothing is cast */
  brim_tensor *y = brim_graph_apply(g, n->op, n->name, n->in, n->in_count, &n->attr);
  if (y && p->dtype != g->real) {
    y = brim_graph_apply(g, "cast", n->name, &y, 1, &(brim_attr){.cast = {g->frozen_type}});
    if (y) store_as(g, y, g->real);
  }
  if (!y) return false;
  n->op = "cast";
  n->descriptor = brim_op_find(n->op);
  n->attr = (brim_attr){.cast = {p->dtype != g->real ? p->dtype : g->frozen_type}};
  n->in[0] = y;
  n->in_count = 1;
  return true;
}

/* Returns the tensor that a node reads instead of its k-th input. NULL on error. */
static brim_tensor *lowered_input(const pass *p, const brim_node *n, uint32_t k)
{
  brim_tensor *t = n->in[k];
  const bool wide =
      p->dtype == p->g->real || (k < 32 && n->descriptor->wide_in >> k & 1) || !brim_node_has_samples(p->g, n);
  if (t->id < p->count && p->small[t->id]) return read_small(p, t, wide);
  return !wide && is_copied(p, t) ? copy_of(p, t) : t;
}

/* Returns the model's output in the type of its real targets, which is cast only once. NULL on error. */
static brim_tensor *wide_output(const pass *p)
{
  brim_graph *g = p->g;
  brim_tensor **copy = &p->copy[g->output->id];
  if (*copy || g->output->role != BRIM_ROLE_ACTIVATION) return *copy ? *copy : g->output;
  brim_tensor *y = brim_graph_apply(g, "cast", "output", &g->output, 1, &(brim_attr){0});
  if (!y) return NULL;
  y->dtype = g->real;
  y->bytes = (uint64_t)brim_shape_count(&y->shape) * brim_dtype_bytes(g->real);
  return *copy = y;
}

/* Converts outputs to the type of real targets before they are compared, like PyTorch's autocast, because targets may
 * be large and differences relatively small. */
static bool widen_output(const pass *p, brim_node *n)
{
  const brim_graph *g = p->g;
  const bool compares =
      p->dtype != g->real && n->in_count > 1 && n->in[n->in_count - 1] == g->label && g->label->dtype == g->real;
  for (uint32_t k = 0; compares && k < n->in_count; k++)
    if (n->in[k] == g->output && !(n->in[k] = wide_output(p))) return false;
  return true;
}

/* Whether a node belongs to a loss plugin's graph, which begins at the output and the label; metrics do not. */
static bool is_of_loss(const pass *p, const brim_node *n)
{
  bool any = false;
  for (uint32_t k = 0; k < n->in_count; k++)
    any = any || n->in[k] == p->g->output || n->in[k] == p->g->label ||
          (n->in[k]->id < p->count && p->of_loss[n->in[k]->id]);
  return p->g->builds_loss && any && n->out[0]->role == BRIM_ROLE_ACTIVATION;
}

/* Keeps a node of the loss in the type of parameters, as PyTorch's autocast does. */
static bool leave_wide(const pass *p, brim_node *n)
{
  for (uint32_t k = 0; k < n->in_count && p->dtype != p->g->real; k++)
    if (n->in[k] == p->g->output && !(n->in[k] = wide_output(p))) return false;
  for (uint32_t k = 0; k < n->out_count; k++) p->of_loss[n->out[k]->id] = true;
  return true;
}

static bool lower_node(const pass *p, brim_node *n)
{
  const brim_op *op = n->descriptor;
  if (is_of_loss(p, n)) return leave_wide(p, n);
  if (!widen_output(p, n)) return false;
  const bool copies = copies_small(p, n);
  if (copies && !cast_after(p, n)) return false;
  for (uint32_t k = 0; k < n->in_count && !copies; k++) {
    brim_tensor *read = lowered_input(p, n, k);
    if (!read) return false;
    n->in[k] = read;
  }
  for (uint32_t k = 0; k < n->out_count; k++)
    if ((n->out[k]->role == BRIM_ROLE_ACTIVATION || n->out[k]->role == BRIM_ROLE_CACHE) &&
        n->out[k]->dtype == p->g->real && !(op->wide_out >> k & 1) && brim_graph_has_samples(p->g, n->out[k]))
      store_small(p, n->out[k]);
  return true;
}

void brim_graph_lower(brim_graph *g, uint32_t dtype)
{
  if (dtype == 0) dtype = g->real;
  if (g->status != BRIM_OK || (dtype == g->real && !g->frozen_type)) return;
  pass p = {.g = g, .dtype = dtype, .count = g->tensor_count};
  p.copy = BRIM_ARENA_NEW(&g->arena, brim_tensor *, g->tensor_count);
  p.small = BRIM_ARENA_NEW(&g->arena, bool, g->tensor_count);
  p.of_loss = BRIM_ARENA_NEW(&g->arena, bool, g->tensor_count);
  for (size_t i = 0; i < g->parameter_count; i++)
    if (g->parameter[i].is_small) {
      p.small[g->parameter[i].value->id] = true;
      store_as(g, g->parameter[i].value, g->frozen_type);
    }
  const size_t count = g->node_count;
  brim_node **node = BRIM_ARENA_NEW(&g->arena, brim_node *, count);
  for (size_t i = 0; i < count; i++) {
    node[i] = g->node[i];
    for (uint32_t k = 0; k < node[i]->out_count; k++) node[i]->out[k]->producer = -1;
  }
  g->node_count = 0; /* rebuilds the list with casts in between */
  for (size_t i = 0; i < count; i++) {
    g->file = node[i]->file;
    g->line = node[i]->line;
    if (!lower_node(&p, node[i])) return;
    brim_graph_append(g, node[i]);
  }
}

/* If a tensor is a copy of a frozen weight stored in a smaller type, or a copy of that copy, returns the cast that made
 * it. */
static const brim_node *widening(const brim_graph *g, const brim_tensor *t)
{
  const brim_node *n = t->producer >= 0 && t->producer < (int32_t)g->forward_count ? g->node[t->producer] : NULL;
  if (!n || !n->descriptor->converts) return NULL;
  const brim_parameter *p = brim_graph_parameter_of(g, n->in[0]);
  return (p && p->is_small) || widening(g, n->in[0]) ? n : NULL;
}

/* Appends the same casts again; returns the last one's result, NULL on error. */
static brim_tensor *make_again(brim_graph *g, const brim_node *cast)
{
  const brim_node *before = widening(g, cast->in[0]);
  brim_tensor *x = before ? make_again(g, before) : cast->in[0];
  brim_tensor *y = x ? brim_graph_apply(g, "cast", cast->name, &x, 1, &cast->attr) : NULL;
  if (!y) return NULL;
  y->dtype = cast->out[0]->dtype;
  y->bytes = cast->out[0]->bytes;
  return y;
}

void brim_graph_widen_again(brim_graph *g)
{
  if (g->status != BRIM_OK || !g->frozen_type) return;
  const size_t count = g->node_count - g->forward_count;
  brim_node **node = BRIM_ARENA_NEW(&g->arena, brim_node *, count);
  memcpy(node, g->node + g->forward_count, count * sizeof *node);
  brim_graph_cut_backward(g);
  for (size_t i = 0; i < count; i++) {
    g->file = node[i]->file;
    g->line = node[i]->line;
    for (uint32_t k = 0; k < node[i]->in_count; k++) {
      const brim_node *cast = widening(g, node[i]->in[k]);
      brim_tensor *again = cast ? make_again(g, cast) : node[i]->in[k];
      if (!again) return;
      node[i]->in[k] = again;
    }
    brim_graph_append(g, node[i]);
  }
  g->file = "";
}
