/* Vector types for the files that are compiled once for each instruction set (isa.h), and the table of functions that
 * each compilation fills. isa.c chooses one table when an instance is created.
 *
 * Every function works on a range that its caller chooses. An element's value depends neither on the range nor on its
 * vector lane. */
#ifndef CPU_SIMD_H
#define CPU_SIMD_H
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "brim/random.h"
#include "isa.h"

/* C[M,N] = (accumulate ? C : bias or 0) + A[M,K] B[K,N], all in fp32. Each element adds its K products in ascending
 * order, for any M and N. With relu, values that are not above 0 then become 0. */
typedef struct cpu_gemm {
  int64_t m, n, k;
  const float *a;
  int64_t lda;
  bool a_transposed; /* A is stored [K,M] */
  const float *b;
  int64_t ldb;
  bool b_transposed; /* B is stored [N,K] */
  float *c;
  int64_t ldc;
  const float *bias; /* [N] or NULL */
  bool accumulate, relu;
} cpu_gemm;

/* AdamW uses `decay`; Adam and Yogi use `l2`. */
typedef struct cpu_adam {
  float decay;                /* 1 - lr * weight_decay, or 1 */
  float l2;                   /* weight_decay, or 0 */
  float beta1, beta2;         /* beta and 1 - beta are each rounded once */
  float one_beta1, one_beta2; /* 1 - beta */
  float step_size;            /* lr / bias_correction1 */
  float root;                 /* sqrt(bias_correction2) */
  float eps;
  float factor;  /* multiplies the gradient */
  bool is_yogi;  /* uses Yogi's second moment, and first adds `initial` to it */
  float initial; /* brim_step.initial_accumulator */
} cpu_adam;

typedef struct cpu_adagrad {
  float lr, weight_decay, eps;
  float factor;  /* multiplies the gradient */
  float initial; /* brim_step.initial_accumulator */
} cpu_adagrad;

typedef struct cpu_sgd {
  float lr, momentum, weight_decay;
  float factor; /* multiplies the gradient */
  bool nesterov;
} cpu_sgd;

typedef struct cpu_simd {
  const char *name;
  int32_t lanes;     /* floats in a vector */
  int32_t gemm_rows; /* rows and columns of a tile of C */
  int32_t gemm_columns;
  int64_t gemm_rows_max;      /* rows that one call of gemm() packs at a time */
  int64_t gemm_rows_in_place; /* the same for A stored [M,K], if gemm() reads it in place; 0: gemm() packs it */
  uint64_t gemm_scratch_bytes;
  /* Computes rows [m0, m1) and columns [n0, n1) of C. n0 is a multiple of gemm_columns; scratch is 64-byte aligned. */
  void (*gemm)(const cpu_gemm *g, int64_t m0, int64_t m1, int64_t n0, int64_t n1, float *scratch);

  void (*relu)(const float *x, float *y, int64_t count);
  void (*relu_grad)(const float *y, const float *dy, float *dx, int64_t count);
  void (*add)(const float *a, const float *b, float *y, int64_t count);
  /* to[c*to_stride + r] = from[r*from_stride + c] for rows x columns of `from`. */
  void (*transpose)(const float *from, int64_t from_stride, float *to, int64_t to_stride, int64_t rows,
                    int64_t columns);

  /* y = x * (kept ? scale : 0) for `count` elements, which are contiguous in memory. In the numbering of random numbers
   * they are runs of 4*run elements; the first run begins at element 4*block, and runs are 4*stride elements apart. If
   * `a` is not NULL, it is added. */
  void (*dropout_run)(const brim_dropout_key *key, float scale, int64_t sample, int64_t block, int64_t run,
                      int64_t stride, const float *x, const float *a, float *y, int64_t count);
  /* Does the same for a group of four channels, each a plane of `count` pixels: plane j holds elements 4*(block +
   * pixel*blocks_per_pixel) + j. Only `planes` planes exist, at most 4. */
  void (*dropout_planes)(const brim_dropout_key *key, float scale, int64_t sample, int64_t block,
                         int64_t blocks_per_pixel, const float *x, const float *a, float *y, int64_t plane_stride,
                         int64_t planes, int64_t count);

  void (*adam)(const cpu_adam *c, const float *p_old, const float *g, const float *m_old, const float *v_old, float *p,
               float *m, float *v, int64_t count);
  void (*sgd)(const cpu_sgd *c, const float *p_old, const float *g, const float *vel_old, float *p, float *vel,
              int64_t count);
  void (*adagrad)(const cpu_adagrad *c, const float *p_old, const float *g, const float *sum_old, float *p, float *sum,
                  int64_t count);
} cpu_simd;

extern const cpu_simd CPU_OF_ISAS(, cpu_simd);

/* The rest is for files that are compiled for one instruction set. */
#ifdef CPU_ISA

#define CPU_JOIN_(a, b) a##_##b
#define CPU_JOIN(a, b) CPU_JOIN_(a, b)
#define CPU_NAME(name) CPU_JOIN(name, CPU_ISA) /* max_pool -> max_pool_v4 */

/* The rows of a tile of a product. Each row is two vectors, whose sums stay in registers. */
#if defined(__AVX512F__)
#define TILE_ROWS 14 /* 28 of 32 registers; an instruction reads its factor of A from memory */
#elif defined(__aarch64__)
#define TILE_ROWS 12 /* 24 of 32 */
#else
#define TILE_ROWS 6 /* 12 of 16 */
#endif
#if defined(__AVX512F__) || __ARM_FEATURE_SVE_BITS == 512
#define LANES 16
#elif defined(__AVX2__) || __ARM_FEATURE_SVE_BITS == 256
#define LANES 8
#else
#define LANES 4
#endif

typedef float vf __attribute__((vector_size(LANES * 4)));
typedef int32_t vi __attribute__((vector_size(LANES * 4)));
typedef uint8_t vb __attribute__((vector_size(LANES)));
typedef uint64_t vq __attribute__((vector_size(LANES * 4))); /* LANES/2 integers */

static inline vf load(const float *p)
{
  vf v;
  memcpy(&v, p, sizeof v);
  return v;
}
static inline void store(float *p, vf v)
{
  memcpy(p, &v, sizeof v);
}
static inline vf splat(float x)
{
  return x - (vf){0};
}
static inline vf square_root(vf x)
{
  float v[LANES];
  store(v, x);
  for (int i = 0; i < LANES; i++) v[i] = __builtin_sqrtf(v[i]); /* the compiler makes one instruction of this loop */
  return load(v);
}
/* mask ? a : b, for masks that comparisons make */
static inline vf choose(vi mask, vf a, vf b)
{
  return (vf)(((vi)a & mask) | ((vi)b & ~mask));
}

/* Interleave the lower, or the upper, halves of a and b: a0 b0 a1 b1 ... */
#if LANES == 16
#define INTERLEAVE_LOW(a, b) __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define INTERLEAVE_HIGH(a, b)                                                                                          \
  __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define INTERLEAVE_LOW_64(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define INTERLEAVE_HIGH_64(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#elif LANES == 8
#define INTERLEAVE_LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define INTERLEAVE_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define INTERLEAVE_LOW_64(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define INTERLEAVE_HIGH_64(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#else
#define INTERLEAVE_LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define INTERLEAVE_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define INTERLEAVE_LOW_64(a, b) __builtin_shufflevector(a, b, 0, 2)
#define INTERLEAVE_HIGH_64(a, b) __builtin_shufflevector(a, b, 1, 3)
#endif

/* Transposes a square of vectors: element j of vector i becomes element i of vector j, after log2(LANES) perfect
 * shuffles. */
static inline void transpose_square(vf v[LANES])
{
  for (int round = 1; round < LANES; round *= 2) {
    vf t[LANES];
    for (int i = 0; i < LANES / 2; i++) {
      t[2 * i] = INTERLEAVE_LOW(v[i], v[i + LANES / 2]);
      t[2 * i + 1] = INTERLEAVE_HIGH(v[i], v[i + LANES / 2]);
    }
    for (int i = 0; i < LANES; i++) v[i] = t[i];
  }
}

/* The entries of the table. Each is defined in the file of its family. */
void CPU_NAME(simd_gemm)(const cpu_gemm *g, int64_t m0, int64_t m1, int64_t n0, int64_t n1, float *scratch);
enum {
  GEMM_VECTORS = 2, /* vectors in a row of a tile */
  GEMM_COLUMNS = GEMM_VECTORS * LANES,
  GEMM_ROWS = TILE_ROWS,
  GEMM_DEPTH = 256, /* K of a packed block, such that a panel of B fits into the L1 cache */
  GEMM_ROWS_MAX = (TILE_ROWS > 6 ? 9 : 22) * GEMM_ROWS,
  GEMM_ROWS_IN_PLACE = TILE_ROWS > 6 ? 0 : 44 * GEMM_ROWS, /* few pointers suffice for the rows of a small tile */
  GEMM_A_STRIDE = GEMM_DEPTH + 16, /* a stride for which rows do not fall into the same cache set */
  GEMM_SCRATCH_FLOATS = GEMM_ROWS_MAX * GEMM_A_STRIDE + GEMM_DEPTH * GEMM_COLUMNS
};
void CPU_NAME(simd_dropout_run)(const brim_dropout_key *key, float scale, int64_t sample, int64_t block, int64_t run,
                                int64_t stride, const float *x, const float *a, float *y, int64_t count);
void CPU_NAME(simd_dropout_planes)(const brim_dropout_key *key, float scale, int64_t sample, int64_t block,
                                   int64_t blocks_per_pixel, const float *x, const float *a, float *y,
                                   int64_t plane_stride, int64_t planes, int64_t count);

#endif
#endif
