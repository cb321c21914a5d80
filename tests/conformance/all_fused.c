#include "conformance/all_fused.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/arena.h"
#include "brim/random.h"

void must(brim_status status)
{
  if (status != BRIM_OK) fail_msg("%s", brim_error_text());
}

void *fused_numbers(uint32_t dtype, uint32_t stream, int64_t count, double bound)
{
  void *out = brim_xcalloc((size_t)count, brim_dtype_bytes(dtype));
  for (int64_t i = 0; i < count; i++) {
    const double v =
        bound * (float)(2 * brim_uniform(brim_random4(7, BRIM_STREAM_DATA, stream, (uint64_t)i, 0).v[0]) - 1);
    if (dtype == BRIM_DTYPE_F32)
      ((float *)out)[i] = (float)v;
    else
      ((double *)out)[i] = v;
  }
  return out;
}

void fill_all_fused(brim_exec *exec, const brim_program *p)
{
  for (size_t i = 0; i < p->graph->parameter_count; i++) {
    const brim_tensor *t = p->graph->parameter[i].value;
    if (p->graph->parameter[i].is_buffer) continue;
    void *values = fused_numbers(t->dtype, (uint32_t)i, brim_shape_count(&t->shape), t->shape.rank == 1 ? 1 : 0.3);
    must(brim_exec_write(exec, p, t, values));
    free(values);
  }
}

static brim_tensor *three_by_three(brim_graph *g, const char *name, brim_tensor *x)
{
  return brim_conv2d(g, name, x, 16, (brim_conv2d_options){.kernel = {3, 3}, .padding = {1, 1}});
}

static brim_tensor *one_by_one(brim_graph *g, const char *name, brim_tensor *x)
{
  return brim_conv2d(g, name, x, 16, (brim_conv2d_options){.kernel = {1, 1}});
}

/* Builds residual blocks. The last one has a convolution in its shortcut, so neither operand of the sum is needed
 * later. */
static brim_tensor *residual_blocks(brim_graph *g, brim_tensor *x)
{
  brim_tensor *y = brim_relu(g, brim_batch_norm(g, "block0.bn0", three_by_three(g, "block0.conv0", x), 1e-5, 0.1));
  x = brim_add(g, brim_batch_norm(g, "block0.bn1", three_by_three(g, "block0.conv1", y), 1e-5, 0.1), x);
  y = brim_batch_norm(g, "block1.bn0", three_by_three(g, "block1.conv0", x), 1e-5, 0.1);
  x = brim_relu(g, brim_add(g, y, x));
  y = brim_batch_norm(g, "block2.bn0", three_by_three(g, "block2.conv0", x), 1e-5, 0.1);
  x = brim_batch_norm(g, "block2.bn1", one_by_one(g, "block2.conv1", x), 1e-5, 0.1);
  return brim_relu(g, brim_add(g, y, x));
}

/* Adds linear layers. After each gelu or silu comes another linear layer, in some cases with dropout between the
 * two. */
static brim_tensor *activated_layers(brim_graph *g, brim_tensor *x)
{
  x = brim_dropout(g, brim_relu(g, brim_linear(g, "act0", x, 23)), 0.3);
  x = brim_gelu(g, brim_linear(g, "act1", x, 37), BRIM_GELU_EXACT);
  x = brim_gelu(g, brim_linear(g, "act2", brim_dropout(g, x, 0.1), 40), BRIM_GELU_TANH);
  x = brim_gelu(g, brim_linear(g, "act3", x, 70), BRIM_GELU_QUICK);
  brim_tensor *gate = brim_silu(g, brim_linear(g, "gate", x, 33));
  x = brim_mul(g, gate, brim_linear(g, "up", x, 33));
  x = brim_leaky_relu(g, brim_linear(g, "act4", x, 19), 0.25);
  x = brim_sigmoid(g, brim_linear(g, "act5", x, 18));
  return brim_tanh(g, brim_linear(g, "act6", x, 21));
}

/* Uses a weight in three layers, and slices of it. Each use has a gradient, and these gradients are summed once a
 * step. */
static brim_tensor *tied_layers(brim_graph *g, brim_tensor *x)
{
  brim_tensor *weight = brim_parameter_new(g, "tied", 2, (int64_t[]){21, 21}, (brim_init){BRIM_INIT_UNIFORM, 0.2});
  x = brim_relu(g, brim_linear_with(g, "tied1", x, weight, NULL));
  x = brim_tanh(g, brim_linear_with(g, "tied2", x, weight, NULL));
  brim_tensor *row = brim_reshape(g, brim_slice(g, weight, 0, 2, 1), 2, (int64_t[]){1, 21});
  x = brim_add(g, brim_linear_with(g, "tied3", x, weight, NULL), brim_layer_norm(g, "row", row, 1e-5));
  return brim_mul(g, x, brim_scale(g, row, 2));
}

brim_status build_all_fused(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_relu(g, three_by_three(g, "conv1", brim_input(g)));
  brim_tensor *y = brim_relu(g, brim_batch_norm(g, "bn", three_by_three(g, "conv2", x), 1e-5, 0.1));
  y = brim_dropout(g, y, 0.25);
  x = brim_add(g, y, x);
  x = residual_blocks(g, x);
  x = brim_max_pool2d(g, brim_relu(g, three_by_three(g, "pooled", x)),
                      (brim_pool2d_options){.kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}});
  x = brim_relu(g, brim_group_norm(g, "gn", three_by_three(g, "conv3", x), 4, 1e-5));
  x = brim_leaky_relu(g, one_by_one(g, "conv4", x), 0.1);
  x = brim_sigmoid(g, one_by_one(g, "conv5", x));
  x = brim_tanh(g, one_by_one(g, "conv6", x));
  x = brim_relu(g, brim_linear(g, "fc1", brim_flatten(g, x), 21));
  x = tied_layers(g, activated_layers(g, x));
  y = brim_linear(g, "fc2", x, 21);
  x = brim_add(g, x, y);
  y = brim_linear(g, "fc3", brim_layer_norm(g, "ln", x, 1e-5), 21);
  y = brim_relu(g, brim_layer_norm(g, "ln2", y, 1e-5));
  x = brim_add(g, x, y);
  brim_output(g, brim_linear(g, "head", brim_rms_norm(g, "rms", x, 1e-5), brim_classes(g)));
  return BRIM_OK;
}
