/* Tests the cost and benefit of recompute in plans of deep models. tests/conformance/test_random_graphs.c and
 * tests/cli/test_recompute.py show that it changes no bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "graph/recompute_auto.h"
#include "graph/recompute_walk.h"
#include "mock_backend.h"
#include "recompute_models.h"
#include "tier.h"

/* Numbers of budgets for the shallowest model and for deeper ones, whose plans take proportionally longer. The middle
 * tier runs a third of the budgets and of the levels, at the smaller depths. Sanitizers check memory, not numbers, so
 * they run fewer still. */
#ifdef __SANITIZE_ADDRESS__
enum { STEPS = 5, STEPS_DEEPER = 2 };
#else
enum { STEPS = 50, STEPS_DEEPER = 5 };
#endif
enum { BATCH = 8, DROPPABLE_MAX = 14, BUDGETS = 100 };

static const int depths[] = {12, 24, 36, 48};

static brim_plan *plan_of(const deep *d, enum brim_recompute_kind kind, uint64_t budget_bytes)
{
  brim_plan_request request = request_of_deep(d, &mock_backend, NULL, BATCH);
  request.recompute = kind;
  request.budget_bytes = budget_bytes;
  brim_plan *plan = NULL;
  if (brim_plan_create(&request, &plan) != BRIM_OK) fail_msg("%s", brim_error_text());
  assert_int_equal(brim_plan_check(plan), BRIM_OK);
  return plan;
}

/* Calls `check` for every model at every depth. */
static void for_each_model(void (*check)(const deep *d))
{
  for (size_t m = 0; m < DEEP_MODELS; m++)
    for (size_t i = 0; i < sizeof depths / sizeof depths[0] / (is_tier("full") ? 1 : 2); i++) {
      deep d = deep_models[m];
      d.blocks = depths[i];
      check(&d);
    }
}

/* ---- budgets ---- */

static void check_budgets(const deep *d)
{
  brim_plan *none = plan_of(d, BRIM_RECOMPUTE_NONE, 0), *floor = plan_of(d, BRIM_RECOMPUTE_AUTO, 1);
  brim_plan *full = plan_of(d, BRIM_RECOMPUTE_FULL, 0);
  const uint64_t most = none->peak_bytes, least = floor->peak_bytes;
  assert_true(least <= full->peak_bytes);
  brim_plan_free(full);
  const uint64_t all = d->blocks == depths[0] ? STEPS : STEPS_DEEPER, steps = is_tier("full") ? all : (all + 2) / 3;
  uint64_t peak = most, flops = 0;
  double slack = 1;
  assert_true(least < most);
  for (uint64_t i = 0; i <= steps; i++) {
    const uint64_t budget = most - (most - least) * i / steps;
    brim_plan *plan = plan_of(d, BRIM_RECOMPUTE_AUTO, budget);
    if (plan->peak_bytes > budget) fail_msg("%s: step %d is above its budget", d->name, (int)i);
    if (plan->peak_bytes > peak) fail_msg("%s: step %d takes more than the one before", d->name, (int)i);
    const brim_graph *g = plan->program[0].graph;
    assert_true(g->recomputed_flops >= flops);
    assert_true((g->recomputed_count > 0) == (budget < most));
    peak = plan->peak_bytes;
    flops = g->recomputed_flops;
    const double gaps = (double)plan->peak_bytes / (double)plan->lower_bound_bytes;
    if (gaps > slack) slack = gaps;
    brim_plan_free(plan);
  }
  print_message("%-32s x %2d: at most %.2f %% above the lower bound\n", d->name, d->blocks, 100 * (slack - 1));
  assert_true(slack <= 1.03);
  brim_plan_free(none);
  brim_plan_free(floor);
}

static void a_plan_never_exceeds_its_budget_and_shrinks_with_it(void **state)
{
  for_each_model(check_budgets);
}

/* ---- work for memory ---- */

static double transient_of(const brim_plan *plan)
{
  return (double)(plan->peak_bytes - plan->persistent_bytes);
}

static double extra_percent(const brim_plan *plan)
{
  return 100 * brim_recompute_share(&plan->program[0]);
}

/* Prints the transient memory of a plan, and its extra work. */
static void print_point(const brim_plan *plan, const brim_plan *none, const char *what)
{
  print_message("  %s%.0f %%: %.1f %%", what, 100 * transient_of(plan) / transient_of(none), extra_percent(plan));
}

static brim_plan *plan_of_share(const deep *d, const brim_plan *none, double share)
{
  return plan_of(d, BRIM_RECOMPUTE_AUTO, none->persistent_bytes + (uint64_t)(share * transient_of(none)));
}

/* Returns the maximum extra work, in percent, at a third of the memory; 0 if a third is impossible because all
 * recomputed results are in use at once. In a chain of convolutions all results cost the same, so two thirds of them
 * are two thirds of the forward pass, 22 % of a step, and less is impossible. Other models have norms, activations and
 * sums that cost little. */
static double work_at_a_third(const deep *d)
{
  if (d->block == chain_block && d->norm == NORM_NONE) return d->blocks < 24 ? 0 : 24;
  return 20;
}

static void check_work(const deep *d)
{
  static const double shares[] = {0.75, 0.5, 0.25};
  brim_plan *none = plan_of(d, BRIM_RECOMPUTE_NONE, 0), *third = plan_of_share(d, none, 1.0 / 3);
  print_message("%-32s x %2d:", d->name, d->blocks);
  for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
    brim_plan *plan = plan_of_share(d, none, shares[i]);
    print_point(plan, none, "");
    brim_plan_free(plan);
  }
  print_point(third, none, "; a third: ");
  print_message("\n");
  const double bound = work_at_a_third(d);
  if (bound > 0) {
    assert_true(transient_of(third) <= transient_of(none) / 3);
    assert_true(extra_percent(third) <= bound);
  }
  brim_plan_free(third);
  brim_plan_free(none);
}

static void a_third_of_the_memory_costs_a_fifth_more_work_at_most(void **state)
{
  print_message("transient memory, of that without recompute: extra work in a step\n");
  for_each_model(check_work);
}

/* The search skips a level with more bytes than the budget without planning it, so no plan may need fewer bytes than
 * its level. */
static void check_bytes(const deep *d)
{
  brim_arena arena = {0};
  brim_recompute r;
  uint32_t met = 0, tried = 0;
  brim_plan *none = plan_of(d, BRIM_RECOMPUTE_NONE, 0), *least = plan_of(d, BRIM_RECOMPUTE_AUTO, 1);
  brim_recompute_choose(&none->program[0], BRIM_RECOMPUTE_AUTO, &arena, &r);
  uint32_t *of;
  const brim_graph *g = brim_walk_halve(none->program[0].graph, &arena, &of);
  assert_true(r.bytes[0] <= none->program[0].live_bytes);
  assert_true(r.bytes[0] >= 0.97 * (double)none->program[0].live_bytes);
  assert_true(r.bytes[r.levels] <= least->program[0].live_bytes);
  for (uint32_t level = 1; level <= r.levels; level++) {
    const bool *dropped = r.dropped[level];
    assert_true(r.bytes[level] < r.bytes[level - 1]);
    if (!is_tier("full") && level % 3 != 1 && level != r.levels) continue;
    tried++;
    brim_plan *plan = plan_of(d, BRIM_RECOMPUTE_AUTO, none->persistent_bytes + r.bytes[level] * 103 / 100);
    uint64_t flops = 0; /* the level's work: a plan with equal work was made from this level */
    for (size_t i = 0; i < g->forward_count; i++)
      flops += dropped[i] && !g->node[i]->descriptor->traits.view ? brim_op_cost(g->node[i]).flops : 0;
    if (flops == plan->program[0].graph->recomputed_flops) {
      met++;
      assert_true(r.bytes[level] <= plan->program[0].live_bytes);
    }
    brim_plan_free(plan);
  }
  assert_true(met > tried / 4);
  brim_plan_free(least);
  brim_plan_free(none);
  brim_arena_release(&arena);
}

static void no_plan_needs_less_than_the_bound_of_its_level(void **state)
{
  for (size_t m = 0; m < DEEP_MODELS; m++) {
    deep d = deep_models[m];
    d.blocks = depths[0];
    check_bytes(&d);
  }
}

static void check_fixed(const deep *d)
{
  brim_plan *none = plan_of(d, BRIM_RECOMPUTE_NONE, 0);
  print_message("%-32s x %2d:", d->name, d->blocks);
  for (int kind = BRIM_RECOMPUTE_BLOCKS; kind <= BRIM_RECOMPUTE_FULL; kind++) {
    brim_plan *plan = plan_of(d, (enum brim_recompute_kind)kind, 0);
    print_point(plan, none, kind == BRIM_RECOMPUTE_FULL ? "full " : "blocks ");
    assert_true(transient_of(plan) < 0.55 * transient_of(none));
    assert_true(extra_percent(plan) < 34); /* computing every forward operation twice adds a third of a step */
    brim_plan_free(plan);
  }
  print_message("\n");
  brim_plan_free(none);
}

static void blocks_and_full_lower_the_peak_of_deep_models(void **state)
{
  for_each_model(check_fixed);
}

/* Counts the results that are kept before the forward pass's last dropped one. */
static size_t count_kept(const deep *d, enum brim_recompute_kind kind)
{
  brim_arena arena = {0};
  brim_recompute r;
  size_t kept = 0;
  brim_plan *plan = plan_of(d, BRIM_RECOMPUTE_NONE, 0);
  brim_recompute_choose(&plan->program[0], kind, &arena, &r);
  const brim_graph *g = plan->program[0].graph;
  size_t last = g->forward_count;
  while (last > 0 && !r.dropped[1][last - 1]) last--;
  for (size_t i = 0; i < last; i++) kept += !r.dropped[1][i];
  brim_plan_free(plan);
  brim_arena_release(&arena);
  return kept;
}

/* If every third of 12 blocks is marked, the results at the ends of the first three marked blocks are kept; the end of
 * the fourth has no dropped result after it. */
static void blocks_end_where_the_model_says(void **state)
{
  for (size_t m = 0; m < DEEP_MODELS; m++) {
    deep d = deep_models[m];
    d.blocks = 12;
    const size_t found = count_kept(&d, BRIM_RECOMPUTE_BLOCKS);
    d.marked = 3;
    assert_int_equal(count_kept(&d, BRIM_RECOMPUTE_BLOCKS), 3);
    assert_true(found != 3);
    brim_plan_free(plan_of(&d, BRIM_RECOMPUTE_BLOCKS, 0));
  }
}

/* ---- compared with all possibilities ---- */

/* Bytes and work of every set of nodes of a small program that may be dropped. */
typedef struct all_sets {
  brim_estimate e;
  uint32_t node[DROPPABLE_MAX], count;
  uint64_t bytes[1 << DROPPABLE_MAX], work[1 << DROPPABLE_MAX];
} all_sets;

static uint64_t work_made(const all_sets *a)
{
  const brim_graph *g = a->e.w.g;
  uint64_t work = 0;
  for (size_t i = 0; i < g->forward_count; i++) work += a->e.w.made[i] ? brim_recompute_work(g->node[i]) : 0;
  return work;
}

static void try_all_sets(all_sets *a, const brim_program *p, brim_arena *arena)
{
  brim_estimate_init(&a->e, p, arena);
  const brim_graph *g = a->e.w.g;
  a->count = 0;
  for (uint32_t i = 0; i < g->forward_count; i++) {
    /* The results before flatten, head and loss are used again at once. */
    const bool needed = i + 4 < g->forward_count;
    if (!needed || g->node[i]->descriptor->traits.view || !brim_walk_repeats(g, g->node[i])) continue;
    assert_true(a->count < DROPPABLE_MAX);
    a->node[a->count++] = i;
  }
  for (uint32_t set = 0; set < 1u << a->count; set++) {
    for (uint32_t k = 0; k < a->count; k++) a->e.w.dropped[a->node[k]] = set >> k & 1;
    a->bytes[set] = brim_estimate_run(&a->e);
    a->work[set] = work_made(a);
  }
}

static uint64_t least_work(const all_sets *a, uint64_t bytes)
{
  uint64_t least = UINT64_MAX;
  for (uint32_t set = 0; set < 1u << a->count; set++)
    if (a->bytes[set] <= bytes && a->work[set] < least) least = a->work[set];
  return least;
}

/* At every budget, compares the work of the first level that fits with the least possible work in a budget smaller by a
 * 64th of the peak, because levels are not finer than that. Also compares the least memory. */
static void check_against_all(const deep *d)
{
  static all_sets all;
  brim_arena arena = {0};
  brim_recompute r;
  brim_plan *plan = plan_of(d, BRIM_RECOMPUTE_NONE, 0);
  brim_recompute_choose(&plan->program[0], BRIM_RECOMPUTE_AUTO, &arena, &r);
  try_all_sets(&all, &plan->program[0], &arena);
  double worst = 1;
  uint64_t floor = UINT64_MAX;
  for (uint32_t set = 0; set < 1u << all.count; set++)
    if (all.bytes[set] < floor) floor = all.bytes[set];
  assert_int_equal(r.bytes[r.levels], floor);
  for (uint64_t i = 0, level = 0; i <= BUDGETS; i++) {
    const uint64_t budget = r.bytes[0] - (r.bytes[0] - floor) * i / BUDGETS;
    while (r.bytes[level] > budget) level++;
    memcpy(all.e.w.dropped, r.dropped[level], all.e.w.g->forward_count * sizeof(bool));
    assert_int_equal(brim_estimate_run(&all.e), r.bytes[level]);
    const uint64_t finer = r.bytes[0] / (BRIM_RECOMPUTE_LEVELS_MAX - 1);
    const double work = (double)work_made(&all), least = (double)least_work(&all, budget - finer);
    if (budget - finer >= floor && work > worst * least) worst = work / least;
  }
  print_message("%-32s x %2d: %u levels of %u sets, at most %.1f %% more work than the best, and its least memory\n",
                d->name, d->blocks, r.levels, 1u << all.count, 100 * (worst - 1));
  assert_true(worst <= 1.02);
  brim_plan_free(plan);
  brim_arena_release(&arena);
}

static void levels_of_small_models_are_near_the_best_of_all_sets(void **state)
{
  static const int blocks[] = {12, 6, 2, 2, 1}; /* without the last model, in which half nodes make levels less exact */
  for (size_t m = 0; m < sizeof blocks / sizeof blocks[0]; m++) {
    deep d = deep_models[m];
    d.blocks = blocks[m];
    check_against_all(&d);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_plan_never_exceeds_its_budget_and_shrinks_with_it),
      cmocka_unit_test(a_third_of_the_memory_costs_a_fifth_more_work_at_most),
      cmocka_unit_test(no_plan_needs_less_than_the_bound_of_its_level),
      cmocka_unit_test(blocks_and_full_lower_the_peak_of_deep_models),
      cmocka_unit_test(blocks_end_where_the_model_says),
      cmocka_unit_test(levels_of_small_models_are_near_the_best_of_all_sets),
  };
  return cmocka_run_group_tests(tests, make_mock_backend_with_conv, NULL);
}
