/* Small models and their plans on the mock backend, for tests of plans. */
#ifndef TESTS_UNIT_PLAN_MODELS_H
#define TESTS_UNIT_PLAN_MODELS_H
#include <string.h>

#include "brim/brim.h"
#include "graph/fuse.h"
#include "graph/plan.h"
#include "mock_backend.h"

static inline brim_status build_cnn(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_input(g);
  x = brim_relu(g, brim_conv2d(g, "conv1", x, 32, (brim_conv2d_options){.kernel = {3, 3}}));
  x = brim_relu(g, brim_conv2d(g, "conv2", x, 64, (brim_conv2d_options){.kernel = {3, 3}}));
  x = brim_dropout(g, brim_max_pool2d(g, x, (brim_pool2d_options){.kernel = {2, 2}}), 0.25);
  x = brim_dropout(g, brim_relu(g, brim_linear(g, "fc1", brim_flatten(g, x), 128)), 0.5);
  brim_output(g, brim_linear(g, "fc2", x, brim_classes(g)));
  return BRIM_OK;
}

/* The model uses x three times, so the gradient of x is a sum, and nothing may overwrite x too early. */
static inline brim_status build_residual(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_conv2d(g, "stem", brim_input(g), 8, (brim_conv2d_options){.kernel = {3, 3}, .padding = {1, 1}});
  for (int i = 0; i < 6; i++) {
    static const char *const names[][2] = {{"a0", "b0"}, {"a1", "b1"}, {"a2", "b2"},
                                           {"a3", "b3"}, {"a4", "b4"}, {"a5", "b5"}};
    brim_tensor *y =
        brim_relu(g, brim_conv2d(g, names[i][0], x, 8, (brim_conv2d_options){.kernel = {3, 3}, .padding = {1, 1}}));
    y = brim_dropout(g, brim_conv2d(g, names[i][1], y, 8, (brim_conv2d_options){.kernel = {1, 1}}), 0.1);
    x = brim_relu(g, brim_add(g, brim_add(g, x, y), x));
  }
  brim_output(g, brim_linear(g, "head", brim_flatten(g, brim_max_pool2d(g, x, (brim_pool2d_options){.kernel = {4, 4}})),
                             brim_classes(g)));
  return BRIM_OK;
}

/* Builds norms followed by relu, and sums followed by norms, as in a transformer. x is used again after each. */
static inline brim_status build_blocks(const void *self, brim_graph *g)
{
  (void)self;
  const int64_t sequence[] = {brim_shape_of(brim_input(g)).dim[0], 28, 28};
  brim_tensor *x = brim_conv2d(g, "stem", brim_input(g), 4, (brim_conv2d_options){.kernel = {3, 3}, .padding = {1, 1}});
  x = brim_relu(g, brim_batch_norm(g, "bn", x, 1e-5, 0.1));
  x = brim_conv2d(g, "join", x, 1, (brim_conv2d_options){.kernel = {1, 1}});
  x = brim_reshape(g, x, 3, sequence);
  for (int i = 0; i < 3; i++) {
    static const char *const names[][4] = {
        {"l0", "q0", "u0", "d0"}, {"l1", "q1", "u1", "d1"}, {"l2", "q2", "u2", "d2"}};
    x = brim_add(g, x, brim_linear(g, names[i][1], x, 28));
    brim_tensor *y = brim_linear(g, names[i][2], brim_layer_norm(g, names[i][0], x, 1e-5), 56);
    y = brim_dropout(g, brim_linear(g, names[i][3], brim_relu(g, y), 28), 0.1);
    x = brim_add(g, x, y);
  }
  x = brim_add(g, brim_linear(g, "a", x, 28), brim_linear(g, "b", x, 28));
  brim_output(g, brim_linear(g, "head", brim_flatten(g, brim_rms_norm(g, "end", x, 1e-5)), brim_classes(g)));
  return BRIM_OK;
}

static inline brim_plan_request request_of(brim_status (*build)(const void *, brim_graph *), int64_t batch)
{
  static brim_model_ops model;
  model = (brim_model_ops){sizeof model, build};
  return (brim_plan_request){.graph = {.model = &model,
                                       .loss.op = "softmax_cross_entropy",
                                       .sample = {3, {1, 28, 28}},
                                       .classes = 10,
                                       .real = BRIM_DTYPE_F32},
                             .backend = &mock_backend,
                             .update = {.op = "adamw", .state_count = 2},
                             .shape = {{BRIM_PROGRAM_TRAIN, batch}, {BRIM_PROGRAM_EVALUATE, batch}},
                             .shape_count = 2};
}

/* Makes and checks a plan with some fusions: bits of brim_fusion, or 0. */
static inline brim_plan *plan_of(brim_status (*build)(const void *, brim_graph *), int64_t batch, uint64_t fusions)
{
  brim_plan_request request = request_of(build, batch);
  brim_plan *plan = NULL;
  request.graph.fuse = fusions;
  if (brim_plan_create(&request, &plan) != BRIM_OK) fail_msg("%s", brim_error_text());
  assert_int_equal(brim_plan_check(plan), BRIM_OK);
  return plan;
}

static inline int count_ops(const brim_program *p, const char *part)
{
  int count = 0;
  for (size_t i = 0; i < p->graph->node_count; i++) count += strstr(p->graph->node[i]->op, part) != NULL;
  return count;
}

static inline const brim_node *find_node(const brim_program *p, const char *op)
{
  for (size_t i = 0; i < p->graph->node_count; i++)
    if (strcmp(p->graph->node[i]->op, op) == 0) return p->graph->node[i];
  fail_msg("no %s", op);
  return NULL;
}
#endif
