/* Tests a graph of a thousand forward operations: its nodes are counted, and its plan is valid and tight.
 * tests/bench/bench_plan.c measures the speed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "brim/brim.h"
#include "graph/plan.h"
#include "graph/room.h"
#include "large_model.h"
#include "mock_backend.h"

enum { BATCH = 3 };

/* Each node requests another size of scratch memory, so that no two programs have the same buffers. */
static brim_status prepare_scratch(void *self, const brim_program_info *program, const brim_node *node,
                                   brim_kernel_need *need, void **state)
{
  (void)self;
  (void)program;
  need->workspace_bytes = 64 * (node->index * 7919 % 101);
  return BRIM_OK;
}

static brim_plan *make_plan(void)
{
  make_mock_backend(prepare_scratch);
  const brim_plan_request request = {.graph = {.model = &large_model,
                                               .loss.op = "softmax_cross_entropy",
                                               .sample = {2, {LARGE_TOKENS, LARGE_WIDTH}},
                                               .classes = 10,
                                               .real = BRIM_DTYPE_F32},
                                     .backend = &mock_backend,
                                     .update = {.op = "sgd", .state_count = 1},
                                     .shape = {{BRIM_PROGRAM_TRAIN, BATCH}, {BRIM_PROGRAM_EVALUATE, BATCH}},
                                     .shape_count = 2};
  brim_plan *plan = NULL;
  if (brim_plan_create(&request, &plan) != BRIM_OK) fail_msg("%s", brim_error_text());
  return plan;
}

static void test_a_graph_of_a_thousand_operations_is_built_and_differentiated(void **state)
{
  brim_plan *plan = make_plan();
  const brim_graph *train = plan->program[0].graph, *eval = plan->program[1].graph;
  assert_true(LARGE_OPS >= 1000);
  assert_int_equal(eval->node_count, LARGE_OPS);
  assert_int_equal(train->forward_count, LARGE_OPS);
  /* Every forward operation except the metrics has one or more gradient nodes. */
  assert_true(train->node_count > 2 * LARGE_OPS);
  assert_int_equal(train->parameter_count, 2 + 16 * LARGE_BLOCKS);
  for (size_t i = 0; i < train->parameter_count; i++) { /* the graph computes the gradient of each parameter */
    bool written = false;
    for (size_t n = LARGE_OPS; n < train->node_count && !written; n++)
      for (uint32_t k = 0; k < train->node[n]->out_count; k++)
        written = written || train->node[n]->out[k] == train->parameter[i].gradient;
    assert_true(written);
  }
  brim_plan_free(plan);
}

static void test_the_plan_of_a_thousand_operations_is_valid_and_tight(void **state)
{
  brim_plan *plan = make_plan();
  assert_int_equal(brim_plan_check(plan), BRIM_OK);
  assert_true(plan->program[0].buffer_count > 2000);
  assert_true((double)plan->peak_bytes <= 1.01 * (double)plan->lower_bound_bytes);
  for (size_t p = 0; p < plan->program_count; p++)
    for (size_t i = 0; i < plan->program[p].graph->node_count; i++)
      assert_string_equal(plan->program[p].kernel[i]->op, plan->program[p].graph->node[i]->op);
  brim_plan_free(plan);
}

typedef struct life {
  uint64_t offset, bytes;
  int32_t first, last;
} life;

static uint32_t draw(uint32_t *state, uint32_t below)
{
  *state = *state * 1664525 + 1013904223;
  return (*state >> 8) % below;
}

/* Draws lifetimes like those in real programs: some buffers wait for the backward pass, nested like activations, some
 * live for a few nodes, and some for any time. There are few or many different sizes. */
static life draw_life(uint32_t *state, int32_t nodes, uint32_t sizes)
{
  const uint32_t kind = draw(state, 4);
  life l = {.bytes = 64 * (1 + draw(state, sizes)), .first = (int32_t)draw(state, (uint32_t)nodes)};
  if (kind == 0) l.first %= nodes / 2 + 1;
  l.last = kind == 0   ? nodes - l.first
           : kind == 1 ? l.first + (int32_t)draw(state, (uint32_t)(nodes - l.first + 1))
                       : l.first + (int32_t)draw(state, 4);
  if (l.last > nodes) l.last = nodes;
  return l;
}

/* Returns the lowest offset at which `placed` leave room: 0, or the end of one of them. */
static uint64_t find_lowest(const life *placed, size_t count, const life *l)
{
  uint64_t lowest = UINT64_MAX;
  for (size_t c = 0; c <= count; c++) {
    const uint64_t at = c < count ? placed[c].offset + placed[c].bytes : 0;
    if (at >= lowest) continue;
    bool is_free = true;
    for (size_t i = 0; i < count && is_free; i++) {
      const bool together = placed[i].first <= l->last && l->first <= placed[i].last;
      is_free = !together || placed[i].offset + placed[i].bytes <= at || at + l->bytes <= placed[i].offset;
    }
    if (is_free) lowest = at;
  }
  return lowest;
}

/* Cases have few or many buffers, and one node or a number of nodes that may be a power of two. */
static void test_a_buffer_gets_the_lowest_place_that_is_free_for_its_life(void **unused)
{
  enum { MOST = 700 };
  static const struct {
    size_t count;
    int32_t nodes;
    uint32_t sizes;
  } cases[] = {{40, 1, 5}, {150, 60, 1}, {MOST, 64, 3}, {MOST, 900, 3}, {MOST, 63, 200}, {MOST, 2000, 400}};
  static life placed[MOST];
  uint32_t state = 7;
  (void)unused;
  for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
    brim_arena arena = {0};
    brim_room *room = brim_room_create(cases[c].count, cases[c].nodes, &arena);
    for (int run = 0; run < 2; run++) { /* the second run reuses the same memory */
      for (size_t i = 0; i < cases[c].count; i++) {
        life l = draw_life(&state, cases[c].nodes, cases[c].sizes);
        l.offset = brim_room_take(room, l.bytes, l.first, l.last);
        assert_int_equal(l.offset, find_lowest(placed, i, &l));
        placed[i] = l;
      }
      brim_room_clear(room);
    }
    brim_arena_release(&arena);
  }
}

static void test_every_operation_is_found_by_its_name(void **state)
{
  for (size_t i = 0; i < brim_op_count(); i++) assert_ptr_equal(brim_op_find(brim_op_at(i)->name), brim_op_at(i));
  assert_null(brim_op_find("no_such_operation"));
  assert_null(brim_op_find(""));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_graph_of_a_thousand_operations_is_built_and_differentiated),
      cmocka_unit_test(test_the_plan_of_a_thousand_operations_is_valid_and_tight),
      cmocka_unit_test(test_a_buffer_gets_the_lowest_place_that_is_free_for_its_life),
      cmocka_unit_test(test_every_operation_is_found_by_its_name),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
