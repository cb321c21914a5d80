/* A model of a thousand forward operations, for tests of speed and correctness in a large graph: transformer blocks of
 * layer_norm, linear, permute, matmul, relu and add. The sample is [TOKENS, WIDTH]. */
#ifndef TESTS_LARGE_MODEL_H
#define TESTS_LARGE_MODEL_H
#include <stdio.h>

#include "brim/model.h"

enum { LARGE_BLOCKS = 46, LARGE_TOKENS = 32, LARGE_WIDTH = 64, LARGE_HEADS = 4 };
enum { LARGE_BLOCK_OPS = 22, LARGE_OPS = LARGE_BLOCKS * LARGE_BLOCK_OPS + 4 }; /* flatten, head, loss, metrics */

static const char *large_name(char out[64], int block, const char *what)
{
  snprintf(out, 64, "block%d.%s", block, what);
  return out;
}

/* Reshapes [N, T, W] to [N, heads, T, W / heads]. */
static brim_tensor *large_heads(brim_graph *g, brim_tensor *x)
{
  const int64_t dim[] = {brim_shape_of(x).dim[0], LARGE_TOKENS, LARGE_HEADS, LARGE_WIDTH / LARGE_HEADS};
  return brim_permute(g, brim_reshape(g, x, 4, dim), (int32_t[]){0, 2, 1, 3});
}

/* Scores pass through a relu instead of a softmax: for a plan the function between the two products does not matter. */
static brim_tensor *large_block(brim_graph *g, brim_tensor *x, int block)
{
  char name[64];
  brim_tensor *y = brim_layer_norm(g, large_name(name, block, "ln1"), x, 1e-5);
  brim_tensor *q = large_heads(g, brim_linear(g, large_name(name, block, "q"), y, LARGE_WIDTH));
  brim_tensor *k = large_heads(g, brim_linear(g, large_name(name, block, "k"), y, LARGE_WIDTH));
  brim_tensor *v = large_heads(g, brim_linear(g, large_name(name, block, "v"), y, LARGE_WIDTH));
  y = brim_matmul(g, brim_relu(g, brim_matmul(g, q, k, 0, 1)), v, 0, 0);
  const int64_t dim[] = {brim_shape_of(x).dim[0], LARGE_TOKENS, LARGE_WIDTH};
  y = brim_reshape(g, brim_permute(g, y, (int32_t[]){0, 2, 1, 3}), 3, dim);
  x = brim_add(g, x, brim_linear(g, large_name(name, block, "out"), y, LARGE_WIDTH));
  y = brim_layer_norm(g, large_name(name, block, "ln2"), x, 1e-5);
  y = brim_relu(g, brim_linear(g, large_name(name, block, "up"), y, 4 * LARGE_WIDTH));
  return brim_add(g, x, brim_linear(g, large_name(name, block, "down"), y, LARGE_WIDTH));
}

static brim_status large_build(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_input(g);
  for (int i = 0; i < LARGE_BLOCKS; i++) x = large_block(g, x, i);
  brim_output(g, brim_linear(g, "head", brim_flatten(g, x), brim_classes(g)));
  return BRIM_OK;
}

static const brim_model_ops large_model = {sizeof(brim_model_ops), large_build};

#endif
