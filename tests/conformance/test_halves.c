/* Tests fused nodes whose two results recompute handles separately: the sum is kept and its norm recomputed, or the
 * input of an activation is kept and the activation recomputed. On a transformer, whichever nodes are dropped, on every
 * backend and in every type of stored activations, the bits are the same as without dropping. If a fused kernel does
 * not round between the two, the rule is off; the test checks that too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "brim/brim.h"
#include "conformance/bench.h"
#include "conformance/load.h"
#include "graph/fuse.h"

enum { TOKENS = 5, WIDTH = 16, HEADS = 2, BATCH = 4, SEEDS = 60 / BENCH_SHARE };

static loaded reference, cpu, cuda;

/* Norms before attention and before two products with an activation between them, with residual connections. */
static brim_tensor *add_block(brim_graph *g, brim_tensor *x, int number)
{
  char name[5][16];
  for (int i = 0; i < 5; i++) snprintf(name[i], sizeof name[i], "b%d.%c", number, "nqpfo"[i]);
  brim_tensor *h = number % 2 ? brim_rms_norm(g, name[0], x, 1e-5) : brim_layer_norm(g, name[0], x, 1e-5);
  h = brim_linear(g, name[1], h, WIDTH);
  h = brim_attention(g, h, h, h, (brim_attention_options){.heads = HEADS});
  x = brim_add(g, x, brim_linear(g, name[2], h, WIDTH));
  snprintf(name[0], sizeof name[0], "b%d.m", number);
  h = number % 2 ? brim_layer_norm(g, name[0], x, 1e-5) : brim_rms_norm(g, name[0], x, 1e-5);
  h = brim_linear(g, name[3], h, 2 * WIDTH);
  h = number % 3 == 0 ? brim_silu(g, h) : brim_gelu(g, h, number % 3 == 1);
  return brim_add(g, x, brim_linear(g, name[4], h, WIDTH));
}

static brim_status build(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_linear(g, "stem", brim_input(g), WIDTH);
  for (int i = 0; i < 3; i++) x = add_block(g, x, i);
  brim_output(g, brim_linear(g, "head", brim_flatten(g, brim_layer_norm(g, "last", x, 1e-5)), brim_classes(g)));
  return BRIM_OK;
}

static const brim_model_ops model = {sizeof model, build};
static const brim_graph_options graph = {.model = &model,
                                         .loss.op = "softmax_cross_entropy",
                                         .sample = {2, {TOKENS, WIDTH}},
                                         .classes = 4,
                                         .fuse = BRIM_FUSE_ALL};
static const bench_row row = {"transformer", .is_loss = true, .composite = true};

static bench *run(const bench_options *o)
{
  bench *b = bench_create(o);
  bench_run(b, 0, b->g->node_count);
  return b;
}

static void expect_same(const bench *a, const bench *b, uint32_t seed)
{
  for (size_t i = 0; i < a->g->parameter_count; i++) {
    const brim_tensor *x = a->g->parameter[i].gradient, *y = b->g->parameter[i].gradient;
    if (memcmp(a->memory[x->id], b->memory[y->id], x->bytes) != 0)
      fail_msg("seed %u on %s: '%s' differs", (unsigned)seed, a->o.backend->name, x->name);
  }
}

/* Counts nodes of the backward pass that recompute half of a fused node's results from the kept half, for norms or for
 * activations. */
static int count_halves(const brim_graph *g, bool norms)
{
  int count = 0;
  for (size_t i = g->forward_count; i < g->node_count; i++) {
    const brim_node *n = g->node[i];
    const brim_node *maker = n->in[0]->producer >= 0 ? g->node[n->in[0]->producer] : NULL;
    if (!maker || !maker->descriptor->halve || (strstr(n->op, "_norm") != NULL) != norms) continue;
    count += strcmp(strchr(maker->op, '+') + 1, n->op) == 0;
  }
  return count;
}

static void check(const char *name, const loaded *plugin, uint32_t activations)
{
  if (!plugin->plugin) skip();
  const brim_backend_ops *ops = plugin->plugin->ops;
  const backend on = {name, ops, plugin->self};
  if (activations && !(ops->stores & BRIM_STORES(activations))) skip();
  bench_options o = {.backend = &on,
                     .row = &row,
                     .batch = BATCH,
                     .grain = BATCH,
                     .gradients_at_zero = true,
                     .model = &graph,
                     .activations = activations};
  bench *whole = run(&o);
  int norms = 0, functions = 0;
  for (uint32_t seed = 0; seed < SEEDS; seed++) {
    o.drop_any = seed > 2;
    o.recompute = seed > 2 ? BRIM_RECOMPUTE_NONE : (enum brim_recompute_kind)(BRIM_RECOMPUTE_BLOCKS + seed);
    o.drop_seed = seed;
    o.shared_memory = seed % 2;
    bench *again = run(&o);
    norms += count_halves(again->g, true);
    functions += count_halves(again->g, false);
    expect_same(whole, again, seed);
    bench_free(again);
  }
  printf("%s, activations of type %u: %d norms and %d activations alone\n", name, activations, norms, functions);
  assert_true(norms > 0);
  assert_int_equal(functions > 0, activations == 0);
  bench_free(whole);
}

static void halves_leave_the_same_bits_on_reference(void **state)
{
  check("reference", &reference, 0);
}

static void halves_leave_the_same_bits_on_cpu(void **state)
{
  check("cpu", &cpu, 0);
}

static void halves_leave_the_same_bits_on_cpu_in_bf16(void **state)
{
  check("cpu", &cpu, BRIM_DTYPE_BF16);
}

static void halves_leave_the_same_bits_on_cpu_in_fp16(void **state)
{
  check("cpu", &cpu, BRIM_DTYPE_F16);
}

static void halves_leave_the_same_bits_on_cuda(void **state)
{
  check("cuda", &cuda, 0);
}

static void halves_leave_the_same_bits_on_cuda_in_bf16(void **state)
{
  check("cuda", &cuda, BRIM_DTYPE_BF16);
}

static int set_up(void **state)
{
  if (!load_plugin(&reference, "backend", "reference", NULL)) return -1;
  load_plugin(&cpu, "backend", "cpu", "{threads: 1}");
  if (!load_plugin_from(&cuda, "emulated", "backend", "cuda", NULL)) return 0;
  const brim_backend_ops *ops = cuda.plugin->ops;
  return ops->select(cuda.self, 0) == BRIM_OK ? 0 : -1;
}

static int tear_down(void **state)
{
  unload_plugin(&reference);
  unload_plugin(&cpu);
  unload_plugin(&cuda);
  return 0;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(halves_leave_the_same_bits_on_reference),
      cmocka_unit_test(halves_leave_the_same_bits_on_cpu),
      cmocka_unit_test(halves_leave_the_same_bits_on_cpu_in_bf16),
      cmocka_unit_test(halves_leave_the_same_bits_on_cpu_in_fp16),
      cmocka_unit_test(halves_leave_the_same_bits_on_cuda),
      cmocka_unit_test(halves_leave_the_same_bits_on_cuda_in_bf16),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
