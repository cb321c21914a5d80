/* Reverse-mode differentiation of a graph: walks the forward nodes backwards and lets each operation's gradient rule
 * append the nodes that compute its inputs' gradients. A tensor with several uses gets the sum of their gradients. A
 * parameter's gradient is persistent, and kernels add to it; each further use has a sum of its own.
 *
 * A tensor made of parameters alone (a slice of one, its norm, the product of two) has no samples. Nodes that combine
 * it with samples treat it as a parameter: their gradients are added up over the step in a persistent sum, sample by
 * sample. Once in each step, the sum is passed on to the parameters (brim_graph_fold). So neither the micro-batch nor a
 * smaller type of activations affects any sum. */
#include <assert.h>
#include <string.h>

#include "graph/graph.h"

struct brim_autodiff {
  brim_graph *g;
  brim_tensor **gradient; /* by tensor id */
  bool *needed;           /* by tensor id: whether it depends on a parameter or a wanted tensor */
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

brim_arena *brim_autodiff_arena(brim_autodiff *ad)
{
  return &ad->g->arena;
}

brim_tensor *brim_autodiff_of(brim_autodiff *ad, const brim_tensor *output)
{
  assert(output->id < ad->count);
  return ad->gradient[output->id];
}

brim_tensor *brim_autodiff_replace(brim_autodiff *ad, const brim_tensor *output, brim_tensor *gradient)
{
  brim_tensor *before = brim_autodiff_of(ad, output);
  ad->gradient[output->id] = gradient;
  return before;
}

brim_tensor *brim_autodiff_take(brim_autodiff *ad, const brim_tensor *x)
{
  if (x->role == BRIM_ROLE_PARAMETER || !brim_graph_has_samples(ad->g, x)) return NULL;
  return brim_autodiff_replace(ad, x, NULL);
}

bool brim_autodiff_offers(const brim_autodiff *ad, const char *op)
{
  return brim_graph_offers(ad->g, op);
}

bool brim_autodiff_needs(const brim_autodiff *ad, const brim_tensor *input)
{
  return input->id < ad->count && ad->needed[input->id];
}

static void locate(brim_graph *g, const brim_node *like)
{
  g->file = like->file;
  g->line = like->line;
}

/* The gradient of a copy in a smaller type, of a parameter or of a tensor made of parameters, is the gradient of the
 * original, in the original's type. */
static brim_tensor *original_of(const brim_graph *g, brim_tensor *x)
{
  const brim_node *maker = x->producer >= 0 ? g->node[x->producer] : NULL;
  const bool copy = maker && maker->descriptor->converts && !brim_graph_has_samples(g, maker->in[0]);
  return copy ? maker->in[0] : x;
}

/* Whether the gradient that a node passes to x is a sum over samples, while x itself has none. */
static bool sums_samples(const brim_graph *g, const brim_node *like, const brim_tensor *x)
{
  return brim_node_has_samples(g, like) && !brim_graph_has_samples(g, x);
}

bool brim_autodiff_sums(const brim_autodiff *ad, const brim_node *like, const brim_tensor *input)
{
  return input->role == BRIM_ROLE_PARAMETER || sums_samples(ad->g, like, input);
}

static brim_tensor *new_flow(brim_graph *g, const brim_tensor *x)
{
  return brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, x->dtype, &x->shape,
                           brim_arena_printf(&g->arena, "%s.grad", x->name));
}

/* Adds `flow`, an activation of x's shape, to the gradient of x. */
static brim_status add_flow(brim_autodiff *ad, const brim_node *like, brim_tensor *x, brim_tensor *flow)
{
  brim_graph *g = ad->g;
  locate(g, like);
  x = original_of(g, x);
  if (sums_samples(g, like, x)) /* the kernel has already summed it over the micro-batch */
    return brim_graph_fail(
        g, like->op, like->name,
        "'%s' is computed from parameters alone, so it has no samples: this operation cannot combine it "
        "with a tensor that has samples",
        x->name);
  brim_tensor *persistent = x->role == BRIM_ROLE_PARAMETER ? brim_graph_next_gradient(g, x) : NULL;
  if (persistent)
    return brim_graph_node_into(g, "accumulate", like->name, &flow, 1, &persistent, 1, NULL) ? BRIM_OK : g->status;
  brim_tensor **slot = &ad->gradient[x->id];
  if (*slot) {
    brim_tensor *const both[] = {*slot, flow};
    flow = brim_graph_apply(g, "add", like->name, both, 2, NULL);
    if (!flow) return g->status;
  }
  *slot = flow;
  return BRIM_OK;
}

static bool needs_any(const brim_autodiff *ad, brim_tensor *const *of, uint32_t count)
{
  bool any = false;
  for (uint32_t i = 0; i < count; i++) any = any || brim_autodiff_needs(ad, of[i]);
  return any;
}

/* Results that are not needed, such as those for frozen parameters, are computed with the others and freed after the
 * node. */
brim_status brim_autodiff_emit(brim_autodiff *ad, const char *op, const brim_node *like, const brim_attr *attr,
                               brim_tensor *const *in, uint32_t in_count, brim_tensor *const *of, uint32_t of_count)
{
  brim_graph *g = ad->g;
  const uint32_t accumulates = brim_op_find(op)->accumulates;
  if (!needs_any(ad, of, of_count)) return BRIM_OK;
  brim_tensor **out = BRIM_ARENA_NEW(&g->arena, brim_tensor *, of_count);
  for (uint32_t i = 0; i < of_count; i++) {
    brim_tensor *source = original_of(g, of[i]);
    const bool direct =
        i < 32 && accumulates >> i & 1 && brim_autodiff_sums(ad, like, source) && brim_autodiff_needs(ad, source);
    out[i] = direct ? brim_graph_next_gradient(g, source) : new_flow(g, of[i]);
    if (!out[i]) return g->status;
  }
  locate(g, like);
  if (!brim_graph_node_into(g, op, like->name, in, in_count, out, of_count, attr ? attr : &like->attr))
    return g->status;
  for (uint32_t i = 0; i < of_count; i++)
    if (out[i]->role != BRIM_ROLE_GRADIENT && brim_autodiff_needs(ad, of[i]))
      BRIM_TRY(add_flow(ad, like, of[i], out[i]));
  return BRIM_OK;
}

brim_status brim_autodiff_pass(brim_autodiff *ad, const brim_node *node, const char *op, brim_tensor *kept)
{
  brim_tensor *const in[] = {kept, brim_autodiff_of(ad, node->out[0])};
  return brim_autodiff_emit(ad, op, node, NULL, kept ? in : in + 1, kept ? 2 : 1, node->in, 1);
}

brim_tensor *brim_autodiff_compute(brim_autodiff *ad, const char *op, const brim_node *like, const brim_attr *attr,
                                   brim_tensor *const *in, uint32_t in_count, const brim_shape *shape)
{
  brim_graph *g = ad->g;
  brim_tensor *out = brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, in[0]->dtype, shape,
                                       brim_arena_printf(&g->arena, "%s.grad", like->name));
  if (!out) return NULL;
  locate(g, like);
  return brim_graph_node_into(g, op, like->name, in, in_count, &out, 1, attr ? attr : &like->attr) ? out : NULL;
}

/* A tensor's gradient is needed if the tensor is a trained parameter, is wanted, or comes from a node with such an
 * input. */
static void find_needed(brim_autodiff *ad)
{
  const brim_graph *g = ad->g;
  for (size_t i = 0; i < ad->count; i++)
    ad->needed[i] = g->tensor[i]->role == BRIM_ROLE_PARAMETER || (i < g->want_count && g->want[i]);
  for (size_t i = 0; i < g->parameter_count; i++)
    if (g->parameter[i].is_frozen) ad->needed[g->parameter[i].value->id] = false;
  for (size_t i = 0; i < g->forward_count; i++) {
    const brim_node *n = g->node[i];
    bool any = false;
    for (uint32_t k = 0; k < n->in_count; k++) any = any || ad->needed[n->in[k]->id];
    for (uint32_t k = 0; any && k < n->out_count; k++) ad->needed[n->out[k]->id] = true;
  }
}

static brim_autodiff begin(brim_graph *g)
{
  brim_autodiff ad = {.g = g, .count = g->tensor_count};
  ad.gradient = BRIM_ARENA_NEW(&g->arena, brim_tensor *, ad.count);
  ad.needed = BRIM_ARENA_NEW(&g->arena, bool, ad.count);
  find_needed(&ad);
  return ad;
}

/* Walks backwards over the forward nodes that have samples, or over the others. `loss` computes its own gradient. */
static brim_status walk(brim_autodiff *ad, bool with_samples, const brim_tensor *loss)
{
  brim_graph *g = ad->g;
  for (size_t i = g->forward_count; i-- > 0;) {
    const brim_node *n = g->node[i];
    if (brim_node_has_samples(g, n) != with_samples || !n->descriptor->gradient) continue;
    bool reached = false;
    for (uint32_t k = 0; k < n->out_count; k++) reached = reached || ad->gradient[n->out[k]->id] || n->out[k] == loss;
    if (reached && needs_any(ad, n->in, n->in_count)) BRIM_TRY(n->descriptor->gradient(ad, n));
  }
  g->file = "";
  return g->status;
}

static brim_status fold(brim_autodiff *ad)
{
  brim_graph *g = ad->g;
  const size_t sums = g->further_count;
  for (size_t i = 0; i < sums; i++) {
    const brim_further f = g->further[i];
    if (f.of && f.gradient) BRIM_TRY(add_flow(ad, g->node[f.of->producer], f.of, f.gradient));
  }
  return walk(ad, false, NULL);
}

brim_status brim_graph_fold(brim_graph *g)
{
  brim_autodiff ad = begin(g);
  return fold(&ad);
}

brim_status brim_autodiff_run(brim_graph *g, brim_tensor *loss, brim_tensor *seed)
{
  if (g->status != BRIM_OK) return brim_fail(g->status, "%s", g->error);
  g->forward_count = g->node_count;
  brim_autodiff ad = begin(g);
  if (!seed && !ad.needed[loss->id])
    return brim_graph_fail(g, "output", NULL, "no parameter that is trained influences the model's output");
  ad.gradient[loss->id] = seed;
  BRIM_TRY(walk(&ad, true, loss));
  if (!g->folds_later) BRIM_TRY(fold(&ad));
  g->gradient = ad.gradient;
  g->gradient_count = ad.count;
  return g->status;
}
