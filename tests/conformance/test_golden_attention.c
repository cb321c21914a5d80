/* Compares attention and rotary on the reference backend with PyTorch in double precision, forward and backward.
 * tests/golden/make_attention.py makes and describes the fixture. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/golden_case.h"

const char golden_case_fixture[] = "attention.txt";

typedef struct attention_case {
  const char *prefix;
  brim_attention_options options;
  brim_attention_limits limits;
  bool documents; /* the fixture has places */
} attention_case;
typedef struct rotary_case {
  const char *prefix;
  brim_rotary_options options;
  bool documents;
} rotary_case;

static const attention_case *attention_now; /* the case that the functions below build */
static const rotary_case *rotary_now;

static brim_tensor *make_attention(bench *b)
{
  brim_attention_limits limits = attention_now->limits;
  limits.size = sizeof limits;
  if (attention_now->documents) b->g->places = golden_case_indices(b, "places");
  brim_tensor *q = golden_case_input(b, "q"), *k = golden_case_input(b, "k");
  return brim_attention_limited(b->g, q, k, golden_case_input(b, "v"), attention_now->options, &limits);
}
static brim_tensor *make_rotary(bench *b)
{
  if (rotary_now->documents) b->g->places = golden_case_indices(b, "places");
  return brim_rotary(b->g, golden_case_input(b, "x"), rotary_now->options);
}

static void test_attention_matches_pytorch(void **state)
{
  static const attention_case cases[] = {
      {"full.", {.heads = 4}},
      {"causal.", {.heads = 2, .causal = 1}},
      {"shared.", {.heads = 6, .kv_heads = 2, .causal = 1, .scale = 0.7}},
      {"cross.", {.heads = 2, .kv_heads = 1}},
      {"continued.", {.heads = 2, .causal = 1}},
      {"blind.", {.heads = 4, .kv_heads = 2, .causal = 1}},
      {"window.", {.heads = 2, .causal = 1}, {.window = 3}},
      {"capped.", {.heads = 2, .kv_heads = 1, .causal = 1}, {.softcap = 0.5}},
      {"documents.", {.heads = 4, .kv_heads = 2, .causal = 1}, {0}, true},
      {"limited.", {.heads = 2, .kv_heads = 1, .causal = 1}, {.window = 4, .softcap = 2}, true}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    attention_now = &cases[i];
    golden_case_check(cases[i].prefix, make_attention);
  }
}

static void test_rotary_matches_pytorch(void **state)
{
  static const rotary_case cases[] = {{"halves.", {.heads = 2}},
                                      {"neighbours.", {.heads = 3, .interleaved = 1}},
                                      {"places.", {.heads = 2, .base = 100}, true},
                                      {"partly.", {.heads = 2, .dims = 4, .base = 50}}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    rotary_now = &cases[i];
    golden_case_check(cases[i].prefix, make_rotary);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_attention_matches_pytorch),
      cmocka_unit_test(test_rotary_matches_pytorch),
  };
  return cmocka_run_group_tests(tests, golden_case_set_up, golden_case_tear_down);
}
