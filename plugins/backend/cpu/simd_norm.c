/* The sums and elementwise parts of norms, for one instruction set. Inputs and outputs may share memory, because an
 * element is read before it is written. This file uses no fused multiply-adds, so an element does not depend on whether
 * a whole vector holds it. */
#include "simd_norm.h"

#include <math.h>

#include "simd.h"

enum {
  HALF = LANES / 2, /* doubles in a vector */
  WAYS = 16         /* sums over which contiguous values are distributed */
};
typedef double vd __attribute__((vector_size(LANES * 4)));
typedef float vh __attribute__((vector_size(LANES * 2)));

static inline vd widen(const float *p)
{
  vh v;
  memcpy(&v, p, sizeof v);
  return __builtin_convertvector(v, vd);
}
static inline vd load_double(const double *p)
{
  vd v;
  memcpy(&v, p, sizeof v);
  return v;
}

/* ---- sums, lane by lane: of x; of (x - mean)^2; of dy and dy * (x - mean) ---- */

static inline void sum_vectors(const cpu_norm_plane *p, const float *x, int count, double *sum)
{
  vd s[2] = {{0}};
  for (int64_t i = 0; i < p->pixels; i++, x += p->stride)
    for (int k = 0; k < count; k++) s[k] += widen(x + k * HALF);
  memcpy(sum, s, (size_t)count * sizeof *s);
}

static void sums(const cpu_norm_plane *p, const float *x, double *sum)
{
  int64_t l = 0;
  for (; l + LANES <= p->lanes; l += LANES) sum_vectors(p, x + l, 2, sum + l);
  for (; l + HALF <= p->lanes; l += HALF) sum_vectors(p, x + l, 1, sum + l);
  for (; l < p->lanes; l++) {
    sum[l] = 0;
    for (int64_t i = 0; i < p->pixels; i++) sum[l] += (double)x[i * p->stride + l];
  }
}

static inline void square_vectors(const cpu_norm_plane *p, const float *x, const double *mean, int count, double *sum)
{
  vd s[2] = {{0}}, m[2] = {{0}};
  for (int k = 0; k < count; k++) m[k] = load_double(mean + k * HALF);
  for (int64_t i = 0; i < p->pixels; i++, x += p->stride)
    for (int k = 0; k < count; k++) {
      const vd d = widen(x + k * HALF) - m[k];
      s[k] += d * d;
    }
  memcpy(sum, s, (size_t)count * sizeof *s);
}

static void squares_of(const cpu_norm_plane *p, const float *x, const double *mean, double *sum)
{
  int64_t l = 0;
  for (; l + LANES <= p->lanes; l += LANES) square_vectors(p, x + l, mean + l, 2, sum + l);
  for (; l + HALF <= p->lanes; l += HALF) square_vectors(p, x + l, mean + l, 1, sum + l);
  for (; l < p->lanes; l++) {
    sum[l] = 0;
    for (int64_t i = 0; i < p->pixels; i++) {
      const double d = (double)x[i * p->stride + l] - mean[l];
      sum[l] += d * d;
    }
  }
}

static inline void product_vectors(const cpu_norm_plane *p, const float *x, const float *dy, const float *mean,
                                   int count, double *sum, double *product)
{
  vd s[2] = {{0}}, t[2] = {{0}}, m[2] = {{0}};
  for (int k = 0; k < count; k++) m[k] = widen(mean + k * HALF);
  for (int64_t i = 0; i < p->pixels; i++, x += p->stride, dy += p->stride)
    for (int k = 0; k < count; k++) {
      const vd d = widen(dy + k * HALF);
      s[k] += d;
      t[k] += d * (widen(x + k * HALF) - m[k]);
    }
  memcpy(sum, s, (size_t)count * sizeof *s);
  memcpy(product, t, (size_t)count * sizeof *t);
}

static void products_of(const cpu_norm_plane *p, const float *x, const float *dy, const float *mean, double *sum,
                        double *product)
{
  int64_t l = 0;
  for (; l + LANES <= p->lanes; l += LANES) product_vectors(p, x + l, dy + l, mean + l, 2, sum + l, product + l);
  for (; l + HALF <= p->lanes; l += HALF) product_vectors(p, x + l, dy + l, mean + l, 1, sum + l, product + l);
  for (; l < p->lanes; l++) {
    sum[l] = product[l] = 0;
    for (int64_t i = 0; i < p->pixels; i++) {
      const double d = (double)dy[i * p->stride + l];
      sum[l] += d;
      product[l] += d * ((double)x[i * p->stride + l] - (double)mean[l]);
    }
  }
}

/* ---- one lane of contiguous values: distributed to WAYS lanes, the rest to the first of them ---- */

static double add_up(const double *ways)
{
  double sum = 0;
  for (int i = 0; i < WAYS; i++) sum += ways[i];
  return sum;
}

static double sum_line(const float *x, int64_t count)
{
  double way[WAYS];
  const cpu_norm_plane p = {count / WAYS, WAYS, WAYS};
  sums(&p, x, way);
  for (int64_t i = p.pixels * WAYS; i < count; i++) way[i % WAYS] += (double)x[i];
  return add_up(way);
}

static double square_line(const float *x, int64_t count, double mean)
{
  double way[WAYS], means[WAYS];
  const cpu_norm_plane p = {count / WAYS, WAYS, WAYS};
  for (int i = 0; i < WAYS; i++) means[i] = mean;
  squares_of(&p, x, means, way);
  for (int64_t i = p.pixels * WAYS; i < count; i++) way[i % WAYS] += ((double)x[i] - mean) * ((double)x[i] - mean);
  return add_up(way);
}

static void product_line(const float *x, const float *dy, int64_t count, float mean, double *sum, double *product)
{
  double way[WAYS], product_way[WAYS];
  float means[WAYS];
  const cpu_norm_plane p = {count / WAYS, WAYS, WAYS};
  for (int i = 0; i < WAYS; i++) means[i] = mean;
  products_of(&p, x, dy, means, way, product_way);
  for (int64_t i = p.pixels * WAYS; i < count; i++) {
    way[i % WAYS] += (double)dy[i];
    product_way[i % WAYS] += (double)dy[i] * ((double)x[i] - (double)mean);
  }
  *sum = add_up(way);
  *product = add_up(product_way);
}

/* ---- planes ---- */

static void moments(const cpu_norm_plane *p, const float *x, double *mean, double *squares)
{
  if (p->lanes == 1 && p->stride == 1) {
    mean[0] = sum_line(x, p->pixels) / (double)p->pixels;
    squares[0] = square_line(x, p->pixels, mean[0]);
    return;
  }
  sums(p, x, mean);
  for (int64_t l = 0; l < p->lanes; l++) mean[l] /= (double)p->pixels;
  squares_of(p, x, mean, squares);
}

static void products(const cpu_norm_plane *p, const float *x, const float *dy, const float *mean, double *sum,
                     double *product)
{
  if (p->lanes == 1 && p->stride == 1)
    product_line(x, dy, p->pixels, mean[0], sum, product);
  else
    products_of(p, x, dy, mean, sum, product);
}

/* If there are few lanes and no gap between pixels, treats several pixels as one pixel with more lanes, and repeats the
 * coefficients for them. Returns the number of lanes. */
static int64_t repeat(const cpu_norm_plane *p, cpu_norm_lanes *by)
{
  if (p->stride != p->lanes) return p->lanes;
  const int64_t fit = CPU_NORM_LANES / p->lanes, count = (fit < p->pixels ? fit : p->pixels) * p->lanes;
  for (int64_t l = p->lanes; l < count; l++) {
    by->mean[l] = by->mean[l - p->lanes];
    by->factor[l] = by->factor[l - p->lanes];
    by->shift[l] = by->shift[l - p->lanes];
    by->slope[l] = by->slope[l - p->lanes];
  }
  return count;
}

static inline void scale_lanes(const cpu_norm_lanes *by, const float *x, float *y, int64_t lanes)
{
  int64_t l = 0;
  for (; l + LANES <= lanes; l += LANES)
    store(y + l, (load(x + l) - load(by->mean + l)) * load(by->factor + l) + load(by->shift + l));
  for (; l < lanes; l++) y[l] = (x[l] - by->mean[l]) * by->factor[l] + by->shift[l];
}

static void scale(const cpu_norm_plane *p, cpu_norm_lanes *by, const float *x, float *y)
{
  const int64_t lanes = repeat(p, by), step = lanes == p->lanes ? p->stride : lanes;
  const int64_t end = (p->pixels - 1) * p->stride + p->lanes;
  for (int64_t at = 0; at < end; at += step) scale_lanes(by, x + at, y + at, lanes < end - at ? lanes : end - at);
}

static inline void scale_add_lanes(const cpu_norm_lanes *by, const float *x, const float *a, float *y, int64_t lanes)
{
  int64_t l = 0;
  for (; l + LANES <= lanes; l += LANES) {
    const vf scaled = (load(x + l) - load(by->mean + l)) * load(by->factor + l) + load(by->shift + l);
    store(y + l, scaled + load(a + l));
  }
  for (; l < lanes; l++) y[l] = (x[l] - by->mean[l]) * by->factor[l] + by->shift[l] + a[l];
}

static void scale_add(const cpu_norm_plane *p, cpu_norm_lanes *by, const float *x, const float *a, float *y)
{
  const int64_t lanes = repeat(p, by), step = lanes == p->lanes ? p->stride : lanes;
  const int64_t end = (p->pixels - 1) * p->stride + p->lanes;
  for (int64_t at = 0; at < end; at += step)
    scale_add_lanes(by, x + at, a + at, y + at, lanes < end - at ? lanes : end - at);
}

static inline void mask_lanes(const cpu_norm_lanes *by, float least, const float *x, const float *dy, float *masked,
                              int64_t lanes)
{
  const vf zero = {0}, limit = zero + least;
  int64_t l = 0;
  for (; l + LANES <= lanes; l += LANES) {
    const vf y = (load(x + l) - load(by->mean + l)) * load(by->factor + l) + load(by->shift + l);
    store(masked + l, choose(y <= limit, zero, load(dy + l)));
  }
  for (; l < lanes; l++) {
    const float y = (x[l] - by->mean[l]) * by->factor[l] + by->shift[l];
    masked[l] = y <= least ? 0 : dy[l];
  }
}

static void mask(const cpu_norm_plane *p, cpu_norm_lanes *by, float least, const float *x, const float *dy,
                 float *masked)
{
  const int64_t lanes = repeat(p, by), step = lanes == p->lanes ? p->stride : lanes;
  const int64_t end = (p->pixels - 1) * p->stride + p->lanes;
  for (int64_t at = 0; at < end; at += step)
    mask_lanes(by, least, x + at, dy + at, masked + at, lanes < end - at ? lanes : end - at);
}

static inline void scale_lanes_grad(const cpu_norm_lanes *by, const float *x, const float *dy, float *dx, int64_t lanes)
{
  int64_t l = 0;
  for (; l + LANES <= lanes; l += LANES) {
    const vf d = load(x + l) - load(by->mean + l);
    store(dx + l, load(dy + l) * load(by->factor + l) - (load(by->shift + l) + d * load(by->slope + l)));
  }
  for (; l < lanes; l++) dx[l] = dy[l] * by->factor[l] - (by->shift[l] + (x[l] - by->mean[l]) * by->slope[l]);
}

static void scale_grad(const cpu_norm_plane *p, cpu_norm_lanes *by, const float *x, const float *dy, float *dx)
{
  const int64_t lanes = repeat(p, by), step = lanes == p->lanes ? p->stride : lanes;
  const int64_t end = (p->pixels - 1) * p->stride + p->lanes;
  for (int64_t at = 0; at < end; at += step)
    scale_lanes_grad(by, x + at, dy + at, dx + at, lanes < end - at ? lanes : end - at);
}

/* ---- rows ---- */

static void row(cpu_norm_row *r, const float *x, float *y)
{
  const double mean = r->centred ? sum_line(x, r->count) / (double)r->count : 0;
  r->mean = (float)mean;
  r->rstd = (float)(1 / sqrt(square_line(x, r->count, mean) / (double)r->count + r->eps));
  int64_t i = 0;
  for (; i + LANES <= r->count; i += LANES) {
    const vf scaled = (load(x + i) - r->mean) * r->rstd * (load(r->weight + i) + r->offset);
    store(y + i, r->bias ? scaled + load(r->bias + i) : scaled);
  }
  for (; i < r->count; i++) {
    const float scaled = (x[i] - r->mean) * r->rstd * (r->weight[i] + r->offset);
    y[i] = r->bias ? scaled + r->bias[i] : scaled;
  }
}

/* Sums g and g * (x - mean), with g = dy * weight. Rounds g as its later use does, so that g equals its mean if a row
 * has a single value. */
static void sum_row(const cpu_norm_row *r, const float *x, const float *dy, double *sum, double *product)
{
  double way[LANES], product_way[LANES];
  vd s[2] = {{0}}, t[2] = {{0}};
  const double mean = (double)r->mean;
  int64_t i = 0;
  *sum = *product = 0;
  for (; i + LANES <= r->count; i += LANES) {
    float g[LANES];
    store(g, load(dy + i) * (load(r->weight + i) + r->offset));
    for (int k = 0; k < 2; k++) {
      s[k] += widen(g + k * HALF);
      t[k] += widen(g + k * HALF) * (widen(x + i + k * HALF) - mean);
    }
  }
  memcpy(way, s, sizeof s);
  memcpy(product_way, t, sizeof t);
  for (; i < r->count; i++) {
    const double g = (double)(dy[i] * (r->weight[i] + r->offset));
    way[i % LANES] += g;
    product_way[i % LANES] += g * ((double)x[i] - mean);
  }
  for (int l = 0; l < LANES; l++) {
    *sum += way[l];
    *product += product_way[l];
  }
}

/* dx = rstd * (g - (mean of g) - h * (mean of g*h)), where h = (x - mean) * rstd. */
static void row_grad(const cpu_norm_row *r, const float *x, const float *dy, float *dx, float *dweight, float *dbias)
{
  double sum, product;
  sum_row(r, x, dy, &sum, &product);
  const double rstd = (double)r->rstd;
  const float shift = r->centred ? (float)(sum / (double)r->count * rstd) : 0;
  const float slope = (float)(product / (double)r->count * rstd * rstd * rstd);
  int64_t i = 0;
  for (; i + LANES <= r->count; i += LANES) {
    const vf d = load(dy + i), from_mean = load(x + i) - r->mean;
    store(dweight + i, load(dweight + i) + d * (from_mean * r->rstd));
    if (dbias) store(dbias + i, load(dbias + i) + d);
    store(dx + i, d * (load(r->weight + i) + r->offset) * r->rstd - (shift + from_mean * slope));
  }
  for (; i < r->count; i++) {
    const float d = dy[i], from_mean = x[i] - r->mean;
    dweight[i] += d * (from_mean * r->rstd);
    if (dbias) dbias[i] += d;
    dx[i] = d * (r->weight[i] + r->offset) * r->rstd - (shift + from_mean * slope);
  }
}

const cpu_norm_simd CPU_NAME(cpu_norm) = {
    .moments = moments,
    .products = products,
    .scale = scale,
    .scale_add = scale_add,
    .mask = mask,
    .scale_grad = scale_grad,
    .row = row,
    .row_grad = row_grad,
};
