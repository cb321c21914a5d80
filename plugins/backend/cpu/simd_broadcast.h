/* Functions of rows for operations with broadcasting, sums over axes and softmax, compiled once for each instruction
 * set. */
#ifndef CPU_SIMD_BROADCAST_H
#define CPU_SIMD_BROADCAST_H
#include <stdint.h>

#include "isa.h"

/* y[i] = a[i] op b[i]. A repeated operand has one element. y may be an operand that is not repeated. */
typedef void (*cpu_binary)(const float *a, const float *b, float *y, int64_t count);

enum cpu_binary_op { CPU_ADD, CPU_SUB, CPU_MUL, CPU_DIV, CPU_BINARY_COUNT };

typedef struct cpu_broadcast {
  cpu_binary binary[CPU_BINARY_COUNT][2][2];                   /* [op][a is repeated][b is repeated] */
  void (*add_row)(const float *x, double *sum, int64_t count); /* sum[i] += x[i] */
  double (*sum_row)(const float *x, int64_t count);            /* the order of additions depends on `count` alone */
  /* Process one row. y may be x; dx may be y or dy. */
  void (*softmax)(const float *x, float *y, int64_t count);
  void (*softmax_grad)(const float *y, const float *dy, float *dx, int64_t count);
  void (*log_softmax)(const float *x, float *y, int64_t count);
  void (*log_softmax_grad)(const float *y, const float *dy, float *dx, int64_t count);
} cpu_broadcast;

extern const cpu_broadcast CPU_OF_ISAS(, cpu_broadcast);

/* The functions of softmax are in simd_softmax.c. */
#ifdef CPU_ISA
void CPU_NAME(simd_softmax)(const float *x, float *y, int64_t count);
void CPU_NAME(simd_softmax_grad)(const float *y, const float *dy, float *dx, int64_t count);
void CPU_NAME(simd_log_softmax)(const float *x, float *y, int64_t count);
void CPU_NAME(simd_log_softmax_grad)(const float *y, const float *dy, float *dx, int64_t count);
#endif

#endif
