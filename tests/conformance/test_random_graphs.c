/* Several hundred random graphs with a loss and a backward pass:
 *
 *   against reference        loss and parameters' gradients, relative to the effect of rounding every result to fp32
 *   no fusion against all    the same bits, also in bf16
 *   separate memory          against the planner's layout: the same bits
 *   recompute                blocks, full, auto at its least memory, and random nodes, in single precision and in bf16:
 *                            the same bits as without
 *   a batch at once          against pieces at multiples of the grain: the same bits
 *   one thread against three the same bits
 *
 * cuda, on the emulated device, for some of them: against reference, without fusion and with all, with separate memory
 * and the planner's, with recompute.
 *
 * A failure prints the seed; RANDOM_GRAPH_SEED=<seed> runs only that graph and lists its operations. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/bench.h"
#include "conformance/load.h"
#include "conformance/random_graph.h"
#include "graph/fuse.h"
#include "tier.h"

#define SEEDS 300 /* number in the full tier */
#define SEEDS_CUDA 40
#define FIRST_SEED_CUDA 41 /* from this seed on, halves of fused nodes occur early */
#define GRAIN 4
#define ROUNDING 1e-6  /* error of a graph that is not ill-conditioned, from rounding alone */
#define ERROR_MAX 5e-5 /* the same as for the transformer in the conformance suite */

static loaded reference_plugin, cpu_plugin, threads_plugin, cuda_plugin;
static backend reference, cpu, cpu_on_threads, cuda; /* cpu.ops, cuda.ops are NULL if not built */
static int problems;

/* ---- a graph ---- */

static const brim_model_ops model = {sizeof model, random_graph_build};
static const bench_row row = {"random graph", .is_loss = true, .composite = true, .norm_group = GRAIN};

typedef struct subject {
  random_graph random;
  brim_graph_options graph;
  bench_options options;
} subject;

static brim_tensor *make_indices(brim_graph *g, const brim_shape *shape)
{
  return brim_graph_tensor(g, BRIM_ROLE_DATA, BRIM_DTYPE_I32, shape, "index");
}

static void choose(subject *s, uint64_t seed, int *families)
{
  static const char *const losses[] = {"softmax_cross_entropy", "mse", "huber", "bce", "softmax_cross_entropy"};
  *s = (subject){
      .random = {.seed = seed, .below = 2 + (int64_t)(seed % 4), .families = families, .indices = make_indices}};
  random_graph_choose(&s->random);
  s->graph = (brim_graph_options){.model = &model,
                                  .model_self = &s->random,
                                  .loss.op = losses[seed % 5],
                                  .loss.attr = {.delta = 1, .smoothing = seed % 5 ? 0 : 0.1},
                                  .sample = {.rank = (int32_t)s->random.sample_rank},
                                  .classes = s->random.classes};
  for (int64_t d = 0; d < s->random.sample_rank; d++) s->graph.sample.dim[d] = s->random.sample_dim[d];
  s->options = (bench_options){.row = &row,
                               .seed = seed,
                               .batch = GRAIN * (1 + (int64_t)(seed % 4)),
                               .grain = GRAIN,
                               .gradients_at_zero = true,
                               .model = &s->graph,
                               .below = s->random.below};
}

static bool offers(const void *on, const char *op)
{
  return bench_offers(on, op);
}

static bench *create(subject *s, const backend *on, uint64_t fusions)
{
  s->graph.fuse = fusions;
  s->graph.offers = offers;
  s->graph.offers_arg = on;
  s->options.backend = on;
  return bench_create(&s->options);
}

static bench *run(subject *s, const backend *on, uint64_t fusions)
{
  bench *b = create(s, on, fusions);
  bench_run(b, 0, b->g->node_count);
  return b;
}

/* ---- the same bits ---- */

static void expect_same_tensor(const bench *a, const brim_tensor *x, const bench *b, const brim_tensor *y,
                               const char *what)
{
  if (memcmp(a->memory[x->id], b->memory[y->id], x->bytes) == 0) return;
  problems++;
  fprintf(stderr, "seed %llu on %s: '%s' differs %s\n", (unsigned long long)a->o.seed, a->o.backend->name, x->name,
          what);
}

/* Expects the same results of a step: gradients of parameters, statistics of buffers, and metrics. */
static void expect_same(const bench *a, const bench *b, const char *what)
{
  assert_int_equal(a->g->parameter_count, b->g->parameter_count);
  for (size_t i = 0; !a->o.evaluate && i < a->g->parameter_count; i++)
    expect_same_tensor(a, a->g->parameter[i].gradient, b, b->g->parameter[i].gradient, what);
  assert_int_equal(a->g->further_count, b->g->further_count);
  for (size_t i = 0; i < a->g->further_count; i++)
    expect_same_tensor(a, a->g->further[i].gradient, b, b->g->further[i].gradient, what);
  expect_same_tensor(a, a->g->metrics, b, b->g->metrics, what);
}

/* Results that depend on parameters alone pass on their gradients only after the last piece, as in a step. */
static void expect_same_in_pieces(subject *s, const bench *whole, int64_t batch)
{
  const bench_options options = s->options;
  bench *before = NULL;
  for (int64_t first = 0; first < options.batch; first += batch) {
    s->options.batch = options.batch - first < batch ? options.batch - first : batch;
    s->options.first_sample = first;
    s->graph.folds_later = first + batch < options.batch;
    bench *piece = create(s, whole->o.backend, s->graph.fuse);
    if (before) {
      bench_hand_over(before, piece);
      bench_free(before);
    }
    bench_run(piece, 0, piece->g->node_count);
    before = piece;
  }
  expect_same(before, whole, "when the batch is cut");
  bench_free(before);
  s->options = options;
}

/* Counts the graphs in which something was recomputed, for each way to choose the nodes. */
enum { WAYS = 4 };
static int recomputed[WAYS];
static int halves, small_halves; /* graphs in which only a fused node's second half was recomputed, and those in bf16 */

/* True if the backward pass recomputes a node's result from another result of the same forward node. */
static bool has_half(const brim_graph *g)
{
  for (size_t i = g->forward_count; i < g->node_count; i++) {
    const brim_node *n = g->node[i];
    const brim_node *maker = n->in_count > 0 && n->in[0]->producer >= 0 ? g->node[n->in[0]->producer] : NULL;
    brim_arena arena = {0};
    brim_node half[2];
    const bool has = maker && maker->descriptor->halve && maker->descriptor->halve(maker, &arena, half) &&
                     strcmp(half[1].op, n->op) == 0;
    brim_arena_release(&arena);
    if (has) return true;
  }
  return false;
}

/* Expects the same bits with recompute, whether tensors share memory or not. */
static void expect_same_recomputed(subject *s, const bench *whole, const backend *on)
{
  const bool is_small = s->options.activations != 0;
  int *seen = is_small ? &small_halves : &halves;
  bool has = false;
  static const enum brim_recompute_kind kinds[] = {BRIM_RECOMPUTE_BLOCKS, BRIM_RECOMPUTE_FULL, BRIM_RECOMPUTE_AUTO};
  static const char *const ways[] = {"with recompute=blocks", "with recompute=full", "with recompute=auto",
                                     "with any nodes made again"};
  const bench_options options = s->options;
  for (int way = 0; !options.evaluate && way < WAYS; way++) {
    s->options.drop_any = way == WAYS - 1;
    s->options.recompute = way < WAYS - 1 ? kinds[way] : BRIM_RECOMPUTE_NONE;
    s->options.shared_memory = (s->random.seed + (uint64_t)way) % 2;
    bench *again = create(s, on, way == WAYS - 1 && !is_small && s->random.seed % 3 == 0 ? 0 : BRIM_FUSE_ALL);
    has = has || has_half(again->g);
    if (again->g->recomputed_count > 0) {
      recomputed[way] += !is_small;
      bench_run(again, 0, again->g->node_count);
      expect_same(again, whole, ways[way]);
    }
    bench_free(again);
  }
  *seen += has;
  s->options = options;
}

/* Expects the same bits with activations in bf16. A fused kernel must round its intermediate result too, or it would
 * differ when only its second half is recomputed. */
static void check_small(subject *s, const backend *on)
{
  const bench_options options = s->options;
  const size_t size = offsetof(brim_backend_ops, stores) + sizeof on->ops->stores;
  if (on->ops->size < size || !(on->ops->stores & BRIM_STORES(BRIM_DTYPE_BF16)) || options.evaluate) return;
  s->options.activations = BRIM_DTYPE_BF16;
  bench *whole = run(s, on, BRIM_FUSE_ALL), *plain = run(s, on, 0);
  if (on != &cuda) expect_same(whole, plain, "in bf16 with all fusions");
  bench_free(plain);
  expect_same_recomputed(s, whole, on);
  if (on != &cuda && GRAIN < options.batch) expect_same_in_pieces(s, whole, GRAIN);
  bench_free(whole);
  s->options = options;
}

static void check_bits(subject *s, const backend *on)
{
  bench *plain = run(s, on, 0), *fused = run(s, on, BRIM_FUSE_ALL);
  bench_check_sources(plain);
  bench_check_sources(fused);
  expect_same(fused, plain, "with all fusions");
  s->options.shared_memory = true;
  for (int i = 0; i < 2; i++) {
    bench *shared = run(s, on, i ? BRIM_FUSE_ALL : 0);
    expect_same(shared, plain, i ? "when memory is shared, with all fusions" : "when memory is shared");
    bench_free(shared);
  }
  s->options.shared_memory = false;
  expect_same_recomputed(s, fused, on);
  for (int64_t batch = GRAIN; on != &cuda && batch <= 2 * GRAIN; batch += GRAIN)
    if (batch < s->options.batch) expect_same_in_pieces(s, fused, batch);
  bench_free(plain);
  bench_free(fused);
}

static void check_threads(subject *s)
{
  bench *one = run(s, &cpu, BRIM_FUSE_ALL), *several = run(s, &cpu_on_threads, BRIM_FUSE_ALL);
  expect_same(several, one, "from that on one thread");
  bench_free(one);
  bench_free(several);
}

/* ---- against reference ---- */

static double distance(const double *a, const double *b, int64_t count)
{
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += b ? (a[i] - b[i]) * (a[i] - b[i]) : a[i] * a[i];
  return sqrt(sum);
}

/* True if rounding puts a value on different sides of a kink in the two benches. Their gradients then belong to
 * different functions. */
static bool takes_another_side(const bench *a, const bench *b)
{
  bool differs = false;
  for (size_t i = 0; i < a->g->forward_count && !differs; i++) {
    const brim_node *n = a->g->node[i];
    const bool is_pool = strcmp(n->op, "max_pool2d") == 0;
    if (!is_pool && !strstr(n->op, "relu")) continue;
    const brim_tensor *t = n->out[is_pool ? 1 : 0];
    double *x = bench_values_of(a, t), *y = bench_values_of(b, b->g->tensor[t->id]);
    for (int64_t k = 0; k < brim_shape_count(&t->shape) && !differs; k++)
      differs = is_pool ? x[k] != y[k] : (x[k] > 0) != (y[k] > 0);
    free(x);
    free(y);
  }
  return differs;
}

/* Runs the reference with every result rounded to fp32: no backend can be expected to be closer to the reference than
 * this run. */
static bench *run_rounded(subject *s)
{
  bench *b = create(s, &reference, 0);
  for (size_t i = 0; i < b->g->node_count; i++) {
    bench_run(b, i, i + 1);
    for (uint32_t k = 0; k < b->g->node[i]->out_count; k++) {
      const brim_tensor *t = b->g->node[i]->out[k];
      double *values = b->memory[t->id];
      for (int64_t v = 0; t->dtype == BRIM_DTYPE_F64 && v < brim_shape_count(&t->shape); v++)
        values[v] = (double)(float)values[v];
    }
  }
  return b;
}

static double gradients_norm(const bench *b)
{
  double sum = 0;
  for (size_t i = 0; !b->o.evaluate && i < b->g->parameter_count; i++) {
    const brim_tensor *t = b->g->parameter[i].gradient;
    const double norm = distance(b->memory[t->id], NULL, brim_shape_count(&t->shape));
    sum += b->g->parameter[i].is_buffer ? 0 : norm * norm;
  }
  return sqrt(sum);
}

/* Checks the error of x, relative to its norm or to `scale` if that is larger. The error is reduced if rounding alone
 * causes more than ROUNDING. */
static void compare(const bench *got, const bench *expected, const bench *rounded, const brim_tensor *x, double scale,
                    double *worst)
{
  const int64_t count = brim_shape_count(&x->shape);
  double *a = bench_values_of(got, x), *b = bench_values_of(expected, expected->g->tensor[x->id]);
  double *c = bench_values_of(rounded, rounded->g->tensor[x->id]);
  const double norm = fmax(distance(b, NULL, count), fmax(scale, 1e-30));
  const double error = distance(a, b, count) / norm, rounding = distance(c, b, count) / norm;
  const double excess = error / (1 + rounding / ROUNDING);
  if (excess > *worst) *worst = excess;
  if (!(excess <= ERROR_MAX)) {
    problems++;
    fprintf(stderr, "seed %llu: '%s' has an error of %g on %s, where rounding to fp32 makes %g\n",
            (unsigned long long)got->o.seed, x->name, error, got->o.backend->name, rounding);
  }
  free(a);
  free(b);
  free(c);
}

/* Returns false if the gradients cannot be compared. */
static bool check_against_reference(subject *s, const backend *on, double *worst)
{
  bench *expected = run(s, &reference, 0), *got = run(s, on, 0), *rounded = run_rounded(s);
  const bool comparable = !takes_another_side(got, expected) && !takes_another_side(rounded, expected);
  compare(got, expected, rounded, got->g->loss, 0, worst);
  const double scale = 1e-2 * gradients_norm(expected);
  for (size_t i = 0; comparable && !got->o.evaluate && i < got->g->parameter_count; i++)
    compare(got, expected, rounded, got->g->parameter[i].gradient, got->g->parameter[i].is_buffer ? 0 : scale, worst);
  bench_free(expected);
  bench_free(got);
  bench_free(rounded);
  return comparable;
}

/* ---- tests ---- */

static void list_operations(subject *s, const backend *on)
{
  bench *b = create(s, on, BRIM_FUSE_ALL);
  char text[96];
  for (size_t i = 0; i < b->g->forward_count; i++)
    printf("  %-24s %-12s %s/%lld\n", b->g->node[i]->op, b->g->node[i]->name,
           brim_shape_format(text, sizeof text, &b->g->node[i]->out[0]->shape),
           (long long)b->g->node[i]->out[0]->channel_block);
  bench_free(b);
}

static uint64_t first_seed(const backend *on)
{
  const char *asked = getenv("RANDOM_GRAPH_SEED");
  return asked ? strtoull(asked, NULL, 10) : on == &cuda ? FIRST_SEED_CUDA : 1;
}

/* Returns the part of the seeds that runs: fewer in the middle tier, and under sanitizers. */
static uint64_t seed_share(void)
{
  return BENCH_SHARE * (is_tier("full") ? 1 : 3);
}

static uint64_t seed_count(const backend *on)
{
  return getenv("RANDOM_GRAPH_SEED") ? 1 : (on == &cuda ? SEEDS_CUDA : SEEDS) / seed_share();
}

static void fail_if_problems(void)
{
  const int count = problems;
  problems = 0;
  if (count) fail_msg("%d problems; RANDOM_GRAPH_SEED=<seed> runs one seed alone", count);
}

/* Every third graph also runs in evaluation. */
static int is_evaluated_too(uint64_t seed)
{
  return seed % 3 == 0;
}

static void agrees_with_reference(const backend *on)
{
  if (!on->ops) skip();
  double worst = 0;
  int kinks = 0;
  for (uint64_t seed = first_seed(on); seed < first_seed(on) + seed_count(on); seed++) {
    subject s;
    choose(&s, seed, NULL);
    if (getenv("RANDOM_GRAPH_SEED")) list_operations(&s, on);
    for (int i = 0; i <= is_evaluated_too(seed); i++) {
      s.options.evaluate = i;
      kinks += !check_against_reference(&s, on, &worst);
    }
  }
  printf("worst error %.1e; %d graphs with a value at a kink\n", worst, kinks);
  assert_in_range(kinks, 0, seed_count(on) / 10 + 1);
  fail_if_problems();
}

static void cpu_agrees_with_reference(void **state)
{
  agrees_with_reference(&cpu);
}

static void cuda_agrees_with_reference(void **state)
{
  agrees_with_reference(&cuda);
}

static void a_step_leaves_the_same_bits(const backend *on)
{
  if (!on->ops) skip();
  for (uint64_t seed = first_seed(on); seed < first_seed(on) + seed_count(on); seed++) {
    subject s;
    choose(&s, seed, NULL);
    for (int i = 0; i <= is_evaluated_too(seed); i++) {
      s.options.evaluate = i;
      check_bits(&s, on);
      if (seed % 2 == 0) check_small(&s, on);
      if (on == &cpu) check_threads(&s);
    }
  }
  for (int way = 0; way < WAYS; way++) {
    printf("%d%s", recomputed[way], way < WAYS - 1 ? ", " : " graphs with recompute=blocks, full, auto, any\n");
    if (!getenv("RANDOM_GRAPH_SEED")) assert_true(recomputed[way] >= (int)seed_count(on) / 4);
    recomputed[way] = 0;
  }
  printf("%d with half of a fused node, %d in bf16\n", halves, small_halves);
  if (!getenv("RANDOM_GRAPH_SEED")) assert_true(halves >= (int)seed_count(on) / 40);
  halves = small_halves = 0;
  fail_if_problems();
}

static void cpu_gives_the_same_bits(void **state)
{
  a_step_leaves_the_same_bits(&cpu);
}

static void cuda_gives_the_same_bits(void **state)
{
  a_step_leaves_the_same_bits(&cuda);
}

static void reference_gives_the_same_bits(void **state)
{
  a_step_leaves_the_same_bits(&reference);
}

/* Without this check, a family whose shapes never fit would go unnoticed. */
static void every_family_of_operations_occurs(void **state)
{
  int families[RANDOM_GRAPH_FAMILIES_MAX] = {0};
  for (uint64_t seed = 1; seed <= SEEDS / seed_share(); seed++) {
    subject s;
    choose(&s, seed, families);
    bench_free(create(&s, &reference, 0));
  }
  for (int i = 0; i < random_graph_family_count(); i++)
    if (families[i] < 20 / (int)seed_share()) fail_msg("%s came up %d times", random_graph_family(i), families[i]);
}

static int set_up(void **state)
{
  if (!load_plugin(&reference_plugin, "backend", "reference", NULL)) return -1;
  reference = (backend){"reference", reference_plugin.plugin->ops, reference_plugin.self};
  if (load_plugin_from(&cuda_plugin, "emulated", "backend", "cuda", NULL)) {
    cuda = (backend){"cuda", cuda_plugin.plugin->ops, cuda_plugin.self};
    if (cuda.ops->select(cuda.self, 0) != BRIM_OK) return -1;
  }
  if (!load_plugin(&cpu_plugin, "backend", "cpu", "{threads: 1}")) return 0;
  cpu = (backend){"cpu", cpu_plugin.plugin->ops, cpu_plugin.self};
  if (!load_plugin(&threads_plugin, "backend", "cpu", "{threads: 3}")) return -1;
  cpu_on_threads = (backend){"cpu on three threads", threads_plugin.plugin->ops, threads_plugin.self};
  return 0;
}

static int tear_down(void **state)
{
  unload_plugin(&reference_plugin);
  unload_plugin(&cpu_plugin);
  unload_plugin(&threads_plugin);
  unload_plugin(&cuda_plugin);
  return 0;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_family_of_operations_occurs), cmocka_unit_test(cpu_agrees_with_reference),
      cmocka_unit_test(cpu_gives_the_same_bits),           cmocka_unit_test(reference_gives_the_same_bits),
      cmocka_unit_test(cuda_agrees_with_reference),        cmocka_unit_test(cuda_gives_the_same_bits)};
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
