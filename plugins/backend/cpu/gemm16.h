/* Products of matrices in bfloat16 with sums in fp32, for processors that have instructions for them. */
#ifndef CPU_GEMM16_H
#define CPU_GEMM16_H
#include <stdbool.h>
#include <stdint.h>

/* C[M,N] += A[M,K] B[K,N]. K is processed in steps of CPU_GEMM16_STEP. A new step starts at every multiple of `unit`,
 * or at every value of `ends`; zeros fill the step before it. The instruction adds up a step in its own order, so the
 * sum of an element depends on these units, but not on M, N or the start of a block of C. */
typedef struct cpu_gemm16 {
  int64_t m, n, k, unit;
  const int64_t *ends; /* ascending, ending with K; NULL if `unit` is used */
  const void *a;       /* uint16_t, or */
  bool a_wide;         /* float, which is rounded while it is packed */
  int64_t lda;
  bool a_transposed; /* A is stored [K,M] */
  const uint16_t *b;
  int64_t ldb;
  bool b_transposed; /* B is stored [N,K] */
} cpu_gemm16;

enum {
  CPU_GEMM16_STEP = 32,
  CPU_GEMM16_TILE = 16,     /* rows and columns of a tile of C */
  CPU_GEMM16_ROWS = 512,    /* maximum rows of a block of C */
  CPU_GEMM16_COLUMNS = 128, /* maximum columns of a block; also the floats between its rows */
  CPU_GEMM16_DEPTH = 16,    /* steps whose operands are packed at a time */
  CPU_GEMM16_PACKED = CPU_GEMM16_STEP * CPU_GEMM16_TILE, /* values of one packed tile in one step */
  CPU_GEMM16_SCRATCH = (CPU_GEMM16_ROWS + 2 * CPU_GEMM16_TILE) * CPU_GEMM16_STEP * CPU_GEMM16_DEPTH /* values */
};

/* Adds to rows [m0, m1) and columns [n0, n1) of C. `c` holds the floats of this block and has room for whole tiles; the
 * values outside the block become undefined. scratch: CPU_GEMM16_SCRATCH values. Both are aligned to 64 bytes. */
typedef void (*cpu_gemm16_block)(const cpu_gemm16 *g, int64_t m0, int64_t m1, int64_t n0, int64_t n1, float *c,
                                 uint16_t *scratch);

/* [init] The function that uses AMX tiles, and the one that uses AVX512_BF16. The first is NULL unless Linux lets this
 * process use tiles. */
cpu_gemm16_block cpu_gemm16_tiles(void);
cpu_gemm16_block cpu_gemm16_vectors(void);

#endif
