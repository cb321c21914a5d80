/* Normalisation over the last dimension (layer norm, RMS norm) and its gradients. For each row x[0..F):
 *
 *     mean = sum of x / F      rstd = 1 / sqrt(sum of (x - mean)^2 / F + eps)      h[f] = (x[f] - mean) * rstd
 *     y[f]        = h[f] * weight[f] + bias[f]
 *     dx[f]       = rstd * (g[f] - mean of g - h[f] * mean of g*h),   g[f] = dy[f] * weight[f]
 *     dweight[f] += dy[f] * h[f]
 *     dbias[f]   += dy[f]
 *
 * RMS norm has mean 0, weight + offset instead of weight, and no bias. Its dx has no mean of g, because that term comes
 * from the gradient of the mean. layer_norm_grad+add and rms_norm_grad+add add dx to a tensor a. */
#include "reference.h"

REFERENCE(layer_norm, "layer_norm")
{
  const brim_tensor *shape = launch->node->in[0];
  const int64_t rows = rows_of(shape), F = shape->shape.dim[shape->shape.rank - 1];
  const double *weight = launch->in[1], *bias = launch->in[2], eps = launch->node->attr.norm.eps;
  double *mean = launch->out[1], *rstd = launch->out[2];

  for (int64_t r = 0; r < rows; r++) {
    const double *x = (const double *)launch->in[0] + r * F;
    double *y = (double *)launch->out[0] + r * F, sum = 0, squares = 0;
    for (int64_t f = 0; f < F; f++) sum += x[f];
    mean[r] = sum / (double)F;
    for (int64_t f = 0; f < F; f++) squares += (x[f] - mean[r]) * (x[f] - mean[r]);
    rstd[r] = 1 / sqrt(squares / (double)F + eps);
    for (int64_t f = 0; f < F; f++) y[f] = (x[f] - mean[r]) * rstd[r] * weight[f] + bias[f];
  }
  return BRIM_OK;
}

/* a: added to dx, or NULL. in: the inputs after a. */
static brim_status differentiate_layer_norm(const brim_launch *launch, const double *a, void *const *in)
{
  const brim_tensor *shape = launch->node->in[0];
  const int64_t rows = rows_of(shape), F = shape->shape.dim[shape->shape.rank - 1];
  const double *weight = in[1], *mean = in[2], *rstd = in[3];
  double *dweight = launch->out[1], *dbias = launch->out[2];

  for (int64_t r = 0; r < rows; r++) { /* rows are the outermost loop, so their order is the order of the sums */
    const double *x = (const double *)in[0] + r * F, *dy = (const double *)in[4] + r * F;
    double *dx = (double *)launch->out[0] + r * F, sum = 0, product = 0;
    for (int64_t f = 0; f < F; f++) {
      const double g = dy[f] * weight[f], h = (x[f] - mean[r]) * rstd[r];
      sum += g;
      product += g * h;
      dweight[f] += dy[f] * h;
      dbias[f] += dy[f];
    }
    for (int64_t f = 0; f < F; f++) {
      const double g = dy[f] * weight[f], h = (x[f] - mean[r]) * rstd[r];
      const double value = rstd[r] * (g - sum / (double)F - h * product / (double)F);
      dx[f] = a ? a[r * F + f] + value : value;
    }
  }
  return BRIM_OK;
}

REFERENCE(layer_norm_grad, "layer_norm_grad")
{
  return differentiate_layer_norm(launch, NULL, launch->in);
}

REFERENCE(layer_norm_grad_add, "layer_norm_grad+add")
{
  return differentiate_layer_norm(launch, launch->in[0], launch->in + 1);
}

REFERENCE(rms_norm, "rms_norm")
{
  const brim_tensor *shape = launch->node->in[0];
  const int64_t rows = rows_of(shape), F = shape->shape.dim[shape->shape.rank - 1];
  const double *weight = launch->in[1], eps = launch->node->attr.norm.eps, offset = launch->node->attr.norm.offset;
  double *rstd = launch->out[1];

  for (int64_t r = 0; r < rows; r++) {
    const double *x = (const double *)launch->in[0] + r * F;
    double *y = (double *)launch->out[0] + r * F, squares = 0;
    for (int64_t f = 0; f < F; f++) squares += x[f] * x[f];
    rstd[r] = 1 / sqrt(squares / (double)F + eps);
    for (int64_t f = 0; f < F; f++) y[f] = x[f] * rstd[r] * (weight[f] + offset);
  }
  return BRIM_OK;
}

static brim_status differentiate_rms_norm(const brim_launch *launch, const double *a, void *const *in)
{
  const brim_tensor *shape = launch->node->in[0];
  const int64_t rows = rows_of(shape), F = shape->shape.dim[shape->shape.rank - 1];
  const double *weight = in[1], *rstd = in[2], offset = launch->node->attr.norm.offset;
  double *dweight = launch->out[1];

  for (int64_t r = 0; r < rows; r++) {
    const double *x = (const double *)in[0] + r * F, *dy = (const double *)in[3] + r * F;
    double *dx = (double *)launch->out[0] + r * F, product = 0;
    for (int64_t f = 0; f < F; f++) {
      const double h = x[f] * rstd[r];
      product += dy[f] * (weight[f] + offset) * h;
      dweight[f] += dy[f] * h;
    }
    for (int64_t f = 0; f < F; f++) {
      const double value = rstd[r] * (dy[f] * (weight[f] + offset) - x[f] * rstd[r] * product / (double)F);
      dx[f] = a ? a[r * F + f] + value : value;
    }
  }
  return BRIM_OK;
}

REFERENCE(rms_norm_grad, "rms_norm_grad")
{
  return differentiate_rms_norm(launch, NULL, launch->in);
}

REFERENCE(rms_norm_grad_add, "rms_norm_grad+add")
{
  return differentiate_rms_norm(launch, launch->in[0], launch->in + 1);
}
