/* The vector functions of attention and rotary embedding, except the products of simd.h, for each instruction set. */
#ifndef CPU_SIMD_ATTENTION_H
#define CPU_SIMD_ATTENTION_H
#include "simd.h"

/* The maximum numbers of queries and keys in a tile of scores. Its rows are CPU_ATTENTION_KEYS apart and are processed
 * in whole vectors. */
enum { CPU_ATTENTION_QUERIES = 80, CPU_ATTENTION_KEYS = 80 };

/* A tile in the forward pass, with the state of its rows after the tiles before it. */
typedef struct cpu_attention_tile {
  float *score; /* q k^T; becomes the weights e^(cap(scale*score) - greatest) */
  int64_t rows, columns;
  /* For each row, the keys from .. seen - 1 count; the others have weight 0. Both numbers are 0 if no key counts. */
  int64_t from[CPU_ATTENTION_QUERIES], seen[CPU_ATTENTION_QUERIES];
  float scale, softcap;                  /* softcap: 0 if there is none */
  float greatest[CPU_ATTENTION_QUERIES]; /* the greatest score so far; -inf at first */
  float sum[CPU_ATTENTION_QUERIES];      /* the sum of weights so far; 0 at first */
  float factor[CPU_ATTENTION_QUERIES];   /* rescales the sums of the tiles before this one */
} cpu_attention_tile;

/* A row of a tile in the backward pass. */
typedef struct cpu_attention_row {
  float *score;       /* q k^T; becomes the weights after dropout */
  float *dz;          /* dy v^T; becomes the gradient of the scores before `scale` */
  const float *mask;  /* dropout's mask, at least as long as the tile's row, or NULL */
  int64_t from, seen; /* the keys from .. seen - 1 count; the others have weight 0 */
  int64_t columns;
  float scale, softcap, lse, dy_y;
} cpu_attention_row;

typedef struct cpu_attention_simd {
  void (*weigh)(cpu_attention_tile *tile);
  void (*weigh_back)(const cpu_attention_row *row);
  void (*multiply)(float *x, float factor, int64_t count);
  void (*multiply_by)(float *x, const float *factor, int64_t count);
  float (*dot)(const float *a, const float *b, int64_t count);
  /* Returns whether every number of the rows, `stride` apart, is finite. */
  bool (*is_finite)(const float *x, int64_t stride, int64_t rows, int64_t columns);
  /* Turns the pairs of `dims` numbers by angles given as cosine and sine; y may be x. */
  void (*turn)(const float *x, float *y, const float *cosine, const float *sine, int64_t dims);
  void (*turn_interleaved)(const float *x, float *y, const float *cosine, const float *sine, int64_t dims);
} cpu_attention_simd;

extern const cpu_attention_simd CPU_OF_ISAS(, cpu_attention);
/* Defined in attention.c. isa: as in cpu_backend. */
const cpu_attention_simd *cpu_attention_simd_of(int32_t isa);
#endif
