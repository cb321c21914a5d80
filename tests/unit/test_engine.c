/* Tests brim/engine.h: the order of calls, errors, and the numbers of steps. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "brim/brim.h"
#include "brim/engine.h"

enum { BATCH = 24, FEATURES_MAX = 16, CLASSES_MAX = 8 };

static brim_status build_linear(const void *self, brim_graph *g)
{
  (void)self;
  brim_output(g, brim_linear(g, "head", brim_input(g), brim_classes(g)));
  return BRIM_OK;
}

static brim_status build_deep(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_relu(g, brim_linear(g, "fc1", brim_input(g), 32));
  brim_output(g, brim_linear(g, "head", brim_dropout(g, x, 0.3), brim_classes(g)));
  return BRIM_OK;
}

/* The table lacks the last token of the vocabulary. */
static brim_status build_short_table(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_embedding(g, "embed", brim_input(g), brim_classes(g) - 1, 4);
  brim_output(g, brim_linear(g, "head", x, brim_classes(g)));
  return BRIM_OK;
}

static brim_status build_without_parameters(const void *self, brim_graph *g)
{
  (void)self;
  brim_output(g, brim_relu(g, brim_input(g)));
  return BRIM_OK;
}

static brim_status build_wrong(const void *self, brim_graph *g)
{
  (void)self;
  brim_output(g, brim_conv2d(g, "conv", brim_input(g), 3, (brim_conv2d_options){.kernel = {3, 3}}));
  return BRIM_OK;
}

/* The layer has parameters, but the model returns its input. */
static brim_status build_with_idle_layer(const void *self, brim_graph *g)
{
  (void)self;
  brim_linear(g, "idle", brim_input(g), 3);
  brim_output(g, brim_relu(g, brim_input(g)));
  return BRIM_OK;
}

/* Passes the input of the first graph that it builds to the others, too. */
static brim_status build_with_kept_tensor(const void *self, brim_graph *g)
{
  static brim_tensor *kept;
  (void)self;
  if (!kept) kept = brim_input(g);
  brim_output(g, brim_linear(g, "head", kept, brim_classes(g)));
  return BRIM_OK;
}

static brim_status build_nothing(const void *self, brim_graph *g)
{
  (void)self;
  (void)g;
  return BRIM_OK;
}

/* `self` points to an int, which selects the list that is NULL. */
static brim_status build_null_list(const void *self, brim_graph *g)
{
  brim_tensor *x = brim_input(g);
  const int64_t no_dims[BRIM_DIMS_MAX] = {0};
  switch (*(const int *)self) {
  case 0:
    brim_concat(g, 2, NULL, 1);
    break;
  case 1:
    brim_split(g, x, 1, 2, NULL);
    break;
  case 2:
    brim_permute(g, x, NULL);
    break;
  case 3:
    brim_pad(g, x, NULL, no_dims, 0);
    break;
  case 4:
    brim_pad(g, x, no_dims, NULL, 0);
    break;
  case 5:
    brim_reshape(g, x, 2, NULL);
    break;
  case 6:
    brim_sum(g, x, 1, NULL, 0);
    break;
  default:
    brim_parameter_new(g, "p", 2, NULL, (brim_init){BRIM_INIT_CONSTANT, 0});
    break;
  }
  return build_linear(NULL, g);
}

static brim_status build_tokens(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_embedding(g, "embed", brim_input(g), brim_classes(g), 8);
  brim_output(g, brim_linear(g, "head", x, brim_classes(g)));
  return BRIM_OK;
}

static brim_engine *open_engine(const char *backend)
{
  const brim_engine_options options = {.size = sizeof options, .backend = backend};
  brim_engine *engine = NULL;
  assert_int_equal(brim_engine_open(&options, &engine), BRIM_OK);
  return engine;
}

static brim_network network_of(brim_status (*build)(const void *, brim_graph *), int64_t features, int64_t classes)
{
  return (brim_network){
      .size = sizeof(brim_network), .build = build, .sample = {1, {features}}, .classes = classes, .batch = BATCH};
}

static void assert_refused(brim_status status, brim_status expected, const char *text)
{
  assert_int_equal(status, expected);
  if (!strstr(brim_error_text(), text)) fail_msg("'%s' does not say '%s'", brim_error_text(), text);
}

/* ---- errors ---- */

static void invalid_engines_are_refused(void **state)
{
  const char *const wrong[] = {"thread=1", NULL};
  brim_engine_options o = {.size = sizeof o, .backend = "abacus"};
  brim_engine *engine;
  assert_refused(brim_engine_open(&o, &engine), BRIM_ELOAD, "unknown backend 'abacus'");
  assert_null(engine);
  o.backend = "reference";
  o.device = 7;
  assert_refused(brim_engine_open(&o, &engine), BRIM_ENODEVICE, "there is no device 7");
  o.device = 0;
  o.settings = wrong;
  assert_refused(brim_engine_open(&o, &engine), BRIM_ECONFIG, "thread=1");
  o.size = 0;
  assert_refused(brim_engine_open(&o, &engine), BRIM_EINVAL, "sizeof(brim_engine_options)");
  assert_refused(brim_engine_open(NULL, &engine), BRIM_EINVAL, "sizeof(brim_engine_options)");
  brim_engine_close(NULL);
}

static void invalid_networks_are_refused(void **state)
{
  brim_engine *engine = open_engine("reference");
  const brim_network good = network_of(build_linear, 4, 3);
  const char *const wrong[] = {"speed=1", NULL}, *const two_weights[] = {"class_weights=[1,2]", NULL};
  const char *const no_weights[] = {"class_weights=[0,0,0]", NULL};
  brim_training_plan *plan;
  struct {
    brim_network n;
    brim_status status;
    const char *text;
  } cases[25];
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) cases[i].n = good;
#define CASE(i, field, value, code, says) cases[i].n.field = (value), cases[i].status = (code), cases[i].text = (says)
  CASE(0, size, 0, BRIM_EINVAL, "sizeof(brim_network)");
  CASE(1, build, NULL, BRIM_EINVAL, "either build or model");
  CASE(2, model, "mlp", BRIM_EINVAL, "either build or model");
  CASE(3, sample.rank, 0, BRIM_EINVAL, "1 to 5 dimensions, got 0");
  CASE(4, sample.dim[0], 0, BRIM_EINVAL, "dimension 0 must be at least 1, got 0");
  CASE(5, classes, 0, BRIM_EINVAL, "classes");
  CASE(6, batch, 0, BRIM_EINVAL, "batch must be at least 1");
  CASE(7, micro_batch, 7, BRIM_EINVAL, "must divide the batch of 24, got 7");
  CASE(8, build, build_wrong, BRIM_EINVAL, "test_engine.c");
  CASE(9, optimizer, "adamx", BRIM_ELOAD, "unknown optimizer 'adamx'");
  CASE(10, loss_settings, wrong, BRIM_ECONFIG, "speed=1");
  CASE(11, recompute, 9, BRIM_EINVAL, "recompute");
  CASE(12, activations, BRIM_DTYPE_BF16, BRIM_ENOTSUP, "cannot keep activations in bf16");
  CASE(13, build, build_nothing, BRIM_EINVAL, "brim_output");
  CASE(14, sample.dim[0], INT64_MAX, BRIM_EINVAL, "is too large");
  CASE(15, batch, INT64_MAX, BRIM_EINVAL, "is too large");
  CASE(16, build, build_without_parameters, BRIM_EINVAL, "no parameters to train");
  cases[16].n.classes = 4;
  CASE(17, settings, wrong, BRIM_EINVAL, "settings needs brim_network.model");
  CASE(18, task, BRIM_TASK_TOKENS, BRIM_EINVAL, "must be {1, {T}} for tokens, got 2 dimensions");
  cases[18].n.sample = (brim_shape){2, {4, 4}};
  CASE(19, loss, "mse", BRIM_EINVAL, "must be 'cross_entropy' for tokens, got 'mse'");
  cases[19].n.task = BRIM_TASK_TOKENS;
  CASE(20, loss, "cross_entropy", BRIM_EINVAL, "class_weights need classes");
  cases[20].n.loss_settings = no_weights;
  cases[20].n.task = BRIM_TASK_VALUES;
  CASE(21, loss_settings, two_weights, BRIM_EINVAL, "class_weights must be 3 numbers, not all 0; got 2");
  CASE(22, loss_settings, no_weights, BRIM_EINVAL, "class_weights must be 3 numbers, not all 0; got 3, all 0");
  CASE(23, build, build_with_kept_tensor, BRIM_EINVAL, "the input belongs to another graph");
  cases[23].n.answers = 1;
  CASE(24, build, build_with_idle_layer, BRIM_EINVAL, "no parameter that is trained influences the model's output");
  cases[24].n.classes = 4;
#undef CASE
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    assert_refused(brim_engine_plan(engine, &cases[i].n, &plan), cases[i].status, cases[i].text);
    assert_null(plan);
  }
  assert_refused(brim_engine_plan_within(engine, &good, 64, &plan), BRIM_EBUDGET, "the smallest micro-batch takes ");
  assert_null(plan);
  brim_engine_plan_free(NULL);
  brim_engine_close(engine);
}

static void null_lists_are_refused(void **state)
{
  brim_engine *engine = open_engine("reference");
  for (int which = 0; which < 8; which++) {
    brim_network n = network_of(build_null_list, 4, 3);
    brim_training_plan *plan;
    n.self = &which;
    assert_refused(brim_engine_plan(engine, &n, &plan), BRIM_EINVAL, " is NULL");
  }
  brim_engine_close(engine);
}

static void calls_without_their_preconditions(void **state)
{
  const brim_network n = network_of(build_linear, 4, 3);
  const float values[4] = {0};
  brim_training_plan *plan;
  brim_training *training;
  assert_refused(brim_engine_plan(NULL, &n, &plan), BRIM_EINVAL, "the engine is NULL");
  assert_refused(brim_engine_plan_within(NULL, &n, 1, &plan), BRIM_EINVAL, "the engine is NULL");
  assert_refused(brim_engine_place(NULL, 1, &training), BRIM_EINVAL, "the plan is NULL");
  assert_refused(brim_engine_feed(NULL, values, values), BRIM_EINVAL, "the training is NULL");
  assert_refused(brim_engine_step(NULL, NULL), BRIM_EINVAL, "the training is NULL");
  assert_refused(brim_engine_answer(NULL, values, NULL), BRIM_EINVAL, "the training is NULL");
  assert_refused(brim_engine_fetch(NULL, "w", NULL, 1), BRIM_EINVAL, "the training is NULL");
  assert_refused(brim_engine_write(NULL, "w", values, 1), BRIM_EINVAL, "the training is NULL");
}

static void null_for_required_arguments(void **state)
{
  const brim_engine_options options = {.size = sizeof options, .backend = "reference"};
  brim_engine *engine = open_engine("reference");
  brim_network n = network_of(build_linear, 4, 3);
  float values[BATCH * 4] = {0};
  int32_t labels[BATCH] = {0};
  brim_training_figures figures = {.size = sizeof figures};
  brim_training_plan *plan;
  brim_training *training;
  n.answers = 1;
  assert_refused(brim_engine_open(&options, NULL), BRIM_EINVAL, "the pointer for the engine is NULL");
  assert_refused(brim_engine_plan(engine, &n, NULL), BRIM_EINVAL, "the pointer for the plan is NULL");
  assert_refused(brim_engine_plan_within(engine, &n, 1, NULL), BRIM_EINVAL, "the pointer for the plan is NULL");
  assert_refused(brim_engine_plan(engine, NULL, &plan), BRIM_EINVAL, "sizeof(brim_network)");
  assert_int_equal(brim_engine_plan(engine, &n, &plan), BRIM_OK);
  brim_engine_figures(NULL, &figures);
  brim_engine_figures(plan, NULL);
  assert_int_equal(figures.peak_bytes, 0);
  assert_refused(brim_engine_place(plan, 1, NULL), BRIM_EINVAL, "the pointer for the training is NULL");
  assert_int_equal(brim_engine_place(plan, 1, &training), BRIM_OK);
  assert_refused(brim_engine_feed(training, NULL, labels), BRIM_EINVAL, "values is NULL");
  assert_refused(brim_engine_feed(training, values, NULL), BRIM_EINVAL, "labels is NULL");
  assert_refused(brim_engine_answer(training, values, NULL), BRIM_EINVAL, "the memory for the answers is NULL");
  assert_refused(brim_engine_fetch(training, NULL, values, 12), BRIM_EINVAL, "the parameter's name is NULL");
  assert_refused(brim_engine_write(training, NULL, values, 12), BRIM_EINVAL, "the parameter's name is NULL");
  assert_refused(brim_engine_fetch(training, "head.weight", NULL, 12), BRIM_EINVAL, "the values is NULL");
  assert_refused(brim_engine_write(training, "head.weight", NULL, 12), BRIM_EINVAL, "the values is NULL");
  brim_engine_unplace(training);
  brim_engine_plan_free(plan);
  brim_engine_close(engine);
}

/* The test closes the engine first and frees the plan next. Both stay as long as the training needs them. */
static void an_engine_may_be_closed_before_its_training(void **state)
{
  brim_engine *engine = open_engine("cpu");
  const brim_network n = network_of(build_linear, 4, 3);
  const float values[BATCH * 4] = {1, 2, 3};
  const int32_t labels[BATCH] = {0};
  brim_training_plan *plan, *unplaced;
  brim_training *training;
  double loss = 0;
  assert_int_equal(brim_engine_plan(engine, &n, &unplaced), BRIM_OK);
  assert_int_equal(brim_engine_plan(engine, &n, &plan), BRIM_OK);
  brim_engine_close(engine);
  assert_int_equal(brim_engine_place(plan, 1, &training), BRIM_OK);
  brim_engine_plan_free(plan);
  brim_engine_plan_free(unplaced);
  assert_int_equal(brim_engine_feed(training, values, labels), BRIM_OK);
  assert_int_equal(brim_engine_step(training, &loss), BRIM_OK);
  assert_true(loss > 0);
  brim_engine_unplace(training);
}

/* A micro-batch that fails drops its batch: the next batch starts as if nothing had been fed. */
static void a_batch_with_a_micro_batch_that_fails(void **state)
{
  enum { T = 3, VOCABULARY = 9, TOKENS = BATCH * T };
  double loss[2];
  brim_engine *engine = open_engine("cpu");
  for (int fails = 0; fails < 2; fails++) {
    brim_network n = network_of(build_short_table, T, VOCABULARY);
    brim_training_plan *plan;
    brim_training *t;
    int32_t tokens[TOKENS], labels[TOKENS];
    for (int i = 0; i < TOKENS; i++) tokens[i] = labels[i] = i % (VOCABULARY - 1);
    n.task = BRIM_TASK_TOKENS;
    n.micro_batch = BATCH / 2;
    assert_int_equal(brim_engine_plan(engine, &n, &plan), BRIM_OK);
    assert_int_equal(brim_engine_place(plan, 3, &t), BRIM_OK);
    if (fails) {
      assert_int_equal(brim_engine_feed(t, tokens, labels), BRIM_OK);
      tokens[1] = VOCABULARY - 1;
      assert_refused(brim_engine_feed(t, tokens, labels), BRIM_EINVAL, "the batch is dropped");
      assert_refused(brim_engine_step(t, NULL), BRIM_EINVAL, "0 of the batch's 24 samples");
      tokens[1] = 1;
    }
    for (int i = 0; i < 2; i++)
      assert_int_equal(brim_engine_feed(t, tokens + i * TOKENS / 2, labels + i * TOKENS / 2), BRIM_OK);
    assert_int_equal(brim_engine_step(t, &loss[fails]), BRIM_OK);
    brim_engine_unplace(t);
    brim_engine_plan_free(plan);
  }
  assert_true(loss[0] == loss[1]);
  brim_engine_close(engine);
}

static void *train_alone(void *out)
{
  const brim_engine_options options = {.size = sizeof options};
  const brim_network n = network_of(build_deep, 4, 3);
  float values[BATCH * 4];
  int32_t labels[BATCH];
  brim_engine *engine;
  brim_training_plan *plan;
  brim_training *t;
  double *loss = out;
  for (int i = 0; i < BATCH * 4; i++) values[i] = (float)(i % 7) - 3;
  for (int i = 0; i < BATCH; i++) labels[i] = i % 3;
  *loss = -1;
  if (brim_engine_open(&options, &engine) != BRIM_OK) return NULL;
  if (brim_engine_plan(engine, &n, &plan) == BRIM_OK && brim_engine_place(plan, 7, &t) == BRIM_OK) {
    for (int step = 0; step < 20; step++)
      if (brim_engine_feed(t, values, labels) != BRIM_OK || brim_engine_step(t, loss) != BRIM_OK) *loss = -1;
    brim_engine_unplace(t);
  }
  brim_engine_plan_free(plan);
  brim_engine_close(engine);
  return NULL;
}

static void threads_with_an_engine_each(void **state)
{
  pthread_t thread[2];
  double alone, loss[2];
  train_alone(&alone);
  for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&thread[i], NULL, train_alone, &loss[i]), 0);
  for (int i = 0; i < 2; i++) assert_int_equal(pthread_join(thread[i], NULL), 0);
  assert_true(alone > 0 && loss[0] == alone && loss[1] == alone);
}

static void calls_in_the_wrong_order(void **state)
{
  brim_engine *engine = open_engine("cpu");
  const brim_network n = network_of(build_linear, 4, 3);
  float values[BATCH * 4] = {0}, answer[BATCH * 3], weight[12];
  int32_t labels[BATCH] = {0};
  brim_training_plan *plan;
  brim_training *training, *again;
  assert_int_equal(brim_engine_plan(engine, &n, &plan), BRIM_OK);
  assert_int_equal(brim_engine_place(plan, 1, &training), BRIM_OK);
  assert_refused(brim_engine_place(plan, 1, &again), BRIM_EINVAL, "already placed");
  assert_refused(brim_engine_step(training, NULL), BRIM_EINVAL, "0 of the batch's 24 samples");
  assert_refused(brim_engine_answer(training, values, answer), BRIM_EINVAL, "brim_network.answers");
  labels[5] = 3;
  assert_refused(brim_engine_feed(training, values, labels), BRIM_EINVAL, "label 5 of the micro-batch is 3");
  labels[5] = 2;
  assert_int_equal(brim_engine_feed(training, values, labels), BRIM_OK);
  assert_refused(brim_engine_feed(training, values, labels), BRIM_EINVAL, "call brim_engine_step");
  assert_int_equal(brim_engine_step(training, NULL), BRIM_OK);
  assert_refused(brim_engine_fetch(training, "tail.weight", weight, 12), BRIM_EINVAL, "no parameter 'tail.weight'");
  assert_refused(brim_engine_fetch(training, "head.weight", weight, 11), BRIM_EINVAL, "has 12 values, not 11");
  assert_int_equal(brim_engine_fetch(training, "head.weight", weight, 12), BRIM_OK);
  values[0] = NAN;
  assert_int_equal(brim_engine_feed(training, values, labels), BRIM_OK);
  assert_refused(brim_engine_step(training, NULL), BRIM_ENUMERIC, "the loss of step 2 is not finite");
  float after[12];
  assert_int_equal(brim_engine_fetch(training, "head.weight", after, 12), BRIM_OK);
  assert_memory_equal(weight, after, sizeof weight);
  brim_engine_unplace(training);
  brim_engine_unplace(NULL);
  assert_int_equal(brim_engine_place(plan, 1, &training), BRIM_OK);
  brim_engine_unplace(training);
  brim_engine_plan_free(plan);
  brim_engine_close(engine);
}

/* ---- plans ---- */

static void the_largest_micro_batch_within_a_budget(void **state)
{
  brim_engine *engine = open_engine("reference");
  brim_network n = network_of(build_deep, 50, 3);
  brim_training_plan *plan;
  for (n.micro_batch = 1; n.micro_batch <= BATCH; n.micro_batch++) {
    brim_training_figures exact = {.size = sizeof exact}, found = exact;
    if (BATCH % n.micro_batch != 0) continue;
    assert_int_equal(brim_engine_plan(engine, &n, &plan), BRIM_OK);
    brim_engine_figures(plan, &exact);
    brim_engine_plan_free(plan);
    assert_int_equal(exact.parameters, 50 * 32 + 32 + 32 * 3 + 3);
    assert_int_equal(exact.lower_bound_bytes, exact.parameter_bytes + exact.gradient_bytes + exact.optimizer_bytes +
                                                  exact.activation_bytes + exact.workspace_bytes + exact.data_bytes);
    assert_int_equal(brim_engine_plan_within(engine, &n, exact.peak_bytes, &plan), BRIM_OK);
    brim_engine_figures(plan, &found);
    assert_int_equal(found.peak_bytes <= exact.peak_bytes, 1);
    assert_true(found.micro_batch >= n.micro_batch);
    brim_engine_plan_free(plan);
  }
  brim_engine_close(engine);
}

/* A batch of 3 * 2^36 samples has 74 divisors; trying every number would take minutes. */
static void a_micro_batch_of_a_huge_batch(void **state)
{
  brim_engine *engine = open_engine("reference");
  brim_network n = network_of(build_linear, 4, 3);
  brim_training_plan *plan;
  brim_training_figures figures = {.size = sizeof figures};
  n.batch = (int64_t)3 << 36;
  assert_int_equal(brim_engine_plan_within(engine, &n, 1 << 20, &plan), BRIM_OK);
  brim_engine_figures(plan, &figures);
  brim_engine_plan_free(plan);
  n.micro_batch = figures.micro_batch % 3 ? figures.micro_batch / 2 * 3 : figures.micro_batch / 3 * 4;
  assert_int_equal(n.batch % n.micro_batch, 0);
  assert_int_equal(brim_engine_plan(engine, &n, &plan), BRIM_OK);
  brim_engine_figures(plan, &figures);
  assert_true(figures.peak_bytes > 1 << 20);
  brim_engine_plan_free(plan);
  brim_engine_close(engine);
}

static void figures_of_an_older_caller(void **state)
{
  brim_engine *engine = open_engine("reference");
  const brim_network n = network_of(build_linear, 4, 3);
  brim_training_plan *plan;
  struct {
    brim_training_figures f;
  } room;
  memset(&room, 0x5a, sizeof room);
  room.f.size = offsetof(brim_training_figures, gradient_bytes);
  assert_int_equal(brim_engine_plan(engine, &n, &plan), BRIM_OK);
  brim_engine_figures(plan, &room.f);
  assert_true(room.f.peak_bytes > 0);
  assert_int_equal(room.f.gradient_bytes, 0x5a5a5a5a5a5a5a5a);
  brim_engine_plan_free(plan);
  brim_engine_close(engine);
}

/* ---- numbers ---- */

static double draw(void)
{
  return 2.0 * rand() / RAND_MAX - 1;
}

/* Makes a step of softmax regression in plain loops: SGD without momentum on w [K, F] and b [K]. Samples of class k
 * have weight[k]. Returns the loss. */
static double step_by_hand(int64_t features, int64_t classes, const float *x, const int32_t *label,
                           const double *weight, double lr, double *w, double *b)
{
  double dw[CLASSES_MAX * FEATURES_MAX] = {0}, db[CLASSES_MAX] = {0}, loss = 0, all = 0;
  for (int64_t i = 0; i < BATCH; i++) all += weight[label[i]];
  for (int64_t i = 0; i < BATCH; i++) {
    double z[CLASSES_MAX] = {0}, sum = 0;
    for (int64_t k = 0; k < classes; k++) {
      z[k] = b[k];
      for (int64_t f = 0; f < features; f++) z[k] += w[k * features + f] * x[i * features + f];
      sum += exp(z[k]);
    }
    loss += weight[label[i]] * (log(sum) - z[label[i]]);
    for (int64_t k = 0; k < classes; k++) {
      const double d = weight[label[i]] * (exp(z[k]) / sum - (k == label[i])) / all;
      db[k] += d;
      for (int64_t f = 0; f < features; f++) dw[k * features + f] += d * x[i * features + f];
    }
  }
  for (int64_t k = 0; k < classes; k++) b[k] -= lr * db[k];
  for (int64_t j = 0; j < classes * features; j++) w[j] -= lr * dw[j];
  return loss / all;
}

static void check_steps(brim_engine *engine, int64_t features, int64_t classes, int64_t micro, bool weighted)
{
  static const double as_they_are[CLASSES_MAX] = {1, 1, 1, 1, 1, 1, 1, 1}, two[] = {0.5, 3};
  static const char *const two_weights[] = {"class_weights=[0.5,3]", NULL};
  const char *const settings[] = {"lr=0.3", "momentum=0", NULL};
  brim_network n = network_of(build_linear, features, classes);
  float x[BATCH * FEATURES_MAX], got[CLASSES_MAX * FEATURES_MAX];
  int32_t label[BATCH];
  double w[CLASSES_MAX * FEATURES_MAX], b[CLASSES_MAX], loss;
  brim_training_plan *plan;
  brim_training *t;
  n.micro_batch = micro;
  n.optimizer = "sgd";
  n.optimizer_settings = settings;
  if (weighted) n.loss_settings = two_weights;
  assert_int_equal(brim_engine_plan(engine, &n, &plan), BRIM_OK);
  assert_int_equal(brim_engine_place(plan, 3, &t), BRIM_OK);
  assert_int_equal(brim_engine_fetch(t, "head.weight", got, (uint64_t)(classes * features)), BRIM_OK);
  for (int64_t j = 0; j < classes * features; j++) w[j] = got[j];
  for (int64_t k = 0; k < classes; k++) got[k] = (float)draw();
  for (int64_t k = 0; k < classes; k++) b[k] = got[k];
  assert_int_equal(brim_engine_write(t, "head.bias", got, (uint64_t)classes), BRIM_OK);
  for (int step = 0; step < 5; step++) {
    for (int64_t i = 0; i < BATCH * features; i++) x[i] = (float)draw();
    for (int64_t i = 0; i < BATCH; i++) label[i] = (int32_t)(rand() % classes);
    for (int64_t i = 0; i < BATCH; i += micro)
      assert_int_equal(brim_engine_feed(t, x + i * features, label + i), BRIM_OK);
    assert_int_equal(brim_engine_step(t, &loss), BRIM_OK);
    const double expected = step_by_hand(features, classes, x, label, weighted ? two : as_they_are, 0.3, w, b);
    assert_true(fabs(loss - expected) < 2e-6);
  }
  assert_int_equal(brim_engine_fetch(t, "head.weight", got, (uint64_t)(classes * features)), BRIM_OK);
  for (int64_t j = 0; j < classes * features; j++) assert_true(fabs(got[j] - w[j]) < 2e-6);
  assert_int_equal(brim_engine_fetch(t, "head.bias", got, (uint64_t)classes), BRIM_OK);
  for (int64_t k = 0; k < classes; k++) assert_true(fabs(got[k] - b[k]) < 2e-6);
  brim_engine_unplace(t);
  brim_engine_plan_free(plan);
}

static void steps_are_those_of_plain_loops(void **state)
{
  static const int64_t micros[] = {1, 2, 3, 4, 6, 8, 12, 24};
  srand(21);
  for (int b = 0; b < 2; b++) {
    brim_engine *engine = open_engine(b ? "cpu" : "reference");
    for (int i = 0; i < 12; i++)
      check_steps(engine, 1 + rand() % FEATURES_MAX, 2 + rand() % (CLASSES_MAX - 1), micros[rand() % 8], false);
    for (int i = 0; i < 4; i++) check_steps(engine, 1 + rand() % FEATURES_MAX, 2, micros[rand() % 8], true);
    brim_engine_close(engine);
  }
}

/* Trains some steps with dropout, and returns the weights. */
static void train_deep(brim_engine *engine, int64_t micro, int32_t recompute, float *out)
{
  brim_network n = network_of(build_deep, 10, 3);
  float x[BATCH * 10];
  int32_t label[BATCH];
  brim_training_plan *plan;
  brim_training *t;
  n.micro_batch = micro;
  n.grain = 4;
  n.recompute = recompute;
  srand(5);
  assert_int_equal(brim_engine_plan(engine, &n, &plan), BRIM_OK);
  assert_int_equal(brim_engine_place(plan, 3, &t), BRIM_OK);
  for (int step = 0; step < 6; step++) {
    for (int64_t i = 0; i < BATCH * 10; i++) x[i] = (float)draw();
    for (int64_t i = 0; i < BATCH; i++) label[i] = rand() % 3;
    for (int64_t i = 0; i < BATCH; i += micro) assert_int_equal(brim_engine_feed(t, x + 10 * i, label + i), BRIM_OK);
    assert_int_equal(brim_engine_step(t, NULL), BRIM_OK);
  }
  assert_int_equal(brim_engine_fetch(t, "fc1.weight", out, 320), BRIM_OK);
  brim_engine_unplace(t);
  brim_engine_plan_free(plan);
}

static void memory_does_not_change_the_bits(void **state)
{
  static const int64_t micros[] = {4, 8, 12};
  float whole[320], cut[320];
  brim_engine *engine = open_engine("cpu");
  train_deep(engine, 24, 0, whole);
  for (size_t i = 0; i < sizeof micros / sizeof micros[0]; i++)
    for (int32_t recompute = 0; recompute < 3; recompute++) {
      train_deep(engine, micros[i], recompute, cut);
      assert_memory_equal(whole, cut, sizeof whole);
    }
  brim_engine_close(engine);
}

/* A label with weight 0 acts as if its token were absent: if one half of the tokens is ignored, the result is that of
 * the other half. */
static void tokens_that_count_for_nothing(void **state)
{
  enum { T = 6, VOCABULARY = 11 };
  float one[8 * VOCABULARY], other[8 * VOCABULARY];
  int32_t tokens[2 * T], labels[2 * T], none[T];
  double loss[2];
  brim_engine *engine = open_engine("reference");
  srand(9);
  for (int i = 0; i < T; i++) {
    tokens[i] = tokens[T + i] = rand() % VOCABULARY;
    labels[i] = rand() % VOCABULARY;
    labels[T + i] = none[i] = BRIM_NO_TOKEN;
  }
  for (int half = 0; half < 2; half++) {
    brim_network n = network_of(build_tokens, T, VOCABULARY);
    brim_training_plan *plan;
    brim_training *t;
    n.task = BRIM_TASK_TOKENS;
    n.batch = half ? 1 : 2;
    n.answers = 1;
    assert_int_equal(brim_engine_plan(engine, &n, &plan), BRIM_OK);
    assert_int_equal(brim_engine_place(plan, 3, &t), BRIM_OK);
    assert_int_equal(brim_engine_feed(t, tokens, labels), BRIM_OK);
    assert_int_equal(brim_engine_step(t, &loss[half]), BRIM_OK);
    assert_int_equal(brim_engine_fetch(t, "head.weight", half ? other : one, 8 * VOCABULARY), BRIM_OK);
    float answers[2 * T * VOCABULARY];
    assert_int_equal(brim_engine_answer(t, tokens, answers), BRIM_OK);
    assert_true(isfinite(answers[(size_t)n.batch * T * VOCABULARY - 1]));
    if (half) {
      assert_int_equal(brim_engine_feed(t, tokens, none), BRIM_OK);
      assert_refused(brim_engine_step(t, NULL), BRIM_EINVAL, "every label of the batch is ignored or has the weight 0");
      tokens[0] = VOCABULARY;
      assert_refused(brim_engine_feed(t, tokens, labels), BRIM_EINVAL, "token 0 of the micro-batch is 11");
    }
    brim_engine_unplace(t);
    brim_engine_plan_free(plan);
  }
  assert_true(fabs(loss[0] - loss[1]) < 1e-12);
  for (int i = 0; i < 8 * VOCABULARY; i++) assert_true(fabsf(one[i] - other[i]) < 1e-7f);
  brim_engine_close(engine);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(invalid_engines_are_refused),
                                     cmocka_unit_test(invalid_networks_are_refused),
                                     cmocka_unit_test(null_lists_are_refused),
                                     cmocka_unit_test(calls_without_their_preconditions),
                                     cmocka_unit_test(null_for_required_arguments),
                                     cmocka_unit_test(an_engine_may_be_closed_before_its_training),
                                     cmocka_unit_test(a_batch_with_a_micro_batch_that_fails),
                                     cmocka_unit_test(threads_with_an_engine_each),
                                     cmocka_unit_test(calls_in_the_wrong_order),
                                     cmocka_unit_test(the_largest_micro_batch_within_a_budget),
                                     cmocka_unit_test(a_micro_batch_of_a_huge_batch),
                                     cmocka_unit_test(figures_of_an_older_caller),
                                     cmocka_unit_test(steps_are_those_of_plain_loops),
                                     cmocka_unit_test(memory_does_not_change_the_bits),
                                     cmocka_unit_test(tokens_that_count_for_nothing)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
