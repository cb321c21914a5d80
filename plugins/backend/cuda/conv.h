/* The sizes of a convolution, named as in plugins/backend/reference/conv.c, and brim's own kernels for it. */
#ifndef CUDA_CONV_H
#define CUDA_CONV_H
#include "cuda.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct cuda_conv {
  int64_t N, C, H, W; /* x */
  int64_t K, D, R, S; /* weight [K,D,R,S]; D = C / groups */
  int64_t P, Q;       /* y [N,K,P,Q] */
  int64_t groups, stride[2], padding[2], dilation[2];
  uint32_t dtype;      /* the type of x, y, their gradients and the weight; weight gradients are F32 */
  bool x_last, y_last; /* channels-last in memory */
} cuda_conv;

static inline int64_t cuda_conv_weights(const cuda_conv *v)
{
  return v->K * v->D * v->R * v->S;
}

/* conv_direct.cu: for convolutions that the library refuses. weight [K,D,R,S]. [step] */
brim_status cuda_conv_direct(cuda_backend *b, const cuda_conv *v, const void *x, const void *weight, void *y);
brim_status cuda_conv_direct_grad_input(cuda_backend *b, const cuda_conv *v, const void *dy, const void *weight,
                                        void *dx);
/* dweight += , or = unless it adds; scratch: cuda_conv_direct_bytes [plan]. */
uint64_t cuda_conv_direct_bytes(const cuda_conv *v);
brim_status cuda_conv_direct_grad_weight(cuda_backend *b, const cuda_conv *v, const void *x, const void *dy,
                                         float *dweight, bool adds, void *scratch);
/* dbias [K] +=, or = unless it adds, the sum of dy's values in each channel; scratch: cuda_conv_bias_bytes. */
uint64_t cuda_conv_bias_bytes(const cuda_conv *v);
brim_status cuda_conv_grad_bias(cuda_backend *b, const cuda_conv *v, const void *dy, float *dbias, bool adds,
                                void *scratch);

#ifdef __cplusplus
}
#endif
#endif
