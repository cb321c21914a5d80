/* softmax and its logarithm over the last dimension, rows of F numbers:
 *
 *     softmax(x)[i]     = exp(x[i]) / sum over k of exp(x[k])
 *     log_softmax(x)[i] = x[i] - log(sum over k of exp(x[k]))
 *
 * The row's greatest number is first subtracted, which prevents overflow and does not change the result. Elements are
 * read before they are written, so a result may overwrite its input. */
#include "reference.h"

/* Returns the sum of exp(x - greatest), and the greatest number of the row. */
static double sum_exp(const double *x, int64_t F, double *greatest)
{
  double sum = 0;
  *greatest = x[0];
  for (int64_t i = 1; i < F; i++)
    if (x[i] > *greatest) *greatest = x[i];
  for (int64_t i = 0; i < F; i++) sum += exp(x[i] - *greatest);
  return sum;
}

REFERENCE(softmax, "softmax")
{
  const brim_tensor *t = launch->node->in[0];
  const int64_t F = t->shape.dim[t->shape.rank - 1];
  const double *x = launch->in[0];
  double *y = launch->out[0];
  for (int64_t r = 0; r < rows_of(t); r++, x += F, y += F) {
    double greatest;
    const double sum = sum_exp(x, F, &greatest);
    for (int64_t i = 0; i < F; i++) y[i] = exp(x[i] - greatest) / sum;
  }
  return BRIM_OK;
}

/* dx = y * (dy - sum over k of y[k] dy[k]) */
REFERENCE(softmax_grad, "softmax_grad")
{
  const brim_tensor *t = launch->node->in[0];
  const int64_t F = t->shape.dim[t->shape.rank - 1];
  const double *y = launch->in[0], *dy = launch->in[1];
  double *dx = launch->out[0];
  for (int64_t r = 0; r < rows_of(t); r++, y += F, dy += F, dx += F) {
    double sum = 0;
    for (int64_t i = 0; i < F; i++) sum += y[i] * dy[i];
    for (int64_t i = 0; i < F; i++) dx[i] = y[i] * (dy[i] - sum);
  }
  return BRIM_OK;
}

REFERENCE(log_softmax, "log_softmax")
{
  const brim_tensor *t = launch->node->in[0];
  const int64_t F = t->shape.dim[t->shape.rank - 1];
  const double *x = launch->in[0];
  double *y = launch->out[0];
  for (int64_t r = 0; r < rows_of(t); r++, x += F, y += F) {
    double greatest;
    const double log_sum = log(sum_exp(x, F, &greatest));
    for (int64_t i = 0; i < F; i++) y[i] = x[i] - greatest - log_sum;
  }
  return BRIM_OK;
}

/* dx = dy - exp(y) * sum over k of dy[k] */
REFERENCE(log_softmax_grad, "log_softmax_grad")
{
  const brim_tensor *t = launch->node->in[0];
  const int64_t F = t->shape.dim[t->shape.rank - 1];
  const double *y = launch->in[0], *dy = launch->in[1];
  double *dx = launch->out[0];
  for (int64_t r = 0; r < rows_of(t); r++, y += F, dy += F, dx += F) {
    double sum = 0;
    for (int64_t i = 0; i < F; i++) sum += dy[i];
    for (int64_t i = 0; i < F; i++) dx[i] = dy[i] - exp(y[i]) * sum;
  }
  return BRIM_OK;
}
