/* Products of matrices, by cuBLASLt. All is said in row-major terms:
 *
 *     d[i] = function(A[i] B[i] + bias)      or, with accumulate,      d[i] += A[i] B[i],      i in [0, batch)
 *
 * A [m,k] is a, or with transpose_a its transpose: a is stored [k,m]. B [k,n] likewise; d is stored [m,n].
 *
 * The life of a product: described and prepared in a kernel's prepare, run any number of times, released. Which of the
 * library's algorithms is used is settled in prepare and depends on the description, the device and the library alone;
 * all of them give the same bits at every run. */
#ifndef CUDA_PRODUCT_H
#define CUDA_PRODUCT_H
#include "cuda.h"
#ifdef __cplusplus
extern "C" {
#endif

/* The library's relu may make 0 of NaN, so it is not among them. */
enum cuda_function {
  CUDA_FUNCTION_NONE,
  CUDA_FUNCTION_GELU_TANH /* BRIM_GELU_TANH */
};

typedef struct cuda_product {
  int64_t m, n, k;
  bool transpose_a, transpose_b;
  int64_t lda, ldb, ldd;                /* elements from one row to the next, as stored */
  int64_t batch;                        /* 0 counts as 1 */
  int64_t stride_a, stride_b, stride_d; /* elements from one matrix of a batch to the next */
  uint32_t type, type_d;                /* BRIM_DTYPE_F32, _BF16 or _F16: of a and b; of d: theirs or F32 */
  bool accumulate;                      /* with neither bias nor function nor keep */
  bool bias;                            /* [n], of d's type, added to each row */
  enum cuda_function function;
  bool keep;          /* what the function is applied to is written too, in the order of d */
  uint32_t alignment; /* all addresses are multiples of it; 0: of CUDA_ALIGNMENT */
} cuda_product;

/* Where its values are. None of what is written overlaps what is read. */
typedef struct cuda_operands {
  const void *a, *b, *bias;
  void *d, *kept;
  void *scratch; /* as many bytes as prepare said; 256-byte aligned */
} cuda_operands;

typedef struct cuda_product_plan cuda_product_plan;

/* [plan] ENOTSUP: the library does not offer that; a plain product (no bias, no function, batch or not, addresses
 * aligned to their type) is always possible. scratch_bytes: what run needs, not more than CUDA_PRODUCT_SCRATCH_MAX. */
#define CUDA_PRODUCT_SCRATCH_MAX ((uint64_t)32 << 20)
brim_status cuda_product_prepare(cuda_backend *b, const cuda_product *product, cuda_product_plan **plan,
                                 uint64_t *scratch_bytes);
/* [step] */
brim_status cuda_product_run(cuda_backend *b, const cuda_product_plan *plan, const cuda_operands *operands);
/* [init] NULL: nothing. */
void cuda_product_release(cuda_product_plan *plan);

/* linear.cu. [step] sum[c] += over rows r of x[r][c], for a parameter's gradient: x [rows,columns] of dtype, ld
 * elements from one row to the next, each row at a multiple of 16 bytes if columns are whole ones; sum F32. Parts of
 * the rows are added by themselves and then together, cut by type, rows and columns alone. scratch: as many bytes as
 * cuda_column_sum_bytes says [plan]. */
uint64_t cuda_column_sum_bytes(uint32_t dtype, int64_t rows, int64_t columns);
brim_status cuda_column_sum(cuda_backend *b, uint32_t dtype, const void *x, int64_t rows, int64_t columns, int64_t ld,
                            float *sum, void *scratch);

#ifdef __cplusplus
}
#endif
#endif
