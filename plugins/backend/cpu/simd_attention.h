/* What attention and rotary embedding need beside the products of simd.h, for each instruction set. */
#ifndef CPU_SIMD_ATTENTION_H
#define CPU_SIMD_ATTENTION_H
#include "simd.h"

/* A tile: scores of at most so many queries and keys. Its rows are CPU_ATTENTION_KEYS apart and are worked on in whole
 * vectors. */
enum { CPU_ATTENTION_QUERIES = 64, CPU_ATTENTION_KEYS = 64 };

/* A row of a tile in the backward pass. */
typedef struct cpu_attention_row {
  float *score;      /* q k^T; becomes the weights after dropout */
  float *dz;         /* dy v^T; becomes the gradient of the scores before `scale` */
  const float *mask; /* of dropout, at least as long as the tile's row; NULL: none */
  int64_t seen;      /* keys that count, the first ones: the others get 0 */
  int64_t columns;
  float scale, lse, dy_y;
} cpu_attention_row;

typedef struct cpu_attention_simd {
  /* A row of `columns` scores becomes weights e^(scale*score - greatest) of the first `seen` keys, of which there is at
   * least one, and 0 of the others. *greatest and *sum (of the weights) go on from the tiles before; returned is the
   * factor by which what was summed up so far shrinks. */
  float (*weigh)(float *score, int64_t seen, int64_t columns, float scale, float *greatest, float *sum);
  void (*weigh_back)(const cpu_attention_row *row);
  void (*multiply)(float *x, float factor, int64_t count);
  void (*multiply_by)(float *x, const float *factor, int64_t count);
  float (*dot)(const float *a, const float *b, int64_t count);
  /* Is every number of the rows, `stride` apart, finite? */
  bool (*is_finite)(const float *x, int64_t stride, int64_t rows, int64_t columns);
  /* Turns the pairs of `dims` numbers by angles given as cosine and sine; y may be x. */
  void (*turn)(const float *x, float *y, const float *cosine, const float *sine, int64_t dims);
  void (*turn_interleaved)(const float *x, float *y, const float *cosine, const float *sine, int64_t dims);
} cpu_attention_simd;

extern const cpu_attention_simd cpu_attention_v2, cpu_attention_v3, cpu_attention_v4;
/* attention.c. isa: as in cpu_backend. */
const cpu_attention_simd *cpu_attention_simd_of(int32_t isa);
#endif
