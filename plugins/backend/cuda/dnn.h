/* Convolutions by cuDNN: one of the three products between x, weight and y, computed from the other two.
 *
 * x and y are both channels-last or both plain, as is the weight: [K,R,S,D] or [K,D,R,S]. The life of a convolution is
 * that of a product (product.h), and so are its promises. */
#ifndef CUDA_DNN_H
#define CUDA_DNN_H
#include "conv.h"
#ifdef __cplusplus
extern "C" {
#endif

enum cuda_dnn_result { CUDA_DNN_Y, CUDA_DNN_X, CUDA_DNN_WEIGHT };

typedef struct cuda_dnn_conv {
  enum cuda_dnn_result result; /* y, dx or dweight: what is written (=) */
  cuda_conv conv;              /* x_last and y_last are the same */
  uint32_t type_weight;        /* of the weight or dweight: F32, or that of x and y */
  bool may_compile;            /* engines that compile their kernels now are taken where there are no others */
} cuda_dnn_conv;

typedef struct cuda_dnn_plan cuda_dnn_plan;

/* [plan] The order in which the library is fastest for values of this type. */
bool cuda_dnn_prefers_last(const cuda_backend *b, uint32_t dtype);
#define CUDA_DNN_SCRATCH_MAX ((uint64_t)256 << 20)
/* [plan] ENOTSUP: the library does not offer that. scratch_bytes: what run needs, not more than
 * CUDA_DNN_SCRATCH_MAX. */
brim_status cuda_dnn_prepare(cuda_backend *b, const cuda_dnn_conv *conv, cuda_dnn_plan **plan, uint64_t *scratch_bytes);
/* [step] All but the result is only read. */
brim_status cuda_dnn_run(cuda_backend *b, const cuda_dnn_plan *plan, void *x, void *weight, void *y, void *scratch);
/* [init] NULL: nothing. */
void cuda_dnn_release(cuda_dnn_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
