/* Attention over a sequence, and the rotary embedding of positions in its queries and keys. Neither has parameters: the
 * projections around them are linear layers of the model. */
#include <math.h>
#include <string.h>

#include "graph/documents.h"
#include "graph/generate.h"

#undef brim_attention
#undef brim_attention_limited
#undef brim_rotary
#undef brim_rotary_scaled

/* ---- attention ---- */

static brim_status infer_attention(brim_graph *g, brim_node *n)
{
  const brim_shape *q = &n->in[0]->shape;
  const brim_shape lse = {3, {q->dim[0], n->attr.attention.heads, q->dim[1]}};
  n->out[0] = brim_graph_like(g, n, q);
  n->out[1] = brim_graph_like(g, n, &lse);
  return BRIM_OK;
}

/* The gradient recomputes the attention weights from lse, block by block, because keeping them would take T*S values
 * per head. */
static brim_status gradient_attention(brim_autodiff *ad, const brim_node *n)
{
  const bool has_places = n->in_count > 3;
  brim_tensor *const in[] = {n->in[0],
                             n->in[1],
                             n->in[2],
                             n->out[0],
                             n->out[1],
                             brim_autodiff_of(ad, n->out[0]),
                             has_places ? n->in[3] : NULL};
  return brim_autodiff_emit(ad, "attention_grad", n, NULL, in, 6 + has_places, n->in, 3);
}

/* Pairs of a query and a key in causal attention; 0 without keys. */
static uint64_t causal_pairs(int64_t queries, int64_t keys)
{
  if (keys <= 0) return 0;
  return (uint64_t)(keys >= queries ? queries * keys - queries * (queries - 1) / 2 : keys * (keys + 1) / 2);
}

/* Multiply-adds of one matrix product: pairs of a query and a key that it sees, times the heads' elements. y: the
 * operation's output. A sample counts as one document, because where documents begin depends on the data, and a cache
 * counts as full. */
static uint64_t products_of(const brim_attention_attr *a, const brim_shape *y, int64_t keys)
{
  const int64_t queries = y->dim[1];
  uint64_t pairs = (uint64_t)(queries * keys);
  if (a->cached && a->window > 0 && a->window < keys) pairs = (uint64_t)(queries * a->window);
  if (a->causal && !a->cached) {
    pairs = causal_pairs(queries, keys);
    if (a->window > 0) pairs -= causal_pairs(queries, keys - a->window); /* older than the window */
  }
  return (uint64_t)y->dim[0] * (uint64_t)y->dim[2] * pairs;
}
/* q k^T, weights v */
static void cost_attention(const brim_node *n, brim_cost *out)
{
  out->flops = 4 * products_of(&n->attr.attention, &n->out[0]->shape, n->in[1]->shape.dim[1]);
}
static void cost_attention_qkv(const brim_node *n, brim_cost *out)
{
  const int64_t keys = n->in[n->attr.attention.cached ? 1 : 0]->shape.dim[1];
  out->flops = 4 * products_of(&n->attr.attention, &n->out[0]->shape, keys);
}
/* q k^T, dy v^T, and dq, dk, dv */
static void cost_attention_grad(const brim_node *n, brim_cost *out)
{
  out->flops = 10 * products_of(&n->attr.attention, &n->in[3]->shape, n->in[1]->shape.dim[1]);
}
static void cost_attention_qkv_grad(const brim_node *n, brim_cost *out)
{
  out->flops = 10 * products_of(&n->attr.attention, &n->in[1]->shape, n->in[0]->shape.dim[1]);
}

/* The dropout stream does not affect the time. */
static uint64_t hash_attention(const brim_attr *attr)
{
  brim_attr a = *attr;
  a.attention.stream = 0;
  return brim_op_hash(&a);
}

static bool each_token_cached(const brim_node *n)
{
  return n->attr.attention.cached;
}

BRIM_OP(attention) = {.name = "attention",
                      .kind = BRIM_KIND_ATTENTION,
                      .traits = {.samples_in = BRIM_OP_FROM(0), .samples_out = BRIM_OP_FROM(0)},
                      .wide_out = BRIM_OP_WIDE(1),
                      .signature = "q [N,T,heads*D], k [N,S,kv_heads*D], v [N,S,kv_heads*D], [places [N,T]] -> y "
                                   "[N,T,heads*D], lse [N,heads,T]",
                      .each_token = each_token_cached,
                      .infer = infer_attention,
                      .gradient = gradient_attention,
                      .cost = cost_attention,
                      .hash = hash_attention};
BRIM_OP(attention_grad) = {.name = "attention_grad",
                           .kind = BRIM_KIND_ATTENTION,
                           .traits = {.samples_in = BRIM_OP_FROM(0), .samples_out = BRIM_OP_FROM(0)},
                           .signature = "q, k, v, y, lse, dy, [places] -> dq, dk, dv",
                           .cost = cost_attention_grad,
                           .hash = hash_attention};

/* ---- attention on one tensor of q, k and v, which the fusion pass makes (core/graph/fuse_qkv.c) ---- */

static brim_status infer_attention_qkv(brim_graph *g, brim_node *n)
{
  const brim_attention_attr *a = &n->attr.attention;
  brim_shape y = n->in[0]->shape;
  y.dim[2] = a->heads * (y.dim[2] / (a->heads + 2 * a->kv_heads));
  const brim_shape lse = {3, {y.dim[0], a->heads, y.dim[1]}};
  n->out[0] = brim_graph_like(g, n, &y);
  n->out[1] = brim_graph_like(g, n, &lse);
  return BRIM_OK;
}

static brim_status gradient_attention_qkv(brim_autodiff *ad, const brim_node *n)
{
  const bool has_places = n->in_count > 1;
  brim_tensor *const in[] = {n->in[0], n->out[0], n->out[1], brim_autodiff_of(ad, n->out[0]),
                             has_places ? n->in[1] : NULL};
  return brim_autodiff_emit(ad, "attention_qkv_grad", n, NULL, in, 4 + has_places, n->in, 1);
}

BRIM_OP(attention_qkv) = {.name = "attention_qkv",
                          .kind = BRIM_KIND_ATTENTION,
                          .traits = {.samples_in = BRIM_OP_FROM(0), .samples_out = BRIM_OP_FROM(0)},
                          .wide_out = BRIM_OP_WIDE(1),
                          .signature = "qkv [N,T,(heads+2*kv_heads)*D], [k, v [N,capacity,kv_heads*D]], [places [N,T]] "
                                       "-> y [N,T,heads*D], lse [N,heads,T]",
                          .infer = infer_attention_qkv,
                          .gradient = gradient_attention_qkv,
                          .cost = cost_attention_qkv,
                          .hash = hash_attention};
BRIM_OP(attention_qkv_grad) = {.name = "attention_qkv_grad",
                               .kind = BRIM_KIND_ATTENTION,
                               .traits = {.samples_in = BRIM_OP_FROM(0), .samples_out = BRIM_OP_FROM(0)},
                               .signature = "qkv, y, lse, dy, [places] -> dqkv",
                               .cost = cost_attention_qkv_grad,
                               .hash = hash_attention};

/* ---- attention for models ---- */

/* Checks q, k and v against each other; `size`: elements of a head. */
static brim_status check_shapes(brim_graph *g, const brim_tensor *const t[3], const brim_attention_attr *a)
{
  static const char *const part[] = {"q", "k", "v"};
  char text[96], q_text[96];
  for (int i = 0; i < 3; i++)
    if (t[i]->shape.rank != 3 || t[i]->shape.dim[0] != t[0]->shape.dim[0])
      return brim_graph_fail(g, "attention", NULL, "%s must be [N, length, heads * size], got '%s' %s", part[i],
                             t[i]->name, brim_shape_format(text, sizeof text, &t[i]->shape));
  const brim_shape *q = &t[0]->shape, *k = &t[1]->shape;
  brim_shape_format(q_text, sizeof q_text, q);
  if (a->heads < 1 || q->dim[2] % a->heads != 0)
    return brim_graph_fail(g, "attention", NULL, "heads must divide the last dimension of q '%s' %s, got %lld",
                           t[0]->name, q_text, (long long)a->heads);
  if (a->kv_heads < 1 || a->heads % a->kv_heads != 0)
    return brim_graph_fail(g, "attention", NULL, "kv_heads must divide the %lld heads, got %lld", (long long)a->heads,
                           (long long)a->kv_heads);
  const int64_t size = q->dim[2] / a->heads;
  if (k->dim[2] != a->kv_heads * size)
    return brim_graph_fail(g, "attention", NULL,
                           "q '%s' %s with %lld heads of %lld and %lld kv_heads needs k [N, S, %lld], got '%s' %s",
                           t[0]->name, q_text, (long long)a->heads, (long long)size, (long long)a->kv_heads,
                           (long long)(a->kv_heads * size), t[1]->name, brim_shape_format(text, sizeof text, k));
  if (!brim_shape_equal(k, &t[2]->shape))
    return brim_graph_fail(g, "attention", NULL, "k '%s' %s and v '%s' %s must have the same shape", t[1]->name,
                           brim_shape_format(q_text, sizeof q_text, k), t[2]->name,
                           brim_shape_format(text, sizeof text, &t[2]->shape));
  return BRIM_OK;
}

static brim_status check_limits(brim_graph *g, const brim_attention_limits *l, bool causal)
{
  if (l->size < sizeof *l) return brim_graph_fail(g, "attention", NULL, "limits: size must be set, got %u", l->size);
  if (l->window < 0)
    return brim_graph_fail(g, "attention", NULL, "window must not be negative, got %lld", (long long)l->window);
  if (l->window > 0 && !causal) return brim_graph_fail(g, "attention", NULL, "a window needs causal attention");
  if (!(isfinite(l->softcap) && l->softcap >= 0))
    return brim_graph_fail(g, "attention", NULL, "softcap must not be negative, got %g", l->softcap);
  return BRIM_OK;
}

/* Replaces keys and values by caches that also have those of earlier tokens. Does not change attention that is not
 * causal, which brim_generate_check rejects. */
static bool add_caches(brim_graph *g, brim_attention_attr *a, int64_t window, brim_tensor **in)
{
  if (!g->places || !a->causal || in[1]->shape.dim[1] != in[0]->shape.dim[1]) return true;
  in[1] = brim_generate_cache(g, "keys", in[1], window);
  in[2] = in[1] ? brim_generate_cache(g, "values", in[2], window) : NULL;
  a->cached = 1;
  a->window = window < g->generation.capacity ? window : 0;
  return in[2] != NULL;
}

/* Adds the input `places` if samples consist of documents. Returns the number of inputs; 0 on error. */
static uint32_t add_places(brim_graph *g, const brim_attention_attr *a, brim_tensor **in)
{
  if (g->generation.capacity > 0 && !a->cached) return 3;
  const uint32_t count = brim_documents_add(g, "attention", in[0], in, 3);
  if (count != 4) return count;
  if (a->cached || (a->causal && in[1]->shape.dim[1] == in[0]->shape.dim[1])) return count;
  brim_graph_fail(g, "attention", NULL,
                  "samples consist of documents, which needs causal attention with as many keys as queries");
  return 0;
}

brim_tensor *brim_attention_limited(brim_graph *g, brim_tensor *q, brim_tensor *k, brim_tensor *v,
                                    brim_attention_options options, const brim_attention_limits *limits)
{
  const brim_attention_limits none = {.size = sizeof none}, *l = limits ? limits : &none;
  brim_tensor *in[] = {q, k, v, NULL};
  for (int i = 0; i < 3; i++)
    if (!brim_graph_accepts_real(g, "attention", NULL, in[i])) return NULL;
  if (!(options.dropout >= 0 && options.dropout < 1)) {
    brim_graph_fail(g, "attention", NULL, "dropout must be in [0,1), got %g", options.dropout);
    return NULL;
  }
  if (!isfinite(options.scale)) {
    brim_graph_fail(g, "attention", NULL, "scale must be a finite number, got %g", options.scale);
    return NULL;
  }
  brim_attr attr = {.attention = {.heads = options.heads,
                                  .kv_heads = options.kv_heads ? options.kv_heads : options.heads,
                                  .scale = options.scale,
                                  .dropout_p = g->training && !g->freezing ? options.dropout : 0,
                                  .causal = options.causal != 0}};
  const brim_tensor *const shapes[] = {q, k, v};
  if (check_shapes(g, shapes, &attr.attention) != BRIM_OK || check_limits(g, l, options.causal) != BRIM_OK) return NULL;
  if (l->window < k->shape.dim[1]) attr.attention.window = l->window;
  attr.attention.softcap = l->softcap;
  if (!brim_graph_accepts_together(g, "attention", NULL, in, 3)) return NULL;
  if (options.dropout > 0 && !brim_graph_needs_samples(g, "attention", NULL, q)) return NULL;
  if (options.scale == 0) attr.attention.scale = 1 / sqrt((double)(q->shape.dim[2] / options.heads));
  attr.attention.stream = g->dropout_streams++; /* counted in evaluation too, as in brim_dropout */
  if (g->generation.capacity > 0 && !add_caches(g, &attr.attention, l->window, in)) return NULL;
  const uint32_t count = add_places(g, &attr.attention, in);
  return count ? brim_graph_apply(g, "attention", NULL, in, count, &attr) : NULL;
}

brim_tensor *brim_attention(brim_graph *g, brim_tensor *q, brim_tensor *k, brim_tensor *v,
                            brim_attention_options options)
{
  return brim_attention_limited(g, q, k, v, options, NULL);
}

/* ---- rotary ---- */

static brim_status infer_rotary(brim_graph *g, brim_node *n)
{
  n->out[0] = brim_graph_like(g, n, &n->in[0]->shape);
  return BRIM_OK;
}

/* The gradient of a rotation rotates back by the same angles. */
static brim_status gradient_rotary(brim_autodiff *ad, const brim_node *n)
{
  const bool has_places = n->in_count > 1;
  brim_tensor *const in[] = {brim_autodiff_of(ad, n->out[0]), has_places ? n->in[1] : NULL};
  return brim_autodiff_emit(ad, "rotary_grad", n, NULL, in, 1 + has_places, n->in, 1);
}

static void cost_rotary(const brim_node *n, brim_cost *out)
{
  const brim_shape *x = &n->in[0]->shape;
  const brim_rotary_attr *a = &n->attr.rotary;
  out->flops = 3 * (uint64_t)(x->dim[0] * x->dim[1] * (a->turned ? a->turned : a->heads) * a->dims);
}

/* The divisors' address does not affect the time. */
static uint64_t hash_rotary(const brim_attr *attr)
{
  brim_attr a = *attr;
  a.rotary.divisor = NULL;
  return brim_op_hash(&a);
}

static bool each_token_by_places(const brim_node *n)
{
  return n->in_count == 2;
}

BRIM_OP(rotary) = {.name = "rotary",
                   .signature = "x [N,T,heads*D], [places [N,T]] -> y [N,T,heads*D]",
                   .each_token = each_token_by_places,
                   .inplace = BRIM_OP_INPLACE(0),
                   .infer = infer_rotary,
                   .gradient = gradient_rotary,
                   .cost = cost_rotary,
                   .hash = hash_rotary};
BRIM_OP(rotary_grad) = {.name = "rotary_grad",
                        .signature = "dy, [places] -> dx",
                        .inplace = BRIM_OP_INPLACE(0),
                        .cost = cost_rotary,
                        .hash = hash_rotary};

static brim_status check_rotary(brim_graph *g, const brim_tensor *x, const brim_rotary_options *o)
{
  char text[96];
  brim_shape_format(text, sizeof text, &x->shape);
  if (x->shape.rank != 3)
    return brim_graph_fail(g, "rotary", NULL, "input must be [N, T, heads * size], got '%s' %s", x->name, text);
  if (o->heads < 1 || x->shape.dim[2] % o->heads != 0)
    return brim_graph_fail(g, "rotary", NULL, "heads must divide the last dimension of '%s' %s, got %lld", x->name,
                           text, (long long)o->heads);
  const int64_t size = x->shape.dim[2] / o->heads, dims = o->dims ? o->dims : size;
  if (dims < 2 || dims > size || dims % 2 != 0)
    return brim_graph_fail(g, "rotary", NULL, "dims must be even, from 2 to a head's %lld elements, got %lld",
                           (long long)size, (long long)dims);
  if (!(isfinite(o->base) && o->base >= 0))
    return brim_graph_fail(g, "rotary", NULL, "base must be greater than 0, got %g", o->base);
  return BRIM_OK;
}

/* Checks the divisors; `pairs`: half of the elements that are rotated. */
static brim_status check_divisors(brim_graph *g, const brim_rotary_scaling *s, int64_t pairs)
{
  if (s->kind != BRIM_ROTARY_LONGROPE) return BRIM_OK;
  if (!s->divisor || s->divisors != pairs || pairs > BRIM_ROTARY_DIVISORS_MAX)
    return brim_graph_fail(g, "rotary", NULL,
                           "scaling: longrope needs a divisor for each of %lld pairs, at most %d, got %lld",
                           (long long)pairs, BRIM_ROTARY_DIVISORS_MAX, (long long)(s->divisor ? s->divisors : 0));
  for (int64_t i = 0; i < pairs; i++)
    if (!(isfinite(s->divisor[i]) && s->divisor[i] > 0))
      return brim_graph_fail(g, "rotary", NULL, "scaling: divisors must be above 0, got %g", s->divisor[i]);
  return BRIM_OK;
}

static brim_status check_scaling(brim_graph *g, const brim_rotary_scaling *s, int64_t pairs)
{
  const bool has_turns = s->kind == BRIM_ROTARY_LLAMA3 || s->kind == BRIM_ROTARY_YARN;
  if (s->size < sizeof *s || s->kind < BRIM_ROTARY_PLAIN || s->kind > BRIM_ROTARY_LONGROPE)
    return brim_graph_fail(g, "rotary", NULL, "scaling: kind %d is not known", s->kind);
  if (!(isfinite(s->amplitude) && s->amplitude >= 0))
    return brim_graph_fail(g, "rotary", NULL, "scaling: amplitude must not be negative, got %g", s->amplitude);
  const bool has_factor = has_turns || s->kind == BRIM_ROTARY_LINEAR;
  if (has_factor && !(isfinite(s->factor) && s->factor >= 1))
    return brim_graph_fail(g, "rotary", NULL, "scaling: factor must be at least 1, got %g", s->factor);
  const bool is_yarn = s->kind == BRIM_ROTARY_YARN; /* the ramp of yarn may have length 0 */
  if (has_turns && !(s->low > 0 && (is_yarn ? s->low <= s->high : s->low < s->high) && isfinite(s->high)))
    return brim_graph_fail(g, "rotary", NULL, "scaling: low and high must be above 0, and high %s low, got %g and %g",
                           is_yarn ? "not below" : "above", s->low, s->high);
  if (has_turns && !(isfinite(s->original) && s->original >= 1))
    return brim_graph_fail(g, "rotary", NULL, "scaling: original must be at least 1, got %g", s->original);
  return check_divisors(g, s, pairs);
}

brim_tensor *brim_rotary_scaled(brim_graph *g, brim_tensor *x, brim_rotary_options options,
                                const brim_rotary_scaling *scaling)
{
  const brim_rotary_scaling plain = {.size = sizeof plain};
  const brim_rotary_scaling *s = scaling ? scaling : &plain;
  if (!brim_graph_accepts_real(g, "rotary", NULL, x) || check_rotary(g, x, &options) != BRIM_OK) return NULL;
  const int64_t dims = options.dims ? options.dims : x->shape.dim[2] / options.heads;
  if (check_scaling(g, s, dims / 2) != BRIM_OK) return NULL;
  double *divisor = NULL;
  if (s->kind == BRIM_ROTARY_LONGROPE) {
    /* The plan compares the attributes of nodes without samples. */
    if (!brim_graph_needs_samples(g, "rotary", NULL, x)) return NULL;
    divisor = BRIM_ARENA_NEW(&g->arena, double, (size_t)(dims / 2));
    memcpy(divisor, s->divisor, (size_t)(dims / 2) * sizeof *divisor);
  }
  const brim_attr attr = {.rotary = {.heads = options.heads,
                                     .dims = dims,
                                     .base = options.base > 0 ? options.base : 10000,
                                     .interleaved = options.interleaved != 0,
                                     .scaling = s->kind,
                                     .factor = s->factor,
                                     .low = s->low,
                                     .high = s->high,
                                     .original = s->original,
                                     .amplitude = s->amplitude > 0 ? s->amplitude : 1,
                                     .divisor = divisor}};
  brim_tensor *in[] = {x, NULL};
  const uint32_t count = brim_documents_add(g, "rotary", x, in, 1);
  return count ? brim_graph_apply(g, "rotary", NULL, in, count, &attr) : NULL;
}

brim_tensor *brim_rotary(brim_graph *g, brim_tensor *x, brim_rotary_options options)
{
  return brim_rotary_scaled(g, x, options, NULL);
}
