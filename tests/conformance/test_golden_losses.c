/* Compares losses on the reference backend with PyTorch's in double precision: softmax cross-entropy over sequences,
 * alone, with labels that are shares of classes, and with the product inside, and the mean losses with real targets and
 * with labels; each with its gradients. Fixture: tests/golden/make_losses.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "builtin/builtin.h"
#include "conformance/golden_case.h"
#include "conformance/load.h"

#define SMOOTHING 0.2
#define DELTA 0.7
#define IGNORED 2

const char golden_case_fixture[] = "losses.txt";

/* Returns an input from the fixture. Targets and weights are constants without gradients. */
static brim_tensor *from_fixture(bench *b, const char *name, bool constant)
{
  const brim_shape *shape = &golden_case_find(name)->shape;
  if (constant) return brim_graph_tensor(b->g, BRIM_ROLE_DATA, b->g->real, shape, name);
  return bench_input(b, shape, name);
}

static brim_tensor *labels_of(bench *b, const char *name)
{
  return bench_indices(b, &golden_case_find(name)->shape, 5, name);
}

static brim_tensor *cross_entropy(bench *b, brim_loss_attr attr, bool weighted)
{
  brim_tensor *in[3] = {from_fixture(b, "logits", false), labels_of(b, "label"), NULL};
  if (weighted) in[2] = from_fixture(b, "weight", true);
  return brim_graph_apply(b->g, "softmax_cross_entropy", NULL, in, weighted ? 3 : 2, &(brim_attr){.loss = attr});
}

static brim_tensor *make_plain(bench *b)
{
  /* The loss ignores this value, but no label has it. */
  return cross_entropy(b, (brim_loss_attr){.ignore_index = IGNORED}, false);
}
BENCH_ROW(plain) = {"plain", make_plain, .is_loss = true};
static brim_tensor *make_ignore(bench *b)
{
  return cross_entropy(b, (brim_loss_attr){.ignores = 1, .ignore_index = IGNORED}, false);
}
BENCH_ROW(ignore) = {"ignore", make_ignore, .is_loss = true};
static brim_tensor *make_smoothing(bench *b)
{
  return cross_entropy(b, (brim_loss_attr){.smoothing = SMOOTHING}, false);
}
BENCH_ROW(smoothing) = {"smoothing", make_smoothing, .is_loss = true};
static brim_tensor *make_weights(bench *b)
{
  return cross_entropy(b, (brim_loss_attr){0}, true);
}
BENCH_ROW(weights) = {"weights", make_weights, .is_loss = true};
static brim_tensor *make_all(bench *b)
{
  return cross_entropy(b, (brim_loss_attr){.smoothing = SMOOTHING, .ignores = 1, .ignore_index = IGNORED}, true);
}
BENCH_ROW(all) = {"all", make_all, .is_loss = true};

/* Builds a loss whose labels are shares of the classes. */
static brim_tensor *of_shares(bench *b, brim_loss_attr attr, bool weighted)
{
  brim_tensor *in[3] = {from_fixture(b, "logits", false), from_fixture(b, "share", true), NULL};
  if (weighted) in[2] = from_fixture(b, "weight", true);
  return brim_graph_apply(b->g, "softmax_cross_entropy", NULL, in, weighted ? 3 : 2, &(brim_attr){.loss = attr});
}
static brim_tensor *make_shares(bench *b)
{
  return of_shares(b, (brim_loss_attr){0}, false);
}
BENCH_ROW(shares) = {"shares", make_shares, .is_loss = true};
static brim_tensor *make_shares_all(bench *b)
{
  return of_shares(b, (brim_loss_attr){.smoothing = SMOOTHING}, true);
}
BENCH_ROW(shares_all) = {"shares_all", make_shares_all, .is_loss = true};

static brim_tensor *linear(bench *b, brim_loss_attr attr)
{
  const brim_shape *shape = &golden_case_find("product")->shape;
  brim_tensor *const x = from_fixture(b, "x", false), *product = bench_parameter(b, "product", shape, 1);
  brim_tensor *const in[] = {x, product, labels_of(b, "label")};
  return brim_graph_node(b->g, "linear_cross_entropy", NULL, in, 3, &(brim_attr){.loss = attr})->out[0];
}
static brim_tensor *make_linear(bench *b)
{
  return linear(b, (brim_loss_attr){0});
}
BENCH_ROW(linear) = {"linear", make_linear, .is_loss = true};
static brim_tensor *make_linear_all(bench *b)
{
  return linear(b, (brim_loss_attr){.smoothing = SMOOTHING, .ignores = 1, .ignore_index = IGNORED});
}
BENCH_ROW(linear_all) = {"linear_all", make_linear_all, .is_loss = true};

/* Builds a loss such as "mse" with a real target, or "mse_label" with labels. */
static brim_tensor *mean_loss(bench *b, const char *op, bool by_label)
{
  brim_tensor *y = from_fixture(b, by_label ? "scores" : "y", false);
  brim_tensor *target = by_label ? labels_of(b, "answer") : from_fixture(b, "target", true);
  brim_tensor *const in[] = {y, target};
  return brim_graph_apply(b->g, op, NULL, in, 2, &(brim_attr){.loss = {.delta = DELTA}});
}
#define MEAN_LOSS(op)                                                                                                  \
  static brim_tensor *make_##op(bench *b)                                                                              \
  {                                                                                                                    \
    return mean_loss(b, #op, false);                                                                                   \
  }                                                                                                                    \
  BENCH_ROW(op) = {#op, make_##op, .is_loss = true};                                                                   \
  static brim_tensor *make_##op##_label(bench *b)                                                                      \
  {                                                                                                                    \
    return mean_loss(b, #op, true);                                                                                    \
  }                                                                                                                    \
  BENCH_ROW(op##_label) = {#op "_label", make_##op##_label, .is_loss = true}
MEAN_LOSS(mse);
MEAN_LOSS(mae);
MEAN_LOSS(huber);
MEAN_LOSS(bce);

/* ---- losses built from operations ---- */

static const char *settings; /* settings of the current loss */

static brim_tensor *built(bench *b, const brim_plugin *loss, bool weighted)
{
  loaded plugged;
  load_core_plugin(&plugged, loss, settings);
  const brim_loss_ops *ops = loss->ops;
  brim_tensor *const scores = from_fixture(b, "scores", false);
  brim_tensor *label = labels_of(b, "answer");
  b->g->classes = 5;
  b->g->builds_loss = true;
  brim_tensor *target = brim_graph_apply(b->g, "one_hot", "target_of_label", &label, 1, NULL);
  brim_tensor *in[3] = {ops->build(plugged.self, b->g, scores, target), label, NULL};
  if (weighted) in[2] = from_fixture(b, "weight", true);
  unload_plugin(&plugged);
  return brim_graph_apply(b->g, "sample_loss", NULL, in, weighted ? 3 : 2, NULL);
}
static brim_tensor *make_focal(bench *b)
{
  return built(b, &brim_loss_focal, false);
}
static brim_tensor *make_focal_weights(bench *b)
{
  return built(b, &brim_loss_focal, true);
}
static brim_tensor *make_sigmoid_focal(bench *b)
{
  return built(b, &brim_loss_sigmoid_focal, false);
}

static brim_tensor *make_kl(bench *b)
{
  loaded plugged;
  load_core_plugin(&plugged, &brim_loss_kl, settings);
  brim_tensor *const scores = from_fixture(b, "scores", false), *const target = from_fixture(b, "teacher", true);
  b->g->builds_loss = true;
  brim_tensor *const in[] = {((const brim_loss_ops *)brim_loss_kl.ops)->build(plugged.self, b->g, scores, target),
                             target};
  unload_plugin(&plugged);
  return brim_graph_apply(b->g, "sample_loss", NULL, in, 2, NULL);
}

/* Compares with "<row>.<name>", or with "<row>.gradient.<name>". */
static void check(const bench *b, const brim_tensor *t, const char *kind, const char *name)
{
  char full[96];
  snprintf(full, sizeof full, "%s.%s%s", b->o.row->name, kind, name);
  golden_case_compare(b, t, full);
}

static void check_row(const bench_row *row)
{
  const bool by_label = strstr(row->name, "_label") || strncmp(row->name, "kl_", 3) == 0;
  bench *b = bench_create(&(bench_options){
      .backend = golden_case_backend(), .row = row, .seed = 1, .batch = by_label ? 4 : 3, .gradients_at_zero = true});
  golden_case_fill(b);
  bench_run(b, 0, b->g->node_count);
  check(b, b->result, "", "loss");
  check(b, brim_autodiff_gradient(b->g, b->g->tensor[0]), "gradient.", b->g->tensor[0]->name);
  for (size_t i = 0; i < b->g->parameter_count; i++)
    check(b, b->g->parameter[i].gradient, "gradient.", b->g->parameter[i].value->name);
  bench_free(b);
}

static void test_losses_match_pytorch(void **state)
{
  BENCH_EACH_ROW (row) check_row(row);
}

static void test_focal_losses_match_torchvision_and_the_paper(void **state)
{
  static const char *const gammas[] = {"0", "0.5", "2", "5"}, *const alphas[] = {"0.25", "-1"};
  for (size_t i = 0; i < 4; i++) {
    char name[64], words[64];
    settings = words;
    snprintf(words, sizeof words, "{gamma: %s}", gammas[i]);
    snprintf(name, sizeof name, "focal_%s_label", gammas[i]);
    check_row(&(bench_row){name, make_focal, .is_loss = true});
    snprintf(name, sizeof name, "focal_%s_weights_label", gammas[i]);
    check_row(&(bench_row){name, make_focal_weights, .is_loss = true});
    for (size_t k = 0; k < 2; k++) {
      snprintf(words, sizeof words, "{gamma: %s, alpha: %s}", gammas[i], alphas[k]);
      snprintf(name, sizeof name, "sigmoid_focal_%s_%s_label", gammas[i], alphas[k]);
      check_row(&(bench_row){name, make_sigmoid_focal, .is_loss = true});
    }
  }
}

static void test_kl_matches_torch_on_softmax_outputs(void **state)
{
  static const char *const temperatures[] = {"1", "4", "0.5"};
  for (size_t i = 0; i < 3; i++) {
    char name[64], words[64];
    settings = words;
    snprintf(words, sizeof words, "{temperature: %s}", temperatures[i]);
    snprintf(name, sizeof name, "kl_%s", temperatures[i]);
    check_row(&(bench_row){name, make_kl, .is_loss = true});
  }
}

/* Counts predictions too. */
static brim_tensor *make_counted(bench *b)
{
  const brim_shape metrics = {1, {3 + 5 * 5}};
  brim_tensor *in[3] = {NULL, from_fixture(b, "scores", false), labels_of(b, "answer")};
  in[0] = brim_graph_apply(b->g, "softmax_cross_entropy", "loss", &in[1], 2, NULL);
  b->g->metrics = brim_graph_tensor(b->g, BRIM_ROLE_DATA, BRIM_DTYPE_F64, &metrics, "metrics");
  brim_graph_node_into(b->g, "classification_metrics", "metrics", in, 3, &b->g->metrics, 1,
                       &(brim_attr){.metrics = {.top_k = 2}});
  return in[0];
}
static const bench_row row_counted = {"counted", make_counted, .is_loss = true};

/* A label that names no class is refused, not read; an ignored label may be any number. Runs the first node named `op`
 * with the last label replaced. */
static brim_status run_with_label(const backend *on, const bench_row *row, int64_t samples, const char *op,
                                  int32_t label)
{
  bench *b = bench_create(&(bench_options){.backend = on, .row = row, .seed = 1, .batch = samples});
  size_t node = 0;
  while (strcmp(b->g->node[node]->op, op) != 0) node++;
  const brim_node *n = b->g->node[node];
  void *in[4], *out[2];
  for (uint32_t i = 0; i < n->in_count; i++) {
    const brim_tensor *t = n->in[i];
    void *host = b->memory[t->id];
    in[i] = b->device_memory[t->id];
    if (t->dtype == BRIM_DTYPE_I32) ((int32_t *)host)[brim_shape_count(&t->shape) - 1] = label;
    if (in[i] != host) assert_int_equal(on->ops->upload(on->self, in[i], host, t->bytes), BRIM_OK);
  }
  for (uint32_t i = 0; i < n->out_count; i++) out[i] = b->device_memory[n->out[i]->id];
  const brim_launch launch = {n, b->program.state[node], in, out, b->device_workspace[node], &b->step};
  brim_status status = b->program.kernel[node]->run(on->self, &launch);
  if (status == BRIM_OK) status = on->ops->synchronize(on->self); /* a device may report it later */
  bench_free(b);
  return status;
}

static void check_labels_are_refused(const char *id, const char *folder)
{
  static const struct {
    const bench_row *row;
    const char *op;
    int64_t samples;
  } cases[] = {{&row_plain, "softmax_cross_entropy", 3},
               {&row_plain, "softmax_cross_entropy_grad", 3},
               {&row_ignore, "softmax_cross_entropy", 3},
               {&row_ignore, "softmax_cross_entropy_grad", 3},
               {&row_linear, "linear_cross_entropy", 3},
               {&row_linear, "linear_cross_entropy_grad", 3},
               {&row_linear_all, "linear_cross_entropy", 3},
               {&row_linear_all, "linear_cross_entropy_grad", 3},
               {&row_mse_label, "mse", 4},
               {&row_mse_label, "mse_grad", 4},
               {&row_mae_label, "mae", 4},
               {&row_mae_label, "mae_grad", 4},
               {&row_huber_label, "huber", 4},
               {&row_huber_label, "huber_grad", 4},
               {&row_bce_label, "bce", 4},
               {&row_bce_label, "bce_grad", 4},
               {&row_counted, "classification_metrics", 4}};
  loaded tested;
  if (!load_plugin_from(&tested, folder, "backend", id, NULL)) {
    printf("SKIPPED: backend %s was not built\n", id);
    return;
  }
  const backend on = {id, tested.plugin->ops, tested.self};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char expected[96];
    snprintf(expected, sizeof expected, "sample %d of the micro-batch has label 5, but there are 5 classes",
             (int)cases[i].samples - 1);
    assert_int_equal(run_with_label(&on, cases[i].row, cases[i].samples, cases[i].op, 4), BRIM_OK);
    assert_int_equal(run_with_label(&on, cases[i].row, cases[i].samples, cases[i].op, 5), BRIM_EINVAL);
    if (!strstr(brim_error_text(), expected)) fail_msg("%s: %s", cases[i].op, brim_error_text());
    assert_int_equal(run_with_label(&on, cases[i].row, cases[i].samples, cases[i].op, -100), BRIM_EINVAL);
  }
  unload_plugin(&tested);
}

static void test_reference_refuses_labels_out_of_range(void **state)
{
  check_labels_are_refused("reference", "");
}

static void test_cpu_refuses_labels_out_of_range(void **state)
{
  check_labels_are_refused("cpu", "");
}

static void test_cuda_refuses_labels_out_of_range(void **state)
{
  check_labels_are_refused("cuda", "emulated");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_losses_match_pytorch),
      cmocka_unit_test(test_focal_losses_match_torchvision_and_the_paper),
      cmocka_unit_test(test_kl_matches_torch_on_softmax_outputs),
      cmocka_unit_test(test_reference_refuses_labels_out_of_range),
      cmocka_unit_test(test_cpu_refuses_labels_out_of_range),
      cmocka_unit_test(test_cuda_refuses_labels_out_of_range),
  };
  return cmocka_run_group_tests(tests, golden_case_set_up, golden_case_tear_down);
}
