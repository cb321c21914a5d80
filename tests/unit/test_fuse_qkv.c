/* Tests attention on slices of one tensor: which graphs the fusion pass changes, and into which nodes. Rows of the
 * conformance suite and random graphs compare the numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "brim/brim.h"
#include "graph/fuse.h"
#include "graph/plan.h"

enum { N = 2, LENGTH = 6, SIZE = 4 };

/* A change of the usual graph, in which q, k and v are slices of x. */
typedef struct variant {
  const char *name;
  void (*change)(brim_graph *g, brim_tensor *x, brim_tensor *part[3]);
  int64_t heads, kv_heads, extra; /* extra: further columns of x after those of v */
  const char *ops;                /* the operations of the nodes after fusion */
} variant;

#define SLICES "slice slice slice "
#define ROTARY(x, n, o) ((x) = brim_rotary(g, x, (brim_rotary_options){.heads = n, .base = o}))

static void change_nothing(brim_graph *g, brim_tensor *x, brim_tensor *part[3])
{
  (void)g, (void)x, (void)part;
}
static void rotate_both(brim_graph *g, brim_tensor *x, brim_tensor *part[3])
{
  (void)x;
  ROTARY(part[0], 4, 100);
  ROTARY(part[1], 2, 100);
}
static void rotate_queries(brim_graph *g, brim_tensor *x, brim_tensor *part[3])
{
  (void)x;
  ROTARY(part[0], 4, 100);
}
static void rotate_differently(brim_graph *g, brim_tensor *x, brim_tensor *part[3])
{
  (void)x;
  ROTARY(part[0], 4, 100);
  ROTARY(part[1], 2, 50);
}
static void rotate_all(brim_graph *g, brim_tensor *x, brim_tensor *part[3])
{
  rotate_both(g, x, part);
  ROTARY(part[2], 2, 100);
}
static void rotate_larger_heads(brim_graph *g, brim_tensor *x, brim_tensor *part[3])
{
  (void)x;
  ROTARY(part[0], 2, 100);
  ROTARY(part[1], 1, 100);
}
static void exchange(brim_graph *g, brim_tensor *x, brim_tensor *part[3])
{
  (void)g, (void)x;
  brim_tensor *keys = part[1];
  part[1] = part[2];
  part[2] = keys;
}
static void read_twice(brim_graph *g, brim_tensor *x, brim_tensor *part[3])
{
  (void)x;
  brim_relu(g, part[1]);
}
static void want_a_gradient(brim_graph *g, brim_tensor *x, brim_tensor *part[3])
{
  (void)x;
  brim_autodiff_want(g, part[0]);
}
static void take_others(brim_graph *g, brim_tensor *x, brim_tensor *part[3])
{
  part[2] = brim_slice(g, brim_relu(g, x), 2, 6 * SIZE, 2 * SIZE);
}

static const variant variants[] = {
    {"slices", change_nothing, 3, 3, 0, "attention_qkv "},
    {"grouped", change_nothing, 4, 2, 0, "attention_qkv "},
    {"rotated", rotate_both, 4, 2, 0, "rotary attention_qkv "},
    {"rotated queries", rotate_queries, 4, 2, 0, SLICES "rotary attention "},
    {"two rotations", rotate_differently, 4, 2, 0, SLICES "rotary rotary attention "},
    {"rotated values", rotate_all, 4, 2, 0, SLICES "rotary rotary rotary attention "},
    {"rotated in larger heads", rotate_larger_heads, 4, 2, 0, SLICES "rotary rotary attention "},
    {"another order", exchange, 3, 3, 0, SLICES "attention "},
    {"a second reader", read_twice, 3, 3, 0, SLICES "relu attention "},
    {"a wanted gradient", want_a_gradient, 3, 3, 0, SLICES "attention "},
    {"another tensor", take_others, 4, 2, 0, SLICES "relu slice attention "},
    {"a rest", change_nothing, 3, 3, SIZE, SLICES "attention "},
};

static brim_graph *make(const variant *v)
{
  brim_graph *g = brim_graph_create(BRIM_DTYPE_F32, N, true);
  const int64_t keys = v->kv_heads * SIZE, size[] = {v->heads * SIZE, keys, keys};
  const brim_shape shape = {3, {N, LENGTH, size[0] + 2 * keys + v->extra}};
  brim_tensor *x = brim_graph_tensor(g, BRIM_ROLE_DATA, g->real, &shape, "x"), *part[3];
  for (int64_t i = 0, at = 0; i < 3; at += size[i++]) part[i] = brim_slice(g, x, 2, at, size[i]);
  v->change(g, x, part);
  const brim_attention_options o = {.heads = v->heads, .kv_heads = v->kv_heads, .causal = 1};
  assert_non_null(brim_attention(g, part[0], part[1], part[2], o));
  return g;
}

static void expect_ops(const brim_graph *g, const char *name, const char *ops)
{
  char text[256] = "";
  for (size_t i = 0; i < g->node_count; i++) {
    assert_int_equal(g->node[i]->index, i);
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s ", g->node[i]->op);
  }
  if (strcmp(text, ops) != 0) fail_msg("%s: %s, not %s", name, text, ops);
}

static void test_slices_of_one_tensor_are_read_from_it(void **state)
{
  for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
    brim_graph *g = make(&variants[i]);
    brim_graph_fuse(g, BRIM_FUSE_ALL, NULL, NULL);
    expect_ops(g, variants[i].name, variants[i].ops);
    brim_graph_free(g);
  }
}

static void test_the_rotation_takes_the_heads_of_queries_and_keys(void **state)
{
  brim_graph *g = make(&variants[2]);
  brim_graph_fuse(g, BRIM_FUSE_QKV, NULL, NULL);
  const brim_node *rotary = g->node[0], *attention = g->node[1];
  assert_int_equal(rotary->attr.rotary.heads, 8);
  assert_int_equal(rotary->attr.rotary.turned, 6);
  assert_int_equal(rotary->out[0]->bytes, rotary->in[0]->bytes);
  assert_ptr_equal(attention->in[0], rotary->out[0]);
  assert_int_equal(attention->in_count, 1);
  brim_graph_free(g);
}

static bool offers_others(const void *arg, const char *op)
{
  (void)arg;
  return strcmp(op, "attention_qkv") != 0;
}

static void test_slices_stay_if_the_backend_or_the_user_does_not_want_it(void **state)
{
  brim_graph *g = make(&variants[0]);
  brim_graph_fuse(g, BRIM_FUSE_ALL, offers_others, NULL);
  brim_graph_fuse(g, BRIM_FUSE_ALL & ~(uint64_t)BRIM_FUSE_QKV, NULL, NULL);
  expect_ops(g, "not wanted", SLICES "attention ");
  brim_graph_free(g);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_slices_of_one_tensor_are_read_from_it),
      cmocka_unit_test(test_the_rotation_takes_the_heads_of_queries_and_keys),
      cmocka_unit_test(test_slices_stay_if_the_backend_or_the_user_does_not_want_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
