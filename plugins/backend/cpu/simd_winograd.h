/* The vector functions of convolutions with Winograd's transforms, for each instruction set. */
#ifndef CPU_SIMD_WINOGRAD_H
#define CPU_SIMD_WINOGRAD_H
#include "simd.h"

/* A tile computes OUT outputs in each direction from IN inputs. Transforms have PLACES numbers in between. */
enum { WINOGRAD_OUT = 2, WINOGRAD_IN = 4, WINOGRAD_PLACES = WINOGRAD_IN * WINOGRAD_IN };

/* A plane of one block of channels; the channels are adjacent at each pixel. */
typedef struct cpu_winograd_plane {
  int64_t height, width, block;
} cpu_winograd_plane;

/* Transforms the tile whose first value is pixel (h, w). Values outside the plane are 0: inputs may lie outside on all
 * sides, gradients at the right and below. Place p of the channel block is written to to[p * step]. */
typedef void (*cpu_winograd_fn)(const cpu_winograd_plane *plane, const float *x, int64_t h, int64_t w, float *to,
                                int64_t step);

typedef struct cpu_winograd_simd {
  cpu_winograd_fn input;    /* transforms the tile's inputs */
  cpu_winograd_fn gradient; /* transforms the gradients of the tile's outputs */
  /* Writes the tile's outputs at (h, w), at its right and below, if they lie in the plane. bias: that of the channel
   * block, or NULL. */
  void (*output)(const cpu_winograd_plane *plane, const float *from, int64_t step, const float *bias, float *y,
                 int64_t h, int64_t w);
  /* Transforms `count` 3x3 kernels (a block, or more), which are `next` floats apart. If `turned`, it rotates them by
   * 180 degrees. Place p of kernel i is written to to[p * step + i]. */
  void (*kernels)(const float *w, int64_t next, int64_t count, bool turned, float *to, int64_t step);
  /* Transforms the places from[p * step + i] back and adds them to the gradient of kernel i. Kernels are adjacent in
   * dw. */
  void (*weights)(const float *from, int64_t step, int64_t count, float *dw);
} cpu_winograd_simd;

extern const cpu_winograd_simd CPU_OF_ISAS(, cpu_winograd);
#endif
