#include "graph/documents.h"

#undef brim_slice

brim_status brim_documents_open(brim_graph *g)
{
  const int64_t length = g->input->shape.dim[1] / BRIM_DOCUMENT_ROWS;
  g->tokens = brim_slice(g, g->input, 1, 0, length);
  g->places = brim_slice(g, g->input, 1, length, length);
  if (g->status != BRIM_OK) return g->status;
  g->tokens->name = "tokens";
  g->places->name = "places";
  return BRIM_OK;
}

brim_status brim_documents_check(brim_graph *g)
{
  if (g->status != BRIM_OK) return g->status;
  for (size_t i = 0; i < g->node_count; i++)
    for (uint32_t k = 0; k < g->node[i]->in_count; k++)
      if (g->node[i]->in[k] == g->places) return BRIM_OK;
  return brim_graph_fail(
      g, "build", NULL,
      "samples consist of documents, but the model has no attention and does not use brim_positions: "
      "documents would see each other");
}

uint32_t brim_documents_add(brim_graph *g, const char *op, const brim_tensor *x, brim_tensor **in, uint32_t count)
{
  char ours[96], theirs[96];
  if (!g->places || !brim_graph_has_samples(g, x)) return count;
  const brim_shape *p = &g->places->shape;
  if (x->shape.rank < 2 || x->shape.dim[0] != p->dim[0] || x->shape.dim[1] != p->dim[1]) {
    brim_graph_fail(
        g, op, NULL,
        "samples consist of documents, so it needs [N, T, ...] with a row for each of the places %s, got '%s' %s",
        brim_shape_format(ours, sizeof ours, p), x->name, brim_shape_format(theirs, sizeof theirs, &x->shape));
    return 0;
  }
  in[count] = g->places;
  return count + 1;
}

void brim_documents_fill(int32_t *values, int64_t samples, int64_t length)
{
  for (int64_t n = 0; n < samples; n++)
    for (int64_t t = 0; t < length; t++) values[(n * BRIM_DOCUMENT_ROWS + 1) * length + t] = (int32_t)t;
}
