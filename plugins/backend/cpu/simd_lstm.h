/* The part of an LSTM's step that works element by element, for each instruction set. */
#ifndef CPU_SIMD_LSTM_H
#define CPU_SIMD_LSTM_H
#include "simd.h"

/* One step of one sample, with H hidden units. `cell_before`: the cell of the previous step, NULL for zeros. */
typedef struct cpu_lstm_simd {
  /* gates [4H]: on entry the products without bias_hh, on return i, f, g, o. */
  void (*step)(const float *bias_hh, const float *cell_before, float *gates, float *cell, float *y, int64_t hidden);
  /* dh [H]: the gradient of y at this step. dcell [H]: the gradient of the cell after this step; becomes that of the
   * cell before it. dgates may be gates. */
  void (*step_back)(const float *dh, const float *gates, const float *cell_before, const float *cell, float *dcell,
                    float *dgates, int64_t hidden);
} cpu_lstm_simd;

extern const cpu_lstm_simd CPU_OF_ISAS(, cpu_lstm);
#endif
