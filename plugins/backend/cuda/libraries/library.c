/* The handles of the libraries, which are created before the arena is sized because both take device memory; and the
 * means to choose among the libraries' algorithms: the device profile and a timer. */
#include "library.h"

#include <stdio.h>
#include <stdlib.h>

#include "../device.h"

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
  const int category = (int)status / 1000 * 1000; /* categories of cuDNN 9's status codes */
  const brim_status code = status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED     ? BRIM_ENOMEM_HOST
                           : status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ? BRIM_ENOMEM_DEVICE
                           : category == CUDNN_STATUS_NOT_SUPPORTED                         ? BRIM_ENOTSUP
                                                                                            : BRIM_EDEVICE;
  return brim_fail(code, "cuDNN, %s: %s%s%s", what, cudnnGetErrorString(status), detail[0] ? ": " : "", detail);
}

/* ---- the device profile ---- */

static brim_status name_device(cuda_tuning *t, int device)
{
  struct cudaDeviceProp properties;
  BRIM_TRY(cuda_check(cudaGetDeviceProperties(&properties, device), "querying a device's properties"));
  snprintf(t->device, sizeof t->device, "%.200s", properties.name);
  return BRIM_OK;
}

static brim_status open_tuning(cuda_backend *b)
{
  if (!b->params->profile[0]) return BRIM_OK;
  cuda_tuning *t = b->tuning = brim_try_calloc(1, sizeof *t);
  if (!t) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the device profile");
  BRIM_TRY(name_device(t, b->device));
  const size_t blas = cublasLtGetVersion(), dnn = cudnnGetVersion();
  snprintf(t->blas, sizeof t->blas, "cuBLASLt %zu.%zu.%zu", blas / 10000, blas / 100 % 100, blas % 100);
  snprintf(t->dnn, sizeof t->dnn, "cuDNN %zu.%zu.%zu", dnn / 10000, dnn / 100 % 100, dnn % 100);
  BRIM_TRY(cuda_profile_read(&t->profile, b->params->profile, b->params->tune));
  return b->params->tune ? BRIM_OK : cuda_profile_check(&t->profile, t->device);
}

static void close_tuning(cuda_backend *b)
{
  if (b->tuning) cuda_profile_release(&b->tuning->profile);
  free(b->tuning);
  b->tuning = NULL;
}

/* ---- measuring ---- */

enum { TIMES = 5, RUNS = 4 }; /* TIMES: number of measurements; RUNS: runs in each */

static brim_status time_once(cuda_backend *b, cuda_timed_run *run, void *of, const cudaEvent_t event[2],
                             float *milliseconds)
{
  BRIM_TRY(cuda_check(cudaEventRecord(event[0], b->compute), "recording an event"));
  for (int i = 0; i < RUNS; i++) BRIM_TRY(run(b, of));
  BRIM_TRY(cuda_check(cudaEventRecord(event[1], b->compute), "recording an event"));
  BRIM_TRY(cuda_check(cudaEventSynchronize(event[1]), "trying an algorithm"));
  BRIM_TRY(cuda_check(cudaEventElapsedTime(milliseconds, event[0], event[1]), "measuring time"));
  *milliseconds /= RUNS;
  return BRIM_OK;
}

static brim_status time_with(cuda_backend *b, cuda_timed_run *run, void *of, const cudaEvent_t event[2],
                             float *milliseconds)
{
  BRIM_TRY(run(b, of));
  for (int i = 0; i < TIMES; i++) {
    float now;
    BRIM_TRY(time_once(b, run, of, event, &now));
    if (i == 0 || now < *milliseconds) *milliseconds = now;
  }
  return BRIM_OK;
}

brim_status cuda_library_time(cuda_backend *b, cuda_timed_run *run, void *of, float *milliseconds)
{
  cudaEvent_t event[2] = {NULL, NULL};
  brim_status status = cuda_check(cudaEventCreate(&event[0]), "creating an event");
  if (status == BRIM_OK) status = cuda_check(cudaEventCreate(&event[1]), "creating an event");
  if (status == BRIM_OK) status = time_with(b, run, of, event, milliseconds);
  for (int i = 0; i < 2; i++)
    if (event[i]) (void)cudaEventDestroy(event[i]);
  return status;
}

/* Memory filled with this byte holds small numbers in every type. It is not 0, because some devices are faster with
 * zeros than with other numbers. */
enum { PATTERN = 0x3C };

void *cuda_library_memory(const uint64_t *bytes, size_t parts, void **part)
{
  uint64_t total = 0;
  void *memory = NULL;
  for (size_t i = 0; i < parts; i++) total += cuda_round_up(bytes[i], CUDA_ALIGNMENT);
  if (cudaMalloc(&memory, total ? total : 1) != cudaSuccess || cudaMemset(memory, PATTERN, total) != cudaSuccess) {
    (void)cudaGetLastError();
    (void)cudaFree(memory);
    return NULL;
  }
  total = 0;
  for (size_t i = 0; i < parts; total += cuda_round_up(bytes[i++], CUDA_ALIGNMENT)) part[i] = (char *)memory + total;
  return memory;
}

/* ---- handles ---- */

/* From cuDNN 9 on, the version number is 10000 * major + ...; in earlier versions it is 1000 * major + ... */
static size_t dnn_major(size_t version)
{
  return version >= 90000 ? version / 10000 : version / 1000;
}

static brim_status check_versions(void)
{
  const size_t dnn = cudnnGetVersion(), blas = cublasLtGetVersion();
  if (dnn_major(dnn) != dnn_major(CUDNN_VERSION))
    return brim_fail(BRIM_ENODEVICE,
                     "this build of brim is for cuDNN %d, and cuDNN %zu (version number %zu) was loaded\n"
                     "LD_LIBRARY_PATH adds folders to search",
                     CUDNN_MAJOR, dnn_major(dnn), dnn);
  if (blas / 10000 != CUBLAS_VER_MAJOR)
    return brim_fail(BRIM_ENODEVICE,
                     "this build of brim is for cuBLASLt %d, and cuBLASLt %zu.%zu.%zu was loaded\n"
                     "LD_LIBRARY_PATH adds folders to search",
                     CUBLAS_VER_MAJOR, blas / 10000, blas / 100 % 100, blas % 100);
  return BRIM_OK;
}

brim_status cuda_library_open(cuda_backend *b)
{
  BRIM_TRY(check_versions());
  BRIM_TRY(cuda_blas_check(cublasLtCreate(&b->blas), "creating a handle"));
  BRIM_TRY(cuda_dnn_check(cudnnCreate(&b->dnn), "creating a handle"));
  BRIM_TRY(cuda_dnn_check(cudnnSetStream(b->dnn, b->compute), "setting the stream"));
  return open_tuning(b);
}

void cuda_library_close(cuda_backend *b)
{
  close_tuning(b);
  if (b->dnn) (void)cudnnDestroy(b->dnn);
  if (b->blas) (void)cublasLtDestroy(b->blas);
}
