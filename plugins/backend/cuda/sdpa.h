/* Attention by cuDNN (which calls it scaled dot-product attention), in bf16 or fp16 with fp32 sums. attention.cu has
 * the formulas. There is no dropout, and every query sees a key. */
#ifndef CUDA_SDPA_H
#define CUDA_SDPA_H
#include "cuda.h"
#ifdef __cplusplus
extern "C" {
#endif

enum cuda_sdpa_result { CUDA_SDPA_Y, CUDA_SDPA_GRADIENTS };

typedef struct cuda_sdpa {
  enum cuda_sdpa_result result; /* y and lse; or dq, dk and dv */
  uint32_t type;                /* BF16 or F16, for all values except lse */
  int64_t N, T, S;              /* samples, queries, keys */
  int64_t heads, kv_heads, D;   /* heads of queries; heads of keys and values; numbers of a head */
  int64_t q_stride, k_stride;   /* elements between positions: in q and dq; in k, v, dk and dv */
  float scale;
  bool causal; /* query t sees the keys 0 .. t + S - T; T <= S */
} cuda_sdpa;

/* q, y, dy, dq are [N,T,heads*D]; k, v, dk, dv are [N,S,kv_heads*D]; lse is [N,heads,T] in F32. The rows of all except
 * y and dy may be parts of longer rows. */
typedef struct cuda_sdpa_values {
  void *q, *k, *v, *y, *lse; /* y and lse are inputs if the gradients are the result */
  void *dy, *dq, *dk, *dv;   /* for gradients only */
} cuda_sdpa_values;

typedef struct cuda_sdpa_plan cuda_sdpa_plan;

/* The scratch of gradients grows with the number of scores. A run takes as many samples as fit into CUDA_SDPA_SCRATCH.
 * If not even one fits, a run takes one sample, which must fit into CUDA_SDPA_SCRATCH_MAX. */
#define CUDA_SDPA_SCRATCH ((uint64_t)256 << 20)
#define CUDA_SDPA_SCRATCH_MAX ((uint64_t)2 << 30)

/* Returns the scratch for a sample's gradients: two bytes for each of its scores, in whole tiles, and the gradients of
 * keys and values for each query head. */
static inline uint64_t cuda_sdpa_sample_bytes(const cuda_sdpa *a)
{
  const uint64_t tile = 128, rows = cuda_round_up((uint64_t)a->T, tile), columns = cuda_round_up((uint64_t)a->S, tile);
  const uint64_t keys = a->heads == a->kv_heads ? 0 : 2 * (uint64_t)(a->S * a->D);
  if (a->result == CUDA_SDPA_Y) return 0;
  return (uint64_t)a->heads * (2 * (rows * columns + keys) + rows * sizeof(float));
}

/* Returns the number of samples of a run. */
static inline int64_t cuda_sdpa_samples(const cuda_sdpa *a)
{
  const uint64_t each = cuda_sdpa_sample_bytes(a);
  int64_t samples = a->N;
  while (samples > 1 && (a->N % samples != 0 || (uint64_t)samples * each > CUDA_SDPA_SCRATCH)) samples--;
  return samples;
}

/* [plan] Returns ENOTSUP if the library does not offer the attention, or not with the same bits in every run. at_once:
 * the number of samples of a run, a divisor of N. scratch_bytes: the scratch of a run. */
brim_status cuda_sdpa_prepare(cuda_backend *b, const cuda_sdpa *sdpa, cuda_sdpa_plan **plan, int64_t *at_once,
                              uint64_t *scratch_bytes);
/* [step] Runs the plan. `values` has the values of at_once samples. */
brim_status cuda_sdpa_run(cuda_backend *b, const cuda_sdpa_plan *plan, const cuda_sdpa_values *values, void *scratch);
/* Releases a plan; NULL is allowed. [init] */
void cuda_sdpa_release(cuda_sdpa_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
