/* Products of matrices, one for each index of the leading dimensions: y = A B, where A is a or its transpose, and B is
 * b or its transpose. If dY is the gradient of y, the gradient of A is dY B^T, and that of B is A^T dY. Both are
 * products too, and none of them copies a transpose. */
#include "graph/graph.h"

#undef brim_matmul

static brim_status infer_matmul(brim_graph *g, brim_node *n)
{
  const brim_shape *a = &n->in[0]->shape, *b = &n->in[1]->shape;
  const brim_matmul_attr *t = &n->attr.matmul;
  brim_shape y = *a;
  y.dim[y.rank - 2] = a->dim[a->rank - (t->transpose_a ? 1 : 2)];
  y.dim[y.rank - 1] = b->dim[b->rank - (t->transpose_b ? 2 : 1)];
  n->out[0] = brim_graph_like(g, n, &y);
  return BRIM_OK;
}

static brim_status emit(brim_autodiff *ad, const brim_node *n, brim_tensor *left, bool transpose_left,
                        brim_tensor *right, bool transpose_right, brim_tensor **of)
{
  const brim_attr attr = {.matmul = {transpose_left, transpose_right}};
  brim_tensor *const in[] = {left, right};
  if (!brim_autodiff_needs(ad, *of)) return BRIM_OK;
  return brim_autodiff_emit(ad, "matmul", n, &attr, in, 2, of, 1);
}

static brim_status gradient_matmul(brim_autodiff *ad, const brim_node *n)
{
  brim_tensor *a = n->in[0], *b = n->in[1], *dy = brim_autodiff_of(ad, n->out[0]);
  const bool ta = n->attr.matmul.transpose_a, tb = n->attr.matmul.transpose_b;
  /* If a is stored transposed, its gradient is (dY B^T)^T = B dY^T. */
  BRIM_TRY(ta ? emit(ad, n, b, tb, dy, true, &n->in[0]) : emit(ad, n, dy, false, b, !tb, &n->in[0]));
  return tb ? emit(ad, n, dy, true, a, ta, &n->in[1]) : emit(ad, n, a, !ta, dy, false, &n->in[1]);
}

static void cost_matmul(const brim_node *n, brim_cost *out)
{
  const brim_shape *a = &n->in[0]->shape;
  const int64_t depth = a->dim[a->rank - (n->attr.matmul.transpose_a ? 2 : 1)];
  out->flops = 2 * (uint64_t)brim_shape_count(&n->out[0]->shape) * (uint64_t)depth;
}

BRIM_OP(matmul) = {.name = "matmul",
                   .kind = BRIM_KIND_PRODUCT,
                   .signature = "a [...,M,K], b [...,K,P] -> y [...,M,P]",
                   .infer = infer_matmul,
                   .gradient = gradient_matmul,
                   .cost = cost_matmul};

static bool is_product(const brim_tensor *a, const brim_tensor *b, bool transpose_a, bool transpose_b)
{
  const brim_shape *x = &a->shape, *y = &b->shape;
  const int32_t rank = x->rank;
  if (rank < 3 || y->rank != rank) return false;
  for (int32_t d = 0; d < rank - 2; d++)
    if (x->dim[d] != y->dim[d]) return false;
  return x->dim[rank - (transpose_a ? 2 : 1)] == y->dim[rank - (transpose_b ? 1 : 2)];
}

brim_tensor *brim_matmul(brim_graph *g, brim_tensor *a, brim_tensor *b, int transpose_a, int transpose_b)
{
  if (!brim_graph_accepts(g, "matmul", NULL, a) || !brim_graph_accepts(g, "matmul", NULL, b)) return NULL;
  const brim_tensor *parameter = a->role == BRIM_ROLE_PARAMETER ? a : b->role == BRIM_ROLE_PARAMETER ? b : NULL;
  if (parameter) {
    brim_graph_fail(g, "matmul", NULL, "'%s' is a parameter and has no dimension N: use brim_linear_with",
                    parameter->name);
    return NULL;
  }
  char text_a[160], text_b[160];
  if (a->dtype != g->real || b->dtype != g->real || !is_product(a, b, transpose_a, transpose_b)) {
    brim_graph_fail(g, "matmul", NULL,
                    "'%s' %s %s%s and '%s' %s %s%s must be real numbers [N, ..., M, K] and [N, ..., K, P] (after "
                    "transposing) with the same leading dimensions",
                    a->name, brim_dtype_name(a->dtype), brim_shape_format(text_a, sizeof text_a, &a->shape),
                    transpose_a ? " transposed" : "", b->name, brim_dtype_name(b->dtype),
                    brim_shape_format(text_b, sizeof text_b, &b->shape), transpose_b ? " transposed" : "");
    return NULL;
  }
  brim_tensor *const in[] = {a, b};
  if (!brim_graph_accepts_together(g, "matmul", NULL, in, 2)) return NULL;
  const brim_attr attr = {.matmul = {transpose_a != 0, transpose_b != 0}};
  return brim_graph_apply(g, "matmul", NULL, in, 2, &attr);
}
