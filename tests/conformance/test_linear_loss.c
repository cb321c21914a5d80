/* Tests the last product inside the loss (graph.fuse=linear_loss): where the core applies it and where not, and that
 * losses, predictions and gradients equal those of logits and softmax cross-entropy, in less memory, in training and
 * evaluation. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/load.h"
#include "exec/exec.h"
#include "graph/fuse.h"
#include "must.h"

#define CLASSES 4100 /* the core fuses from 4096 classes on */
#define FEATURES 3
#define HIDDEN 4
#define BATCH 300 /* more rows than a kernel processes at once */
#define TOP_K 1500

static loaded reference;

typedef struct shape_of_model {
  bool with_bias, with_relu, output_early;
} shape_of_model;

static brim_status build(const void *self, brim_graph *g)
{
  const shape_of_model *m = self;
  brim_tensor *x = brim_relu(g, brim_linear(g, "fc1", brim_input(g), HIDDEN));
  x = m->with_bias ? brim_linear(g, "fc2", x, brim_classes(g)) : brim_linear_no_bias(g, "fc2", x, brim_classes(g));
  if (m->with_relu) x = brim_relu(g, x);
  brim_output(g, x);
  if (m->output_early) brim_relu(g, x);
  return BRIM_OK;
}
static const brim_model_ops model = {sizeof(brim_model_ops), build};

static brim_graph_options options_of(const shape_of_model *m)
{
  return (brim_graph_options){.model = &model,
                              .model_self = m,
                              .loss.op = "softmax_cross_entropy",
                              .sample = {1, {FEATURES}},
                              .classes = CLASSES,
                              .batch = BATCH,
                              .real = BRIM_DTYPE_F64,
                              .training = true,
                              .fuse = BRIM_FUSE_ALL};
}

static bool offers_nothing(const void *arg, const char *op)
{
  (void)arg;
  (void)op;
  return false;
}

static bool uses_linear_loss(brim_graph_options o)
{
  bool found = false, logits = false;
  brim_graph *g = NULL;
  must(brim_graph_build(&o, &g));
  for (size_t i = 0; i < g->node_count; i++) found = found || strcmp(g->node[i]->op, "linear_cross_entropy") == 0;
  for (size_t i = 0; i < g->tensor_count; i++) {
    const brim_shape *s = &g->tensor[i]->shape;
    logits = logits || (s->rank == 2 && s->dim[0] == o.batch && s->dim[1] == o.classes);
  }
  brim_graph_free(g);
  assert_true(found != logits);
  return found;
}

static void test_the_loss_includes_the_product_if_nothing_else_needs_logits(void **state)
{
  static const shape_of_model plain = {0}, bias = {.with_bias = true}, followed = {.with_relu = true},
                              early = {.output_early = true};
  const brim_graph_options o = options_of(&plain);
  brim_graph_options other = o;
  assert_true(uses_linear_loss(o));
  other.loss.attr = (brim_loss_attr){.smoothing = 0.1, .ignores = 1, .ignore_index = -100};
  assert_true(uses_linear_loss(other));
  other.loss.attr.ignore_index = 7;
  assert_false(uses_linear_loss(other));
  assert_true(uses_linear_loss(options_of(&bias)));
  assert_false(uses_linear_loss(options_of(&followed)));
  assert_false(uses_linear_loss(options_of(&early)));
  other = o;
  other.fuse = BRIM_FUSE_ALL & ~(uint64_t)BRIM_FUSE_LINEAR_LOSS;
  assert_false(uses_linear_loss(other));
  other = o;
  other.classes = 4095;
  assert_false(uses_linear_loss(other));
  other = o;
  other.keep_output = true;
  assert_false(uses_linear_loss(other));
  other = o;
  other.class_weights = true;
  assert_false(uses_linear_loss(other));
  other = o;
  other.training = false;
  assert_true(uses_linear_loss(other));
  other = o;
  other.loss.op = "mse";
  assert_false(uses_linear_loss(other));
  other = o;
  other.offers = offers_nothing;
  assert_false(uses_linear_loss(other));
}

/* ---- the same numbers ---- */

typedef struct placed {
  brim_plan *plan;
  brim_exec *exec;
} placed;

static placed place(const loaded *on, const shape_of_model *m, enum brim_program_kind kind, uint64_t fuse,
                    enum brim_recompute_kind recompute)
{
  placed p = {0};
  brim_plan_request r = {.graph = options_of(m),
                         .backend = on->plugin->ops,
                         .backend_self = on->self,
                         .update = {.op = "sgd", .state_count = 1},
                         .shape = {{kind, BATCH}},
                         .shape_count = 1,
                         .recompute = recompute};
  r.graph.fuse = fuse;
  r.graph.real = r.backend->real;
  r.graph.loss.attr.smoothing = 0.1;
  r.graph.top_k = TOP_K;
  must(brim_plan_create(&r, &p.plan));
  must(brim_plan_check(p.plan));
  must(brim_exec_open(p.plan, 0, &p.exec));
  return p;
}

static void run(const placed *p)
{
  const brim_program *program = &p->plan->program[0];
  float input32[BATCH * FEATURES];
  double input[BATCH * FEATURES];
  static const int32_t labels[] = {0, 4099, 17, 1024, 1023, 2};
  int32_t label[BATCH];
  const brim_step step = {.loss_scale = 1.0 / BATCH};
  for (int i = 0; i < BATCH; i++) label[i] = labels[i % 6];
  for (int i = 0; i < BATCH * FEATURES; i++) input32[i] = (float)(input[i] = sin(i + 1.0));
  for (size_t i = 0; i < program->graph->parameter_count; i++) {
    const brim_tensor *t = program->graph->parameter[i].value;
    const bool wide = t->dtype == BRIM_DTYPE_F64;
    void *value = brim_xmalloc(t->bytes);
    for (int64_t k = 0; k < brim_shape_count(&t->shape); k++) {
      const double v = cos((double)(k * 31 + (int64_t)i)) * 2;
      if (wide)
        ((double *)value)[k] = v;
      else
        ((float *)value)[k] = (float)v;
    }
    must(brim_exec_write(p->exec, program, t, value));
    free(value);
  }
  if (program->kind == BRIM_PROGRAM_TRAIN) must(brim_exec_zero_gradients(p->exec));
  must(brim_exec_zero_metrics(p->exec));
  const bool wide = program->graph->real == BRIM_DTYPE_F64;
  must(brim_exec_load(p->exec, program, wide ? (const void *)input : input32, label));
  must(brim_exec_run(p->exec, program, &step, NULL));
}

static void compare_gradient(const placed *a, const placed *b, size_t i)
{
  const brim_program *pa = &a->plan->program[0], *pb = &b->plan->program[0];
  const brim_tensor *t = pa->graph->parameter[i].gradient;
  double *x = brim_xmalloc(t->bytes), *y = brim_xmalloc(t->bytes), difference = 0, norm = 0;
  must(brim_exec_read(a->exec, pa, t, x));
  must(brim_exec_read(b->exec, pb, pb->graph->parameter[i].gradient, y));
  for (int64_t k = 0; k < brim_shape_count(&t->shape); k++) {
    difference += (x[k] - y[k]) * (x[k] - y[k]);
    norm += y[k] * y[k];
  }
  assert_true(norm > 0);
  assert_true(sqrt(difference) <= 1e-12 * sqrt(norm));
  free(x);
  free(y);
}

static void take_away(const placed *p)
{
  brim_exec_close(p->exec);
  brim_plan_free(p->plan);
}

/* Compares sums of losses, correct predictions, and in evaluation the top-k counts: from ranks and from logits. */
static void compare(const shape_of_model *m, enum brim_program_kind kind)
{
  const placed inside = place(&reference, m, kind, BRIM_FUSE_ALL, BRIM_RECOMPUTE_BLOCKS);
  const placed apart = place(&reference, m, kind, 0, BRIM_RECOMPUTE_BLOCKS);
  const bool trains = kind == BRIM_PROGRAM_TRAIN;
  double a[3] = {0}, b[3] = {0};
  run(&inside);
  run(&apart);
  must(brim_exec_metrics(inside.exec, &inside.plan->program[0], a, trains ? 2 : 3));
  must(brim_exec_metrics(apart.exec, &apart.plan->program[0], b, trains ? 2 : 3));
  assert_true(fabs(a[0] - b[0]) <= 1e-12 * fabs(b[0]));
  assert_true(a[1] == b[1]);
  assert_true(a[2] == b[2]);
  assert_true(trains || (a[2] > 0 && a[2] < BATCH));
  for (size_t i = 0; trains && i < inside.plan->program[0].graph->parameter_count; i++)
    compare_gradient(&inside, &apart, i);
  /* the memory saved is that of the logits, minus a rank and some padding */
  assert_true(inside.plan->peak_bytes + BATCH * (CLASSES - 100) * sizeof(double) <= apart.plan->peak_bytes);
  take_away(&inside);
  take_away(&apart);
}

static void test_results_equal_those_with_logits_in_less_memory(void **state)
{
  static const shape_of_model plain = {0}, bias = {.with_bias = true};
  compare(&plain, BRIM_PROGRAM_TRAIN);
  compare(&plain, BRIM_PROGRAM_EVALUATE);
  compare(&bias, BRIM_PROGRAM_TRAIN);
  compare(&bias, BRIM_PROGRAM_EVALUATE);
}

/* ---- logits that are kept for the gradient ---- */

static size_t nodes_of(const placed *p, const char *op)
{
  const brim_graph *g = p->plan->program[0].graph;
  size_t found = 0;
  for (size_t i = 0; i < g->node_count; i++) found += strcmp(g->node[i]->op, op) == 0;
  return found;
}

static void same_bits(const placed *a, const placed *b)
{
  const brim_program *pa = &a->plan->program[0], *pb = &b->plan->program[0];
  double x[2], y[2];
  must(brim_exec_metrics(a->exec, pa, x, 2));
  must(brim_exec_metrics(b->exec, pb, y, 2));
  assert_memory_equal(x, y, sizeof x);
  for (size_t i = 0; i < pa->graph->parameter_count; i++) {
    const brim_tensor *t = pa->graph->parameter[i].gradient;
    void *mine = brim_xmalloc(t->bytes), *other = brim_xmalloc(t->bytes);
    must(brim_exec_read(a->exec, pa, t, mine));
    must(brim_exec_read(b->exec, pb, pb->graph->parameter[i].gradient, other));
    assert_memory_equal(mine, other, t->bytes);
    free(mine);
    free(other);
  }
}

static void compare_once_and_again(const loaded *on, const shape_of_model *m)
{
  const placed once = place(on, m, BRIM_PROGRAM_TRAIN, BRIM_FUSE_ALL, BRIM_RECOMPUTE_NONE);
  const placed again = place(on, m, BRIM_PROGRAM_TRAIN, BRIM_FUSE_ALL, BRIM_RECOMPUTE_BLOCKS);
  assert_int_equal(nodes_of(&once, "linear_cross_entropy+grad"), 1);
  assert_int_equal(nodes_of(&once, "linear_cross_entropy") + nodes_of(&once, "linear_cross_entropy_grad"), 0);
  assert_int_equal(nodes_of(&again, "linear_cross_entropy+grad"), 0);
  assert_int_equal(nodes_of(&again, "linear_cross_entropy") + nodes_of(&again, "linear_cross_entropy_grad"), 2);
  run(&once);
  run(&again);
  same_bits(&once, &again);
  take_away(&once);
  take_away(&again);
}

static void test_computing_logits_once_or_twice_gives_the_same_bits(void **state)
{
  static const shape_of_model plain = {0}, bias = {.with_bias = true};
  loaded cpu;
  compare_once_and_again(&reference, &plain);
  compare_once_and_again(&reference, &bias);
  if (!load_plugin(&cpu, "backend", "cpu", NULL)) {
    printf("SKIPPED: backend cpu was not built\n");
    return;
  }
  compare_once_and_again(&cpu, &plain);
  compare_once_and_again(&cpu, &bias);
  unload_plugin(&cpu);
}

/* ---- a large vocabulary ---- */

enum { VOCABULARY = 50257, SAMPLES = 512 };

/* Checks that no tensor and no scratch memory is as large as the logits. On a backend that works in pieces, all of them
 * together are also smaller, not counting the part of the logits that is kept for the gradient. With a budget too small
 * to keep logits, they are recomputed. */
static void check_sizes(const loaded *on, const shape_of_model *m, enum brim_program_kind kind, uint64_t budget)
{
  const uint32_t real = ((const brim_backend_ops *)on->plugin->ops)->real;
  brim_plan *plan = NULL;
  brim_plan_request r = {.graph = options_of(m),
                         .backend = on->plugin->ops,
                         .backend_self = on->self,
                         .update = {.op = "sgd", .state_count = 1},
                         .shape = {{kind, SAMPLES}},
                         .shape_count = 1,
                         .recompute = BRIM_RECOMPUTE_AUTO,
                         .budget_bytes = budget};
  r.graph.classes = VOCABULARY;
  r.graph.real = real;
  r.graph.top_k = 5;
  must(brim_plan_create(&r, &plan));
  must(brim_plan_check(plan));
  const brim_program *p = &plan->program[0];
  const uint64_t logits = (uint64_t)VOCABULARY * SAMPLES * brim_dtype_bytes(real);
  for (size_t i = 0; i < p->graph->tensor_count; i++) assert_true(p->graph->tensor[i]->bytes < logits / 10);
  assert_true(p->transient_bytes < (p->graph->merges_loss ? logits / 10 * 6 : logits / 10));
  assert_int_equal(p->graph->merges_loss, kind == BRIM_PROGRAM_TRAIN && budget == 0);
  assert_true(plan->metrics_bytes < 1024);
  brim_plan_free(plan);
}

static void check_vocabulary(const loaded *on)
{
  static const shape_of_model plain = {0}, bias = {.with_bias = true};
  check_sizes(on, &plain, BRIM_PROGRAM_TRAIN, 0);
  check_sizes(on, &plain, BRIM_PROGRAM_TRAIN, 1);
  check_sizes(on, &plain, BRIM_PROGRAM_EVALUATE, 0);
  check_sizes(on, &bias, BRIM_PROGRAM_TRAIN, 0);
  check_sizes(on, &bias, BRIM_PROGRAM_TRAIN, 1);
  check_sizes(on, &bias, BRIM_PROGRAM_EVALUATE, 0);
}

static void test_logits_of_a_large_vocabulary_are_never_stored_whole(void **state)
{
  loaded cpu;
  check_vocabulary(&reference);
  if (!load_plugin(&cpu, "backend", "cpu", NULL)) {
    printf("SKIPPED: backend cpu was not built\n");
    return;
  }
  check_vocabulary(&cpu);
  unload_plugin(&cpu);
}

static int set_up(void **state)
{
  return load_plugin(&reference, "backend", "reference", NULL) ? 0 : -1;
}

static int tear_down(void **state)
{
  unload_plugin(&reference);
  return 0;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_loss_includes_the_product_if_nothing_else_needs_logits),
      cmocka_unit_test(test_results_equal_those_with_logits_in_less_memory),
      cmocka_unit_test(test_computing_logits_once_or_twice_gives_the_same_bits),
      cmocka_unit_test(test_logits_of_a_large_vocabulary_are_never_stored_whole),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
