/* Products of matrices, by cuBLASLt. All matrices are row-major:
 *
 *     d[i] = function(A[i] B[i] + bias)      or, with accumulate,      d[i] += A[i] B[i],      i in [0, batch)
 *
 * A [m,k] is a or, with transpose_a, the transpose of a, which is stored as [k,m]. B [k,n] is b or its transpose. d is
 * stored as [m,n].
 *
 * A kernel describes and prepares a product in its prepare, runs it any number of times, and releases it.
 * cuda_product_prepare selects one of the library's algorithms; the choice depends on the description, the device and
 * the library alone. All of them give the same bits in every run. */
#ifndef CUDA_PRODUCT_H
#define CUDA_PRODUCT_H
#include "cuda.h"
#ifdef __cplusplus
extern "C" {
#endif

/* relu is not among these functions, because the library's relu may turn NaN into 0. */
enum cuda_function {
  CUDA_FUNCTION_NONE,
  CUDA_FUNCTION_GELU_TANH /* BRIM_GELU_TANH */
};

typedef struct cuda_product {
  int64_t m, n, k;
  bool transpose_a, transpose_b;
  int64_t lda, ldb, ldd;                /* elements from one row to the next, as stored */
  int64_t batch;                        /* number of products; 0 counts as 1 */
  int64_t stride_a, stride_b, stride_d; /* elements from one matrix of a batch to the next */
  uint32_t type, type_d;                /* BRIM_DTYPE_F32, _BF16 or _F16. type: of a and b. type_d: the same or F32 */
  bool accumulate;                      /* adds to d; not with bias, function or keep */
  bool bias;                            /* adds a vector [n] of d's type to each row */
  enum cuda_function function;
  bool keep;          /* also writes the argument of `function`, in the layout of d */
  uint32_t alignment; /* common alignment of all addresses; 0 means CUDA_ALIGNMENT */
} cuda_product;

/* The addresses of a product's values. Outputs do not overlap inputs. */
typedef struct cuda_operands {
  const void *a, *b, *bias;
  void *d, *kept;
  bool writes;   /* writes d instead of adding to it, in a product that accumulates */
  void *scratch; /* has the scratch_bytes of prepare, 256-byte aligned */
} cuda_operands;

typedef struct cuda_product_plan cuda_product_plan;

/* [plan] Returns ENOTSUP if the library does not offer the product. It offers every plain product: no bias, no
 * function, with or without batch, addresses aligned to their type. scratch_bytes: the scratch of a run, at most
 * CUDA_PRODUCT_SCRATCH_MAX. */
#define CUDA_PRODUCT_SCRATCH_MAX ((uint64_t)32 << 20)
brim_status cuda_product_prepare(cuda_backend *b, const cuda_product *product, cuda_product_plan **plan,
                                 uint64_t *scratch_bytes);
/* [step] */
brim_status cuda_product_run(cuda_backend *b, const cuda_product_plan *plan, const cuda_operands *operands);
/* Releases a plan; NULL is allowed. [init] */
void cuda_product_release(cuda_product_plan *plan);

/* linear.cu. [step] sum[c] = (adds ? sum[c] : 0) + sum over rows r of x[r][c], for a parameter's gradient. x
 * [rows,columns] has type dtype; its rows are ld elements apart, and each starts at a multiple of 16 bytes if columns
 * fill whole packs. sum is F32. The kernel first adds up parts of the rows, then the sums of the parts; the division
 * into parts depends on type, rows and columns alone. scratch has cuda_column_sum_bytes [plan] bytes. */
uint64_t cuda_column_sum_bytes(uint32_t dtype, int64_t rows, int64_t columns);
brim_status cuda_column_sum(cuda_backend *b, uint32_t dtype, const void *x, int64_t rows, int64_t columns, int64_t ld,
                            float *sum, bool adds, void *scratch);

#ifdef __cplusplus
}
#endif
#endif
