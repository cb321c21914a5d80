/* Resizing images: one plane of adjacent channels, for each instruction set. */
#ifndef CPU_SIMD_UPSAMPLE_H
#define CPU_SIMD_UPSAMPLE_H
#include "simd.h"

/* The taps of a row or column of y: its value is here * x[at] + next * x[at + 1]. */
typedef struct cpu_tap {
  int64_t at;
  float here, next; /* next: 0 if the value is x[at] */
} cpu_tap;

/* A plane: `lanes` adjacent channels (the tensor's channel block) of one sample. */
typedef struct cpu_upsample_plane {
  int64_t extent[2]; /* height and width of x */
  int64_t places[2]; /* height and width of y */
  int64_t lanes;
  const cpu_tap *row, *column; /* [places[0]], [places[1]] */
} cpu_upsample_plane;

/* scratch has as many floats as a row of x. */
typedef struct cpu_upsampling {
  void (*upsample)(const cpu_upsample_plane *plane, const float *x, float *y, float *scratch);
  void (*upsample_grad)(const cpu_upsample_plane *plane, const float *dy, float *dx, float *scratch);
} cpu_upsampling;

extern const cpu_upsampling CPU_OF_ISAS(, cpu_upsampling);
#endif
