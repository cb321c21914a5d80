/* The norms' vector functions: one table for each instruction set, indexed by cpu_backend.isa.
 *
 * Sums are in double precision. A lane adds pixel after pixel; contiguous values go to one of 16 sums by their
 * position. So the order of additions depends on the shape alone. */
#ifndef CPU_SIMD_NORM_H
#define CPU_SIMD_NORM_H
#include <stdint.h>

#include "isa.h"

enum { CPU_NORM_LANES = 64 }; /* maximum lanes of a call */

/* A plane has `pixels` pixels, `stride` apart, each with `lanes` contiguous values: its channels. */
typedef struct cpu_norm_plane {
  int64_t pixels, lanes, stride;
} cpu_norm_plane;

/* The coefficients of a plane, one of each for every lane. For scale: y = (x - mean) * factor + shift. For scale_grad:
 * dx = dy * factor - (shift + (x - mean) * slope). The callee may write repeated lanes after the last one. */
typedef struct cpu_norm_lanes {
  float mean[CPU_NORM_LANES], factor[CPU_NORM_LANES], shift[CPU_NORM_LANES], slope[CPU_NORM_LANES];
} cpu_norm_lanes;

/* A row of layer_norm (centred), or of rms_norm, where mean is 0 and there is no bias. */
typedef struct cpu_norm_row {
  int64_t count;
  const float *weight, *bias; /* bias: NULL if there is none */
  double eps;
  float offset;     /* added to weight */
  float mean, rstd; /* outputs of `row`, inputs of `row_grad` */
  int32_t centred;
} cpu_norm_row;

typedef struct cpu_norm_simd {
  /* Compute, for each lane, the mean and the sum of squared differences from it. */
  void (*moments)(const cpu_norm_plane *p, const float *x, double *mean, double *squares);
  /* Computes, for each lane, the sums of dy and of dy * (x - mean). */
  void (*products)(const cpu_norm_plane *p, const float *x, const float *dy, const float *mean, double *sum,
                   double *product);
  void (*scale)(const cpu_norm_plane *p, cpu_norm_lanes *by, const float *x, float *y);
  /* Does the work of `scale`, and adds a to y. */
  void (*scale_add)(const cpu_norm_plane *p, cpu_norm_lanes *by, const float *x, const float *a, float *y);
  /* masked = 0 where the y of scale is at most `least`, else dy. */
  void (*mask)(const cpu_norm_plane *p, cpu_norm_lanes *by, float least, const float *x, const float *dy,
               float *masked);
  void (*scale_grad)(const cpu_norm_plane *p, cpu_norm_lanes *by, const float *x, const float *dy, float *dx);
  void (*row)(cpu_norm_row *r, const float *x, float *y);
  /* Adds to dweight, and to dbias unless NULL. */
  void (*row_grad)(const cpu_norm_row *r, const float *x, const float *dy, float *dx, float *dweight, float *dbias);
} cpu_norm_simd;

extern const cpu_norm_simd CPU_OF_ISAS(, cpu_norm);

#endif
