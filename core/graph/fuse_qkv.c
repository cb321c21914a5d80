/* The part of the fusion pass that makes attention read one tensor of queries, keys and values.
 *
 * Many models compute q, k and v by one product and cut it into three. attention_qkv reads the product itself, and its
 * gradient is one tensor, so the graph needs no slices and no padded gradients. If q and k are rotated in between, the
 * rotation works on the product, in place if possible. With caches (core/graph/generate.h), k and v are written into
 * their caches from the product.
 *
 *     product, slice q, slice k, slice v, rotary q, rotary k, attention     before
 *     product, rotary, attention_qkv                                        after
 *
 * Kernels compute the same numbers in the same order. Plans never become larger, because the product lives only as long
 * as the slices would, which together have its size. */
#include <string.h>

#include "graph/fuse.h"

/* q, k or v of an attention. */
typedef struct part {
  const brim_node *slice;
  brim_node *rotation, *cache; /* nodes that follow the slice, or NULL */
} part;

typedef struct pass {
  brim_graph *g;
  const uint32_t *readers; /* by tensor id */
  bool *gone, *removed;    /* by tensor id; by node */
} pass;

static brim_node *maker_of(const brim_graph *g, const brim_tensor *t)
{
  return t->producer >= 0 ? g->node[t->producer] : NULL;
}

static bool is_op(const brim_node *n, const char *op)
{
  return n && strcmp(n->op, op) == 0;
}

/* Finds the nodes that made an input of attention, and whose results no other node reads. */
static bool find_part(const pass *p, const brim_tensor *t, part *out)
{
  brim_node *n = maker_of(p->g, t);
  *out = (part){0};
  if (is_op(n, "cache_write")) {
    out->cache = n;
    t = n->in[0];
    n = maker_of(p->g, t);
  }
  if (is_op(n, "rotary") && n->attr.rotary.turned == 0 && p->readers[t->id] == 1) {
    out->rotation = n;
    t = n->in[0];
    n = maker_of(p->g, t);
  }
  out->slice = n;
  return is_op(n, "slice") && n->attr.move.axis == 2 && t->shape.rank == 3 && p->readers[t->id] == 1 &&
         brim_graph_has_samples(p->g, n->in[0]);
}

static bool has_same_divisors(const brim_rotary_attr *a, const brim_rotary_attr *b)
{
  if (!a->divisor || !b->divisor) return a->divisor == b->divisor;
  for (int64_t i = 0; i < a->dims / 2; i++)
    if (a->divisor[i] != b->divisor[i]) return false;
  return true;
}

/* Whether q and k are rotated by the same angles, or not at all. */
static bool is_same_rotation(const brim_node *q, const brim_node *k, const brim_attention_attr *a)
{
  if (!q || !k) return q == k;
  if (q->attr.rotary.heads != a->heads || k->attr.rotary.heads != a->kv_heads) return false;
  if (q->in_count != k->in_count || (q->in_count > 1 && q->in[1] != k->in[1])) return false;
  if (!has_same_divisors(&q->attr.rotary, &k->attr.rotary)) return false;
  brim_attr one = q->attr, other = k->attr;
  one.rotary.heads = other.rotary.heads = 0;
  one.rotary.divisor = other.rotary.divisor = NULL;
  return brim_op_hash(&one) == brim_op_hash(&other);
}

/* Whether the parts are slices of one tensor that fill it in the order q, k, v. */
static bool fills_one(const part qkv[3], const brim_attention_attr *a)
{
  const brim_tensor *of = qkv[0].slice->in[0];
  const int64_t size = qkv[0].slice->out[0]->shape.dim[2] / a->heads;
  const int64_t start[] = {0, a->heads * size, (a->heads + a->kv_heads) * size};
  for (int i = 0; i < 3; i++)
    if (qkv[i].slice->in[0] != of || qkv[i].slice->attr.move.start != start[i]) return false;
  return of->shape.dim[2] == (a->heads + 2 * a->kv_heads) * size;
}

static bool find_parts(const pass *p, const brim_node *n, part qkv[3])
{
  const brim_attention_attr *a = &n->attr.attention;
  for (int i = 0; i < 3; i++)
    if (!find_part(p, n->in[i], &qkv[i]) || (qkv[i].cache != NULL) != (a->cached && i > 0) ||
        (!qkv[i].cache && p->readers[n->in[i]->id] != 1))
      return false;
  return !qkv[2].rotation && is_same_rotation(qkv[0].rotation, qkv[1].rotation, a) && fills_one(qkv, a);
}

static void remove_node(const pass *p, const brim_node *n)
{
  p->removed[n->index] = true;
  p->gone[n->out[0]->id] = true;
}

/* Rotates the heads of q and k in the tensor of all three, by the node that rotated q. Returns the result. */
static brim_tensor *rotate_whole(const pass *p, const part qkv[3], const brim_attention_attr *a)
{
  brim_node *n = qkv[0].rotation;
  brim_tensor *of = qkv[0].slice->in[0], *out = n->out[0];
  n->in[0] = of;
  n->attr.rotary.heads = a->heads + 2 * a->kv_heads;
  n->attr.rotary.turned = a->heads + a->kv_heads;
  out->shape = of->shape;
  out->bytes = of->bytes;
  remove_node(p, qkv[1].rotation);
  return out;
}

static void join(const pass *p, brim_node *n, const part qkv[3])
{
  brim_tensor *of = qkv[0].slice->in[0];
  if (qkv[0].rotation) of = rotate_whole(p, qkv, &n->attr.attention);
  for (int i = 0; i < 3; i++) {
    remove_node(p, qkv[i].slice);
    if (!qkv[i].cache) continue;
    qkv[i].cache->in[0] = of;
    qkv[i].cache->attr.move.start = qkv[i].slice->attr.move.start;
  }
  n->descriptor = brim_op_find("attention_qkv");
  if (strcmp(n->name, n->op) == 0) n->name = n->descriptor->name;
  n->op = n->descriptor->name;
  n->in[0] = of;
  if (n->attr.attention.cached) return;
  if (n->in_count > 3) n->in[1] = n->in[3]; /* places */
  n->in_count -= 2;
}

void brim_graph_fuse_qkv(brim_graph *g)
{
  pass p = {.g = g, .readers = brim_graph_readers(g)};
  bool any = false;
  p.gone = BRIM_ARENA_NEW(&g->arena, bool, g->tensor_count);
  p.removed = BRIM_ARENA_NEW(&g->arena, bool, g->node_count);
  for (size_t i = 0; i < g->node_count; i++) {
    part qkv[3];
    if (!is_op(g->node[i], "attention") || !find_parts(&p, g->node[i], qkv)) continue;
    join(&p, g->node[i], qkv);
    any = true;
  }
  if (!any) return;
  size_t kept = 0;
  for (size_t i = 0; i < g->node_count; i++)
    if (!p.removed[i]) g->node[kept++] = g->node[i];
  g->node_count = kept;
  brim_graph_drop_tensors(g, p.gone);
}
