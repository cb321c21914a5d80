/* The epilogue of a library's product or convolution, in one of brim's kernels: adds the bias, applies the
 * activation. */
#ifndef CUDA_EPILOGUE_H
#define CUDA_EPILOGUE_H
#include "arithmetic.h"
#include "cuda.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct cuda_epilogue {
  cuda_activation activation;
  uint32_t dtype, bias_dtype; /* the type of from, kept and to; the type of the bias */
  int64_t count;              /* the number of values; value i belongs to channel i / inner % channels */
  int64_t channels, inner;    /* inner: 1 if channels come last */
  const void *from, *bias;    /* bias [channels], or NULL */
  void *kept;                 /* from + bias; may be from; NULL if not needed */
  void *to;                   /* activation of from + bias; may be from */
} cuda_epilogue;

/* [step] Reads and writes each value once. */
brim_status cuda_epilogue_run(cuda_backend *b, const cuda_epilogue *epilogue);
/* [step] Converts values from one type to another: F32, BF16 or F16. */
brim_status cuda_convert(cuda_backend *b, uint32_t from_dtype, const void *from, uint32_t to_dtype, void *to,
                         int64_t count);

#ifdef __cplusplus
}
#endif
#endif
