/* Tests the errors for wrong shapes in calls of attention and rotary embedding, and the form of these operations in
 * evaluation and with documents. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "brim/brim.h"
#include "graph/documents.h"

#define N 2

static brim_tensor *tensor(brim_graph *g, const char *name, int32_t rank, int64_t a, int64_t b)
{
  return brim_graph_tensor(g, BRIM_ROLE_DATA, g->real, &(brim_shape){rank, {N, a, b}}, name);
}

/* Asserts that the graph failed with this text and names this file; frees the graph. */
static void assert_failed(brim_graph *g, const brim_tensor *result, const char *text)
{
  assert_null(result);
  assert_int_equal(g->status, BRIM_EINVAL);
  if (!strstr(g->error, text)) fail_msg("'%s' is not in: %s", text, g->error);
  assert_non_null(strstr(g->error, "\n  test_attention.c:"));
  brim_graph_free(g);
}

static void check_attention(const brim_shape *q, const brim_shape *k, const brim_shape *v, brim_attention_options o,
                            const char *text)
{
  brim_graph *g = brim_graph_create(BRIM_DTYPE_F32, N, true);
  brim_tensor *in[3];
  const brim_shape *const shape[] = {q, k, v};
  static const char *const name[] = {"the.q", "the.k", "the.v"};
  for (int i = 0; i < 3; i++) in[i] = brim_graph_tensor(g, BRIM_ROLE_DATA, g->real, shape[i], name[i]);
  assert_failed(g, brim_attention(g, in[0], in[1], in[2], o), text);
}

static void test_attention_says_which_shapes_do_not_fit(void **state)
{
  const brim_shape x = {3, {N, 5, 12}}, flat = {2, {N, 12}}, other_samples = {3, {3, 5, 12}}, narrow = {3, {N, 5, 8}},
                   longer = {3, {N, 6, 12}};
  const brim_attention_options four = {.heads = 4};
  check_attention(&flat, &x, &x, four, "attention: q must be [N, length, heads * size], got 'the.q' [2, 12]");
  check_attention(&x, &other_samples, &x, four, "k must be [N, length, heads * size], got 'the.k' [3, 5, 12]");
  check_attention(&x, &x, &x, (brim_attention_options){.heads = 5},
                  "heads must divide the last dimension of q 'the.q' [2, 5, 12], got 5");
  check_attention(&x, &x, &x, (brim_attention_options){0}, "heads must divide the last dimension of q");
  check_attention(&x, &x, &x, (brim_attention_options){.heads = 4, .kv_heads = 3},
                  "kv_heads must divide the 4 heads, got 3");
  check_attention(&x, &narrow, &narrow, four,
                  "q 'the.q' [2, 5, 12] with 4 heads of 3 and 4 kv_heads needs k [N, S, 12], got 'the.k' [2, 5, 8]");
  check_attention(&x, &x, &longer, four, "k 'the.k' [2, 5, 12] and v 'the.v' [2, 6, 12] must have the same shape");
  check_attention(&x, &x, &x, (brim_attention_options){.heads = 4, .dropout = 1}, "dropout must be in [0,1), got 1");
}

static void check_rotary(int32_t rank, int64_t width, brim_rotary_options o, const char *text)
{
  brim_graph *g = brim_graph_create(BRIM_DTYPE_F32, N, true);
  assert_failed(g, brim_rotary(g, tensor(g, "the.x", rank, 5, width), o), text);
}

static void test_rotary_says_which_shapes_do_not_fit(void **state)
{
  check_rotary(2, 0, (brim_rotary_options){.heads = 1},
               "rotary: input must be [N, T, heads * size], got 'the.x' [2, 5]");
  check_rotary(3, 12, (brim_rotary_options){.heads = 5}, "heads must divide the last dimension of 'the.x' [2, 5, 12]");
  check_rotary(3, 12, (brim_rotary_options){.heads = 4}, "dims must be even, from 2 to a head's 3 elements, got 3");
  check_rotary(3, 12, (brim_rotary_options){.heads = 2, .dims = 8}, "from 2 to a head's 6 elements, got 8");
  check_rotary(3, 12, (brim_rotary_options){.heads = 2, .base = -1}, "base must be greater than 0, got -1");
}

static void test_attention_has_no_dropout_in_evaluation(void **state)
{
  for (int training = 0; training < 2; training++) {
    brim_graph *g = brim_graph_create(BRIM_DTYPE_F32, N, training);
    brim_tensor *x = tensor(g, "x", 3, 5, 12);
    const brim_attention_options options = {.heads = 3, .dropout = 0.5};
    brim_attention(g, x, x, x, options);
    brim_attention(g, x, x, x, options);
    const brim_attention_attr *first = &g->node[0]->attr.attention, *second = &g->node[1]->attr.attention;
    assert_true(first->dropout_p == (training ? 0.5 : 0));
    assert_true(first->scale == 0.5 && first->kv_heads == 3);
    assert_true(first->stream != second->stream);
    brim_graph_free(g);
  }
}

static void check_limits(brim_attention_options o, brim_attention_limits limits, const char *text)
{
  brim_graph *g = brim_graph_create(BRIM_DTYPE_F32, N, true);
  brim_tensor *x = tensor(g, "x", 3, 5, 12);
  assert_failed(g, brim_attention_limited(g, x, x, x, o, &limits), text);
}

static void test_limits_are_checked(void **state)
{
  const brim_attention_options causal = {.heads = 2, .causal = 1}, whole = {.heads = 2};
  const uint32_t size = sizeof(brim_attention_limits);
  check_limits(whole, (brim_attention_limits){size, .window = 2}, "a window needs causal attention");
  check_limits(causal, (brim_attention_limits){size, .window = -1}, "window must not be negative, got -1");
  check_limits(causal, (brim_attention_limits){size, .softcap = -2}, "softcap must not be negative, got -2");
  check_limits(causal, (brim_attention_limits){0}, "limits: size must be set, got 0");
}

/* The graph then computes a sample as without a window. */
static void test_a_window_that_limits_nothing_is_left_out(void **state)
{
  brim_graph *g = brim_graph_create(BRIM_DTYPE_F32, N, true);
  brim_tensor *x = tensor(g, "x", 3, 5, 12);
  for (int64_t window = 4; window < 7; window++) {
    const brim_attention_limits limits = {sizeof limits, window, 0};
    brim_attention_limited(g, x, x, x, (brim_attention_options){.heads = 2, .causal = 1}, &limits);
    assert_int_equal(g->node[g->node_count - 1]->attr.attention.window, window == 4 ? 4 : 0);
  }
  brim_graph_free(g);
}

/* ---- documents ---- */

#define T 6

typedef brim_tensor *(*body)(brim_graph *g, brim_tensor *x);
static body body_now;

static brim_status build_body(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_embedding(g, "words", brim_input(g), brim_classes(g), 8);
  x = body_now(g, x);
  brim_output(g, brim_linear(g, "head", x, brim_classes(g)));
  return BRIM_OK;
}

static brim_status build_documents(body of, brim_graph **out)
{
  static const brim_model_ops model = {.size = sizeof model, .build = build_body};
  body_now = of;
  return brim_graph_build(&(brim_graph_options){.model = &model,
                                                .loss = {.op = "softmax_cross_entropy", .id = "cross_entropy"},
                                                .sample = {1, {T}},
                                                .task = BRIM_TASK_TOKENS,
                                                .documents = true,
                                                .classes = 5,
                                                .batch = N,
                                                .real = BRIM_DTYPE_F32,
                                                .training = true},
                          out);
}

static brim_tensor *of_attention(brim_graph *g, brim_tensor *x)
{
  brim_tensor *q = brim_rotary(g, x, (brim_rotary_options){.heads = 2});
  return brim_attention(g, q, x, x, (brim_attention_options){.heads = 2, .causal = 1});
}
static brim_tensor *of_nothing(brim_graph *g, brim_tensor *x)
{
  return brim_relu(g, x);
}
static brim_tensor *of_both_sides(brim_graph *g, brim_tensor *x)
{
  return brim_attention(g, x, x, x, (brim_attention_options){.heads = 2});
}
static brim_tensor *of_few(brim_graph *g, brim_tensor *x)
{
  brim_tensor *few = brim_slice(g, x, 1, 0, 3);
  return brim_attention(g, x, few, few, (brim_attention_options){.heads = 2, .causal = 1});
}

static void test_attention_and_rotary_take_the_places(void **state)
{
  brim_graph *g = NULL;
  assert_int_equal(build_documents(of_attention, &g), BRIM_OK);
  assert_int_equal(g->input->shape.dim[1], 2 * T);
  assert_int_equal(brim_input(g)->shape.dim[1], T);
  size_t with = 0;
  for (size_t i = 0; i < g->node_count; i++)
    if (strstr(g->node[i]->op, "attention") || strstr(g->node[i]->op, "rotary"))
      with += g->node[i]->in[g->node[i]->in_count - 1] == brim_positions(g);
  assert_int_equal(with, 4); /* two nodes, and their gradients */
  brim_graph_free(g);
}

static void test_models_that_would_mix_documents_are_refused(void **state)
{
  static const struct {
    body of;
    const char *text;
  } cases[] = {{of_nothing, "the model has no attention and does not use brim_positions"},
               {of_both_sides, "needs causal attention with as many keys as queries"},
               {of_few, "needs causal attention with as many keys as queries"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    brim_graph *g = NULL;
    assert_int_not_equal(build_documents(cases[i].of, &g), BRIM_OK);
    if (!strstr(brim_error_text(), cases[i].text)) fail_msg("'%s' is not in: %s", cases[i].text, brim_error_text());
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_attention_says_which_shapes_do_not_fit),
      cmocka_unit_test(test_rotary_says_which_shapes_do_not_fit),
      cmocka_unit_test(test_attention_has_no_dropout_in_evaluation),
      cmocka_unit_test(test_limits_are_checked),
      cmocka_unit_test(test_a_window_that_limits_nothing_is_left_out),
      cmocka_unit_test(test_attention_and_rotary_take_the_places),
      cmocka_unit_test(test_models_that_would_mix_documents_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
