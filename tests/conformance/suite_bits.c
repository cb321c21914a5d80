/* Compares a backend with itself: the same bits with the planner's memory layout, for every split of a batch at
 * multiples of the grain, for every number of threads, and in any order of blocks and threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/load.h"
#include "conformance/suite.h"
#include "tier.h"

/* ---- the planner's memory layout, and every split of a batch ---- */

static void assert_same_bits(const bench *a, const bench *b, const brim_tensor *t, const char *what)
{
  if (bench_same(a, t, b, b->g->tensor[t->id], 0)) return;
  double *x = bench_values_of(a, t), *y = bench_values_of(b, b->g->tensor[t->id]);
  problem("%s on %s, seed %llu, N %lld, grain %lld: '%s' differs %s (relative %g)", a->o.row->name, a->o.backend->name,
          (unsigned long long)a->o.seed, (long long)a->o.batch, (long long)a->o.grain, t->name, what,
          relative_error(x, y, brim_shape_count(&t->shape)));
  free(x);
  free(y);
}

/* True if the tensor still has its values at the end of a step whose memory is shared. */
static bool is_kept(const bench *b, const brim_tensor *t)
{
  return bench_accumulates(b, t) || t->role == BRIM_ROLE_PARAMETER || t->role == BRIM_ROLE_OPTIMIZER;
}

static void check_layout(bench_options o)
{
  bench *apart = bench_create(&o);
  size_t kept = 0;
  for (size_t i = 0; i < apart->g->tensor_count; i++) kept += is_kept(apart, apart->g->tensor[i]);
  if (kept == 0) { /* nothing to compare */
    bench_free(apart);
    return;
  }
  o.shared_memory = true;
  bench *shared = bench_create(&o);
  bench_run(apart, 0, apart->g->node_count);
  bench_run(shared, 0, shared->g->node_count);
  for (size_t i = 0; i < apart->g->tensor_count; i++) {
    const brim_tensor *t = apart->g->tensor[i];
    if (is_kept(apart, t)) assert_same_bits(apart, shared, t, "when memory is shared");
  }
  bench_free(apart);
  bench_free(shared);
}

void test_results_do_not_depend_on_shared_memory(void **state)
{
  BENCH_EACH_ROW (row) {
    const bool is_tested = tested.ops && offered(row);
    for (int i = 0; i < cases_of(row, 8); i++) {
      bench_options o = case_of(row, i);
      o.context = AFTER_CONV | BEFORE_CONV;
      o.backend = &reference;
      if (!alone) check_layout(o);
      o.backend = &tested;
      if (!is_tested) continue;
      check_layout(o);
      o.activations = i % 2 ? BRIM_DTYPE_BF16 : BRIM_DTYPE_F16;
      if (stores(o.activations)) check_layout(o);
    }
  }
  fail_if_problems();
}

/* Compares a piece's samples of every tensor with the same samples of the whole. */
static void compare_piece(const bench *piece, const bench *whole, int64_t first)
{
  for (size_t i = 0; i < whole->g->tensor_count; i++) {
    const brim_tensor *t = whole->g->tensor[i], *twin = piece->g->tensor[i];
    if (t->role != BRIM_ROLE_ACTIVATION) continue;
    const int64_t size = brim_shape_count(&t->shape) / t->shape.dim[0];
    const bool by_group = t->shape.dim[0] != whole->o.batch && whole->o.row->norm_group > 0;
    const int64_t skip = (by_group ? first / whole->o.row->norm_group : first) * size;
    if (bench_same(piece, twin, whole, t, skip)) continue;
    double *x = bench_values_of(piece, twin), *y = bench_values_of(whole, t);
    problem("%s on %s, seed %llu: samples %lld.. of '%s' (%s) differ between N %lld and N %lld (relative %g)",
            whole->o.row->name, whole->o.backend->name, (unsigned long long)whole->o.seed, (long long)first, t->name,
            whole->g->node[t->producer]->op, (long long)piece->o.batch, (long long)whole->o.batch,
            relative_error(x, y + skip, brim_shape_count(&twin->shape)));
    free(x);
    free(y);
  }
}

/* Runs the samples of `whole`, which has run, in pieces of `batch` (the last may be shorter). */
static void check_cut(const bench *whole, int64_t batch)
{
  bench_options o = whole->o;
  const int64_t total = o.batch;
  bench *before = NULL;
  for (int64_t first = 0; first < total; first += batch) {
    o.batch = total - first < batch ? total - first : batch;
    o.first_sample = first;
    bench *piece = bench_create(&o);
    if (before) {
      bench_hand_over(before, piece);
      bench_free(before);
    }
    bench_run(piece, 0, piece->g->node_count);
    compare_piece(piece, whole, first);
    before = piece;
  }
  for (size_t i = 0; i < whole->g->tensor_count; i++)
    if (bench_accumulates(whole, whole->g->tensor[i]))
      assert_same_bits(whole, before, whole->g->tensor[i], "when the batch is cut");
  bench_free(before);
}

/* A grain, the number of samples that run at once, and up to two sizes of the pieces that they are split into (0:
 * none). */
typedef struct cut {
  int64_t grain, total, batch[2];
} cut;

static void check_case_cut(bench_options o, const cut *c)
{
  o.batch = c->total;
  o.grain = c->grain;
  bench *whole = bench_create(&o);
  bench_run(whole, 0, whole->g->node_count);
  for (size_t i = 0; i < 2 && c->batch[i] > 0; i++) check_cut(whole, c->batch[i]);
  bench_free(whole);
}

/* Returns whether case `i` of a row runs with cut `k`. Splitting takes most of the suite's time, so only the full tier
 * checks every case with every cut. Other tiers check each case of a row with two of the cuts, in turn, and a large row
 * with the first cut. */
static bool takes(const bench_row *row, int i, size_t k, size_t cuts)
{
  if (is_tier("full")) return true;
  return row->large ? k == 0 : k == (size_t)i % cuts || k == (size_t)(i + 2) % cuts;
}

/* With `grouped`, checks the rows that have norm groups: a part is a multiple of the group, and the last part has at
 * least one group. Without `grouped`, checks the other rows. */
static void check_cuts(const backend *on, const cut *c, size_t cuts, bool grouped)
{
  BENCH_EACH_ROW (row) {
    const bool runs = on == &reference ? !row->large : offered(row);
    if (!runs || (row->norm_group > 0) != grouped) continue;
    for (int i = 0; row->by_sample && i < cases_of(row, 8); i++)
      for (size_t k = 0; k < cuts; k++) {
        bench_options o = case_of(row, i);
        o.backend = on;
        o.first_sample = 0;
        if (takes(row, i, k, cuts)) check_case_cut(o, &c[k]);
      }
  }
}
#define CHECK_CUTS(on, cuts, grouped) check_cuts(on, cuts, sizeof(cuts) / sizeof((cuts)[0]), grouped)

void test_cpu_gives_same_bits_at_multiples_of_the_grain(void **state)
{
  static const cut any[] = {{16, 35, {16, 32}}, {4, 10, {8}}, {16, 40, {16, 32}}, {4, 12, {4}}, {16, 64, {16, 32}}};
  static const cut by_group[] = {{16, 40, {16, 32}}, {4, 12, {4}}, {16, 64, {16, 32}}, {4, 14, {8}}};
  skip_without_tested();
  CHECK_CUTS(&tested, any, false);
  CHECK_CUTS(&tested, by_group, true);
  fail_if_problems();
}

/* The reference adds up sample by sample, or group by group, so it needs no grain. */
void test_reference_gives_same_bits_at_any_micro_batch(void **state)
{
  static const cut any[] = {{0, 7, {1, 3}}}, by_group[] = {{0, 12, {4}}, {0, 14, {8}}};
  CHECK_CUTS(&reference, any, false);
  CHECK_CUTS(&reference, by_group, true);
  fail_if_problems();
}

/* ---- the same bits on any number of threads ---- */

#define SEVERAL 2

/* Compares every tensor of a case on one thread with the same on several. */
static void compare_threads(const backend *one, const backend several[SEVERAL], bench_options o)
{
  o.backend = one;
  bench *expected = bench_create(&o);
  bench_run(expected, 0, expected->g->node_count);
  for (size_t t = 0; t < SEVERAL; t++) {
    o.backend = &several[t];
    bench *got = bench_create(&o);
    bench_run(got, 0, got->g->node_count);
    for (size_t i = 0; i < got->g->tensor_count; i++)
      assert_same_bits(got, expected, got->g->tensor[i], "from that on one thread");
    bench_free(got);
  }
  bench_free(expected);
}

void test_cpu_gives_same_bits_on_any_number_of_threads(void **state)
{
  static const char *const threads[SEVERAL] = {"{threads: 2}", "{threads: 5}"};
  loaded one, many[SEVERAL];
  backend several[SEVERAL];
  skip_without_tested();
  assert_true(load_plugin(&one, "backend", "cpu", "{threads: 1}"));
  const backend single = {"cpu on one thread", one.plugin->ops, one.self};
  for (size_t t = 0; t < SEVERAL; t++) {
    assert_true(load_plugin(&many[t], "backend", "cpu", threads[t]));
    several[t] = (backend){"cpu on several threads", many[t].plugin->ops, many[t].self};
  }
  BENCH_EACH_ROW (row) {
    const int cases = offered(row) ? cases_of(row, 10) : 0;
    for (int i = 0; i < cases; i++) compare_threads(&single, several, case_of(row, i));
  }
  for (size_t t = 0; t < SEVERAL; t++) unload_plugin(&many[t]);
  unload_plugin(&one);
  fail_if_problems();
}

/* ---- the same bits in any order of blocks and threads ---- */

/* The emulated device runs blocks, warps and threads one after another, in an order given by a seed. Runs a case of
 * many blocks in ascending order and in other orders; the middle tier has one other order for fp32 and one for 16
 * bits. */
static void compare_orders(bench_options o)
{
  static const char *const seed[] = {"1", "2"};
  o.backend = &tested;
  bench *expected = bench_create(&o);
  bench_run(expected, 0, expected->g->node_count);
  for (size_t s = 0; s < sizeof seed / sizeof *seed; s++) {
    char what[64];
    if (!is_tier("full") && (s == 1) != (o.activations != 0)) continue;
    snprintf(what, sizeof what, "with EMULATED_ORDER=%s", seed[s]);
    bench *got = bench_create(&o);
    setenv("EMULATED_ORDER", seed[s], 1);
    bench_run(got, 0, got->g->node_count);
    unsetenv("EMULATED_ORDER");
    for (size_t i = 0; i < got->g->tensor_count; i++) assert_same_bits(got, expected, got->g->tensor[i], what);
    bench_free(got);
  }
  bench_free(expected);
}

void test_results_do_not_depend_on_the_order_of_blocks_and_threads(void **state)
{
  if (strcmp(tested_folder, "emulated") != 0) skip();
  BENCH_EACH_ROW (row) {
    const int cases = offered(row) ? cases_of(row, 4) : 0;
    for (int i = 0; i < cases; i++) {
      /* The first case has a batch of 32, or of 5 for large rows, which have many blocks even with a batch of 2. */
      bench_options o = case_of(row, row->large && !is_tier("full") ? i : i + 3);
      compare_orders(o);
      o.activations = i % 2 ? BRIM_DTYPE_F16 : BRIM_DTYPE_BF16;
      if (stores(o.activations)) compare_orders(o);
    }
  }
  fail_if_problems();
}
