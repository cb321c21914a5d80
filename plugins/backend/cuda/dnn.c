/* Convolutions by cuDNN's graphs: tensors, a convolution and an operation are described, the library suggests engines
 * for the graph of this one operation, and the first suggestion that is allowed and works becomes an execution plan.
 *
 * Not allowed is what would give other numbers than a convolution in the type that was asked for, or not the same ones
 * at every run: sums whose order is left to chance; transforms (Winograd, FFT), which lose digits and spread a NaN over
 * places that it has no part in; and in fp32, unless TF32 is allowed, tensor cores. Engines that compile their kernels
 * when they are planned are taken only where there are no others: a plan for every batch size would take minutes. */
#include "dnn.h"

#include <stdlib.h>

#include "library.h"

enum { DESCRIPTORS_MAX = 12, SUGGESTIONS_MAX = 64 /* in fp32 most are for TF32 */ };
enum { UID_X = 'x', UID_WEIGHT = 'w', UID_Y = 'y' };

struct cuda_dnn_plan {
  cudnnBackendDescriptor_t plan; /* among: */
  cudnnBackendDescriptor_t made[DESCRIPTORS_MAX];
  int count;
  int64_t scratch_bytes;
};

/* ---- descriptors ---- */

/* A descriptor that lives as long as the plan does. */
static brim_status make(cuda_dnn_plan *plan, cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out)
{
  BRIM_TRY(cuda_dnn_check(cudnnBackendCreateDescriptor(type, out), "creating a descriptor"));
  plan->made[plan->count++] = *out;
  return BRIM_OK;
}

static brim_status set(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                       int64_t count, const void *values)
{
  return cuda_dnn_check(cudnnBackendSetAttribute(of, name, type, count, values), "describing a convolution");
}

static brim_status set_integers(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name, int64_t count,
                                const int64_t *values)
{
  return set(of, name, CUDNN_TYPE_INT64, count, values);
}

static brim_status set_descriptor(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                                  cudnnBackendDescriptor_t value)
{
  return set(of, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static brim_status finalize(cudnnBackendDescriptor_t descriptor, const char *what)
{
  return cuda_dnn_check(cudnnBackendFinalize(descriptor), what);
}

/* ---- the operation ---- */

static cudnnDataType_t type_of(uint32_t dtype)
{
  return dtype == BRIM_DTYPE_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

/* Sizes always come in the order N, C, H, W; their order in memory is in the strides. */
static brim_status describe_tensor(cuda_dnn_plan *plan, int64_t uid, uint32_t dtype, const int64_t size[4], bool last,
                                   cudnnBackendDescriptor_t *out)
{
  const int64_t alignment = CUDA_ALIGNMENT, c = size[1], h = size[2], w = size[3];
  const int64_t plain[4] = {c * h * w, h * w, w, 1}, channels_last[4] = {h * w * c, 1, w * c, c};
  const cudnnDataType_t type = type_of(dtype);
  BRIM_TRY(make(plan, CUDNN_BACKEND_TENSOR_DESCRIPTOR, out));
  BRIM_TRY(set_integers(*out, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &uid));
  BRIM_TRY(set(*out, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
  BRIM_TRY(set_integers(*out, CUDNN_ATTR_TENSOR_DIMENSIONS, 4, size));
  BRIM_TRY(set_integers(*out, CUDNN_ATTR_TENSOR_STRIDES, 4, last ? channels_last : plain));
  BRIM_TRY(set_integers(*out, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &alignment));
  return finalize(*out, "describing a tensor");
}

static brim_status describe_window(cuda_dnn_plan *plan, const cuda_conv *v, cudnnBackendDescriptor_t *out)
{
  const cudnnDataType_t type = CUDNN_DATA_FLOAT;
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  const int64_t dimensions = 2;
  BRIM_TRY(make(plan, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, out));
  BRIM_TRY(set_integers(*out, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1, &dimensions));
  BRIM_TRY(set(*out, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
  BRIM_TRY(set(*out, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode));
  BRIM_TRY(set_integers(*out, CUDNN_ATTR_CONVOLUTION_DILATIONS, 2, v->dilation));
  BRIM_TRY(set_integers(*out, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 2, v->stride));
  BRIM_TRY(set_integers(*out, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 2, v->padding));
  BRIM_TRY(set_integers(*out, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 2, v->padding));
  return finalize(*out, "describing a convolution");
}

/* The three directions, by the names that the library has for the same things. */
typedef struct direction {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t window, x, weight, y, alpha, beta;
} direction;

static const direction directions[] = {
    [CUDA_DNN_Y] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [CUDA_DNN_X] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [CUDA_DNN_WEIGHT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

/* How many groups there are follows from the channels of x and those of a filter. */
static brim_status describe_operation(cuda_dnn_plan *plan, const cuda_dnn_conv *conv, cudnnBackendDescriptor_t *out)
{
  const cuda_conv *v = &conv->conv;
  const direction *d = &directions[conv->result];
  const int64_t size_x[4] = {v->N, v->C, v->H, v->W}, size_weight[4] = {v->K, v->D, v->R, v->S};
  const int64_t size_y[4] = {v->N, v->K, v->P, v->Q};
  const float one = 1, zero = 0;
  cudnnBackendDescriptor_t x, weight, y, window;
  BRIM_TRY(describe_tensor(plan, UID_X, v->dtype, size_x, v->x_last, &x));
  BRIM_TRY(describe_tensor(plan, UID_WEIGHT, conv->type_weight, size_weight, v->x_last, &weight));
  BRIM_TRY(describe_tensor(plan, UID_Y, v->dtype, size_y, v->x_last, &y));
  BRIM_TRY(describe_window(plan, v, &window));
  BRIM_TRY(make(plan, d->type, out));
  BRIM_TRY(set_descriptor(*out, d->window, window));
  BRIM_TRY(set_descriptor(*out, d->x, x));
  BRIM_TRY(set_descriptor(*out, d->weight, weight));
  BRIM_TRY(set_descriptor(*out, d->y, y));
  BRIM_TRY(set(*out, d->alpha, CUDNN_TYPE_FLOAT, 1, &one));
  BRIM_TRY(set(*out, d->beta, CUDNN_TYPE_FLOAT, 1, &zero));
  return finalize(*out, "describing the operation");
}

static brim_status describe_graph(const cuda_backend *b, cuda_dnn_plan *plan, const cuda_dnn_conv *conv,
                                  cudnnBackendDescriptor_t *out)
{
  cudnnBackendDescriptor_t operation;
  BRIM_TRY(describe_operation(plan, conv, &operation));
  BRIM_TRY(make(plan, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, out));
  BRIM_TRY(set(*out, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &b->dnn));
  BRIM_TRY(set_descriptor(*out, CUDNN_ATTR_OPERATIONGRAPH_OPS, operation));
  return finalize(*out, "describing the graph");
}

/* ---- suggestions ---- */

/* Engine configurations, best first. */
typedef struct suggestions {
  cudnnBackendDescriptor_t configuration[SUGGESTIONS_MAX];
  int64_t count;
} suggestions;

static void drop_suggestions(suggestions *s)
{
  for (int64_t i = 0; i < SUGGESTIONS_MAX; i++)
    if (s->configuration[i]) (void)cudnnBackendDestroyDescriptor(s->configuration[i]);
}

static cudnnStatus_t ask(cudnnBackendDescriptor_t heuristics, cudnnBackendDescriptor_t graph,
                         cudnnBackendHeurMode_t mode, suggestions *out)
{
  cudnnStatus_t e = cudnnBackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                                             CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
  if (e == CUDNN_STATUS_SUCCESS)
    e = cudnnBackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (e == CUDNN_STATUS_SUCCESS) e = cudnnBackendFinalize(heuristics);
  int64_t count = 0;
  if (e == CUDNN_STATUS_SUCCESS)
    e = cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count,
                                 NULL);
  count = cuda_min(count, SUGGESTIONS_MAX);
  for (int64_t i = 0; e == CUDNN_STATUS_SUCCESS && i < count; i++)
    e = cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &out->configuration[i]);
  if (e == CUDNN_STATUS_SUCCESS && count > 0)
    e = cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count,
                                 &out->count, out->configuration);
  out->count = e == CUDNN_STATUS_SUCCESS ? cuda_min(out->count, count) : 0;
  return e;
}

/* A graph for which there is no suggestion is no error, whatever the library's reason is: another engine, or a kernel
 * of our own, does the same. */
static brim_status suggest(cudnnBackendDescriptor_t graph, cudnnBackendHeurMode_t mode, suggestions *out)
{
  cudnnBackendDescriptor_t heuristics;
  *out = (suggestions){.count = 0};
  BRIM_TRY(cuda_dnn_check(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristics),
                          "creating a descriptor"));
  const cudnnStatus_t e = ask(heuristics, graph, mode, out);
  if (e != CUDNN_STATUS_SUCCESS) brim_log(BRIM_LOG_DEBUG, "cuDNN suggests no engines: %s", cudnnGetErrorString(e));
  return cuda_dnn_check(cudnnBackendDestroyDescriptor(heuristics), "dropping a descriptor");
}

/* What the library says of an engine, as bits: 1 << note. */
typedef struct notes {
  uint32_t numerical, behavior;
} notes;

static brim_status read_notes(cudnnBackendDescriptor_t engine, notes *out)
{
  cudnnBackendNumericalNote_t numerical[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  cudnnBackendBehaviorNote_t behavior[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
  int64_t count = 0;
  *out = (notes){0};
  BRIM_TRY(cuda_dnn_check(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                                   CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, numerical),
                          "asking for an engine's numbers"));
  for (int64_t i = 0; i < count; i++) out->numerical |= 1u << numerical[i];
  BRIM_TRY(cuda_dnn_check(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                                   CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &count, behavior),
                          "asking for an engine's behavior"));
  for (int64_t i = 0; i < count; i++) out->behavior |= 1u << behavior[i];
  return BRIM_OK;
}

static brim_status notes_of(cudnnBackendDescriptor_t configuration, notes *out)
{
  cudnnBackendDescriptor_t engine;
  int64_t count = 0;
  BRIM_TRY(
      cuda_dnn_check(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine), "creating a descriptor"));
  brim_status status = cuda_dnn_check(cudnnBackendGetAttribute(configuration, CUDNN_ATTR_ENGINECFG_ENGINE,
                                                               CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine),
                                      "asking for an engine");
  if (status == BRIM_OK) status = read_notes(engine, out);
  (void)cudnnBackendDestroyDescriptor(engine);
  return status;
}

static bool is_allowed(const cuda_backend *b, const cuda_dnn_conv *conv, const notes *n, bool compiled)
{
  uint32_t refused = 1u << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC | 1u << CUDNN_NUMERICAL_NOTE_WINOGRAD |
                     1u << CUDNN_NUMERICAL_NOTE_FFT | 1u << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION;
  if (conv->conv.dtype == BRIM_DTYPE_F32) {
    refused |= 1u << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
    if (!b->params->tf32) refused |= 1u << CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
  }
  return !(n->numerical & refused) && (n->behavior >> CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION & 1) == compiled;
}

/* ---- plans ---- */

/* Which of the library's suggestions does not work, or takes too much, is told by trying. */
static bool is_usable(const cuda_backend *b, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t configuration,
                      int64_t *scratch_bytes)
{
  int64_t count = 0;
  return cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &b->dnn) ==
             CUDNN_STATUS_SUCCESS &&
         cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                  &configuration) == CUDNN_STATUS_SUCCESS &&
         cudnnBackendFinalize(plan) == CUDNN_STATUS_SUCCESS &&
         cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                                  scratch_bytes) == CUDNN_STATUS_SUCCESS &&
         (uint64_t)*scratch_bytes <= CUDA_DNN_SCRATCH_MAX;
}

/* Takes a configuration over from the suggestions if it works. */
static brim_status try(const cuda_backend *b, cuda_dnn_plan *plan, cudnnBackendDescriptor_t *configuration)
{
  cudnnBackendDescriptor_t tried;
  BRIM_TRY(cuda_dnn_check(cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &tried),
                          "creating a descriptor"));
  if (!is_usable(b, tried, *configuration, &plan->scratch_bytes))
    return cuda_dnn_check(cudnnBackendDestroyDescriptor(tried), "dropping a plan");
  plan->made[plan->count++] = *configuration;
  plan->made[plan->count++] = plan->plan = tried;
  *configuration = NULL;
  return BRIM_OK;
}

static brim_status try_suggestions(const cuda_backend *b, cuda_dnn_plan *plan, const cuda_dnn_conv *conv,
                                   suggestions *s, bool compiled)
{
  for (int64_t i = 0; i < s->count && !plan->plan; i++) {
    notes n;
    BRIM_TRY(notes_of(s->configuration[i], &n));
    if (is_allowed(b, conv, &n, compiled)) BRIM_TRY(try(b, plan, &s->configuration[i]));
  }
  return BRIM_OK;
}

static brim_status choose(const cuda_backend *b, cuda_dnn_plan *plan, const cuda_dnn_conv *conv,
                          cudnnBackendDescriptor_t graph)
{
  static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
  for (int compiled = 0; compiled < 2; compiled++)
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
      suggestions s;
      brim_status status = suggest(graph, modes[i], &s);
      if (status == BRIM_OK) status = try_suggestions(b, plan, conv, &s, compiled);
      drop_suggestions(&s);
      if (status != BRIM_OK || plan->plan) return status;
    }
  return brim_fail(BRIM_ENOTSUP, "cuDNN has no engine for this convolution");
}

/* Without tensor cores the library's engines are for plain order; for the other they move all values twice. */
bool cuda_dnn_prefers_last(const cuda_backend *b, uint32_t dtype)
{
  return dtype == BRIM_DTYPE_BF16 || b->params->tf32;
}

brim_status cuda_dnn_prepare(cuda_backend *b, const cuda_dnn_conv *conv, cuda_dnn_plan **plan, uint64_t *scratch_bytes)
{
  cudnnBackendDescriptor_t graph;
  cuda_dnn_plan *made = calloc(1, sizeof *made);
  if (!made) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the plan of a convolution");
  brim_status status = describe_graph(b, made, conv, &graph);
  if (status == BRIM_OK) status = choose(b, made, conv, graph);
  if (status != BRIM_OK) {
    cuda_dnn_release(made);
    return status;
  }
  *scratch_bytes = (uint64_t)made->scratch_bytes;
  *plan = made;
  return BRIM_OK;
}

static brim_status execute(cuda_backend *b, const cuda_dnn_plan *plan, cudnnBackendDescriptor_t pack, void *x,
                           void *weight, void *y, void *scratch)
{
  static const int64_t uids[] = {UID_X, UID_WEIGHT, UID_Y};
  void *const pointers[] = {x, weight, y};
  BRIM_TRY(set_integers(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 3, uids));
  BRIM_TRY(set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, pointers));
  BRIM_TRY(set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &scratch));
  BRIM_TRY(finalize(pack, "describing a convolution's values"));
  return cuda_dnn_check(cudnnBackendExecute(b->dnn, plan->plan, pack), "a convolution");
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

void cuda_dnn_release(cuda_dnn_plan *plan)
{
  if (!plan) return;
  while (plan->count > 0) (void)cudnnBackendDestroyDescriptor(plan->made[--plan->count]);
  free(plan);
}
