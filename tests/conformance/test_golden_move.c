/* Compares linear over rows, matmul, gather, embedding, pad, and permute, concat and slice together, on the reference
 * backend, with PyTorch in double precision, forward and backward. tests/golden/make_move.py makes and describes the
 * fixture. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/golden_case.h"

const char golden_case_fixture[] = "move.txt";

static brim_tensor *make_linear(bench *b)
{
  brim_tensor *weight = golden_case_parameter(b, "weight"), *bias = golden_case_parameter(b, "bias");
  return brim_linear_with(b->g, "fc", golden_case_input(b, "input"), weight, bias);
}
static brim_tensor *make_matmul(bench *b)
{
  brim_tensor *a = golden_case_input(b, "a");
  return brim_matmul(b->g, a, golden_case_input(b, "b"), golden_case_prefix()[6] == '1',
                     golden_case_prefix()[7] == '1');
}
static brim_tensor *make_gather(bench *b)
{
  brim_tensor *x = golden_case_input(b, "x");
  return brim_gather(b->g, x, 1, golden_case_indices(b, "index"));
}
static brim_tensor *make_embedding(bench *b)
{
  brim_tensor *weight = golden_case_parameter(b, "weight");
  return brim_embedding_with(b->g, golden_case_indices(b, "index"), weight);
}
static brim_tensor *make_pad(bench *b)
{
  return brim_pad(b->g, golden_case_input(b, "x"), (int64_t[]){0, 1, 0, 2}, (int64_t[]){0, 1, 1, 0}, -0.5);
}
static brim_tensor *make_mixed(bench *b)
{
  brim_tensor *a = golden_case_input(b, "a");
  brim_tensor *both[] = {golden_case_input(b, "b"), brim_permute(b->g, a, (int32_t[]){0, 3, 1, 2})};
  return brim_slice(b->g, brim_concat(b->g, 2, both, 2), -2, 1, 4);
}

static void test_products_match_pytorch(void **state)
{
  golden_case_check("linear.", make_linear);
  golden_case_check("matmul00.", make_matmul);
  golden_case_check("matmul01.", make_matmul);
  golden_case_check("matmul10.", make_matmul);
  golden_case_check("matmul11.", make_matmul);
}

static void test_looking_up_matches_pytorch(void **state)
{
  golden_case_check("gather.", make_gather);
  golden_case_check("embedding.", make_embedding);
}

static void test_moving_matches_pytorch(void **state)
{
  golden_case_check("pad.", make_pad);
  golden_case_check("mixed.", make_mixed);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_products_match_pytorch),
      cmocka_unit_test(test_looking_up_matches_pytorch),
      cmocka_unit_test(test_moving_matches_pytorch),
  };
  return cmocka_run_group_tests(tests, golden_case_set_up, golden_case_tear_down);
}
