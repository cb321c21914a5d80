/* Chooses one of oneDNN's convolutions for a shape, and the orders in memory.
 *
 * Tries several pairs of orders for x and y, the best first. The first pair with one of oneDNN's compiled (JIT)
 * convolutions wins, else the first with a matrix product, else plain loops. A side that is free takes the primitive's
 * preferred order, if that needs no padding; a side with a given order is copied if the primitive needs another.
 * Weights of several groups are [g, K/g, C/g, R, S] to oneDNN, which is the same memory as [K, C/g, R, S].
 *
 * A search takes some tens of microseconds; results are kept by shape, for all programs. */
#include <stdlib.h>

#include "conv.h"

#define PRIMITIVE_BYTES (14 * 1024)     /* the description and the code of a compiled primitive of oneDNN 2.6 */
#define LIBRARY_BYTES (2 * 1024 * 1024) /* temporary maximum while planning or compiling one */
#define MEMORIES 8                      /* memory objects of a unit, besides those of reorders */

brim_status cpu_conv_failed(dnnl_status_t status, const char *what)
{
  if (status == dnnl_out_of_memory) return brim_fail(BRIM_ENOMEM_HOST, "oneDNN: %s: no memory", what);
  return brim_fail(BRIM_EDEVICE, "oneDNN: %s failed with status %d", what, (int)status);
}

#define TRY_DNNL(call, what)                                                                                           \
  do {                                                                                                                 \
    const dnnl_status_t dnnl_try_status = CPU_CONV_CALL(call);                                                         \
    if (dnnl_try_status != dnnl_success) return cpu_conv_failed(dnnl_try_status, what);                                \
  } while (0)

enum { ORDER_PLAIN = 1, ORDER_ANY = 0, ORDER_LAST = -1, ORDER_GIVEN = -2 };

static dnnl_format_tag_t tag_of(int64_t channel_block)
{
  if (channel_block == ORDER_ANY) return dnnl_format_tag_any;
  if (channel_block == 16) return dnnl_nChw16c;
  if (channel_block == 8) return dnnl_nChw8c;
  return channel_block == 1 ? dnnl_nchw : dnnl_nhwc;
}

static bool describe_activation(dnnl_memory_desc_t *md, int64_t n, int64_t c, int64_t h, int64_t w, int64_t block)
{
  const dnnl_dims_t dims = {n, c, h, w};
  return dnnl_memory_desc_init_by_tag(md, 4, dims, dnnl_f32, tag_of(block)) == dnnl_success;
}

/* Returns the channel block that describes `md`, or 0 if it has padding or another order. */
static int64_t block_of(const dnnl_memory_desc_t *md)
{
  const int64_t channels = md->dims[1];
  const int64_t candidates[] = {16, 8, channels, 1};
  for (size_t i = 0; i < sizeof candidates / sizeof candidates[0]; i++) {
    dnnl_memory_desc_t like;
    if (channels % candidates[i] != 0) continue;
    if (!describe_activation(&like, md->dims[0], channels, md->dims[2], md->dims[3], candidates[i])) continue;
    if (dnnl_memory_desc_equal(&like, md)) return candidates[i];
  }
  return 0;
}

typedef struct candidate {
  dnnl_primitive_desc_t pd;
  int rank;        /* the implementation: 2 compiled, 1 by matrix product, 0 plain loops, -1 no implementation */
  bool has_failed; /* memory ran out, so the search does not know the alternatives */
} candidate;

static int rank_of(const_dnnl_primitive_desc_t pd)
{
  const char *name = "";
  if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) != dnnl_success) return 0;
  if (strncmp(name, "ref", 3) == 0 || strncmp(name, "simple", 6) == 0) return 0;
  return strstr(name, "gemm") && !strstr(name, "brgemm") ? 1 : 2;
}

static dnnl_status_t make_attr(dnnl_primitive_attr_t *attr)
{
  const dnnl_status_t status = dnnl_primitive_attr_create(attr);
  return status == dnnl_success ? dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user) : status;
}

/* hint: for a gradient, the descriptor of the forward pass. Padding on the right is the remainder, negative if the
 * stride leaves some of x unread. */
static dnnl_status_t make_pd(cpu_backend *b, const cpu_conv_key *k, int64_t kind, const dnnl_memory_desc_t md[4],
                             const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *pd)
{
  const dnnl_memory_desc_t *x = &md[0], *w = &md[1], *bias = k->has_bias ? &md[2] : NULL, *y = &md[3];
  const int64_t in[2] = {k->height, k->width}, out[2] = {k->out_height, k->out_width};
  dnnl_dims_t pad_right = {0};
  dnnl_dims_t gap = {0}; /* oneDNN counts the elements between two neighbours */
  for (int i = 0; i < 2; i++) {
    gap[i] = k->dilation[i] - 1;
    pad_right[i] = (out[i] - 1) * k->stride[i] + k->dilation[i] * (k->kernel[i] - 1) + 1 - in[i] - k->padding[i];
  }
  dnnl_convolution_desc_t desc;
  dnnl_status_t status;
  if (kind == CONV_FORWARD)
    status = dnnl_dilated_convolution_forward_desc_init(&desc, dnnl_forward_training, dnnl_convolution_direct, x, w,
                                                        bias, y, k->stride, gap, k->padding, pad_right);
  else if (kind == CONV_GRAD_INPUT)
    status = dnnl_dilated_convolution_backward_data_desc_init(&desc, dnnl_convolution_direct, x, w, y, k->stride, gap,
                                                              k->padding, pad_right);
  else
    status = dnnl_dilated_convolution_backward_weights_desc_init(&desc, dnnl_convolution_direct, x, w, bias, y,
                                                                 k->stride, gap, k->padding, pad_right);
  dnnl_primitive_attr_t attr = NULL;
  if (status == dnnl_success) status = make_attr(&attr);
  if (status == dnnl_success) status = CPU_CONV_CALL(dnnl_primitive_desc_create(pd, &desc, attr, b->engine, hint));
  dnnl_primitive_attr_destroy(attr);
  return status;
}

/* Describes weights in the plain order of parameters, or in any order of the primitive. */
static dnnl_status_t describe_weights(dnnl_memory_desc_t *md, const cpu_conv_key *k, bool any)
{
  const int64_t g = k->groups;
  const dnnl_dims_t grouped = {g, k->out_channels / g, k->channels / g, k->kernel[0], k->kernel[1]};
  const dnnl_format_tag_t plain = g > 1 ? dnnl_goihw : dnnl_oihw;
  return dnnl_memory_desc_init_by_tag(md, g > 1 ? 5 : 4, g > 1 ? grouped : &grouped[1], dnnl_f32,
                                      any ? dnnl_format_tag_any : plain);
}

static candidate try_orders(cpu_backend *b, const cpu_conv_key *k, int64_t x_block, int64_t y_block)
{
  candidate c = {.rank = -1};
  const dnnl_dims_t bd = {k->out_channels};
  dnnl_memory_desc_t md[4]; /* x, weights, bias, y */
  if (!describe_activation(&md[0], k->samples, k->channels, k->height, k->width, x_block)) return c;
  if (!describe_activation(&md[3], k->samples, k->out_channels, k->out_height, k->out_width, y_block)) return c;
  if (describe_weights(&md[1], k, true) != dnnl_success) return c;
  if (k->like) md[1] = k->like->w.inner;
  dnnl_memory_desc_init_by_tag(&md[2], 1, bd, dnnl_f32, dnnl_a);

  dnnl_primitive_desc_t hint = NULL;
  if (k->kind != CONV_FORWARD) {
    dnnl_memory_desc_t free_md[4] = {md[0], md[1], md[2], md[3]};
    describe_weights(&free_md[1], k, true);
    const dnnl_status_t status = make_pd(b, k, CONV_FORWARD, free_md, NULL, &hint);
    c.has_failed = status == dnnl_out_of_memory;
    if (status != dnnl_success) return c;
  }
  const dnnl_status_t status = make_pd(b, k, k->kind, md, hint, &c.pd);
  c.has_failed = status == dnnl_out_of_memory;
  if (status == dnnl_success) c.rank = rank_of(c.pd);
  dnnl_primitive_desc_destroy(hint);
  return c;
}

/* Chooses in the order of preference: no copies; channels last on a side that is free, or copied; oneDNN's preferred
 * orders; all plain, for matrix products. Out of memory it chooses nothing, because the choice might differ from the
 * choice with enough memory. */
static candidate choose(cpu_backend *b, const cpu_conv_key *k)
{
  static const int8_t orders[][2] = {{ORDER_GIVEN, ORDER_GIVEN}, {ORDER_GIVEN, ORDER_LAST}, {ORDER_LAST, ORDER_GIVEN},
                                     {ORDER_LAST, ORDER_LAST},   {ORDER_ANY, ORDER_ANY},    {ORDER_PLAIN, ORDER_PLAIN}};
  candidate best = {.rank = -1};
  for (size_t i = 0; i < sizeof orders / sizeof orders[0] && best.rank < 2 && !best.has_failed; i++) {
    int64_t block[2] = {orders[i][0], orders[i][1]};
    if (block[0] == ORDER_GIVEN) block[0] = k->x_block; /* 0, free, is ORDER_ANY */
    if (block[1] == ORDER_GIVEN) block[1] = k->y_block;
    if (block[0] == ORDER_LAST) block[0] = k->channels;
    if (block[1] == ORDER_LAST) block[1] = k->out_channels;
    const candidate c = try_orders(b, k, block[0], block[1]);
    if (c.rank > best.rank || c.has_failed) {
      dnnl_primitive_desc_destroy(best.pd);
      best = c;
    } else {
      dnnl_primitive_desc_destroy(c.pd);
    }
  }
  return best;
}

static dnnl_status_t make_reorder(cpu_backend *b, const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
                                  dnnl_primitive_desc_t *pd)
{
  dnnl_primitive_attr_t attr = NULL;
  dnnl_status_t status = make_attr(&attr);
  if (status == dnnl_success) status = dnnl_reorder_primitive_desc_create(pd, from, b->engine, to, b->engine, attr);
  dnnl_primitive_attr_destroy(attr);
  return status;
}

static uint64_t scratch_of(const_dnnl_primitive_desc_t pd)
{
  return pd ? dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0)) : 0;
}

/* Fills a side whose inner description is known: the outer one, and the reorders between them. */
static brim_status join_side(cpu_backend *b, cpu_conv *c, cpu_conv_side *side, bool in, bool out)
{
  side->copied = !dnnl_memory_desc_equal(&side->outer, &side->inner);
  if (!side->copied) return BRIM_OK;
  if (in) TRY_DNNL(make_reorder(b, &side->outer, &side->inner, &side->to_inner_pd), "planning a reorder");
  if (out) TRY_DNNL(make_reorder(b, &side->inner, &side->outer, &side->to_outer_pd), "planning a reorder");
  const uint64_t bytes[] = {scratch_of(side->to_inner_pd), scratch_of(side->to_outer_pd)};
  for (int i = 0; i < 2; i++)
    if (bytes[i] > c->scratch_bytes) c->scratch_bytes = bytes[i];
  return BRIM_OK;
}

/* oneDNN 2.6 crashes instead of reporting a lack of memory, so check for memory first. */
static brim_status check_room(const char *what)
{
  void *room = brim_try_calloc(1, LIBRARY_BYTES);
  free(room);
  return room ? BRIM_OK : cpu_conv_failed(dnnl_out_of_memory, what);
}

/* oneDNN 2.6 gathers the pixels that a strided 1x1 convolution reads in its scratchpad, in whole vectors of channels,
 * but requests only the bytes of the channels: it writes past the end if they do not fill a vector. */
static uint64_t overrun_of(const cpu_conv_key *k)
{
  const uint64_t vector = 16, channels = (uint64_t)k->channels, whole = (channels + vector - 1) / vector * vector;
  if (k->kernel[0] * k->kernel[1] > 1 || k->stride[0] * k->stride[1] == 1) return 0;
  return (uint64_t)(k->out_height * k->out_width) * (whole - channels) * sizeof(float);
}

static brim_status fill(cpu_backend *b, cpu_conv *c)
{
  const cpu_conv_key *k = &c->key;
  BRIM_TRY(check_room("planning a convolution"));
  const candidate chosen = choose(b, k);
  if (chosen.rank < 0)
    return cpu_conv_failed(chosen.has_failed ? dnnl_out_of_memory : dnnl_unimplemented, "planning a convolution");
  c->pd = chosen.pd;
  static const dnnl_query_t query[][3] = {
      [CONV_FORWARD] = {dnnl_query_src_md, dnnl_query_dst_md, dnnl_query_weights_md},
      [CONV_GRAD_INPUT] = {dnnl_query_diff_src_md, dnnl_query_diff_dst_md, dnnl_query_weights_md},
      [CONV_GRAD_WEIGHT] = {dnnl_query_src_md, dnnl_query_diff_dst_md, dnnl_query_diff_weights_md}};
  c->x.inner = *dnnl_primitive_desc_query_md(c->pd, query[k->kind][0], 0);
  c->y.inner = *dnnl_primitive_desc_query_md(c->pd, query[k->kind][1], 0);
  c->w.inner = *dnnl_primitive_desc_query_md(c->pd, query[k->kind][2], 0);
  c->scratch = *dnnl_primitive_desc_query_md(c->pd, dnnl_query_scratchpad_md, 0);
  c->scratch_bytes = dnnl_memory_desc_get_size(&c->scratch);
  if (c->scratch_bytes > 0) c->scratch_bytes += overrun_of(k);

  c->x_block = k->x_block ? k->x_block : block_of(&c->x.inner);
  c->y_block = k->y_block ? k->y_block : block_of(&c->y.inner);
  if (c->x_block == 0) c->x_block = k->channels;
  if (c->y_block == 0) c->y_block = k->out_channels;
  describe_activation(&c->x.outer, k->samples, k->channels, k->height, k->width, c->x_block);
  describe_activation(&c->y.outer, k->samples, k->out_channels, k->out_height, k->out_width, c->y_block);
  const dnnl_dims_t bd = {k->has_bias ? k->out_channels : 0};
  TRY_DNNL(describe_weights(&c->w.outer, k, false), "describing weights");
  TRY_DNNL(dnnl_memory_desc_init_by_tag(&c->bias, 1, bd, dnnl_f32, dnnl_a), "describing a bias");

  const bool x_out = k->kind == CONV_GRAD_INPUT, y_out = k->kind == CONV_FORWARD;
  BRIM_TRY(join_side(b, c, &c->x, !x_out, x_out));
  BRIM_TRY(join_side(b, c, &c->y, !y_out, y_out));
  return join_side(b, c, &c->w, true, k->kind == CONV_GRAD_WEIGHT);
}

static void free_side(cpu_conv_side *side)
{
  dnnl_primitive_destroy(side->to_inner);
  dnnl_primitive_destroy(side->to_outer);
  dnnl_primitive_desc_destroy(side->to_inner_pd);
  dnnl_primitive_desc_destroy(side->to_outer_pd);
}

static void free_conv(cpu_conv *c)
{
  free_side(&c->x);
  free_side(&c->y);
  free_side(&c->w);
  dnnl_primitive_destroy(c->primitive);
  dnnl_primitive_desc_destroy(c->pd);
  free(c);
}

brim_status cpu_conv_get(cpu_backend *b, const cpu_conv_key *key, cpu_conv **out)
{
  for (cpu_conv *c = b->convs; c; c = c->next)
    if (memcmp(&c->key, key, sizeof *key) == 0) {
      *out = c;
      return BRIM_OK;
    }
  cpu_conv *c = brim_try_calloc(1, sizeof *c);
  if (!c) return brim_fail(BRIM_ENOMEM_HOST, "no memory for a convolution");
  c->key = *key;
  const brim_status status = fill(b, c);
  if (status != BRIM_OK) {
    free_conv(c);
    return status;
  }
  c->next = b->convs;
  b->convs = c;
  *out = c;
  return BRIM_OK;
}

/* Each thread has its own memory objects, each with a copy of its description: see make_memories() in conv.c. */
uint64_t cpu_conv_use(cpu_conv *c, int32_t threads)
{
  const cpu_conv_side *const sides[] = {&c->x, &c->y, &c->w};
  uint64_t reorders = 0;
  for (int i = 0; i < 3; i++) reorders += (sides[i]->to_inner_pd != NULL) + (sides[i]->to_outer_pd != NULL);
  const bool first = c->users++ == 0 && !c->primitive;
  return (first ? (1 + reorders) * PRIMITIVE_BYTES : 0) +
         (uint64_t)threads * (MEMORIES + reorders) * sizeof(dnnl_memory_desc_t);
}

static brim_status realize(dnnl_primitive_desc_t pd, dnnl_primitive_t *primitive)
{
  if (!pd || *primitive) return BRIM_OK;
  BRIM_TRY(check_room("compiling a convolution"));
  TRY_DNNL(dnnl_primitive_create(primitive, pd), "compiling a convolution");
  return BRIM_OK;
}

brim_status cpu_conv_realize(cpu_conv *c)
{
  cpu_conv_side *const sides[] = {&c->x, &c->y, &c->w};
  for (int i = 0; i < 3; i++) {
    BRIM_TRY(realize(sides[i]->to_inner_pd, &sides[i]->to_inner));
    BRIM_TRY(realize(sides[i]->to_outer_pd, &sides[i]->to_outer));
  }
  return realize(c->pd, &c->primitive);
}

void cpu_conv_free_all(cpu_backend *b)
{
  while (b->convs) {
    cpu_conv *next = b->convs->next;
    free_conv(b->convs);
    b->convs = next;
  }
}
