/* The conformance suite: every operation, forward and backward.
 *
 *   reference  against itself: gradients and central differences of the forward pass, through the real autodiff
 *   tested     against reference: relative L2 of every tensor, over random shapes, sizes, contexts and layouts
 *   cpu        against itself: the same bits for every split of a batch at multiples of the grain and every number of
 *              threads
 *   both       with the planner's memory layout instead of separate memory: the same bits; NaN is passed on
 *
 *     test_conformance                    the reference backend, and cpu
 *     test_conformance BACKEND [FOLDER]   only that backend, of the build or of FOLDER in it
 *
 * Prints a table: operation, cases, worst error. An operation without a case fails the suite, unless only some rows
 * were selected: BENCH_ROWS=conv,max_pool runs those whose names begin so, BENCH_SHARD=2/12 the third of every twelve.
 * BENCH_CASES=2 runs two cases of each; BRIM_TEST_TIER=quick splits large rows at fewer batches. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "conformance/bench.h"
#include "conformance/load.h"

#define DIFFERENCES_ERROR_MAX 1e-6
#define BACKEND_ERROR_MAX 1e-5
/* For results that are rounded to 8 or 11 bits when stored: a small arithmetic error may flip the rounding, by at most
 * 2^-7 or 2^-10; for a tensor of one element that is the error. */
#define BF16_ERROR_MAX 8e-3
#define F16_ERROR_MAX 1e-3
#define CASES 32 /* for each row and grain; covers every size, context and kind of values */
#define SEEDS 44 /* for each row, by finite differences */

static loaded reference_plugin, tested_plugin;
static backend reference, tested; /* tested.ops is NULL if it was not built */
static const char *tested_id = "cpu", *tested_folder = "";
static bool alone; /* the reference backend itself is not tested */

/* ---- the table ---- */

enum oracle { BY_DIFFERENCES, BY_REFERENCE, BY_REFERENCE_BF16, BY_REFERENCE_F16, ORACLE_COUNT };
typedef struct tally {
  int cases[ORACLE_COUNT];
  double worst[ORACLE_COUNT];
} tally;
static tally tally_of_op[256], tally_of_row[256];
static int tensors_by_layout[3]; /* results of the tested backend: plain, channels in blocks, channels last */

static void count_case(tally *t, enum oracle oracle, double error)
{
  t->cases[oracle]++;
  if (error > t->worst[oracle]) t->worst[oracle] = error;
}

static tally *tally_for_row(const bench_row *row)
{
  size_t i = 0;
  while (__start_bench_rows[i] != row) i++;
  return &tally_of_row[i];
}

/* A row of several operations counts for the one whose name it has. */
static tally *tally_for(const bench_row *row, const char *op)
{
  if (row->composite && strcmp(row->name, op) != 0) return tally_for_row(row);
  for (size_t i = 0; i < brim_op_count(); i++)
    if (strcmp(brim_op_at(i)->name, op) == 0) return &tally_of_op[i];
  return NULL;
}

static void print_line(const char *name, const tally *t)
{
  printf("%-30s", name);
  for (int oracle = 0; oracle < ORACLE_COUNT; oracle++) {
    if (t->cases[oracle])
      printf("  %6d cases  worst %.1e", t->cases[oracle], t->worst[oracle]);
    else
      printf("  %6s %21s", "-", "");
  }
  printf("\n");
}

/* ---- errors ---- */

/* A test continues after a problem, so that one run shows all of them; it fails at its end. */
#define PROBLEMS_SHOWN 25
static int problems;

BRIM_PRINTF(1, 2) static void problem(const char *format, ...)
{
  va_list list;
  if (problems++ >= PROBLEMS_SHOWN) return;
  va_start(list, format);
  vfprintf(stderr, format, list);
  va_end(list);
  fputc('\n', stderr);
}

static void fail_if_problems(void)
{
  const int count = problems;
  problems = 0;
  if (count) fail_msg("%d problems (the first %d are shown above)", count, PROBLEMS_SHOWN);
}

/* ||a - b|| / ||b||; NaN is kept. */
static double relative_error(const double *a, const double *b, int64_t count)
{
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < count; i++) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return difference == 0 ? 0 : sqrt(difference) / fmax(sqrt(norm), 1e-30);
}

/* "conv2d seed 12, N 17, grain 16, context 3, values 0: x [17, 3, 9, 9] -> y [...]" */
static const char *describe(const bench *b, const brim_node *n)
{
  static char text[1024];
  char shape[96];
  brim_text out = {0};
  brim_text_printf(&out, "%s, seed %llu, grain %lld, context %u, values %d: %s", b->o.row->name,
                   (unsigned long long)b->o.seed, (long long)b->o.grain, b->o.context, (int)b->o.values, n->op);
  for (uint32_t i = 0; i < n->in_count; i++)
    brim_text_printf(&out, " %s %s/%lld", n->in[i]->name, brim_shape_format(shape, sizeof shape, &n->in[i]->shape),
                     (long long)n->in[i]->channel_block);
  brim_text_add(&out, " ->");
  for (uint32_t i = 0; i < n->out_count; i++)
    brim_text_printf(&out, " %s %s/%lld", n->out[i]->name, brim_shape_format(shape, sizeof shape, &n->out[i]->shape),
                     (long long)n->out[i]->channel_block);
  snprintf(text, sizeof text, "%s", brim_text_str(&out));
  brim_text_release(&out);
  return text;
}

/* ---- reference against finite differences ---- */

static double objective(bench *b)
{
  bench_run(b, 0, b->g->forward_count);
  const double *y = b->memory[b->result->id], *r = b->seed ? b->memory[b->seed->id] : NULL;
  double sum = 0;
  for (int64_t i = 0; i < brim_shape_count(&b->result->shape); i++) sum += y[i] * (r ? r[i] : b->step.loss_scale);
  return sum;
}

/* Compares up to 24 elements of x: their central differences and the gradient of the backward pass. */
static double differences_error(bench *b, brim_tensor *x, const double *gradient)
{
  const double h = 1e-5;
  const int64_t count = brim_shape_count(&x->shape);
  double *value = b->memory[x->id], expected[24], got[24];
  int64_t n = 0;
  for (; n < 24 && n < count; n++) {
    const int64_t i = count <= 24 ? n : bench_pick(b, 0, count - 1);
    const double at = value[i];
    value[i] = at + h;
    const double above = objective(b);
    value[i] = at - h;
    const double below = objective(b);
    value[i] = at;
    expected[n] = (above - below) / (2 * h);
    got[n] = gradient[i];
  }
  double norm = 0;
  for (int64_t i = 0; i < n; i++) norm += expected[i] * expected[i];
  return sqrt(norm) < 1e-4 ? relative_error(got, expected, n) * sqrt(norm) : relative_error(got, expected, n);
}

/* The sum of the gradients of x; a parameter has one for each use. */
static double *gradients_of(const bench *b, const brim_tensor *x, const brim_tensor *gradient)
{
  double *values = bench_values_of(b, gradient);
  for (size_t k = 0; k < b->g->further_count; k++) {
    if (b->g->further[k].of || b->g->parameter[b->g->further[k].parameter].value != x) continue;
    double *more = bench_values_of(b, b->g->further[k].gradient);
    for (int64_t i = 0; i < brim_shape_count(&x->shape); i++) values[i] += more[i];
    free(more);
  }
  return values;
}

/* The gradient of x after the backward pass: for a parameter, the difference from its initial value. */
static double *gradient_of(const bench *b, const brim_tensor *x, const brim_tensor *gradient, const double *start)
{
  double *values = gradients_of(b, x, gradient);
  if (x->role == BRIM_ROLE_PARAMETER)
    for (int64_t i = 0; i < brim_shape_count(&x->shape); i++) values[i] -= start[i];
  return values;
}

static void check_differences(bench *b, brim_tensor *x, brim_tensor *gradient)
{
  double *start = gradients_of(b, x, gradient);
  bench_begin_step(b);
  bench_run(b, 0, b->g->node_count);
  double *values = gradient_of(b, x, gradient, start);
  const double error = differences_error(b, x, values);
  const brim_node *by = b->g->node[gradient->producer];
  count_case(tally_for(b->o.row, by->op), BY_DIFFERENCES, error);
  if (!(error <= DIFFERENCES_ERROR_MAX)) problem("gradient of %s: error %g in %s", x->name, error, describe(b, by));
  free(start);
  free(values);
}

static void test_reference_gradients_match_finite_differences(void **state)
{
  (void)state;
  BENCH_EACH_ROW (row)
    for (uint64_t seed = 1; !row->large && !row->keeps_logits && seed <= SEEDS / BENCH_SHARE; seed++) {
      bench *b = bench_create(&(bench_options){.backend = &reference,
                                               .row = row,
                                               .seed = seed,
                                               .batch = 1 + (int64_t)seed % 3,
                                               .size = seed % 8 == 0 ? SIZE_ONE : SIZE_SMALL,
                                               .values = VALUES_DISTINCT});
      for (size_t i = 0; b->result && i < b->g->parameter_count; i++)
        if (b->g->parameter[i].gradient && !b->g->parameter[i].is_buffer)
          check_differences(b, b->g->parameter[i].value, b->g->parameter[i].gradient);
      for (size_t i = 0; b->result && i < b->g->gradient_count; i++) {
        brim_tensor *x = b->g->tensor[i];
        if (i >= b->g->want_count || !b->g->want[i]) continue; /* a constant, such as a target */
        brim_tensor *gradient = brim_autodiff_gradient(b->g, x);
        assert_non_null(gradient);
        check_differences(b, x, gradient);
      }
      bench_free(b);
    }
  fail_if_problems();
}

/* ---- the tested backend against reference ---- */

/* Case number `i` of a row: batch, grain, size, context and values cycle with different periods. */
static bench_options case_of(const bench_row *row, int i)
{
  static const int64_t batches[11] = {1, 16, 7, 32, 3, 17, 40, 19, 2, 33, 48}, grains[7] = {0, 16, 4, 16, 0, 16, 1};
  bench_options o = {.row = row, .seed = 1000 + (uint64_t)i};
  o.batch = batches[i % 11];
  o.grain = grains[i % 7];
  o.size = (enum bench_size)(i % SIZE_COUNT);
  o.context = (unsigned)(i / 2 % CONTEXT_COUNT);
  o.values = (enum bench_values)(i % VALUES_COUNT);
  o.gradients_at_zero = i % 4 < 2;
  o.first_sample = 5 * (i % 3);
  o.evaluate = row->by_sample && i % 8 == 5;
  if (row->large) { /* slow on the reference; whole grains are covered when the batch is split */
    o.batch = i ? 5 : 2;
    o.context = BARE;
    o.values = VALUES_UNIFORM;
  }
  return o;
}

/* The number of cases of a row, if small rows get `count`. */
static int cases_of(const bench_row *row, int count)
{
  const char *text = getenv("BENCH_CASES");
  const long most = text ? strtol(text, NULL, 10) : count;
  const int large = BENCH_SHARE > 1 ? 0 : count >= CASES ? 2 : 1; /* sanitizers need none: the code is the same */
  const int cases = row->large ? large : count / BENCH_SHARE;
  return most > 0 && most < cases ? (int)most : cases;
}

static double norm_of(const double *values, int64_t count)
{
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += values[i] * values[i];
  return sqrt(sum);
}

/* Returns the norm of all gradients together, the scale for the error of a small one within a network. */
static double gradient_norm(const bench *b)
{
  double sum = 0;
  for (size_t i = 0; i < b->g->parameter_count; i++) {
    if (!b->g->parameter[i].gradient) continue; /* frozen */
    double *values = bench_values_of(b, b->g->parameter[i].gradient);
    const double norm = norm_of(values, brim_shape_count(&b->g->parameter[i].gradient->shape));
    sum += norm * norm;
    free(values);
  }
  return sqrt(sum);
}

/* Returns the norm that an error is relative to. A gradient is a sum over samples, whose terms may cancel. The scale is
 * then that of the other gradients and, within a single operation, a tenth of the square root of the number of terms:
 * as products of numbers in [-1, 1) they add up to three times as much on average. */
static double scale_of(const bench *b, const brim_tensor *t, const double *values, int64_t count)
{
  double scale = fmax(norm_of(values, count), fmax(1e-30, b->o.row->terms * sqrt((double)count)));
  if (t->role != BRIM_ROLE_GRADIENT) return scale;
  scale = fmax(scale, 1e-2 * gradient_norm(b));
  return b->o.row->composite ? scale : fmax(scale, 0.1 * sqrt((double)(b->o.batch * count)));
}

static enum oracle oracle_in(uint32_t activations)
{
  if (activations == 0) return BY_REFERENCE;
  return activations == BRIM_DTYPE_BF16 ? BY_REFERENCE_BF16 : BY_REFERENCE_F16;
}

static void compare_tensor(const bench *got, const bench *expected, const brim_node *n, const brim_tensor *t)
{
  const brim_tensor *twin = expected->g->tensor[t->id];
  const int64_t count = brim_shape_count(&t->shape);
  double *a = bench_values_of(got, t), *b = bench_values_of(expected, twin);
  const double error =
      relative_error(a, b, count) * fmax(norm_of(b, count), 1e-30) / scale_of(expected, twin, b, count);
  const enum oracle oracle = oracle_in(got->o.activations);
  count_case(tally_for(got->o.row, n->op), oracle, error);
  tensors_by_layout[t->channel_block == 1 ? 0 : t->channel_block < t->shape.dim[1] ? 1 : 2]++;
  const bench_row *row = got->o.row;
  const double error_max = oracle == BY_REFERENCE_BF16  ? BF16_ERROR_MAX
                           : oracle == BY_REFERENCE_F16 ? F16_ERROR_MAX
                           : row->error_max > 0         ? row->error_max
                                                        : BACKEND_ERROR_MAX;
  if (!(error <= error_max)) problem("%s: error %g in %s", t->name, error, describe(got, n));
  free(a);
  free(b);
}

/* True for an operation that no backend needs (brim/ops.h) and the tested one lacks: a fused one, or cast, which only
 * 16-bit storage needs. */
static bool may_lack(const char *op)
{
  return (strchr(op, '+') || strcmp(op, "cast") == 0) && !bench_offers(&tested, op);
}

/* True if the tested backend has all operations of a row. */
static bool offered(const bench_row *row)
{
  bench *b = bench_create(&(bench_options){.backend = &reference, .row = row, .seed = 1, .batch = 2});
  bool all = true;
  for (size_t i = 0; i < b->g->node_count; i++) all = all && bench_offers(&tested, b->g->node[i]->op);
  bench_free(b);
  return all;
}

static void compare_backends(bench_options o)
{
  o.backend = &tested;
  bench *got = bench_create(&o);
  o.backend = &reference;
  if (o.activations) o.follows = got;
  bench *expected = bench_create(&o);
  assert_int_equal(expected->g->node_count, got->g->node_count);
  bench_run(got, 0, got->g->node_count);
  bench_run(expected, 0, expected->g->node_count);
  bench_check_sources(expected);
  bench_check_sources(got);
  for (size_t i = 0; i < got->g->node_count; i++)
    for (uint32_t k = 0; k < got->g->node[i]->out_count; k++)
      compare_tensor(got, expected, got->g->node[i], got->g->node[i]->out[k]);
  bench_free(expected);
  bench_free(got);
}

static void skip_without_tested(void)
{
  if (tested.ops) return;
  printf("SKIPPED: backend %s was not built\n", tested_id);
  skip();
}

static void test_backend_agrees_with_reference(void **state)
{
  (void)state;
  skip_without_tested();
  BENCH_EACH_ROW (row) {
    const int cases = offered(row) ? cases_of(row, CASES) : 0;
    for (int i = 0; i < cases; i++) compare_backends(case_of(row, i));
  }
  fail_if_problems();
}

/* True if the tested backend can store activations in a type. */
static bool stores(uint32_t activations)
{
  const size_t size = offsetof(brim_backend_ops, stores) + sizeof tested.ops->stores;
  return tested.ops->size >= size && tested.ops->stores & BRIM_STORES(activations);
}

static void compare_in(uint32_t activations)
{
  skip_without_tested();
  if (!stores(activations)) skip();
  BENCH_EACH_ROW (row) {
    const int cases = offered(row) ? cases_of(row, CASES / 2) : 0;
    for (int i = 0; i < cases; i++) {
      bench_options o = case_of(row, i);
      o.activations = activations;
      compare_backends(o);
    }
  }
  fail_if_problems();
}

static void test_backend_agrees_in_bf16(void **state)
{
  (void)state;
  compare_in(BRIM_DTYPE_BF16);
}

static void test_backend_agrees_in_f16(void **state)
{
  (void)state;
  compare_in(BRIM_DTYPE_F16);
}

/* ---- the same bits for every memory layout and every split of a batch ---- */

static void assert_same_bits(const bench *a, const bench *b, const brim_tensor *t, const char *what)
{
  const int64_t count = brim_shape_count(&t->shape);
  double *x = bench_values_of(a, t), *y = bench_values_of(b, b->g->tensor[t->id]);
  if (memcmp(x, y, (size_t)count * sizeof *x) != 0)
    problem("%s on %s, seed %llu, N %lld, grain %lld: '%s' differs %s (relative %g)", a->o.row->name,
            a->o.backend->name, (unsigned long long)a->o.seed, (long long)a->o.batch, (long long)a->o.grain, t->name,
            what, relative_error(x, y, count));
  free(x);
  free(y);
}

static void check_layout(bench_options o)
{
  bench *apart = bench_create(&o);
  o.shared_memory = true;
  bench *shared = bench_create(&o);
  bench_run(apart, 0, apart->g->node_count);
  bench_run(shared, 0, shared->g->node_count);
  for (size_t i = 0; i < apart->g->tensor_count; i++) {
    const brim_tensor *t = apart->g->tensor[i];
    const bool kept = bench_accumulates(apart, t) || t->role == BRIM_ROLE_PARAMETER || t->role == BRIM_ROLE_OPTIMIZER;
    if (kept) assert_same_bits(apart, shared, t, "when memory is shared");
  }
  bench_free(apart);
  bench_free(shared);
}

static void test_results_do_not_depend_on_shared_memory(void **state)
{
  (void)state;
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
    const int64_t size = brim_shape_count(&t->shape) / t->shape.dim[0], count = brim_shape_count(&twin->shape);
    const bool by_group = t->shape.dim[0] != whole->o.batch && whole->o.row->norm_group > 0;
    const int64_t skip = (by_group ? first / whole->o.row->norm_group : first) * size;
    double *x = bench_values_of(piece, twin), *y = bench_values_of(whole, t);
    if (memcmp(x, y + skip, (size_t)count * sizeof *x) != 0)
      problem("%s on %s, seed %llu: samples %lld.. of '%s' (%s) differ between N %lld and N %lld (relative %g)",
              whole->o.row->name, whole->o.backend->name, (unsigned long long)whole->o.seed, (long long)first, t->name,
              whole->g->node[t->producer]->op, (long long)piece->o.batch, (long long)whole->o.batch,
              relative_error(x, y + skip, count));
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

/* The number of samples that run at once, and up to two sizes of the pieces that they are split into (0: none). */
typedef struct cut {
  int64_t total, batch[2];
} cut;

static void check_case_cut(bench_options o, const cut *c)
{
  o.batch = c->total;
  bench *whole = bench_create(&o);
  bench_run(whole, 0, whole->g->node_count);
  for (size_t i = 0; i < 2 && c->batch[i] > 0; i++) check_cut(whole, c->batch[i]);
  bench_free(whole);
}

static bool is_quick_tier(void)
{
  const char *tier = getenv("BRIM_TEST_TIER");
  return tier && strcmp(tier, "quick") == 0;
}

/* With `grouped`, checks the rows with norm groups, whose parts are multiples of the group or, if last, at least one
 * group; without it the others. The quick tier checks large rows, which take most of the time, only with the last cut
 * of a table, which leaves a smaller last part. */
static void check_cuts(const backend *on, int64_t grain, const cut *c, size_t cuts, bool grouped)
{
  BENCH_EACH_ROW (row) {
    if ((on == &reference && row->large) || (row->norm_group > 0) != grouped) continue;
    for (int i = 0; row->by_sample && i < cases_of(row, 8); i++)
      for (size_t k = row->large && is_quick_tier() ? cuts - 1 : 0; k < cuts; k++) {
        bench_options o = case_of(row, i);
        o.grain = grain;
        o.backend = on;
        o.first_sample = 0;
        check_case_cut(o, &c[k]);
      }
  }
}

static const cut by_group[] = {{12, {4}}, {14, {8}}};

static void test_cpu_gives_same_bits_at_multiples_of_the_grain(void **state)
{
  (void)state;
  static const cut odd[] = {{35, {16, 32}}}, by_16[] = {{64, {16, 32}}, {40, {16, 32}}},
                   by_4[] = {{12, {4}}, {10, {8}}};
  skip_without_tested();
  check_cuts(&tested, 16, by_16, sizeof by_16 / sizeof by_16[0], false);
  check_cuts(&tested, 16, odd, sizeof odd / sizeof odd[0], false);
  check_cuts(&tested, 4, by_4, sizeof by_4 / sizeof by_4[0], false);
  check_cuts(&tested, 16, by_16, sizeof by_16 / sizeof by_16[0], true);
  check_cuts(&tested, 4, by_group, sizeof by_group / sizeof by_group[0], true);
  fail_if_problems();
}

/* Its sums run sample by sample, or group by group, so it needs no grain. */
static void test_reference_gives_same_bits_at_any_micro_batch(void **state)
{
  (void)state;
  static const cut any[] = {{7, {1, 3}}};
  check_cuts(&reference, 0, any, sizeof any / sizeof any[0], false);
  check_cuts(&reference, 0, by_group, sizeof by_group / sizeof by_group[0], true);
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

static void test_cpu_gives_same_bits_on_any_number_of_threads(void **state)
{
  (void)state;
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
  BENCH_EACH_ROW (row)
    for (int i = 0; i < cases_of(row, 10); i++) compare_threads(&single, several, case_of(row, i));
  for (size_t t = 0; t < SEVERAL; t++) unload_plugin(&many[t]);
  unload_plugin(&one);
  fail_if_problems();
}

/* ---- the same bits in any order of blocks and threads ---- */

/* The emulated device runs blocks, warps and threads one after another, in an order given by a seed. Runs a case of
 * many blocks in ascending order and in others. */
static void compare_orders(bench_options o)
{
  static const char *const seed[] = {"1", "2"};
  o.backend = &tested;
  bench *expected = bench_create(&o);
  bench_run(expected, 0, expected->g->node_count);
  for (size_t s = 0; s < sizeof seed / sizeof *seed; s++) {
    char what[64];
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

static void test_results_do_not_depend_on_the_order_of_blocks_and_threads(void **state)
{
  (void)state;
  if (strcmp(tested_folder, "emulated") != 0) skip();
  BENCH_EACH_ROW (row) {
    const int cases = offered(row) ? cases_of(row, 4) : 0;
    for (int i = 0; i < cases; i++) {
      bench_options o = case_of(row, i + 3); /* with a batch of 32 at first */
      compare_orders(o);
      o.activations = i % 2 ? BRIM_DTYPE_F16 : BRIM_DTYPE_BF16;
      if (stores(o.activations)) compare_orders(o);
    }
  }
  fail_if_problems();
}

/* ---- NaN ---- */

/* Puts a NaN into one element of the first real input or parameter. */
static bench *run_with_nan(bench_options o, int64_t element)
{
  bench *b = bench_create(&o);
  size_t first = 0;
  while (b->g->tensor[first]->dtype == BRIM_DTYPE_I32) first++;
  const brim_tensor *x = b->g->tensor[first];
  if (element >= brim_shape_count(&x->shape)) element = 0;
  if (x->dtype == BRIM_DTYPE_F32)
    ((float *)b->memory[x->id])[element] = NAN;
  else
    ((double *)b->memory[x->id])[element] = NAN;
  bench_run(b, 0, b->g->node_count);
  return b;
}

/* Every tensor must have its NaNs where the reference has them. */
/* may_spread: more values may be NaN than on the reference, but not fewer. */
static void compare_nans(const bench *got, const bench *expected, const brim_node *n, const brim_tensor *t,
                         bool may_spread)
{
  double *a = bench_values_of(got, t), *b = bench_values_of(expected, expected->g->tensor[t->id]);
  for (int64_t i = 0; i < brim_shape_count(&t->shape); i++)
    if (!isnan(a[i]) != !isnan(b[i]) && !(may_spread && isnan(a[i])))
      problem("element %lld of %s is %g, on reference %g, in %s", (long long)i, t->name, a[i], b[i], describe(got, n));
  free(a);
  free(b);
}

/* On cpu without AVX2, products compute the gradients of most weights, and they also multiply NaN by the padding. */
static bool multiplies_padding(void)
{
  const char *limit = getenv("ONEDNN_MAX_CPU_ISA");
  bool has_avx2 = !limit || (strcmp(limit, "SSE41") != 0 && strcmp(limit, "AVX") != 0);
#ifdef __x86_64__
  has_avx2 = has_avx2 && __builtin_cpu_supports("avx2");
#else
  has_avx2 = false;
#endif
  return !has_avx2 && strcmp(tested_id, "cpu") == 0;
}

/* A device's products of the loss have the rows of ignored labels too, and multiply NaN by their gradient, 0. */
static bool multiplies_ignored_rows(const brim_node *n)
{
  return strncmp(n->op, "linear_cross_entropy", 20) == 0 && strcmp(tested_id, "cuda") == 0;
}

static void check_nan(bench_options o, int64_t element)
{
  o.backend = &reference;
  bench *expected = run_with_nan(o, element);
  const brim_tensor *y = expected->g->node[0]->out[0];
  double *values = bench_values_of(expected, y);
  if (element == 0 && !o.row->skips && !isnan(values[0]))
    problem("NaN became %g in %s", values[0], describe(expected, expected->g->node[0]));
  free(values);
  o.backend = &tested;
  bench *got = tested.ops ? run_with_nan(o, element) : NULL;
  const bool spreads = o.row->spreads_nan || multiplies_padding();
  for (size_t i = 0; got && i < got->g->node_count; i++) {
    const brim_node *n = got->g->node[i];
    const bool may_spread = (spreads && strcmp(n->op, "conv2d_grad_weight") == 0) || multiplies_ignored_rows(n);
    for (uint32_t k = 0; k < n->out_count; k++) compare_nans(got, expected, n, n->out[k], may_spread);
  }
  if (got) bench_free(got);
  bench_free(expected);
}

/* In fp32: in 16 bits a library's attention may spread it (brim/ops.h). */
static void test_nan_spreads_as_in_the_reference(void **state)
{
  (void)state;
  BENCH_EACH_ROW (row) {
    const int cases = !alone || offered(row) ? cases_of(row, 16) : 0;
    for (int i = 0; i < cases; i++) {
      bench_options o = case_of(row, i);
      o.first_sample = 0;
      o.evaluate = false;
      check_nan(o, i % 3);
    }
  }
  fail_if_problems();
}

/* ---- overflow in fp16 ---- */

/* An overflow must not be stored as the largest number: dynamic loss scaling has to detect it. Here parameters and data
 * are within the type's range, but so large that most sums and products overflow. */
#define LARGE 5e4

static void enlarge_sources(const bench *b)
{
  for (size_t i = 0; i < b->g->tensor_count; i++) {
    const brim_tensor *t = b->g->tensor[i];
    const bool real = t->dtype == BRIM_DTYPE_F32 || t->dtype == BRIM_DTYPE_F64;
    if (!real || t->producer >= 0 || t == b->g->metrics || t == b->g->class_weight || t == b->seed) continue;
    if (t->role != BRIM_ROLE_PARAMETER && t->role != BRIM_ROLE_DATA) continue;
    for (int64_t k = 0; k < brim_shape_count(&t->shape); k++)
      if (t->dtype == BRIM_DTYPE_F32)
        ((float *)b->memory[t->id])[k] *= (float)LARGE;
      else
        ((double *)b->memory[t->id])[k] *= LARGE;
  }
}

/* Inputs that are infinite or NaN are covered by the test of NaN. Attention's scores, and logits that are not stored,
 * are so large here that their logarithm has no fractional digits in fp32, so the recomputed weights are arbitrary. */
static bool is_comparable(const bench *b, const brim_node *n)
{
  static const char *const recomputing[] = {"attention_grad", "attention_qkv_grad", "linear_cross_entropy_grad",
                                            "linear_cross_entropy+grad"};
  bool finite = true;
  for (size_t i = 0; i < sizeof recomputing / sizeof recomputing[0]; i++)
    finite = finite && strcmp(n->op, recomputing[i]) != 0;
  for (uint32_t k = 0; k < n->in_count && finite; k++) {
    double *values = bench_values_of(b, n->in[k]);
    for (int64_t i = 0; i < brim_shape_count(&n->in[k]->shape); i++) finite = finite && isfinite(values[i]);
    free(values);
  }
  return finite;
}

/* Some of cuDNN's convolutions store 0 for values below the range of fp16 (brim/ops.h). */
static bool may_lose(const brim_node *n, double value)
{
  return value < 0 && strcmp(tested_id, "cuda") == 0 && strncmp(n->op, "conv2d", strlen("conv2d")) == 0;
}

/* Where the reference has an infinity, a finite number is an error; intermediate infinities of fused operations are
 * not checked. One value in a hundred may be too close to the end of the range to decide. Returns the number of
 * infinities. */
static int64_t find_numbers(const bench *got, const bench *expected, const brim_node *n, const brim_tensor *t)
{
  const int64_t count = brim_shape_count(&t->shape);
  double *a = bench_values_of(got, t), *b = bench_values_of(expected, expected->g->tensor[t->id]);
  int64_t infinite = 0, numbers = 0;
  double number = 0;
  for (int64_t i = 0; i < count; i++)
    if (isinf(b[i])) {
      infinite++;
      if (isfinite(a[i]) && !may_lose(n, b[i])) {
        numbers++;
        number = a[i];
      }
    }
  if (numbers > 1 + infinite / 100)
    problem("%s: %lld of %lld infinite values became numbers, as %g, in %s", t->name, (long long)numbers,
            (long long)infinite, number, describe(got, n));
  free(a);
  free(b);
  return infinite;
}

static int64_t check_large(bench_options o)
{
  int64_t infinite = 0;
  o.activations = BRIM_DTYPE_F16;
  o.backend = &tested;
  bench *got = bench_create(&o);
  o.backend = &reference;
  o.follows = got;
  bench *expected = bench_create(&o);
  enlarge_sources(got);
  enlarge_sources(expected);
  bench_run(got, 0, got->g->node_count);
  bench_run(expected, 0, expected->g->node_count);
  for (size_t i = 0; i < got->g->node_count; i++) {
    const brim_node *n = got->g->node[i];
    for (uint32_t k = 0; is_comparable(got, n) && k < n->out_count; k++)
      if (n->out[k]->dtype == BRIM_DTYPE_F16) infinite += find_numbers(got, expected, n, n->out[k]);
  }
  bench_free(expected);
  bench_free(got);
  return infinite;
}

/* True if only some rows were selected. */
static bool some_rows(void)
{
  return getenv("BENCH_ROWS") || getenv("BENCH_SHARD");
}

static void test_values_too_large_for_f16_become_infinite(void **state)
{
  (void)state;
  int64_t infinite = 0;
  skip_without_tested();
  if (tested.ops->size < sizeof *tested.ops || !(tested.ops->stores & BRIM_STORES(BRIM_DTYPE_F16))) skip();
  BENCH_EACH_ROW (row) {
    const int cases = !row->large && offered(row) ? cases_of(row, 4) : 0;
    for (int i = 0; i < cases; i++) infinite += check_large(case_of(row, i));
  }
  printf("%lld values were too large for fp16\n", (long long)infinite);
  fail_if_problems();
  if (!some_rows()) assert_true(infinite > 0);
}

/* ---- coverage ---- */

/* Only a whole run can show that something is missing. */
static bool every_row(void)
{
  return BENCH_SHARE == 1 && !some_rows();
}

/* With fewer cases, at least one. */
static int cases_least(void)
{
  return getenv("BENCH_CASES") ? 1 : 20;
}

static int tested_cases(const tally *t)
{
  return t->cases[BY_REFERENCE] + t->cases[BY_REFERENCE_BF16] + t->cases[BY_REFERENCE_F16];
}

static void test_every_operation_has_cases(void **state)
{
  (void)state;
  printf("\n%-30s  %-27s  %-27s  %-27s  %s\n", "operation", "reference by differences", tested_id, "in bf16",
         "in fp16");
  for (size_t i = 0; i < brim_op_count(); i++) print_line(brim_op_at(i)->name, &tally_of_op[i]);
  BENCH_EACH_ROW (row)
    if (row->composite) print_line(row->name, tally_for_row(row));
  printf("results of %s: %d plain, %d with channels in blocks, %d with channels last\n\n", tested_id,
         tensors_by_layout[0], tensors_by_layout[1], tensors_by_layout[2]);
  for (size_t i = 0; tested.ops && every_row() && i < brim_op_count(); i++)
    if (tested_cases(&tally_of_op[i]) < cases_least() && !may_lack(brim_op_at(i)->name))
      fail_msg("operation %s has %d cases: add a row to tests/conformance/rows*.c", brim_op_at(i)->name,
               tally_of_op[i].cases[BY_REFERENCE]);
  for (size_t i = 0; !alone && every_row() && i < brim_op_count(); i++) /* of those that make gradients */
    if (tally_of_op[i].cases[BY_DIFFERENCES] > 0 && tally_of_op[i].cases[BY_DIFFERENCES] < cases_least())
      fail_msg("operation %s has only %d cases by differences", brim_op_at(i)->name,
               tally_of_op[i].cases[BY_DIFFERENCES]);
}

static int set_up(void **state)
{
  (void)state;
  if (!load_plugin(&reference_plugin, "backend", "reference", NULL)) return -1;
  reference = (backend){"reference", reference_plugin.plugin->ops, reference_plugin.self};
  if (!load_plugin_from(&tested_plugin, tested_folder, "backend", tested_id, NULL)) return alone ? -1 : 0;
  tested = (backend){tested_id, tested_plugin.plugin->ops, tested_plugin.self};
  if (BRIM_HAS(brim_backend_ops, tested.ops, select) && tested.ops->select(tested.self, 0) != BRIM_OK) {
    fprintf(stderr, "%s: %s\n", tested_id, brim_error_text());
    return -1;
  }
  return 0;
}

static int tear_down(void **state)
{
  (void)state;
  unload_plugin(&reference_plugin);
  unload_plugin(&tested_plugin);
  return 0;
}

int main(int argc, char **argv)
{
  const struct CMUnitTest all[] = {
      cmocka_unit_test(test_reference_gradients_match_finite_differences),
      cmocka_unit_test(test_reference_gives_same_bits_at_any_micro_batch),
      cmocka_unit_test(test_cpu_gives_same_bits_at_multiples_of_the_grain),
      cmocka_unit_test(test_cpu_gives_same_bits_on_any_number_of_threads),
      cmocka_unit_test(test_backend_agrees_with_reference),
      cmocka_unit_test(test_backend_agrees_in_bf16),
      cmocka_unit_test(test_backend_agrees_in_f16),
      cmocka_unit_test(test_results_do_not_depend_on_shared_memory),
      cmocka_unit_test(test_nan_spreads_as_in_the_reference),
      cmocka_unit_test(test_values_too_large_for_f16_become_infinite),
      cmocka_unit_test(test_every_operation_has_cases),
  };
  const struct CMUnitTest of_backend[] = {
      cmocka_unit_test(test_backend_agrees_with_reference),
      cmocka_unit_test(test_backend_agrees_in_bf16),
      cmocka_unit_test(test_backend_agrees_in_f16),
      cmocka_unit_test(test_results_do_not_depend_on_shared_memory),
      cmocka_unit_test(test_results_do_not_depend_on_the_order_of_blocks_and_threads),
      cmocka_unit_test(test_nan_spreads_as_in_the_reference),
      cmocka_unit_test(test_values_too_large_for_f16_become_infinite),
      cmocka_unit_test(test_every_operation_has_cases),
  };
  if (argc <= 1) return cmocka_run_group_tests(all, set_up, tear_down);
  alone = true;
  tested_id = argv[1];
  tested_folder = argc > 2 ? argv[2] : "";
  return cmocka_run_group_tests(of_backend, set_up, tear_down);
}
