/* What a kernel of our own does behind a library's product or convolution: adds the bias, applies the activation. */
#ifndef CUDA_BEHIND_H
#define CUDA_BEHIND_H
#include "arithmetic.h"
#include "cuda.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct cuda_behind {
  cuda_activation activation;
  uint32_t dtype, bias_dtype; /* of from, kept and to; of the bias */
  int64_t count;              /* values; value i is of channel i / inner % channels */
  int64_t channels, inner;    /* inner: 1 where channels come last */
  const void *from, *bias;    /* bias [channels]; NULL: none */
  void *kept;                 /* from + bias; may be from; NULL: not wanted */
  void *to;                   /* activation of from + bias; may be from */
} cuda_behind;

/* [step] Reads and writes each value once. */
brim_status cuda_behind_run(cuda_backend *b, const cuda_behind *behind);
/* [step] Values of one type into another's, F32, BF16 or F16. */
brim_status cuda_convert(cuda_backend *b, uint32_t from_dtype, const void *from, uint32_t to_dtype, void *to,
                         int64_t count);

#ifdef __cplusplus
}
#endif
#endif
