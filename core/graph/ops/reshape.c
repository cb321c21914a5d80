/* Reshape: the same elements in another shape, in row-major logical order. The result is a view if the layout allows
 * it. */
#include "graph/graph.h"

#undef brim_reshape
#undef brim_flatten

static brim_status gradient_reshape(brim_autodiff *ad, const brim_node *n)
{
  return brim_autodiff_pass(ad, n, "reshape", NULL);
}

static void cost_reshape(const brim_node *n, brim_cost *out)
{
  (void)n;
  out->flops = 0;
}

BRIM_OP(reshape) = {
    .name = "reshape",
    .kind = BRIM_KIND_COPY,
    .traits = {.samples_in = BRIM_OP_FROM(0), .samples_out = BRIM_OP_FROM(0), .apart = true, .view = true},
    .signature = "x [N,...] -> y [N,...]",
    .each_token = brim_op_each_token,
    .gradient = gradient_reshape,
    .cost = cost_reshape};

brim_tensor *brim_reshape(brim_graph *g, brim_tensor *x, int32_t rank, const int64_t *dim)
{
  if (!brim_graph_accepts(g, "reshape", NULL, x)) return NULL;
  char text[160], given[160];
  if (rank < 1 || rank > BRIM_DIMS_MAX) {
    brim_graph_fail(g, "reshape", NULL, "'%s' %s cannot have %d dimensions: 1 to %d are allowed", x->name,
                    brim_shape_format(text, sizeof text, &x->shape), rank, BRIM_DIMS_MAX);
    return NULL;
  }
  if (!brim_graph_needs_list(g, "reshape", NULL, dim, "dim")) return NULL;
  brim_shape shape = {rank, {0}};
  int32_t free_dim = -1;
  int64_t known = 1;
  bool good = true;
  for (int32_t d = 0; d < rank; d++) {
    shape.dim[d] = dim[d];
    if (dim[d] == -1 && free_dim < 0)
      free_dim = d;
    else if (dim[d] < 1)
      good = false;
    else if (__builtin_mul_overflow(known, dim[d], &known))
      good = false;
  }
  brim_shape_format(given, sizeof given, &shape);
  const int64_t count = brim_shape_count(&x->shape);
  if (good && free_dim >= 0) {
    good = count % known == 0;
    shape.dim[free_dim] = count / known;
  }
  if (!good || brim_shape_count(&shape) != count || shape.dim[0] != x->shape.dim[0]) {
    brim_graph_fail(g, "reshape", NULL,
                    "%s cannot become %s: '%s' must keep its number of elements and its first dimension (N); "
                    "dimensions are at least 1, and one may be -1",
                    brim_shape_format(text, sizeof text, &x->shape), given, x->name);
    return NULL;
  }
  brim_tensor *y = brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, x->dtype, &shape, "reshape");
  if (!y) return NULL;
  brim_node *n = brim_graph_node_into(g, "reshape", NULL, &x, 1, &y, 1, NULL);
  return n ? y : NULL;
}

brim_tensor *brim_flatten(brim_graph *g, brim_tensor *x)
{
  if (!brim_graph_accepts(g, "flatten", NULL, x)) return NULL;
  if (x->shape.rank == 2) return x;
  const int64_t dim[] = {x->shape.rank ? x->shape.dim[0] : 0, -1};
  return brim_reshape(g, x, 2, dim);
}
