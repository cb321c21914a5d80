/* The normalisations on the reference backend compared with PyTorch in double precision: results, gradients, and batch
 * norm's running averages after one step, with one group of samples and with several. tests/golden/make_norm.py makes
 * and describes the fixture. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/bench.h"
#include "conformance/golden.h"
#include "conformance/load.h"
#include "graph/fuse.h"

#define EPS 1e-5
#define MOMENTUM 0.1

static loaded plugin;
static backend reference;
static golden fixture;
static const char *fixture_case; /* "layer_norm." */

static const golden_tensor *find(const char *name)
{
  return golden_find(&fixture, fixture_case, name);
}

static brim_tensor *input(bench *b)
{
  return bench_input(b, &find("x")->shape, "x");
}

static brim_tensor *make_layer_norm(bench *b)
{
  return brim_layer_norm(b->g, "norm", input(b), EPS);
}

static brim_tensor *make_rms_norm(bench *b)
{
  return brim_rms_norm(b->g, "norm", input(b), EPS);
}

static brim_tensor *make_group_norm(bench *b)
{
  return brim_group_norm(b->g, "norm", input(b), 3, EPS);
}

/* In training, the update of the buffers follows directly. */
static brim_tensor *make_batch_norm(bench *b)
{
  brim_graph *g = b->g;
  brim_tensor *y = brim_batch_norm(g, "norm", input(b), EPS, MOMENTUM);
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

/* A batch norm with relu, or with an addition and relu, as one node. */
static brim_tensor *make_end(bench *b)
{
  brim_graph *g = b->g;
  brim_tensor *x = input(b), *a = end_adds ? bench_input(b, &x->shape, "a") : NULL;
  brim_tensor *y = brim_batch_norm(g, "norm", x, EPS, MOMENTUM);
  y = brim_relu(g, a ? brim_add(g, y, a) : y);
  brim_graph_fuse(g, BRIM_FUSE_ALL, NULL, NULL);
  assert_int_equal(g->node_count, 1);
  return y;
}

static brim_tensor *parameter_of(const bench *b, const char *name, bool gradient)
{
  for (size_t i = 0; i < b->g->parameter_count; i++)
    if (strcmp(b->g->parameter[i].value->name + strlen("norm."), name) == 0)
      return gradient ? b->g->parameter[i].gradient : b->g->parameter[i].value;
  fail_msg("there is no parameter norm.%s", name);
  return NULL;
}

static void set(const bench *b, const brim_tensor *t, const char *name)
{
  const golden_tensor *from = find(name);
  assert_true(brim_shape_equal(&from->shape, &t->shape));
  memcpy(b->memory[t->id], from->value, (size_t)brim_shape_count(&t->shape) * sizeof *from->value);
}

static void check(const bench *b, const brim_tensor *t, const char *name)
{
  golden_check(&fixture, fixture_case, name, &t->shape, b->memory[t->id]);
}

static bench *create(const char *name, const bench_row *row, bool evaluate)
{
  fixture_case = name;
  reference = (backend){"reference", plugin.plugin->ops, plugin.self};
  bench *b = bench_create(&(bench_options){.backend = &reference,
                                           .row = row,
                                           .seed = 1,
                                           .batch = find("x")->shape.dim[0],
                                           .gradients_at_zero = true,
                                           .evaluate = evaluate});
  set(b, b->g->tensor[0], "x");
  set(b, parameter_of(b, "weight", false), "weight");
  if (row->make != make_rms_norm) set(b, parameter_of(b, "bias", false), "bias");
  return b;
}

static bench *check_gradients(bench *b, bool bias)
{
  set(b, b->seed, "dy");
  bench_run(b, 0, b->g->node_count);
  check(b, b->result, "y");
  check(b, brim_autodiff_gradient(b->g, b->g->tensor[0]), "dx");
  check(b, parameter_of(b, "weight", true), "dweight");
  if (bias) check(b, parameter_of(b, "bias", true), "dbias");
  return b;
}

static void test_layer_norm_matches_pytorch(void **state)
{
  (void)state;
  static const bench_row row = {"layer_norm", make_layer_norm};
  bench_free(check_gradients(create("layer_norm.", &row, false), true));
}

static void test_rms_norm_matches_pytorch(void **state)
{
  (void)state;
  static const bench_row row = {"rms_norm", make_rms_norm};
  bench_free(check_gradients(create("rms_norm.", &row, false), false));
}

static void test_group_norm_matches_pytorch(void **state)
{
  (void)state;
  static const bench_row row = {"group_norm", make_group_norm};
  bench_free(check_gradients(create("group_norm.", &row, false), true));
}

/* A step of training, then evaluation with the resulting running averages. */
static void check_batch_norm(const char *name, int64_t group, int64_t groups)
{
  const bench_row row = {"batch_norm", make_batch_norm, .norm_group = group};
  bench *b = create(name, &row, false);
  set(b, parameter_of(b, "running_mean", false), "running_mean");
  set(b, parameter_of(b, "running_var", false), "running_var");
  b->step.norm_groups = groups;
  check_gradients(b, true);
  check(b, parameter_of(b, "running_mean", false), "mean_after");
  check(b, parameter_of(b, "running_var", false), "var_after");
  bench_free(b);
  b = create(name, &row, true);
  set(b, parameter_of(b, "running_mean", false), "mean_after");
  set(b, parameter_of(b, "running_var", false), "var_after");
  bench_run(b, 0, b->g->node_count);
  check(b, b->result, "inference");
  bench_free(b);
}

static void test_batch_norm_matches_pytorch(void **state)
{
  (void)state;
  check_batch_norm("batch_norm.", 5, 1);
  check_batch_norm("batch_norm.", 16, 1); /* fewer samples than a group has */
  check_batch_norm("batch_norm_sequence.", 4, 1);
}

static void test_batch_norm_takes_each_group_by_itself(void **state)
{
  (void)state;
  check_batch_norm("batch_norm_groups.", 3, 2); /* the last group includes the remainder */
  check_batch_norm("batch_norm_flat.", 3, 3);
}

static void test_relu_after_batch_norm_matches_pytorch(void **state)
{
  (void)state;
  for (int i = 0; i < 8; i++) {
    char name[8];
    snprintf(name, sizeof name, "end%d.", i);
    fixture_case = name;
    end_adds = i % 2 == 1;
    const bench_row row = {"batch_norm", make_end, .norm_group = (int64_t)find("group")->value[0]};
    bench *b = create(name, &row, false);
    assert_string_equal(b->g->node[1]->op, end_adds ? "batch_norm+add+relu_grad" : "batch_norm+relu_grad");
    if (end_adds) set(b, b->g->tensor[1], "a");
    check_gradients(b, true);
    if (end_adds) check(b, brim_autodiff_gradient(b->g, b->g->tensor[1]), "da");
    bench_free(b);
  }
}

static int set_up(void **state)
{
  (void)state;
  golden_read(&fixture, "norm.txt");
  return load_plugin(&plugin, "backend", "reference", NULL) ? 0 : -1;
}

static int tear_down(void **state)
{
  (void)state;
  unload_plugin(&plugin);
  brim_arena_release(&fixture.arena);
  return 0;
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
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
