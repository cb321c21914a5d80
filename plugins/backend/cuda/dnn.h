/* Convolutions by cuDNN: one of the three products between x, weight and y, computed from the other two.
 *
 * x and y are both channels-last or both plain, as is the weight: [K,R,S,D] or [K,D,R,S]. Its lifetime and guarantees
 * are those of a product (product.h). */
#ifndef CUDA_DNN_H
#define CUDA_DNN_H
#include "conv.h"
#ifdef __cplusplus
extern "C" {
#endif

enum cuda_dnn_result { CUDA_DNN_Y, CUDA_DNN_X, CUDA_DNN_WEIGHT };

typedef struct cuda_dnn_conv {
  enum cuda_dnn_result result; /* the result that the library computes: y, dx or dweight; it overwrites the tensor */
  cuda_conv conv;              /* x_last and y_last are the same; dweight has their type too */
} cuda_dnn_conv;

typedef struct cuda_dnn_plan cuda_dnn_plan;

/* [plan] Returns whether the library is fastest with channels-last values of this type. */
bool cuda_dnn_prefers_last(const cuda_backend *b, uint32_t dtype);
#define CUDA_DNN_SCRATCH_MAX ((uint64_t)256 << 20)
/* Returns ENOTSUP if the library does not offer the convolution. scratch_bytes: for cuda_dnn_run; at most
 * CUDA_DNN_SCRATCH_MAX. [plan] */
brim_status cuda_dnn_prepare(cuda_backend *b, const cuda_dnn_conv *conv, cuda_dnn_plan **plan, uint64_t *scratch_bytes);
/* [step] Reads all but the result, which it writes. */
brim_status cuda_dnn_run(cuda_backend *b, const cuda_dnn_plan *plan, void *x, void *weight, void *y, void *scratch);
/* Releases a plan; NULL is allowed. [init] */
void cuda_dnn_release(cuda_dnn_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
