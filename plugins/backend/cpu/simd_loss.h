/* The vector functions of losses along a row, for each instruction set. */
#ifndef CPU_SIMD_LOSS_H
#define CPU_SIMD_LOSS_H
#include "simd.h"

/* The softmax over a row of logits, which arrive piece by piece. */
typedef struct cpu_softmax_row {
  float own;      /* the label's logit */
  float greatest; /* the greatest logit so far; -inf at first */
  int32_t rank;   /* the number of logits that rank before the label's */
  double sum;     /* the sum of exp(logit - greatest) */
  double logits;  /* the sum of the logits */
} cpu_softmax_row;

/* A sample's elements y and their targets: t or, if t is NULL, 1 at element `hot` and 0 elsewhere. */
typedef struct cpu_mean_row {
  const float *y, *t;
  int64_t hot, count;
  float delta, scale;
} cpu_mean_row;

enum cpu_mean_loss { CPU_MEAN_MSE, CPU_MEAN_MAE, CPU_MEAN_HUBER, CPU_MEAN_BCE, CPU_MEAN_COUNT };

typedef struct cpu_loss_simd {
  /* Adds logits [first, first + count) of a row whose label is `label`. */
  void (*look)(cpu_softmax_row *row, const float *logits, int64_t first, int64_t count, int64_t label);
  /* logits = (exp(logits - lse) - soft) * scale */
  void (*softmax_grad)(float *logits, int64_t count, double lse, float soft, float scale);
  /* logits = cap * tanh(logits / cap) */
  void (*cap)(float *logits, int64_t count, float cap);
  /* softmax_grad of capped logits, times the cap's derivative */
  void (*capped_grad)(float *logits, int64_t count, double lse, float scale, float cap);
  double (*mean_sum[CPU_MEAN_COUNT])(const cpu_mean_row *row);           /* returns the sum of the elements' losses */
  void (*mean_grad[CPU_MEAN_COUNT])(const cpu_mean_row *row, float *dy); /* dy may be y */
} cpu_loss_simd;

extern const cpu_loss_simd CPU_OF_ISAS(, cpu_loss);
#endif
