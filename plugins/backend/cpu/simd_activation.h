/* Activation functions, element by element, compiled once for each instruction set. */
#ifndef CPU_SIMD_ACTIVATION_H
#define CPU_SIMD_ACTIVATION_H
#include <stdint.h>

#include "isa.h"

/* y = f(x). `factor` is the attribute of the operation. y may be x. */
typedef void (*cpu_function)(const float *x, float *y, int64_t count, float factor);
/* dx = dy f'. `kept` is x or y, see brim/ops.h. dx may be either input. */
typedef void (*cpu_slope)(const float *kept, const float *dy, float *dx, int64_t count, float factor);

typedef struct cpu_activation {
  cpu_function leaky_relu, silu, sigmoid, tanh, exp, scale;
  cpu_function gelu[3]; /* indexed by enum brim_gelu */
  cpu_slope leaky_relu_grad, silu_grad, sigmoid_grad, tanh_grad;
  cpu_slope gelu_grad[3];
} cpu_activation;

extern const cpu_activation CPU_OF_ISAS(, cpu_activation);

#endif
