/* The handles and errors of cuBLASLt and cuDNN. */
#ifndef CUDA_LIBRARY_H
#define CUDA_LIBRARY_H
#include <cublasLt.h>
#include <cudnn.h>

#include "../cuda.h"
#include "profile.h"
#ifdef __cplusplus
extern "C" {
#endif

/* Return OK, ENOTSUP if the library does not offer the call, ENOMEM_DEVICE, or EDEVICE for any other error. */
brim_status cuda_blas_check(cublasStatus_t status, const char *what);
brim_status cuda_dnn_check(cudnnStatus_t status, const char *what);
/* Make a call of a library, or return its out-of-memory error if a test requests it: see CUDA_CALL in cuda.h. */
#define CUDA_BLAS_CALL(name, call) (brim_fault_hit(BRIM_FAULT_LIB, name) ? CUBLAS_STATUS_ALLOC_FAILED : (call))
#define CUDA_DNN_CALL(name, call)                                                                                      \
  (brim_fault_hit(BRIM_FAULT_LIB, name) ? CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED : (call))

/* The means to choose among the libraries' algorithms: the device profile, and its names for the device and the
 * libraries. */
typedef struct cuda_tuning {
  cuda_profile profile;
  char device[256], blas[32], dnn[32]; /* "cuDNN 9.19.0" */
} cuda_tuning;

/* [plan] Measures the work that `run` starts on the compute stream. *milliseconds is the least time of several runs,
 * after one that is not measured. */
typedef brim_status cuda_timed_run(cuda_backend *b, void *of);
brim_status cuda_library_time(cuda_backend *b, cuda_timed_run *run, void *of, float *milliseconds);
/* [plan] Returns device memory for trials of algorithms, filled with small numbers and divided into parts of these
 * bytes. Returns NULL, without an error, if there is not enough. The caller frees it with cudaFree. */
void *cuda_library_memory(const uint64_t *bytes, size_t parts, void **part);

#ifdef __cplusplus
}
#endif
#endif
