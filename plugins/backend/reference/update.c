/* The optimizers' updates, element by element and in place; hyperparameters come with the step.
 * All are PyTorch's, to the order of operations. */
#include "reference.h"

static double weight_decay(const brim_launch *launch)
{
  return launch->node->attr.update.no_decay ? 0 : launch->step->weight_decay;
}

/* AdamW (Loshchilov, Hutter: Decoupled Weight Decay Regularization; ICLR 2019, algorithm 2):
 *
 *     p = p - lr * weight_decay * p
 *     m = beta1 * m + (1 - beta1) * g
 *     v = beta2 * v + (1 - beta2) * g^2
 *     p = p - lr / bc1 * m / (sqrt(v) / sqrt(bc2) + eps),   bc = 1 - beta^t */
brim_status reference_adamw(void *self, const brim_launch *launch)
{
  (void)self;
  const brim_step *step = launch->step;
  const double decay = weight_decay(launch);
  const double *p_old = launch->in[0], *g = launch->in[1], *m_old = launch->in[2], *v_old = launch->in[3];
  double *p = launch->out[0], *m = launch->out[1], *v = launch->out[2];
  const int64_t count = brim_shape_count(&launch->node->in[0]->shape);

  for (int64_t i = 0; i < count; i++) {
    const double decayed = p_old[i] - step->lr * decay * p_old[i];
    m[i] = step->beta1 * m_old[i] + (1 - step->beta1) * g[i];
    v[i] = step->beta2 * v_old[i] + (1 - step->beta2) * g[i] * g[i];
    const double root = sqrt(v[i]) / sqrt(step->bias_correction2);
    p[i] = decayed - step->lr / step->bias_correction1 * m[i] / (root + step->eps);
  }
  return BRIM_OK;
}

/* Adam (Kingma, Ba: Adam: A Method for Stochastic Optimization; ICLR 2015), the weight decay an L2 penalty:
 *
 *     d = g + weight_decay * p
 *     m = beta1 * m + (1 - beta1) * d
 *     v = beta2 * v + (1 - beta2) * d^2
 *     p = p - lr / bc1 * m / (sqrt(v) / sqrt(bc2) + eps) */
brim_status reference_adam(void *self, const brim_launch *launch)
{
  (void)self;
  const brim_step *step = launch->step;
  const double decay = weight_decay(launch);
  const double *p_old = launch->in[0], *g = launch->in[1], *m_old = launch->in[2], *v_old = launch->in[3];
  double *p = launch->out[0], *m = launch->out[1], *v = launch->out[2];
  const int64_t count = brim_shape_count(&launch->node->in[0]->shape);

  for (int64_t i = 0; i < count; i++) {
    const double d = decay != 0 ? g[i] + decay * p_old[i] : g[i];
    m[i] = step->beta1 * m_old[i] + (1 - step->beta1) * d;
    v[i] = step->beta2 * v_old[i] + (1 - step->beta2) * d * d;
    const double root = sqrt(v[i]) / sqrt(step->bias_correction2);
    p[i] = p_old[i] - step->lr / step->bias_correction1 * m[i] / (root + step->eps);
  }
  return BRIM_OK;
}

/* Stochastic gradient descent with (heavy-ball) momentum; the velocity starts at 0:
 *
 *     d = g + weight_decay * p
 *     velocity = momentum * velocity + d
 *     p = p - lr * velocity                     plain
 *     p = p - lr * (d + momentum * velocity)    Nesterov's */
brim_status reference_sgd(void *self, const brim_launch *launch)
{
  (void)self;
  const brim_step *step = launch->step;
  const double decay = weight_decay(launch);
  const double *p_old = launch->in[0], *g = launch->in[1], *velocity_old = launch->in[2];
  double *p = launch->out[0], *velocity = launch->out[1];
  const int64_t count = brim_shape_count(&launch->node->in[0]->shape);

  for (int64_t i = 0; i < count; i++) {
    const double d = g[i] + decay * p_old[i];
    velocity[i] = step->momentum * velocity_old[i] + d;
    const double ahead = d + step->momentum * velocity[i];
    p[i] = p_old[i] - step->lr * (launch->node->attr.update.nesterov ? ahead : velocity[i]);
  }
  return BRIM_OK;
}
