/* The norms' vector functions: one table for each instruction set, indexed by cpu_backend.isa.
 *
 * Sums are in double precision. A lane adds from pixel to pixel; contiguous values are added to one of 16 sums by their
 * position. So both depend on the shape alone. */
#ifndef CPU_SIMD_NORM_H
#define CPU_SIMD_NORM_H
#include <stdint.h>

#include "isa.h"

enum { CPU_NORM_LANES = 64 }; /* maximum lanes of a call */

/* `pixels` times `lanes` contiguous values, `stride` apart; lanes are channels. */
typedef struct cpu_norm_plane {
  int64_t pixels, lanes, stride;
} cpu_norm_plane;

/* The coefficients of a plane, lane by lane. scale: y = (x - mean) * factor + shift; scale_grad: dx = dy * factor -
 * (shift + (x - mean) * slope). The callee may repeat the lanes after the last. */
typedef struct cpu_norm_lanes {
  float mean[CPU_NORM_LANES], factor[CPU_NORM_LANES], shift[CPU_NORM_LANES], slope[CPU_NORM_LANES];
} cpu_norm_lanes;

/* A row of layer_norm (centred) or rms_norm, where mean is 0 and there is no bias. */
typedef struct cpu_norm_row {
  int64_t count;
  const float *weight, *bias; /* bias: NULL for none */
  double eps;
  float offset;     /* added to weight */
  float mean, rstd; /* outputs of `row`, inputs of `row_grad` */
  int32_t centred;
} cpu_norm_row;

typedef struct cpu_norm_simd {
  /* For each lane: the mean, and the sum of squared differences from it. */
  void (*moments)(const cpu_norm_plane *p, const float *x, double *mean, double *squares);
  /* For each lane: the sums of dy and of dy * (x - mean). */
  void (*products)(const cpu_norm_plane *p, const float *x, const float *dy, const float *mean, double *sum,
                   double *product);
  void (*scale)(const cpu_norm_plane *p, cpu_norm_lanes *by, const float *x, float *y);
  /* The same, and y += a. */
  void (*scale_add)(const cpu_norm_plane *p, cpu_norm_lanes *by, const float *x, const float *a, float *y);
  /* masked = 0 where scale's y is at most `least`, else dy. */
  void (*mask)(const cpu_norm_plane *p, cpu_norm_lanes *by, float least, const float *x, const float *dy,
               float *masked);
  void (*scale_grad)(const cpu_norm_plane *p, cpu_norm_lanes *by, const float *x, const float *dy, float *dx);
  void (*row)(cpu_norm_row *r, const float *x, float *y);
  /* Adds to dweight and dbias (NULL for none). */
  void (*row_grad)(const cpu_norm_row *r, const float *x, const float *dy, float *dx, float *dweight, float *dbias);
} cpu_norm_simd;

extern const cpu_norm_simd CPU_OF_ISAS(, cpu_norm);

#endif
