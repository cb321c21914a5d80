/* A step of an LSTM, forward and backward, for one instruction set. The values after the last whole vector undergo the
 * same operations as whole vectors (this file uses no fused multiply-adds), so an element does not depend on its
 * position. */
#include "simd_lstm.h"

#include "simd_math.h"

static inline void step_some(const float *bias_hh, const float *cell_before, float *gates, float *cell, float *y,
                             int64_t hidden, int64_t count)
{
  vf a[4];
  for (int j = 0; j < 4; j++) a[j] = load_some(gates + j * hidden, count) + load_some(bias_hh + j * hidden, count);
  const vf i = sigmoid_of(a[0]), f = sigmoid_of(a[1]), g = tanh_of(a[2]), o = sigmoid_of(a[3]);
  const vf c = f * (cell_before ? load_some(cell_before, count) : splat(0.0f)) + i * g;
  store_some(gates, i, count);
  store_some(gates + hidden, f, count);
  store_some(gates + 2 * hidden, g, count);
  store_some(gates + 3 * hidden, o, count);
  store_some(cell, c, count);
  store_some(y, o * tanh_of(c), count);
}

static void step(const float *bias_hh, const float *cell_before, float *gates, float *cell, float *y, int64_t hidden)
{
  for (int64_t u = 0; u < hidden; u += LANES)
    step_some(bias_hh + u, cell_before ? cell_before + u : NULL, gates + u, cell + u, y + u, hidden,
              hidden - u < LANES ? hidden - u : LANES);
}

static inline void step_back_some(const float *dh, const float *gates, const float *cell_before, const float *cell,
                                  float *dcell, float *dgates, int64_t hidden, int64_t count)
{
  const vf i = load_some(gates, count), f = load_some(gates + hidden, count);
  const vf g = load_some(gates + 2 * hidden, count), o = load_some(gates + 3 * hidden, count);
  const vf c = cell_before ? load_some(cell_before, count) : splat(0.0f);
  const vf squashed = tanh_of(load_some(cell, count)), d = load_some(dh, count);
  const vf dc = d * o * (1.0f - squashed * squashed) + load_some(dcell, count);
  store_some(dgates, dc * g * i * (1.0f - i), count);
  store_some(dgates + hidden, dc * c * f * (1.0f - f), count);
  store_some(dgates + 2 * hidden, dc * i * (1.0f - g * g), count);
  store_some(dgates + 3 * hidden, d * squashed * o * (1.0f - o), count);
  store_some(dcell, dc * f, count);
}

static void step_back(const float *dh, const float *gates, const float *cell_before, const float *cell, float *dcell,
                      float *dgates, int64_t hidden)
{
  for (int64_t u = 0; u < hidden; u += LANES)
    step_back_some(dh + u, gates + u, cell_before ? cell_before + u : NULL, cell + u, dcell + u, dgates + u, hidden,
                   hidden - u < LANES ? hidden - u : LANES);
}

const cpu_lstm_simd CPU_NAME(cpu_lstm) = {step, step_back};
