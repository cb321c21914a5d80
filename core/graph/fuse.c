/* The fusion pass over a forward graph, before autodiff.
 *
 * A row of the table names two operations and the one that does the work of both. A node is merged into the one right
 * before it if the row's names agree, nobody else reads what lies between them (unless it stays), and the row's `join`
 * finds the shapes in order. Only neighbours are merged: then the fused node runs when the two would have run, its
 * gradient's nodes come when theirs would, and no tensor lives longer than before. Plans never become larger.
 *
 * A fused operation is named by its two, "linear+relu", and carries the name that the author gave to one of them, so
 * that messages read as the model does. */
#include "graph/fuse.h"

#include <string.h>

enum stays { NEVER, IN_TRAINING, ALWAYS };

typedef struct fusion {
  uint64_t kind; /* enum brim_fusion */
  const char *first, *second, *op;
  enum stays stays; /* when the first one's result stays an output, which others may read */
  /* Makes `first` the fused node; false, with nothing changed: it cannot be. */
  bool (*join)(brim_graph *g, brim_node *first, const brim_node *second);
} fusion;

static bool join_activation(brim_graph *g, brim_node *first, const brim_node *second);
static bool join_leaky_relu(brim_graph *g, brim_node *first, const brim_node *second);
static bool join_keeping(brim_graph *g, brim_node *first, const brim_node *second);
static bool join_dropout_add(brim_graph *g, brim_node *first, const brim_node *second);
static bool join_residual_norm(brim_graph *g, brim_node *first, const brim_node *second);

static const fusion table[] = {
    {BRIM_FUSE_BIAS_ACTIVATION, "linear", "relu", "linear+relu", NEVER, join_activation},
    {BRIM_FUSE_BIAS_ACTIVATION, "linear", "leaky_relu", "linear+leaky_relu", NEVER, join_leaky_relu},
    {BRIM_FUSE_BIAS_ACTIVATION, "linear", "sigmoid", "linear+sigmoid", NEVER, join_activation},
    {BRIM_FUSE_BIAS_ACTIVATION, "linear", "tanh", "linear+tanh", NEVER, join_activation},
    {BRIM_FUSE_BIAS_ACTIVATION, "conv2d", "relu", "conv2d+relu", NEVER, join_activation},
    {BRIM_FUSE_BIAS_ACTIVATION, "conv2d", "leaky_relu", "conv2d+leaky_relu", NEVER, join_leaky_relu},
    {BRIM_FUSE_BIAS_ACTIVATION, "conv2d", "sigmoid", "conv2d+sigmoid", NEVER, join_activation},
    {BRIM_FUSE_BIAS_ACTIVATION, "conv2d", "tanh", "conv2d+tanh", NEVER, join_activation},
    {BRIM_FUSE_BIAS_ACTIVATION, "linear", "gelu", "linear+gelu", IN_TRAINING, join_keeping},
    {BRIM_FUSE_BIAS_ACTIVATION, "linear", "silu", "linear+silu", IN_TRAINING, join_keeping},
    {BRIM_FUSE_NORM_ACTIVATION, "batch_norm", "relu", "batch_norm+relu", NEVER, join_activation},
    {BRIM_FUSE_NORM_ACTIVATION, "batch_norm_inference", "relu", "batch_norm_inference+relu", NEVER, join_activation},
    {BRIM_FUSE_NORM_ACTIVATION, "group_norm", "relu", "group_norm+relu", NEVER, join_activation},
    {BRIM_FUSE_NORM_ACTIVATION, "layer_norm", "relu", "layer_norm+relu", NEVER, join_activation},
    {BRIM_FUSE_RESIDUAL_NORM, "add", "layer_norm", "add+layer_norm", ALWAYS, join_residual_norm},
    {BRIM_FUSE_RESIDUAL_NORM, "add", "rms_norm", "add+rms_norm", ALWAYS, join_residual_norm},
    {BRIM_FUSE_DROPOUT_ADD, "dropout", "add", "dropout+add", NEVER, join_dropout_add},
};

/* The activation's result takes the place of what it is applied to. */
static bool join_activation(brim_graph *g, brim_node *first, const brim_node *second)
{
  (void)g;
  first->attr.fused.activation = second->attr.activation;
  first->out[0] = second->out[0];
  return true;
}

/* Its gradient is told by the sign of its result. */
static bool join_leaky_relu(brim_graph *g, brim_node *first, const brim_node *second)
{
  return second->attr.activation.factor > 0 && join_activation(g, first, second);
}

/* Is the next node another such product? Nodes with one operand and a result as large may come before it. */
static bool is_followed_by(const brim_graph *g, const brim_node *n, const char *op)
{
  for (size_t i = n->index + 1; i < g->node_count; i++) {
    const brim_node *next = g->node[i];
    if (strcmp(next->op, op) == 0) return true;
    if (next->in_count != 1 || next->out[0]->bytes != next->in[0]->bytes) return false;
  }
  return false;
}

/* In training both results stay. While the two are made, the product's scratch lives too, which is no more than what
 * another product right behind needs: all tensors live then as well, since a layer keeps its input for its gradient.
 * Elsewhere the plan might become larger, as of four dimensions, which the product may have to copy. */
static bool join_keeping(brim_graph *g, brim_node *first, const brim_node *second)
{
  if (!g->training) return join_activation(g, first, second);
  brim_tensor *before = first->out[0];
  if (second->out[0] == before || before->shape.rank == 4 || !is_followed_by(g, second, first->op)) return false;
  first->out = BRIM_ARENA_NEW(&g->arena, brim_tensor *, 2);
  first->out[1] = before;
  first->out_count = 2;
  return join_activation(g, first, second);
}

/* Is an operand as it is what the sum takes? Not one that is repeated, nor one whose gradient is added up. */
static bool is_whole(const brim_graph *g, const brim_tensor *operand, const brim_tensor *sum)
{
  return operand->role != BRIM_ROLE_PARAMETER && brim_shape_equal(&operand->shape, &sum->shape) &&
         brim_graph_has_samples(g, operand) == brim_graph_has_samples(g, sum);
}

/* a + dropout(x): inputs a, x. */
static bool join_dropout_add(brim_graph *g, brim_node *first, const brim_node *second)
{
  brim_tensor *x = first->in[0], *a = second->in[second->in[0] == first->out[0] ? 1 : 0];
  if (!is_whole(g, a, first->out[0])) return false;
  first->in = BRIM_ARENA_NEW(&g->arena, brim_tensor *, 2);
  first->in[0] = a;
  first->in[1] = x;
  first->in_count = 2;
  first->out[0] = second->out[0];
  return true;
}

/* norm(a + b): inputs a, b and the norm's parameters; outputs the sum and those of the norm. Of four dimensions, where
 * backends may have orders of their own, the two would copy more than they save. */
static bool join_residual_norm(brim_graph *g, brim_node *first, const brim_node *second)
{
  const brim_tensor *sum = first->out[0];
  if (second->in[0] != sum || sum->shape.rank == 4) return false;
  if (!is_whole(g, first->in[0], sum) || !is_whole(g, first->in[1], sum)) return false;
  const uint32_t inputs = 1 + second->in_count, outputs = 1 + second->out_count;
  brim_tensor **in = BRIM_ARENA_NEW(&g->arena, brim_tensor *, inputs);
  brim_tensor **out = BRIM_ARENA_NEW(&g->arena, brim_tensor *, outputs);
  memcpy(in, first->in, 2 * sizeof *in);
  memcpy(in + 2, second->in + 1, (second->in_count - 1) * sizeof *in);
  out[0] = first->out[0];
  memcpy(out + 1, second->out, second->out_count * sizeof *out);
  first->in = in;
  first->in_count = inputs;
  first->out = out;
  first->out_count = outputs;
  first->attr = second->attr;
  return true;
}

typedef struct pass {
  brim_graph *g;
  uint64_t fusions;
  bool (*offers)(const void *arg, const char *op);
  const void *arg;
  uint32_t *readers; /* by tensor id; who reads it from outside of the graph counts too */
  bool *gone;        /* by tensor id */
} pass;

static void count_readers(pass *p)
{
  const brim_graph *g = p->g;
  const brim_tensor *const named[] = {g->input,   g->label,   g->output,       g->loss,
                                      g->metrics, g->squares, g->class_weight, g->kept};
  for (size_t i = 0; i < g->node_count; i++)
    for (uint32_t k = 0; k < g->node[i]->in_count; k++) p->readers[g->node[i]->in[k]->id]++;
  for (size_t i = 0; i < sizeof named / sizeof named[0]; i++)
    if (named[i]) p->readers[named[i]->id]++;
  for (size_t i = 0; i < g->want_count && i < g->tensor_count; i++) p->readers[i] += g->want[i];
  for (size_t i = 0; i < g->block_end_count; i++) p->readers[g->block_end[i]->id]++;
}

static bool reads(const brim_node *n, const brim_tensor *t)
{
  for (uint32_t k = 0; k < n->in_count; k++)
    if (n->in[k] == t) return true;
  return false;
}

/* What the author called one of the two, else what the operation is. */
static const char *name_of(const fusion *f, const brim_node *first, const brim_node *second)
{
  if (strcmp(first->name, f->first) != 0) return first->name;
  return strcmp(second->name, f->second) != 0 ? second->name : f->op;
}

static bool merge(const pass *p, brim_node *first, const brim_node *second)
{
  brim_tensor *between = first->out[0];
  if (!reads(second, between)) return false;
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
    const fusion *f = &table[i];
    if (!(p->fusions & f->kind) || strcmp(first->op, f->first) != 0 || strcmp(second->op, f->second) != 0) continue;
    const bool stays = f->stays == ALWAYS || (f->stays == IN_TRAINING && p->g->training);
    if (!stays && p->readers[between->id] > 1) return false;
    const brim_op *op = brim_op_find(f->op);
    if (!op || (p->offers && !p->offers(p->arg, f->op))) return false;
    const char *name = name_of(f, first, second);
    if (!f->join(p->g, first, second)) return false;
    p->gone[between->id] = !stays;
    first->descriptor = op;
    first->op = op->name;
    first->name = name;
    if (f->stays != ALWAYS) first->out[0]->name = name;
    return true;
  }
  return false;
}

/* Would the table merge the two, if all of its kinds were allowed? */
static bool is_pair(const brim_node *first, const brim_node *second)
{
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
    if (strcmp(first->op, table[i].first) == 0 && strcmp(second->op, table[i].second) == 0) return true;
  return false;
}

/* An activation behind a view, as conv1d ends with one, may as well come before it: `view`'s result becomes the
 * activation's. */
static bool merge_behind_view(const pass *p, brim_node *first, brim_node *view, const brim_node *second)
{
  brim_tensor *inner = first->out[0], *outer = view->out[0];
  if (!view->descriptor->view || view->in[0] != inner || second->in_count != 1 || second->in[0] != outer) return false;
  if (p->readers[inner->id] > 1 || p->readers[outer->id] > 1) return false;
  brim_tensor *in[] = {inner}, *out[] = {inner};
  brim_node moved = *second;
  moved.in = in;
  moved.out = out;
  if (!merge(p, first, &moved)) return false;
  p->gone[inner->id] = false;
  p->gone[outer->id] = true;
  view->out[0] = second->out[0];
  return true;
}

/* Takes out the tensors that are gone and numbers the others and the nodes anew. */
static void renumber(const pass *p)
{
  brim_graph *g = p->g;
  size_t kept = 0;
  for (size_t i = 0; i < g->tensor_count; i++) {
    brim_tensor *t = g->tensor[i];
    if (p->gone[i]) continue;
    if (i < g->want_count) g->want[kept] = g->want[i];
    g->has_samples[kept] = g->has_samples[i];
    t->id = (uint32_t)kept;
    t->producer = -1;
    g->tensor[kept++] = t;
  }
  for (size_t i = kept; i < g->want_count && i < g->tensor_count; i++) g->want[i] = false;
  g->tensor_count = kept;
  for (size_t i = 0; i < g->node_count; i++) {
    g->node[i]->index = (uint32_t)i;
    for (uint32_t k = 0; k < g->node[i]->out_count; k++)
      if (g->node[i]->out[k]->producer < 0) g->node[i]->out[k]->producer = (int32_t)i;
  }
}

/* Where a pair is not merged its activation comes before the view all the same: the gradient that the first one gets
 * then has the same order in memory, from which backends choose how to compute. */
static bool come_before_view(const pass *p, const brim_node *first, brim_node *view, brim_node *second)
{
  brim_tensor *inner = first->out[0], *outer = view->out[0], *last = second->out[0];
  if (!view->descriptor->view || view->in[0] != inner || second->in_count != 1 || second->in[0] != outer) return false;
  if (p->readers[inner->id] > 1 || p->readers[outer->id] > 1 || !is_pair(first, second)) return false;
  second->in[0] = inner;
  outer->shape = inner->shape; /* the activation's now */
  outer->name = second->name;
  second->out[0] = view->in[0] = outer;
  view->out[0] = last;
  return true;
}

void brim_graph_fuse(brim_graph *g, uint64_t fusions, bool (*offers)(const void *arg, const char *op), const void *arg)
{
  if (g->status != BRIM_OK || g->node_count == 0) return;
  pass p = {.g = g, .fusions = fusions, .offers = offers, .arg = arg};
  p.readers = BRIM_ARENA_NEW(&g->arena, uint32_t, g->tensor_count);
  p.gone = BRIM_ARENA_NEW(&g->arena, bool, g->tensor_count);
  count_readers(&p);
  size_t kept = 0;
  for (size_t i = 0; i < g->node_count; i++) {
    brim_node *n = g->node[i];
    if (kept > 0 && merge(&p, g->node[kept - 1], n)) continue;
    if (kept > 1 && merge_behind_view(&p, g->node[kept - 2], g->node[kept - 1], n)) continue;
    g->node[kept++] = n;
    if (kept > 2 && come_before_view(&p, g->node[kept - 3], g->node[kept - 2], n)) {
      g->node[kept - 1] = g->node[kept - 2];
      g->node[kept - 2] = n;
    }
  }
  g->node_count = kept;
  renumber(&p);
}

/* ---- behind autodiff ---- */

/* The two results that are left of the forward node, and those of its gradient. */
static brim_node *join_loss(brim_graph *g, const brim_node *loss, const brim_node *gradient, const brim_op *op)
{
  brim_node *both = BRIM_ARENA_NEW(&g->arena, brim_node, 1);
  *both = *loss;
  both->descriptor = op;
  both->op = op->name;
  both->out_count = 2 + gradient->out_count;
  both->out = BRIM_ARENA_NEW(&g->arena, brim_tensor *, both->out_count);
  memcpy(both->out, loss->out, 2 * sizeof *both->out);
  memcpy(both->out + 2, gradient->out, gradient->out_count * sizeof *both->out);
  return both;
}

/* Only the loss, and its metrics, which nothing else reads, may stand at the end of the forward pass. */
void brim_graph_fuse_loss(brim_graph *g)
{
  static const char *const names[] = {"linear_cross_entropy", "rank_metrics", "linear_cross_entropy_grad"};
  const brim_op *op = brim_op_find("linear_cross_entropy+grad");
  if (g->status != BRIM_OK || g->forward_count < 2 || g->forward_count == g->node_count) return;
  const size_t first = g->forward_count - 2, count = g->node_count - first;
  for (size_t i = 0; i < 3; i++)
    if (strcmp(g->node[first + i]->op, names[i]) != 0) return;
  if (g->offers && !g->offers(g->offers_arg, op->name)) return;
  brim_node **node = BRIM_ARENA_NEW(&g->arena, brim_node *, count);
  memcpy(node, g->node + first, count * sizeof *node);
  g->forward_count = first;
  g->keeps_logits = true;
  brim_graph_cut_backward(g);
  brim_graph_append(g, join_loss(g, node[0], node[2], op));
  brim_graph_append(g, node[1]);
  for (size_t i = 3; i < count; i++) brim_graph_append(g, node[i]);
}
