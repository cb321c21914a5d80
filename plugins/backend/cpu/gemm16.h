/* Products of matrices in bfloat16 with sums in fp32, for processors that have instructions for them. */
#ifndef CPU_GEMM16_H
#define CPU_GEMM16_H
#include <stdbool.h>
#include <stdint.h>

/* C[M,N] += A[M,K] B[K,N]. K is taken in steps of CPU_GEMM16_STEP, and a new step starts at every multiple of `unit`,
 * or of the values in `ends`; the last one before it is filled with zeros. The instruction adds up a step in its own
 * order, so an element's sum depends on these units, but not on M, N or where a block of C begins. */
typedef struct cpu_gemm16 {
  int64_t m, n, k, unit;
  const int64_t *ends; /* ascending, the last is K; NULL: see unit */
  const void *a;       /* uint16_t, or */
  bool a_wide;         /* float, which packing rounds */
  int64_t lda;
  bool a_transposed; /* A is stored [K,M] */
  const uint16_t *b;
  int64_t ldb;
  bool b_transposed; /* B is stored [N,K] */
} cpu_gemm16;

enum {
  CPU_GEMM16_STEP = 32,
  CPU_GEMM16_TILE = 16,     /* rows, and columns, of a tile of C */
  CPU_GEMM16_ROWS = 512,    /* maximum of a block of C */
  CPU_GEMM16_COLUMNS = 128, /* maximum of a block, and the floats from one row of it to the next */
  CPU_GEMM16_DEPTH = 16,    /* steps whose operands are packed at a time */
  CPU_GEMM16_PACKED = CPU_GEMM16_STEP * CPU_GEMM16_TILE, /* values of a packed tile of a step */
  CPU_GEMM16_SCRATCH = (CPU_GEMM16_ROWS + 2 * CPU_GEMM16_TILE) * CPU_GEMM16_STEP * CPU_GEMM16_DEPTH /* values */
};

/* Adds to rows [m0, m1) and columns [n0, n1) of C: `c` has the floats of this block, with room for whole tiles, whose
 * rest becomes undefined. scratch: CPU_GEMM16_SCRATCH values. Both are aligned to 64 bytes. */
typedef void (*cpu_gemm16_block)(const cpu_gemm16 *g, int64_t m0, int64_t m1, int64_t n0, int64_t n1, float *c,
                                 uint16_t *scratch);

/* [init] With AMX tiles, or else with AVX512_BF16. The first is NULL unless Linux lets this process use tiles. */
cpu_gemm16_block cpu_gemm16_tiles(void);
cpu_gemm16_block cpu_gemm16_vectors(void);

#endif
