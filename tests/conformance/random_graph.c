/* A graph grows by steps: each takes a tensor, usually the last one, and applies an operation of a random family, if
 * the tensor's shape allows one. In the end the output combines all tensors that nothing else reads. No random choice
 * depends on the batch, and values stay moderate: the input of exp is a tanh, and divisors are results of exp. */
#include "conformance/random_graph.h"

#include <stdio.h>

#include "brim/random.h"

enum { MADE_MAX = 64, ELEMENTS_MAX = 1000, STEPS_MIN = 10, STEPS_MAX = 25 }; /* ELEMENTS_MAX: of a sample */
#define STREAM 0xFFFFFEu

typedef struct maker {
  const random_graph *r;
  brim_graph *g;
  uint32_t draws, names;
  char name[32];
  brim_tensor *made[MADE_MAX];
  bool used[MADE_MAX];
  int count;
} maker;

static int64_t pick(maker *m, int64_t low, int64_t high)
{
  const brim_philox p = brim_random4(m->r->seed, BRIM_STREAM_DATA, STREAM, m->draws++, 0);
  return high <= low ? low : low + (int64_t)(p.v[0] % (uint64_t)(high - low + 1));
}

static int64_t pick_channels(maker *m)
{
  static const int64_t sizes[] = {1, 2, 3, 5, 7, 8, 16, 16, 17, 24, 32};
  return sizes[pick(m, 0, sizeof sizes / sizeof sizes[0] - 1)];
}

static const char *new_name(maker *m)
{
  snprintf(m->name, sizeof m->name, "layer%u", m->names++);
  return m->name;
}

static int64_t elements(const brim_shape *s)
{
  return brim_shape_count(s) / s->dim[0];
}

static void push(maker *m, brim_tensor *x)
{
  if (x && m->count < MADE_MAX) m->made[m->count++] = x;
}

/* Returns another tensor of x's shape, or NULL. */
static brim_tensor *find_like(maker *m, const brim_tensor *x)
{
  const brim_shape s = brim_shape_of(x);
  const int64_t first = pick(m, 0, m->count - 1);
  for (int i = 0; i < m->count; i++) {
    const int at = (int)((first + i) % m->count);
    const brim_shape other = brim_shape_of(m->made[at]);
    if (m->made[at] == x || !brim_shape_equal(&s, &other)) continue;
    m->used[at] = true;
    return m->made[at];
  }
  return NULL;
}

/* ---- products ---- */

static brim_tensor *add_linear(maker *m, brim_tensor *x)
{
  const brim_shape s = brim_shape_of(x);
  int64_t out = pick_channels(m);
  if (elements(&s) / s.dim[s.rank - 1] * out > ELEMENTS_MAX) out = 1;
  return pick(m, 0, 3) ? brim_linear(m->g, new_name(m), x, out) : brim_linear_no_bias(m->g, new_name(m), x, out);
}

static brim_tensor *add_matmul(maker *m, brim_tensor *x)
{
  const brim_shape s = brim_shape_of(x);
  if (s.rank < 3) return NULL;
  brim_tensor *other = find_like(m, x);
  const int64_t rows = s.dim[s.rank - 2], columns = s.dim[s.rank - 1];
  const int outer = (int)pick(m, 0, 1); /* x other^T, or x^T other */
  const int64_t side = outer ? rows : columns;
  if (elements(&s) / (rows * columns) * side * side > ELEMENTS_MAX) return NULL;
  return brim_scale(m->g, brim_matmul(m->g, x, other ? other : x, !outer, outer), 0.25);
}

static brim_tensor *add_conv2d(maker *m, brim_tensor *x)
{
  const brim_shape s = brim_shape_of(x);
  if (s.rank != 4) return NULL;
  brim_conv2d_options o = {.groups = 1, .no_bias = pick(m, 0, 3) == 0};
  for (int d = 0; d < 2; d++) {
    o.padding[d] = pick(m, 0, 1);
    const int64_t extent = s.dim[2 + d] + 2 * o.padding[d];
    o.kernel[d] = pick(m, 1, extent < 3 ? extent : 3);
    o.stride[d] = pick(m, 1, pick(m, 0, 2) ? 1 : 2);
    o.dilation[d] = 2 * (o.kernel[d] - 1) < extent ? pick(m, 1, 2) : 1;
  }
  const int64_t c = s.dim[1], depthwise = pick(m, 0, 4) == 0;
  if (depthwise)
    o.groups = c;
  else if (c % 2 == 0 && pick(m, 0, 2) == 0)
    o.groups = 2;
  int64_t out = depthwise ? c : (pick_channels(m) + o.groups - 1) / o.groups * o.groups;
  if (out * (s.dim[2] + 2) * (s.dim[3] + 2) > 2 * ELEMENTS_MAX) out = o.groups;
  return brim_conv2d(m->g, new_name(m), x, out, o);
}

static brim_tensor *add_conv1d(maker *m, brim_tensor *x)
{
  const brim_shape s = brim_shape_of(x);
  if (s.rank != 3) return NULL;
  brim_conv1d_options o = {.padding = pick(m, 0, 1), .stride = pick(m, 1, 2)};
  const int64_t extent = s.dim[2] + 2 * o.padding;
  o.kernel = pick(m, 1, extent < 3 ? extent : 3);
  int64_t out = pick_channels(m);
  if (out * (s.dim[2] + 2) > ELEMENTS_MAX) out = 1;
  return brim_conv1d(m->g, new_name(m), x, out, o);
}

static brim_tensor *add_conv_transpose2d(maker *m, brim_tensor *x)
{
  const brim_shape s = brim_shape_of(x);
  if (s.rank != 4) return NULL;
  brim_conv_transpose2d_options o = {.no_bias = pick(m, 0, 3) == 0};
  for (int d = 0; d < 2; d++) {
    o.kernel[d] = pick(m, 1, 3);
    o.stride[d] = pick(m, 1, 2);
    o.padding[d] = s.dim[2 + d] > 1 ? pick(m, 0, o.kernel[d] / 2) : 0;
    o.output_padding[d] = pick(m, 0, o.stride[d] - 1);
  }
  o.groups = s.dim[1] % 2 == 0 && pick(m, 0, 2) == 0 ? 2 : 1;
  int64_t out = (pick_channels(m) + o.groups - 1) / o.groups * o.groups;
  if (out * (2 * s.dim[2] + 3) * (2 * s.dim[3] + 3) > ELEMENTS_MAX) out = o.groups;
  if (out * (2 * s.dim[2] + 3) * (2 * s.dim[3] + 3) > ELEMENTS_MAX) return NULL;
  return brim_conv_transpose2d(m->g, new_name(m), x, out, o);
}

static brim_tensor *add_embedding(maker *m, brim_tensor *x)
{
  const brim_shape s = {2, {brim_shape_of(x).dim[0], pick(m, 1, 9)}};
  brim_tensor *index = m->r->indices ? m->r->indices(m->g, &s) : NULL;
  if (!index) return NULL;
  return brim_embedding(m->g, new_name(m), index, m->r->below + pick(m, 0, 3), pick_channels(m));
}

/* ---- pooling ---- */

static brim_tensor *add_pool2d(maker *m, brim_tensor *x)
{
  const brim_shape s = brim_shape_of(x);
  if (s.rank != 4) return NULL;
  brim_pool2d_options o = {.exclude_padding = (int32_t)pick(m, 0, 1)};
  for (int d = 0; d < 2; d++) {
    o.kernel[d] = pick(m, 1, s.dim[2 + d] < 3 ? s.dim[2 + d] : 3);
    o.stride[d] = pick(m, 1, 2);
    o.padding[d] = pick(m, 0, o.kernel[d] / 2);
  }
  return pick(m, 0, 1) ? brim_max_pool2d(m->g, x, o) : brim_avg_pool2d(m->g, x, o);
}

static brim_tensor *add_other_pool(maker *m, brim_tensor *x)
{
  const brim_shape s = brim_shape_of(x);
  if (s.rank == 3 && pick(m, 0, 1))
    return brim_max_pool1d(m->g, x, pick(m, 1, s.dim[2] < 3 ? s.dim[2] : 3), pick(m, 0, 2), 0);
  if (s.rank == 4 && pick(m, 0, 3)) {
    const int64_t height = pick(m, 1, 4), width = pick(m, 1, 4);
    return s.dim[1] * height * width > ELEMENTS_MAX ? NULL : brim_adaptive_avg_pool2d(m->g, x, height, width);
  }
  return s.rank > 2 ? brim_global_avg_pool(m->g, x) : NULL;
}

/* ---- normalisation ---- */

static brim_tensor *add_batch_norm(maker *m, brim_tensor *x)
{
  return brim_batch_norm(m->g, new_name(m), x, 1e-2, 0.1);
}

static brim_tensor *add_group_norm(maker *m, brim_tensor *x)
{
  const brim_shape s = brim_shape_of(x);
  int64_t groups = pick(m, 1, 4);
  while (s.dim[1] % groups) groups--;
  return brim_group_norm(m->g, new_name(m), x, groups, 1e-2);
}

static brim_tensor *add_layer_norm(maker *m, brim_tensor *x)
{
  brim_tensor *other = pick(m, 0, 1) ? find_like(m, x) : NULL;
  if (other) push(m, x = brim_add(m->g, x, other));
  return brim_layer_norm(m->g, new_name(m), x, 1e-2);
}

static brim_tensor *add_rms_norm(maker *m, brim_tensor *x)
{
  brim_tensor *other = pick(m, 0, 1) ? find_like(m, x) : NULL;
  if (other) push(m, x = brim_add(m->g, other, x));
  return brim_rms_norm(m->g, new_name(m), x, 1e-2);
}

/* ---- element by element ---- */

static brim_tensor *add_relu(maker *m, brim_tensor *x)
{
  return pick(m, 0, 3) ? brim_relu(m->g, x) : brim_leaky_relu(m->g, x, 0.125);
}

static brim_tensor *add_activation(maker *m, brim_tensor *x)
{
  switch (pick(m, 0, 5)) {
  case 0:
    return brim_gelu(m->g, x, (int32_t)pick(m, 0, 2));
  case 1:
    return brim_silu(m->g, x);
  case 2:
    return brim_sigmoid(m->g, x);
  case 3:
    return brim_tanh(m->g, x);
  case 4:
    return brim_scale(m->g, x, (double)pick(m, -3, 3) / 2 + 0.25);
  default:
    return brim_exp(m->g, brim_tanh(m->g, x));
  }
}

static brim_tensor *add_dropout(maker *m, brim_tensor *x)
{
  brim_tensor *other = pick(m, 0, 2) ? find_like(m, x) : NULL, *y = brim_dropout(m->g, x, 0.25);
  const brim_shape s = brim_shape_of(x);
  if (y == x) y = brim_reshape(m->g, x, s.rank, s.dim); /* in evaluation dropout returns x; y must be another tensor */
  if (!other) return y;
  return pick(m, 0, 1) ? brim_add(m->g, other, y) : brim_add(m->g, y, other);
}

static brim_tensor *combine(maker *m, brim_tensor *a, brim_tensor *b)
{
  switch (pick(m, 0, 4)) {
  case 0:
    return brim_div(m->g, a, brim_exp(m->g, brim_tanh(m->g, b)));
  case 1:
    return brim_sub(m->g, a, b);
  case 2:
    return brim_mul(m->g, a, b);
  default:
    return brim_add(m->g, a, b);
  }
}

static brim_tensor *add_residual(maker *m, brim_tensor *x)
{
  brim_tensor *other = find_like(m, x);
  if (!other) return NULL;
  return pick(m, 0, 1) ? combine(m, x, other) : combine(m, other, x);
}

/* Returns a shape that x can be combined with: some of x's last dimensions, each of which may be 1 instead. */
static brim_shape operand_of(maker *m, const brim_tensor *x)
{
  const brim_shape whole = brim_shape_of(x);
  const int32_t skip = (int32_t)pick(m, 1, whole.rank - 1);
  brim_shape s = {whole.rank - skip, {0}};
  for (int32_t d = 0; d < s.rank; d++) s.dim[d] = pick(m, 0, 2) ? whole.dim[skip + d] : 1;
  return s;
}

static brim_tensor *new_parameter(maker *m, const brim_shape *s)
{
  return brim_parameter_new(m->g, new_name(m), s->rank, s->dim, (brim_init){BRIM_INIT_UNIFORM, 1});
}

/* Combines x with its own means over some axes, or with a parameter that is broadcast. */
static brim_tensor *add_broadcast(maker *m, brim_tensor *x)
{
  if (pick(m, 0, 1)) {
    const int32_t axis = (int32_t)pick(m, 1, brim_shape_of(x).rank - 1);
    return combine(m, x, brim_mean(m->g, x, 1, &axis, 1));
  }
  const brim_shape s = operand_of(m, x);
  brim_tensor *p = new_parameter(m, &s);
  return pick(m, 0, 1) ? combine(m, x, p) : combine(m, p, x);
}

/* ---- of parameters alone ---- */

static brim_tensor *slice_of_larger(maker *m, const brim_shape *s)
{
  const int32_t axis = (int32_t)pick(m, 0, s->rank - 1);
  const int64_t before = pick(m, 0, 2);
  brim_shape larger = *s;
  larger.dim[axis] += before + pick(m, 0, 2);
  return brim_slice(m->g, new_parameter(m, &larger), axis, before, s->dim[axis]);
}

/* Applies one more operation to `p` that keeps its shape; q: a parameter of that shape, which may be used again. */
static brim_tensor *extend(maker *m, brim_tensor *p, brim_tensor *q, const brim_shape *s)
{
  switch (pick(m, 0, 8)) {
  case 0:
    return brim_scale(m->g, p, 0.5);
  case 1:
    return brim_tanh(m->g, p);
  case 2:
    return brim_mul(m->g, p, q);
  case 3:
    return brim_add(m->g, p, new_parameter(m, s));
  case 4:
    return s->rank > 1 ? brim_layer_norm(m->g, new_name(m), p, 1e-2) : brim_gelu(m->g, p, BRIM_GELU_EXACT);
  case 5:
    return s->rank > 1 ? brim_linear(m->g, new_name(m), p, s->dim[s->rank - 1]) : brim_sigmoid(m->g, p);
  case 6:
    return s->rank > 1 ? brim_softmax(m->g, p) : brim_relu(m->g, p);
  case 7: {
    const brim_conv1d_options one = {.kernel = 1};
    return s->rank == 3 ? brim_conv1d(m->g, new_name(m), p, s->dim[1], one) : brim_leaky_relu(m->g, p, 0.125);
  }
  default: {
    if (s->rank < 3) return brim_sub(m->g, q, p);
    brim_tensor *turned = brim_transpose(m->g, p, 1, 2);
    return brim_reshape(m->g, turned, s->rank, s->dim);
  }
  }
}

/* Adds a result of parameters: their slices, norms, products. It may be used twice, and so may its parameter. */
static brim_tensor *add_made_of_parameters(maker *m, brim_tensor *x)
{
  const brim_shape s = operand_of(m, x);
  brim_tensor *q = new_parameter(m, &s), *p = pick(m, 0, 1) ? slice_of_larger(m, &s) : q;
  for (int64_t steps = pick(m, p == q, 3); steps > 0; steps--) p = extend(m, p, q, &s);
  brim_tensor *y = pick(m, 0, 1) ? combine(m, x, p) : combine(m, p, x);
  if (pick(m, 0, 2) == 0) y = brim_mul(m->g, y, q);
  return pick(m, 0, 2) ? y : brim_add(m->g, brim_scale(m->g, y, 0.5), p);
}

static brim_tensor *add_softmax(maker *m, brim_tensor *x)
{
  return pick(m, 0, 1) ? brim_softmax(m->g, x) : brim_log_softmax(m->g, x);
}

/* ---- sums and moves ---- */

static brim_tensor *add_reduce(maker *m, brim_tensor *x)
{
  const brim_shape s = brim_shape_of(x);
  int32_t axes[BRIM_DIMS_MAX], count = 0;
  for (int32_t d = 1; d < s.rank; d++)
    if (pick(m, 0, 1)) axes[count++] = d;
  if (count == 0) return NULL;
  const int keep = count == s.rank - 1 || pick(m, 0, 1);
  return pick(m, 0, 1) ? brim_mean(m->g, x, count, axes, keep) : brim_sum(m->g, x, count, axes, keep);
}

static brim_tensor *add_reshape(maker *m, brim_tensor *x)
{
  const brim_shape s = brim_shape_of(x);
  int64_t dim[4] = {s.dim[0]}, left = elements(&s);
  const int32_t rank = (int32_t)pick(m, 2, 4);
  for (int32_t d = 1; d + 1 < rank; d++) {
    dim[d] = pick(m, 1, left < 12 ? left : 12);
    while (left % dim[d]) dim[d]--;
    left /= dim[d];
  }
  dim[rank - 1] = left;
  return brim_reshape(m->g, x, rank, dim);
}

static brim_tensor *add_permute(maker *m, brim_tensor *x)
{
  const int32_t rank = brim_shape_of(x).rank;
  if (rank < 3) return NULL;
  if (pick(m, 0, 1)) return brim_transpose(m->g, x, (int32_t)pick(m, 1, rank - 1), -1);
  int32_t order[BRIM_DIMS_MAX] = {0};
  for (int32_t d = 1; d < rank; d++) {
    const int32_t at = (int32_t)pick(m, 1, d);
    order[d] = order[at];
    order[at] = d;
  }
  return brim_permute(m->g, x, order);
}

static brim_tensor *add_concat(maker *m, brim_tensor *x)
{
  const brim_shape s = brim_shape_of(x);
  const int32_t axis = (int32_t)pick(m, 1, s.rank - 1);
  brim_tensor *other = find_like(m, x);
  brim_tensor *const parts[] = {x, other ? other : x, brim_slice(m->g, x, axis, 0, pick(m, 1, s.dim[axis]))};
  if (3 * elements(&s) > ELEMENTS_MAX) return NULL;
  return brim_concat(m->g, (int32_t)pick(m, 2, 3), parts, axis);
}

static brim_tensor *add_slice(maker *m, brim_tensor *x)
{
  const brim_shape s = brim_shape_of(x);
  const int32_t axis = (int32_t)pick(m, 1, s.rank - 1);
  if (s.dim[axis] < 2) return NULL;
  const int64_t start = pick(m, 0, s.dim[axis] / 2);
  return brim_slice(m->g, x, axis, start, pick(m, 1, s.dim[axis] - start));
}

static brim_tensor *add_split(maker *m, brim_tensor *x)
{
  const brim_shape s = brim_shape_of(x);
  const int32_t axis = (int32_t)pick(m, 1, s.rank - 1), count = (int32_t)pick(m, 2, 3);
  brim_tensor *parts[3] = {0};
  if (s.dim[axis] % count) return NULL;
  brim_split(m->g, x, axis, count, parts);
  for (int32_t i = 1; i < count; i++) push(m, parts[i]);
  return parts[0];
}

static brim_tensor *add_pad(maker *m, brim_tensor *x)
{
  const brim_shape s = brim_shape_of(x);
  int64_t before[BRIM_DIMS_MAX] = {0}, after[BRIM_DIMS_MAX] = {0}, count = 1;
  for (int32_t d = 1; d < s.rank; d++) {
    before[d] = pick(m, 0, 1);
    after[d] = pick(m, 0, 2);
    count *= before[d] + s.dim[d] + after[d];
  }
  return count > ELEMENTS_MAX ? NULL : brim_pad(m->g, x, before, after, (double)pick(m, -1, 1) / 2);
}

static brim_tensor *add_gather(maker *m, brim_tensor *x)
{
  brim_shape s = brim_shape_of(x);
  const int32_t axis = (int32_t)pick(m, 1, s.rank - 1);
  if (s.dim[axis] < m->r->below || !m->r->indices) return NULL;
  s.dim[axis] = pick(m, 1, s.dim[axis]);
  return brim_gather(m->g, x, axis, m->r->indices(m->g, &s));
}

/* ---- sequences ---- */

static brim_tensor *add_attention(maker *m, brim_tensor *x)
{
  const brim_shape s = brim_shape_of(x);
  if (s.rank != 3 || s.dim[1] > 64) return NULL;
  const int64_t kv_heads = pick(m, 1, 2), heads = kv_heads * pick(m, 1, 2), size = 2 * pick(m, 1, 4);
  if (s.dim[1] * heads * size > ELEMENTS_MAX) return NULL;
  const int64_t keys = kv_heads * size;
  brim_tensor *q, *k, *v;
  if (pick(m, 0, 1)) {
    brim_tensor *all = brim_linear(m->g, new_name(m), x, heads * size + 2 * keys);
    q = brim_slice(m->g, all, 2, 0, heads * size);
    k = brim_slice(m->g, all, 2, heads * size, keys);
    v = brim_slice(m->g, all, 2, heads * size + keys, keys);
  } else {
    q = brim_linear(m->g, new_name(m), x, heads * size);
    k = brim_linear_no_bias(m->g, new_name(m), x, keys);
    v = brim_linear(m->g, new_name(m), x, keys);
  }
  if (pick(m, 0, 1)) {
    const int32_t interleaved = (int32_t)pick(m, 0, 1);
    q = brim_rotary(m->g, q, (brim_rotary_options){.heads = heads, .interleaved = interleaved});
    k = brim_rotary(m->g, k, (brim_rotary_options){.heads = kv_heads, .interleaved = interleaved});
  }
  const brim_attention_options o = {
      .heads = heads, .kv_heads = kv_heads, .causal = (int32_t)pick(m, 0, 1), .dropout = pick(m, 0, 2) ? 0 : 0.25};
  return brim_attention(m->g, q, k, v, o);
}

static brim_tensor *add_lstm(maker *m, brim_tensor *x)
{
  const brim_shape s = brim_shape_of(x);
  if (s.rank != 3 || s.dim[1] > 24) return NULL;
  const brim_lstm_options o = {
      .layers = (int32_t)pick(m, 1, 2), .bidirectional = (int32_t)pick(m, 0, 1), .dropout = pick(m, 0, 2) ? 0 : 0.25};
  return brim_lstm(m->g, new_name(m), x, pick(m, 1, 10), o);
}

static brim_tensor *add_upsample(maker *m, brim_tensor *x)
{
  const brim_shape s = brim_shape_of(x);
  const int32_t mode = pick(m, 0, 1) ? BRIM_UPSAMPLE_LINEAR : BRIM_UPSAMPLE_NEAREST;
  const int32_t align = mode == BRIM_UPSAMPLE_LINEAR && pick(m, 0, 1);
  if ((s.rank != 3 && s.rank != 4) || elements(&s) * (s.rank == 4 ? 4 : 2) > ELEMENTS_MAX) return NULL;
  if (s.rank == 3) return brim_upsample1d(m->g, x, (brim_upsample1d_options){pick(m, 1, 2 * s.dim[2]), 0, mode, align});
  const brim_upsample2d_options o = {
      .size = {pick(m, 1, 2 * s.dim[2])}, .factor = {0, 2}, .mode = mode, .align_corners = align};
  return brim_upsample2d(m->g, x, o);
}

/* ---- the whole ---- */

static const struct {
  const char *name;
  brim_tensor *(*add)(maker *m, brim_tensor *x);
} families[] = {{"linear", add_linear},
                {"matmul", add_matmul},
                {"conv2d", add_conv2d},
                {"conv2d", add_conv2d},
                {"conv1d", add_conv1d},
                {"conv_transpose2d", add_conv_transpose2d},
                {"embedding", add_embedding},
                {"pool2d", add_pool2d},
                {"other pooling", add_other_pool},
                {"upsample", add_upsample},
                {"batch norm", add_batch_norm},
                {"group norm", add_group_norm},
                {"layer norm", add_layer_norm},
                {"RMS norm", add_rms_norm},
                {"relu", add_relu},
                {"relu", add_relu},
                {"activation", add_activation},
                {"dropout", add_dropout},
                {"residual", add_residual},
                {"residual", add_residual},
                {"broadcast", add_broadcast},
                {"made of parameters", add_made_of_parameters},
                {"softmax", add_softmax},
                {"reduce", add_reduce},
                {"reshape", add_reshape},
                {"permute", add_permute},
                {"concat", add_concat},
                {"slice", add_slice},
                {"split", add_split},
                {"pad", add_pad},
                {"gather", add_gather},
                {"attention", add_attention},
                {"lstm", add_lstm}};
enum { FAMILIES = sizeof families / sizeof families[0] };

int random_graph_family_count(void)
{
  return FAMILIES;
}

const char *random_graph_family(int i)
{
  return families[i].name;
}

void random_graph_choose(random_graph *r)
{
  maker m = {.r = r, .draws = 1u << 20};
  r->sample_rank = pick(&m, 0, 3) ? 3 : pick(&m, 1, 2);
  for (int64_t d = 0; d < r->sample_rank; d++) r->sample_dim[d] = d == 0 ? pick_channels(&m) : pick(&m, 1, 7);
  r->classes = pick(&m, 2, 7);
}

static void grow(maker *m)
{
  const int family = (int)pick(m, 0, FAMILIES - 1);
  const int at = pick(m, 0, 2) ? m->count - 1 : (int)pick(m, 0, m->count - 1);
  brim_tensor *y = families[family].add(m, m->made[at]);
  if (!y) return;
  m->used[at] = true;
  push(m, y);
  if (m->r->families) m->r->families[family]++;
}

brim_tensor *random_graph_grow(const random_graph *r, brim_graph *g, brim_tensor *x, int64_t results)
{
  maker m = {.r = r, .g = g};
  push(&m, x);
  const int steps = (int)pick(&m, STEPS_MIN, STEPS_MAX);
  for (int i = 0; m.count <= steps && i < 10 * STEPS_MAX; i++) grow(&m);
  brim_tensor *all = NULL;
  for (int i = 0; i < m.count; i++) {
    if (m.used[i]) continue;
    brim_tensor *y = brim_linear(g, new_name(&m), brim_flatten(g, m.made[i]), results);
    all = all ? brim_add(g, all, y) : y;
  }
  return all;
}

brim_status random_graph_build(const void *self, brim_graph *g)
{
  brim_output(g, random_graph_grow(self, g, brim_input(g), brim_classes(g)));
  return BRIM_OK;
}
