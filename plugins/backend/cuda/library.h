/* cuBLASLt and cuDNN: their handles and errors. */
#ifndef CUDA_LIBRARY_H
#define CUDA_LIBRARY_H
#include <cublasLt.h>
#include <cudnn.h>

#include "cuda.h"
#ifdef __cplusplus
extern "C" {
#endif

/* OK, or what a call said: ENOTSUP for what the library does not offer, ENOMEM_DEVICE, else EDEVICE. */
brim_status cuda_blas_check(cublasStatus_t status, const char *what);
brim_status cuda_dnn_check(cudnnStatus_t status, const char *what);

#ifdef __cplusplus
}
#endif
#endif
