/* Lookups by index: gather within each sample, embedding in a table of parameters. Indices are data: the kernel reports
 * one that is out of range. */
#include "graph/graph.h"

#undef brim_gather
#undef brim_embedding
#undef brim_embedding_with

/* A lookup moves at most as many rows of `table` as `values` has. */
static uint64_t bytes_of_rows(const brim_tensor *table, const brim_tensor *values)
{
  const uint64_t bytes = (uint64_t)brim_shape_count(&values->shape) * brim_dtype_bytes(table->dtype);
  return bytes < table->bytes ? bytes : table->bytes;
}
static void cost_gather(const brim_node *n, brim_cost *out)
{
  *out = (brim_cost){0, n->in[1]->bytes + bytes_of_rows(n->in[0], n->out[0]) + n->out[0]->bytes};
}
static void cost_embedding(const brim_node *n, brim_cost *out)
{
  *out = (brim_cost){0, n->in[0]->bytes + bytes_of_rows(n->in[1], n->out[0]) + n->out[0]->bytes};
}
/* Counts one addition for each value of dy. */
static void cost_gather_grad(const brim_node *n, brim_cost *out)
{
  out->flops = (uint64_t)brim_shape_count(&n->in[1]->shape);
}
static void cost_embedding_grad(const brim_node *n, brim_cost *out)
{
  out->flops = (uint64_t)brim_shape_count(&n->in[1]->shape);
  out->bytes = n->in[0]->bytes + n->in[1]->bytes + 2 * bytes_of_rows(n->out[0], n->in[1]);
}

static brim_status infer_gather(brim_graph *g, brim_node *n)
{
  n->out[0] = brim_graph_like(g, n, &n->in[1]->shape);
  return BRIM_OK;
}

static brim_status gradient_gather(brim_autodiff *ad, const brim_node *n)
{
  brim_tensor *const in[] = {n->in[1], brim_autodiff_of(ad, n->out[0])};
  return brim_autodiff_emit(ad, "gather_grad", n, NULL, in, 2, n->in, 1);
}

BRIM_OP(gather) = {.name = "gather",
                   .kind = BRIM_KIND_LOOKUP,
                   .signature = "x [N,...], index [N,...] -> y [N,...]",
                   .each_token = brim_op_each_token_axis,
                   .infer = infer_gather,
                   .gradient = gradient_gather,
                   .cost = cost_gather};
BRIM_OP(gather_grad) = {
    .name = "gather_grad", .kind = BRIM_KIND_LOOKUP, .signature = "index, dy -> dx", .cost = cost_gather_grad};

brim_tensor *brim_gather(brim_graph *g, brim_tensor *x, int32_t axis, brim_tensor *index)
{
  if (!brim_graph_accepts(g, "gather", NULL, x) || !brim_graph_accepts(g, "gather", NULL, index)) return NULL;
  const int32_t at = brim_graph_axis(g, "gather", x, axis);
  if (at < 0) return NULL;
  brim_shape shape = index->shape;
  bool good = index->dtype == BRIM_DTYPE_I32 && shape.rank == x->shape.rank && at > 0;
  if (good) shape.dim[at] = x->shape.dim[at];
  if (!good || !brim_shape_equal(&shape, &x->shape)) {
    char text[160], index_text[160];
    brim_graph_fail(g, "gather", NULL,
                    "'%s' %s by '%s' %s %s along axis %d: the index must be I32 and have x's shape except along that "
                    "axis, which must not be 0 (N)",
                    x->name, brim_shape_format(text, sizeof text, &x->shape), index->name,
                    brim_dtype_name(index->dtype), brim_shape_format(index_text, sizeof index_text, &index->shape), at);
    return NULL;
  }
  brim_tensor *const in[] = {x, index};
  if (!brim_graph_accepts_together(g, "gather", NULL, in, 2)) return NULL;
  return brim_graph_apply(g, "gather", NULL, in, 2, &(brim_attr){.move = {.axis = at}});
}

static brim_status infer_embedding(brim_graph *g, brim_node *n)
{
  brim_shape y = n->in[0]->shape;
  y.dim[y.rank++] = n->in[1]->shape.dim[1];
  n->out[0] = brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, n->in[1]->dtype, &y, n->name);
  return BRIM_OK;
}

static brim_status gradient_embedding(brim_autodiff *ad, const brim_node *n)
{
  brim_tensor *const in[] = {n->in[0], brim_autodiff_of(ad, n->out[0])};
  return brim_autodiff_emit(ad, "embedding_grad", n, NULL, in, 2, &n->in[1], 1);
}

BRIM_OP(embedding) = {.name = "embedding",
                      .kind = BRIM_KIND_LOOKUP,
                      .wide_in = BRIM_OP_WIDE(1),
                      .traits = {.copied = BRIM_OP_WIDE(1)},
                      .signature = "index [N,...], weight [V,D] -> y [N,...,D]",
                      .each_token = brim_op_each_token,
                      .infer = infer_embedding,
                      .gradient = gradient_embedding,
                      .cost = cost_embedding};
BRIM_OP(embedding_grad) = {.name = "embedding_grad",
                           .kind = BRIM_KIND_LOOKUP,
                           .signature = "index, dy -> dweight",
                           .accumulates = BRIM_OP_FROM(0),
                           .cost = cost_embedding_grad};

static bool is_index(brim_graph *g, const char *name, const brim_tensor *index)
{
  if (!brim_graph_accepts(g, "embedding", name, index)) return false;
  if (index->dtype == BRIM_DTYPE_I32 && index->shape.rank >= 1 && index->shape.rank < BRIM_DIMS_MAX) return true;
  char text[160];
  brim_graph_fail(g, "embedding", name, "'%s' %s %s must be indices: I32 [N, ...] of at most %d dimensions",
                  index->name, brim_dtype_name(index->dtype), brim_shape_format(text, sizeof text, &index->shape),
                  BRIM_DIMS_MAX - 1);
  return false;
}

static brim_tensor *look_up(brim_graph *g, const char *name, brim_tensor *index, brim_tensor *weight)
{
  brim_tensor *const in[] = {index, weight};
  return brim_graph_apply(g, "embedding", name, in, 2, NULL);
}

brim_tensor *brim_embedding(brim_graph *g, const char *name, brim_tensor *index, int64_t count, int64_t dim)
{
  if (!brim_graph_named(g, "embedding", name) || !is_index(g, name, index)) return NULL;
  if (count < 1 || count > INT32_MAX || dim < 1) {
    brim_graph_fail(g, "embedding", name,
                    "a table of %lld rows of %lld values: it must have 1 to %d rows of at least 1 value",
                    (long long)count, (long long)dim, INT32_MAX);
    return NULL;
  }
  brim_tensor *weight =
      brim_graph_parameter(g, brim_arena_printf(&g->arena, "%s.weight", name), &(brim_shape){2, {count, dim}},
                           (brim_init){BRIM_INIT_NORMAL, 1}); /* torch.nn.Embedding */
  return weight ? look_up(g, name, index, weight) : NULL;
}

brim_tensor *brim_embedding_with(brim_graph *g, brim_tensor *index, brim_tensor *weight)
{
  if (!is_index(g, NULL, index) || !brim_graph_accepts(g, "embedding", NULL, weight)) return NULL;
  if (weight->role != BRIM_ROLE_PARAMETER || weight->shape.rank != 2) {
    char text[160];
    brim_graph_fail(g, "embedding", NULL, "'%s' %s must be a parameter [V, D]", weight->name,
                    brim_shape_format(text, sizeof text, &weight->shape));
    return NULL;
  }
  return look_up(g, NULL, index, weight);
}
