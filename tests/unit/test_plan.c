/* Graphs and their memory plans, on a mock backend that chooses no layouts and requests scratch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "brim/brim.h"
#include "graph/fuse.h"
#include "graph/plan.h"

static brim_status run_nothing(void *self, const brim_launch *launch)
{
  (void)self;
  (void)launch;
  return BRIM_OK;
}

/* Convolutions request scratch, so that workspace is planned. */
static brim_status prepare_conv(void *self, const brim_program_info *program, const brim_node *node,
                                brim_kernel_need *need, void **state)
{
  (void)self;
  (void)program;
  *state = NULL;
  need->workspace_bytes = node->out[0]->bytes / 2 + 1;
  return BRIM_OK;
}

static brim_kernel kernels[256];
static const brim_kernel *kernel_table[256];
static brim_backend_ops backend = {
    .size = sizeof(brim_backend_ops), .real = BRIM_DTYPE_F32, .kernels = kernel_table, .alignment = 64};

static int make_backend(void **state)
{
  (void)state;
  for (size_t i = 0; i < brim_op_count(); i++) {
    kernels[i] = (brim_kernel){.op = brim_op_at(i)->name, .run = run_nothing};
    if (strncmp(kernels[i].op, "conv2d", 6) == 0) kernels[i].prepare = prepare_conv;
    kernel_table[i] = &kernels[i];
  }
  assert_true(brim_op_count() <= sizeof kernels / sizeof kernels[0]);
  backend.kernels_end = kernel_table + brim_op_count();
  return 0;
}

static brim_status build_cnn(const void *self, brim_graph *g)
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

/* x is used three times: its gradient is a sum, and nothing may overwrite it too early. */
static brim_status build_residual(const void *self, brim_graph *g)
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

/* Norms followed by relu, and sums followed by norms, as in a transformer: x is used again after each. */
static brim_status build_blocks(const void *self, brim_graph *g)
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

static brim_plan_request request_of(brim_status (*build)(const void *, brim_graph *), int64_t batch)
{
  static brim_model_ops model;
  model = (brim_model_ops){sizeof model, build};
  return (brim_plan_request){.graph = {.model = &model,
                                       .loss.op = "softmax_cross_entropy",
                                       .sample = {3, {1, 28, 28}},
                                       .classes = 10,
                                       .real = BRIM_DTYPE_F32},
                             .backend = &backend,
                             .update = {.op = "adamw", .state_count = 2},
                             .shape = {{BRIM_PROGRAM_TRAIN, batch}, {BRIM_PROGRAM_EVALUATE, batch}},
                             .shape_count = 2};
}

static brim_plan *plan_of(brim_status (*build)(const void *, brim_graph *), int64_t batch)
{
  const brim_plan_request request = request_of(build, batch);
  brim_plan *plan = NULL;
  const brim_status status = brim_plan_create(&request, &plan);
  if (status != BRIM_OK) fail_msg("%s", brim_error_text());
  return plan;
}

static void cnn_has_the_parameters_of_pytorch_example(void **unused)
{
  (void)unused;
  brim_plan *plan = plan_of(build_cnn, 4);
  const brim_graph *g = plan->program[0].graph;
  int64_t count = 0;
  for (size_t i = 0; i < g->parameter_count; i++) count += brim_shape_count(&g->parameter[i].value->shape);
  assert_int_equal(count, 1199882);
  assert_string_equal(g->parameter[0].value->name, "conv1.weight");
  assert_string_equal(g->parameter[7].value->name, "fc2.bias");
  brim_plan_free(plan);
}

/* No two buffers that live at the same time overlap, for many batch sizes; and the placement is near the bound. */
static void buffers_never_overlap_in_life_and_place(void **unused)
{
  (void)unused;
  brim_status (*const builds[])(const void *, brim_graph *) = {build_cnn, build_residual};
  for (int b = 0; b < 2; b++)
    for (int64_t batch = 1; batch <= 300; batch = batch * 2 + 1) {
      brim_plan *plan = plan_of(builds[b], batch);
      assert_int_equal(brim_plan_check(plan), BRIM_OK);
      assert_true(plan->peak_bytes >= plan->lower_bound_bytes);
      assert_true((double)plan->peak_bytes <= 1.03 * (double)plan->lower_bound_bytes);
      brim_plan_free(plan);
    }
}

/* A relu overwrites the convolution's result, which has no other reader; dropout overwrites pooling's result, but not a
 * relu's, which the backward pass reads. */
static void results_overwrite_memory_without_later_readers(void **unused)
{
  (void)unused;
  brim_plan *plan = plan_of(build_cnn, 4);
  const brim_program *p = &plan->program[0];
  for (size_t i = 0; i < p->graph->forward_count; i++) {
    const brim_node *n = p->graph->node[i];
    if (strcmp(n->op, "relu") != 0 && strcmp(n->op, "dropout") != 0) continue;
    const bool kept = n->in[0]->producer >= 0 && strcmp(p->graph->node[n->in[0]->producer]->op, "relu") == 0;
    assert_int_equal(p->tensor_offset[n->in[0]->id] == p->tensor_offset[n->out[0]->id], !kept);
  }
  brim_plan_free(plan);
}

/* The numbers in the plan add up, and the persistent part has the right size. */
static void classes_add_up_to_the_lower_bound(void **unused)
{
  (void)unused;
  brim_plan *plan = plan_of(build_cnn, 32);
  uint64_t sum = 0;
  for (uint32_t r = 0; r < BRIM_ROLE_COUNT; r++) sum += plan->class_bytes[r];
  assert_int_equal(sum, plan->lower_bound_bytes);
  assert_int_equal(plan->class_bytes[BRIM_ROLE_PARAMETER], plan->class_bytes[BRIM_ROLE_GRADIENT]);
  assert_int_equal(2 * plan->class_bytes[BRIM_ROLE_PARAMETER], plan->class_bytes[BRIM_ROLE_OPTIMIZER]);
  assert_true(plan->class_bytes[BRIM_ROLE_PARAMETER] >= 4 * 1199882);
  brim_plan_free(plan);
}

/* The parameters lie at the same place in every program of a plan. */
static void programs_share_the_persistent_part(void **unused)
{
  (void)unused;
  brim_plan *plan = plan_of(build_residual, 5);
  assert_int_equal(plan->program_count, 3);
  const brim_program *train = &plan->program[0];
  for (size_t p = 1; p < plan->program_count; p++) {
    const brim_program *other = &plan->program[p];
    for (size_t i = 0; i < train->graph->parameter_count; i++) {
      const brim_parameter *a = &train->graph->parameter[i], *b = &other->graph->parameter[i];
      assert_string_equal(a->value->name, b->value->name);
      assert_true(train->tensor_offset[a->value->id] == other->tensor_offset[b->value->id]);
      if (b->gradient) assert_true(train->tensor_offset[a->gradient->id] == other->tensor_offset[b->gradient->id]);
    }
  }
  brim_plan_free(plan);
}

static void the_plan_is_a_function_of_its_request(void **unused)
{
  (void)unused;
  brim_plan *a = plan_of(build_residual, 17), *b = plan_of(build_residual, 17);
  for (size_t p = 0; p < a->program_count; p++)
    assert_memory_equal(a->program[p].tensor_offset, b->program[p].tensor_offset,
                        a->program[p].graph->tensor_count * sizeof(uint64_t));
  brim_plan_free(a);
  brim_plan_free(b);
}

static brim_status build_too_large_kernel(const void *self, brim_graph *g)
{
  (void)self;
  brim_output(g, brim_flatten(g, brim_conv2d(g, "big", brim_input(g), 4, (brim_conv2d_options){.kernel = {31, 31}})));
  return BRIM_OK;
}
static brim_status build_linear_on_image(const void *self, brim_graph *g)
{
  (void)self;
  brim_output(g, brim_linear(g, "fc", brim_input(g), 10));
  return BRIM_OK;
}
static brim_status build_wrong_classes(const void *self, brim_graph *g)
{
  (void)self;
  brim_output(g, brim_linear(g, "fc", brim_flatten(g, brim_input(g)), 7));
  return BRIM_OK;
}
static brim_status build_without_output(const void *self, brim_graph *g)
{
  (void)self;
  brim_relu(g, brim_input(g));
  return BRIM_OK;
}
static brim_status build_twice_the_same_name(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_linear(g, "fc", brim_flatten(g, brim_input(g)), 10);
  brim_output(g, brim_linear(g, "fc", x, 10));
  return BRIM_OK;
}
static brim_status build_unequal_sum(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_flatten(g, brim_input(g));
  brim_output(g, brim_add(g, brim_linear(g, "a", x, 10), brim_linear(g, "b", x, 11)));
  return BRIM_OK;
}

static brim_status build_on_null(const void *self, brim_graph *g)
{
  (void)self;
  brim_output(g, brim_relu(g, NULL));
  return BRIM_OK;
}
/* The product of these dimensions is 0 in 64 bits. */
static brim_status build_overflowing_reshape(const void *self, brim_graph *g)
{
  (void)self;
  const int64_t dim[] = {2, -1, (int64_t)1 << 32, (int64_t)1 << 32};
  brim_output(g, brim_reshape(g, brim_input(g), 4, dim));
  return BRIM_OK;
}
static brim_status build_huge_layer(const void *self, brim_graph *g)
{
  (void)self;
  brim_output(g, brim_linear(g, "fc", brim_flatten(g, brim_input(g)), (int64_t)1 << 61));
  return BRIM_OK;
}

/* An error in a model names the operation, the shapes, and the line of the call. */
static void model_errors_name_operation_shapes_and_line(void **unused)
{
  (void)unused;
  const struct {
    brim_status (*build)(const void *, brim_graph *);
    const char *want;
  } cases[] = {{build_too_large_kernel, "conv2d 'big': kernel 31x31 is larger than the padded input [2, 1, 28, 28]"},
               {build_linear_on_image, "the model's output must be [N, classes] = [2, 10], got [2, 1, 28, 10] (add "
                                       "brim_flatten before the last layer?)"},
               {build_wrong_classes, "the model's output must be [N, classes] = [2, 10], got [2, 7]"},
               {build_without_output, "the model named no output"},
               {build_twice_the_same_name, "parameter 'fc.weight': there is already a parameter of this name"},
               {build_unequal_sum, "add: 'a' [2, 10] and 'b' [2, 11] do not broadcast"},
               {build_on_null, "relu: the input is NULL"},
               {build_overflowing_reshape, "reshape: [2, 1, 28, 28] cannot become"},
               {build_huge_layer, "is too large"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const brim_plan_request request = request_of(cases[i].build, 2);
    brim_plan *plan = NULL;
    assert_int_equal(brim_plan_create(&request, &plan), BRIM_EINVAL);
    assert_null(plan);
    if (!strstr(brim_error_text(), cases[i].want))
      fail_msg("wanted \"%s\" in \"%s\"", cases[i].want, brim_error_text());
    assert_non_null(strstr(brim_error_text(), i == 3 ? "brim_output" : "test_plan.c:"));
  }
}

static void a_backend_without_an_operation_is_named(void **unused)
{
  (void)unused;
  brim_backend_ops poor = backend;
  poor.kernels_end = poor.kernels;
  brim_plan_request request = request_of(build_cnn, 2);
  request.backend = &poor;
  brim_plan *plan = NULL;
  assert_int_equal(brim_plan_create(&request, &plan), BRIM_ENOTSUP);
  assert_non_null(strstr(brim_error_text(), "no operation 'conv2d' (node 'conv1')"));
}

/* The logits are read after the program has ended, so nothing may overwrite them. */
static void a_kept_output_is_not_overwritten(void **unused)
{
  (void)unused;
  brim_plan_request request = request_of(build_residual, 6);
  request.graph.keep_output = true;
  brim_plan *plan = NULL;
  assert_int_equal(brim_plan_create(&request, &plan), BRIM_OK);
  assert_int_equal(brim_plan_check(plan), BRIM_OK);
  for (int i = 0; i < 2; i++) { /* training, where the loss's gradient would be placed on it, and evaluation */
    const brim_program *p = &plan->program[i];
    const brim_tensor *output = p->graph->output;
    const int32_t own = p->tensor_buffer[output->id];
    const uint64_t begin = p->buffer[own].offset, end = begin + output->bytes;
    for (size_t t = 0; t < p->graph->tensor_count; t++) {
      const brim_tensor *other = p->graph->tensor[t];
      if (other == output || other->producer <= output->producer || p->tensor_buffer[t] < 0) continue;
      const uint64_t at = p->tensor_offset[t];
      if (at < end && begin < at + other->bytes) fail_msg("'%s' lies on the output", other->name);
    }
    assert_int_equal(p->buffer[own].last, p->graph->node_count);
  }
  brim_plan_free(plan);
}

static void a_plan_for_evaluation_holds_no_gradients_and_no_optimizer(void **unused)
{
  (void)unused;
  brim_plan_request request = request_of(build_cnn, 16);
  brim_plan *training = plan_of(build_cnn, 16), *evaluation = NULL;
  request.shape[0] = (brim_batch_shape){BRIM_PROGRAM_EVALUATE, 16};
  request.shape_count = 1;
  assert_int_equal(brim_plan_create(&request, &evaluation), BRIM_OK);
  assert_null(brim_plan_program(evaluation, BRIM_PROGRAM_UPDATE, 0));
  assert_int_equal(evaluation->class_bytes[BRIM_ROLE_PARAMETER], training->class_bytes[BRIM_ROLE_PARAMETER]);
  assert_int_equal(evaluation->class_bytes[BRIM_ROLE_GRADIENT], 0);
  assert_int_equal(evaluation->class_bytes[BRIM_ROLE_OPTIMIZER], 0);
  assert_true(evaluation->persistent_bytes + training->class_bytes[BRIM_ROLE_GRADIENT] * 3 <=
              training->persistent_bytes);
  assert_true(evaluation->peak_bytes < training->peak_bytes - training->class_bytes[BRIM_ROLE_GRADIENT] * 3);
  brim_plan_free(training);
  brim_plan_free(evaluation);
}

static brim_plan *fused_plan_of(brim_status (*build)(const void *, brim_graph *), int64_t batch, uint64_t fusions)
{
  brim_plan_request request = request_of(build, batch);
  brim_plan *plan = NULL;
  request.graph.fuse = fusions;
  if (brim_plan_create(&request, &plan) != BRIM_OK) fail_msg("%s", brim_error_text());
  assert_int_equal(brim_plan_check(plan), BRIM_OK);
  return plan;
}

static int count_ops(const brim_program *p, const char *part)
{
  int count = 0;
  for (size_t i = 0; i < p->graph->node_count; i++) count += strstr(p->graph->node[i]->op, part) != NULL;
  return count;
}

static const brim_node *find_node(const brim_program *p, const char *op)
{
  for (size_t i = 0; i < p->graph->node_count; i++)
    if (strcmp(p->graph->node[i]->op, op) == 0) return p->graph->node[i];
  fail_msg("no %s", op);
  return NULL;
}

/* A tensor's bytes must survive from its producer to its last reader: nothing else may write there in between. */
static void check_lives(const brim_plan *plan)
{
  for (size_t p = 0; p < plan->program_count; p++) {
    const brim_graph *g = plan->program[p].graph;
    const uint64_t *offset = plan->program[p].tensor_offset;
    for (size_t i = 0; i < g->node_count; i++)
      for (uint32_t k = 0; k < g->node[i]->in_count; k++) {
        const brim_tensor *t = g->node[i]->in[k];
        for (int32_t j = t->producer + 1; t->producer >= 0 && j < (int32_t)i; j++)
          for (uint32_t o = 0; o < g->node[j]->out_count; o++) {
            const brim_tensor *w = g->node[j]->out[o];
            const bool overlap = offset[w->id] < offset[t->id] + t->bytes && offset[t->id] < offset[w->id] + w->bytes;
            const bool view = strcmp(g->node[j]->op, "reshape") == 0 && offset[w->id] == offset[t->id];
            if (overlap && !view)
              fail_msg("'%s' (node %d) overwrites '%s' before node %zu reads it", w->name, j, t->name, i);
          }
      }
  }
}

static void nothing_is_overwritten_before_its_last_use(void **unused)
{
  (void)unused;
  for (uint64_t fusions = 0; fusions <= BRIM_FUSE_ALL; fusions += BRIM_FUSE_ALL) {
    brim_plan *residual = fused_plan_of(build_residual, 3, fusions), *blocks = fused_plan_of(build_blocks, 3, fusions);
    check_lives(residual);
    check_lives(blocks);
    brim_plan_free(residual);
    brim_plan_free(blocks);
  }
}

static brim_status build_activations(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_flatten(g, brim_input(g));
  x = brim_gelu(g, brim_linear(g, "gelu", x, 200), BRIM_GELU_EXACT);
  x = brim_silu(g, brim_linear(g, "silu", brim_dropout(g, x, 0.5), 200));
  x = brim_leaky_relu(g, brim_linear(g, "slope", x, 200), 0.1);
  x = brim_leaky_relu(g, brim_linear(g, "mirror", x, 200), -0.1);
  x = brim_gelu(g, brim_linear(g, "last", x, 200), BRIM_GELU_TANH);
  brim_output(g, brim_slice(g, x, 1, 0, brim_classes(g)));
  return BRIM_OK;
}

/* Two attentions, on parts of one tensor each; the second one's are rotated. */
static brim_status build_attentions(const void *self, brim_graph *g)
{
  (void)self;
  static const char *const names[] = {"qkv0", "qkv1"};
  brim_tensor *x = brim_reshape(g, brim_input(g), 3, (int64_t[]){brim_shape_of(brim_input(g)).dim[0], 28, 28});
  for (int i = 0; i < 2; i++) {
    brim_tensor *part[3];
    brim_split(g, brim_linear(g, names[i], x, 84), 2, 3, part);
    for (int k = 0; k < 2 && i == 1; k++) part[k] = brim_rotary(g, part[k], (brim_rotary_options){.heads = 2});
    x = brim_add(g, x, brim_attention(g, part[0], part[1], part[2], (brim_attention_options){.heads = 2}));
  }
  brim_output(g, brim_linear(g, "head", brim_flatten(g, x), brim_classes(g)));
  return BRIM_OK;
}

/* Neither the parts nor their gradients, padded and added up, are made. */
static void attention_on_one_tensor_needs_less_memory(void **unused)
{
  (void)unused;
  brim_plan *plain = fused_plan_of(build_attentions, 300, BRIM_FUSE_ALL & ~(uint64_t)BRIM_FUSE_QKV),
            *fused = fused_plan_of(build_attentions, 300, BRIM_FUSE_ALL);
  assert_int_equal(count_ops(&fused->program[0], "attention_qkv"), 4); /* with their gradients */
  assert_int_equal(count_ops(&fused->program[0], "slice") + count_ops(&fused->program[0], "pad"), 0);
  assert_true(fused->peak_bytes < plain->peak_bytes);
  brim_plan_free(plain);
  brim_plan_free(fused);
}

/* Each kind by itself and all together, in training and in evaluation. */
static void fusion_never_needs_more_memory(void **unused)
{
  (void)unused;
  static const uint64_t kinds[] = {BRIM_FUSE_BIAS_ACTIVATION,
                                   BRIM_FUSE_NORM_ACTIVATION,
                                   BRIM_FUSE_RESIDUAL_NORM,
                                   BRIM_FUSE_DROPOUT_ADD,
                                   BRIM_FUSE_QKV,
                                   BRIM_FUSE_ALL};
  brim_status (*const builds[])(const void *, brim_graph *) = {build_cnn, build_residual, build_blocks,
                                                               build_activations, build_attentions};
  for (size_t b = 0; b < sizeof builds / sizeof builds[0]; b++)
    for (int64_t batch = 1; batch <= 300; batch = batch * 2 + 1) {
      brim_plan *plain = fused_plan_of(builds[b], batch, 0);
      for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        brim_plan *fused = fused_plan_of(builds[b], batch, kinds[k]);
        assert_true(fused->peak_bytes <= plain->peak_bytes);
        for (size_t p = 0; p < plain->program_count; p++)
          assert_true(fused->program[p].live_bytes <= plain->program[p].live_bytes);
        brim_plan_free(fused);
      }
      brim_plan_free(plain);
    }
}

static void fused_operations_are_named_after_both_and_by_the_author(void **unused)
{
  (void)unused;
  brim_plan *cnn = fused_plan_of(build_cnn, 4, BRIM_FUSE_ALL), *blocks = fused_plan_of(build_blocks, 4, BRIM_FUSE_ALL);
  assert_string_equal(find_node(&cnn->program[0], "conv2d+relu")->name, "conv1");
  assert_string_equal(find_node(&cnn->program[0], "linear+relu")->name, "fc1");
  assert_string_equal(find_node(&cnn->program[0], "linear+relu")->file, "test_plan.c");
  assert_int_equal(count_ops(&cnn->program[0], "+"), 3);
  assert_int_equal(count_ops(&cnn->program[0], "relu_grad"), 3);
  assert_string_equal(find_node(&blocks->program[0], "batch_norm+relu")->name, "bn");
  assert_string_equal(find_node(&blocks->program[0], "add+layer_norm")->name, "l0");
  assert_string_equal(find_node(&blocks->program[0], "add+rms_norm")->name, "end");
  assert_string_equal(find_node(&blocks->program[0], "dropout+add")->name, "dropout+add");
  assert_string_equal(find_node(&blocks->program[1], "batch_norm_inference+relu")->name, "bn");
  brim_plan_free(cnn);
  brim_plan_free(blocks);
}

static void each_kind_of_fusion_is_switched_by_itself(void **unused)
{
  (void)unused;
  static const struct {
    uint64_t kind;
    int count;
  } cases[] = {{0, 0},
               {BRIM_FUSE_BIAS_ACTIVATION, 3},
               {BRIM_FUSE_NORM_ACTIVATION, 1},
               {BRIM_FUSE_RESIDUAL_NORM, 4},
               {BRIM_FUSE_DROPOUT_ADD, 3},
               {BRIM_FUSE_ALL, 11}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    brim_plan *plan = fused_plan_of(build_blocks, 4, cases[i].kind);
    const int sums = count_ops(&plan->program[0], "linear_grad_input+add") +
                     count_ops(&plan->program[0], "norm_grad+add"); /* of every graph */
    assert_int_equal(count_ops(&plan->program[0], "+") - sums, cases[i].count);
    brim_plan_free(plan);
  }
}

/* The first linear's result is read twice, the second's is the output, and the third's goes through a view to relu. */
static brim_status build_read_twice(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_linear(g, "twice", brim_flatten(g, brim_input(g)), 12);
  x = brim_add(g, brim_relu(g, x), x);
  x = brim_linear(g, "view", x, 12);
  x = brim_relu(g, brim_reshape(g, x, 3, (int64_t[]){-1, 3, 4}));
  x = brim_linear(g, "output", brim_flatten(g, x), brim_classes(g));
  brim_output(g, x);
  brim_relu(g, x);
  return BRIM_OK;
}

static void results_with_other_readers_are_not_fused_away(void **unused)
{
  (void)unused;
  brim_plan *plan = fused_plan_of(build_read_twice, 4, BRIM_FUSE_ALL);
  assert_int_equal(count_ops(&plan->program[0], "+"), 1);
  const brim_node *fused = find_node(&plan->program[0], "linear+relu");
  assert_string_equal(fused->name, "view");
  assert_int_equal(fused->out[0]->shape.rank, 2);
  assert_string_equal(plan->program[0].graph->node[fused->index + 1]->op, "reshape");
  brim_plan_free(plan);
}

/* Only for the gradient, and only in training where the plan is sure not to become larger. */
static void the_input_of_an_activation_is_kept_in_training_only(void **unused)
{
  (void)unused;
  for (uint64_t fusions = BRIM_FUSE_BIAS_ACTIVATION; fusions <= BRIM_FUSE_ALL; fusions += BRIM_FUSE_ALL - 1) {
    brim_plan *plan = fused_plan_of(build_activations, 4, fusions);
    const brim_program *training = &plan->program[0], *evaluation = &plan->program[1];
    assert_int_equal(count_ops(training, "linear+gelu"), 1);
    assert_int_equal(find_node(training, "linear+gelu")->out_count, 2);
    assert_int_equal(find_node(training, "linear+silu")->out_count, 2);
    assert_string_equal(find_node(training, "linear+silu")->name, "silu");
    assert_int_equal(count_ops(evaluation, "linear+gelu"), 2);
    assert_int_equal(find_node(evaluation, "linear+gelu")->out_count, 1);
    assert_int_equal(find_node(evaluation, "linear+silu")->out_count, 1);
    brim_plan_free(plan);
  }
}

/* With a slope below 0, the sign of the result does not determine the sign of the input. */
static void a_leaky_relu_keeps_its_result_alone_if_the_slope_is_above_0(void **unused)
{
  (void)unused;
  brim_plan *plain = fused_plan_of(build_activations, 64, 0);
  brim_plan *plan = fused_plan_of(build_activations, 64, BRIM_FUSE_BIAS_ACTIVATION);
  const brim_program *p = &plan->program[0];
  assert_int_equal(count_ops(p, "+leaky_relu"), 1);
  assert_string_equal(find_node(p, "linear+leaky_relu")->name, "slope");
  assert_true(plan->peak_bytes + 64 * 200 * sizeof(float) <= plain->peak_bytes);
  brim_plan_free(plain);
  brim_plan_free(plan);
}

/* conv1d ends with a view; the gradient's kernel is chosen by its memory layout. */
static brim_status build_conv1d(const void *self, brim_graph *g)
{
  (void)self;
  const int64_t rows[] = {brim_shape_of(brim_input(g)).dim[0], 1, -1};
  brim_tensor *x = brim_reshape(g, brim_input(g), 3, rows);
  x = brim_tanh(g, brim_conv1d(g, "conv", x, 16, (brim_conv1d_options){.kernel = 3}));
  brim_output(g, brim_linear(g, "last", brim_flatten(g, x), brim_classes(g)));
  return BRIM_OK;
}

static void an_activation_after_a_view_moves_before_it_with_fusion_or_without(void **unused)
{
  (void)unused;
  for (int fused = 0; fused < 2; fused++) {
    brim_plan *plan = fused_plan_of(build_conv1d, 4, fused ? BRIM_FUSE_ALL : 0);
    const brim_program *p = &plan->program[0];
    const brim_node *conv = find_node(p, fused ? "conv2d+tanh" : "conv2d");
    const brim_node *activation = fused ? conv : p->graph->node[conv->index + 1];
    assert_string_equal(activation->op, fused ? "conv2d+tanh" : "tanh");
    assert_int_equal(activation->out[0]->shape.rank, 4);
    const brim_node *view = p->graph->node[activation->index + 1];
    assert_string_equal(view->op, "reshape");
    assert_int_equal(view->out[0]->shape.rank, 3);
    brim_plan_free(plan);
  }
}

/* Three layers with the same weight. */
static brim_status build_tied(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_linear(g, "first", brim_flatten(g, brim_input(g)), 24);
  brim_tensor *weight = brim_parameter_new(g, "tied", 2, (int64_t[]){24, 24}, (brim_init){BRIM_INIT_UNIFORM, 0.1});
  for (int i = 0; i < 3; i++) x = brim_linear_with(g, "again", x, weight, NULL);
  brim_output(g, brim_linear(g, "last", x, brim_classes(g)));
  return BRIM_OK;
}

static const brim_tensor *find_tensor(const brim_program *p, const char *name)
{
  for (size_t i = 0; i < p->graph->tensor_count; i++)
    if (strcmp(p->graph->tensor[i]->name, name) == 0) return p->graph->tensor[i];
  fail_msg("no %s", name);
  return NULL;
}

/* All are zeroed with the gradients, and summed before anything reads the sum. */
static void each_further_use_of_a_parameter_has_a_gradient_of_its_own(void **unused)
{
  (void)unused;
  brim_plan *plan = fused_plan_of(build_tied, 4, BRIM_FUSE_ALL);
  const brim_program *training = &plan->program[0], *update = brim_plan_program(plan, BRIM_PROGRAM_UPDATE, 0);
  static const char *const names[] = {"tied.grad", "tied.grad.2", "tied.grad.3"};
  for (size_t i = 0; i < 3; i++) {
    const brim_tensor *a = find_tensor(training, names[i]), *b = find_tensor(update, names[i]);
    const uint64_t at = training->tensor_offset[a->id];
    assert_int_equal(a->role, BRIM_ROLE_GRADIENT);
    assert_int_equal(at, update->tensor_offset[b->id]);
    assert_true(at >= plan->gradient_offset && at + a->bytes <= plan->gradient_offset + plan->gradient_bytes);
    if (i == 0) continue;
    const brim_node *sum = update->graph->node[i - 1];
    assert_string_equal(sum->op, "accumulate");
    assert_string_equal(sum->in[0]->name, names[i]);
    assert_string_equal(sum->out[0]->name, names[0]);
  }
  assert_true(update->graph->first_update >= 2);
  assert_int_equal(plan->gradient_bytes - plan->class_bytes[BRIM_ROLE_PARAMETER], 2 * 24 * 24 * sizeof(float));
  brim_plan_free(plan);
}

/* The positions of a longer table, and a row that is the product of two. */
static brim_status build_slice(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_linear(g, "first", brim_flatten(g, brim_input(g)), 24);
  brim_tensor *table = brim_parameter_new(g, "table", 2, (int64_t[]){9, 24}, (brim_init){BRIM_INIT_UNIFORM, 0.1});
  brim_tensor *row = brim_slice(g, table, 0, 4, 1);
  brim_tensor *product = brim_mul(g, row, brim_slice(g, table, 0, 5, 1));
  brim_output(g, brim_linear(g, "last", brim_add(g, brim_add(g, x, row), product), brim_classes(g)));
  return BRIM_OK;
}

/* Sums over a step are persistent, keep the wide type, and are passed on to the parameter once a step. */
static void a_slice_of_a_parameter_sums_the_gradients_of_its_uses(void **unused)
{
  (void)unused;
  brim_plan_request request = request_of(build_slice, 4);
  request.graph.activations = BRIM_DTYPE_BF16;
  brim_plan *plan = NULL;
  assert_int_equal(brim_plan_create(&request, &plan), BRIM_OK);
  const brim_program *training = &plan->program[0], *update = brim_plan_program(plan, BRIM_PROGRAM_UPDATE, 0);
  const brim_graph *g = training->graph, *u = update->graph;
  assert_int_equal(g->further_count, 2);
  for (size_t i = 0; i < 2; i++) {
    const brim_tensor *a = g->further[i].gradient, *b = u->further[i].gradient;
    const uint64_t at = training->tensor_offset[a->id];
    assert_int_equal(a->dtype, BRIM_DTYPE_F32);
    assert_int_equal(brim_shape_count(&a->shape), 24);
    assert_int_equal(at, update->tensor_offset[b->id]);
    assert_true(at >= plan->gradient_offset && at + a->bytes <= plan->gradient_offset + plan->gradient_bytes);
    assert_false(brim_graph_has_samples(g, g->further[i].of));
    assert_int_equal(g->further[i].of->dtype, BRIM_DTYPE_F32);
  }
  assert_int_equal(count_ops(training, "pad"), 0);
  assert_int_equal(count_ops(update, "pad"), 2);
  assert_int_equal(count_ops(update, "slice"), 2); /* the product's gradient needs the slices, not the product */
  assert_int_equal(count_ops(update, "cast"), 0);
  brim_plan_free(plan);
}

static brim_status run_no_program(void *self, const brim_program_run *run)
{
  (void)self;
  (void)run;
  return BRIM_ENOTSUP;
}

/* The casts of parameters before the first other node. */
static size_t count_leading_casts(const brim_program *p)
{
  size_t count = 0;
  while (strcmp(p->graph->node[count]->op, "cast") == 0 && p->graph->node[count]->in[0]->role == BRIM_ROLE_PARAMETER)
    count++;
  return count;
}

static void check_casts_come_first(brim_status (*build)(const void *self, brim_graph *g), size_t casts)
{
  brim_backend_ops recording = backend;
  recording.run_program = run_no_program;
  brim_plan_request request = request_of(build, 64);
  request.graph.activations = BRIM_DTYPE_BF16;
  brim_plan *plain = NULL, *recorded = NULL;
  assert_int_equal(brim_plan_create(&request, &plain), BRIM_OK);
  request.backend = &recording;
  assert_int_equal(brim_plan_create(&request, &recorded), BRIM_OK);
  const brim_program *p = &recorded->program[0];
  assert_true(count_leading_casts(&plain->program[0]) <= 2);
  assert_int_equal(count_leading_casts(p), casts);
  assert_int_equal(p->graph->node_count, plain->program[0].graph->node_count);
  assert_true(recorded->peak_bytes <= plain->peak_bytes);
  assert_int_equal(recorded->lower_bound_bytes, plain->lower_bound_bytes);
  assert_int_equal(brim_plan_check(recorded), BRIM_OK);
  for (size_t i = 0; i < p->graph->node_count; i++) {
    const brim_node *n = p->graph->node[i];
    assert_int_equal(n->index, i);
    assert_string_equal(p->kernel[i]->op, n->op);
    for (uint32_t k = 0; k < n->in_count; k++) assert_true(n->in[k]->producer < (int32_t)i);
    if (p->workspace_buffer[i] >= 0) assert_int_equal(p->buffer[p->workspace_buffer[i]].last, i);
  }
  brim_plan_free(plain);
  brim_plan_free(recorded);
}

/* A backend that records programs makes them in one launch; others compute a cast right before it is read. */
static void casts_of_parameters_come_first_in_recorded_programs(void **unused)
{
  (void)unused;
  check_casts_come_first(build_cnn, 8);
  check_casts_come_first(build_blocks, 28);
}

/* The number of gradients of the tied weight differs between programs. */
static brim_status build_tied_by_batch(const void *self, brim_graph *g)
{
  brim_tensor *x = brim_flatten(g, brim_input(g));
  if (brim_shape_of(x).dim[0] > 4) return build_tied(self, g);
  x = brim_linear(g, "first", x, 24);
  brim_tensor *weight = brim_parameter_new(g, "tied", 2, (int64_t[]){24, 24}, (brim_init){BRIM_INIT_UNIFORM, 0.1});
  brim_output(g, brim_linear(g, "last", brim_linear_with(g, "again", x, weight, NULL), brim_classes(g)));
  return BRIM_OK;
}

/* The same number of uses of other rows. */
static brim_status build_slice_by_batch(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_linear(g, "first", brim_flatten(g, brim_input(g)), 24);
  brim_tensor *table = brim_parameter_new(g, "table", 2, (int64_t[]){9, 24}, (brim_init){BRIM_INIT_UNIFORM, 0.1});
  x = brim_add(g, x, brim_slice(g, table, 0, brim_shape_of(x).dim[0], 1));
  brim_output(g, brim_linear(g, "last", x, brim_classes(g)));
  return BRIM_OK;
}

static void expect_other_uses(brim_status (*build)(const void *self, brim_graph *g))
{
  brim_plan_request request = request_of(build, 8);
  request.shape[1] = (brim_batch_shape){BRIM_PROGRAM_TRAIN, 4};
  request.shape_count = 2;
  brim_plan *plan = NULL;
  assert_int_equal(brim_plan_create(&request, &plan), BRIM_EINVAL);
  assert_non_null(strstr(brim_error_text(), "uses its parameters differently for N = 4 and N = 8"));
}

static void the_uses_of_parameters_may_not_depend_on_the_batch(void **unused)
{
  (void)unused;
  expect_other_uses(build_tied_by_batch);
  expect_other_uses(build_slice_by_batch);
}

/* A backend of a build before fusion, or from outside the tree. */
static void a_backend_without_fused_operations_computes_the_two(void **unused)
{
  (void)unused;
  static const brim_kernel *table[256];
  size_t count = 0;
  for (size_t i = 0; i < brim_op_count(); i++)
    if (!strchr(kernels[i].op, '+')) table[count++] = &kernels[i];
  brim_backend_ops poor = backend;
  poor.kernels = table;
  poor.kernels_end = table + count;
  brim_plan_request request = request_of(build_blocks, 2);
  request.backend = &poor;
  request.graph.fuse = BRIM_FUSE_ALL;
  brim_plan *plan = NULL;
  if (brim_plan_create(&request, &plan) != BRIM_OK) fail_msg("%s", brim_error_text());
  assert_int_equal(count_ops(&plan->program[0], "+"), 0);
  brim_plan_free(plan);
}

/* In "a + b", the next layer also reads a, so the sum overwrites b. */
static brim_status build_sum(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_flatten(g, brim_input(g));
  brim_tensor *a = brim_linear(g, "a", x, 32), *b = brim_linear(g, "b", x, 32);
  x = brim_add(g, a, b);
  brim_output(g, brim_add(g, brim_linear(g, "c", x, brim_classes(g)), brim_linear(g, "d", a, brim_classes(g))));
  return BRIM_OK;
}

/* In the norm of "a + b", neither a nor b is read later: sum and norm overwrite both. */
static brim_status build_normalised_sum(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_flatten(g, brim_input(g));
  brim_tensor *a = brim_linear(g, "a", x, 32), *b = brim_linear(g, "b", x, 32);
  brim_output(g, brim_linear(g, "c", brim_layer_norm(g, "norm", brim_add(g, a, b), 1e-5), brim_classes(g)));
  return BRIM_OK;
}

static void a_sum_overwrites_the_operand_without_later_readers(void **unused)
{
  (void)unused;
  brim_plan *plan = fused_plan_of(build_sum, 4, 0);
  const brim_program *p = &plan->program[0];
  const brim_node *sum = find_node(p, "add");
  assert_true(p->tensor_offset[sum->out[0]->id] != p->tensor_offset[sum->in[0]->id]);
  assert_true(p->tensor_offset[sum->out[0]->id] == p->tensor_offset[sum->in[1]->id]);
  brim_plan_free(plan);

  plan = fused_plan_of(build_normalised_sum, 4, BRIM_FUSE_ALL);
  p = &plan->program[0];
  sum = find_node(p, "add+layer_norm");
  for (uint32_t k = 0; k < 2; k++) assert_true(p->tensor_offset[sum->out[k]->id] == p->tensor_offset[sum->in[k]->id]);
  brim_plan_free(plan);
}

/* Two layers with the same input; and one whose input is also added to its result. */
static brim_status build_readers(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_relu(g, brim_linear(g, "in", brim_flatten(g, brim_input(g)), 32));
  brim_tensor *a = brim_linear(g, "a", x, 16), *b = brim_linear(g, "b", x, 16);
  brim_output(g, brim_linear(g, "out", brim_mul(g, a, b), brim_classes(g)));
  return BRIM_OK;
}
static brim_status build_summand(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_relu(g, brim_linear(g, "in", brim_flatten(g, brim_input(g)), 32));
  brim_output(g, brim_linear(g, "out", brim_add(g, x, brim_linear(g, "a", x, 32)), brim_classes(g)));
  return BRIM_OK;
}

/* In the second graph the gradient to add to is that of the layer's result, which the product still reads. */
static void a_layer_adds_to_its_inputs_gradient_in_place_unless_it_reads_that(void **unused)
{
  (void)unused;
  static brim_status (*const builds[])(const void *, brim_graph *) = {build_readers, build_summand};
  for (size_t i = 0; i < 2; i++) {
    brim_plan *plan = fused_plan_of(builds[i], 4, 0);
    const brim_program *p = &plan->program[0];
    const brim_node *n = find_node(p, "linear_grad_input+add");
    const uint64_t a = p->tensor_offset[n->in[0]->id], dy = p->tensor_offset[n->in[1]->id];
    assert_int_equal(count_ops(p, "linear_grad_input+add"), 1);
    assert_string_equal(n->name, "a");
    assert_true((a == dy) == (i == 1));
    assert_true((p->tensor_offset[n->out[0]->id] == a) == (i == 0));
    brim_plan_free(plan);
  }
}

/* Loaded data must not be overwritten, not even through a view, unlike other inputs without later readers. */
static brim_status build_on_view(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_relu(g, brim_flatten(g, brim_input(g)));
  brim_output(g, brim_linear(g, "fc", brim_dropout(g, x, 0.5), brim_classes(g)));
  return BRIM_OK;
}

static void an_input_stays_as_it_was_loaded(void **unused)
{
  (void)unused;
  brim_plan *plan = fused_plan_of(build_on_view, 4, 0);
  const brim_program *p = &plan->program[1]; /* evaluation */
  const brim_node *relu = find_node(p, "relu");
  assert_true(p->tensor_offset[relu->in[0]->id] == p->tensor_offset[p->graph->input->id]);
  assert_true(p->tensor_offset[relu->out[0]->id] != p->tensor_offset[p->graph->input->id]);
  brim_plan_free(plan);
}

/* In "norm(a + b)", the next layer also reads a: if the sum has no other reader, sum and norm share b's place. */
static brim_status build_kept_operand(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_flatten(g, brim_input(g));
  brim_tensor *a = brim_linear(g, "a", x, 3200), *b = brim_linear(g, "b", x, 3200);
  brim_tensor *y = brim_layer_norm(g, "norm", brim_add(g, a, b), 1e-5);
  brim_output(g, brim_linear(g, "c", brim_mul(g, a, y), brim_classes(g)));
  return BRIM_OK;
}

static void a_norm_takes_the_place_of_an_unread_sum(void **unused)
{
  (void)unused;
  brim_plan *plain = fused_plan_of(build_kept_operand, 64, 0);
  brim_plan *plan = fused_plan_of(build_kept_operand, 64, BRIM_FUSE_ALL);
  const brim_program *p = &plan->program[1]; /* evaluation: no gradient reads the sum */
  const brim_node *both = find_node(p, "add+layer_norm");
  assert_true(p->tensor_offset[both->out[0]->id] == p->tensor_offset[both->out[1]->id]);
  assert_true(p->tensor_offset[both->out[1]->id] == p->tensor_offset[both->in[1]->id]);
  for (size_t i = 0; i < 2; i++) assert_true(plan->program[i].transient_bytes <= plain->program[i].transient_bytes);
  both = find_node(&plan->program[0], "add+layer_norm");
  assert_true(plan->program[0].tensor_offset[both->out[0]->id] != plan->program[0].tensor_offset[both->out[1]->id]);
  brim_plan_free(plan);
  brim_plan_free(plain);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cnn_has_the_parameters_of_pytorch_example),
      cmocka_unit_test(fusion_never_needs_more_memory),
      cmocka_unit_test(attention_on_one_tensor_needs_less_memory),
      cmocka_unit_test(fused_operations_are_named_after_both_and_by_the_author),
      cmocka_unit_test(each_kind_of_fusion_is_switched_by_itself),
      cmocka_unit_test(results_with_other_readers_are_not_fused_away),
      cmocka_unit_test(the_input_of_an_activation_is_kept_in_training_only),
      cmocka_unit_test(a_leaky_relu_keeps_its_result_alone_if_the_slope_is_above_0),
      cmocka_unit_test(each_further_use_of_a_parameter_has_a_gradient_of_its_own),
      cmocka_unit_test(an_activation_after_a_view_moves_before_it_with_fusion_or_without),
      cmocka_unit_test(a_slice_of_a_parameter_sums_the_gradients_of_its_uses),
      cmocka_unit_test(the_uses_of_parameters_may_not_depend_on_the_batch),
      cmocka_unit_test(a_backend_without_fused_operations_computes_the_two),
      cmocka_unit_test(a_sum_overwrites_the_operand_without_later_readers),
      cmocka_unit_test(a_norm_takes_the_place_of_an_unread_sum),
      cmocka_unit_test(a_layer_adds_to_its_inputs_gradient_in_place_unless_it_reads_that),
      cmocka_unit_test(an_input_stays_as_it_was_loaded),
      cmocka_unit_test(buffers_never_overlap_in_life_and_place),
      cmocka_unit_test(nothing_is_overwritten_before_its_last_use),
      cmocka_unit_test(results_overwrite_memory_without_later_readers),
      cmocka_unit_test(classes_add_up_to_the_lower_bound),
      cmocka_unit_test(programs_share_the_persistent_part),
      cmocka_unit_test(the_plan_is_a_function_of_its_request),
      cmocka_unit_test(model_errors_name_operation_shapes_and_line),
      cmocka_unit_test(a_backend_without_an_operation_is_named),
      cmocka_unit_test(a_kept_output_is_not_overwritten),
      cmocka_unit_test(casts_of_parameters_come_first_in_recorded_programs),
      cmocka_unit_test(a_plan_for_evaluation_holds_no_gradients_and_no_optimizer)};
  return cmocka_run_group_tests(tests, make_backend, NULL);
}
