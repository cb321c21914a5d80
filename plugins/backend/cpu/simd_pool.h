/* The vector code of pooling for one plane of adjacent channels, for each instruction set. */
#ifndef CPU_SIMD_POOL_H
#define CPU_SIMD_POOL_H
#include "simd.h"

/* A plane: `lanes` adjacent channels (the tensor's channel block) of one sample. */
typedef struct cpu_pool_plane {
  int64_t extent[2]; /* height and width of x */
  int64_t places[2]; /* height and width of y */
  int64_t lanes;
  int64_t kernel[2], stride[2], padding[2];
  bool adaptive; /* extent and places alone determine the windows */
  bool exclude_padding;
} cpu_pool_plane;

typedef struct cpu_pooling {
  void (*max_pool)(const cpu_pool_plane *plane, const float *x, float *y, uint8_t *index);
  void (*max_pool_grad)(const cpu_pool_plane *plane, const float *dy, const uint8_t *index, float *dx);
  void (*avg_pool)(const cpu_pool_plane *plane, const float *x, float *y);
  void (*avg_pool_grad)(const cpu_pool_plane *plane, const float *dy, float *dx);
  /* sum[c] += x[i*lanes + c], for all pixels i and lanes c. */
  void (*sum_pixels)(const float *x, int64_t pixels, int64_t lanes, float *sum);
  /* x[i*lanes + c] += value[c], for all pixels i and lanes c. */
  void (*add_to_pixels)(float *x, int64_t pixels, int64_t lanes, const float *value);
} cpu_pooling;

extern const cpu_pooling CPU_OF_ISAS(, cpu_pooling);
extern const cpu_pooling *const cpu_pooling_of_isa[3]; /* indexed by cpu_backend.isa; defined in pooling.c */

#ifdef CPU_ISA

/* A range of rows or columns: [from, to). */
typedef struct range {
  int64_t from, to;
} range;

/* Returns the first row or column of a window, which may be in the padding. */
static inline int64_t window_start(const cpu_pool_plane *v, int d, int64_t place)
{
  return place * v->stride[d] - v->padding[d];
}

/* Returns the rows (d = 0) or columns (d = 1) of x in a window. */
static inline range window_in(const cpu_pool_plane *v, int d, int64_t place)
{
  const int64_t extent = v->extent[d], places = v->places[d];
  if (v->adaptive) return (range){place * extent / places, ((place + 1) * extent + places - 1) / places};
  const int64_t start = window_start(v, d, place), end = start + v->kernel[d];
  return (range){start < 0 ? 0 : start, end > extent ? extent : end};
}

/* Returns whether windows do not overlap: no row or column is in two of them. */
static inline bool windows_apart(const cpu_pool_plane *v)
{
  if (v->adaptive) return v->extent[0] % v->places[0] == 0 && v->extent[1] % v->places[1] == 0;
  return v->stride[0] >= v->kernel[0] && v->stride[1] >= v->kernel[1];
}

/* Returns whether each row and column is in at least one window. */
static inline bool windows_cover(const cpu_pool_plane *v)
{
  if (v->adaptive) return true;
  for (int d = 0; d < 2; d++) {
    const bool gaps = v->stride[d] > v->kernel[d] && v->places[d] > 1;
    if (gaps || window_start(v, d, v->places[d] - 1) + v->kernel[d] < v->extent[d]) return false;
  }
  return true;
}

void CPU_NAME(simd_max_pool)(const cpu_pool_plane *v, const float *x, float *y, uint8_t *index);
void CPU_NAME(simd_max_pool_grad)(const cpu_pool_plane *v, const float *dy, const uint8_t *index, float *dx);

#endif
#endif
