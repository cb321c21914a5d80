/* GPUs that are only described (backend.card): brim plans for them without a GPU, and runs nothing.
 *
 * The memory of the backend's own kernels is exact, because it depends only on a GPU's multiprocessors and compute
 * capability. cuBLASLt and cuDNN report their scratch only on a GPU, so the backend assumes it: the most that it allows
 * a product or a convolution, and for gradients of attention the bytes that sdpa.h describes. */
#ifndef CUDA_CARD_H
#define CUDA_CARD_H
#include "dnn.h"
#include "product.h"
#include "sdpa.h"
#ifdef __cplusplus
extern "C" {
#endif

#define CUDA_CARDS "none|rtx3060|rtx3090|rtx4090|rtx5090|l4|l40s|a100_40gb|a100|h100|h200|b200"

/* The kernels of attention that are asked first; the next ones compute the nodes that these refuse
 * (attention_library.c). */
enum cuda_attention { CUDA_ATTENTION_LIBRARY, CUDA_ATTENTION_OWN, CUDA_ATTENTION_OWN_FP32 };
#define CUDA_ATTENTIONS "library|own|own_fp32"

/* The plugin's parameters; cuda_params come first, as kernels know only those. */
typedef struct cuda_plugin_params {
  cuda_params own;
  int32_t card;      /* index into CUDA_CARDS */
  int32_t attention; /* enum cuda_attention */
} cuda_plugin_params;

typedef struct cuda_card_peaks {
  double f32, tf32, small; /* TFLOP/s: f32: fp32 outside of tensor cores; tf32, small: products by tensor cores, small
                              in bf16 and fp16 */
  double memory;           /* GB/s */
} cuda_card_peaks;

typedef struct cuda_card {
  const char *name; /* the driver's name for the card */
  int capability;   /* 90: compute capability 9.0 */
  int processors;   /* multiprocessors */
  uint64_t bytes;   /* memory that programs see */
  cuda_card_peaks peak;
} cuda_card;

/* The card that an instance plans for; NULL: a real GPU. */
const cuda_card *cuda_card_of(const cuda_backend *b);
/* The rates of a GPU of this name; of another one, those that are not known are 0. */
void cuda_card_rates(const cuda_backend *b, const char *name, brim_device_rates *out);
/* Returns the types that the tensor cores of this compute capability multiply: see brim_device_info. */
uint32_t cuda_card_multiplies(int capability);
/* Describes the card of an instance that has one. */
brim_status cuda_card_describe(const cuda_backend *b, int device, brim_device_info *out);
/* Selects the card: its properties, without streams and handles. */
void cuda_card_select(cuda_backend *b, const cuda_card *card);
/* Returns ENODEVICE, because nothing can be placed on a described card. */
brim_status cuda_card_refuse(const cuda_card *card);

/* Plans that load.c returns in place of the libraries' plans. */
brim_status cuda_card_product(cuda_product_plan **plan, uint64_t *scratch_bytes);
brim_status cuda_card_dnn(cuda_dnn_plan **plan, uint64_t *scratch_bytes);
brim_status cuda_card_sdpa(const cuda_backend *b, const cuda_sdpa *sdpa, cuda_sdpa_plan **plan, int64_t *at_once,
                           uint64_t *scratch_bytes);
/* Whether one of the three functions above made the plan. */
bool cuda_card_made(const void *plan);

#ifdef __cplusplus
}
#endif
#endif
