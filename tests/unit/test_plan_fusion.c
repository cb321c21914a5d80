/* Tests fused operations in a plan: which are fused, their names, and the memory that they need. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "plan_models.h"

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

/* Builds two attentions. Each reads parts of one tensor; the second one has rotary embeddings. */
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

/* The fused plan has no tensors for the parts, nor for their padded gradients. */
static void attention_on_one_tensor_needs_less_memory(void **unused)
{
  (void)unused;
  brim_plan *plain = plan_of(build_attentions, 300, BRIM_FUSE_ALL & ~(uint64_t)BRIM_FUSE_QKV),
            *fused = plan_of(build_attentions, 300, BRIM_FUSE_ALL);
  assert_int_equal(count_ops(&fused->program[0], "attention_qkv"), 4); /* with their gradients */
  assert_int_equal(count_ops(&fused->program[0], "slice") + count_ops(&fused->program[0], "pad"), 0);
  assert_true(fused->peak_bytes < plain->peak_bytes);
  brim_plan_free(plain);
  brim_plan_free(fused);
}

/* Builds residual blocks, one without a convolution in the shortcut and one with it. */
static brim_status build_norm_blocks(const void *self, brim_graph *g)
{
  (void)self;
  static const char *const names[][4] = {{"a0", "b0", "c0", "d0"}, {"a1", "b1", "c1", "d1"}};
  const brim_conv2d_options conv = {.kernel = {3, 3}, .padding = {1, 1}};
  brim_tensor *x = brim_conv2d(g, "stem", brim_input(g), 8, conv);
  for (int i = 0; i < 2; i++) {
    brim_tensor *y = brim_relu(g, brim_batch_norm(g, names[i][1], brim_conv2d(g, names[i][0], x, 8, conv), 1e-5, 0.1));
    y = brim_batch_norm(g, names[i][3], brim_conv2d(g, names[i][2], y, 8, conv), 1e-5, 0.1);
    if (i == 1) x = brim_batch_norm(g, "bn", brim_conv2d(g, "shortcut", x, 8, conv), 1e-5, 0.1);
    x = brim_relu(g, brim_add(g, y, x));
  }
  brim_output(g, brim_linear(g, "head", brim_flatten(g, x), brim_classes(g)));
  return BRIM_OK;
}

/* Checks each kind of fusion by itself and all together, in training and in evaluation. */
static void fusion_never_needs_more_memory(void **unused)
{
  (void)unused;
  static const uint64_t kinds[] = {BRIM_FUSE_BIAS_ACTIVATION,
                                   BRIM_FUSE_NORM_ACTIVATION,
                                   BRIM_FUSE_RESIDUAL_NORM,
                                   BRIM_FUSE_DROPOUT_ADD,
                                   BRIM_FUSE_QKV,
                                   BRIM_FUSE_NORM_ADD,
                                   BRIM_FUSE_ALL};
  brim_status (*const builds[])(const void *, brim_graph *) = {build_cnn,         build_residual,   build_blocks,
                                                               build_activations, build_attentions, build_norm_blocks};
  for (size_t b = 0; b < sizeof builds / sizeof builds[0]; b++)
    for (int64_t batch = 1; batch <= 300; batch = batch * 2 + 1) {
      brim_plan *plain = plan_of(builds[b], batch, 0);
      for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        brim_plan *fused = plan_of(builds[b], batch, kinds[k]);
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
  brim_plan *cnn = plan_of(build_cnn, 4, BRIM_FUSE_ALL), *blocks = plan_of(build_blocks, 4, BRIM_FUSE_ALL);
  assert_string_equal(find_node(&cnn->program[0], "conv2d+relu")->name, "conv1");
  /* In training, relu is fused with dropout. */
  assert_string_equal(find_node(&cnn->program[1], "linear+relu")->name, "fc1");
  assert_string_equal(find_node(&cnn->program[1], "linear+relu")->file, "plan_models.h");
  assert_int_equal(count_ops(&cnn->program[0], "+"), 5);
  assert_int_equal(count_ops(&cnn->program[0], "relu_grad"), 3);
  assert_int_equal(count_ops(&cnn->program[0], "dropout+relu_grad"), 2);
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
               {BRIM_FUSE_NORM_ACTIVATION, 2}, /* the operation and its gradient */
               {BRIM_FUSE_RESIDUAL_NORM, 4},
               {BRIM_FUSE_DROPOUT_ADD, 3},
               {BRIM_FUSE_NORM_ADD, 0},
               {BRIM_FUSE_ALL, 12}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    brim_plan *plan = plan_of(build_blocks, 4, cases[i].kind);
    const int sums = count_ops(&plan->program[0], "linear_grad_input+add") +
                     count_ops(&plan->program[0], "norm_grad+add"); /* every graph has these nodes */
    assert_int_equal(count_ops(&plan->program[0], "+") - sums, cases[i].count);
    brim_plan_free(plan);
  }
}

/* The norm right before a sum becomes one node with the sum and the relu. dx overwrites x, and the gradient of the
 * other operand overwrites dy. */
static void the_end_of_a_residual_block_is_one_node(void **unused)
{
  (void)unused;
  brim_plan *plan = plan_of(build_norm_blocks, 4, BRIM_FUSE_ALL);
  const brim_program *p = &plan->program[0];
  assert_int_equal(count_ops(p, "batch_norm+add+relu"), 4); /* with their gradients */
  assert_int_equal(count_ops(p, "batch_norm+relu"), 4);
  assert_int_equal(count_ops(&plan->program[1], "batch_norm_inference+add+relu"), 2);
  assert_string_equal(find_node(p, "batch_norm+add+relu")->name, "d0");
  assert_string_equal(find_node(p, "batch_norm+add+relu_grad")->name, "bn");
  const brim_node *gradient = find_node(p, "batch_norm+add+relu_grad");
  assert_int_equal(p->tensor_buffer[gradient->out[1]->id], p->tensor_buffer[gradient->in[0]->id]);
  brim_plan_free(plan);
}

/* If whole blocks are recomputed, a sum and the norm before it stay separate. With recompute=auto they are one node,
 * and the least memory is about the same. */
static void fusion_with_recompute_never_needs_more_memory(void **unused)
{
  (void)unused;
  for (enum brim_recompute_kind kind = BRIM_RECOMPUTE_BLOCKS; kind <= BRIM_RECOMPUTE_AUTO; kind++)
    for (int64_t batch = 1; batch <= 300; batch = batch * 2 + 1) {
      static const uint64_t fusions[] = {BRIM_FUSE_ALL & ~(uint64_t)BRIM_FUSE_NORM_ACTIVATION, BRIM_FUSE_ALL};
      brim_plan *plan[2];
      for (int i = 0; i < 2; i++) {
        brim_plan_request request = request_of(build_norm_blocks, batch);
        request.graph.fuse = fusions[i];
        request.recompute = kind;
        request.budget_bytes = 1; /* so that auto finds the least memory */
        assert_int_equal(brim_plan_create(&request, &plan[i]), BRIM_OK);
        assert_int_equal(brim_plan_check(plan[i]), BRIM_OK);
      }
      assert_true(count_ops(&plan[1]->program[0], "batch_norm+relu_grad") > 0);
      const bool joins = kind == BRIM_RECOMPUTE_AUTO;
      assert_int_equal(count_ops(&plan[1]->program[0], "batch_norm+add") > 0, joins);
      assert_true(plan[1]->peak_bytes <= plan[0]->peak_bytes + joins * plan[0]->peak_bytes / 1000);
      brim_plan_free(plan[0]);
      brim_plan_free(plan[1]);
    }
}

/* Builds linear layers. The first one's result is read twice, the second one's is the output, and the third one's goes
 * through a view to relu. */
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
  brim_plan *plan = plan_of(build_read_twice, 4, BRIM_FUSE_ALL);
  assert_int_equal(count_ops(&plan->program[0], "+"), 1);
  const brim_node *fused = find_node(&plan->program[0], "linear+relu");
  assert_string_equal(fused->name, "view");
  assert_int_equal(fused->out[0]->shape.rank, 2);
  assert_string_equal(plan->program[0].graph->node[fused->index + 1]->op, "reshape");
  brim_plan_free(plan);
}

/* Only the gradient needs the input. It is kept only in training, and only if the plan cannot become larger. */
static void the_input_of_an_activation_is_kept_in_training_only(void **unused)
{
  (void)unused;
  for (uint64_t fusions = BRIM_FUSE_BIAS_ACTIVATION; fusions <= BRIM_FUSE_ALL; fusions += BRIM_FUSE_ALL - 1) {
    brim_plan *plan = plan_of(build_activations, 4, fusions);
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
  brim_plan *plain = plan_of(build_activations, 64, 0);
  brim_plan *plan = plan_of(build_activations, 64, BRIM_FUSE_BIAS_ACTIVATION);
  const brim_program *p = &plan->program[0];
  assert_int_equal(count_ops(p, "+leaky_relu"), 1);
  assert_string_equal(find_node(p, "linear+leaky_relu")->name, "slope");
  assert_true(plan->peak_bytes + 64 * 200 * sizeof(float) <= plain->peak_bytes);
  brim_plan_free(plain);
  brim_plan_free(plan);
}

/* Builds a conv1d, which ends with a view. The backend chooses the gradient's kernel by the memory layout. */
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
    brim_plan *plan = plan_of(build_conv1d, 4, fused ? BRIM_FUSE_ALL : 0);
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

/* A backend that was built before fusion, or outside the tree, may have no fused operations. */
static void a_backend_without_fused_operations_computes_the_two(void **unused)
{
  (void)unused;
  static const brim_kernel *table[256];
  size_t count = 0;
  for (size_t i = 0; i < brim_op_count(); i++)
    if (!strchr(mock_kernels[i].op, '+')) table[count++] = &mock_kernels[i];
  brim_backend_ops poor = mock_backend;
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

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(attention_on_one_tensor_needs_less_memory),
      cmocka_unit_test(fusion_never_needs_more_memory),
      cmocka_unit_test(fused_operations_are_named_after_both_and_by_the_author),
      cmocka_unit_test(each_kind_of_fusion_is_switched_by_itself),
      cmocka_unit_test(the_end_of_a_residual_block_is_one_node),
      cmocka_unit_test(fusion_with_recompute_never_needs_more_memory),
      cmocka_unit_test(results_with_other_readers_are_not_fused_away),
      cmocka_unit_test(the_input_of_an_activation_is_kept_in_training_only),
      cmocka_unit_test(a_leaky_relu_keeps_its_result_alone_if_the_slope_is_above_0),
      cmocka_unit_test(an_activation_after_a_view_moves_before_it_with_fusion_or_without),
      cmocka_unit_test(a_backend_without_fused_operations_computes_the_two),
  };
  return cmocka_run_group_tests(tests, make_mock_backend_with_conv, NULL);
}
