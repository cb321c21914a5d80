/* The fusion pass over a forward graph, before autodiff.
 *
 * A fused operation is named after the two that it replaces, such as "linear+relu", and its descriptor defines how to
 * make it (core/graph/ops/fused.c). The pass merges a node into the one right before it if there is such an operation,
 * no other node reads the tensor between them (unless the fused node outputs it too), and the operation's `join`
 * accepts the shapes. It merges only neighbours, so the fused node and its gradient run where the two would have run,
 * and no tensor lives longer than before. Plans never become larger.
 *
 * The fused node keeps the name that the author gave to one of the two, so that messages match the model. */
#include "graph/fuse.h"

#include <stdio.h>
#include <string.h>

typedef struct pass {
  brim_graph *g;
  uint64_t fusions;
  bool (*offers)(const void *arg, const char *op);
  const void *arg;
  uint32_t *readers; /* by tensor id: brim_graph_readers */
  bool *gone;        /* by tensor id */
} pass;

uint32_t *brim_graph_readers(brim_graph *g)
{
  const brim_tensor *const named[] = {g->input,   g->label,   g->output,       g->loss,
                                      g->metrics, g->squares, g->class_weight, g->kept};
  uint32_t *readers = BRIM_ARENA_NEW(&g->arena, uint32_t, g->tensor_count);
  for (size_t i = 0; i < g->node_count; i++)
    for (uint32_t k = 0; k < g->node[i]->in_count; k++) readers[g->node[i]->in[k]->id]++;
  for (size_t i = 0; i < sizeof named / sizeof named[0]; i++)
    if (named[i]) readers[named[i]->id]++;
  for (size_t i = 0; i < g->want_count && i < g->tensor_count; i++) readers[i] += g->want[i];
  for (size_t i = 0; i < g->block_end_count; i++) readers[g->block_end[i]->id]++;
  return readers;
}

static bool reads(const brim_node *n, const brim_tensor *t)
{
  for (uint32_t k = 0; k < n->in_count; k++)
    if (n->in[k] == t) return true;
  return false;
}

/* The fused operation for two nodes, or NULL if the pass makes none. */
static const brim_op *fused_of(const brim_node *first, const brim_node *second)
{
  char name[64];
  const int length = snprintf(name, sizeof name, "%s+%s", first->op, second->op);
  const brim_op *op = (size_t)length < sizeof name ? brim_op_find(name) : NULL;
  return op && op->fusion.kind ? op : NULL;
}

/* Returns the author's name for one of the two nodes, or else the fused operation's name. */
static const char *name_of(const brim_op *op, const brim_node *first, const brim_node *second)
{
  if (strcmp(first->name, first->op) != 0) return first->name;
  return strcmp(second->name, second->op) != 0 ? second->name : op->name;
}

static bool merge(const pass *p, brim_node *first, const brim_node *second)
{
  brim_tensor *between = first->out[0];
  if (!reads(second, between)) return false;
  const brim_op *op = fused_of(first, second);
  if (!op || !(p->fusions & op->fusion.kind)) return false;
  const bool always = op->fusion.first_stays == BRIM_STAYS;
  const bool stays = always || (op->fusion.first_stays == BRIM_STAYS_IN_TRAINING && p->g->training);
  if (!stays && p->readers[between->id] > 1) return false;
  if (p->offers && !p->offers(p->arg, op->name)) return false;
  const char *name = name_of(op, first, second);
  if (!op->fusion.join(p->g, first, second)) return false;
  p->gone[between->id] = !stays;
  first->descriptor = op;
  first->op = op->name;
  first->name = name;
  if (!always) first->out[0]->name = name;
  return true;
}

/* If an activation follows a view, as at the end of conv1d, moves it before the view and merges it; the view's result
 * takes the activation's place. */
static bool merge_after_view(const pass *p, brim_node *first, brim_node *view, const brim_node *second)
{
  brim_tensor *inner = first->out[0], *outer = view->out[0];
  if (!view->descriptor->traits.view || view->in[0] != inner || second->in_count != 1 || second->in[0] != outer)
    return false;
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

void brim_graph_drop_tensors(brim_graph *g, const bool *gone)
{
  size_t kept = 0;
  for (size_t i = 0; i < g->tensor_count; i++) {
    brim_tensor *t = g->tensor[i];
    if (gone[i]) continue;
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

/* If a pair cannot be merged, moves its activation before the view, so that the first gradient has the same order in
 * memory, on which backends base their choice of kernels. */
static bool move_before_view(const pass *p, const brim_node *first, brim_node *view, brim_node *second)
{
  brim_tensor *inner = first->out[0], *outer = view->out[0], *last = second->out[0];
  if (!view->descriptor->traits.view || view->in[0] != inner || second->in_count != 1 || second->in[0] != outer)
    return false;
  if (p->readers[inner->id] > 1 || p->readers[outer->id] > 1 || !fused_of(first, second)) return false;
  second->in[0] = inner;
  outer->shape = inner->shape; /* the activation, which now comes first, has the shape of `inner` */
  outer->name = second->name;
  second->out[0] = view->in[0] = outer;
  view->out[0] = last;
  return true;
}

/* Whether a node gives a norm's result. The gradient of a norm does not need relu's result. */
static bool is_norm(const brim_graph *g, const brim_tensor *t)
{
  return t->producer >= 0 && g->node[t->producer]->descriptor->kind == BRIM_KIND_NORM;
}

/* Moves relu after a following max pooling or dropout, if the backend has kernels for the fused pair. The results are
 * the same in either order, and then no gradient needs relu's result, which is larger. Backends without these kernels
 * compute relu in the epilogue of the product before it. */
static bool move_after(const pass *p, size_t i)
{
  brim_graph *g = p->g;
  brim_node *relu = g->node[i], *next = g->node[i + 1];
  brim_tensor *between = relu->out[0], *last = next->out[0];
  const brim_op *op = strcmp(relu->op, "relu") == 0 ? fused_of(next, relu) : NULL;
  const bool moves = strcmp(next->op, "max_pool2d") == 0 || strcmp(next->op, "dropout") == 0;
  const brim_node *then = i + 2 < g->node_count ? g->node[i + 2] : NULL;
  if (then && reads(then, last) && fused_of(next, then)) return false; /* dropout and an addition */
  if (!op || !moves || next->in[0] != between || p->readers[between->id] > 1 || is_norm(g, relu->in[0])) return false;
  if (!(p->fusions & op->fusion.kind) || (p->offers && !p->offers(p->arg, op->name))) return false;
  next->in[0] = relu->in[0];
  next->out[0] = relu->in[0] = between; /* `between` is now the result of `next` */
  between->shape = last->shape;
  between->bytes = last->bytes;
  relu->out[0] = last;
  g->node[i] = next;
  g->node[i + 1] = relu;
  return true;
}

void brim_graph_fuse(brim_graph *g, uint64_t fusions, bool (*offers)(const void *arg, const char *op), const void *arg)
{
  if (g->status != BRIM_OK || g->node_count == 0) return;
  if (fusions & BRIM_FUSE_QKV && (!offers || offers(arg, "attention_qkv"))) brim_graph_fuse_qkv(g);
  pass p = {.g = g, .fusions = fusions, .offers = offers, .arg = arg};
  p.readers = brim_graph_readers(g);
  p.gone = BRIM_ARENA_NEW(&g->arena, bool, g->tensor_count);
  for (size_t i = 0; i + 1 < g->node_count; i++) (void)move_after(&p, i);
  size_t kept = 0;
  for (size_t i = 0; i < g->node_count; i++) {
    brim_node *n = g->node[i];
    if (kept > 0 && merge(&p, g->node[kept - 1], n)) continue;
    if (kept > 1 && merge_after_view(&p, g->node[kept - 2], g->node[kept - 1], n)) continue;
    g->node[kept++] = n;
    if (kept > 2 && move_before_view(&p, g->node[kept - 3], g->node[kept - 2], n)) {
      g->node[kept - 1] = g->node[kept - 2];
      g->node[kept - 2] = n;
    }
  }
  g->node_count = kept;
  brim_graph_drop_tensors(g, p.gone);
}

/* ---- after autodiff ---- */

/* Makes one node with two results of the forward node, and those of its gradient. */
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

/* The loss must be last in the forward pass, except for its metrics, whose results no node reads. */
void brim_graph_fuse_loss(brim_graph *g)
{
  static const char *const names[] = {"linear_cross_entropy", "rank_metrics", "linear_cross_entropy_grad"};
  const brim_op *op = brim_op_find("linear_cross_entropy+grad");
  if (g->status != BRIM_OK || g->forward_count < 2 || g->forward_count == g->node_count) return;
  const size_t first = g->forward_count - 2, count = g->node_count - first;
  for (size_t i = 0; i < 3; i++)
    if (strcmp(g->node[first + i]->op, names[i]) != 0) return;
  if (!brim_graph_offers(g, op->name)) return;
  brim_node **node = BRIM_ARENA_NEW(&g->arena, brim_node *, count);
  memcpy(node, g->node + first, count * sizeof *node);
  g->forward_count = first;
  g->merges_loss = true;
  brim_graph_cut_backward(g);
  brim_graph_append(g, join_loss(g, node[0], node[2], op));
  brim_graph_append(g, node[1]);
  for (size_t i = 3; i < count; i++) brim_graph_append(g, node[i]);
}
