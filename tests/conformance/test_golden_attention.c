/* Attention and rotary on the reference backend compared with PyTorch in double precision, forward and backward.
 * tests/golden/make_attention.py makes and describes the fixture. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/bench.h"
#include "conformance/golden.h"
#include "conformance/load.h"

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

static golden fixture;
static loaded plugin;
static const attention_case *attention_now; /* the case that the rows below build */
static const rotary_case *rotary_now;

static brim_tensor *input(bench *b, const char *prefix, const char *name)
{
  return bench_input(b, &golden_find(&fixture, prefix, name)->shape, name);
}

static void use_places(bench *b, const char *prefix)
{
  b->g->places = bench_indices(b, &golden_find(&fixture, prefix, "places")->shape, 1, "places");
}

static brim_tensor *make_attention(bench *b)
{
  brim_attention_limits limits = attention_now->limits;
  limits.size = sizeof limits;
  if (attention_now->documents) use_places(b, attention_now->prefix);
  brim_tensor *q = input(b, attention_now->prefix, "q"), *k = input(b, attention_now->prefix, "k");
  return brim_attention_limited(b->g, q, k, input(b, attention_now->prefix, "v"), attention_now->options, &limits);
}
static brim_tensor *make_rotary(bench *b)
{
  if (rotary_now->documents) use_places(b, rotary_now->prefix);
  return brim_rotary(b->g, input(b, rotary_now->prefix, "x"), rotary_now->options);
}

static void check(const bench *b, const char *prefix, const char *name, const brim_tensor *t)
{
  double *values = bench_values_of(b, t);
  golden_check(&fixture, prefix, name, &t->shape, values);
  free(values);
}

static void fill(const bench *b, const char *prefix, const brim_tensor *t)
{
  const double *value = golden_find(&fixture, prefix, t->name)->value;
  if (t->dtype == BRIM_DTYPE_I32)
    for (int64_t i = 0; i < brim_shape_count(&t->shape); i++) ((int32_t *)b->memory[t->id])[i] = (int32_t)value[i];
  else
    memcpy(b->memory[t->id], value, t->bytes);
}

/* Runs a row with the fixture's numbers, and compares all results. */
static void check_case(const char *prefix, brim_tensor *(*make)(bench *b))
{
  const backend reference = {"reference", plugin.plugin->ops, plugin.self};
  const bench_row row = {prefix, make};
  const int64_t samples = golden_find(&fixture, prefix, "y")->shape.dim[0];
  bench *b = bench_create(&(bench_options){.backend = &reference, .row = &row, .seed = 1, .batch = samples});
  for (uint32_t i = 0; b->g->tensor[i]->producer < 0; i++) fill(b, prefix, b->g->tensor[i]);
  memcpy(b->memory[b->seed->id], golden_find(&fixture, prefix, "dy")->value, b->seed->bytes);
  bench_run(b, 0, b->g->node_count);
  check(b, prefix, "y", b->result);
  for (uint32_t i = 0; b->g->tensor[i]->producer < 0; i++) {
    char name[32];
    if (b->g->tensor[i] == b->g->places) continue;
    snprintf(name, sizeof name, "d%s", b->g->tensor[i]->name);
    check(b, prefix, name, brim_autodiff_gradient(b->g, b->g->tensor[i]));
  }
  bench_free(b);
}

static void test_attention_matches_pytorch(void **state)
{
  (void)state;
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
    check_case(cases[i].prefix, make_attention);
  }
}

static void test_rotary_matches_pytorch(void **state)
{
  (void)state;
  static const rotary_case cases[] = {{"halves.", {.heads = 2}},
                                      {"neighbours.", {.heads = 3, .interleaved = 1}},
                                      {"places.", {.heads = 2, .base = 100}, true},
                                      {"partly.", {.heads = 2, .dims = 4, .base = 50}}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    rotary_now = &cases[i];
    check_case(cases[i].prefix, make_rotary);
  }
}

static int set_up(void **state)
{
  (void)state;
  golden_read(&fixture, "attention.txt");
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
      cmocka_unit_test(test_attention_matches_pytorch),
      cmocka_unit_test(test_rotary_matches_pytorch),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
