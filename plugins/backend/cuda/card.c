/* See card.h. */
#include "card.h"

#include <stdio.h>
#include <string.h>

#define GIB ((uint64_t)1 << 30)
/* Assumed for a context and the libraries' code; an H200 took 570 MB (docs/measurements). */
#define TAKEN_BYTES ((uint64_t)768 << 20)

/* From NVIDIA's data sheets, in the order of CUDA_CARDS; bytes are those that cudaGetDeviceProperties reports, in whole
 * GiB. Rates are those of dense products that add up in fp32, in TFLOP/s, and of memory in GB/s:
 *     RTX 3060, 3090   NVIDIA Ampere GA102 GPU Architecture, tables 2 and 3, and the product's page
 *     RTX 4090         NVIDIA Ada GPU Architecture, table 2
 *     RTX 5090         NVIDIA RTX Blackwell GPU Architecture, table 3
 *     L4, L40S, A100, H100 SXM, H200 SXM, HGX B200   data sheets of these names; figures with sparsity are halved */
static const cuda_card cards[] = {
    {"NVIDIA GeForce RTX 3060", 86, 28, 11 * GIB, {12.7, 12.7, 25.5, 360}},
    {"NVIDIA GeForce RTX 3090", 86, 82, 23 * GIB, {35.6, 35.6, 71, 936}},
    {"NVIDIA GeForce RTX 4090", 89, 128, 23 * GIB, {82.6, 82.6, 165.2, 1008}},
    {"NVIDIA GeForce RTX 5090", 120, 170, 31 * GIB, {104.8, 104.8, 209.5, 1792}},
    {"NVIDIA L4", 89, 58, 22 * GIB, {30.3, 60, 121, 300}},
    {"NVIDIA L40S", 89, 142, 44 * GIB, {91.6, 183, 362, 864}},
    {"NVIDIA A100-SXM4-40GB", 80, 108, 39 * GIB, {19.5, 156, 312, 1555}},
    {"NVIDIA A100-SXM4-80GB", 80, 108, 79 * GIB, {19.5, 156, 312, 2039}},
    {"NVIDIA H100 80GB HBM3", 90, 132, 79 * GIB, {67, 494.5, 989, 3350}},
    {"NVIDIA H200", 90, 132, 139 * GIB, {67, 494.5, 989, 4800}},
    {"NVIDIA B200", 100, 148, 178 * GIB, {75, 1125, 2250, 8000}},
};
/* Assumed for the gap between two kernels of a CUDA graph. */
#define LAUNCH_SECONDS 1.2e-6

const cuda_card *cuda_card_of(const cuda_backend *b)
{
  const int32_t card = b->params ? ((const cuda_plugin_params *)b->params)->card : 0;
  return card > 0 ? &cards[card - 1] : NULL;
}

/* Tensor cores multiply fp16 since compute capability 7.0, and bf16 since 8.0. */
uint32_t cuda_card_multiplies(int capability)
{
  const uint32_t f16 = capability >= 70 ? BRIM_STORES(BRIM_DTYPE_F16) : 0;
  return f16 | (capability >= 80 ? BRIM_STORES(BRIM_DTYPE_BF16) : 0);
}

void cuda_card_rates(const cuda_backend *b, const char *name, brim_device_rates *out)
{
  *out = (brim_device_rates){.launch_seconds = LAUNCH_SECONDS};
  for (size_t i = 0; i < sizeof cards / sizeof cards[0]; i++) {
    const cuda_card_peaks *peak = &cards[i].peak;
    if (strcmp(cards[i].name, name) != 0) continue;
    out->products_f32 = 1e12 * (b->params->tf32 ? peak->tf32 : peak->f32);
    out->products_16 = 1e12 * peak->small;
    out->flops = 1e12 * peak->f32;
    out->bytes = 1e9 * peak->memory;
  }
}

brim_status cuda_card_describe(const cuda_backend *b, int device, brim_device_info *out)
{
  const cuda_card *card = cuda_card_of(b);
  if (device != 0) return brim_fail(BRIM_ENODEVICE, "there is no device cuda:%d: backend.card describes one", device);
  *out = (brim_device_info){.total_bytes = card->bytes,
                            .free_bytes = card->bytes - TAKEN_BYTES,
                            .capability_major = card->capability / 10,
                            .capability_minor = card->capability % 10,
                            .multiplies = cuda_card_multiplies(card->capability)};
  snprintf(out->name, sizeof out->name, "%s (described; scratch of cuBLASLt and cuDNN is assumed)", card->name);
  cuda_card_rates(b, card->name, &out->rates);
  return BRIM_OK;
}

void cuda_card_select(cuda_backend *b, const cuda_card *card)
{
  b->device = 0;
  b->processors = card->processors;
  b->capability = card->capability;
  b->total_bytes = card->bytes;
  b->takes = (brim_device_takes){.context_bytes = BRIM_BYTES_UNKNOWN};
}

brim_status cuda_card_refuse(const cuda_card *card)
{
  return brim_fail(BRIM_ENODEVICE,
                   "nothing can run on '%s', which backend.card only describes\nuse it with `brim plan`, and leave "
                   "backend.card out on a host with a GPU",
                   card->name);
}

/* ---- the libraries ---- */

static char made; /* an object whose address stands for every plan of a library */

bool cuda_card_made(const void *plan)
{
  return plan == &made;
}

brim_status cuda_card_product(cuda_product_plan **plan, uint64_t *scratch_bytes)
{
  *plan = (cuda_product_plan *)(void *)&made;
  *scratch_bytes = CUDA_PRODUCT_SCRATCH_MAX;
  return BRIM_OK;
}

brim_status cuda_card_dnn(cuda_dnn_plan **plan, uint64_t *scratch_bytes)
{
  *plan = (cuda_dnn_plan *)(void *)&made;
  *scratch_bytes = CUDA_DNN_SCRATCH_MAX;
  return BRIM_OK;
}

/* Refuses the same attention as libraries/sdpa.c. */
brim_status cuda_card_sdpa(const cuda_backend *b, const cuda_sdpa *a, cuda_sdpa_plan **plan, int64_t *at_once,
                           uint64_t *scratch_bytes)
{
  const uint64_t each = cuda_sdpa_sample_bytes(a);
  const int64_t samples = cuda_sdpa_samples(a);
  if ((a->result == CUDA_SDPA_GRADIENTS && b->capability >= 100) || a->D % 8 != 0 || (a->causal && a->T > a->S) ||
      (a->T == 1 && a->S == 1) || each > CUDA_SDPA_SCRATCH_MAX)
    return brim_fail(BRIM_ENOTSUP, "cuDNN does not offer this attention");
  *at_once = samples;
  *scratch_bytes = (uint64_t)samples * each;
  *plan = (cuda_sdpa_plan *)(void *)&made;
  return BRIM_OK;
}
