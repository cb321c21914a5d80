/* Operations of a federated round. adopt copies the global model for a client; steer adds a term that draws the client
 * back to the global model; fold adds the client's update to the round's sum; serve makes the server's gradient from
 * the sum. The file is compiled without fused multiply-adds, because fold's rounding is part of its definition. */
#include <string.h>

#include "reference.h"

REFERENCE(adopt, "adopt")
{
  memcpy(launch->out[0], launch->in[0], launch->node->out[0]->bytes);
  return BRIM_OK;
}

/* Adds up in memory order. The maximum ignores NaN. */
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

/* q is v rounded to a multiple of 2^-42: for |v| < 512, v + 1536 lies between 1024 and 2048, where doubles are 2^-42
 * apart. Sums of such multiples are exact below 2^11, so any order of the clients gives the same bits. */
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
