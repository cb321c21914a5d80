/* The libraries' handles. They are made before the arena is sized, as both take device memory. */
#include "library.h"

#include "device.h"

brim_status cuda_blas_check(cublasStatus_t status, const char *what)
{
  if (status == CUBLAS_STATUS_SUCCESS) return BRIM_OK;
  const brim_status code = status == CUBLAS_STATUS_ALLOC_FAILED    ? BRIM_ENOMEM_DEVICE
                           : status == CUBLAS_STATUS_NOT_SUPPORTED ? BRIM_ENOTSUP
                                                                   : BRIM_EDEVICE;
  return brim_fail(code, "cuBLASLt, %s: %s", what, cublasLtGetStatusName(status));
}

brim_status cuda_dnn_check(cudnnStatus_t status, const char *what)
{
  if (status == CUDNN_STATUS_SUCCESS) return BRIM_OK;
  char detail[256] = "";
  cudnnGetLastErrorString(detail, sizeof detail);
  const int category = (int)status / 1000 * 1000; /* of cuDNN 9's codes */
  const brim_status code = status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED     ? BRIM_ENOMEM_HOST
                           : status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ? BRIM_ENOMEM_DEVICE
                           : category == CUDNN_STATUS_NOT_SUPPORTED                         ? BRIM_ENOTSUP
                                                                                            : BRIM_EDEVICE;
  return brim_fail(code, "cuDNN, %s: %s%s%s", what, cudnnGetErrorString(status), detail[0] ? ": " : "", detail);
}

brim_status cuda_library_open(cuda_backend *b)
{
  BRIM_TRY(cuda_blas_check(cublasLtCreate(&b->blas), "creating a handle"));
  BRIM_TRY(cuda_dnn_check(cudnnCreate(&b->dnn), "creating a handle"));
  return cuda_dnn_check(cudnnSetStream(b->dnn, b->compute), "setting the stream");
}

void cuda_library_close(cuda_backend *b)
{
  if (b->dnn) (void)cudnnDestroy(b->dnn);
  if (b->blas) (void)cublasLtDestroy(b->blas);
}
