/* Resizing of one plane: rows first, then columns. A row of y interpolates two rows of x; each value of y then
 * interpolates two columns of that result. The gradient works in the reverse order: first columns, then rows. So the
 * bits of a value do not depend on whether channels are in blocks. */
#include "simd_upsample.h"

/* to = here * x + next * after, for each element */
static inline void blend(const cpu_tap *t, const float *restrict x, const float *restrict after, int64_t count,
                         float *restrict to)
{
  for (int64_t i = 0; i < count; i++) to[i] = t->here * x[i] + t->next * after[i];
}

static inline void add(const float *restrict x, float factor, int64_t count, float *restrict to)
{
  for (int64_t i = 0; i < count; i++) to[i] += factor * x[i];
}

static void upsample(const cpu_upsample_plane *v, const float *x, float *y, float *scratch)
{
  const int64_t lanes = v->lanes, pitch = v->extent[1] * lanes;
  for (int64_t p = 0; p < v->places[0]; p++) {
    const cpu_tap *row = &v->row[p];
    const float *from = x + row->at * pitch;
    if (row->next > 0) {
      blend(row, from, from + pitch, pitch, scratch);
      from = scratch;
    }
    for (int64_t q = 0; q < v->places[1]; q++, y += lanes) {
      const cpu_tap *column = &v->column[q];
      const float *value = from + column->at * lanes;
      if (column->next > 0)
        blend(column, value, value + lanes, lanes, y);
      else
        for (int64_t i = 0; i < lanes; i++) y[i] = value[i];
    }
  }
}

static void upsample_grad(const cpu_upsample_plane *v, const float *dy, float *dx, float *scratch)
{
  const int64_t lanes = v->lanes, pitch = v->extent[1] * lanes;
  for (int64_t i = 0; i < v->extent[0] * pitch; i++) dx[i] = 0;
  for (int64_t p = 0; p < v->places[0]; p++) {
    const cpu_tap *row = &v->row[p];
    float *to = dx + row->at * pitch;
    for (int64_t i = 0; i < pitch; i++) scratch[i] = 0;
    for (int64_t q = 0; q < v->places[1]; q++, dy += lanes) {
      const cpu_tap *column = &v->column[q];
      add(dy, column->here, lanes, scratch + column->at * lanes);
      if (column->next > 0) add(dy, column->next, lanes, scratch + (column->at + 1) * lanes);
    }
    add(scratch, row->here, pitch, to);
    if (row->next > 0) add(scratch, row->next, pitch, to + pitch);
  }
}

const cpu_upsampling CPU_NAME(cpu_upsampling) = {upsample, upsample_grad};
