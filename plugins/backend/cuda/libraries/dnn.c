/* Convolutions by cuDNN's graphs. This file describes the tensors, a convolution and an operation, and the library
 * suggests engines for the graph of this operation. An execution plan is made from the first engine that is allowed and
 * works, or from the engine that the device profile names.
 *
 * Engines are not allowed if their results differ from a convolution in the requested type, or from run to run: sums
 * without a fixed order; transforms (Winograd, FFT), which lose digits and spread a NaN to results that do not depend
 * on it; and, in fp32 without TF32, tensor cores. Engines that compile their kernels during planning are used only if
 * there are no others, because planning every batch size would then take minutes.
 *
 * Equal layers share a plan, so that each kind of layer is searched once: a step of ResNet-50 has 158 convolutions,
 * gradients included, of 68 kinds. */
#include "../dnn.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dnn_engines.h"
#include "dnn_graph.h"
#include "library.h"

enum { MEASURED_MAX = 8 };

static bool is_allowed(const cuda_backend *b, const cuda_dnn_conv *conv, const cuda_dnn_notes *n, bool compiled)
{
  uint32_t refused = 1u << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC | 1u << CUDNN_NUMERICAL_NOTE_WINOGRAD |
                     1u << CUDNN_NUMERICAL_NOTE_FFT | 1u << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION;
  if (conv->conv.dtype == BRIM_DTYPE_F32) {
    refused |= 1u << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
    if (!b->params->tf32) refused |= 1u << CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
  }
  return !(n->numerical & refused) && (n->behavior >> CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION & 1) == compiled;
}

/* ---- names of configurations, for the device profile ---- */

/* Writes one of an engine's settings as " TYPE=VALUE", where both are numbers. */
static bool name_knob(cudnnBackendDescriptor_t knob, char *text, size_t room)
{
  cudnnBackendKnobType_t type;
  int64_t count = 0, value = 0;
  if (!cuda_dnn_get(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &count, &type) ||
      !cuda_dnn_get(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &count, &value))
    return false;
  return (size_t)snprintf(text, room, " %d=%" PRId64, (int)type, value) < room;
}

static bool name_knobs(cudnnBackendDescriptor_t configuration, char *text, size_t room)
{
  cudnnBackendDescriptor_t knob[CUDNN_KNOB_TYPE_COUNTS] = {NULL};
  int64_t count = 0;
  bool fine = true;
  for (int i = 0; i < CUDNN_KNOB_TYPE_COUNTS && fine; i++)
    fine = cudnnBackendCreateDescriptor(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &knob[i]) == CUDNN_STATUS_SUCCESS;
  fine = fine && cuda_dnn_get(configuration, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                              CUDNN_KNOB_TYPE_COUNTS, &count, knob);
  for (int64_t i = 0; i < count && fine; i++) {
    const size_t used = strlen(text);
    fine = name_knob(knob[i], text + used, room - used);
  }
  for (int i = 0; i < CUDNN_KNOB_TYPE_COUNTS; i++)
    if (knob[i]) (void)cudnnBackendDestroyDescriptor(knob[i]);
  return fine;
}

/* "engine 67 3=16 5=2" */
static bool name_configuration(cudnnBackendDescriptor_t configuration, char text[CUDA_PROFILE_CHOICE_MAX])
{
  cudnnBackendDescriptor_t engine;
  int64_t count = 0, index = 0;
  if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) != CUDNN_STATUS_SUCCESS) return false;
  const bool fine =
      cuda_dnn_get(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine) &&
      cuda_dnn_get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, &index);
  (void)cudnnBackendDestroyDescriptor(engine);
  snprintf(text, CUDA_PROFILE_CHOICE_MAX, "engine %" PRId64, index);
  return fine && name_knobs(configuration, text, CUDA_PROFILE_CHOICE_MAX);
}

/* ---- plans ---- */

/* A search among the allowed suggestions: for the first that works, for the one with a name, or for the fastest. */
typedef struct search {
  cuda_backend *b;
  const cuda_dnn_conv *conv;
  cuda_dnn_plan *plan; /* the result; the search ends when it has a plan */
  const char *name;    /* the wanted engine, or NULL */
  bool measures;       /* measures all suggestions and keeps the fastest */
  void *operand[4];    /* x, weight, y and scratch of the trials */
  int measured;
  float least;
  char fastest[CUDA_PROFILE_CHOICE_MAX];
} search;

static brim_status run_search(cuda_backend *b, void *of)
{
  const search *s = of;
  return cuda_dnn_run(b, s->plan, s->operand[0], s->operand[1], s->operand[2], s->operand[3]);
}

/* Measures a plan and drops it. Ignores a plan that does not run. */
static brim_status measure(search *s, cudnnBackendDescriptor_t tried, cudnnBackendDescriptor_t configuration)
{
  char name[CUDA_PROFILE_CHOICE_MAX];
  float now = 0;
  s->plan->plan = tried;
  const brim_status status = cuda_library_time(s->b, run_search, s, &now);
  s->plan->plan = NULL;
  if (status == BRIM_ENOTSUP) return BRIM_OK;
  if (status != BRIM_OK || !name_configuration(configuration, name)) return status;
  if (s->measured++ > 0 && now >= s->least) return BRIM_OK;
  s->least = now;
  memcpy(s->fastest, name, sizeof name);
  return BRIM_OK;
}

/* Uses a suggested configuration if it works and matches the search. */
static brim_status try(search *s, cudnnBackendDescriptor_t *configuration)
{
  char name[CUDA_PROFILE_CHOICE_MAX];
  cudnnBackendDescriptor_t tried;
  if (s->name && (!name_configuration(*configuration, name) || strcmp(name, s->name) != 0)) return BRIM_OK;
  BRIM_TRY(cuda_dnn_check(cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &tried),
                          "creating a descriptor"));
  const bool usable = cuda_dnn_is_usable(s->b, tried, *configuration, CUDA_DNN_SCRATCH_MAX, &s->plan->scratch_bytes);
  const brim_status status = usable && s->measures ? measure(s, tried, *configuration) : BRIM_OK;
  if (!usable || s->measures) {
    (void)cudnnBackendDestroyDescriptor(tried);
    return status;
  }
  s->plan->made[s->plan->count++] = *configuration;
  s->plan->made[s->plan->count++] = s->plan->plan = tried;
  *configuration = NULL;
  return BRIM_OK;
}

static brim_status try_suggestions(search *s, cuda_dnn_suggestions *of, bool compiled)
{
  for (int64_t i = 0; i < of->count && !s->plan->plan && s->measured < MEASURED_MAX; i++) {
    cuda_dnn_notes n;
    BRIM_TRY(cuda_dnn_notes_of(of->configuration[i], &n));
    if (is_allowed(s->b, s->conv, &n, compiled)) BRIM_TRY(try(s, &of->configuration[i]));
  }
  return BRIM_OK;
}

static brim_status look(search *s, cudnnBackendDescriptor_t graph)
{
  static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
  for (int compiled = 0; compiled < 2; compiled++) {
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
      cuda_dnn_suggestions found;
      brim_status status = cuda_dnn_suggest(graph, modes[i], &found);
      if (status == BRIM_OK) status = try_suggestions(s, &found, compiled);
      cuda_dnn_drop_suggestions(&found);
      if (status != BRIM_OK || s->plan->plan) return status;
    }
    if (s->measured > 0) return BRIM_OK;
  }
  return brim_fail(BRIM_ENOTSUP, "cuDNN has no engine for this convolution");
}

/* ---- the device profile ---- */

static void *search_memory(search *s)
{
  const cuda_conv *v = &s->conv->conv;
  const uint64_t size = brim_dtype_bytes(v->dtype);
  const uint64_t bytes[] = {(uint64_t)(v->N * v->C * v->H * v->W) * size, (uint64_t)cuda_conv_weights(v) * size,
                            (uint64_t)(v->N * v->K * v->P * v->Q) * size, CUDA_DNN_SCRATCH_MAX};
  return cuda_library_memory(bytes, sizeof bytes / sizeof *bytes, s->operand);
}

/* Searches for the fastest engine and adds it to the profile. */
static brim_status tune(search *s, cudnnBackendDescriptor_t graph, const char *key)
{
  cuda_tuning *t = s->b->tuning;
  void *memory = search_memory(s);
  if (!memory) {
    brim_log(BRIM_LOG_WARN, "no device memory to measure convolutions in: the library's suggestion is used");
    return BRIM_OK;
  }
  s->measures = true;
  const brim_status status = look(s, graph);
  s->measures = false;
  (void)cudaFree(memory);
  BRIM_TRY(status);
  s->name = s->fastest;
  s->measured = 0;
  return cuda_profile_add(&t->profile, t->device, t->dnn, key, s->fastest);
}

static brim_status choose(cuda_backend *b, cuda_dnn_plan *plan, const cuda_dnn_conv *conv,
                          cudnnBackendDescriptor_t graph)
{
  search s = {.b = b, .conv = conv, .plan = plan};
  const char *key = plan->key;
  if (b->tuning) s.name = cuda_profile_find(&b->tuning->profile, b->tuning->device, b->tuning->dnn, key);
  if (b->tuning && b->params->tune && !s.name) BRIM_TRY(tune(&s, graph, key));
  const brim_status status = look(&s, graph);
  if (status != BRIM_ENOTSUP || !s.name) return status;
  brim_log(BRIM_LOG_WARN, "%s: the algorithm recorded for '%s' does not work", b->tuning->profile.path, key);
  s.name = NULL;
  return look(&s, graph);
}

/* Without tensor cores, the library's engines need plain order, and would convert channels-last values twice. */
bool cuda_dnn_prefers_last(const cuda_backend *b, uint32_t dtype)
{
  return dtype != BRIM_DTYPE_F32 || b->params->tf32;
}

/* ---- plans that are shared ---- */

static cuda_dnn_plan *find(cuda_backend *b, const char *key)
{
  for (cuda_dnn_plan *p = b->dnn_plans; p; p = p->next)
    if (strcmp(p->key, key) == 0) return p;
  return NULL;
}

static void drop(cuda_dnn_plan *plan)
{
  while (plan->count > 0) (void)cudnnBackendDestroyDescriptor(plan->made[--plan->count]);
  free(plan);
}

static brim_status add(cuda_backend *b, const cuda_dnn_conv *conv, const char *key, cuda_dnn_plan **out)
{
  cudnnBackendDescriptor_t graph;
  cuda_dnn_plan *made = brim_try_calloc(1, sizeof *made);
  if (!made) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the plan of a convolution");
  snprintf(made->key, sizeof made->key, "%s", key);
  brim_status status = cuda_dnn_describe(b, made, conv, &graph);
  if (status == BRIM_OK) status = choose(b, made, conv, graph);
  if (status != BRIM_OK) {
    drop(made);
    return status;
  }
  made->list = &b->dnn_plans;
  made->next = b->dnn_plans;
  *out = b->dnn_plans = made;
  return BRIM_OK;
}

brim_status cuda_dnn_prepare(cuda_backend *b, const cuda_dnn_conv *conv, cuda_dnn_plan **plan, uint64_t *scratch_bytes)
{
  char key[CUDA_PROFILE_KEY_MAX];
  cuda_dnn_key(key, conv, b->params->tf32);
  cuda_dnn_plan *p = find(b, key);
  if (!p) BRIM_TRY(add(b, conv, key, &p));
  p->users++;
  *scratch_bytes = (uint64_t)p->scratch_bytes;
  *plan = p;
  return BRIM_OK;
}

void cuda_dnn_release(cuda_dnn_plan *plan)
{
  if (!plan || --plan->users > 0) return;
  cuda_dnn_plan **at = plan->list;
  while (*at != plan) at = &(*at)->next;
  *at = plan->next;
  drop(plan);
}

/* ---- runs ---- */

static brim_status execute(cuda_backend *b, const cuda_dnn_plan *plan, cudnnBackendDescriptor_t pack, void *x,
                           void *weight, void *y, void *scratch)
{
  static const int64_t uids[] = {CUDA_DNN_UID_X, CUDA_DNN_UID_WEIGHT, CUDA_DNN_UID_Y};
  void *const pointers[] = {x, weight, y};
  BRIM_TRY(cuda_dnn_set_integers(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 3, uids));
  BRIM_TRY(cuda_dnn_set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, pointers));
  BRIM_TRY(cuda_dnn_set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &scratch));
  BRIM_TRY(cuda_dnn_finalize(pack, "describing a convolution's values"));
  return cuda_dnn_check(CUDA_DNN_CALL("conv", cudnnBackendExecute(b->dnn, plan->plan, pack)), "a convolution");
}

brim_status cuda_dnn_run(cuda_backend *b, const cuda_dnn_plan *plan, void *x, void *weight, void *y, void *scratch)
{
  cudnnBackendDescriptor_t pack;
  BRIM_TRY(cuda_dnn_check(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack),
                          "creating a descriptor"));
  const brim_status status = execute(b, plan, pack, x, weight, y, scratch);
  (void)cudnnBackendDestroyDescriptor(pack);
  return status;
}
