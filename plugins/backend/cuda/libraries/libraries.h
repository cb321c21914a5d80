/* The table of functions that call cuBLASLt and cuDNN. They are in a shared object of their own, which is loaded when a
 * device is selected: cuBLASLt takes 150 MiB of a process as soon as it is loaded, and a host without a GPU does not
 * need it. The plugin calls the functions of product.h, dnn.h, sdpa.h and device.h; load.c passes these calls on to
 * this table. */
#ifndef CUDA_LIBRARIES_H
#define CUDA_LIBRARIES_H
#include "../dnn.h"
#include "../product.h"
#include "../sdpa.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct cuda_libraries {
  uint32_t size; /* sizeof(cuda_libraries), to check that both files come from one build */
  brim_status (*open)(cuda_backend *b);
  void (*close)(cuda_backend *b);
  brim_status (*product_prepare)(cuda_backend *b, const cuda_product *product, cuda_product_plan **plan,
                                 uint64_t *scratch_bytes);
  brim_status (*product_run)(cuda_backend *b, const cuda_product_plan *plan, const cuda_operands *operands);
  void (*product_release)(cuda_product_plan *plan);
  bool (*dnn_prefers_last)(const cuda_backend *b, uint32_t dtype);
  brim_status (*dnn_prepare)(cuda_backend *b, const cuda_dnn_conv *conv, cuda_dnn_plan **plan, uint64_t *scratch_bytes);
  brim_status (*dnn_run)(cuda_backend *b, const cuda_dnn_plan *plan, void *x, void *weight, void *y, void *scratch);
  void (*dnn_release)(cuda_dnn_plan *plan);
  brim_status (*sdpa_prepare)(cuda_backend *b, const cuda_sdpa *sdpa, cuda_sdpa_plan **plan, int64_t *at_once,
                              uint64_t *scratch_bytes);
  brim_status (*sdpa_run)(cuda_backend *b, const cuda_sdpa_plan *plan, const cuda_sdpa_values *values, void *scratch);
  void (*sdpa_release)(cuda_sdpa_plan *plan);
} cuda_libraries;

/* The only symbol that the shared object exports. */
#define CUDA_LIBRARIES_SYMBOL "cuda_libraries_table"
BRIM_EXPORT extern const cuda_libraries cuda_libraries_table;

#ifdef __cplusplus
}
#endif
#endif
