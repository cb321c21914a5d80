/* Functions of each element, softmax, operations on tensors that broadcast and sums over axes, on the reference backend
 * against PyTorch in double precision, forward and backward. The fixture and what is in it:
 * tests/golden/make_pointwise.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/bench.h"
#include "conformance/golden.h"
#include "conformance/load.h"

static golden fixture;
static loaded plugin;
static const char *prefix; /* of the case that a row below builds */

/* Sources are named as the fixture's tensors are, and get their numbers. */
static brim_tensor *input(bench *b, const char *name)
{
  return bench_input(b, &golden_find(&fixture, prefix, name)->shape, name);
}
static brim_tensor *parameter(bench *b, const char *name)
{
  const brim_shape shape = golden_find(&fixture, prefix, name)->shape;
  return brim_parameter_new(b->g, name, shape.rank, shape.dim, (brim_init){BRIM_INIT_UNIFORM, 1});
}

/* Functions of x, by the name of the case. */
static brim_tensor *make_gelu(bench *b)
{
  return brim_gelu(b->g, input(b, "x"), prefix[4] - '0');
}
static brim_tensor *make_leaky_relu(bench *b)
{
  return brim_leaky_relu(b->g, input(b, "x"), 0.2);
}
static brim_tensor *make_silu(bench *b)
{
  return brim_silu(b->g, input(b, "x"));
}
static brim_tensor *make_sigmoid(bench *b)
{
  return brim_sigmoid(b->g, input(b, "x"));
}
static brim_tensor *make_tanh(bench *b)
{
  return brim_tanh(b->g, input(b, "x"));
}
static brim_tensor *make_exp(bench *b)
{
  return brim_exp(b->g, input(b, "x"));
}
static brim_tensor *make_scale(bench *b)
{
  return brim_scale(b->g, input(b, "x"), -1.5);
}
static brim_tensor *make_softmax(bench *b)
{
  return brim_softmax(b->g, input(b, "x"));
}
static brim_tensor *make_log_softmax(bench *b)
{
  return brim_log_softmax(b->g, input(b, "x"));
}

static brim_tensor *make_affine(bench *b)
{
  brim_tensor *scaled = brim_mul(b->g, input(b, "x"), parameter(b, "p_scale"));
  return brim_add(b->g, scaled, parameter(b, "p_shift"));
}
static brim_tensor *make_turned(bench *b)
{
  brim_tensor *x = input(b, "x"), *difference = brim_sub(b->g, parameter(b, "p_a"), x);
  return brim_div(b->g, difference, parameter(b, "p_b"));
}
static brim_tensor *make_outer(bench *b)
{
  brim_tensor *x = input(b, "x");
  return brim_div(b->g, x, input(b, "z"));
}
static brim_tensor *make_table(bench *b)
{
  brim_tensor *x = input(b, "x"), *row = parameter(b, "p_row");
  return brim_add(b->g, x, brim_mul(b->g, row, parameter(b, "p_column")));
}
static brim_tensor *make_square(bench *b)
{
  brim_tensor *x = input(b, "x");
  return brim_sub(b->g, brim_mul(b->g, x, x), x);
}
static brim_tensor *make_sum(bench *b)
{
  return brim_sum(b->g, input(b, "x"), 1, (int32_t[]){-1}, 0);
}
static brim_tensor *make_mean(bench *b)
{
  return brim_mean(b->g, input(b, "x"), 2, (int32_t[]){3, 1}, 1);
}

/* ---- a case ---- */

static void put(bench *b, const brim_tensor *t, const char *name)
{
  const golden_tensor *from = golden_find(&fixture, prefix, name);
  memcpy(b->memory[t->id], from->value, (size_t)brim_shape_count(&t->shape) * sizeof *from->value);
}

static void check(const bench *b, const char *name, const brim_tensor *t)
{
  double *values = bench_values_of(b, t);
  golden_check(&fixture, prefix, name, &t->shape, values);
  free(values);
}

static void check_case(const char *of, brim_tensor *(*make)(bench *b))
{
  const backend reference = {"reference", plugin.plugin->ops, plugin.self};
  const bench_row row = {of, make};
  prefix = of;
  bench *b = bench_create(&(bench_options){.backend = &reference,
                                           .row = &row,
                                           .seed = 1,
                                           .batch = golden_find(&fixture, prefix, "y")->shape.dim[0],
                                           .gradients_at_zero = true});
  const brim_graph *g = b->g;
  put(b, b->seed, "dy");
  for (size_t i = 0; i < g->gradient_count; i++)
    if (g->tensor[i]->producer < 0 && g->tensor[i]->role != BRIM_ROLE_GRADIENT && g->tensor[i] != b->seed)
      put(b, g->tensor[i], g->tensor[i]->name);
  bench_run(b, 0, g->node_count);
  check(b, "y", b->result);
  for (size_t i = 0; i < g->gradient_count; i++) {
    const brim_tensor *x = g->tensor[i];
    const brim_tensor *gradient =
        x->role == BRIM_ROLE_PARAMETER ? brim_graph_gradient(g, x) : brim_autodiff_gradient(g, x);
    char name[32];
    snprintf(name, sizeof name, "d%s", x->name);
    if (x->producer < 0 && gradient && x->dtype == BRIM_DTYPE_F64 && x != b->seed) check(b, name, gradient);
  }
  bench_free(b);
}

static void test_functions_are_what_pytorch_computes(void **state)
{
  (void)state;
  check_case("gelu0.", make_gelu);
  check_case("gelu1.", make_gelu);
  check_case("gelu2.", make_gelu);
  check_case("leaky_relu.", make_leaky_relu);
  check_case("silu.", make_silu);
  check_case("sigmoid.", make_sigmoid);
  check_case("tanh.", make_tanh);
  check_case("exp.", make_exp);
  check_case("scale.", make_scale);
  check_case("softmax.", make_softmax);
  check_case("log_softmax.", make_log_softmax);
}

static void test_broadcasting_and_its_gradients_are_what_pytorch_computes(void **state)
{
  (void)state;
  check_case("affine.", make_affine);
  check_case("turned.", make_turned);
  check_case("outer.", make_outer);
  check_case("table.", make_table);
  check_case("square.", make_square);
}

static void test_sums_over_axes_are_what_pytorch_computes(void **state)
{
  (void)state;
  check_case("sum.", make_sum);
  check_case("mean.", make_mean);
}

static int set_up(void **state)
{
  (void)state;
  golden_read(&fixture, "pointwise.txt");
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
      cmocka_unit_test(test_functions_are_what_pytorch_computes),
      cmocka_unit_test(test_broadcasting_and_its_gradients_are_what_pytorch_computes),
      cmocka_unit_test(test_sums_over_axes_are_what_pytorch_computes),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
