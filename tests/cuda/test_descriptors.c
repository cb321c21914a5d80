/* The calls of the shipped models to cuBLASLt and cuDNN, as in their plans, for GPUs that are only described
 * (deviceless/): every descriptor is finalised, and every convolution and attention becomes an execution plan of cuDNN,
 * or it reports why not. Shapes come from the models, sizes from configs/model. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/load.h"
#include "graph/fuse.h"
#include "graph/plan.h"

typedef struct subject {
  const char *model; /* a file of configs/model, or the name of a model */
  const char *settings, *backbone;
  brim_shape sample;
  int64_t classes;
  int32_t task;
  bool compiled; /* has attention: cuDNN compiles its kernels, which takes a second for each plan */
} subject;

static const subject subjects[] = {
    {"mlp", .sample = {3, {1, 28, 28}}, .classes = 10},
    {"cnn", .sample = {3, {1, 28, 28}}, .classes = 10},
    {"fedavg_cnn", .sample = {3, {1, 28, 28}}, .classes = 62},
    {"lightcnn", .sample = {3, {3, 32, 32}}, .classes = 10},
    {"emotion_cnn", .sample = {3, {1, 48, 48}}, .classes = 7},
    {"mental_state", .sample = {1, {988}}, .classes = 3, .compiled = true},
    {"temperature_lstm", .sample = {2, {7, 1}}, .classes = 1, .task = BRIM_TASK_VALUES},
    {"resnet18", .sample = {3, {3, 32, 32}}, .classes = 100},
    {"resnet18", .sample = {3, {3, 224, 224}}, .classes = 1000},
    {"resnet50", .sample = {3, {3, 224, 224}}, .classes = 1000},
    {"linear_probe", .backbone = "clip_vit_l14", .sample = {3, {3, 224, 224}}, .classes = 102, .compiled = true},
    {"lora", .backbone = "clip_vit_l14", .sample = {3, {3, 224, 224}}, .classes = 102, .compiled = true},
    {"vit", .sample = {3, {3, 32, 32}}, .classes = 10, .compiled = true},
    {"vit_tiny", .sample = {3, {3, 224, 224}}, .classes = 1000, .compiled = true},
    {"vit_small", .sample = {3, {3, 224, 224}}, .classes = 1000, .compiled = true},
    {"vit_base", .sample = {3, {3, 224, 224}}, .classes = 1000, .compiled = true},
    {"vit_large", .sample = {3, {3, 224, 224}}, .classes = 1000, .compiled = true},
    {"clip_vit_b16", .sample = {3, {3, 224, 224}}, .classes = 100, .compiled = true},
    {"clip_vit_b32", .sample = {3, {3, 224, 224}}, .classes = 100, .compiled = true},
    {"clip_vit_l14", .sample = {3, {3, 224, 224}}, .classes = 100, .compiled = true},
#define GPT2(model, settings, tokens, vocabulary)                                                                      \
  {                                                                                                                    \
    model, settings, NULL, {1, {tokens}}, vocabulary, BRIM_TASK_TOKENS, true                                           \
  }
    GPT2("gpt2", "dropout: 0\n", 1024, 50257),
    GPT2("gpt2", NULL, 1024, 50257),
    GPT2("gpt2_tiny", "dropout: 0\n", 256, 256),
    GPT2("gpt2_medium", "dropout: 0\n", 1024, 50257),
    GPT2("gpt2_large", "dropout: 0\n", 1024, 50257),
    GPT2("gpt2_xl", "dropout: 0\n", 1024, 50257),
};

/* `id`: the name in deviceless.c. */
typedef struct gpu {
  const char *id;
  bool gradients; /* brim uses cuDNN's gradients of attention on this device */
} gpu;

static const gpu gpus[] = {{"h100", true}, {"a100", true}, {"l40s", true}, {"b200", false}, {"rtx5090", false}};

enum { QUICK = 2 }; /* number of GPUs, the first ones, that a run without an argument tests */
static bool everything;
static const gpu *device;
static loaded backend;
/* All plans so far for the device. While a plan exists, the backend describes and plans an equal call only once. */
static brim_plan *plans[256];
static size_t plan_count;

/* ---- models ---- */

/* Loads a model with the settings of a file of configs/model, which begin with `id: <the model>`; without a file, loads
 * the model of that name. */
static void load_model(loaded *out, const char *name, const char *settings)
{
  char path[512], id[64], text[1024] = "";
  snprintf(path, sizeof path, "%s/../configs/model/%s.yaml", BRIM_TESTS_DIR, name);
  FILE *file = fopen(path, "r");
  if (file) text[fread(text, 1, sizeof text / 2, file)] = '\0';
  if (file) fclose(file);
  const char *at = strstr(text, "id: ");
  if (!at || sscanf(at, "id: %63s", id) != 1) snprintf(id, sizeof id, "%s", name);
  if (settings) snprintf(text + strlen(text), sizeof text - strlen(text), "%s", settings);
  if (!load_plugin(out, "model", id, text[0] ? text : NULL)) fail_msg("there is no model %s", name);
}

static brim_plan *make_plan(const subject *s, uint32_t type, int64_t batch)
{
  static const char *const loss[] = {[BRIM_TASK_CLASS] = "softmax_cross_entropy",
                                     [BRIM_TASK_TOKENS] = "softmax_cross_entropy",
                                     [BRIM_TASK_VALUES] = "mse"};
  loaded model, backbone = {0};
  brim_plan *plan = NULL;
  load_model(&model, s->model, s->settings);
  if (s->backbone) load_model(&backbone, s->backbone, NULL);
  const brim_plan_request r = {.graph = {.model = model.plugin->ops,
                                         .model_self = model.self,
                                         .backbone = s->backbone ? backbone.plugin->ops : NULL,
                                         .backbone_self = backbone.self,
                                         .backbone_id = s->backbone,
                                         .classes = s->classes,
                                         .task = s->task,
                                         .sample = s->sample,
                                         .loss.op = loss[s->task],
                                         .fuse = BRIM_FUSE_ALL,
                                         .real = BRIM_DTYPE_F32,
                                         .activations = type == BRIM_DTYPE_F32 ? 0 : type},
                               .backend = backend.plugin->ops,
                               .backend_self = backend.self,
                               .update = {.op = "sgd", .state_count = 1},
                               .shape = {{BRIM_PROGRAM_TRAIN, batch}, {BRIM_PROGRAM_EVALUATE, batch}},
                               .shape_count = 2};
  if (brim_plan_create(&r, &plan) != BRIM_OK) fail_msg("%s: %s", s->model, brim_error_text());
  unload_plugin(&model);
  if (s->backbone) unload_plugin(&backbone);
  return plan;
}

/* ---- results ---- */

static uint64_t count_of(const char *name)
{
  void *library = dlopen(BRIM_BUILD_DIR "/deviceless/lib/brim/plugins/backend/cuda.so", RTLD_NOW | RTLD_NOLOAD);
  assert_non_null(library);
  const uint64_t *count = dlsym(library, name);
  assert_non_null(count);
  const uint64_t value = *count;
  dlclose(library);
  return value;
}

/* brim does not request cuDNN's attention with dropout or in fp32, nor its gradients on devices where `gradients` is
 * false. */
static bool is_refused(const brim_node *n, const brim_kernel_need *need)
{
  if (!need->refused) return false;
  if (strncmp(n->op, "attention", strlen("attention")) != 0) return true;
  const bool is_left_out = strstr(n->op, "_grad") && !device->gradients;
  return n->in[0]->dtype != BRIM_DTYPE_F32 && n->attr.attention.dropout_p == 0 && !is_left_out;
}

static void check_program(const subject *s, const brim_program *p, uint32_t type, int64_t batch)
{
  for (size_t i = 0; i < p->graph->node_count; i++) {
    const brim_node *n = p->graph->node[i];
    if (is_refused(n, &p->need[i]))
      fail_msg("%s: %s in %s, %lld samples: %s '%s': %s", device->id, s->model, brim_dtype_name(type), (long long)batch,
               n->op, n->name, p->need[i].refused);
  }
}

static void check_subject(const subject *s, uint32_t type, int64_t batch)
{
  assert_true(plan_count < sizeof plans / sizeof *plans);
  brim_plan *plan = plans[plan_count++] = make_plan(s, type, batch);
  for (size_t i = 0; i < plan->program_count; i++) check_program(s, &plan->program[i], type, batch);
}

/* ---- tests ---- */

static int select_device(void **state)
{
  device = *state;
  assert_int_equal(setenv("DEVICELESS", device->id, 1), 0);
  assert_true(load_plugin_from(&backend, "deviceless", "backend", "cuda", NULL));
  const brim_backend_ops *ops = backend.plugin->ops;
  if (ops->select(backend.self, 0) != BRIM_OK) fail_msg("%s", brim_error_text());
  return 0;
}

static int leave_device(void **state)
{
  while (plan_count > 0) brim_plan_free(plans[--plan_count]);
  unload_plugin(&backend);
  return 0;
}

/* Without an argument, every type meets every batch size on one of the two GPUs. */
static bool takes(const subject *s, size_t type, size_t batch)
{
  if (everything) return true;
  return s->compiled ? device == &gpus[0] && type + batch == 0 : (type + batch) % 2 == (size_t)(device - gpus);
}

static void test_cudnn_computes_all_that_models_ask_for(void **state)
{
  static const uint32_t types[] = {BRIM_DTYPE_BF16, BRIM_DTYPE_F16, BRIM_DTYPE_F32};
  static const int64_t batches[] = {8, 1, 32};
  for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++)
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
      for (size_t k = 0; k < sizeof batches / sizeof *batches; k++)
        if (takes(&subjects[i], t, k)) check_subject(&subjects[i], types[t], batches[k]);
  print_message("%s: %llu graphs of cuDNN and %llu products of cuBLASLt so far\n", device->id,
                (unsigned long long)count_of("deviceless_graphs"), (unsigned long long)count_of("deviceless_products"));
}

/* resnet50 has 23 shapes of convolutions. The test expects all of them forward, all except the first for gradients of
 * the input, and all for gradients of weights. Evaluation has the same forward ones. */
static void test_layers_of_one_shape_share_a_plan(void **state)
{
  static const subject resnet50 = {"resnet50", .sample = {3, {3, 224, 224}}, .classes = 1000};
  const uint64_t before = count_of("deviceless_graphs");
  check_subject(&resnet50, BRIM_DTYPE_BF16, 8);
  assert_int_equal(count_of("deviceless_graphs") - before, 23 + 22 + 23);
}

/* Without an argument runs the tests that take seconds; with a GPU's name runs every precision and batch size for
 * it. */
int main(int argc, char **argv)
{
  struct CMUnitTest tests[sizeof gpus / sizeof *gpus + 1];
  size_t count = 0;
  everything = argc > 1;
  for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++)
    if (everything ? strcmp(argv[1], gpus[i].id) == 0 : i < QUICK)
      tests[count++] = (struct CMUnitTest){gpus[i].id, test_cudnn_computes_all_that_models_ask_for, select_device,
                                           leave_device, (void *)&gpus[i]};
  if (!everything)
    tests[count++] = (struct CMUnitTest)cmocka_unit_test_prestate_setup_teardown(
        test_layers_of_one_shape_share_a_plan, select_device, leave_device, (void *)&gpus[0]);
  if (count == 0) return 2; /* the argument names no GPU */
  return _cmocka_run_group_tests("descriptors", tests, count, NULL, NULL);
}
