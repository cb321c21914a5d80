/* The optimizers' updates, element by element and in place. The step supplies hyperparameters. A factor may limit the
 * global norm of the gradients. All updates follow PyTorch, down to the order of operations. */
#include <string.h>

#include "reference.h"

/* AdamW (Loshchilov, Hutter: Decoupled Weight Decay Regularization; ICLR 2019, algorithm 2):
 *
 *     p = p - lr * weight_decay * p
 *     m = beta1 * m + (1 - beta1) * g
 *     v = beta2 * v + (1 - beta2) * g^2
 *     p = p - lr / bc1 * m / (sqrt(v) / sqrt(bc2) + eps),   bc = 1 - beta^t */
REFERENCE(adamw, "adamw")
{
  const brim_step *step = launch->step;
  const double decay = weight_decay(launch), factor = gradient_factor(launch);
  const double *p_old = launch->in[0], *g = launch->in[1], *m_old = launch->in[2], *v_old = launch->in[3];
  double *p = launch->out[0], *m = launch->out[1], *v = launch->out[2];
  const int64_t count = brim_shape_count(&launch->node->in[0]->shape);

  for (int64_t i = 0; i < count; i++) {
    const double decayed = p_old[i] - step->lr * decay * p_old[i];
    const double d = factor * g[i];
    m[i] = step->beta1 * m_old[i] + (1 - step->beta1) * d;
    v[i] = step->beta2 * v_old[i] + (1 - step->beta2) * d * d;
    const double root = sqrt(v[i]) / sqrt(step->bias_correction2);
    p[i] = decayed - step->lr / step->bias_correction1 * m[i] / (root + step->eps);
  }
  return BRIM_OK;
}

/* Adam (Kingma, Ba: Adam: A Method for Stochastic Optimization; ICLR 2015), with weight decay as an L2 penalty:
 *
 *     d = g + weight_decay * p
 *     m = beta1 * m + (1 - beta1) * d
 *     v = beta2 * v + (1 - beta2) * d^2
 *     p = p - lr / bc1 * m / (sqrt(v) / sqrt(bc2) + eps) */
REFERENCE(adam, "adam")
{
  const brim_step *step = launch->step;
  const double decay = weight_decay(launch), factor = gradient_factor(launch);
  const double *p_old = launch->in[0], *g = launch->in[1], *m_old = launch->in[2], *v_old = launch->in[3];
  double *p = launch->out[0], *m = launch->out[1], *v = launch->out[2];
  const int64_t count = brim_shape_count(&launch->node->in[0]->shape);

  for (int64_t i = 0; i < count; i++) {
    const double d = factor * g[i] + (decay != 0 ? decay * p_old[i] : 0);
    m[i] = step->beta1 * m_old[i] + (1 - step->beta1) * d;
    v[i] = step->beta2 * v_old[i] + (1 - step->beta2) * d * d;
    const double root = sqrt(v[i]) / sqrt(step->bias_correction2);
    p[i] = p_old[i] - step->lr / step->bias_correction1 * m[i] / (root + step->eps);
  }
  return BRIM_OK;
}

/* Yogi (Zaheer et al.: Adaptive Methods for Nonconvex Optimization; NeurIPS 2018, algorithm 2). Weight decay is an L2
 * penalty, m and p are updated as in Adam, sign(0) is 0, and v starts with initial_accumulator:
 *
 *     v = v - (1 - beta2) * sign(v - d^2) * d^2 */
REFERENCE(yogi, "yogi")
{
  const brim_step *step = launch->step;
  const double decay = weight_decay(launch), factor = gradient_factor(launch);
  const double *p_old = launch->in[0], *g = launch->in[1], *m_old = launch->in[2], *v_old = launch->in[3];
  double *p = launch->out[0], *m = launch->out[1], *v = launch->out[2];
  const int64_t count = brim_shape_count(&launch->node->in[0]->shape);

  for (int64_t i = 0; i < count; i++) {
    const double d = factor * g[i] + (decay != 0 ? decay * p_old[i] : 0);
    const double square = d * d, before = v_old[i] + step->initial_accumulator;
    m[i] = step->beta1 * m_old[i] + (1 - step->beta1) * d;
    v[i] = before - (1 - step->beta2) * ((before > square) - (before < square)) * square;
    const double root = sqrt(v[i]) / sqrt(step->bias_correction2);
    p[i] = p_old[i] - step->lr / step->bias_correction1 * m[i] / (root + step->eps);
  }
  return BRIM_OK;
}

/* Adagrad (Duchi, Hazan, Singer: Adaptive Subgradient Methods for Online Learning and Stochastic Optimization; JMLR
 * 2011), with weight decay as an L2 penalty. The sum starts with initial_accumulator:
 *
 *     d = g + weight_decay * p
 *     sum = sum + d^2
 *     p = p - lr * d / (sqrt(sum) + eps) */
REFERENCE(adagrad, "adagrad")
{
  const brim_step *step = launch->step;
  const double decay = weight_decay(launch), factor = gradient_factor(launch);
  const double *p_old = launch->in[0], *g = launch->in[1], *sum_old = launch->in[2];
  double *p = launch->out[0], *sum = launch->out[1];

  for (int64_t i = 0; i < brim_shape_count(&launch->node->in[0]->shape); i++) {
    const double d = factor * g[i] + decay * p_old[i];
    sum[i] = sum_old[i] + step->initial_accumulator + d * d;
    p[i] = p_old[i] - step->lr * d / (sqrt(sum[i]) + step->eps);
  }
  return BRIM_OK;
}

/* Stochastic gradient descent with (heavy-ball) momentum. The velocity starts at 0:
 *
 *     d = g + weight_decay * p
 *     velocity = momentum * velocity + d
 *     p = p - lr * velocity                     plain
 *     p = p - lr * (d + momentum * velocity)    Nesterov */
REFERENCE(sgd, "sgd")
{
  const brim_step *step = launch->step;
  const double decay = weight_decay(launch), factor = gradient_factor(launch);
  const double *p_old = launch->in[0], *g = launch->in[1], *velocity_old = launch->in[2];
  double *p = launch->out[0], *velocity = launch->out[1];
  const int64_t count = brim_shape_count(&launch->node->in[0]->shape);

  for (int64_t i = 0; i < count; i++) {
    const double d = factor * g[i] + decay * p_old[i];
    velocity[i] = step->momentum * velocity_old[i] + d;
    const double ahead = d + step->momentum * velocity[i];
    p[i] = p_old[i] - step->lr * (launch->node->attr.update.nesterov ? ahead : velocity[i]);
  }
  return BRIM_OK;
}

/* The squares are added up in memory order, in double precision. */
REFERENCE(squared_norm, "squared_norm")
{
  const double *x = launch->in[0];
  double sum = launch->node->in_count > 1 ? *(const double *)launch->in[1] : 0;
  for (int64_t i = 0; i < brim_shape_count(&launch->node->in[0]->shape); i++) sum += x[i] * x[i];
  *(double *)launch->out[0] = sum;
  return BRIM_OK;
}

REFERENCE(gradient_scale, "gradient_scale")
{
  const double scale = launch->step->gradient_scale, max_norm = launch->node->attr.clip.max_norm;
  double *out = launch->out[0];
  out[0] = launch->node->in_count > 0 ? scale * sqrt(*(const double *)launch->in[0]) : 0;
  const double limit = max_norm / (out[0] + 1e-6);
  out[1] = scale * (max_norm > 0 && !(limit > 1) ? limit : 1); /* a norm that is NaN gives a NaN factor */
  return BRIM_OK;
}

REFERENCE(ema, "ema")
{
  const double *p = launch->in[0], *old = launch->in[1];
  const double decay = launch->step->step == 0 ? 0 : launch->node->attr.ema.decay;
  double *average = launch->out[0];
  for (int64_t i = 0; i < brim_shape_count(&launch->node->in[0]->shape); i++)
    average[i] = decay * old[i] + (1 - decay) * p[i];
  return BRIM_OK;
}

REFERENCE(zero, "zero")
{
  memset(launch->out[0], 0, launch->node->out[0]->bytes);
  return BRIM_OK;
}

REFERENCE(accumulate, "accumulate")
{
  const double *x = launch->in[0];
  double *gradient = launch->out[0];
  for (int64_t i = 0; i < brim_shape_count(&launch->node->out[0]->shape); i++) gradient[i] += x[i];
  return BRIM_OK;
}

REFERENCE(moving_average, "moving_average")
{
  const double momentum = launch->node->attr.moving_average.momentum, groups = (double)launch->step->norm_groups;
  const double *value = launch->in[0], *sum = launch->in[1];
  double *out = launch->out[0];
  for (int64_t i = 0; i < brim_shape_count(&launch->node->out[0]->shape); i++)
    out[i] = value[i] + momentum * (sum[i] / groups - value[i]);
  return BRIM_OK;
}
