/* Declarations that sdpa.c and sdpa_graph.c share. */
#ifndef CUDA_SDPA_GRAPH_H
#define CUDA_SDPA_GRAPH_H
#include "../sdpa.h"
#include "dnn_graph.h"

/* The tensors with stored values. They are in device memory, except for the numbers at the end, which the host passes
 * with the launch. */
enum {
  CUDA_SDPA_Q = 1,
  CUDA_SDPA_K,
  CUDA_SDPA_V,
  CUDA_SDPA_OUT,
  CUDA_SDPA_LSE,
  CUDA_SDPA_DY,
  CUDA_SDPA_DQ,
  CUDA_SDPA_DK,
  CUDA_SDPA_DV,
  CUDA_SDPA_DELTA, /* the sum of dy * y for each row, in scratch */
  CUDA_SDPA_SCALE,
  CUDA_SDPA_LEAST, /* the score of a key that is not seen */
  CUDA_SDPA_QUERIES,
  CUDA_SDPA_KEYS,
  CUDA_SDPA_ONE,
  CUDA_SDPA_UIDS
};

/* [plan] Makes the graph of attention. The plan owns the graph and its parts. used: one bit for each of the tensors
 * above that the graph has. */
brim_status cuda_sdpa_describe(const cuda_backend *b, cuda_dnn_plan *plan, const cuda_sdpa *sdpa,
                               cudnnBackendDescriptor_t *out, uint32_t *used);
#endif
