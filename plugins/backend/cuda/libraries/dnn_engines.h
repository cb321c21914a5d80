/* Engines of cuDNN for a graph: suggestions, notes, and trials. All functions are [plan]. */
#ifndef CUDA_DNN_ENGINES_H
#define CUDA_DNN_ENGINES_H
#include <cudnn.h>

#include "../cuda.h"

enum { CUDA_DNN_SUGGESTIONS_MAX = 64 /* large, because most suggestions for fp32 use TF32 */ };

/* Engine configurations, best first. */
typedef struct cuda_dnn_suggestions {
  cudnnBackendDescriptor_t configuration[CUDA_DNN_SUGGESTIONS_MAX];
  int64_t count;
} cuda_dnn_suggestions;

/* The library's notes on an engine, as bits: 1 << note. */
typedef struct cuda_dnn_notes {
  uint32_t numerical, behavior;
} cuda_dnn_notes;

/* Gets an attribute of a finalized descriptor. Returns false if the descriptor does not have it. */
bool cuda_dnn_get(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                  int64_t room, int64_t *count, void *values);
/* Asks the library for suggestions. Finding none is not an error. The caller must drop the suggestions, even after an
 * error. */
brim_status cuda_dnn_suggest(cudnnBackendDescriptor_t graph, cudnnBackendHeurMode_t mode, cuda_dnn_suggestions *out);
void cuda_dnn_drop_suggestions(cuda_dnn_suggestions *s);
brim_status cuda_dnn_notes_of(cudnnBackendDescriptor_t configuration, cuda_dnn_notes *out);
/* Makes `plan` from a configuration. Returns false if this fails, or if the plan needs more than scratch_max bytes of
 * scratch. */
bool cuda_dnn_is_usable(const cuda_backend *b, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t configuration,
                        uint64_t scratch_max, int64_t *scratch_bytes);
#endif
