/* The vector functions of a federated round, for each instruction set. */
#ifndef CPU_SIMD_FEDERATE_H
#define CPU_SIMD_FEDERATE_H
#include "simd.h"

typedef struct cpu_federate_simd {
  /* out[0]: the sum of (w - g)^2; out[1]: the largest |w - g|. */
  void (*distance)(const float *w, const float *g, double out[2], int64_t count);
  /* gradient[i] = old[i] + (w[i] - g[i]) * factor. gradient may be old. */
  void (*steer)(double factor, const float *w, const float *g, const float *old, float *gradient, int64_t count);
  /* Does the same and adds control[i] * control_factor. */
  void (*steer_by)(double factor, double control_factor, const float *w, const float *g, const float *old,
                   const float *control, float *gradient, int64_t count);
  /* sum[i] = old[i] + (w[i] - g[i]) * weight, rounded as brim/ops.h specifies for fold. sum may be old. */
  void (*fold)(double weight, const float *w, const float *g, const double *old, double *sum, int64_t count);
  /* y = x + factor * sum, or -(factor * sum) if x is NULL. y may be x. */
  void (*serve)(double factor, const double *sum, const float *x, float *y, int64_t count);
} cpu_federate_simd;

extern const cpu_federate_simd CPU_OF_ISAS(, cpu_federate);
#endif
