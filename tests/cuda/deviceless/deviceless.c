/* Answers the libraries' calls that need a GPU, for a GPU that is only described.
 *
 * cuDNN: since 9.8 it makes graphs and plans from a device's properties, given as text instead of a handle ("deviceless
 * ahead-of-time compilation"). So every descriptor, suggestion and plan is cuDNN's own work, up to the compiled kernel,
 * for the GPU that DEVICELESS names.
 *
 * cuBLASLt has no such mode, so its choice of an algorithm is not tested. It makes and checks the descriptors; here
 * they are read back and compared. */
#include <cublasLt.h>
#include <cudnn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"

/* The values come from NVIDIA's data sheets and cudaGetDeviceProperties. */
typedef struct gpu {
  const char *id, *name;
  int version;               /* 900: compute capability 9.0 */
  int processors;            /* multiprocessors */
  int shared_bytes;          /* shared memory that a block may opt in to */
  int threads, blocks;       /* per multiprocessor, at most */
  int clock_khz, memory_khz; /* clock rates */
  int cache_bytes;           /* L2 */
  long long memory_bytes;
} gpu;

#define MIB (1 << 20)
#define GIB (1LL << 30)
static const gpu gpus[] = {
    {"a100", "NVIDIA A100-SXM4-80GB", 800, 108, 166912, 2048, 32, 1410000, 1593000, 40 * MIB, 80 * GIB},
    {"l40s", "NVIDIA L40S", 890, 142, 101376, 1536, 24, 2520000, 9001000, 96 * MIB, 44 * GIB},
    {"h100", "NVIDIA H100 80GB HBM3", 900, 132, 232448, 2048, 32, 1980000, 2619000, 50 * MIB, 79 * GIB},
    {"b200", "NVIDIA B200", 1000, 148, 232448, 2048, 32, 1965000, 3996000, 126 * MIB, 178 * GIB},
    {"rtx5090", "NVIDIA GeForce RTX 5090", 1200, 170, 101376, 1536, 24, 2407000, 14001000, 96 * MIB, 31 * GIB},
};

static const gpu *chosen; /* set from DEVICELESS when a handle is made */
static cudnnBackendDescriptor_t properties;

BRIM_EXPORT extern uint64_t deviceless_graphs, deviceless_products; /* number described so far */
uint64_t deviceless_graphs, deviceless_products;

/* ---- the device ---- */

static const gpu *choose(void)
{
  const char *id = getenv("DEVICELESS");
  for (size_t i = 0; id && i < sizeof gpus / sizeof *gpus; i++)
    if (strcmp(gpus[i].id, id) == 0) return &gpus[i];
  return NULL;
}

brim_status deviceless_library_open(cuda_backend *b);

/* The emulated runtime reports to the backend a device that differs from the GPU that DEVICELESS names. */
brim_status cuda_library_open(cuda_backend *b)
{
  chosen = choose();
  if (!chosen) return brim_fail(BRIM_EINVAL, "DEVICELESS names no GPU of deviceless.c");
  b->capability = chosen->version / 10;
  b->processors = chosen->processors;
  return deviceless_library_open(b);
}

/* ---- cuDNN ---- */

static int write_properties(char *text, size_t room)
{
  const gpu *g = chosen;
  return snprintf(text, room,
                  "{\"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64], "
                  "\"regsPerBlock\": 65536, \"multiProcessorCount\": %d, \"warpSize\": 32, "
                  "\"maxSharedMemoryPerBlock\": 49152, \"maxSharedMemoryPerBlockOptin\": %d, "
                  "\"reservedSharedMemoryPerBlock\": 1024, \"maxRegistersPerSM\": 65536, \"maxCtasPerSM\": %d, "
                  "\"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": %d, \"pciDeviceId\": 0, \"isTccDriver\": 0, "
                  "\"supportCoopLaunch\": 1, \"smClockRateKHz\": %d, \"memClockRateKHz\": %d, \"l2CacheSize\": %d, "
                  "\"deviceName\": \"%s\", \"deviceVer\": %d, \"driverVer\": %d, \"cudaDeviceId\": 0, "
                  "\"totalGlobalMem\": %lld}",
                  g->processors, g->shared_bytes, g->blocks, g->threads, g->clock_khz, g->memory_khz, g->cache_bytes,
                  g->name, g->version, CUDART_VERSION, g->memory_bytes);
}

cudnnStatus_t deviceless_dnn_create(cudnnHandle_t *handle);
cudnnStatus_t deviceless_dnn_destroy(cudnnHandle_t handle);
cudnnStatus_t deviceless_dnn_set_stream(cudnnHandle_t handle, cudaStream_t stream);
cudnnStatus_t deviceless_dnn_set(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                                 cudnnBackendAttributeType_t type, int64_t count, const void *values);

/* Sets the device's properties instead of a handle. */
cudnnStatus_t deviceless_dnn_create(cudnnHandle_t *handle)
{
  char text[1024];
  const int length = write_properties(text, sizeof text);
  cudnnStatus_t e = cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &properties);
  if (e == CUDNN_STATUS_SUCCESS)
    e = cudnnBackendSetAttribute(properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, length, text);
  if (e == CUDNN_STATUS_SUCCESS) e = cudnnBackendFinalize(properties);
  *handle = properties;
  return e;
}
cudnnStatus_t deviceless_dnn_destroy(cudnnHandle_t handle)
{
  (void)handle;
  return cudnnBackendDestroyDescriptor(properties);
}
cudnnStatus_t deviceless_dnn_set_stream(cudnnHandle_t handle, cudaStream_t stream)
{
  (void)handle, (void)stream;
  return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t set_properties(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name)
{
  return cudnnBackendSetAttribute(of, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &properties);
}

/* An execution plan gets the device's properties instead of a handle. So does the descriptor that suggests engines,
 * because it would otherwise use its graph's handle. */
cudnnStatus_t deviceless_dnn_set(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                                 cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
  if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE) {
    deviceless_graphs++;
    return CUDNN_STATUS_SUCCESS;
  }
  if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE) return set_properties(of, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
  const cudnnStatus_t e = cudnnBackendSetAttribute(of, name, type, count, values);
  if (e != CUDNN_STATUS_SUCCESS || name != CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH) return e;
  return set_properties(of, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
}

/* ---- cuBLASLt ---- */

cublasStatus_t deviceless_blas_create(cublasLtHandle_t *handle);
cublasStatus_t deviceless_blas_destroy(cublasLtHandle_t handle);
cublasStatus_t deviceless_blas_suggest(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                       cublasLtMatrixLayout_t first, cublasLtMatrixLayout_t second,
                                       cublasLtMatrixLayout_t added, cublasLtMatrixLayout_t out,
                                       cublasLtMatmulPreference_t preference, int wanted,
                                       cublasLtMatmulHeuristicResult_t *result, int *count);

cublasStatus_t deviceless_blas_create(cublasLtHandle_t *handle)
{
  *handle = NULL;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t deviceless_blas_destroy(cublasLtHandle_t handle)
{
  (void)handle;
  return CUBLAS_STATUS_SUCCESS;
}

/* A matrix as the library stores it, column by column. */
typedef struct matrix {
  uint32_t type;
  uint64_t rows, columns;
  int64_t ld;
  int32_t batch;
} matrix;

static bool get(cublasLtMatrixLayout_t of, cublasLtMatrixLayoutAttribute_t name, void *value, size_t size)
{
  size_t written = 0;
  return cublasLtMatrixLayoutGetAttribute(of, name, value, size, &written) == CUBLAS_STATUS_SUCCESS && written == size;
}

/* `transposed`: the product reads the matrix transposed. */
static bool read_matrix(cublasLtMatrixLayout_t of, bool transposed, matrix *m)
{
  if (!get(of, CUBLASLT_MATRIX_LAYOUT_TYPE, &m->type, sizeof m->type) ||
      !get(of, CUBLASLT_MATRIX_LAYOUT_ROWS, &m->rows, sizeof m->rows) ||
      !get(of, CUBLASLT_MATRIX_LAYOUT_COLS, &m->columns, sizeof m->columns) ||
      !get(of, CUBLASLT_MATRIX_LAYOUT_LD, &m->ld, sizeof m->ld) ||
      !get(of, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &m->batch, sizeof m->batch) || m->ld < (int64_t)m->rows)
    return false;
  const uint64_t rows = m->rows;
  if (transposed) {
    m->rows = m->columns;
    m->columns = rows;
  }
  return true;
}

static bool read_turns(cublasLtMatmulDesc_t operation, bool turn[2])
{
  int32_t first = 0, second = 0;
  size_t written = 0;
  if (cublasLtMatmulDescGetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first, &written) !=
          CUBLAS_STATUS_SUCCESS ||
      cublasLtMatmulDescGetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second, &written) !=
          CUBLAS_STATUS_SUCCESS)
    return false;
  turn[0] = first == CUBLAS_OP_T;
  turn[1] = second == CUBLAS_OP_T;
  return true;
}

/* Suggests one algorithm if the third matrix can be the product of the others, else none. */
cublasStatus_t deviceless_blas_suggest(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                       cublasLtMatrixLayout_t first, cublasLtMatrixLayout_t second,
                                       cublasLtMatrixLayout_t added, cublasLtMatrixLayout_t out,
                                       cublasLtMatmulPreference_t preference, int wanted,
                                       cublasLtMatmulHeuristicResult_t *result, int *count)
{
  matrix a, b, d;
  bool turn[2];
  (void)handle, (void)added, (void)preference, (void)wanted;
  deviceless_products++;
  *count = 0;
  if (!read_turns(operation, turn) || !read_matrix(first, turn[0], &a) || !read_matrix(second, turn[1], &b) ||
      !read_matrix(out, false, &d) || a.rows != d.rows || b.columns != d.columns || a.columns != b.rows ||
      a.type != b.type || a.batch != d.batch || b.batch != d.batch)
    return CUBLAS_STATUS_INVALID_VALUE;
  *count = 1;
  result[0] = (cublasLtMatmulHeuristicResult_t){.state = CUBLAS_STATUS_SUCCESS};
  return CUBLAS_STATUS_SUCCESS;
}

/* ---- the runtime: nothing is measured without a device ---- */

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
  (void)event;
  return cudaErrorNotSupported;
}
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to)
{
  (void)milliseconds, (void)from, (void)to;
  return cudaErrorNotSupported;
}
cudaError_t cudaMemset(void *at, int value, size_t bytes)
{
  (void)at, (void)value, (void)bytes;
  return cudaErrorNotSupported;
}
