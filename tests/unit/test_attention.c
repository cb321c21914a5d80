/* Errors for wrong shapes in calls of attention and rotary embedding, and the operations' form in evaluation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "brim/brim.h"
#include "graph/graph.h"

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
  (void)state;
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
  (void)state;
  check_rotary(2, 0, (brim_rotary_options){.heads = 1},
               "rotary: input must be [N, T, heads * size], got 'the.x' [2, 5]");
  check_rotary(3, 12, (brim_rotary_options){.heads = 5}, "heads must divide the last dimension of 'the.x' [2, 5, 12]");
  check_rotary(3, 12, (brim_rotary_options){.heads = 4}, "dims must be even, from 2 to a head's 3 elements, got 3");
  check_rotary(3, 12, (brim_rotary_options){.heads = 2, .dims = 8}, "from 2 to a head's 6 elements, got 8");
  check_rotary(3, 12, (brim_rotary_options){.heads = 2, .base = -1}, "base must be greater than 0, got -1");
}

static void test_attention_has_no_dropout_in_evaluation(void **state)
{
  (void)state;
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

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_attention_says_which_shapes_do_not_fit),
      cmocka_unit_test(test_rotary_says_which_shapes_do_not_fit),
      cmocka_unit_test(test_attention_has_no_dropout_in_evaluation),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
