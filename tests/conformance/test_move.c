/* Tests errors in products and moves of values: every backend refuses an index out of range, and authors of models get
 * errors for shapes that do not fit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/bench.h"
#include "conformance/load.h"

/* ---- indices out of range ---- */

static brim_tensor *make_gather(bench *b)
{
  const brim_shape shape = {3, {b->o.batch, 4, 3}}, index_shape = {3, {b->o.batch, 2, 3}};
  brim_tensor *index = bench_indices(b, &index_shape, 4, "index"); /* tensor 0 */
  return brim_gather(b->g, bench_input(b, &shape, "x"), 1, index);
}
static brim_tensor *make_embedding(bench *b)
{
  brim_tensor *index = bench_indices(b, &(brim_shape){2, {b->o.batch, 6}}, 4, "index"); /* tensor 0 */
  return brim_embedding(b->g, "words", index, 4, 5);
}

/* Runs the first node named `op` with one index too large or negative. */
static void check_refused(const backend *on, brim_tensor *(*make)(bench *b), const char *op, int32_t index,
                          const char *expected)
{
  const bench_row row = {op, make};
  bench *b = bench_create(&(bench_options){.backend = on, .row = &row, .seed = 1, .batch = 3});
  void *in[2], *out[1];
  ((int32_t *)b->memory[0])[2 * 6 + 5] = index; /* in sample 2 of 3 */
  size_t i = 0;
  while (strcmp(b->g->node[i]->op, op) != 0) i++;
  const brim_node *n = b->g->node[i];
  for (uint32_t k = 0; k < 2; k++) {
    const brim_tensor *t = n->in[k];
    in[k] = b->device_memory[t->id];
    if (in[k] != b->memory[t->id])
      assert_int_equal(on->ops->upload(on->self, in[k], b->memory[t->id], t->bytes), BRIM_OK);
  }
  out[0] = b->device_memory[n->out[0]->id];
  const brim_launch launch = {n, b->program.state[i], in, out, b->device_workspace[i], &b->step};
  brim_status status = b->program.kernel[i]->run(on->self, &launch);
  if (status == BRIM_OK) status = on->ops->synchronize(on->self); /* a device may report it later */
  assert_int_equal(status, BRIM_EINVAL);
  assert_string_equal(brim_error_text(), expected);
  bench_free(b);
}

static void check_backend(const char *id, const char *folder)
{
  loaded plugin;
  if (!load_plugin_from(&plugin, folder, "backend", id, NULL)) {
    printf("SKIPPED: backend %s was not built\n", id);
    return;
  }
  const backend on = {id, plugin.plugin->ops, plugin.self};
  check_refused(&on, make_gather, "gather", 4,
                "gather 'gather': index 4 in sample 2 of the micro-batch is not in [0, 4)");
  check_refused(&on, make_gather, "gather_grad", -1,
                "gather_grad 'gather': index -1 in sample 2 of the micro-batch is not in [0, 4)");
  check_refused(&on, make_embedding, "embedding", 1000,
                "embedding 'words': index 1000 in sample 2 of the micro-batch is not in [0, 4)");
  check_refused(&on, make_embedding, "embedding_grad", 4,
                "embedding_grad 'words': index 4 in sample 2 of the micro-batch is not in [0, 4)");
  unload_plugin(&plugin);
}

static void test_reference_refuses_an_index_out_of_range(void **state)
{
  check_backend("reference", "");
}

static void test_cpu_refuses_an_index_out_of_range(void **state)
{
  check_backend("cpu", "");
}

static void test_cuda_refuses_an_index_out_of_range(void **state)
{
  check_backend("cuda", "emulated");
}

/* ---- errors for authors ---- */

static brim_tensor *tensor(brim_graph *g, const char *name, int32_t rank, const int64_t *dim, uint32_t dtype)
{
  brim_shape shape = {rank, {0}};
  for (int32_t d = 0; d < rank; d++) shape.dim[d] = dim[d];
  return brim_graph_tensor(g, BRIM_ROLE_DATA, dtype, &shape, name);
}
/* x [2, 4, 6], y [2, 5, 6], index i32 [2, 4] */
static brim_tensor *x_of(brim_graph *g)
{
  return tensor(g, "x", 3, (int64_t[]){2, 4, 6}, g->real);
}
static brim_tensor *y_of(brim_graph *g)
{
  return tensor(g, "y", 3, (int64_t[]){2, 5, 6}, g->real);
}
static brim_tensor *index_of(brim_graph *g)
{
  return tensor(g, "index", 2, (int64_t[]){2, 4}, BRIM_DTYPE_I32);
}

static void matmul_of_other_depths(brim_graph *g)
{
  brim_matmul(g, x_of(g), y_of(g), 0, 0);
}
static void matmul_of_a_parameter(brim_graph *g)
{
  brim_matmul(g, x_of(g), brim_parameter_new(g, "w", 3, (int64_t[]){2, 6, 3}, (brim_init){0}), 0, 0);
}
static void linear_of_integers(brim_graph *g)
{
  brim_linear(g, "fc", index_of(g), 3);
}
static void parameter_without_a_size(brim_graph *g)
{
  brim_parameter_new(g, "w", 2, (int64_t[]){3, 0}, (brim_init){0});
}
static void parameter_that_starts_nowhere(brim_graph *g)
{
  brim_parameter_new(g, "w", 1, (int64_t[]){3}, (brim_init){BRIM_INIT_CONSTANT, NAN});
}
static void permute_of_samples(brim_graph *g)
{
  brim_permute(g, x_of(g), (int32_t[]){1, 0, 2});
}
static void transpose_of_samples(brim_graph *g)
{
  brim_transpose(g, x_of(g), -1, 0);
}
static void concat_of_other_shapes(brim_graph *g)
{
  brim_tensor *both[] = {x_of(g), y_of(g)};
  brim_concat(g, 2, both, 2);
}
static void concat_of_samples(brim_graph *g)
{
  brim_tensor *both[] = {x_of(g), x_of(g)};
  brim_concat(g, 2, both, 0);
}
static void slice_past_the_end(brim_graph *g)
{
  brim_slice(g, x_of(g), 1, 3, 2);
}
static void slice_of_no_axis(brim_graph *g)
{
  brim_slice(g, x_of(g), 3, 0, 1);
}
static void split_into_unequal_parts(brim_graph *g)
{
  brim_tensor *part[4];
  brim_split(g, x_of(g), 2, 4, part);
  assert_null(part[3]);
}
static void pad_of_samples(brim_graph *g)
{
  brim_pad(g, x_of(g), (int64_t[]){1, 0, 0}, (int64_t[]){0, 0, 0}, 0);
}
static void pad_of_integers_with_a_half(brim_graph *g)
{
  brim_pad(g, index_of(g), (int64_t[]){0, 1}, (int64_t[]){0, 0}, 0.5);
}
static void gather_by_another_shape(brim_graph *g)
{
  brim_gather(g, x_of(g), 1, index_of(g));
}
static void embedding_of_real_numbers(brim_graph *g)
{
  brim_embedding(g, "words", x_of(g), 10, 4);
}

static void test_errors_show_the_wrong_shapes(void **state)
{
  static const struct {
    void (*build)(brim_graph *g);
    const char *text;
  } cases[] = {
      {matmul_of_other_depths, "matmul: 'x' F64 [2, 4, 6] and 'y' F64 [2, 5, 6] must be real numbers [N, ..., M, K] "
                               "and [N, ..., K, P]"},
      {matmul_of_a_parameter, "matmul: 'w' is a parameter and has no dimension N: use brim_linear_with"},
      {linear_of_integers,
       "linear 'fc': input I32 [2, 4] must be real numbers [..., F], and weight 'fc.weight' [3, 4] a parameter"},
      {parameter_without_a_size, "parameter 'w': [3, 0]: every dimension must be at least 1"},
      {parameter_that_starts_nowhere, "parameter 'w': it must start as BRIM_INIT_CONSTANT with a finite value"},
      {permute_of_samples, "permute: order [1, 0, 2] of 'x' [2, 4, 6] must name each axis once, 0 (N) first"},
      {transpose_of_samples,
       "transpose: axis 0 of 'x' [2, 4, 6] is N, the samples of the micro-batch, and cannot be changed"},
      {concat_of_other_shapes,
       "concat: 'x' F64 [2, 4, 6] and 'y' F64 [2, 5, 6] must have the same type, and the same shape "
       "except along axis 2"},
      {concat_of_samples, "concat: axis 0 of 'x' [2, 4, 6] is N"},
      {slice_past_the_end, "slice: 2 values from index 3 along axis 1 do not all lie within 'x' [2, 4, 6]"},
      {slice_of_no_axis, "slice: [2, 4, 6] has no axis 3"},
      {split_into_unequal_parts, "split: 'x' [2, 4, 6] cannot be cut into 4 equal parts along axis 2"},
      {pad_of_samples, "pad: [1, 0, 0] before and [0, 0, 0] after 'x' [2, 4, 6] must be 0 for the first axis (N)"},
      {pad_of_integers_with_a_half, "pad: 'index' holds integers and cannot be padded with 0.5"},
      {gather_by_another_shape, "gather: 'x' [2, 4, 6] by 'index' I32 [2, 4] along axis 1: the index must be I32"},
      {embedding_of_real_numbers, "embedding 'words': 'x' F64 [2, 4, 6] must be indices: I32 [N, ...]"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    brim_graph *g = brim_graph_create(BRIM_DTYPE_F64, 2, true);
    cases[i].build(g);
    if (g->status != BRIM_EINVAL || strncmp(g->error, cases[i].text, strlen(cases[i].text)) != 0)
      fail_msg("expected: %s\ngot: %s", cases[i].text, g->error ? g->error : "no error");
    assert_non_null(strstr(g->error, "test_move.c:"));
    brim_graph_free(g);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_reference_refuses_an_index_out_of_range),
      cmocka_unit_test(test_cpu_refuses_an_index_out_of_range),
      cmocka_unit_test(test_cuda_refuses_an_index_out_of_range),
      cmocka_unit_test(test_errors_show_the_wrong_shapes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
