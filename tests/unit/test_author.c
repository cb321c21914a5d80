/* Tests the errors for wrong names, sizes, NULL, samples, and an output that is not logits. The errors of each family
 * of operations are in that family's tests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "brim/brim.h"
#include "graph/graph.h"

static brim_graph *graph(int64_t batch)
{
  return brim_graph_create(BRIM_DTYPE_F32, batch, true);
}
static brim_tensor *input(brim_graph *g, int32_t rank)
{
  return brim_graph_tensor(g, BRIM_ROLE_DATA, g->real, &(brim_shape){rank, {g->batch, 6, 5, 4}}, "x");
}

/* Asserts that the graph failed with this text and names this file; frees the graph. */
static void assert_failed(brim_graph *g, const brim_tensor *result, const char *text)
{
  assert_null(result);
  assert_int_equal(g->status, BRIM_EINVAL);
  if (!strstr(g->error, text)) fail_msg("'%s' is not in: %s", text, g->error);
  assert_non_null(strstr(g->error, "\n  test_author.c:"));
  brim_graph_free(g);
}

static void test_operations_with_parameters_need_a_name(void **state)
{
  const char *const none[] = {NULL, ""};
  const brim_init init = {BRIM_INIT_CONSTANT, 0};
  for (int i = 0; i < 2; i++) {
    const char *n = none[i];
    brim_graph *g = graph(2);
    assert_failed(g, brim_linear(g, n, input(g, 2), 3), "linear: it needs a name");
    g = graph(2);
    assert_failed(g, brim_conv2d(g, n, input(g, 4), 3, (brim_conv2d_options){.kernel = {1, 1}}),
                  "conv2d: it needs a name");
    g = graph(2);
    assert_failed(g, brim_conv1d(g, n, input(g, 3), 3, (brim_conv1d_options){.kernel = 1}), "conv1d: it needs a name");
    g = graph(2);
    assert_failed(g, brim_conv_transpose2d(g, n, input(g, 4), 3, (brim_conv_transpose2d_options){.kernel = {1, 1}}),
                  "conv_transpose2d: it needs a name");
    g = graph(2);
    assert_failed(g, brim_batch_norm(g, n, input(g, 2), 1e-5, 0.1), "batch_norm: it needs a name");
    g = graph(2);
    assert_failed(g, brim_group_norm(g, n, input(g, 3), 2, 1e-5), "group_norm: it needs a name");
    g = graph(2);
    assert_failed(g, brim_layer_norm(g, n, input(g, 2), 1e-5), "layer_norm: it needs a name");
    g = graph(2);
    assert_failed(g, brim_rms_norm(g, n, input(g, 2), 1e-5), "rms_norm: it needs a name");
    g = graph(2);
    assert_failed(g, brim_lstm(g, n, input(g, 3), 3, (brim_lstm_options){0}), "lstm: it needs a name");
    g = graph(2);
    assert_failed(g, brim_embedding(g, n, input(g, 2), 3, 3), "embedding: it needs a name");
    g = graph(2);
    assert_failed(g, brim_parameter_new(g, n, 1, (int64_t[]){3}, init), "parameter: it needs a name");
  }
}

/* The test has more parameters than the table of names holds at first, so the table grows. All are found by name, value
 * and gradient. */
static void test_many_parameters_are_distinguished(void **state)
{
  brim_graph *g = graph(2);
  char name[32];
  for (int i = 0; i < 300; i++) {
    snprintf(name, sizeof name, "p%d", i);
    brim_parameter_new(g, name, 1, (int64_t[]){3}, (brim_init){BRIM_INIT_CONSTANT, i});
    input(g, 2); /* adds a tensor, so that not all ids belong to parameters */
  }
  assert_int_equal(g->status, BRIM_OK);
  for (int i = 0; i < 300; i++) {
    snprintf(name, sizeof name, "p%d", i);
    const brim_parameter *p = brim_graph_named_parameter(g, name);
    assert_ptr_equal(p, &g->parameter[i]);
    assert_ptr_equal(brim_graph_parameter_of(g, p->value), p);
    assert_ptr_equal(brim_graph_gradient(g, p->value), p->gradient);
  }
  assert_null(brim_graph_named_parameter(g, "p300"));
  assert_null(brim_graph_parameter_of(g, g->parameter[7].gradient));
  assert_failed(g, brim_parameter_new(g, "p299", 1, (int64_t[]){3}, (brim_init){BRIM_INIT_CONSTANT, 0}),
                "parameter 'p299': there is already a parameter of this name");
}

static void test_a_layers_initial_values_can_be_replaced(void **state)
{
  const brim_init zero = {BRIM_INIT_CONSTANT, 0}, wide = {BRIM_INIT_NORMAL, 3};
  brim_graph *g = graph(2);
  brim_batch_norm(g, "bn", brim_linear(g, "fc", input(g, 2), 3), 1e-5, 0.1);
  brim_set_init(g, "fc.bias", wide);
  brim_set_init(g, "bn.weight", zero);
  assert_int_equal(g->status, BRIM_OK);
  assert_string_equal(g->parameter[0].value->name, "fc.weight");
  assert_int_equal(g->parameter[0].init.kind, BRIM_INIT_UNIFORM);
  assert_int_equal(g->parameter[1].init.kind, BRIM_INIT_NORMAL);
  assert_true(g->parameter[1].init.value == 3);
  assert_int_equal(g->parameter[2].init.kind, BRIM_INIT_CONSTANT);
  assert_true(g->parameter[2].init.value == 0);
  brim_set_init(g, "fc", zero);
  assert_failed(g, NULL, "parameter 'fc': there is no parameter of this name yet, so its initial values cannot be set");
  g = graph(2);
  brim_linear(g, "fc", input(g, 2), 3);
  brim_set_init(g, "fc.weight", (brim_init){BRIM_INIT_NORMAL, -1});
  assert_failed(g, NULL, "parameter 'fc.weight': it must start as BRIM_INIT_CONSTANT with a finite value");
}

static void test_names_that_files_cannot_hold_are_refused(void **state)
{
  const char *const bad[] = {"a b", "a\n", "a\"", "a\\b", "a\x7f"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    brim_graph *g = graph(2);
    assert_failed(g, brim_linear(g, bad[i], input(g, 2), 3), "quotes, backslashes and control characters");
  }
  brim_graph *g = graph(2);
  assert_failed(g, brim_parameter_new(g, "__metadata__", 1, (int64_t[]){3}, (brim_init){BRIM_INIT_CONSTANT, 0}),
                "parameter: '__metadata__' cannot be a name in a checkpoint");
  char name[202] = "";
  memset(name, 'n', 200);
  g = graph(2);
  assert_non_null(brim_linear(g, name, input(g, 2), 3));
  brim_graph_free(g);
  name[200] = 'n';
  g = graph(2);
  assert_failed(g, brim_linear(g, name, input(g, 2), 3), "linear: a name of 201 bytes, 'nnnn");
  g = graph(2);
  assert_non_null(brim_linear(g, "block.0/größe", input(g, 2), 3));
  brim_graph_free(g);
}

static void test_the_null_input_among_several_is_named(void **state)
{
  brim_graph *g = graph(2);
  assert_failed(g, brim_add(g, input(g, 2), NULL), "add: input 2 of 2 is NULL");
  g = graph(2);
  assert_failed(g, brim_concat(g, 2, (brim_tensor *[]){input(g, 2), NULL}, 1), "concat: input 2 of 2 is NULL");
}

/* With N = 1 the shapes would broadcast. brim refuses them all the same, because a model must be valid for every N. */
static void test_samples_are_never_repeated_over_a_parameter(void **state)
{
  for (int64_t n = 1; n <= 4; n += 3) {
    brim_graph *g = graph(n);
    brim_tensor *p = brim_parameter_new(g, "p", 2, (int64_t[]){2, 6}, (brim_init){BRIM_INIT_NORMAL, 1});
    assert_failed(g, brim_add(g, input(g, 2), p),
                  n == 1 ? "add: the first dimension of 'x' [1, 6] is N, the samples; that of 'p' [2, 6] must be 1, or "
                           "left out"
                         : "add: 'x' [4, 6] and 'p' [2, 6] do not broadcast");
    g = graph(n);
    p = brim_parameter_new(g, "p", 2, (int64_t[]){4, 6}, (brim_init){BRIM_INIT_NORMAL, 1});
    assert_failed(g, brim_sub(g, p, brim_relu(g, input(g, 2))), "sub: the first dimension of 'relu' [");
    g = graph(n);
    p = brim_parameter_new(g, "p", 2, (int64_t[]){1, 6}, (brim_init){BRIM_INIT_NORMAL, 1});
    assert_int_equal(brim_shape_of(brim_mul(g, p, brim_relu(g, input(g, 2)))).dim[0], n);
    brim_graph_free(g);
  }
}

/* Such a result would have the right shape only for one N. */
static void test_a_result_of_parameters_cannot_replace_samples(void **state)
{
  for (int which = 0; which < 8; which++) {
    static const char *const texts[] = {"concat: 'scale' [2, 6, 6]",          "matmul: 'scale' [2, 6, 6]",
                                        "gather: 'scale' [2, 6, 6]",          "attention: 'scale' [2, 6, 6]",
                                        "attention: 'scale' [2, 6, 6]",       "dropout: 'scale' [2, 6, 6]",
                                        "batch_norm 'bn': 'scale' [2, 6, 6]", "output: 'scale' [2, 6, 6]"};
    brim_graph *g = graph(2);
    const brim_shape shape = {3, {2, 6, 6}};
    brim_tensor *x = brim_graph_tensor(g, BRIM_ROLE_DATA, BRIM_DTYPE_F32, &shape, "x");
    brim_tensor *index = brim_graph_tensor(g, BRIM_ROLE_DATA, BRIM_DTYPE_I32, &shape, "index");
    brim_tensor *p = brim_parameter_new(g, "p", 3, shape.dim, (brim_init){BRIM_INIT_NORMAL, 1});
    brim_tensor *made = brim_scale(g, p, 2), *both[] = {x, made};
    const brim_attention_options attention = {.heads = 1}, dropped = {.heads = 1, .dropout = 0.1};
    switch (which) {
    case 0:
      assert_failed(g, brim_concat(g, 2, both, 1), texts[which]);
      break;
    case 1:
      assert_failed(g, brim_matmul(g, x, made, 0, 0), texts[which]);
      break;
    case 2:
      assert_failed(g, brim_gather(g, made, 1, index), texts[which]);
      break;
    case 3:
      assert_failed(g, brim_attention(g, x, made, x, attention), texts[which]);
      break;
    case 4:
      assert_failed(g, brim_attention(g, made, made, made, dropped), texts[which]);
      break;
    case 5:
      assert_failed(g, brim_dropout(g, made, 0.1), texts[which]);
      break;
    case 6:
      assert_failed(g, brim_batch_norm(g, "bn", made, 1e-5, 0.1), texts[which]);
      break;
    default:
      brim_output(g, made);
      assert_failed(g, NULL, texts[which]);
    }
  }
}

static void test_impossible_shapes_are_reported_as_given(void **state)
{
  brim_graph *g = graph(2);
  assert_failed(g, brim_reshape(g, input(g, 2), 3, (int64_t[]){2, -1, -1}),
                "reshape: [2, 6] cannot become [2, -1, -1]: 'x' must keep its number of elements and its first "
                "dimension (N); dimensions are at least 1, and one may be -1");
  g = graph(2);
  assert_failed(g, brim_reshape(g, input(g, 2), 2, (int64_t[]){-1, 3}), "cannot become [-1, 3]");
  g = graph(2);
  assert_failed(g, brim_reshape(g, input(g, 2), 7, (int64_t[]){2, 1, 1, 1, 1, 1, 6}),
                "reshape: 'x' [2, 6] cannot have 7 dimensions: 1 to 6 are allowed");
  g = graph(2);
  assert_failed(
      g, brim_linear(g, "fc", input(g, 2), (int64_t)1 << 40),
      "tensor 'fc.weight': shape [1099511627776, 6] is too large: it may have at most 1099511627776 elements");
  g = graph(2);
  assert_failed(g, brim_lstm(g, "rnn", input(g, 3), INT64_MAX / 4, (brim_lstm_options){0}),
                "lstm 'rnn': hidden must be in [1,16777216], got 2305843009213693951");
}

static brim_status build_fails_without_a_word(const void *self, brim_graph *g)
{
  (void)g;
  return *(const bool *)self ? brim_fail(BRIM_EINVAL, "images must be square") : BRIM_EINVAL;
}

static void test_a_build_that_fails_without_a_reason_is_reported(void **state)
{
  const brim_model_ops model = {.size = sizeof model, .build = build_fails_without_a_word};
  bool gives_reason = false;
  const brim_graph_options o = {.model = &model,
                                .model_self = &gives_reason,
                                .loss.op = "softmax_cross_entropy",
                                .sample = {1, {6}},
                                .classes = 3,
                                .batch = 2,
                                .real = BRIM_DTYPE_F32};
  brim_graph *g = NULL;
  brim_fail(BRIM_EIO, "an error of long ago");
  assert_int_equal(brim_graph_build(&o, &g), BRIM_EINVAL);
  assert_string_equal(brim_error_text(), "build: the model returned EINVAL without a reason (brim_fail gives one)");
  gives_reason = true;
  assert_int_equal(brim_graph_build(&o, &g), BRIM_EINVAL);
  assert_string_equal(brim_error_text(), "images must be square");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_operations_with_parameters_need_a_name),
      cmocka_unit_test(test_many_parameters_are_distinguished),
      cmocka_unit_test(test_a_layers_initial_values_can_be_replaced),
      cmocka_unit_test(test_names_that_files_cannot_hold_are_refused),
      cmocka_unit_test(test_the_null_input_among_several_is_named),
      cmocka_unit_test(test_samples_are_never_repeated_over_a_parameter),
      cmocka_unit_test(test_a_result_of_parameters_cannot_replace_samples),
      cmocka_unit_test(test_impossible_shapes_are_reported_as_given),
      cmocka_unit_test(test_a_build_that_fails_without_a_reason_is_reported),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
