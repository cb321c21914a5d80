/* Compares the normalisations on the reference backend with PyTorch in double precision: results, gradients, and batch
 * norm's running averages after one step, with one group of samples and with several. tests/golden/make_norm.py makes
 * and describes the fixture. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/golden_case.h"
#include "graph/fuse.h"

#define EPS 1e-5
#define MOMENTUM 0.1

const char golden_case_fixture[] = "norm.txt";

static brim_tensor *make_layer_norm(bench *b)
{
  return brim_layer_norm(b->g, "norm", golden_case_input(b, "x"), EPS);
}

static brim_tensor *make_rms_norm(bench *b)
{
  return brim_rms_norm(b->g, "norm", golden_case_input(b, "x"), EPS);
}

static brim_tensor *make_group_norm(bench *b)
{
  return brim_group_norm(b->g, "norm", golden_case_input(b, "x"), 3, EPS);
}

/* Builds a batch norm. In training, the update of the buffers follows directly. */
static brim_tensor *make_batch_norm(bench *b)
{
  brim_graph *g = b->g;
  brim_tensor *y = brim_batch_norm(g, "norm", golden_case_input(b, "x"), EPS, MOMENTUM);
  for (size_t i = 0; g->training && i < g->parameter_count; i++) {
    const brim_parameter *p = &g->parameter[i];
    if (!p->is_buffer) continue;
    brim_tensor *const in[] = {p->value, p->gradient};
    const brim_attr attr = {.moving_average = {p->momentum}};
    brim_graph_node_into(g, "moving_average", NULL, in, 2, &in[0], 1, &attr);
  }
  return y;
}

static bool end_adds;

/* Builds a batch norm with relu, or with an addition and relu, as one node. */
static brim_tensor *make_end(bench *b)
{
  brim_graph *g = b->g;
  brim_tensor *x = golden_case_input(b, "x"), *a = end_adds ? golden_case_input(b, "a") : NULL;
  g->norm_group = (int64_t)golden_case_find("group")->value[0];
  brim_tensor *y = brim_batch_norm(g, "norm", x, EPS, MOMENTUM);
  y = brim_relu(g, a ? brim_add(g, y, a) : y);
  brim_graph_fuse(g, BRIM_FUSE_ALL, NULL, NULL);
  assert_int_equal(g->node_count, 1);
  return y;
}

static void test_layer_norm_matches_pytorch(void **state)
{
  golden_case_check("layer_norm.", make_layer_norm);
}

static void test_rms_norm_matches_pytorch(void **state)
{
  golden_case_check("rms_norm.", make_rms_norm);
}

static void test_group_norm_matches_pytorch(void **state)
{
  golden_case_check("group_norm.", make_group_norm);
}

static const brim_tensor *buffer_of(const bench *b, const char *name)
{
  for (size_t i = 0; i < b->g->parameter_count; i++)
    if (strcmp(b->g->parameter[i].value->name, name) == 0) return b->g->parameter[i].value;
  fail_msg("there is no buffer %s", name);
  return NULL;
}

/* Checks a step of training, then evaluation with the resulting running averages. */
static void check_batch_norm(const char *name, int64_t group, int64_t groups)
{
  const bench_row row = {name, make_batch_norm, .norm_group = group};
  bench *b = golden_case_create(&row, false);
  golden_case_put(b, buffer_of(b, "norm.running_mean"), "running_mean");
  golden_case_put(b, buffer_of(b, "norm.running_var"), "running_var");
  b->step.norm_groups = groups;
  golden_case_run(b);
  golden_case_compare(b, buffer_of(b, "norm.running_mean"), "mean_after");
  golden_case_compare(b, buffer_of(b, "norm.running_var"), "var_after");
  bench_free(b);
  b = golden_case_create(&row, true);
  golden_case_put(b, buffer_of(b, "norm.running_mean"), "mean_after");
  golden_case_put(b, buffer_of(b, "norm.running_var"), "var_after");
  bench_run(b, 0, b->g->node_count);
  golden_case_compare(b, b->result, "inference");
  bench_free(b);
}

static void test_batch_norm_matches_pytorch(void **state)
{
  check_batch_norm("batch_norm.", 5, 1);
  check_batch_norm("batch_norm.", 16, 1); /* fewer samples than a group has */
  check_batch_norm("batch_norm_sequence.", 4, 1);
}

static void test_batch_norm_takes_each_group_by_itself(void **state)
{
  check_batch_norm("batch_norm_groups.", 3, 2); /* the last group includes the remainder */
  check_batch_norm("batch_norm_flat.", 3, 3);
}

static void test_relu_after_batch_norm_matches_pytorch(void **state)
{
  for (int i = 0; i < 8; i++) {
    char name[24];
    snprintf(name, sizeof name, "end%d.", i);
    end_adds = i % 2 == 1;
    const bench_row row = {name, make_end};
    bench *b = golden_case_create(&row, false);
    assert_string_equal(b->g->node[1]->op, end_adds ? "batch_norm+add+relu_grad" : "batch_norm+relu_grad");
    golden_case_run(b);
    bench_free(b);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_layer_norm_matches_pytorch),
      cmocka_unit_test(test_rms_norm_matches_pytorch),
      cmocka_unit_test(test_group_norm_matches_pytorch),
      cmocka_unit_test(test_batch_norm_matches_pytorch),
      cmocka_unit_test(test_batch_norm_takes_each_group_by_itself),
      cmocka_unit_test(test_relu_after_batch_norm_matches_pytorch),
  };
  return cmocka_run_group_tests(tests, golden_case_set_up, golden_case_tear_down);
}
