/* See card.h. */
#include "card.h"

#include <stdio.h>
#include <string.h>

#define GIB ((uint64_t)1 << 30)
/* Assumed for a context and the libraries' code; an H200 took 570 MB (docs/measurements). */
#define TAKEN_BYTES ((uint64_t)768 << 20)

/* From NVIDIA's data sheets, in the order of CUDA_CARDS; bytes are those that cudaGetDeviceProperties reports, in whole
 * GiB. */
static const cuda_card cards[] = {
    {"NVIDIA GeForce RTX 3060", 86, 28, 11 * GIB},
    {"NVIDIA GeForce RTX 3090", 86, 82, 23 * GIB},
    {"NVIDIA GeForce RTX 4090", 89, 128, 23 * GIB},
    {"NVIDIA GeForce RTX 5090", 120, 170, 31 * GIB},
    {"NVIDIA L4", 89, 58, 22 * GIB},
    {"NVIDIA L40S", 89, 142, 44 * GIB},
    {"NVIDIA A100-SXM4-40GB", 80, 108, 39 * GIB},
    {"NVIDIA A100-SXM4-80GB", 80, 108, 79 * GIB},
    {"NVIDIA H100 80GB HBM3", 90, 132, 79 * GIB},
    {"NVIDIA H200", 90, 132, 139 * GIB},
    {"NVIDIA B200", 100, 148, 178 * GIB},
};

const cuda_card *cuda_card_of(const cuda_backend *b)
{
  const int32_t card = b->params ? ((const cuda_plugin_params *)b->params)->card : 0;
  return card > 0 ? &cards[card - 1] : NULL;
}

brim_status cuda_card_describe(const cuda_card *card, int device, brim_device_info *out)
{
  if (device != 0) return brim_fail(BRIM_ENODEVICE, "there is no device cuda:%d: backend.card describes one", device);
  *out = (brim_device_info){.total_bytes = card->bytes,
                            .free_bytes = card->bytes - TAKEN_BYTES,
                            .capability_major = card->capability / 10,
                            .capability_minor = card->capability % 10};
  snprintf(out->name, sizeof out->name, "%s (described; scratch of cuBLASLt and cuDNN is assumed)", card->name);
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

static char made; /* stands for every plan of a library */

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

/* Refuses what libraries/sdpa.c refuses. */
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
