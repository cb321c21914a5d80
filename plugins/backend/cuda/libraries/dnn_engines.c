/* cuDNN's suggestions for a graph, the notes on each engine, and trials of engines. */
#include "dnn_engines.h"

#include "library.h"

bool cuda_dnn_get(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                  int64_t room, int64_t *count, void *values)
{
  return cudnnBackendGetAttribute(of, name, type, room, count, values) == CUDNN_STATUS_SUCCESS;
}

void cuda_dnn_drop_suggestions(cuda_dnn_suggestions *s)
{
  for (int64_t i = 0; i < CUDA_DNN_SUGGESTIONS_MAX; i++)
    if (s->configuration[i]) (void)cudnnBackendDestroyDescriptor(s->configuration[i]);
}

static cudnnStatus_t ask(cudnnBackendDescriptor_t heuristics, cudnnBackendDescriptor_t graph,
                         cudnnBackendHeurMode_t mode, cuda_dnn_suggestions *out)
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
  count = cuda_min(count, CUDA_DNN_SUGGESTIONS_MAX);
  for (int64_t i = 0; e == CUDNN_STATUS_SUCCESS && i < count; i++)
    e = cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &out->configuration[i]);
  if (e == CUDNN_STATUS_SUCCESS && count > 0)
    e = cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count,
                                 &out->count, out->configuration);
  out->count = e == CUDNN_STATUS_SUCCESS ? cuda_min(out->count, count) : 0;
  return e;
}

/* It is never an error if the library suggests nothing for a graph: another engine, or one of brim's kernels, then
 * computes the node. */
brim_status cuda_dnn_suggest(cudnnBackendDescriptor_t graph, cudnnBackendHeurMode_t mode, cuda_dnn_suggestions *out)
{
  cudnnBackendDescriptor_t heuristics;
  *out = (cuda_dnn_suggestions){.count = 0};
  BRIM_TRY(cuda_dnn_check(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristics),
                          "creating a descriptor"));
  const cudnnStatus_t e = ask(heuristics, graph, mode, out);
  if (e != CUDNN_STATUS_SUCCESS) brim_log(BRIM_LOG_DEBUG, "cuDNN suggests no engines: %s", cudnnGetErrorString(e));
  return cuda_dnn_check(cudnnBackendDestroyDescriptor(heuristics), "dropping a descriptor");
}

static brim_status read_notes(cudnnBackendDescriptor_t engine, cuda_dnn_notes *out)
{
  cudnnBackendNumericalNote_t numerical[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  cudnnBackendBehaviorNote_t behavior[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
  int64_t count = 0;
  *out = (cuda_dnn_notes){0};
  BRIM_TRY(cuda_dnn_check(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                                   CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, numerical),
                          "querying an engine's numbers"));
  for (int64_t i = 0; i < count; i++) out->numerical |= 1u << numerical[i];
  BRIM_TRY(cuda_dnn_check(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                                   CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &count, behavior),
                          "querying an engine's behavior"));
  for (int64_t i = 0; i < count; i++) out->behavior |= 1u << behavior[i];
  return BRIM_OK;
}

brim_status cuda_dnn_notes_of(cudnnBackendDescriptor_t configuration, cuda_dnn_notes *out)
{
  cudnnBackendDescriptor_t engine;
  int64_t count = 0;
  BRIM_TRY(
      cuda_dnn_check(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine), "creating a descriptor"));
  brim_status status = cuda_dnn_check(cudnnBackendGetAttribute(configuration, CUDNN_ATTR_ENGINECFG_ENGINE,
                                                               CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine),
                                      "querying an engine");
  if (status == BRIM_OK) status = read_notes(engine, out);
  (void)cudnnBackendDestroyDescriptor(engine);
  return status;
}

/* Some suggestions of the library do not work or need too much scratch, which only a trial shows. */
bool cuda_dnn_is_usable(const cuda_backend *b, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t configuration,
                        uint64_t scratch_max, int64_t *scratch_bytes)
{
  int64_t count = 0;
  return cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &b->dnn) ==
             CUDNN_STATUS_SUCCESS &&
         cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                  &configuration) == CUDNN_STATUS_SUCCESS &&
         cudnnBackendFinalize(plan) == CUDNN_STATUS_SUCCESS &&
         cuda_dnn_get(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, scratch_bytes) &&
         (uint64_t)*scratch_bytes <= scratch_max;
}
