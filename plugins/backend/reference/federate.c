/* Operations of a federated round: the global model for a client, the term that draws the client back to it, the
 * client's update in the round's sum, and the sum as the server's gradient. Compiled without fused multiply-adds,
 * because fold's rounding is part of its definition. */
#include <string.h>

#include "reference.h"

REFERENCE(adopt, "adopt")
{
  memcpy(launch->out[0], launch->in[0], launch->node->out[0]->bytes);
  return BRIM_OK;
}

/* Adds up in the order of memory. The maximum ignores NaN. */
REFERENCE(distance, "distance")
{
  const double *w = launch->in[0], *g = launch->in[1];
  const double *before = launch->node->in_count > 2 ? launch->in[2] : (const double[]){0, 0};
  double sum = before[0], largest = before[1];
  for (int64_t i = 0; i < brim_shape_count(&launch->node->in[0]->shape); i++) {
    const double d = w[i] - g[i];
    sum += d * d;
    if (fabs(d) > largest) largest = fabs(d);
  }
  double *out = launch->out[0];
  out[0] = sum;
  out[1] = largest;
  return BRIM_OK;
}

REFERENCE(steer, "steer")
{
  const double *w = launch->in[0], *g = launch->in[1], *old = launch->in[2];
  const double *control = launch->node->in_count > 3 ? launch->in[3] : NULL;
  double *gradient = launch->out[0];
  for (int64_t i = 0; i < brim_shape_count(&launch->node->in[0]->shape); i++) {
    gradient[i] = old[i] + (w[i] - g[i]) * launch->step->federated;
    if (control) gradient[i] += control[i] * launch->step->control;
  }
  return BRIM_OK;
}

/* For |v| < 512, v + 1536 lies between 1024 and 2048, where doubles are 2^-42 apart: q is v rounded to a multiple of
 * that, and as sums of such multiples are exact below 2^11, any order of the clients gives the same bits. */
REFERENCE(fold, "fold")
{
  const double *w = launch->in[0], *g = launch->in[1], *old = launch->in[2];
  double *sum = launch->out[0];
  for (int64_t i = 0; i < brim_shape_count(&launch->node->in[0]->shape); i++) {
    const double v = (w[i] - g[i]) * launch->step->federated;
    const double q = (v + 1536.0) - 1536.0;
    sum[i] = old[i] + q;
  }
  return BRIM_OK;
}

REFERENCE(serve, "serve")
{
  const double *sum = launch->in[0], *x = launch->node->in_count > 1 ? launch->in[1] : NULL;
  double *y = launch->out[0];
  for (int64_t i = 0; i < brim_shape_count(&launch->node->in[0]->shape); i++) {
    const double mean = sum[i] * launch->step->federated;
    y[i] = x ? x[i] + mean : -mean;
  }
  return BRIM_OK;
}
