/* cuBLASLt and cuDNN: their handles and errors. */
#ifndef CUDA_LIBRARY_H
#define CUDA_LIBRARY_H
#include <cublasLt.h>
#include <cudnn.h>

#include "../cuda.h"
#include "profile.h"
#ifdef __cplusplus
extern "C" {
#endif

/* OK, or what a call said: ENOTSUP for what the library does not offer, ENOMEM_DEVICE, else EDEVICE. */
brim_status cuda_blas_check(cublasStatus_t status, const char *what);
brim_status cuda_dnn_check(cudnnStatus_t status, const char *what);
/* A call of a library, or what it says without memory if a test wants it to: see CUDA_CALL in cuda.h. */
#define CUDA_BLAS_CALL(name, call) (brim_fault_hit(BRIM_FAULT_LIB, name) ? CUBLAS_STATUS_ALLOC_FAILED : (call))
#define CUDA_DNN_CALL(name, call)                                                                                      \
  (brim_fault_hit(BRIM_FAULT_LIB, name) ? CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED : (call))

/* What chooses among the libraries' algorithms: the device profile, and the names that it has for what is here. */
typedef struct cuda_tuning {
  cuda_profile profile;
  char device[256], blas[32], dnn[32]; /* "cuDNN 9.19.0" */
} cuda_tuning;

/* [plan] Milliseconds of what run starts on the compute stream: the least of several, after it has run once. */
typedef brim_status cuda_timed_run(cuda_backend *b, void *of);
brim_status cuda_library_time(cuda_backend *b, cuda_timed_run *run, void *of, float *milliseconds);
/* [plan] Device memory to try algorithms in, in parts of so many bytes, filled with numbers; NULL if there is not so
 * much, without an error. To be freed by cudaFree. */
void *cuda_library_memory(const uint64_t *bytes, size_t parts, void **part);

#ifdef __cplusplus
}
#endif
#endif
