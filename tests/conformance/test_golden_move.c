/* linear over rows, matmul, gather, embedding, pad, and permute, concat and slice together, on the reference backend
 * against PyTorch in double precision, forward and backward. The fixture and what is in it: tests/golden/make_move.py.
 */
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
static brim_tensor *indices(bench *b)
{
  return bench_indices(b, &golden_find(&fixture, prefix, "index")->shape, 1, "index");
}

static brim_tensor *make_linear(bench *b)
{
  brim_tensor *weight = parameter(b, "weight"), *bias = parameter(b, "bias");
  return brim_linear_with(b->g, "fc", input(b, "input"), weight, bias);
}
static brim_tensor *make_matmul(bench *b)
{
  brim_tensor *a = input(b, "a");
  return brim_matmul(b->g, a, input(b, "b"), prefix[6] == '1', prefix[7] == '1');
}
static brim_tensor *make_gather(bench *b)
{
  brim_tensor *x = input(b, "x");
  return brim_gather(b->g, x, 1, indices(b));
}
static brim_tensor *make_embedding(bench *b)
{
  brim_tensor *weight = parameter(b, "weight");
  return brim_embedding_with(b->g, indices(b), weight);
}
static brim_tensor *make_pad(bench *b)
{
  return brim_pad(b->g, input(b, "x"), (int64_t[]){0, 1, 0, 2}, (int64_t[]){0, 1, 1, 0}, -0.5);
}
static brim_tensor *make_mixed(bench *b)
{
  brim_tensor *a = input(b, "a");
  brim_tensor *both[] = {input(b, "b"), brim_permute(b->g, a, (int32_t[]){0, 3, 1, 2})};
  return brim_slice(b->g, brim_concat(b->g, 2, both, 2), -2, 1, 4);
}

/* ---- a case ---- */

static void put(bench *b, const brim_tensor *t, const char *name)
{
  const golden_tensor *from = golden_find(&fixture, prefix, name);
  for (int64_t i = 0; i < brim_shape_count(&t->shape); i++)
    if (t->dtype == BRIM_DTYPE_I32)
      ((int32_t *)b->memory[t->id])[i] = (int32_t)from->value[i];
    else
      ((double *)b->memory[t->id])[i] = from->value[i];
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

static void test_products_are_what_pytorch_computes(void **state)
{
  (void)state;
  check_case("linear.", make_linear);
  check_case("matmul00.", make_matmul);
  check_case("matmul01.", make_matmul);
  check_case("matmul10.", make_matmul);
  check_case("matmul11.", make_matmul);
}

static void test_looking_up_is_what_pytorch_computes(void **state)
{
  (void)state;
  check_case("gather.", make_gather);
  check_case("embedding.", make_embedding);
}

static void test_moving_is_what_pytorch_computes(void **state)
{
  (void)state;
  check_case("pad.", make_pad);
  check_case("mixed.", make_mixed);
}

static int set_up(void **state)
{
  (void)state;
  golden_read(&fixture, "move.txt");
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
      cmocka_unit_test(test_products_are_what_pytorch_computes),
      cmocka_unit_test(test_looking_up_is_what_pytorch_computes),
      cmocka_unit_test(test_moving_is_what_pytorch_computes),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
