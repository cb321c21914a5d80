/* Moves of values: permute, concat, slice, pad. Their gradients are operations of the same family. The first dimension
 * is N and does not change. */
#include "graph/graph.h"

#undef brim_transpose
#undef brim_permute
#undef brim_concat
#undef brim_slice
#undef brim_split
#undef brim_pad

static void cost_move(const brim_node *n, brim_cost *out)
{
  (void)n;
  out->flops = 0;
}

static void cost_slice(const brim_node *n, brim_cost *out)
{
  *out = (brim_cost){0, 2 * n->out[0]->bytes};
}

/* Returns the axis counted from the front, or -1 with an error if it does not exist or is N. */
static int32_t inner_axis(brim_graph *g, const char *op, const brim_tensor *x, int32_t axis)
{
  const int32_t at = brim_graph_axis(g, op, x, axis);
  if (at != 0) return at;
  char text[160];
  brim_graph_fail(g, op, NULL, "axis %d of '%s' %s is N, the samples of the micro-batch, and cannot be changed", axis,
                  x->name, brim_shape_format(text, sizeof text, &x->shape));
  return -1;
}

/* ---- permute ---- */

static brim_status infer_permute(brim_graph *g, brim_node *n)
{
  const brim_shape *x = &n->in[0]->shape;
  brim_shape y = {x->rank, {0}};
  for (int32_t d = 0; d < x->rank; d++) y.dim[d] = x->dim[n->attr.move.order[d]];
  n->out[0] = brim_graph_like(g, n, &y);
  return BRIM_OK;
}

static brim_status gradient_permute(brim_autodiff *ad, const brim_node *n)
{
  brim_attr back = {0};
  for (int32_t d = 0; d < n->in[0]->shape.rank; d++) back.move.order[n->attr.move.order[d]] = d;
  brim_tensor *const in[] = {brim_autodiff_of(ad, n->out[0])};
  return brim_autodiff_emit(ad, "permute", n, &back, in, 1, n->in, 1);
}

static bool each_token_permuted(const brim_node *n)
{
  return n->attr.move.order[1] == 1;
}

BRIM_OP(permute) = {.name = "permute",
                    .kind = BRIM_KIND_COPY,
                    .signature = "x [N,...] -> y [N,...]",
                    .each_token = each_token_permuted,
                    .infer = infer_permute,
                    .gradient = gradient_permute,
                    .cost = cost_move};

brim_tensor *brim_permute(brim_graph *g, brim_tensor *x, const int32_t *order)
{
  if (!brim_graph_accepts(g, "permute", NULL, x)) return NULL;
  if (!brim_graph_needs_list(g, "permute", NULL, order, "order")) return NULL;
  brim_attr attr = {0};
  unsigned seen = 0;
  for (int32_t d = 0; d < x->shape.rank; d++) {
    const int32_t axis = brim_graph_axis(g, "permute", x, order[d]);
    if (axis < 0) return NULL;
    attr.move.order[d] = axis;
    seen |= 1u << axis;
  }
  if (seen != (1u << x->shape.rank) - 1 || attr.move.order[0] != 0) {
    char text[160], given[160];
    brim_shape shown = {x->shape.rank, {0}};
    for (int32_t d = 0; d < shown.rank; d++) shown.dim[d] = order[d];
    brim_graph_fail(g, "permute", NULL, "order %s of '%s' %s must name each axis once, 0 (N) first",
                    brim_shape_format(given, sizeof given, &shown), x->name,
                    brim_shape_format(text, sizeof text, &x->shape));
    return NULL;
  }
  return brim_graph_apply(g, "permute", NULL, &x, 1, &attr);
}

brim_tensor *brim_transpose(brim_graph *g, brim_tensor *x, int32_t axis_a, int32_t axis_b)
{
  if (!brim_graph_accepts(g, "transpose", NULL, x)) return NULL;
  const int32_t a = inner_axis(g, "transpose", x, axis_a);
  const int32_t b = a < 0 ? -1 : inner_axis(g, "transpose", x, axis_b);
  if (b < 0) return NULL;
  int32_t order[BRIM_DIMS_MAX];
  for (int32_t d = 0; d < x->shape.rank; d++) order[d] = d == a ? b : d == b ? a : d;
  return brim_permute(g, x, order);
}

/* ---- concat, slice, split ---- */

static brim_status infer_concat(brim_graph *g, brim_node *n)
{
  const int32_t axis = n->attr.move.axis;
  brim_shape y = n->in[0]->shape;
  for (uint32_t i = 1; i < n->in_count; i++) y.dim[axis] += n->in[i]->shape.dim[axis];
  n->out[0] = brim_graph_like(g, n, &y);
  return BRIM_OK;
}

static brim_status gradient_concat(brim_autodiff *ad, const brim_node *n)
{
  brim_tensor *const in[] = {brim_autodiff_of(ad, n->out[0])};
  brim_attr attr = {.move = {.axis = n->attr.move.axis}};
  for (uint32_t i = 0; i < n->in_count; i++) {
    if (brim_autodiff_needs(ad, n->in[i])) BRIM_TRY(brim_autodiff_emit(ad, "slice", n, &attr, in, 1, &n->in[i], 1));
    attr.move.start += n->in[i]->shape.dim[attr.move.axis];
  }
  return BRIM_OK;
}

static brim_status gradient_slice(brim_autodiff *ad, const brim_node *n)
{
  brim_tensor *const in[] = {brim_autodiff_of(ad, n->out[0])};
  brim_attr attr = {0};
  attr.move.before[n->attr.move.axis] = n->attr.move.start;
  return brim_autodiff_emit(ad, "pad", n, &attr, in, 1, n->in, 1);
}

BRIM_OP(concat) = {.name = "concat",
                   .kind = BRIM_KIND_COPY,
                   .signature = "x [N,...], ... -> y [N,...]",
                   .each_token = brim_op_each_token_axis,
                   .infer = infer_concat,
                   .gradient = gradient_concat,
                   .cost = cost_move};
BRIM_OP(slice) = {.name = "slice",
                  .kind = BRIM_KIND_COPY,
                  .signature = "x [N,...] -> y [N,...]",
                  .each_token = brim_op_each_token_axis,
                  .gradient = gradient_slice,
                  .cost = cost_slice};

/* Whether x can follow `first` along `axis`. */
static bool can_join(const brim_tensor *first, const brim_tensor *x, int32_t axis)
{
  brim_shape shape = x->shape;
  if (shape.rank != first->shape.rank || x->dtype != first->dtype) return false;
  shape.dim[axis] = first->shape.dim[axis];
  return brim_shape_equal(&shape, &first->shape);
}

brim_tensor *brim_concat(brim_graph *g, int32_t count, brim_tensor *const *x, int32_t axis)
{
  if (g->status != BRIM_OK) return NULL;
  if (count < 1) {
    brim_graph_fail(g, "concat", NULL, "at least 1 tensor is needed, got %d", count);
    return NULL;
  }
  if (!brim_graph_needs_list(g, "concat", NULL, x, "the list of tensors")) return NULL;
  for (int32_t i = 0; i < count; i++) {
    if (x[i]) continue;
    brim_graph_fail(g, "concat", NULL, "input %d of %d is NULL", i + 1, count);
    return NULL;
  }
  const int32_t at = inner_axis(g, "concat", x[0], axis);
  if (at < 0) return NULL;
  for (int32_t i = 1; i < count; i++) {
    if (can_join(x[0], x[i], at)) continue;
    char first[160], other[160];
    brim_graph_fail(g, "concat", NULL,
                    "'%s' %s %s and '%s' %s %s must have the same type, and the same shape except along axis %d",
                    x[0]->name, brim_dtype_name(x[0]->dtype), brim_shape_format(first, sizeof first, &x[0]->shape),
                    x[i]->name, brim_dtype_name(x[i]->dtype), brim_shape_format(other, sizeof other, &x[i]->shape), at);
    return NULL;
  }
  if (!brim_graph_accepts_together(g, "concat", NULL, x, (size_t)count)) return NULL;
  const brim_attr attr = {.move = {.axis = at}};
  return brim_graph_apply(g, "concat", NULL, x, (uint32_t)count, &attr);
}

/* Makes a node whose output's shape does not follow from its inputs. */
static brim_tensor *make(brim_graph *g, const char *op, brim_tensor *x, const brim_shape *shape, const brim_attr *attr)
{
  brim_tensor *y = brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, x->dtype, shape, op);
  if (!y) return NULL;
  return brim_graph_node_into(g, op, NULL, &x, 1, &y, 1, attr) ? y : NULL;
}

brim_tensor *brim_slice(brim_graph *g, brim_tensor *x, int32_t axis, int64_t start, int64_t length)
{
  if (!brim_graph_accepts(g, "slice", NULL, x)) return NULL;
  const bool has_samples = brim_graph_has_samples(g, x);
  const int32_t at = has_samples ? inner_axis(g, "slice", x, axis) : brim_graph_axis(g, "slice", x, axis);
  if (at < 0) return NULL;
  brim_shape shape = x->shape;
  if (start < 0 || length < 1 || start > shape.dim[at] - length) {
    char text[160];
    brim_graph_fail(g, "slice", NULL, "%lld values from index %lld along axis %d do not all lie within '%s' %s",
                    (long long)length, (long long)start, at, x->name, brim_shape_format(text, sizeof text, &x->shape));
    return NULL;
  }
  shape.dim[at] = length;
  return make(g, "slice", x, &shape, &(brim_attr){.move = {.axis = at, .start = start}});
}

void brim_split(brim_graph *g, brim_tensor *x, int32_t axis, int32_t count, brim_tensor **out)
{
  if (!out) {
    brim_graph_needs_list(g, "split", NULL, out, "the list for the parts");
    return;
  }
  for (int32_t i = 0; i < count; i++) out[i] = NULL;
  if (!brim_graph_accepts(g, "split", NULL, x)) return;
  const int32_t at = inner_axis(g, "split", x, axis);
  if (at < 0) return;
  if (count < 1 || x->shape.dim[at] % count != 0) {
    char text[160];
    brim_graph_fail(g, "split", NULL, "'%s' %s cannot be cut into %d equal parts along axis %d", x->name,
                    brim_shape_format(text, sizeof text, &x->shape), count, at);
    return;
  }
  const int64_t length = x->shape.dim[at] / count;
  for (int32_t i = 0; i < count; i++) out[i] = brim_slice(g, x, at, i * length, length);
}

/* ---- pad ---- */

/* The gradient is the part inside the padding: a slice for each padded dimension. */
static brim_status gradient_pad(brim_autodiff *ad, const brim_node *n)
{
  const brim_shape *x = &n->in[0]->shape;
  brim_tensor *flow = brim_autodiff_of(ad, n->out[0]);
  brim_attr attr = {0};
  int32_t last = 0;
  for (int32_t d = 1; d < x->rank; d++)
    if (flow->shape.dim[d] != x->dim[d]) last = d;
  for (int32_t d = 1; d < last; d++) {
    brim_shape shape = flow->shape;
    if (shape.dim[d] == x->dim[d]) continue;
    shape.dim[d] = x->dim[d];
    attr.move = (brim_move_attr){.axis = d, .start = n->attr.move.before[d]};
    flow = brim_autodiff_compute(ad, "slice", n, &attr, &flow, 1, &shape);
    if (!flow) return BRIM_EINVAL; /* the graph has the error */
  }
  attr.move = (brim_move_attr){.axis = last, .start = n->attr.move.before[last]};
  return brim_autodiff_emit(ad, "slice", n, &attr, &flow, 1, n->in, 1);
}

static bool each_token_padded(const brim_node *n)
{
  return n->attr.move.before[1] == 0;
}

BRIM_OP(pad) = {.name = "pad",
                .kind = BRIM_KIND_COPY,
                .signature = "x [N,...] -> y [N,...]",
                .each_token = each_token_padded,
                .gradient = gradient_pad,
                .cost = cost_move};

brim_tensor *brim_pad(brim_graph *g, brim_tensor *x, const int64_t *before, const int64_t *after, double value)
{
  if (!brim_graph_accepts(g, "pad", NULL, x)) return NULL;
  if (!brim_graph_needs_list(g, "pad", NULL, before, "before")) return NULL;
  if (!brim_graph_needs_list(g, "pad", NULL, after, "after")) return NULL;
  brim_attr attr = {.move = {.value = value}};
  brim_shape shape = x->shape;
  bool good = before[0] == 0 && after[0] == 0;
  for (int32_t d = 0; good && d < shape.rank; d++) {
    attr.move.before[d] = before[d];
    good = before[d] >= 0 && after[d] >= 0 && !__builtin_add_overflow(shape.dim[d], before[d], &shape.dim[d]) &&
           !__builtin_add_overflow(shape.dim[d], after[d], &shape.dim[d]);
  }
  if (!good) {
    char text[160], front[160], back[160];
    brim_shape b = x->shape, a = x->shape;
    for (int32_t d = 0; d < b.rank; d++) {
      b.dim[d] = before[d];
      a.dim[d] = after[d];
    }
    brim_graph_fail(g, "pad", NULL, "%s before and %s after '%s' %s must be 0 for the first axis (N), else at least 0",
                    brim_shape_format(front, sizeof front, &b), brim_shape_format(back, sizeof back, &a), x->name,
                    brim_shape_format(text, sizeof text, &x->shape));
    return NULL;
  }
  if (x->dtype == BRIM_DTYPE_I32 && !(value >= INT32_MIN && value <= INT32_MAX && (double)(int32_t)value == value)) {
    brim_graph_fail(g, "pad", NULL, "'%s' holds integers and cannot be padded with %g", x->name, value);
    return NULL;
  }
  return make(g, "pad", x, &shape, &attr);
}
