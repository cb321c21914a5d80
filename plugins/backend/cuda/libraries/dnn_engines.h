/* Engines of cuDNN for a graph: suggestions, notes, and whether a plan can be made. All of it is [plan]. */
#ifndef CUDA_DNN_ENGINES_H
#define CUDA_DNN_ENGINES_H
#include <cudnn.h>

#include "../cuda.h"

enum { CUDA_DNN_SUGGESTIONS_MAX = 64 /* in fp32 most are for TF32 */ };

/* Engine configurations, best first. */
typedef struct cuda_dnn_suggestions {
  cudnnBackendDescriptor_t configuration[CUDA_DNN_SUGGESTIONS_MAX];
  int64_t count;
} cuda_dnn_suggestions;

/* What the library says of an engine, as bits: 1 << note. */
typedef struct cuda_dnn_notes {
  uint32_t numerical, behavior;
} cuda_dnn_notes;

/* Has the descriptor, once finalized, that attribute? */
bool cuda_dnn_get(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                  int64_t room, int64_t *count, void *values);
/* None is no error. What is found is to be dropped, in any case. */
brim_status cuda_dnn_suggest(cudnnBackendDescriptor_t graph, cudnnBackendHeurMode_t mode, cuda_dnn_suggestions *out);
void cuda_dnn_drop_suggestions(cuda_dnn_suggestions *s);
brim_status cuda_dnn_notes_of(cudnnBackendDescriptor_t configuration, cuda_dnn_notes *out);
/* Makes `plan` of a configuration, if that works and takes no more scratch than scratch_max. */
bool cuda_dnn_is_usable(const cuda_backend *b, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t configuration,
                        uint64_t scratch_max, int64_t *scratch_bytes);
#endif
