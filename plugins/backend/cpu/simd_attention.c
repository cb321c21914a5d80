/* Attention's work on rows of scores, and the rotation of rotary embedding, for one instruction set.
 *
 * Rows of scores are processed in whole vectors; a tile's rows have room for them. A masked key counts as e^-inf = 0.
 * Sums over a row use LANES partial sums, which depend on the tile alone. */
#include "simd_attention.h"

#include <math.h>

#include "simd_math.h"

static inline int64_t whole_vectors(int64_t count)
{
  return (count + LANES - 1) / LANES * LANES;
}

/* Adds in pairs, because LANES dependent additions would take longer than the additions of a row's vectors. */
static inline float sum_of(vf v)
{
  float x[LANES];
  store(x, v);
  for (int half = LANES / 2; half > 0; half /= 2)
    for (int i = 0; i < half; i++) x[i] += x[i + half];
  return x[0];
}
static inline float greatest_of(vf v)
{
  float x[LANES];
  store(x, v);
  for (int half = LANES / 2; half > 0; half /= 2)
    for (int i = 0; i < half; i++) x[i] = x[i] < x[i + half] ? x[i + half] : x[i];
  return x[0];
}

/* Scales the scores of the keys that count. Returns the greatest of them and `least`. */
static float scale_scores(float *score, int64_t from, int64_t seen, float scale, float softcap, float least)
{
  const int64_t end = whole_vectors(seen);
  for (int64_t c = 0; c < end; c += LANES) store(score + c, load(score + c) * scale);
  if (softcap > 0)
    for (int64_t c = 0; c < end; c += LANES) store(score + c, softcap * tanh_of(load(score + c) / softcap));
  for (int64_t c = 0; c < from; c++) score[c] = -INFINITY;
  for (int64_t c = seen; c < end; c++) score[c] = -INFINITY;
  vf most = splat(least);
  for (int64_t c = 0; c < end; c += LANES) {
    const vf v = load(score + c);
    most = choose(v > most, v, most);
  }
  return greatest_of(most);
}

/* Computes the weights of a row and returns their sum. A NaN among the scores makes the sum NaN, and thus the whole row
 * of the result. */
static float weigh_row(float *score, int64_t seen, int64_t columns, float greatest)
{
  vf sums = {0};
  for (int64_t c = 0; c < seen; c += LANES) {
    const vf weight = exponential(load(score + c) - greatest);
    sums += weight;
    store(score + c, weight);
  }
  for (int64_t c = seen; c < columns; c++) score[c] = 0;
  return sum_of(sums);
}

/* Does each step for all rows before the next step, so that the CPU can overlap rows; the steps of one row depend on
 * each other. */
static void weigh(cpu_attention_tile *t)
{
  float before[CPU_ATTENTION_QUERIES];
  memcpy(before, t->greatest, sizeof before);
  for (int64_t r = 0; r < t->rows; r++)
    t->greatest[r] =
        scale_scores(t->score + r * CPU_ATTENTION_KEYS, t->from[r], t->seen[r], t->scale, t->softcap, before[r]);
  for (int64_t r = 0; r < t->rows; r += LANES)
    store(t->factor + r, exponential(load(before + r) - load(t->greatest + r)));
  for (int64_t r = 0; r < t->rows; r++) {
    const float sum = weigh_row(t->score + r * CPU_ATTENTION_KEYS, t->seen[r], t->columns, t->greatest[r]);
    if (t->seen[r] == 0) t->factor[r] = 1; /* the row has no key so far, and -inf minus -inf would be NaN */
    t->sum[r] = t->sum[r] * t->factor[r] + sum;
  }
}

static void weigh_back(const cpu_attention_row *r)
{
  for (int64_t c = 0; c < r->seen; c += LANES) {
    vf score = load(r->score + c) * r->scale, slope = splat(r->scale);
    if (r->softcap > 0) {
      const vf share = tanh_of(score / r->softcap);
      score = r->softcap * share;
      slope = r->scale * (1.0f - share * share);
    }
    const vf weight = exponential(score - r->lse), mask = r->mask ? load(r->mask + c) : splat(1);
    store(r->score + c, weight * mask);
    store(r->dz + c, weight * (load(r->dz + c) * mask - r->dy_y) * slope);
  }
  for (int64_t c = 0; c < r->from; c++) r->score[c] = r->dz[c] = 0;
  for (int64_t c = r->seen; c < r->columns; c++) r->score[c] = r->dz[c] = 0;
}

static void multiply(float *x, float factor, int64_t count)
{
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) store(x + i, load(x + i) * factor);
  for (; i < count; i++) x[i] *= factor;
}

static void multiply_by(float *x, const float *factor, int64_t count)
{
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) store(x + i, load(x + i) * load(factor + i));
  for (; i < count; i++) x[i] *= factor[i];
}

static float dot(const float *a, const float *b, int64_t count)
{
  vf sums = {0};
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) sums += load(a + i) * load(b + i);
  float sum = sum_of(sums);
  for (; i < count; i++) sum += a[i] * b[i];
  return sum;
}

/* 0 * x is 0 if x is finite, else NaN. */
static bool is_finite(const float *x, int64_t stride, int64_t rows, int64_t columns)
{
  vf sums = {0};
  float sum = 0;
  for (int64_t r = 0; r < rows; r++, x += stride) {
    int64_t c = 0;
    for (; c + LANES <= columns; c += LANES) sums += load(x + c) * 0.0f;
    for (; c < columns; c++) sum += x[c] * 0.0f;
  }
  return sum + sum_of(sums) == 0;
}

static void turn(const float *x, float *y, const float *cosine, const float *sine, int64_t dims)
{
  const int64_t pairs = dims / 2;
  int64_t i = 0;
  for (; i + LANES <= pairs; i += LANES) {
    const vf a = load(x + i), b = load(x + pairs + i), c = load(cosine + i), s = load(sine + i);
    store(y + i, a * c - b * s);
    store(y + pairs + i, b * c + a * s);
  }
  for (; i < pairs; i++) {
    const float a = x[i], b = x[pairs + i];
    y[i] = a * cosine[i] - b * sine[i];
    y[pairs + i] = b * cosine[i] + a * sine[i];
  }
}

static void turn_interleaved(const float *x, float *y, const float *cosine, const float *sine, int64_t dims)
{
  for (int64_t i = 0; i < dims / 2; i++) {
    const float a = x[2 * i], b = x[2 * i + 1];
    y[2 * i] = a * cosine[i] - b * sine[i];
    y[2 * i + 1] = b * cosine[i] + a * sine[i];
  }
}

const cpu_attention_simd CPU_NAME(cpu_attention) = {.weigh = weigh,
                                                    .weigh_back = weigh_back,
                                                    .multiply = multiply,
                                                    .multiply_by = multiply_by,
                                                    .dot = dot,
                                                    .is_finite = is_finite,
                                                    .turn = turn,
                                                    .turn_interleaved = turn_interleaved};
